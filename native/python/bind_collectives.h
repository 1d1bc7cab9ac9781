// A call of a collective as Python has it.
#pragma once
#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "memory/fault_guard.h"
#include "memory/memory.h"
#include "python/bind_operands.h"
#include "python/bind_signals.h"
#include "python/group_log.h"
#include "ranks/collective.h"
#include "ranks/mail.h"
#include "ranks/calling_thread.h"

struct FarewellHandle {
    std::shared_ptr<peerlane::Farewell> farewell;
};

// End a claim, and the call that was begun in it and that nobody has queued.
template <class Work>
void end_claim(std::optional<Work>& begun, std::timed_mutex& mutex) {
    begun.reset();
    mutex.unlock();
}

// Whether native code may make calls, as the logs are: who reads one of its own sees the Python functions' operations.
inline bool may_make_calls(const GroupLog* log) {
    return !peerlane::log::is_read(peerlane::log::kObserver | peerlane::log::kTrace) && (!peerlane::log::wanted() || (log && log->is_named()));
}

// Let `finish` queue the call that was begun in this claim, which it then ends; null: it has failed.  An interrupt may come before its
// first line, and then neither the peers nor the next call may wait for it.
template <class Work, class Finish>
void hand_over(std::optional<Work>& begun, std::timed_mutex& mutex, const uint64_t& calls, const Finish& finish) {
    const uint64_t number = calls;
    if (nanobind::steal(finish())) return;
    if (begun && calls == number) end_claim(begun, mutex);   // else another call has the claim
    throw nanobind::python_error();
}

struct RoundsHandle {
    std::shared_ptr<peerlane::Rounds> rounds;
    std::optional<peerlane::Collective> begun;   // by run_now(), which did not end it
    std::shared_ptr<GroupLog> log;
    std::optional<GroupLog::Call> logged;        // of what was begun
    uint64_t slot_bytes = 0;                     // of each rank

    template <class Finish>
    void hand_over(const Finish& finish) {
        const LoggedEnd end(log.get(), std::exchange(logged, std::nullopt));
        ::hand_over(begun, rounds->claim_mutex, rounds->calls, finish);
    }
};
// The offsets and bytes of a call's parts, by rank, where they may differ: of those of the destination or of the only ones, and
// of those of the source.
struct PartsOfCall {
    std::vector<uint64_t> at, sizes, source_at, source_sizes;

    bool is_none() const { return sizes.empty(); }
    void move_to(peerlane::GroupCall& call) {
        call.at = std::move(at);
        call.sizes = std::move(sizes);
        call.source_at = std::move(source_at);
        call.source_sizes = std::move(source_sizes);
    }
};
// What the host memory of a call can do: nothing where it is the process's own, as its heap is, and a live object keeps it.
enum class CanFault : uint8_t { no, where_cut, anywhere };

// Make a call in this thread.  0: it was not begun, and Python must make it; 1: it is over; 2: it was begun, and this thread has the
// claim until it is queued.  `can_fault`: what its host memory can do.
int run_now(RoundsHandle& self, peerlane::GroupCall::Kind kind, const peerlane::Memory* dst, const peerlane::Memory* src, uint32_t root,
            int number, CanFault can_fault, PartsOfCall&& parts = {});

// (kind, bytes, number of the reduction, root, whether parts differ)
inline nanobind::tuple called(uint64_t word) {
    const peerlane::GroupCall::Summary summary = peerlane::GroupCall::summary(word);
    return nanobind::make_tuple(static_cast<int>(summary.kind), summary.size, summary.operation, summary.root, summary.has_parts);
}

// The messages of a rank, by peer.
struct MailsHandle {
    struct One {
        std::shared_ptr<peerlane::Mail> mail;   // null: not made yet
        std::optional<peerlane::Message> begun_out, begun_in;
        std::optional<GroupLog::Call> logged_out, logged_in;   // of what was begun

        std::optional<peerlane::Message>& begun(bool sends) { return sends ? begun_out : begun_in; }
        std::optional<GroupLog::Call>& logged(bool sends) { return sends ? logged_out : logged_in; }
    };
    std::vector<One> of;
    std::atomic<bool> is_plain{false};          // nothing is queued
    std::shared_ptr<GroupLog> log;

    template <class Finish>
    void hand_over(uint32_t peer, bool sends, const Finish& finish) {
        peerlane::Mail::Direction& direction = *of[peer].mail->direction(sends);
        const LoggedEnd end(log.get(), std::exchange(of[peer].logged(sends), std::nullopt));
        ::hand_over(of[peer].begun(sends), direction.claim_mutex, direction.calls, finish);
    }
};
// As run_now() of a collective.
int run_message(MailsHandle& self, uint32_t peer, bool sends, const peerlane::Memory& memory,
                CanFault can_fault = CanFault::anywhere);

// A claim of this thread, which ends here unless it is kept.
struct Claim {
    std::timed_mutex& mutex;
    bool is_kept = false;
    ~Claim() {
        if (!is_kept) mutex.unlock();
    }
};

inline bool claim(std::timed_mutex& mutex, double seconds) {
    if (mutex.try_lock()) return true;
    const GilReleased gil;
    return mutex.try_lock_for(std::chrono::duration<double>(seconds));
}

inline void queue_steps(const StreamHandle& stream, std::unique_ptr<peerlane::Stepwise> work, uint64_t timeout_ns, nanobind::handle keep) {
    peerlane::Op op{.kind = peerlane::OpKind::stepwise, .timeout_ns = timeout_ns, .extra = work.get()};
    submit(stream, op, keep);
    (void)work.release();
}

// In this thread, until it has waited so long that it should wait as streams do, asleep; true: it is over.
inline bool run_patiently(peerlane::Stepwise& work, CanFault can_fault, bool keeps_gil_first, bool must_yield, peerlane::Stepwise::Step& step, peerlane::Refusal& why) {
    using peerlane::Stepwise;
    constexpr uint64_t kWithGil = 2'000;   // nanoseconds
    if (work.touches_host && can_fault != CanFault::no) peerlane::rearm_fault_handlers(can_fault == CanFault::where_cut);
    if (keeps_gil_first && run_in_calling_thread(work, must_yield, kWithGil, step, why)) return true;
    if (keeps_gil_first && step == Stepwise::Step::failed) return false;
    return interruptible([&](peerlane::Poll poll) { return run_in_calling_thread(work, must_yield, peerlane::patience_of(must_yield), step, why, poll); });
}
