#include "ranks/calling_thread.h"

#include <sched.h>

#include "stream/stream.h"

namespace peerlane {

namespace {

constexpr uint64_t kSpinAlone = 50'000;                         // nanoseconds; then it yields the processor
constexpr uint64_t kPollPeriod = 100'000'000;
constexpr unsigned kLooks = 32;                            // polls between two readings of the clock

}  // namespace

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    asm volatile("yield");
#endif
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
        bool yields = must_yield;
        uint64_t began = 0;   // the first looks need no clock
        for (unsigned looks = 1; !work.has_come(); ++looks) {
            if (yields)
                sched_yield();
            else
                relax();
            if (!yields && looks % kLooks != 0) continue;
            const uint64_t now = now_ns();
            if (began == 0) began = now;
            const uint64_t waited = now - began;
            if (waited >= patience_ns) return false;
            yields |= waited >= kSpinAlone;
        }
    }
}

}  // namespace peerlane
