// The calls of C programs that are answered without the GIL, from what the dialects have told of the calling thread.
#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string_view>
#include <utility>

#include <nanobind/stl/string_view.h>

#include "c_abi/quick.h"
#include "memory/code.h"
#include "python/bind_operands.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

enum Vendor : size_t { acl, hip, hcomm, cuda };
constexpr std::array<std::string_view, 4> kVendors{"acl", "hip", "hcomm", "cuda"};

// The streams that a thread uses: the place of each follows from its handle, which no other object ever gets.
constexpr size_t kStreams = 16;

struct KnownStream {
    uint64_t handle = 0;
    StreamPtr stream;
};

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
    unsigned next = 0;   // the place of the next memory that is told
};
constexpr size_t kLanes = 16;

// What a dialect has told of a thread; it holds while nothing of it has changed since, for any thread.
struct KnownThread {
    ~KnownThread() {
        if (callbacks) callbacks->drop();
    }

    uint64_t epoch = 0;   // 0: nothing
    uint64_t failures = 0;   // of streams so far: after another one the dialect may refuse
    int32_t device = 0;   // by the program's number
    bool has_registrations = false;   // some pageable memory is not only that
    bool has_pools = false;   // a device may lack access to memory of another one
    CallbackQueue* callbacks = nullptr;   // held; where functions of C wait
    std::array<KnownStream, kStreams> streams;
    std::array<KnownLane, kLanes> lanes;
};

std::atomic<uint64_t> epoch{1};
// These stay: exit handlers and destructors of the program call when the objects of their thread have ended.
thread_local std::array<KnownThread*, kVendors.size()> known_threads{};   // the room for thread_local is small
thread_local bool has_ended = false;

void forget_thread() {
    for (KnownThread*& each : known_threads) delete std::exchange(each, nullptr);
}

struct Ending {
    ~Ending() {
        has_ended = true;
        forget_thread();
    }
};

KnownStream& slot_of(KnownThread& known, uint64_t handle) { return known.streams[handle / 64 % kStreams]; }

KnownLane& slot_of(KnownThread& known, uint64_t thread, uint64_t channel) {
    return known.lanes[(thread / 64 + channel / 64 * 5) % kLanes];
}

// Null: the dialect must be asked, as something has changed, somebody watches, or the order of the work is drawn.
KnownThread* known(Vendor vendor) {
    KnownThread* const thread_state = known_threads[vendor];
    if (!thread_state || thread_state->epoch != epoch.load(std::memory_order_acquire)) return nullptr;
    if (thread_state->failures != Stream::failures.load(std::memory_order_acquire)) [[unlikely]] return nullptr;
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
    *reinterpret_cast<int32_t*>(number) = known_thread->device;
    return true;
}

// A kind of a copy is one of the first numbers.
bool is_plain(uint64_t dst, uint64_t src, uint64_t size, int32_t kind, int32_t kinds) {
    return size != 0 && size <= kBrief && kind >= 0 && kind < kinds && dst != src && dst != 0 && src != 0;
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
    const KnownStream& known = slot_of(known_thread, handle);
    if (!known.stream || known.handle != handle || Scheduler::get().schedule() != Schedule::eager) return false;
    Stream& stream = *known.stream;
    Operand to("dst", dst, size), from("src", src, size);
    const uint32_t a = to.range().device, b = from.range().device;
    const auto is_other = [&](uint32_t device) { return device != kHost && device != stream.device; };
    if (known_thread.has_pools && (is_other(a) || is_other(b))) return false;
    if (direct && !is_kind_of(kind, a, b)) return false;
    if (to.is_pageable() || from.is_pageable()) {   // it cannot wait: it is made now, if it is its turn
        if (known_thread.has_registrations || a == b || !stream.is_settled() || stream.closing) return false;
        Heap::get().check_access(to.range(), from.range(), kHost);
        copy(to, from, size, direct);
        return true;
    }
    if (direct && (a == kHost ? b == kHost : b != kHost && a != b)) return false;
    submit_copy(stream, to, from, direct);
    return true;
}

