#include "stream/notify.h"

#include <cerrno>
#include <climits>
#include <ctime>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <list>
#include <mutex>
#include <utility>

#include "memory/block.h"
#include "memory/heap.h"
#include "ranks/completions.h"
#include "ranks/late_delivery.h"
#include "share/shared_signal.h"
#include "stream/far_operation.h"

namespace peerlane {

namespace {

constexpr uint64_t kSecond = 1'000'000'000;

[[noreturn]] void refuse(int fd, int error, uint64_t bytes) {
    if (fd >= 0) close(fd);
    const bool descriptors = error == EMFILE || error == ENFILE;
    throw Refusal{.why = descriptors ? Why::descriptors : Why::system_memory, .role = "signals", .size = bytes, .error = error};
}

std::atomic<uint64_t> living_count{0};

constexpr uint32_t kLines = 63;   // with the doorbell's: two pages of memory
constexpr uint64_t kAllFree = (uint64_t{1} << kLines) - 1;

struct LocalPage : SignalPage {
    LocalPage() : SignalPage(kLines) {}
    uint64_t free = kAllFree;     // one bit a line
    std::list<std::shared_ptr<LocalPage>>::iterator position{};
};

// Lines for notifies within this process; used again when nobody holds the notify any more.  A page costs a descriptor:
// it goes when all its lines are free, but for one.  Whoever shares a page must hold a notify of it.
class FreeLines {
  public:
    static FreeLines& get() {
        static auto* lines = new FreeLines;
        return *lines;
    }
    std::pair<std::shared_ptr<SignalPage>, uint32_t> take() {
        std::lock_guard lock(mutex_);
        if (usable_.empty()) {
            usable_.push_front(std::make_shared<LocalPage>());
            usable_.front()->position = usable_.begin();
        }
        const std::shared_ptr<LocalPage> page = usable_.front();
        const auto line = static_cast<uint32_t>(std::countr_zero(page->free));
        page->free &= page->free - 1;
        if (page->free == 0) full_.splice(full_.begin(), usable_, page->position);
        return {page, line};
    }
    // In a forked child, where nobody has a line: the pages are the parent's too.
    void begin_anew() { usable_.clear(); }
    void give(LocalPage& page, uint32_t line) {
        std::lock_guard lock(mutex_);
        if (page.free == 0) usable_.splice(usable_.begin(), full_, page.position);
        page.free |= uint64_t{1} << line;
        if (page.free != kAllFree) return;
        if (&page != usable_.back().get() && usable_.back()->free == kAllFree)
            usable_.erase(page.position);   // the notify holds it still
        else
            usable_.splice(usable_.end(), usable_, page.position);
    }

