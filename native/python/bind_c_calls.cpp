// The calls of C programs that are answered without the GIL, from facts that the dialects have recorded of the calling thread.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string_view.h>

#include "c_abi/quick.h"
#include "memory/code.h"
#include "python/bind_operands.h"
#include "python/bind_pools.h"
#include "python/c_facts.h"
#include "python/contexts.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;
using c_abi::kDeclined;

namespace {

enum Vendor : size_t { acl, hip, hcomm, cuda };
constexpr std::array<std::string_view, 4> kVendors{"acl", "hip", "hcomm", "cuda"};

// By these numbers programs of CUDA and HIP name the null stream and the thread's own one.
constexpr uint64_t kLegacyStream = 1, kThreadStream = 2;

struct KnownStream {
    uint64_t handle = 0;
    StreamPtr stream;
    uint64_t context = 0;   // its handle; 0: contexts do not count
};

// The streams that a thread uses, by handles, which no other object ever gets.  A group of NCCL's calls needs those of all its
// ranks at once, so a handle has several slots, and the streams that have a number by themselves have slots of their own.
class KnownStreams {
  public:
    const KnownStream& of(uint64_t handle) {
        const KnownStream* const slots = slots_of(handle);
        for (size_t i = 1; i < kSlots; ++i)
            if (slots[i].handle == handle) return slots[i];
        return slots[0];
    }
    void know(KnownStream stream) {
        KnownStream* const slots = slots_of(stream.handle);
        for (size_t i = 0; i < kSlots; ++i)
            if (slots[i].handle == stream.handle || !slots[i].stream) {
                slots[i] = std::move(stream);
                return;
            }
        slots[next_++ % kSlots] = std::move(stream);
    }

  private:
    static constexpr size_t kSets = 16, kSlots = 4;
    KnownStream* slots_of(uint64_t handle) {
        return &slots_[(handle <= kThreadStream ? kSets + handle : handle / 64 % kSets) * kSlots];
    }

    std::array<KnownStream, (kSets + kThreadStream + 1) * kSlots> slots_;
    size_t next_ = 0;
};

// The events that a thread uses: the index of each follows from its handle.  UCX uses some hundred in turn.
constexpr size_t kEvents = 1024;

struct KnownEvent {
    uint64_t handle = 0;
    uint32_t device = 0;   // whose streams record it
    std::shared_ptr<Event> event;
    std::shared_ptr<FreedBefore> freed;
    uint64_t context = 0;   // as of a stream
};

// Pools that a thread allocates from: by handle, and the current one of each device, by its number in native code.
constexpr size_t kPools = 16;

struct KnownPool {
    uint64_t number = 0;
    std::shared_ptr<PoolMemory> memory;
};
using KnownPools = std::array<KnownPool, kPools>;

// Contexts that a thread makes current, and primary contexts that it retains, in the same manner.
constexpr size_t kContexts = 16;

struct KnownPrimary {
    int32_t device = -1;
    uint32_t flags = 0;
    ContextPtr context;
};

// What the dialect has answered, and answers for as long as the state holds: to a function, or to an attribute, about a number.
struct Question {
    int64_t what;      // an attribute, or -1 and less: a function of kGetters
    uint64_t about;    // the function's argument; of an attribute, the allocation
    bool operator==(const Question&) const = default;
};
struct QuestionHash {
    size_t operator()(const Question& question) const { return static_cast<size_t>(question.about * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(question.what)); }
};
struct CachedAnswer {
    size_t size = 0;
    std::array<char, 16> bytes{};

    void write(uint64_t address) const { std::memcpy(reinterpret_cast<void*>(address), bytes.data(), size); }
};
constexpr size_t kMostAnswers = 4096;   // then all are dropped
enum Getter : int64_t { cuDeviceGet = -1, cuDeviceGetAttribute = -2, cuDeviceGetCount = -3, cuDeviceGetUuid = -4 };
constexpr std::array<std::string_view, 4> kGetters{"cuDeviceGet", "cuDeviceGetAttribute", "cuDeviceGetCount", "cuDeviceGetUuid"};

// Memory that a program has registered: this very allocation, whatever lies there by now.
struct KnownMemory {
    uint64_t start = 0, size = 0, id = 0;   // id 0: none

    bool has(const Operand& part) const {
        return id != 0 && part.address >= start && part.size <= size && part.address - start <= size - part.size &&
               part.range().extent && part.range().extent->id.load(std::memory_order_relaxed) == id;
    }
};

// What a thread of HCOMM has written through a channel: from where to where.
struct KnownLane {
    uint64_t thread = 0, channel = 0;
    StreamPtr stream;
    std::array<KnownMemory, 4> theirs, ours;
    unsigned next = 0;   // the index of the next memory
};
constexpr size_t kLanes = 16;

// The facts that a dialect has recorded of a thread; they are valid in one epoch.
struct KnownThread {
    ~KnownThread() {
        if (callbacks) callbacks->drop();
    }

