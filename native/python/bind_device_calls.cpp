// The table of functions that extensions compiled apart from peerlane call, and the failures of their operations.
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "device_calls.h"
#include "python/bind.h"
#include "stream/logged.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

constexpr uint64_t kBriefCall = uint64_t{32} << 10;   // as long as handing it to another thread takes

// What went wrong in the last of them; texts are read when a wait reports the failure.
class FailedWork {
  public:
    struct Entry {
        uint64_t token;
        std::string name, type, text;
    };
    static FailedWork& get() {   // leaked: late threads may still need it
        static auto* failed = new FailedWork;
        return *failed;
    }
    uint64_t keep(const Work& work) noexcept {
        const std::lock_guard lock(mutex_);
        try {
            if (entries_.size() == kMost) entries_.pop_front();
            entries_.push_back({++last_, work.name, work.error_type, work.error});
        } catch (const std::bad_alloc&) {
            // The failure is reported without its text.
        }
        return last_;
    }
    std::optional<std::tuple<std::string, std::string, std::string>> find(uint64_t token) {
        const std::lock_guard lock(mutex_);
        for (const Entry& entry : entries_)
            if (entry.token == token) return std::tuple(entry.name, entry.type, entry.text);
        return {};
    }

  private:
    static constexpr size_t kMost = 64;
    std::mutex mutex_;
    std::deque<Entry> entries_;
    uint64_t last_ = uint64_t{1} << 62;   // apart from the tokens of callbacks
};

class FunctionWork final : public Stepwise {
  public:
    explicit FunctionWork(Work* work) : work_(work) { touches_host = true; }
    ~FunctionWork() override { work_->end(work_); }

    Step advance(Refusal& why) override {
        if (work_->run(work_)) return Step::over;
        why = {.why = Why::callback_failed, .token = FailedWork::get().keep(*work_)};
        return Step::failed;
    }
    bool is_brief() const override { return work_->size <= kBriefCall; }
    bool may_wait() const override { return false; }
    std::vector<TouchedRows> watched() const override {
        std::vector<TouchedRows> rows;
        for (size_t i = 0; work_->is_watched && i < work_->count; ++i) {
            const WorkBytes& each = work_->bytes[i];
            rows.push_back({static_cast<const char*>(each.host), each.pitch, each.width, each.height, each.is_written});
        }
        return rows;
    }
    void add_spans(log::Spans& spans) const override { add(spans, work_->bytes, work_->count); }
    bool has_late_spans() const override { return work_->look != nullptr; }
    void add_late_spans(log::Spans& spans) const override {
        const LateBytes late = work_->look(work_);
        add(spans, late.bytes, late.count);
    }

  private:
    static void add(log::Spans& spans, const WorkBytes* bytes, size_t count) {
        for (size_t i = 0; i < count; ++i) {
            const WorkBytes& each = bytes[i];
            const auto* const host = static_cast<const char*>(each.host);
            if (each.height == 1) add_span(spans, host, each.width, each.is_written);
            else add_rows(spans, host, each.pitch, each.width, each.height, each.is_written);
        }
    }

    Work* const work_;
};

thread_local Refusal last_refusal{};

template <class Call>
bool was_served(const Call& call) noexcept {
    try {
        call();
        return true;
    } catch (const Refusal& refusal) {
        last_refusal = refusal;
    } catch (const std::bad_alloc&) {
        last_refusal = {.why = Why::system_memory};
    }
    return false;
}

// The line that submits; 0: this thread runs no program of Python's.
uint64_t note_program_site() {
    if (!PyGILState_GetThisThreadState() || !Py_IsInitialized()) return 0;
    const nb::gil_scoped_acquire gil;
    release_kept();
    if (log::is_logging()) log::context.site = log::context.fixed ? log::context.fixed : log_site_of_program();
    return call_site_of_program();
}

// With the GIL; null: it has ended.
PyThreadState* thread_of(const Caller& caller) {
    PyThreadState* each = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    while (each && PyThreadState_GetID(each) != caller.thread) each = PyThreadState_Next(each);
    return each;
}

