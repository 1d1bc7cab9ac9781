// Messages of UCX between processes: this program twice, over TCP.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <mutex>
#include <numeric>

#include "faults.h"
#include "memory/threads.h"
#include "net/engine.h"
#include "peers.h"

using namespace peers;
using namespace peerlane::net;

namespace {

struct Header {
    uint64_t kind, number, sum;
};

enum Kind : uint64_t { kPost, kEcho, kAnswer, kFetch, kRefuse, kRefuseLater, kKeep };

uint64_t sum_of(const void* data, uint64_t size) {
    uint64_t sum = size;
    for (uint64_t i = 0; i < size; ++i) sum = sum * 31 + static_cast<const uint8_t*>(data)[i];
    return sum;
}

std::vector<uint8_t> bytes_of(uint64_t number, uint64_t size) {
    std::vector<uint8_t> bytes(size);
    std::iota(bytes.begin(), bytes.end(), static_cast<uint8_t>(number));
    return bytes;
}

const std::vector<uint8_t> kEight = bytes_of(1, 8);

struct Ended final : Completion {
    std::atomic<int> good{0}, bad{0};
    void done(bool ok) override { ++(ok ? good : bad); }
    int all() const { return good + bad; }
};

template <class Body>
struct Does final : peerlane::net::Work {
    Body body;
    explicit Does(Body what) : body(std::move(what)) {}
    void run() override { body(); }
};

Engine& net() { return *Engine::get(); }

bool helped(const std::function<bool()>& condition) {
    const auto start = steady_clock::now();
    while (!condition()) {
        net().help();
        if (seconds_since(start) > kPatience) return false;
    }
    return true;
}

// Under the engine's lock, and over when this returns.
template <class Body>
void locked(const Body& body) {
    std::atomic<bool> is_done{false};
    Does work([&] {
        body();
        is_done = true;
    });
    net().submit(work);
    CHECK(comes_true([&] { return is_done.load(); }));
}

struct Parcel {
    void* name;
    uint64_t size;
};

// What both processes do with what comes.
struct Host final : Handler {
    struct Owned final : Completion {
        Header header;
        std::vector<uint8_t> bytes;
        Host* host;
        bool is_fetch;
        void done(bool ok) override {
            if (is_fetch) host->fetched(*this, ok);
            delete this;
        }
    };

    std::atomic<uint64_t> posted{0}, answers{0}, wrong{0}, parcels{0}, ticks{0}, fetch_failures{0}, sends_failed{0};
    std::atomic<int> losses{0};
    steady_clock::time_point lost_at;
    Peer* peer = nullptr;   // to whom answers go
    std::vector<Parcel> kept;

    void fetched(Owned& owned, bool ok) {
        if (!ok) ++fetch_failures;
        else answer(owned.header.number, sum_of(owned.bytes.data(), owned.bytes.size()));
    }

    void answer(uint64_t number, uint64_t sum) {
        const Header header{kAnswer, number, sum};
        net().send(*peer, &header, sizeof header, nullptr, 0, nullptr);
    }

    void arrived(const Arrival& arrival) override {
        Header header{};
        if (arrival.header_size != sizeof header || (arrival.size >= Engine::kFetchedFrom) != (arrival.parcel != nullptr)) {
            ++wrong;
            return;
        }
        std::memcpy(&header, arrival.header, sizeof header);
        if (arrival.parcel) ++parcels;
        else if (sum_of(arrival.data, arrival.size) != header.sum && header.kind != kAnswer) ++wrong;
        switch (header.kind) {
            case kPost: ++posted; break;
            case kAnswer:
                sums[header.number % sums.size()] = header.sum;
                ++answers;   // who waits for it reads the sum
                break;
            case kEcho: {
                ++posted;
                auto* const owned = new Owned;
                const auto* const data = static_cast<const uint8_t*>(arrival.data);
                owned->bytes.assign(data, data + arrival.size);
                owned->is_fetch = false;
                header.kind = kPost;
                net().send(*peer, &header, sizeof header, owned->bytes.data(), owned->bytes.size(), owned);
                break;
            }
            case kFetch: fetch(header, {arrival.parcel, arrival.size}); break;
            case kRefuse: net().refuse(arrival.parcel); break;
            default: kept.push_back({arrival.parcel, arrival.size}); break;
        }
    }

