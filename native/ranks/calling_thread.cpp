#include "ranks/calling_thread.h"

#include <ctime>

namespace peerlane {

namespace {

constexpr uint64_t kPollPeriod = 100'000'000;   // nanoseconds

}  // namespace

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    asm volatile("yield");
#endif
}

void nap() {
    const timespec time{.tv_sec = 0, .tv_nsec = 20'000};
    nanosleep(&time, nullptr);
}

bool run_in_calling_thread(Stepwise& work, bool must_yield, uint64_t patience_ns, Stepwise::Step& step, Refusal& why, Poll poll) {
    uint64_t next_poll = 0;   // once it has lasted
    while (true) {
        step = work.advance(why);
        if (step == Stepwise::Step::goes_on) {
            const uint64_t now = now_ns();
            if (next_poll != 0 && now >= next_poll && poll.ask && poll.ask(poll.context)) throw Refusal{.why = Why::interrupted};
            if (now >= next_poll) next_poll = now + kPollPeriod;
            continue;
        }
        if (step != Stepwise::Step::waits) return step == Stepwise::Step::over;
        const Leaves leaves = work.leaves_core ? Leaves::asleep : must_yield ? Leaves::at_once : Leaves::later;
        if (!poll_until([&] { return work.has_come(); }, leaves, patience_ns)) return false;
    }
}

}  // namespace peerlane
