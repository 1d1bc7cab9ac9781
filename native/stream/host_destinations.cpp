#include "stream/host_destinations.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "log/log.h"
#include "memory/code.h"
#include "memory/fault_guard.h"
#include "stream/logged.h"
#include "stream/stream.h"

namespace peerlane {

namespace {

constexpr uint64_t kHostPage = 4096, kNsOfHandler = 1'000'000'000;
constexpr uint64_t kNsOfHold = 8000, kNsOfPage = 80, kBytesPerNs = 16;   // what holding an operation back is reckoned to cost

enum class Keep : uint32_t {
    unused,
    closed,   // nobody may touch its pages
    entered,  // somebody did, and is about to open them
    open
};

struct Destination : HostDestinations::Watched {   // which is written while it is unused
    std::atomic<Keep> keep{Keep::unused};
    std::atomic<uintptr_t> low{0}, high{0};   // of its pages; equal: there are none
    uint64_t digests[2] = {};
};

// The handler of a fault looks here without a lock.
std::array<Destination, 64> destinations;
std::atomic<uint64_t> openings{0};            // counted before a range is forgotten, and after its pages are open
thread_local constinit uint64_t retried = 0;  // that number, as this thread last repeated what faulted

enum Touch : uint64_t { kRead, kWrote, kChanged };   // c of Kind::touched_early

bool let_in(uintptr_t low, uintptr_t high, bool in) {
    return low == high || mprotect(reinterpret_cast<void*>(low), high - low, in ? PROT_READ | PROT_WRITE : PROT_NONE) == 0;
}

// `of`: which bytes.
void log_touch(const HostDestinations::Watched& each, const HostRows& of, Touch touch, uint32_t site) noexcept {
    try {
        log::Spans spans;
        Extent* extent;
        if (is_of_host(of.host, extent) && extent)
            add_rows(spans, of.host, of.pitch, of.width, of.height, each.is_written && touch != kRead);
        else
            spans.add(0, of.low() - each.rows.low(), of.size(), each.is_written && touch != kRead);
        log::write({.kind = each.is_written ? log::Kind::touched_early : log::Kind::source_changed, .op = static_cast<uint8_t>(each.kind), .stream = each.stream, .sequence = each.sequence,
                    .a = uint64_t{each.site} << 32 | each.thread, .b = each.time_ns, .c = each.is_written ? uint64_t{touch} : 0, .spans = &spans, .site = site});
    } catch (const std::bad_alloc&) {
        log::drop();
    }
}

bool is_write([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
    return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
    return false;   // not known
#endif
}

// In the handler of a fault.  True: what faulted is to be repeated.
bool touch(uintptr_t address, void* context) noexcept {
    const uint64_t seen = openings.load(std::memory_order_acquire);
    for (Destination& each : destinations) {
        Keep keep = each.keep.load(std::memory_order_acquire);
        if (keep != Keep::closed && keep != Keep::entered) continue;
        const uintptr_t low = each.low.load(std::memory_order_relaxed), high = each.high.load(std::memory_order_relaxed);
        if (address < low || address >= high) continue;
        if (keep == Keep::entered || !each.keep.compare_exchange_strong(keep, Keep::entered, std::memory_order_acq_rel)) return true;
        const bool wrote = is_write(context);
        const bool is_open = let_in(low, high, true);
        openings.fetch_add(1, std::memory_order_release);
        const Destination* const held = &each;   // `entered` holds it
        if (MovesBytes::depth == 0 && log::wanted() && !log::is_writing() && each.log == log::number.load(std::memory_order_relaxed) &&
            !(address >= logged_by_view.low && address < logged_by_view.high)) {
            const int before = errno;
            const auto find_site = site_of_touch.load(std::memory_order_acquire);
            const uint32_t site = find_site ? find_site(context, held->rows.size(), wrote) : 0;
            const uint64_t from = std::max(address - held->lead, held->rows.low()), to = std::min(from + 8, held->rows.high());
            if (site != 0 && from < to) log_touch(*held, {reinterpret_cast<const char*>(from), to - from, to - from}, wrote ? kWrote : kRead, site);
            errno = before;
        }
        each.keep.store(Keep::open, std::memory_order_release);
        return is_open;
    }
    // The pages were perhaps opened between the fault and this look.
    return std::exchange(retried, seen) != seen;
}

// Of the calling thread.  Its handlers' stack grows if somebody else made a small one: to name a line takes more.
struct Stack {
    static constexpr size_t kEnough = size_t{1} << 20;
    uintptr_t low = 0, high = 0;
    void* own = nullptr;

    Stack() {
        stack_t present{};
        if (sigaltstack(nullptr, &present) == 0 && !(present.ss_flags & (SS_DISABLE | SS_ONSTACK)) && present.ss_size < kEnough / 4) {
            void* const stack = mmap(nullptr, kEnough, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            const stack_t larger{.ss_sp = stack, .ss_flags = 0, .ss_size = kEnough};
            if (stack != MAP_FAILED && sigaltstack(&larger, nullptr) == 0) own = stack;
        }
        pthread_attr_t attributes;
        void* at = nullptr;
        size_t size = 0;
        if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
        if (pthread_attr_getstack(&attributes, &at, &size) == 0) low = reinterpret_cast<uintptr_t>(at), high = low + size;
        pthread_attr_destroy(&attributes);
    }
    Stack(const Stack&) = delete;
    ~Stack() {
        stack_t present{};
        if (!own || sigaltstack(nullptr, &present) != 0 || present.ss_sp != own) return;   // somebody else's, who keeps it perhaps
        const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
        if (sigaltstack(&none, nullptr) == 0) munmap(own, kEnough);
    }
};

struct Pages {
    uintptr_t low = 0, high = 0;
    uint64_t lead = 0;   // from them on to where the program sees them
};

// Whether glibc mapped pages for memory that begins there: then what lies before it on its first page is nobody's but `free`'s.
bool begins_mapping([[maybe_unused]] uintptr_t at, [[maybe_unused]] uintptr_t end) {
#if defined(__GLIBC__)
    constexpr uintptr_t kHeader = 16, kMapped = 2, kFlags = 7;
    if (at % kHostPage != kHeader || end - at < kHostPage) return false;
    const auto* const header = reinterpret_cast<const size_t*>(at - kHeader);
    return header[0] == 0 && (header[1] & kFlags) == kMapped && (header[1] & ~kFlags) % kHostPage == 0 && end <= at - kHeader + (header[1] & ~kFlags);
#else
    return false;
#endif
}

// The pages of which all bytes are the operation's, or nobody's.
Pages pages_of(const HostRows& rows) {
    const uintptr_t at = rows.low(), end = rows.pitch == rows.width || rows.height == 1 ? rows.high() : at + rows.width;
    thread_local const Stack stack;
    if (at < stack.high && end > stack.low) return {};   // a fault's handler may need it
    Extent* extent;
    bool is_plain = true;
    Pages pages{(at + kHostPage - 1) / kHostPage * kHostPage, end / kHostPage * kHostPage};
    if (is_of_host(rows.host, extent) && extent) {
        Heap& heap = Heap::get();
        uint64_t within = 0;
        if (heap.extent_of_host(at - heap.space().shadow_base(), within) == extent) {
            if (within == 0) pages.low = at / kHostPage * kHostPage;
            if (within + (end - at) == extent->size) pages.high = (end + kHostPage - 1) / kHostPage * kHostPage;
            if (extent->mapping && extent->mapping->is_guarded) pages.lead = heap.space().guard_base() - heap.space().shadow_base();
        }
    } else if (begins_mapping(at, end)) {
        pages.low = at / kHostPage * kHostPage;
    } else {
        is_plain = false;
    }
    if (pages.low >= pages.high) return {};
    // Whoever opens the pages lets all read and write, and nobody run: other pages stay as they are.
    if (!is_plain && is_any_executable(pages.low, pages.high)) return {};
    FaultGuard guard;
    const auto is_writable = [&](uintptr_t address) {
        return guarded(guard, [=] { __atomic_fetch_or(reinterpret_cast<char*>(address), 0, __ATOMIC_RELAXED); });
    };
    return is_writable(pages.low + pages.lead) && is_writable(pages.high - 1 + pages.lead) ? pages : Pages{};
}

HostRows between(uintptr_t low, uintptr_t high) {
    return low < high ? HostRows{reinterpret_cast<const char*>(low), high - low, high - low} : HostRows{};
}

// False: somebody touched its pages.
bool open(Destination& each) {
    (void)let_in(each.low.load(std::memory_order_relaxed), each.high.load(std::memory_order_relaxed), true);
    openings.fetch_add(1, std::memory_order_release);
    Keep keep = Keep::closed;
    const bool is_untouched = each.keep.compare_exchange_strong(keep, Keep::open, std::memory_order_acq_rel);
    // Another thread's handler takes no lock of ours, and ends soon; a fork's child does not have that thread.
    const uint64_t deadline = now_ns() + kNsOfHandler;
    while (each.keep.load(std::memory_order_acquire) == Keep::entered && now_ns() < deadline) sched_yield();
    return is_untouched;
}

// A record whose handler did not end is not used again.
void forget(Destination& each) {
    if (each.keep.load(std::memory_order_acquire) != Keep::entered) return each.keep.store(Keep::unused, std::memory_order_release);
    each.high.store(each.low.load(std::memory_order_relaxed), std::memory_order_relaxed);
    each.stream = 0;
}

}  // namespace

HostDestinations::HostDestinations() { let_first(touch); }

HostDestinations::Seen HostDestinations::watch(const Stream& stream, const Op& op, uint64_t sequence, const HostRows& rows, bool is_written) noexcept {
    const auto unused = std::find_if(destinations.begin(), destinations.end(), [](const Destination& each) { return each.keep.load(std::memory_order_relaxed) == Keep::unused; });
    if (unused == destinations.end()) return Seen::nothing;
    rearm_fault_handlers();
    const Pages pages = is_written ? pages_of(rows) : Pages{};
    Destination& each = *unused;
    const bool is_whole = rows.pitch == rows.width || rows.height == 1;
    each.edges[0] = pages.low == pages.high ? rows : is_whole ? between(rows.low(), pages.low) : HostRows{};
    each.edges[1] = pages.low == pages.high || !is_whole ? HostRows{} : between(pages.high, rows.high());
    for (size_t i = 0; i < 2; ++i)
        if (each.edges[i].host && !read_digest(each.edges[i], each.digests[i])) return Seen::nothing;
    each.stream = stream.id;
    each.sequence = sequence;
    each.time_ns = now_ns();
    each.log = log::number.load(std::memory_order_relaxed);
    each.site = log::context.site;
    each.thread = static_cast<uint32_t>(gettid());
    each.is_written = is_written;
    each.kind = op.kind;
    each.rows = rows;
    each.lead = pages.lead;
    each.low.store(pages.low + pages.lead, std::memory_order_relaxed);
    each.high.store(pages.high + pages.lead, std::memory_order_relaxed);
    each.keep.store(Keep::closed, std::memory_order_release);
    if (!let_in(pages.low + pages.lead, pages.high + pages.lead, false)) {
        (void)let_in(pages.low + pages.lead, pages.high + pages.lead, true);
        each.keep.store(Keep::unused, std::memory_order_release);
        return Seen::nothing;
    }
    ++open_;
    time_.spend(kNsOfHold + (pages.high - pages.low) / kHostPage * kNsOfPage + rows.size() / kBytesPerNs);
    return pages.low != pages.high ? Seen::touches : Seen::writes;
}

void HostDestinations::starting(uint64_t stream, uint64_t sequence) {
    for (Destination& each : destinations) {
        if (each.keep.load(std::memory_order_relaxed) == Keep::unused || each.stream != stream || each.sequence != sequence) continue;
        if (open(each) && each.log == log::number.load(std::memory_order_relaxed))
            for (size_t i = 0; i < 2; ++i) {
                uint64_t digest;
                if (!each.edges[i].host || !read_digest(each.edges[i], digest) || digest == each.digests[i]) continue;
                each.edges[0] = each.edges[i];
                or_lose([&] { changed_.push_back(each); });
                has_changed_.store(true, std::memory_order_relaxed);
                break;
            }
        forget(each);
        --open_;
    }
}

void HostDestinations::over(uint64_t stream, uint64_t upto) {
    for (Destination& each : destinations)
        if (each.keep.load(std::memory_order_relaxed) != Keep::unused && each.stream == stream && each.sequence <= upto) {
            (void)open(each);
            forget(each);
            --open_;
        }
}

template <class IsKnown>
void HostDestinations::log_changed(const IsKnown& is_known) {
    std::erase_if(changed_, [&](const Watched& each) {
        if (!is_known(each)) return false;
        if (each.log == log::number.load(std::memory_order_relaxed)) log_touch(each, each.edges[0], kChanged, log::context.site);
        return true;
    });
    has_changed_.store(!changed_.empty(), std::memory_order_relaxed);
}

void HostDestinations::known(uint64_t stream, uint64_t sequence) {
    log_changed([&](const Watched& each) { return each.stream == stream && each.sequence <= sequence; });
}

void HostDestinations::end() {
    log_changed([](const Watched&) { return true; });
}

void HostDestinations::let_all_in() noexcept {
    for (Destination& each : destinations)
        if (each.keep.load(std::memory_order_relaxed) != Keep::unused && each.stream != 0) {
            (void)open(each);
            forget(each);
        }
    open_ = 0;
}

}  // namespace peerlane