    void fetch(const Header& header, const Parcel& parcel) {
        auto* const owned = new Owned;
        owned->header = header;
        owned->bytes.resize(parcel.size);
        owned->host = this;
        owned->is_fetch = true;
        net().fetch(parcel.name, owned->bytes.data(), parcel.size, owned);
    }

    void lost(Peer& which, const char* why) override {
        CHECK(&which == peer && why && *why);
        lost_at = steady_clock::now();
        ++losses;
    }

    void tick(uint64_t) override { ++ticks; }

    std::array<std::atomic<uint64_t>, 64> sums{};
};

Host& host() {
    static Host one;
    return one;
}

void start() {
    setenv("UCX_TLS", "tcp,self", 1);
    const char* const library = std::getenv("PEERLANE_UCX");
    try {
        Engine::start({.library = library ? library : "", .interface = "lo"}, host());
    } catch (const Unavailable& none) {
        for (const std::string& one : none.tried) std::fprintf(stderr, "%s\n", one.c_str());
        CHECK(!"UCX was found");
    } catch (const Failed& failed) {
        std::fprintf(stderr, "%s\n", failed.what.c_str());
        CHECK(!"UCX starts");
    }
}

std::string hex(const std::string& bytes) {
    std::string text;
    for (const char byte : bytes) {
        char two[3];
        std::snprintf(two, sizeof two, "%02x", static_cast<unsigned>(static_cast<uint8_t>(byte)));
        text += two;
    }
    return text;
}

std::string unhex(const std::string& text) {
    std::string bytes;
    for (size_t i = 0; i + 1 < text.size(); i += 2) bytes += static_cast<char>(std::stoul(text.substr(i, 2), nullptr, 16));
    return bytes;
}

void meet(const std::string& address) {
    locked([&] { host().peer = &net().connect(address); });
}

// The other process: it only answers, unless it is told to send.
int other_process() {
    start();
    return answer_lines([](Words words) -> std::string {
        const std::string verb = words.word();
        if (verb == "address") return hex(net().address());
        if (verb == "meet") meet(unhex(words.word()));
        if (verb == "told") return std::to_string(host().posted);
        if (verb == "parcels") return std::to_string(host().parcels);
        if (verb == "wrong") return std::to_string(host().wrong);
        if (verb == "losses") return std::to_string(host().losses);
        if (verb == "refuse")
            locked([] {
                for (const Parcel& parcel : host().kept) net().refuse(parcel.name);
                host().kept.clear();
            });
        if (verb == "send") {
            static const std::vector<uint8_t> bytes(8 << 20, 7);
            static Ended ended;
            const uint64_t kind = words.number(), count = words.number(), size = words.number();
            const Header header{kind, 0, size < Engine::kFetchedFrom ? sum_of(bytes.data(), size) : 0};
            locked([&] {
                for (uint64_t i = 0; i < count; ++i) net().send(*host().peer, &header, sizeof header, bytes.data(), size, &ended);
            });
        }
        return "done";
    });
}

struct Other {
    Child child{"other"};
    std::string address;

    explicit Other(bool knows_us = true) {
        address = unhex(child.ask("address"));
        if (knows_us) child.ask("meet " + hex(net().address()));
        host().losses = 0;
        meet(address);
    }

    bool dies() {   // how long until it is known
        const auto start = steady_clock::now();
        child.kill_now();
        if (!comes_true([&] { return host().losses == 1; })) return false;
        const double seconds = std::chrono::duration<double>(host().lost_at - start).count();
        std::printf("    known after %.0f ms\n", seconds * 1e3);
        forget();
        return seconds < kDeathSeconds;
    }

    void forget() {
        locked([] { net().disconnect(*std::exchange(host().peer, nullptr)); });
    }