    uint64_t epoch = 0;   // 0: nothing
    uint64_t failures = 0;   // of streams so far: after another one the dialect may refuse
    int32_t device = 0;   // by the program's number
    int32_t not_ready = kDeclined;   // the code of a query of work that is not over
    bool has_registrations = false;   // some pageable memory is not only that
    bool has_pools = false;   // a device may lack access to memory of another one
    CallbackQueue* callbacks = nullptr;   // held; where functions of C wait
    std::shared_ptr<Pools> pools;         // null: the vendor has none
    KnownPools by_handle, current;
    PushedContexts* pushed = nullptr;     // of a vendor where the newest is the current one; its device and null stream count
    std::array<ContextPtr, kContexts> contexts;
    std::array<KnownPrimary, kContexts> primaries;
    std::unordered_map<Question, CachedAnswer, QuestionHash> answers;
    KnownStreams streams;
    std::vector<KnownEvent> events;   // kEvents, or none yet
    std::array<KnownLane, kLanes> lanes;
};

std::atomic<uint64_t> epoch{1};
// These stay: exit handlers and destructors of the program call when the objects of their thread have ended.
thread_local std::array<KnownThread*, kVendors.size()> known_threads{};   // the room for thread_local is small
thread_local std::vector<ContextStack::OfThread>* pushed_contexts = nullptr;
thread_local bool has_ended = false;

// The last error of each thread in each of the runtime's libraries, which the names of their headers tell.
constexpr std::array<std::string_view, 2> kRuntimes{"cudart", "cudart12"};
struct LastErrors {
    uint64_t round = 0;
    std::array<int32_t, kRuntimes.size()> codes{};
};
std::atomic<uint64_t> round_of_last_errors{0};   // those of an earlier one do not count
thread_local constinit LastErrors last_errors;

// Null: the runtime has no library of the name.
int32_t* last_error_of(std::string_view library) noexcept {
    const uint64_t round = round_of_last_errors.load(std::memory_order_acquire);
    if (last_errors.round != round) last_errors = {.round = round};
    const auto runtime = std::find(kRuntimes.begin(), kRuntimes.end(), library);
    return runtime == kRuntimes.end() ? nullptr : &last_errors.codes[static_cast<size_t>(runtime - kRuntimes.begin())];
}

int32_t& last_error_of_runtime(std::string_view library) {
    if (int32_t* const last = last_error_of(library)) return *last;
    throw nb::value_error("no library of the runtime");
}

void forget_thread() {
    for (KnownThread*& each : known_threads) delete std::exchange(each, nullptr);
}

struct Ending {
    ~Ending() {
        has_ended = true;
        forget_thread();
        delete std::exchange(pushed_contexts, nullptr);
    }
};

void see_end_of_thread() { static thread_local const Ending ending; }

KnownLane& slot_of(KnownThread& known, uint64_t thread, uint64_t channel) {
    return known.lanes[(thread / 64 + channel / 64 * 5) % kLanes];
}

// Null: there is none, or it has ended.
Context* current_of(const KnownThread& known) {
    if (!known.pushed || known.pushed->empty()) return nullptr;
    Context* const newest = known.pushed->back().get();
    return newest->is_live.load(std::memory_order_acquire) ? newest : nullptr;
}

// Null: it is not known.  Of the default streams it is that of the current context.
Stream* stream_of(KnownThread& known, uint64_t handle) {
    const Context* const current = handle <= kThreadStream ? current_of(known) : nullptr;
    if (handle <= kLegacyStream && known.pushed) return current ? current->null_stream() : nullptr;
    const KnownStream& on = known.streams.of(handle);
    if (handle == kThreadStream && known.pushed && (!current || current->handle.load(std::memory_order_relaxed) != on.context)) return nullptr;
    return on.handle == handle ? on.stream.get() : nullptr;
}

// The handle of the context of a stream that is known.
uint64_t context_of_stream(KnownThread& known, uint64_t stream) {
    return stream <= kLegacyStream && known.pushed ? current_of(known)->handle.load(std::memory_order_relaxed) : known.streams.of(stream).context;
}

const KnownEvent* known_event_of(const KnownThread& known, uint64_t handle) {
    if (known.events.empty()) return nullptr;
    const KnownEvent& at = known.events[handle / 64 % kEvents];
    return at.handle == handle && at.event ? &at : nullptr;
}

const Event* event_of(const KnownThread& known, uint64_t handle) {
    const KnownEvent* const at = known_event_of(known, handle);
    return at ? at->event.get() : nullptr;
}

// Whether failed work has made the current context unusable: the dialect refuses most calls then.
bool is_refused(const KnownThread& known) {
    return known.pushed && !known.pushed->empty() && !known.pushed->back()->is_usable.load(std::memory_order_acquire);
}

// Whether work has failed since the facts were recorded: the dialect may then refuse calls that would succeed.
bool has_failed_since(const KnownThread& thread_state) { return thread_state.failures != Stream::failures.load(std::memory_order_acquire); }

// Whether the dialect has to look for a failure before a call says that an event is over.
bool has_failed(const KnownThread& known) { return has_failed_since(known) || Stream::unreported.load(std::memory_order_relaxed) != 0; }

// Null: the dialect must be asked, as something has changed, somebody watches, or the order of the work is drawn.
KnownThread* known(Vendor vendor) {
    KnownThread* const thread_state = known_threads[vendor];
    if (!thread_state || thread_state->epoch != epoch.load(std::memory_order_acquire)) return nullptr;
    if (has_failed_since(*thread_state) || is_refused(*thread_state)) [[unlikely]] return nullptr;
    if (Heap::get().is_forked() || log::is_logging() || Turns::is_on()) [[unlikely]] return nullptr;
    return thread_state;
}

template <class Work>
bool served(const Work& work) noexcept {
    try {
        return work();
    } catch (...) {   // the dialect meets it again, and words it
        return false;
    }
}

bool get_device(Vendor vendor, uint64_t number) noexcept {
    const KnownThread* const known_thread = known(vendor);
    if (!known_thread || number == 0) return false;
    const Context* const current = current_of(*known_thread);
    const int32_t device = !known_thread->pushed ? known_thread->device : current ? current->device.load(std::memory_order_relaxed) : -1;
    if (device < 0) return false;
    *reinterpret_cast<int32_t*>(number) = device;
    return true;
}

bool get_context(uint64_t context) noexcept {
    const KnownThread* const known_thread = known(cuda);
    if (!known_thread || !known_thread->pushed || context == 0) return false;
    const PushedContexts& pushed = *known_thread->pushed;   // one that has ended stays current
    *reinterpret_cast<uint64_t*>(context) = pushed.empty() ? 0 : pushed.back()->handle.load(std::memory_order_relaxed);
    return true;
}

// Null: it is not known, or it has ended.
const ContextPtr* context_of(const KnownThread& known, uint64_t handle) {
    const ContextPtr& at = known.contexts[handle / 64 % kContexts];
    return known.pushed && handle != 0 && at && at->handle.load(std::memory_order_relaxed) == handle && at->is_live.load(std::memory_order_acquire) ? &at : nullptr;
}

bool get_context_id(uint64_t context, uint64_t id) noexcept {
    if (context == 0) {
        const KnownThread* const known_thread = known(cuda);
        return known_thread && current_of(*known_thread) && get_context(id);
    }
    const KnownThread* const known_thread = known(cuda);
    if (!known_thread || id == 0 || !context_of(*known_thread, context)) return false;
    *reinterpret_cast<uint64_t*>(id) = context;
    return true;
}

bool push_context(uint64_t handle) noexcept {
    KnownThread* const known_thread = known(cuda);
    const ContextPtr* const context = known_thread ? context_of(*known_thread, handle) : nullptr;
    return context && served([&] {
        known_thread->pushed->push_back(*context);
        return true;
    });
}

bool pop_context(uint64_t handle) noexcept {
    KnownThread* const known_thread = known(cuda);
    if (!known_thread || !known_thread->pushed || known_thread->pushed->empty()) return false;
    if (handle != 0) *reinterpret_cast<uint64_t*>(handle) = known_thread->pushed->back()->handle.load(std::memory_order_relaxed);
    known_thread->pushed->pop_back();
    return true;
}

bool set_context(uint64_t handle) noexcept {
    if (handle == 0) return pop_context(0);
    KnownThread* const known_thread = known(cuda);
    const ContextPtr* const context = known_thread ? context_of(*known_thread, handle) : nullptr;
    if (!context || known_thread->pushed->empty()) return false;
    known_thread->pushed->back() = *context;
    return true;
}

// Null: it is not known.
const CachedAnswer* answer_of(const KnownThread& known, Question question) {
    const auto at = known.answers.find(question);
    return at == known.answers.end() ? nullptr : &at->second;
}

template <Getter getter>
bool get_constant(uint64_t address, uint64_t about) noexcept {
    const KnownThread* const known_thread = known(cuda);
    const CachedAnswer* const answer = known_thread ? answer_of(*known_thread, {getter, about}) : nullptr;
    if (!answer || address == 0) return false;
    answer->write(address);
    return true;
}

bool get_attributes(uint32_t count, uint64_t attributes, uint64_t addresses, uint64_t pointer) noexcept {
    constexpr uint32_t kMost = 16;
    const KnownThread* const known_thread = known(cuda);
    if (!known_thread || count == 0 || count > kMost || attributes == 0 || addresses == 0 || pointer == 0) return false;
    return served([&] {
        const Range range = Heap::get().resolve("address", pointer, 1);
        if (!range.extent) return false;
        const uint64_t allocation = range.extent->id.load(std::memory_order_relaxed);
        Heap::get().unpin(range);
        const CachedAnswer* answers[kMost];
        for (uint32_t i = 0; i < count; ++i) {
            answers[i] = answer_of(*known_thread, {reinterpret_cast<const int32_t*>(attributes)[i], allocation});
            if (!answers[i] || reinterpret_cast<const uint64_t*>(addresses)[i] == 0) return false;
        }
        for (uint32_t i = 0; i < count; ++i) answers[i]->write(reinterpret_cast<const uint64_t*>(addresses)[i]);
        return true;
    });
}

// Null: it is not known, or it has ended.
const KnownPrimary* primary_of(int32_t device) {
    const KnownThread* const known_thread = known(cuda);
    if (!known_thread || device < 0) return nullptr;
    const KnownPrimary& at = known_thread->primaries[static_cast<size_t>(device) % kContexts];
    return at.device == device && at.context->is_live.load(std::memory_order_acquire) ? &at : nullptr;
}

bool get_primary_state(int32_t device, uint64_t flags, uint64_t is_active) noexcept {
    const KnownPrimary* const primary = primary_of(device);
    if (!primary || flags == 0 || is_active == 0) return false;
    *reinterpret_cast<uint32_t*>(flags) = primary->flags;
    *reinterpret_cast<int32_t*>(is_active) = 1;
    return true;
}

bool retain_primary(uint64_t handle, int32_t device) noexcept {
    const KnownPrimary* const primary = primary_of(device);
    if (!primary || handle == 0 || !primary->context->change_references(1)) return false;
    *reinterpret_cast<uint64_t*>(handle) = primary->context->handle.load(std::memory_order_relaxed);
    return true;
}

bool release_primary(int32_t device) noexcept {
    const KnownPrimary* const primary = primary_of(device);
    return primary && primary->context->change_references(-1);
}

// A kind of a copy is one of the first numbers.
bool is_plain(uint64_t dst, uint64_t src, uint64_t size, int32_t kind, int32_t kinds) {
    return size != 0 && kind >= 0 && kind < kinds && dst != src && dst != 0 && src != 0;
}

// Of acl: whether a kind is that of a copy between these devices, or leaves it to the addresses (facts/acl 4.2).
bool is_kind_of(int32_t kind, uint32_t to, uint32_t from) {
    constexpr int32_t by_address = 4, through_buffer = 5;
    if (kind == by_address) return true;
    return (kind == through_buffer ? 1 : kind) == (to != kHost) + 2 * (from != kHost);
}

uint64_t submit_copy(Stream& stream, Operand& to, Operand& from, bool direct) {
    Op op{.kind = OpKind::copy, .direct = direct, .size = to.size};
    hold(stream, op, to.range(), from.range());
    const Submitted done = Scheduler::get().submit(stream, op);
    to.hand_over();
    from.hand_over();
    return done.sequence;
}

// `direct`, of acl: the copy may fail when it runs, at a line that only Python knows, if it is one between two devices.
bool copy_on(KnownThread& known_thread, uint64_t handle, uint64_t dst, uint64_t src, uint64_t size, int32_t kind, bool direct) {
    Stream* const known_stream = stream_of(known_thread, handle);
    if (!known_stream || Scheduler::get().schedule() != Schedule::eager) return false;
    Stream& stream = *known_stream;
    Operand to("dst", dst, size), from("src", src, size);
    const uint32_t a = to.range().device, b = from.range().device;
    const auto is_other = [&](uint32_t device) { return device != kHost && device != stream.device; };
    if (known_thread.has_pools && (is_other(a) || is_other(b))) return false;
    if (known_thread.pushed && a == kHost && b == kHost) return false;   // CUDA waits for it
    if (direct && !is_kind_of(kind, a, b)) return false;
    if (to.is_pageable() || from.is_pageable()) {   // it cannot wait: it is made now, if it is its turn
        if (size > kBrief || known_thread.has_registrations || a == b || !stream.is_settled() || stream.closing) return false;
        Heap::get().check_access(to.range(), from.range(), kHost);
        copy(to, from, size, direct);
        return true;
    }
    if (direct && (a == kHost ? b == kHost : b != kHost && a != b)) return false;
    submit_copy(stream, to, from, direct);
    return true;
}

// In the order of a default stream, complete on return: see hipMemcpy of the dialect.  `on_one`: a copy between two devices
// follows the work of both, which the dialect looks at.
bool copy_if_alone(KnownThread& known_thread, uint64_t handle, uint64_t dst, uint64_t src, uint64_t size, bool on_one) {
    Stream* const null = stream_of(known_thread, handle);
    if (size > kBrief || !null || null->closing || !null->is_settled()) return false;
    const Operand to("dst", dst, size), from("src", src, size);
    if (known_thread.has_registrations && (to.is_pageable() || from.is_pageable())) return false;
    const uint32_t device = null->device, a = to.range().device, b = from.range().device;
    if (a != device && b != device) return false;
    if (on_one && a != b && a != kHost && b != kHost) return false;
    copy(to, from, size);
    return true;
}

bool write_on(KnownThread& known_thread, uint64_t thread, uint64_t channel, uint64_t dst, uint64_t src, uint64_t size) {
    const KnownLane& lane = slot_of(known_thread, thread, channel);
    if (!lane.stream || lane.thread != thread || lane.channel != channel || Scheduler::get().schedule() != Schedule::eager) return false;
    Operand to("dst", dst, size), from("src", src, size);
    const auto lies = [](const std::array<KnownMemory, 4>& known, const Operand& part) {
        return std::any_of(known.begin(), known.end(), [&](const KnownMemory& each) { return each.has(part); });
    };
    if (!lies(lane.theirs, to) || !lies(lane.ours, from)) return false;
    lane.stream->by_lane.store(submit_copy(*lane.stream, to, from, false), std::memory_order_relaxed);
    return true;
}

bool call_on(KnownThread& known_thread, uint64_t handle, const HostCall& call) {
    Stream* const stream = stream_of(known_thread, handle);
    if (!stream || !known_thread.callbacks || !is_code(call.code) || Scheduler::get().schedule() != Schedule::eager) return false;
    Scheduler::get().call(*stream, *known_thread.callbacks, call);
    return true;
}

// Of calls that decide what a later query finds.
KnownThread* known_and_eager(Vendor vendor) {
    KnownThread* const known_thread = Scheduler::get().schedule() == Schedule::eager ? known(vendor) : nullptr;
    return known_thread && known_thread->pools ? known_thread : nullptr;
}

template <Vendor vendor>
bool record(uint64_t handle, uint64_t stream) noexcept {
    KnownThread* const known_thread = known_and_eager(vendor);
    if (!known_thread) return false;
    const KnownEvent* const at = known_event_of(*known_thread, handle);
    Stream* const on = stream_of(*known_thread, stream);
    if (!at || !on || on->device != at->device || at->context != context_of_stream(*known_thread, stream)) return false;
    return served([&] {
        known_thread->pools->record(*at->freed, on->id);
        return at->event->record_quickly(*on);
    });
}

// Whether the program is one of Python, whose calls have a line in Python.
std::atomic<bool> is_of_python{false};

// The line of a call in a program of Python, 0 while Python ends.  The thread may have given the GIL away for the call.
uint64_t line_of_call(uint64_t caller) {
    if (!PyGILState_GetThisThreadState()) return call_site_of_c(caller);
    if (PyGILState_Check()) return call_site_above_c(caller);
    uint64_t line = 0;
    gil_waiters.fetch_add(1, std::memory_order_acq_rel);   // who joins this thread may have the GIL
    with_gil_unless_exiting([&] { line = call_site_above_c(caller); });
    gil_waiters.fetch_sub(1, std::memory_order_acq_rel);
    return line;
}

enum class Waited { declined, done, needs_line };

// A wait that may last has its line, as texts about deadlocks name it; 0: not known yet.
template <Vendor vendor>
Waited wait_at(uint64_t line, uint64_t stream, uint64_t handle) noexcept {
    KnownThread* const known_thread = known_and_eager(vendor);
    if (!known_thread) return Waited::declined;
    const KnownEvent* const at = known_event_of(*known_thread, handle);
    Stream* const on = stream_of(*known_thread, stream);
    if (!at || !on || !at->event->is_quick() || on->closing) return Waited::declined;
    const Held<Mark> mark{at->event->mark()};
    if (!mark.shared) return Waited::done;
    const bool may_last = mark.shared->stream_id != on->id && mark.shared->state.load(std::memory_order_acquire) == Mark::pending;
    if (may_last && line == 0) return Waited::needs_line;
    const bool is_served = served([&] {
        Scheduler::get().wait(*on, *mark.shared, 0, line);
        known_thread->pools->wait(*at->freed, on->id);
        return true;
    });
    return is_served ? Waited::done : Waited::declined;
}

// What gets the line may run other code of the program, so the facts are looked up again.
template <Vendor vendor>
bool wait_on(uint64_t stream, uint64_t handle, uint32_t flags, uint64_t caller) noexcept {
    if (flags != 0) return false;
    Waited waited = wait_at<vendor>(is_of_python.load(std::memory_order_relaxed) ? 0 : call_site_of_c(caller), stream, handle);
    if (waited == Waited::needs_line) waited = wait_at<vendor>(line_of_call(caller), stream, handle);
    return waited == Waited::done;
}

bool write_allocated(uint64_t address, PoolMemory& pool, uint64_t size, const Stream& stream) {
    const uint64_t allocated = pool.take(size, stream);
    if (allocated != 0) *reinterpret_cast<uint64_t*>(address) = allocated;
    return allocated != 0;
}

PoolMemory* pool_of(const KnownPools& pools, uint64_t number, uint64_t step) {
    const KnownPool& at = pools[number / step % kPools];
    return at.number == number ? at.memory.get() : nullptr;
}

constexpr uint64_t kHandleStep = 64;

// Of the current pool of the stream's device.
template <Vendor vendor>
bool allocate_on(uint64_t address, uint64_t size, uint64_t handle) noexcept {
    KnownThread* const known_thread = known_and_eager(vendor);
    const Stream* const stream = known_thread ? stream_of(*known_thread, handle) : nullptr;
    if (!stream || stream->closing || address == 0 || size == 0) return false;
    PoolMemory* const pool = pool_of(known_thread->current, stream->device, 1);
    return pool && served([&] { return write_allocated(address, *pool, size, *stream); });
}

template <Vendor vendor>
bool allocate_from(uint64_t address, uint64_t size, uint64_t from, uint64_t handle) noexcept {
    KnownThread* const known_thread = known_and_eager(vendor);
    const Stream* const stream = known_thread ? stream_of(*known_thread, handle) : nullptr;
    if (!stream || stream->closing || address == 0 || size == 0) return false;
    PoolMemory* const pool = pool_of(known_thread->by_handle, from, kHandleStep);
    return pool && served([&] { return write_allocated(address, *pool, size, *stream); });
}

template <Vendor vendor>
bool free_on(uint64_t address, uint64_t handle) noexcept {
    KnownThread* const known_thread = known_and_eager(vendor);
    Stream* const stream = known_thread ? stream_of(*known_thread, handle) : nullptr;
    return stream && !stream->closing && served([&] { return known_thread->pools->free(address, *stream); });
}

template <Vendor vendor>
int32_t query_event(uint64_t handle) noexcept {
    KnownThread* const known_thread = known(vendor);
    const Event* const event = known_thread ? event_of(*known_thread, handle) : nullptr;
    if (!event || !event->is_quick()) return kDeclined;
    const Held<Mark> mark{event->mark()};
    if (!mark.shared) return 0;
    bool is_over = false;
    const bool is_served = Scheduler::get().schedule() == Schedule::eager && served([&] {
        is_over = Scheduler::get().query_and_help(*mark.shared);
        return true;
    });
    return !is_served || has_failed(*known_thread) ? kDeclined : is_over ? 0 : known_thread->not_ready;
}

// Whether all that a synchronization of the stream waits for is over, with no failure to report.
bool is_over(const Stream& stream) {
    if (stream.legacy) return stream.is_settled();
    return stream.completed.load(std::memory_order_acquire) == stream.submitted.load(std::memory_order_relaxed) && !stream.failed.load(std::memory_order_relaxed);
}

template <Vendor vendor>
int32_t query_stream(uint64_t handle) noexcept {
    KnownThread* const known_thread = known(vendor);
    const Stream* const stream = known_thread ? stream_of(*known_thread, handle) : nullptr;
    if (!stream || stream->closing) return kDeclined;
    return is_over(*stream) ? 0 : stream->legacy || stream->failed.load(std::memory_order_relaxed) ? kDeclined : known_thread->not_ready;
}

constexpr double kShortWait = 2e-4;   // seconds; the calling thread may hold the GIL meanwhile

template <Vendor vendor>
bool synchronize_stream(uint64_t handle) noexcept {
    KnownThread* const known_thread = known_and_eager(vendor);
    Stream* const stream = known_thread ? stream_of(*known_thread, handle) : nullptr;
    if (!stream || stream->closing || Scheduler::get().has_released() || known_thread->pools->have_surplus(stream->device)) return false;
    if (is_over(*stream)) return true;
    return !stream->legacy && served([&] {
        Scheduler::get().synchronize(*stream, Deadline::in(kShortWait), {});
        return is_over(*stream);
    });
}

template <Vendor vendor>
bool synchronize_event(uint64_t handle) noexcept {
    KnownThread* const known_thread = known_and_eager(vendor);
    const KnownEvent* const at = known_thread ? known_event_of(*known_thread, handle) : nullptr;
    if (!at || !at->event->is_quick() || known_thread->pools->have_surplus(at->device)) return false;
    const Held<Mark> mark{at->event->mark()};
    if (!mark.shared) return true;
    return served([&] {
        Scheduler::get().synchronize(*mark.shared, Deadline::in(kShortWait), {});
        return mark.shared->state.load(std::memory_order_acquire) == Mark::done && !has_failed(*known_thread);
    });
}

bool launch(Vendor vendor, uint64_t stream, const HostCall& call) noexcept {
    KnownThread* const known_thread = known(vendor);
    return known_thread && served([&] { return call_on(*known_thread, stream, call); });
}

// CUDA's copies have no kind: the addresses decide.
template <uint64_t handle>
bool copy_of_cuda(uint64_t dst, uint64_t src, uint64_t size) noexcept {
    KnownThread* const known_thread = known(cuda);
    return known_thread && is_plain(dst, src, size, 0, 1) && served([&] { return copy_if_alone(*known_thread, handle, dst, src, size, true); });
}

bool copy_of_cuda_on(uint64_t dst, uint64_t src, uint64_t size, uint64_t stream) noexcept {
    KnownThread* const known_thread = known(cuda);
    return known_thread && is_plain(dst, src, size, 0, 1) && served([&] { return copy_on(*known_thread, stream, dst, src, size, 0, false); });
}

constexpr int32_t kKindsOfCuda = 5;   // of the runtime's copies

bool launch_of_cuda(uint64_t stream, uint64_t function, uint64_t word) noexcept { return launch(cuda, stream, {.code = function, .words = {word}}); }

// The runtime makes a context current first, if there is none.
template <auto kCall>
constexpr auto in_context = [](auto... words) noexcept {
    const KnownThread* const known_thread = known(cuda);
    const bool has_context = known_thread && current_of(*known_thread);
    if constexpr (std::is_same_v<decltype(kCall(words...)), bool>) return has_context && kCall(words...);
    else return has_context ? kCall(words...) : kDeclined;
};

template <auto kQuery>
int32_t query_of_runtime(uint64_t handle, const char* library) noexcept {
    const int32_t code = in_context<kQuery>(handle);
    if (code > 0) *last_error_of(library) = code;
    return code;
}

// That of a context which no call can use is the dialect's.
template <bool takes>
int32_t last_error_in(const char* library) noexcept {
    int32_t* const last = known(cuda) ? last_error_of(library) : nullptr;
    return !last ? kDeclined : takes ? std::exchange(*last, 0) : *last;
}

template <uint64_t handle>
bool copy_of_runtime(uint64_t dst, uint64_t src, uint64_t size, int32_t kind) noexcept {
    return kind >= 0 && kind < kKindsOfCuda && in_context<copy_of_cuda<handle>>(dst, src, size);
}

constexpr int32_t kNoWord = -1;

template <nccl_calls::Verb verb>
int32_t reduce_all(uint64_t source, uint64_t target, uint64_t count, int32_t datatype, int32_t operation, uint64_t communicator, uint64_t stream,
                   uint64_t caller) noexcept {
    return nccl_calls::run({verb, source, target, count, datatype, operation, kNoWord, communicator, stream, caller});
}

template <nccl_calls::Verb verb>
int32_t move_from_root(uint64_t source, uint64_t target, uint64_t count, int32_t datatype, int32_t root, uint64_t communicator, uint64_t stream,
                       uint64_t caller) noexcept {
    return nccl_calls::run({verb, source, target, count, datatype, kNoWord, root, communicator, stream, caller});
}

template <nccl_calls::Verb verb>
int32_t exchange_parts(uint64_t source, uint64_t target, uint64_t count, int32_t datatype, uint64_t communicator, uint64_t stream, uint64_t caller) noexcept {
    return nccl_calls::run({verb, source, target, count, datatype, kNoWord, kNoWord, communicator, stream, caller});
}

constexpr c_abi::Quick kQuick{
    .gil_waiters = &gil_waiters,
    .follow_waits = follow_waits,
    .begin_call = begin_call_of_c,
    .end_call = end_call_of_c,
    .aclrtGetDevice = [](uint64_t number) noexcept { return get_device(acl, number); },
    .hipGetDevice = [](uint64_t number) noexcept { return get_device(hip, number); },
    .cuCtxGetDevice = [](uint64_t number) noexcept { return get_device(cuda, number); },
    .cudaGetDevice = [](uint64_t number) noexcept { return get_device(cuda, number); },
    .cuMemcpy = copy_of_cuda<0>,
    .cuMemcpyHtoD_v2 = copy_of_cuda<0>,
    .cuMemcpyDtoH_v2 = copy_of_cuda<0>,
    .cuMemcpyDtoD_v2 = copy_of_cuda<0>,
    .cuMemcpy_ptds = copy_of_cuda<kThreadStream>,
    .cuMemcpyHtoD_v2_ptds = copy_of_cuda<kThreadStream>,
    .cuMemcpyDtoH_v2_ptds = copy_of_cuda<kThreadStream>,
    .cuMemcpyDtoD_v2_ptds = copy_of_cuda<kThreadStream>,
    .cuMemcpyAsync = copy_of_cuda_on,
    .cuMemcpyHtoDAsync_v2 = copy_of_cuda_on,
    .cuMemcpyDtoHAsync_v2 = copy_of_cuda_on,
    .cuMemcpyDtoDAsync_v2 = copy_of_cuda_on,
    .hipMemcpy = [](uint64_t dst, uint64_t src, uint64_t size, int32_t kind) noexcept {
        KnownThread* const known_thread = known(hip);
        return known_thread && is_plain(dst, src, size, kind, 5) && served([&] { return copy_if_alone(*known_thread, 0, dst, src, size, false); });
    },
    .cudaMemcpy = copy_of_runtime<0>,
    .cudaMemcpy_ptds = copy_of_runtime<kThreadStream>,
    .hipMemcpyAsync = [](uint64_t dst, uint64_t src, uint64_t size, int32_t kind, uint64_t stream) noexcept {
        KnownThread* const known_thread = known(hip);
        return known_thread && is_plain(dst, src, size, kind, 5) && served([&] { return copy_on(*known_thread, stream, dst, src, size, kind, false); });
    },
    .cudaMemcpyAsync = [](uint64_t dst, uint64_t src, uint64_t size, int32_t kind, uint64_t stream) noexcept {
        return kind >= 0 && kind < kKindsOfCuda && in_context<copy_of_cuda_on>(dst, src, size, stream);
    },
    .aclrtLaunchHostFunc = [](uint64_t stream, uint64_t function, uint64_t word) noexcept {
        return launch(acl, stream, {.code = function, .words = {word}});
    },
    .hipLaunchHostFunc = [](uint64_t stream, uint64_t function, uint64_t word) noexcept {
        return launch(hip, stream, {.code = function, .words = {word}});
    },
    .cuLaunchHostFunc = launch_of_cuda,
    .cudaLaunchHostFunc = in_context<launch_of_cuda>,
    .hipEventRecord = record<hip>,
    .cuEventRecord = record<cuda>,
    .cudaEventRecord = in_context<record<cuda>>,
    .hipStreamWaitEvent = wait_on<hip>,
    .cuStreamWaitEvent = wait_on<cuda>,
    .cudaStreamWaitEvent = in_context<wait_on<cuda>>,
    .hipEventQuery = query_event<hip>,
    .cuEventQuery = query_event<cuda>,
    .hipStreamQuery = query_stream<hip>,
    .cuStreamQuery = query_stream<cuda>,
    .cudaEventQuery = query_of_runtime<query_event<cuda>>,
    .cudaStreamQuery = query_of_runtime<query_stream<cuda>>,
    .cudaGetLastError = last_error_in<true>,
    .cudaPeekAtLastError = last_error_in<false>,
    .hipEventSynchronize = synchronize_event<hip>,
    .cuEventSynchronize = synchronize_event<cuda>,
    .cudaEventSynchronize = in_context<synchronize_event<cuda>>,
    .hipStreamSynchronize = synchronize_stream<hip>,
    .cuStreamSynchronize = synchronize_stream<cuda>,
    .cudaStreamSynchronize = in_context<synchronize_stream<cuda>>,
    .hipMallocAsync = allocate_on<hip>,
    .cuMemAllocAsync = allocate_on<cuda>,
    .cudaMallocAsync = in_context<allocate_on<cuda>>,
    .hipMallocFromPoolAsync = allocate_from<hip>,
    .cuMemAllocFromPoolAsync = allocate_from<cuda>,
    .cudaMallocFromPoolAsync = in_context<allocate_from<cuda>>,
    .hipFreeAsync = free_on<hip>,
    .cuMemFreeAsync = free_on<cuda>,
    .cudaFreeAsync = in_context<free_on<cuda>>,
    .ncclAllReduce = reduce_all<nccl_calls::Verb::all_reduce>,
    .ncclReduceScatter = reduce_all<nccl_calls::Verb::reduce_scatter>,
    .ncclReduce = [](uint64_t source, uint64_t target, uint64_t count, int32_t datatype, int32_t operation, int32_t root, uint64_t communicator, uint64_t stream,
                     uint64_t caller) noexcept {
        return nccl_calls::run({nccl_calls::Verb::reduce, source, target, count, datatype, operation, root, communicator, stream, caller});
    },
    .ncclBroadcast = move_from_root<nccl_calls::Verb::broadcast>,
    .ncclScatter = move_from_root<nccl_calls::Verb::scatter>,
    .ncclAllGather = exchange_parts<nccl_calls::Verb::all_gather>,
    .ncclAlltoAll = exchange_parts<nccl_calls::Verb::all_to_all>,
    .ncclBcast = [](uint64_t target, uint64_t count, int32_t datatype, int32_t root, uint64_t communicator, uint64_t stream, uint64_t caller) noexcept {
        return nccl_calls::run({nccl_calls::Verb::bcast, target, target, count, datatype, kNoWord, root, communicator, stream, caller});
    },
    .ncclSend = [](uint64_t source, uint64_t count, int32_t datatype, int32_t peer, uint64_t communicator, uint64_t stream, uint64_t caller) noexcept {
        return nccl_calls::run({nccl_calls::Verb::send, source, 0, count, datatype, kNoWord, peer, communicator, stream, caller});
    },
    .ncclRecv = [](uint64_t target, uint64_t count, int32_t datatype, int32_t peer, uint64_t communicator, uint64_t stream, uint64_t caller) noexcept {
        return nccl_calls::run({nccl_calls::Verb::receive, 0, target, count, datatype, kNoWord, peer, communicator, stream, caller});
    },
    .ncclGroupStart = nccl_calls::begin_group,
    .ncclGroupEnd = nccl_calls::end_group,
    .aclrtMemcpy = [](uint64_t dst, uint64_t room, uint64_t src, uint64_t size, int32_t kind) noexcept {
        if (!known(acl) || size > room || size > kBrief || !is_plain(dst, src, size, kind, 6)) return false;
        return served([&] {
            copy(dst, src, size, true);
            return true;
        });
    },
    .aclrtMemcpyAsync = [](uint64_t dst, uint64_t room, uint64_t src, uint64_t size, int32_t kind, uint64_t stream) noexcept {
        KnownThread* const known_thread = known(acl);
        if (!known_thread || size > room || !is_plain(dst, src, size, kind, 6)) return false;
        return served([&] { return copy_on(*known_thread, stream, dst, src, size, kind, true); });
    },
    .HcommWriteOnThread = [](uint64_t thread, uint64_t channel, uint64_t dst, uint64_t src, uint64_t size) noexcept {
        KnownThread* const known_thread = known(hcomm);
        return known_thread && size != 0 && dst != 0 && src != 0 && served([&] { return write_on(*known_thread, thread, channel, dst, src, size); });
    },
    .hipStreamAddCallback = [](uint64_t stream, uint64_t function, uint64_t word, uint32_t flags) noexcept {
        constexpr uint64_t success = 0;
        return flags == 0 && launch(hip, stream, {.code = function, .words = {stream, success, word}, .has_many = true});
    },
    .cuDeviceGet = [](uint64_t device, int32_t ordinal) noexcept { return get_constant<cuDeviceGet>(device, static_cast<uint32_t>(ordinal)); },
    .cuDeviceGetAttribute = [](uint64_t value, int32_t attribute, int32_t device) noexcept {
        return get_constant<cuDeviceGetAttribute>(value, uint64_t{static_cast<uint32_t>(attribute)} << 32 | static_cast<uint32_t>(device));
    },
    .cuDeviceGetCount = [](uint64_t count) noexcept { return get_constant<cuDeviceGetCount>(count, 0); },
    .cuDeviceGetUuid = [](uint64_t uuid, int32_t device) noexcept { return get_constant<cuDeviceGetUuid>(uuid, static_cast<uint32_t>(device)); },
    .cuDeviceGetUuid_v2 = [](uint64_t uuid, int32_t device) noexcept { return get_constant<cuDeviceGetUuid>(uuid, static_cast<uint32_t>(device)); },
    .cuPointerGetAttribute = [](uint64_t address, int32_t attribute, uint64_t pointer) noexcept {
        return get_attributes(1, reinterpret_cast<uint64_t>(&attribute), reinterpret_cast<uint64_t>(&address), pointer);
    },
    .cuPointerGetAttributes = get_attributes,
    .cuCtxGetCurrent = get_context,
    .cuCtxGetId = get_context_id,
    .cuCtxPushCurrent_v2 = push_context,
    .cuCtxPopCurrent_v2 = pop_context,
    .cuCtxSetCurrent = set_context,
    .cuDevicePrimaryCtxGetState = get_primary_state,
    .cuDevicePrimaryCtxRetain = retain_primary,
    .cuDevicePrimaryCtxRelease_v2 = release_primary,
};

// The facts of this thread, as of an epoch; null if its objects have ended.
KnownThread* known_as_of(Vendor vendor, uint64_t then) {
    see_end_of_thread();
    if (has_ended) return nullptr;
    KnownThread*& known_thread = known_threads[vendor];
    if (!known_thread || known_thread->epoch != then) delete std::exchange(known_thread, new KnownThread);
    known_thread->epoch = then;
    known_thread->failures = Stream::failures.load(std::memory_order_acquire);
    return known_thread;
}

Vendor vendor_of(std::string_view name) {
    const auto vendor = std::find(kVendors.begin(), kVendors.end(), name);
    if (vendor == kVendors.end()) throw nb::value_error("no dialect that has quick calls");
    return static_cast<Vendor>(vendor - kVendors.begin());
}

// Memory that was just used.
KnownMemory known_memory(const Memory& memory) {
    const Operand whole("dst", memory.last_address(), memory.size());
    return {whole.address, whole.size, whole.range().extent ? whole.range().extent->id.load(std::memory_order_relaxed) : 0};
}

}  // namespace

