// Callbacks run on their own threads, in stream order, and may close their stream.
#include <mutex>

#include "streams.h"

using namespace streams;

namespace {

uint32_t device;

// A thread that serves a queue, as a host language would.
class Server {
  public:
    explicit Server(int threads = 1) {
        for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { serve(); });
    }
    ~Server() {
        over_ = true;
        for (std::thread& thread : threads_) thread.join();
        queue->drop();
    }

    // `work` says whether it raised.
    Submitted launch(Stream& on, std::function<bool()> work) {
        uint64_t token;
        {
            std::lock_guard lock(mutex_);
            token = ++next_;
            calls_[token] = std::move(work);
        }
        return callback(on, queue, token);
    }

    CallbackQueue* const queue = new CallbackQueue;

  private:
    void serve() {
        CallbackQueue::Item item;
        while (!over_) {
            if (!queue->take(item, 2'000'000) || !engine().begin_callback(*item.stream, item.token)) continue;
            std::function<bool()> work;
            {
                std::lock_guard lock(mutex_);
                work = std::move(calls_.at(item.token));
                calls_.erase(item.token);
            }
            const bool raised = work();
            engine().finish_callback(*item.stream, item.token, raised);
            item.stream.reset();
        }
    }

    std::mutex mutex_;
    std::map<uint64_t, std::function<bool()>> calls_;
    uint64_t next_ = 0;
    std::atomic<bool> over_{false};
    std::vector<std::thread> threads_;
};

std::vector<uint64_t> released_tokens() {
    std::vector<void*> objects;
    std::vector<uint64_t> tokens;
    engine().take_released(objects, tokens);
    return tokens;
}

void in_stream_order(int servers) {
    Server server(servers);
    constexpr int kStreams = 6;
    const Area memory = area(device, 8 * kStreams);
    std::vector<StreamPtr> all;
    std::array<std::vector<uint64_t>, kStreams> seen;
    for (int s = 0; s < kStreams; ++s) all.push_back(stream(device));
    for (uint64_t i = 1; i <= 100; ++i)
        for (uint64_t s = 0; s < kStreams; ++s) {
            write(*all[s], memory.address + 8 * s, i);
            server.launch(*all[s], [&, s] {
                seen[s].push_back(memory.word(s));
                return false;
            });
        }
    for (const StreamPtr& each : all) finish(*each);
    for (const auto& values : seen) {
        CHECK(values.size() == 100);
        for (uint64_t i = 0; i < 100; ++i) CHECK(values[i] == i + 1);
    }
    for (const StreamPtr& each : all) close(*each);
    memory.close();
}

void raising(bool stops) {
    Server server;
    const Area memory = area(device, 16);
    const StreamPtr one = stream(device, stops);
    server.launch(*one, [] { return true; });
    write(*one, memory.address, 1);
    sync(*one);
    const FailurePtr failure = engine().take_failure(*one);
    CHECK(failure && failure->refusal.why == Why::callback_failed && failure->token == 1 && failure->sequence == 1);
    CHECK(memory.word(0) == (stops ? 0 : 1));
    close(*one);
    memory.close();
}

// Closing, aborting and waiting in a callback of the stream itself.
void in_its_own_callback() {
    Server server;
    const Area memory = area(device, 32);
    Notify* gate = Notify::local(NotifyKind::binary, device);
    for (const bool waits : {true, false}) {
        const StreamPtr one = stream(device);
        std::atomic<bool> refused{false};
        await(*one, gate);
        server.launch(*one, [&] {
            refused = refuses(Why::own_callback, [&] { engine().synchronize(*one, Deadline::in(kPatience), {}); });
            CHECK(engine().close(*one, waits, {}) == Outcome::reached);
            CHECK(!one->closed);   // the stream closes after the callback
            return false;
        });
        write(*one, memory.address, 1);   // queued before it was closed
        engine().notify_recorded(*gate);
        while (!one->closing) {
            engine().query(*one);
            std::this_thread::yield();
        }
        close(*one);
        CHECK(refused && one->closed && memory.word(0) == 1 && !engine().take_failure(*one));
        memory.set(0, 0);
    }
    const StreamPtr one = stream(device);
    await(*one, gate);
    server.launch(*one, [&] {
        engine().abort(*one, true);
        return false;
    });
    write(*one, memory.address, 1);
    engine().notify_recorded(*gate);
    sync(*one);
    gate->drop();
    CHECK(one->closed && memory.word(0) == 0 && failed_with(*one, Why::cancelled));
    memory.close();
}