    void finish() {
        forget();
        child.finish();
    }
};

void post_message(uint64_t kind, uint64_t number, const std::vector<uint8_t>& bytes, Completion* completion) {
    const Header header{kind, number, bytes.size() < Engine::kFetchedFrom ? sum_of(bytes.data(), bytes.size()) : 0};
    locked([&] { net().send(*host().peer, &header, sizeof header, bytes.data(), bytes.size(), completion); });
}

void a_library_that_is_none_is_named() {
    for (const char* path : {"/nowhere/libucp.so.0", "/proc/self/cmdline", "libm.so.6"}) {
        std::vector<std::string> tried;
        try {
            Engine::start({.library = path, .interface = {}}, host());
        } catch (const Unavailable& none) {
            tried = none.tried;
        }
        CHECK(tried.size() == 1 && tried[0].starts_with(path) && !Engine::get());
    }
}

void an_interface_that_is_none_is_refused() {
    const char* const library = std::getenv("PEERLANE_UCX");
    std::string what;
    try {
        Engine::start({.library = library ? library : "", .interface = "nowhere0"}, host());
    } catch (const Failed& failed) {
        what = failed.what;
    }
    CHECK(what.find("nowhere0") != std::string::npos && !Engine::get());
    for (const char* name : {"UCX_MEM_EVENTS", "UCX_ERROR_SIGNALS"}) CHECK(!std::getenv(name));
}

// Else a deadlock of the program could never be proved: UCX has a thread that sleeps for ever.
void threads_of_the_engine_are_known() {
    const auto own_thread = static_cast<int32_t>(gettid());
#ifndef __SANITIZE_THREAD__   // which has a thread of its own
    CHECK(comes_true([&] { return foreign_threads({own_thread}, false).has_value(); }));
#endif
}

void wild_addresses_are_refused() {
    std::string cut = net().address(), wrong = net().address();
    cut.pop_back();
    wrong[wrong.size() / 2] ^= 1;
    for (const std::string& address : {std::string(), std::string("x"), std::string(200, '\7'), cut, wrong}) {
        bool is_refused = false;
        locked([&] {
            try {
                net().connect(address);
            } catch (const Failed&) {
                is_refused = true;
            }
        });
        CHECK(is_refused);
    }
}

void small_messages_go_in_both_directions() {
    Other other;
    host().posted = 0;
    Ended ended;
    std::vector<std::vector<uint8_t>> all;
    for (uint64_t size : {0, 1, 8, 100, 4000, 9000, 65535}) all.push_back(bytes_of(size, size));
    const int rounds = scaled(300, 5000);
    for (int i = 0; i < rounds; ++i)
        for (const auto& bytes : all) post_message(kEcho, 0, bytes, &ended);
    const uint64_t expected = static_cast<uint64_t>(rounds) * all.size();
    CHECK(comes_true([&] { return host().posted == expected; }));
    CHECK(helped([&] { return ended.good == static_cast<int>(expected); }));
    CHECK(host().wrong == 0 && other.child.number("wrong") == 0 && other.child.number("told") == expected);
    other.finish();
}

void large_payloads_are_fetched() {
    Other other;
    for (uint64_t size : {uint64_t{Engine::kFetchedFrom}, (uint64_t{1} << 20) + 3, uint64_t{9} << 20}) {
        const auto bytes = bytes_of(size, size);
        Ended ended;
        const uint64_t before = host().answers;
        post_message(kFetch, 5, bytes, &ended);
        CHECK(comes_true([&] { return host().answers == before + 1 && ended.all() == 1; }));
        CHECK(ended.good == 1 && host().sums[5] == sum_of(bytes.data(), size));
    }
    other.finish();
}

void a_parcel_is_refused() {
    Other other;
    const auto bytes = bytes_of(1, 1 << 20);
    Ended at_once, later, small;
    post_message(kRefuse, 0, bytes, &at_once);
    CHECK(comes_true([&] { return at_once.all() == 1; }));
    post_message(kRefuseLater, 0, bytes, &later);
    CHECK(comes_true([&] { return other.child.number("parcels") == 2; }));
    CHECK(later.all() == 0);
    other.child.ask("refuse");
    CHECK(comes_true([&] { return later.all() == 1; }));
    CHECK(at_once.bad == 1 && later.good == 1);
    post_message(kPost, 0, kEight, &small);   // the line is as before
    CHECK(comes_true([&] { return other.child.number("told") == 1 && small.good == 1; }));
    other.finish();
}

void a_death_is_reported_to_one_that_waits() {
    for (const bool knows_us : {true, false}) {
        Other other(knows_us);
        Ended ended;
        post_message(kPost, 0, kEight, &ended);
        CHECK(comes_true([&] { return ended.good == 1; }));
        CHECK(other.dies());
    }
}

void a_death_ends_what_was_sent() {
    Other other;
    const auto bytes = bytes_of(1, 4 << 20), small = bytes_of(1, 60000);
    Ended kept, streamed;
    for (int i = 0; i < 3; ++i) post_message(kKeep, 0, bytes, &kept);
    CHECK(comes_true([&] { return other.child.number("parcels") == 3; }));
    other.child.stop();
    for (int i = 0; i < 200; ++i) post_message(kPost, 0, small, &streamed);
    Peer* const peer = host().peer;
    locked([&] { net().connect(other.address); });   // so that it is there when it is lost
    CHECK(other.dies());
    CHECK(kept.bad == 3 && streamed.all() == 200);
    Ended late;
    locked([&] {
        const Header header{};
        net().send(*peer, &header, sizeof header, nullptr, 0, &late);
        CHECK(late.bad == 1 && net().transports(*peer).empty());
        CHECK(&net().connect(other.address) == peer);
        net().disconnect(*peer);
        net().disconnect(*peer);
    });
}

void a_death_ends_what_is_fetched() {
    for (const bool is_known : {true, false}) {
        Other other;
        host().fetch_failures = 0;
        locked([] { host().kept.clear(); });
        const uint64_t before = host().parcels;
        other.child.ask("send " + std::to_string(kKeep) + " 2 " + std::to_string(8 << 20));
        CHECK(comes_true([&] { return host().parcels == before + 2; }));
        other.child.stop();
        if (!is_known) {
            locked([] { host().fetch({}, host().kept[0]); });
            CHECK(other.dies());
        } else {
            CHECK(other.dies());
            locked([] { host().fetch({}, host().kept[0]); });
        }
        CHECK(comes_true([] { return host().fetch_failures == 1; }));
        locked([] { net().refuse(host().kept[1].name); });
    }
}

void peers_leave_and_come_back() {
    Other other;
    const uint64_t before = other.child.number("told");
    Ended ended;
    const auto bytes = bytes_of(3, 1000);
    for (int i = 1; i <= 5; ++i) {
        const Header header{kPost, 0, sum_of(bytes.data(), bytes.size())};
        locked([&] {
            for (int k = 0; k < 20; ++k) net().send(*host().peer, &header, sizeof header, bytes.data(), bytes.size(), &ended);
            net().disconnect(*host().peer);   // what was sent arrives
        });
        CHECK(comes_true([&] { return other.child.number("told") == before + 20 * static_cast<uint64_t>(i); }));
        meet(other.address);
    }
    CHECK(comes_true([&] { return ended.all() == 100; }));
    locked([&] {
        CHECK(&net().connect(other.address) == host().peer);
        net().disconnect(*host().peer);
        const auto methods = net().transports(*host().peer);
        std::printf("    %s\n", methods.empty() ? "?" : methods[0].c_str());
        CHECK(!methods.empty() && methods[0] == "tcp/lo");
    });
    CHECK(host().losses == 0);
    other.finish();
}

void posts_of_many_threads_are_all_carried_out() {
    constexpr size_t kThreads = 4;
    const int count = scaled(5000, 200000);
    std::atomic<int> runs{0};
    int unguarded = 0;   // guarded by the engine's lock: TSan looks
    const auto body = [&] {
        ++unguarded;
        runs.fetch_add(1);
    };
    std::vector<std::vector<Does<decltype(body)>>> all(kThreads);
    for (auto& works : all)
        for (int i = 0; i < count; ++i) works.emplace_back(body);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; i < count; ++i) {
                auto& work = all[t][static_cast<size_t>(i)];
                if (i % 3 == static_cast<int>(t)) net().post(work);
                else net().submit(work);
                if (t == 0) net().help();
            }
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(comes_true([&] { return runs == static_cast<int>(kThreads) * count; }));
    locked([&] { CHECK(unguarded == static_cast<int>(kThreads) * count); });
}