ThreadStream cuda_stream_of(uint64_t handle) {
    KnownThread* const known_thread = known_and_eager(cuda);
    Stream* const stream = known_thread ? stream_of(*known_thread, handle) : nullptr;
    return stream ? ThreadStream{stream, context_of_stream(*known_thread, handle)} : ThreadStream{};
}

bool may_answer_cuda() { return known_and_eager(cuda) != nullptr; }

uint64_t line_of_c_call(uint64_t caller) { return is_of_python.load(std::memory_order_relaxed) ? line_of_call(caller) : call_site_of_c(caller); }

Range pinned_memory(const char* role, uint64_t address, uint64_t size, uint32_t device) {
    Operand memory(role, address, size);
    const Range range = memory.range();
    if (!range.extent || range.device != device) return {};
    memory.hand_over();
    return range;
}

void forget_c_threads() { epoch.fetch_add(1, std::memory_order_acq_rel); }

PushedContexts& ContextStack::of_thread() const {
    see_end_of_thread();
    if (!pushed_contexts) pushed_contexts = new std::vector<OfThread>;
    for (OfThread& each : *pushed_contexts)
        if (each.stack.lock() == identity_) return *each.pushed;
    std::erase_if(*pushed_contexts, [](const OfThread& each) { return each.stack.expired(); });   // of nodes that were left
    return *pushed_contexts->emplace_back(identity_, std::make_unique<PushedContexts>()).pushed;
}