// In the order of the null stream, complete on return: see hipMemcpy of the dialect.  `on_one`: a copy between two devices
// follows the work of both, which the dialect looks at.
bool copy_if_alone(KnownThread& known_thread, uint64_t dst, uint64_t src, uint64_t size, bool on_one) {
    const KnownStream& null = slot_of(known_thread, 0);
    if (!null.stream || null.handle != 0 || null.stream->closing || !null.stream->is_settled()) return false;
    const Operand to("dst", dst, size), from("src", src, size);
    if (known_thread.has_registrations && (to.is_pageable() || from.is_pageable())) return false;
    const uint32_t device = null.stream->device, a = to.range().device, b = from.range().device;
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
    const KnownStream& known = slot_of(known_thread, handle);
    if (!known.stream || known.handle != handle || !known_thread.callbacks || !is_code(call.code) ||
        Scheduler::get().schedule() != Schedule::eager)
        return false;
    Scheduler::get().call(*known.stream, *known_thread.callbacks, call);
    return true;
}

bool launch(Vendor vendor, uint64_t stream, const HostCall& call) noexcept {
    KnownThread* const known_thread = known(vendor);
    return known_thread && served([&] { return call_on(*known_thread, stream, call); });
}

// CUDA's copies have no kind: the addresses decide.
bool copy_of_cuda(uint64_t dst, uint64_t src, uint64_t size) noexcept {
    KnownThread* const known_thread = known(cuda);
    return known_thread && is_plain(dst, src, size, 0, 1) && served([&] { return copy_if_alone(*known_thread, dst, src, size, true); });
}

bool copy_of_cuda_on(uint64_t dst, uint64_t src, uint64_t size, uint64_t stream) noexcept {
    KnownThread* const known_thread = known(cuda);
    return known_thread && is_plain(dst, src, size, 0, 1) && served([&] { return copy_on(*known_thread, stream, dst, src, size, 0, false); });
}

constexpr int32_t kKindsOfCuda = 5;   // of the runtime's copies

bool launch_of_cuda(uint64_t stream, uint64_t function, uint64_t word) noexcept { return launch(cuda, stream, {.code = function, .words = {word}}); }