// Of a post and a submit at an idle engine none waits for a tick.
void a_post_without_a_kick_is_seen_to() {
    double worst = 0;
    for (int i = 0; i < scaled(200, 5000); ++i) {
        std::atomic<bool> is_done{false};
        Does work([&] { is_done = true; });
        const auto start = steady_clock::now();
        net().post(work);
        while (!is_done && seconds_since(start) < kPatience) std::this_thread::yield();
        worst = std::max(worst, seconds_since(start));
    }
    std::printf("    at most %.2f ms\n", worst * 1e3);
    CHECK(worst < 20);
}

void threads_that_help_take_turns() {
    Other other;
    host().posted = 0;
    const uint64_t ticks = host().ticks;
    std::atomic<bool> is_over{false};
    std::vector<std::thread> helpers;
    for (int i = 0; i < 3; ++i)
        helpers.emplace_back([&] {
            while (!is_over) net().help();
        });
    Ended ended;
    const auto bytes = bytes_of(9, 100);
    for (int i = 0; i < 2000; ++i) post_message(kEcho, 0, bytes, &ended);
    CHECK(comes_true([&] { return host().posted == 2000 && ended.good == 2000; }));
    CHECK(comes_true([&] { return host().ticks >= ticks + 3; }));   // also while threads help
    is_over = true;
    for (std::thread& helper : helpers) helper.join();
    other.finish();
}