static void bind_contexts(nb::module_& m) {
    nb::class_<ContextHandle>(m, "Context", "What native code knows of a context of a vendor's program.")
        .def(nb::init<>())
        .def_prop_rw(
            "handle", [](const ContextHandle& self) { return self.context->handle.load(std::memory_order_relaxed); },
            [](const ContextHandle& self, uint64_t handle) { self.context->handle.store(handle, std::memory_order_relaxed); })
        .def_prop_ro("references", [](const ContextHandle& self) { return self.context->references(); })
        .def("retain", [](const ContextHandle& self) { self.context->retain(); })
        .def("release", [](const ContextHandle& self) { return self.context->release(); }, "Drop a reference, and return how many are left.")
        .def("release_all", [](const ContextHandle& self) { self.context->release_all(); })
        .def("end", [](const ContextHandle& self) { self.context->is_live.store(false, std::memory_order_release); })
        .def("mark_unusable", [](const ContextHandle& self) { self.context->is_usable.store(false, std::memory_order_release); })
        .def(
            "know",
            [](const ContextHandle& self, int32_t device, const StreamHandle* null) {
                self.context->device.store(device, std::memory_order_relaxed);
                if (null) self.context->know_null_stream(null->stream);
            },
            "device"_a, "null_stream"_a.none(), "Tell the program's number of its device, and its null stream.");
    nb::class_<ContextStack>(m, "ContextStack", "The contexts that each thread has pushed; all methods are about the calling thread.")
        .def(nb::init<>())
        .def(
            "newest",
            [](const ContextStack& self) -> std::optional<std::pair<uint64_t, bool>> {
                const PushedContexts& pushed = self.of_thread();
                if (pushed.empty()) return std::nullopt;
                return std::pair(pushed.back()->handle.load(std::memory_order_relaxed), pushed.back()->is_live.load(std::memory_order_acquire));
            },
            "The handle of the newest context, and whether it is alive; None if there is none.")
        .def("push", [](const ContextStack& self, const ContextHandle& context) { self.of_thread().push_back(context.context); }, "context"_a)
        .def(
            "pop",
            [](const ContextStack& self) -> uint64_t {
                PushedContexts& pushed = self.of_thread();
                if (pushed.empty()) return 0;
                const uint64_t handle = pushed.back()->handle.load(std::memory_order_relaxed);
                pushed.pop_back();
                return handle;
            },
            "Take the newest context away, and return its handle; 0 if there is none.");
}