  private:
    std::mutex mutex_;
    std::list<std::shared_ptr<LocalPage>> usable_;   // some lines are free; at the end the one with all, if there is one
    std::list<std::shared_ptr<LocalPage>> full_;
};

}  // namespace

// Not private futexes: the word lies in memory that processes share.
void Doorbell::ring() {
    rings.fetch_add(1, std::memory_order_release);
    syscall(SYS_futex, &rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Doorbell::sleep(uint32_t seen, uint64_t nanoseconds) {
    const timespec span{static_cast<time_t>(nanoseconds / kSecond), static_cast<long>(nanoseconds % kSecond)};
    syscall(SYS_futex, &rings, FUTEX_WAIT, seen, &span, nullptr, 0);
}

SignalPage::SignalPage(uint32_t lines) : lines_(lines) {
    fd_ = memfd_create("peerlane-signals", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd_ < 0 || ftruncate(fd_, static_cast<off_t>(bytes())) != 0 || fcntl(fd_, F_ADD_SEALS, kFileSeals) != 0)
        refuse(fd_, errno, bytes());
    void* at = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (at == MAP_FAILED) refuse(fd_, errno, bytes());
    base_ = static_cast<char*>(at);
}

SignalPage::SignalPage(int fd, uint32_t lines) : lines_(lines) {
    struct stat status {};
    const int seals = fcntl(fd, F_GET_SEALS);
    // Without the seals a peer's truncate would be our SIGBUS.
    if (seals < 0 || (seals & kFileSeals) != kFileSeals || fstat(fd, &status) != 0 ||
        static_cast<uint64_t>(status.st_size) != bytes())
        throw Refusal{.why = Why::system_memory, .size = bytes(), .error = EBADF};
    fd_ = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (fd_ < 0) refuse(-1, errno, bytes());
    void* at = mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (at == MAP_FAILED) refuse(fd_, errno, bytes());
    base_ = static_cast<char*>(at);
}

SignalPage::~SignalPage() {
    munmap(base_, bytes());
    close(fd_);
}

SignalLine& Notify::signal() const {
    SharedSignal* const with = shared();
    if (!with) return line;
    return kind == NotifyKind::level ? with->record_line(target) : with->line(index_);
}

bool Notify::is_recorded() const {
    if (queue_) return !queue_->is_empty();
    const SignalLine& at = signal();
    if (kind == NotifyKind::level) return at.recorded() >= target;
    return at.recorded() != at.consumed.load(std::memory_order_acquire);
}

bool Notify::is_let_go() const {
    const SharedSignal* const bank = shared();
    return bank ? bank->others_let_go() : abandoned.load(std::memory_order_acquire);
}

uint64_t Notify::record(bool& wake) {
    if (step_ != Step::none) [[unlikely]] return make_step(wake);
    return record_line(wake);
}

uint64_t Notify::make_step(bool& wake) {
    wake = false;
    const uint64_t entry = late_entry_;
    switch (step_) {
        case Step::record:
            late_area_->entry(entry).before = signal().recorded();
            late_area_->entry(entry).state.store(LateEntry::begun, std::memory_order_release);
            return record_line(wake);
        case Step::record_staged: {
            const uint64_t number = late_area_->record(entry, [&] { return record_line(wake); });
            if (number != 0) late_entry_ = LateArea::kEntries;
            return number;
        }
        case Step::stage:
            undelivered_->stage(entry);
            late_entry_ = LateArea::kEntries;
            return 1;
        case Step::deliver_source:
            undelivered_->deliver_source(entry);
            return 1;
        default:
            late_area_->fence();
            return 1;
    }
}

uint64_t Notify::record_line(bool& wake) {
    if (queue_) return queue_->push(number_, wake);
    wake = false;
    SignalLine& at = signal();
    uint64_t before = at.word.load(std::memory_order_relaxed), after;
    do {
        if (kind == NotifyKind::strict && before / SignalLine::kRecord != at.consumed.load(std::memory_order_acquire))
            return 0;
        after = before + SignalLine::kRecord;
        if (kind == NotifyKind::level) {
            if (before / SignalLine::kRecord >= target) return target;   // a later record has the line by now
            after = target * SignalLine::kRecord | (before & SignalLine::kWaiter);
            at.time_ns.store(static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()),
                             std::memory_order_relaxed);
        }
        // One read-modify-write with the waiter's bit: release and acquire alone would lose wake-ups.
    } while (!at.word.compare_exchange_weak(before, after, std::memory_order_acq_rel, std::memory_order_relaxed));
    wake = before & SignalLine::kWaiter;
    return after / SignalLine::kRecord;
}

void Notify::fail() { signal().generation.store(target, std::memory_order_release); }

uint64_t Notify::consume(std::optional<uint32_t>& other) {
    SharedSignal* const with = shared();
    if (queue_) {
        uint64_t number = 0;
        const auto record = queue_->pop(number);
        if (record && *record != number_) other = record;
        if (record && with) with->arrive(*record, number, number);
        if (record && far_arrivals) far_arrivals->arrive(*record, number);
        return number;
    }
    SignalLine& at = signal();
    if (kind == NotifyKind::level) return at.recorded() >= target ? target : 0;
    uint64_t consumed = at.consumed.load(std::memory_order_relaxed), recorded, newest;
    do {   // another process may consume too
        recorded = at.recorded();
        if (recorded == consumed) return 0;
        newest = kind == NotifyKind::fifo ? consumed + 1 : recorded;
    } while (!at.consumed.compare_exchange_weak(consumed, newest, std::memory_order_acq_rel, std::memory_order_relaxed));
    if (with) with->arrive(index_, consumed + 1, newest);
    if (far_arrivals) [[unlikely]] far_arrivals->arrive(far_line, newest);
    return newest;
}

bool Notify::announce() {
    if (SharedSignal* const with = shared()) with->announce();
    signal().word.fetch_or(SignalLine::kWaiter, std::memory_order_acq_rel);
    return is_recorded();
}

void Notify::reset() {
    SignalLine& at = signal();
    at.consumed.store(at.recorded(), std::memory_order_release);
    at.generation.fetch_add(1, std::memory_order_acq_rel);
}

void Notify::look_past() {
    SignalLine& at = signal();
    at.consumed.store(at.recorded(), std::memory_order_release);
}

void Notify::share(std::shared_ptr<SharedSignal> with, bool keep, uint32_t index) {
    index_ = index;
    if (keep) {
        with->line().consumed.store(line.consumed.load(std::memory_order_relaxed), std::memory_order_relaxed);
        // Whoever waits here is woken by every record, as if he had announced himself.
        with->line().word.store(line.recorded() * SignalLine::kRecord | SignalLine::kWaiter, std::memory_order_release);
    }
    with->announce();
    shared_ = std::move(with);
    used_.store(shared_.get(), std::memory_order_release);
}

Notify* Notify::record_of(std::shared_ptr<SharedSignal> event, uint64_t number, uint32_t device) {
    Notify* const notify = local(NotifyKind::level, device);
    notify->target = number;
    notify->share(std::move(event), false);
    return notify;
}

Notify* Notify::late_record(const Notify& line, std::shared_ptr<LateArea> in, uint64_t entry, bool staged) {
    Notify* const notify = line.queue_ ? new Notify(line.queue_, line.number_) : local(line.kind, line.device);
    notify->local_ = true;
    notify->id = line.id;
    notify->device = line.device;
    notify->index_ = line.index_;
    notify->shared_ = line.shared_;
    notify->used_.store(notify->shared_.get(), std::memory_order_release);
    notify->late_area_ = std::move(in);
    notify->late_entry_ = entry;
    notify->step_ = staged ? Step::record_staged : Step::record;
    return notify;
}

Notify* Notify::step(Step step, std::shared_ptr<LateArea> in, std::shared_ptr<Undelivered> by, uint64_t argument) {
    Notify* const notify = local(NotifyKind::binary, 0);
    notify->late_area_ = std::move(in);
    notify->undelivered_ = std::move(by);
    notify->late_entry_ = argument;
    notify->step_ = step;
    return notify;
}

Notify* Notify::queued(std::shared_ptr<Completions> queue, uint32_t number, uint32_t device) {
    Heap::get().begin_use();
    const std::shared_ptr<SharedSignal> bank = queue->bank();
    auto* const notify = new Notify(std::move(queue), number);
    notify->local_ = true;
    notify->id = take_ids(1);
    notify->device = device;
    if (bank) notify->share(bank, false);
    return notify;
}

Notify* Notify::local(NotifyKind kind, uint32_t device) {
    Heap::get().begin_use();   // another thread may have held the lock of the lines
    FreeLines& lines = FreeLines::get();
    auto taken = lines.take();
    auto* notify = new Notify(std::move(taken.first), taken.second, kind);
    notify->line.word.store(0, std::memory_order_relaxed);   // nobody else knows the line any more
    notify->line.consumed.store(0, std::memory_order_relaxed);
    notify->line.time_ns.store(0, std::memory_order_relaxed);
    notify->reset();
    notify->local_ = true;
    notify->id = take_ids(1);
    notify->device = device;
    return notify;
}

Notify::Notify(std::shared_ptr<Completions> queue, uint32_t number)
    : line(queue->line()), kind(NotifyKind::queued), number_(number), queue_(std::move(queue)) {}

Notify::Notify(std::shared_ptr<SignalPage> page, uint32_t line, NotifyKind kind)
    : page(std::move(page)), line(this->page->line(line)), kind(kind) {}

Notify::Living::Living() { living_count.fetch_add(1, std::memory_order_relaxed); }
Notify::Living::~Living() { living_count.fetch_sub(1, std::memory_order_release); }

bool Notify::begin_anew() {
    if (living_count.load(std::memory_order_acquire) != 0) return false;
    FreeLines::get().begin_anew();
    return true;
}

uint64_t Notify::take_ids(uint32_t count) {
    static std::atomic<uint64_t> next{1};
    return next.fetch_add(count, std::memory_order_relaxed);
}

Notify::~Notify() {
    // It was cancelled: nothing delivers the entry.
    if ((step_ == Step::stage || step_ == Step::record_staged) && late_entry_ < LateArea::kEntries && !Heap::get().is_forked())
        late_area_->entry(late_entry_).state.store(LateEntry::none, std::memory_order_release);
    if (shared_ && shared_->bank() == 0 && kind != NotifyKind::level && !Heap::get().is_forked()) shared_->abandon();
    if (!local_ || queue_ || Heap::get().is_forked()) return;
    const auto index = static_cast<uint32_t>(&line - &page->line(0));
    FreeLines::get().give(static_cast<LocalPage&>(*page), index);
}

Refusal not_recorded(const Notify& notify) {
    const Why why = notify.kind == NotifyKind::queued ? Why::notifies_full : Why::notify_doubled;
    return {.why = why, .notify = {.id = notify.id, .most = Completions::kMost}, .device = notify.device};
}

Refusal out_of_order(const Notify& notify, uint32_t other) {
    return {.why = Why::notify_order, .notify = {.id = notify.id, .other = other}, .device = notify.device};
}

}  // namespace peerlane
