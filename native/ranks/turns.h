// Under `seeded` the ranks of a group take turns: one runs at a time, from one call to the next, and the seed draws the next one.
// So a run repeats, also if the ranks are processes.
//
// The bank of the group's membership says which rank has the turn.  Any rank may write anything there: numbers are compared, and a
// rank that waits for its turn goes on without it after a time.
#pragma once
#include <pthread.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "share/shared_signal.h"

namespace peerlane {

// What the seed decides.  With priorities, the rank with the highest one goes first, and at each step of `changes` the chosen rank
// falls to the lowest.
struct Draws {
    uint64_t seed = 0;
    bool has_priorities = false;
    std::vector<uint64_t> changes;   // in order

    uint64_t number(uint64_t a, uint64_t b) const;
    // The index of a step among the changes, plus one; 0: it is not one.
    uint64_t change_at(uint64_t step) const;
    // Of a stream or a rank that has not fallen; above all that have.
    uint64_t priority(uint64_t of) const { return number(of, 0) | uint64_t{1} << 63; }
    static constexpr uint64_t kFallen = 1 << 20;   // a rank that falls later is lower
};

class Turns {
  public:
    static constexpr uint32_t kLinesEach = 1;   // of the bank, for each rank
    // Why a run may not repeat; the first reason counts.
    enum Why : uint64_t {
        repeats,
        slept,        // a rank slept or waited outside of peerlane, and gave up its turn
        rested,       // a program that made no call for 1 s had its queued operations run
        took_long,    // a rank did not get its turn in time
        polled,       // a rank made no step with its turn for long, and gave it up
        stopped,      // the process of the rank that had the turn wrote no beat for long, and lost it
        elsewhere,    // a rank takes turns in another group
    };

    // `first`: the line of rank 0.  Without members all ranks are of this process.
    Turns(std::shared_ptr<SharedSignal> bank, std::shared_ptr<const Members> members, uint32_t rank, uint32_t ranks, uint32_t first);
    ~Turns() { leave(); }
    Turns(const Turns&) = delete;

    // The calling thread is this rank from now on; waits until all ranks have joined or declined.  A thread that is another
    // rank already declines.
    static void join(const std::shared_ptr<Turns>& turns, uint64_t nanoseconds);
    void decline();
    void leave();   // idempotent; by any thread

    static bool is_on() { return on_.load(std::memory_order_relaxed) != 0; }   // this process has ranks that take turns
    static bool is_participant();             // the calling thread is one
    static bool has_turn();
    // The program has come to a call: another rank may go first.  The second one asks for no signals.
    static void point();
    static void quiet_point() noexcept;
    // The calling thread has made a step, or is blocked; true: it has its turn again before `until`.
    static bool step(uint64_t until_ns);
    static bool blocked(uint64_t until_ns);
    static bool await_turn(uint64_t until_ns);
    static void regain();                     // before a call returns
    // The calling thread has done something that another rank may wait for.
    static void signal();
    // The calling thread waits in peerlane for an immediate answer of another process: it keeps its turn longer.
    static void go_inside();
    static void come_out();
    static void mark(Why why);                // of the calling thread's group, or of all that this process is in

    // For the watching thread: whether a rank of this process takes turns, and all queued operations run in them.
    static bool any_in_process();
    static bool process_awaits_turn();        // no rank of this process has the turn, and another one has
    static std::vector<std::shared_ptr<Turns>> of_process();
    void look_at_clock();                     // a rank that sleeps gives up its turn
    // Until resume(), nothing that the calling thread does is a step of the program.
    static void suspend();
    static void resume();
    struct Suspended {
        Suspended() { suspend(); }
        ~Suspended() { resume(); }
        Suspended(const Suspended&) = delete;
    };

    // The next step's number: of the calling thread's group, or of the process.
    static uint64_t next_step();
    uint64_t steps() const;
    static uint64_t own_steps();
    // The reason why a run may not repeat, and above 8 bits the rank that it is about.
    uint64_t why() const;

    static void configure(Draws draws);
    static const Draws& draws();

    // Waiting for a turn gives the GIL away, and asks for signals.
    struct Hooks {
        void* (*release)();          // null if the thread does not hold it
        void (*restore)(void*);
        void (*check)();             // with the GIL; throws what a signal's handler raised
    };
    static void use(Hooks hooks);

  private:
    using Word = std::atomic<uint64_t>;
    enum State : uint64_t { absent, in, away, left, declined, leaving };
    struct Line {
        Word state, priority;
        Word blocked_until;   // a value of `progress`; a rank that was often blocked in a row is drawn less often
        Word looks, signals;  // how often in a row it was blocked, and the header's `signals` at the last time
        Doorbell bell;
    };
    struct Header {   // in the second half of rank 0's line
        Word holder;     // the rank, plus one; 0: nobody, before all have joined or while all are away
        Word steps, progress, why;
        Word signals;    // counts actions of ranks that a blocked one may wait for
        Word beat_ns;    // when the holder's process last showed that it lives
        std::atomic<uint32_t> idle, falls;   // how often in a row ranks were blocked; how often a priority fell
        Word streak;     // the rank that was drawn last, plus one, and above 32 bits how often in a row
    };

    Line& line(uint32_t rank) const { return *reinterpret_cast<Line*>(&bank_->line(first_ + rank)); }
    Header& header() const { return *reinterpret_cast<Header*>(reinterpret_cast<char*>(&bank_->line(first_)) + sizeof(SignalLine) / 2); }
    State state(uint32_t rank) const { return static_cast<State>(line(rank).state.load(std::memory_order_acquire)); }
    bool holds() const { return header().holder.load(std::memory_order_acquire) == rank_ + 1; }
    bool is_gone(uint32_t rank) const;
    void give_to(uint64_t holder);
    uint64_t draw();
    bool streak_ends(uint32_t rank, bool is_alone);
    void pass(bool blocked);
    void return_if_away();
    bool await(uint64_t until_ns);
    bool await_slice(uint64_t until_ns);
    bool take(bool blocked, uint64_t until_ns);
    void rescue();
    void mark_group(Why why, uint32_t rank);

    static std::atomic<uint64_t> on_;
    const std::shared_ptr<SharedSignal> bank_;
    const std::shared_ptr<const Members> members_;
    const uint32_t rank_, ranks_, first_;
    const int32_t pid_;
    std::mutex mutex_;          // passing the turn on
    std::atomic<bool> joined_{false};
    pthread_t thread_{};
    int32_t tid_ = 0;
    std::atomic<uint32_t> inside_{0};
    uint64_t clock_ = 0, clock_step_ = 0, stood_since_ = 0, stepped_at_ = 0, starved_ = 0;
};

}  // namespace peerlane