void bind_c_calls(nb::module_& m) {
    bind_contexts(m);
    m.def(
        "c_calls",
        [](bool is_python) {
            is_of_python.store(is_python, std::memory_order_relaxed);
            return reinterpret_cast<uintptr_t>(&kQuick);
        },
        "is_of_python"_a, "The address of the table that libraries for C ask, in a program of Python or of C.");
    m.def("follow_waits", &follow_waits, "Let joins and locks under the GIL give it away, in the modules that are loaded.");
    m.def("c_epoch", [] { return epoch.load(std::memory_order_acquire); },
          "The number of the present state of all threads, to be read before the facts of a thread are looked up.");
    m.def("forget_c_threads", &forget_c_threads,
          "Drop what is known of all threads: after a change that another thread may see.");
    m.def("last_error", [](std::string_view library) { return last_error_of_runtime(library); }, "library"_a,
          "The last error of this thread in a library of the runtime, by the name of its header.");
    m.def("set_last_error", [](std::string_view library, int32_t code) { last_error_of_runtime(library) = code; }, "library"_a, "code"_a);
    m.def("forget_last_errors", [] { round_of_last_errors.fetch_add(1, std::memory_order_acq_rel); }, "Drop the last errors of all threads.");
    m.def("forget_c_thread", &forget_thread, "Drop what is known of this thread: after its device or context has changed.");
    m.def(
        "know_c_thread",
        [](std::string_view vendor, uint64_t then, int32_t device, bool has_registrations, bool has_pools, int32_t not_ready,
           const ContextStack* contexts, const PoolsHandle* pools) {
            KnownThread* const known_thread = known_as_of(vendor_of(vendor), then);
            if (!known_thread) return;
            known_thread->device = device;
            known_thread->not_ready = not_ready;
            known_thread->pushed = contexts ? &contexts->of_thread() : nullptr;
            known_thread->has_registrations = has_registrations;
            known_thread->has_pools = has_pools;
            if (pools) known_thread->pools = pools->pools;
        },
        "vendor"_a, "epoch"_a, "device"_a, "has_registrations"_a, "has_pools"_a, "not_ready"_a = kDeclined, "contexts"_a.none() = nb::none(), "pools"_a.none() = nb::none(),
        "Tell the device of this thread, as of that state, whether the program has registered host memory, whether a device "
        "may lack access to memory of another one, the code of a query of work that is not over (-1: the dialect is asked), of which contexts the newest is the current one, and the memory of the vendor's pools.");
    m.def(
        "know_c_context",
        [](std::string_view vendor, uint64_t then, const ContextHandle& context) {
            KnownThread* const known_thread = known_as_of(vendor_of(vendor), then);
            if (known_thread) known_thread->contexts[context.context->handle / 64 % kContexts] = context.context;
        },
        "vendor"_a, "epoch"_a, "context"_a, "Tell a context that this thread makes current, as of that state.");
    const auto know_answer = [](std::string_view vendor, uint64_t then, Question question, const nb::bytes& answer) {
        KnownThread* const known_thread = known_as_of(vendor_of(vendor), then);
        CachedAnswer kept{.size = answer.size()};
        if (!known_thread || kept.size > kept.bytes.size()) return;
        if (known_thread->answers.size() == kMostAnswers) known_thread->answers.clear();
        std::memcpy(kept.bytes.data(), answer.c_str(), kept.size);
        known_thread->answers.insert_or_assign(question, kept);
    };
    m.def(
        "know_c_constant",
        [know_answer](std::string_view vendor, uint64_t then, std::string_view function, uint64_t about, const nb::bytes& answer) {
            const auto getter = std::find(kGetters.begin(), kGetters.end(), function);
            if (getter == kGetters.end()) throw nb::value_error("no function that is answered so");
            know_answer(vendor, then, {kGetters.begin() - getter - 1, about}, answer);
        },
        "vendor"_a, "epoch"_a, "function"_a, "about"_a, "answer"_a, "Tell what a function has written, and writes as long as that state holds.");
    m.def(
        "know_c_attribute",
        [know_answer](std::string_view vendor, uint64_t then, uint32_t attribute, uint64_t allocation, const nb::bytes& answer) {
            know_answer(vendor, then, {attribute, allocation}, answer);
        },
        "vendor"_a, "epoch"_a, "attribute"_a, "allocation"_a, "answer"_a, "Tell an attribute of the addresses in an allocation, as of that state.");
    m.def(
        "know_c_primary",
        [](std::string_view vendor, uint64_t then, uint32_t device, const ContextHandle& context, uint32_t flags) {
            if (KnownThread* const known_thread = known_as_of(vendor_of(vendor), then))
                known_thread->primaries[device % kContexts] = {static_cast<int32_t>(device), flags, context.context};
        },
        "vendor"_a, "epoch"_a, "device"_a, "context"_a, "flags"_a,
        "Tell the primary context of a device, by the program's number, and its flags, as of that state.");
    m.def(
        "know_c_stream",
        [](std::string_view vendor, uint64_t then, uint64_t handle, const StreamHandle& stream, uint64_t context) {
            KnownThread* const known_thread = known_as_of(vendor_of(vendor), then);
            if (known_thread) known_thread->streams.know({handle, stream.stream, context});
        },
        "vendor"_a, "epoch"_a, "handle"_a, "stream"_a, "context"_a = 0,
        "Tell the stream of a handle in this thread, as of that state, and the handle of its context, 0 where contexts do not count.");
    m.def(
        "know_c_event",
        [](std::string_view vendor, uint64_t then, uint64_t handle, const EventHandle& event, const FreedBeforeHandle& freed, uint32_t device, uint64_t context) {
            KnownThread* const known_thread = known_as_of(vendor_of(vendor), then);
            if (!known_thread) return;
            known_thread->events.resize(kEvents);
            known_thread->events[handle / 64 % kEvents] = {handle, device, event.event, freed.before, context};
        },
        "vendor"_a, "epoch"_a, "handle"_a, "event"_a, "freed"_a, "device"_a, "context"_a,
        "Tell the event of a handle, what was freed before its record, whose streams record it, and the handle of its context as of a stream, as of that state.");
    m.def(
        "know_c_pool",
        [](std::string_view vendor, uint64_t then, uint64_t handle, uint32_t current_of, const PoolMemoryHandle& pool) {
            KnownThread* const known_thread = known_as_of(vendor_of(vendor), then);
            if (!known_thread) return;
            if (handle != 0) known_thread->by_handle[handle / kHandleStep % kPools] = {handle, pool.memory};
            if (current_of != 0) known_thread->current[current_of % kPools] = {current_of, pool.memory};
        },
        "vendor"_a, "epoch"_a, "handle"_a, "current_of"_a, "pool"_a,
        "Tell the memory of a pool, as of that state: by its handle, or of the device whose current one it is, by the number in native code; 0: not so.");
    m.def(
        "know_c_callbacks",
        [](std::string_view vendor, uint64_t then, const Held<CallbackQueue>& queue) {
            KnownThread* const known_thread = known_as_of(vendor_of(vendor), then);
            if (!known_thread || known_thread->callbacks) return;
            queue.shared->hold();
            known_thread->callbacks = queue.shared;
        },
        "vendor"_a, "epoch"_a, "queue"_a, "Tell this thread, as of that state, where functions of C wait for the thread that calls them.");
    m.def(
        "know_c_lane",
        [](uint64_t then, uint64_t thread, uint64_t channel, const StreamHandle& stream, const Memory& theirs, const Memory& ours) {
            KnownThread* const known_thread = known_as_of(hcomm, then);
            if (!known_thread) return;
            KnownLane& lane = slot_of(*known_thread, thread, channel);
            if (lane.thread != thread || lane.channel != channel) lane = {thread, channel, stream.stream};
            const unsigned at = lane.next++ % lane.ours.size();
            lane.theirs[at] = known_memory(theirs);
            lane.ours[at] = known_memory(ours);
        },
        "epoch"_a, "thread"_a, "channel"_a, "stream"_a, "theirs"_a, "ours"_a,
        "Tell what a thread of HCOMM may write through a channel, as of that state: from all of `ours` to all of `theirs`.");
    m.def(
        "last_by_lane",
        [](nb::handle stream) {
            return nb::isinstance<StreamHandle>(stream) ? nb::inst_ptr<StreamHandle>(stream)->stream->by_lane.load(std::memory_order_relaxed) : 0;
        },
        "stream"_a, "The number of the stream's last operation that a thread of HCOMM submitted by a quick call; 0 if there is none.");
}