// A callback that waits for a stream that waits for it, in three ways.
void waiting_for_oneself() {
    Server server;
    const StreamPtr one = stream(device), other = stream(device), third = stream(device), fourth = stream(device);
    Notify* notify_ = Notify::local(NotifyKind::binary, device);
    Notify* gate = Notify::local(NotifyKind::binary, device);
    std::atomic<int> refused{0};
    await(*one, gate);
    server.launch(*one, [&] {
        refused += refuses(Why::own_callback, [&] { engine().synchronize(*other, Deadline::in(kPatience), {}); });
        refused += refuses(Why::deadlock, [&] { engine().synchronize(*third, Deadline::in(kPatience), {}); });
        // Behind a callback that only this thread could run.
        server.launch(*fourth, [] { return false; });
        refused += refuses(Why::own_callback, [&] { engine().synchronize(*fourth, Deadline::in(kPatience), {}); });
        return false;
    });
    order(*one, *other);
    streams::notify(*one, notify_);
    await(*third, notify_);
    engine().notify_recorded(*gate);
    for (const StreamPtr& each : {one, other, third}) finish(*each);
    CHECK(refused == 3);
    for (const StreamPtr& each : {one, other, third, fourth}) close(*each);
    notify_->drop();
    gate->drop();
}

// No thread serves the queue: abort ends a callback that was not begun, and its token comes back.
void never_begun() {
    auto* queue = new CallbackQueue;
    const StreamPtr one = stream(device);
    released_tokens();
    callback(*one, queue, 77);
    callback(*one, queue, 78);
    CHECK(!engine().query(*one));
    CHECK(engine().synchronize(*one, Deadline::in(0.01), {}) == Outcome::timed_out);
    CallbackQueue::Item taken;
    const bool was_taken = queue->take(taken, 0);
    engine().abort(*one, true);
    sync(*one);
    CHECK(one->closed && failed_with(*one, Why::cancelled));
    CHECK((released_tokens() == std::vector<uint64_t>{77, 78}));
    if (was_taken) CHECK(!engine().begin_callback(*taken.stream, taken.token));
    CHECK(!queue->take(taken, 0));
    queue->drop();
}

// Streams are closed and aborted while their callbacks run on another thread.
void aborted_while_they_run(std::mt19937_64& random) {
    Server server(3);
    std::atomic<int> ran{0};
    for (int i = 0; i < scaled(150, 3000); ++i) {
        const StreamPtr one = stream(device);
        for (int n = 0; n < 5; ++n)
            server.launch(*one, [&] {
                ++ran;
                return false;
            });
        if (random() % 2) engine().query(*one);
        if (random() % 2) std::this_thread::yield();
        engine().abort(*one, random() % 2);
        close(*one);
        CHECK(one->closed);
    }
    released_tokens();
}

}  // namespace

NATIVE_TEST(test_stream_callbacks) {
    auto random = seeded("test_stream_callbacks");
    open_heap();
    device = new_device();
    for (int i = 0; i < scaled(1, 20); ++i)
        under_each_schedule(random, [&] {
            RUN(in_stream_order(1));
            RUN(in_stream_order(3));
            RUN(raising(true));
            RUN(raising(false));
            RUN(in_its_own_callback());
            RUN(waiting_for_oneself());
            RUN(never_begun());
            RUN(aborted_while_they_run(random));
        });
    CHECK(engine().waiting().empty());
    return 0;
}
