#include "copy/reduction.h"

#include <algorithm>
#include <cfenv>
#include <mutex>
#include <new>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "copy/task.h"
#include "memory/fault_guard.h"

namespace peerlane {

namespace {

constexpr unsigned kStripes = 64;

struct alignas(64) Stripe {
    std::mutex mutex;
};
constinit Stripe stripes[kStripes];

unsigned stripe_of(uint64_t block, uint64_t offset) {
    return static_cast<unsigned>((block * 0x9E3779B97F4A7C15u >> 32) + offset / kChunk) % kStripes;
}

// Unlocked by who catches the fault, if the bytes are not there.
class StripeLock {
  public:
    StripeLock(const char* dst, uint64_t size) {
        const Spot spot = Heap::get().spot_of(dst);
        const unsigned first = stripe_of(spot.block, spot.offset), last = stripe_of(spot.block, spot.offset + size - 1);
        take(0, std::min(first, last));
        if (first != last) take(1, std::max(first, last));   // not begun at a chunk of its block
    }
    ~StripeLock() { active_guard->let_go(); }
    StripeLock(const StripeLock&) = delete;

  private:
    static void take(unsigned n, unsigned stripe) {
        stripes[stripe].mutex.lock();
        active_guard->held[n] = &stripes[stripe].mutex;
    }
};

#if defined(__x86_64__)
class StandardRounding {
  public:
    StandardRounding() : before_(_mm_getcsr()) { _mm_setcsr(0x1F80); }
    ~StandardRounding() { _mm_setcsr(before_); }
    StandardRounding(const StandardRounding&) = delete;

  private:
    const unsigned before_;
};
#else
class StandardRounding {
  public:
    StandardRounding() {
        fegetenv(&before_);
        fesetenv(FE_DFL_ENV);
    }
    ~StandardRounding() { fesetenv(&before_); }
    StandardRounding(const StandardRounding&) = delete;

  private:
    fenv_t before_;
};
#endif

}  // namespace

void forget_stripe_locks() {
    for (Stripe& stripe : stripes) new (&stripe) Stripe;
}

void reduce_alone(const Reduction& reduction, char* dst, const char* src, uint64_t size) {
    const StripeLock lock(dst, size);
    const StandardRounding rounding;
    reduction.kernel(dst, dst, src, size / reduction.width);
}

}  // namespace peerlane