void ticks_come_while_nothing_does() {
    const auto start = steady_clock::now();
    const uint64_t before = host().ticks;
    CHECK(comes_true([&] { return host().ticks >= before + 10; }));
    CHECK(seconds_since(start) > 0.4 && seconds_since(start) < 20);
}

void a_forked_child_has_no_engine() {
    for (int i = 0; i < 3; ++i) {
        std::string errors;
        const int status = status_of_child(
            [&] {
                CHECK(!Engine::get());
                Engine::begin_anew();
                bool is_refused = false;
                try {
                    Engine::start({}, host());
                } catch (const Failed& failed) {
                    is_refused = failed.what.find("fork") != std::string::npos;
                }
                CHECK(is_refused);
#ifndef __SANITIZE_ADDRESS__   // which looks for leaks, and misses the threads of the parent
                if (i > 0) std::exit(0);   // with all that UCX does at the end of a process
#endif
            },
            &errors);
        if (!exited_with(status, 0)) std::fprintf(stderr, "%s\n", errors.c_str());
        CHECK(exited_with(status, 0));
    }
    Ended ended;
    Other other;
    post_message(kPost, 0, kEight, &ended);
    CHECK(comes_true([&] { return ended.good == 1; }));
    other.finish();
}

}  // namespace

NATIVE_TEST(test_engine) {
    test_of_this_process = "test_engine";
    if (argc > 1) return other_process();
    RUN(a_library_that_is_none_is_named());
    RUN(an_interface_that_is_none_is_refused());
    RUN(start());
    RUN(threads_of_the_engine_are_known());
    RUN(wild_addresses_are_refused());
    RUN(ticks_come_while_nothing_does());
    RUN(a_post_without_a_kick_is_seen_to());
    RUN(posts_of_many_threads_are_all_carried_out());
    RUN(small_messages_go_in_both_directions());
    RUN(large_payloads_are_fetched());
    RUN(a_parcel_is_refused());
    RUN(threads_that_help_take_turns());
    RUN(peers_leave_and_come_back());
    RUN(a_death_is_reported_to_one_that_waits());
    RUN(a_death_ends_what_was_sent());
    RUN(a_death_ends_what_is_fetched());
    RUN(a_forked_child_has_no_engine());
    return 0;
}