Entered enter(const char* library, const char* operation, const Caller* of) noexcept {
    const Entered before{log::context.fixed, log::context.thread};
    if (of && of->number != 0) log::context.thread = of->number;
    if (before.site != 0 || !Py_IsInitialized()) return before;
    const nb::gil_scoped_acquire gil;
    const LibraryCall call{library, operation};
    log::context.fixed = log_site_of_library(call, PyThreadState_Get());
    PyThreadState* const waiting = log::context.fixed == 0 && of ? thread_of(*of) : nullptr;
    if (waiting) log::context.fixed = log_site_of_library(call, waiting);
    log::context.site = log::context.fixed;
    return before;
}

StreamPtr& shared_stream(void* stream) { return *static_cast<StreamPtr*>(stream); }

const DeviceCalls kDeviceCalls{
    .version = DeviceCalls::kVersion,
    .hold_stream = [](PyObject* stream) noexcept -> void* {
        if (!nb::isinstance<StreamHandle>(nb::handle(stream))) return nullptr;
        return new StreamPtr(nb::inst_ptr<StreamHandle>(nb::handle(stream))->stream);
    },
    .submit = [](void* stream, Work* work) noexcept {
        return was_served([&] {
            auto owned = std::make_unique<FunctionWork>(work);
            const uint64_t site = note_program_site();
            Scheduler::get().submit(*shared_stream(stream), {.kind = OpKind::stepwise, .extra = owned.get()}, site);
            (void)owned.release();
        });
    },
    .raise_refused = []() noexcept { raise_refusal(last_refusal); },
    .is_settled = [](void* stream) noexcept { return shared_stream(stream)->is_settled(); },
    .runs_at_once = []() noexcept { return Scheduler::get().schedule() == Schedule::eager && !log::is_read(log::kAnyone); },
    .is_checked = []() noexcept { return log::wanted(); },
    .record = [](void* stream) noexcept -> void* {
        Mark* mark = nullptr;
        (void)was_served([&] { mark = Scheduler::get().record(*shared_stream(stream)); });
        return mark;
    },
    // Nothing runs meanwhile, as a query lets it, and nothing is logged: the caller may hold a lock.
    .is_over = [](void* mark) noexcept { return static_cast<Mark*>(mark)->state.load(std::memory_order_acquire) != Mark::pending; },
    .position = [](void* mark) noexcept { return Position{static_cast<Mark*>(mark)->stream_id, static_cast<Mark*>(mark)->sequence}; },
    .drop = [](void* mark) noexcept { static_cast<Mark*>(mark)->drop(); },
    .enter = &enter,
    .leave = [](Entered before) noexcept {
        log::context.fixed = before.site;
        log::context.thread = before.thread;
    },
    .caller = []() noexcept {
        PyThreadState* const own = PyGILState_GetThisThreadState();
        return own ? Caller{PyThreadState_GetID(own), log::this_thread()} : Caller{};
    },
    .note_over = [](Position position) noexcept {
        (void)was_served([&] { log_known(position.stream, position.sequence); });
    },
    .note_reuse = [](const void* host, uint64_t size) noexcept {
        if (!log::wanted()) return;
        (void)was_served([&] {
            log::Spans spans;
            add_span(spans, static_cast<const char*>(host), size, true);
            log::write({.kind = log::Kind::reused, .spans = &spans, .site = log::context.fixed});
        });
    },
    .guard_base = []() noexcept { return static_cast<uint64_t>(Heap::get().space().guard_base()); },
    .guard_size = []() noexcept { return static_cast<uint64_t>(Heap::get().space().window()); },
    .host_offset = []() noexcept { return static_cast<int64_t>(Heap::get().space().shadow_base() - Heap::get().space().guard_base()); },
};

}  // namespace

void bind_device_calls(nb::module_& m) {
    m.def("device_calls", [] { return nb::capsule(&kDeviceCalls, "peerlane.device_calls"); },
          "The table of functions that `torch/extension/device_calls.h` describes.");
    m.def("failed_work", [](uint64_t token) { return FailedWork::get().find(token); }, "token"_a,
          "The name of a function that an extension submitted, and the type and text of its error; None if it is not known.");
}
