#include "ranks/calling_thread.h"

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
        if (!poll_until([&] { return work.has_come(); }, must_yield, patience_ns)) return false;
    }
}

}  // namespace peerlane