constexpr c_abi::Quick kQuick{
    .aclrtGetDevice = [](uint64_t number) noexcept { return get_device(acl, number); },
    .aclrtMemcpy = [](uint64_t dst, uint64_t room, uint64_t src, uint64_t size, int32_t kind) noexcept {
        if (!known(acl) || size > room || !is_plain(dst, src, size, kind, 6)) return false;
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
    .aclrtLaunchHostFunc = [](uint64_t stream, uint64_t function, uint64_t word) noexcept {
        return launch(acl, stream, {.code = function, .words = {word}});
    },
    .HcommWriteOnThread = [](uint64_t thread, uint64_t channel, uint64_t dst, uint64_t src, uint64_t size) noexcept {
        KnownThread* const known_thread = known(hcomm);
        return known_thread && size != 0 && dst != 0 && src != 0 && served([&] { return write_on(*known_thread, thread, channel, dst, src, size); });
    },
    .hipGetDevice = [](uint64_t number) noexcept { return get_device(hip, number); },
    .hipMemcpy = [](uint64_t dst, uint64_t src, uint64_t size, int32_t kind) noexcept {
        KnownThread* const known_thread = known(hip);
        return known_thread && is_plain(dst, src, size, kind, 5) && served([&] { return copy_if_alone(*known_thread, dst, src, size, false); });
    },
    .hipMemcpyAsync = [](uint64_t dst, uint64_t src, uint64_t size, int32_t kind, uint64_t stream) noexcept {
        KnownThread* const known_thread = known(hip);
        return known_thread && is_plain(dst, src, size, kind, 5) && served([&] { return copy_on(*known_thread, stream, dst, src, size, kind, false); });
    },
    .hipLaunchHostFunc = [](uint64_t stream, uint64_t function, uint64_t word) noexcept {
        return launch(hip, stream, {.code = function, .words = {word}});
    },
    .hipStreamAddCallback = [](uint64_t stream, uint64_t function, uint64_t word, uint32_t flags) noexcept {
        constexpr uint64_t success = 0;
        return flags == 0 && launch(hip, stream, {.code = function, .words = {stream, success, word}, .has_many = true});
    },
    .cuCtxGetDevice = [](uint64_t number) noexcept { return get_device(cuda, number); },
    .cuMemcpy = copy_of_cuda,
    .cuMemcpyHtoD_v2 = copy_of_cuda,
    .cuMemcpyDtoH_v2 = copy_of_cuda,
    .cuMemcpyDtoD_v2 = copy_of_cuda,
    .cuMemcpyAsync = copy_of_cuda_on,
    .cuMemcpyHtoDAsync_v2 = copy_of_cuda_on,
    .cuMemcpyDtoHAsync_v2 = copy_of_cuda_on,
    .cuMemcpyDtoDAsync_v2 = copy_of_cuda_on,
    .cuLaunchHostFunc = launch_of_cuda,
    .cudaGetDevice = [](uint64_t number) noexcept { return get_device(cuda, number); },
    .cudaMemcpy = [](uint64_t dst, uint64_t src, uint64_t size, int32_t kind) noexcept {
        return kind >= 0 && kind < kKindsOfCuda && copy_of_cuda(dst, src, size);
    },
    .cudaMemcpyAsync = [](uint64_t dst, uint64_t src, uint64_t size, int32_t kind, uint64_t stream) noexcept {
        return kind >= 0 && kind < kKindsOfCuda && copy_of_cuda_on(dst, src, size, stream);
    },
    .cudaLaunchHostFunc = launch_of_cuda,
};

// What is told of this thread, as of a state; null if its objects have ended.
KnownThread* known_as_of(Vendor vendor, uint64_t then) {
    static thread_local const Ending ending;
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

void forget_c_threads() { epoch.fetch_add(1, std::memory_order_acq_rel); }

void bind_c_calls(nb::module_& m) {
    m.def("c_calls", [] { return reinterpret_cast<uintptr_t>(&kQuick); }, "The address of the table that libraries for C ask.");
    m.def("c_epoch", [] { return epoch.load(std::memory_order_acquire); },
          "The number of the present state of all threads, to be asked for before what is told of one is looked up.");
    m.def("forget_c_threads", &forget_c_threads,
          "Drop what is known of all threads: after a change that another thread may see.");
    m.def("forget_c_thread", &forget_thread, "Drop what is known of this thread: after its device or context has changed.");
    m.def(
        "know_c_thread",
        [](std::string_view vendor, uint64_t then, int32_t device, bool has_registrations, bool has_pools) {
            KnownThread* const known_thread = known_as_of(vendor_of(vendor), then);
            if (!known_thread) return;
            known_thread->device = device;
            known_thread->has_registrations = has_registrations;
            known_thread->has_pools = has_pools;
        },
        "vendor"_a, "epoch"_a, "device"_a, "has_registrations"_a, "has_pools"_a,
        "Tell the device of this thread, as of that state, whether the program has registered host memory, and whether a device may lack access to "
        "memory of another one.");
    m.def(
        "know_c_stream",
        [](std::string_view vendor, uint64_t then, uint64_t handle, const StreamHandle& stream) {
            if (KnownThread* const known_thread = known_as_of(vendor_of(vendor), then)) slot_of(*known_thread, handle) = {handle, stream.stream};
        },
        "vendor"_a, "epoch"_a, "handle"_a, "stream"_a, "Tell the stream of a handle in this thread, as of that state.");
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
