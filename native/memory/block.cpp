#include "memory/block.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "memory/refusal.h"

namespace peerlane {

namespace {

constexpr uint64_t kForOthers = uint64_t{1} << 32;

// Processes of a node draw from ranges of their own.
uint64_t draw_range() {
    uint64_t random = 0;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
        random = static_cast<uint64_t>(getpid()) * 0x9E3779B97F4A7C15u;
    return random >> 25 << 24 | 1;   // 39 bits, and room for 16 million blocks
}
std::atomic<uint64_t>& next_block_id() {
    static std::atomic<uint64_t> next{draw_range()};
    return next;
}

// Leaked on purpose: a forked child and late threads may still look.
std::set<int>& descriptors() {
    static auto* all = new std::set<int>;
    return *all;
}
std::mutex descriptors_mutex;

[[noreturn]] void refuse_descriptor(uint64_t size) {
    const int error = errno;
    throw Refusal{.why = error == EMFILE || error == ENFILE ? Why::descriptors : Why::system_memory, .size = size, .error = error};
}

std::string in_hexadecimal(uint64_t number) {
    std::string digits;
    for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[number >> shift & 15];
    return digits;
}

constexpr int kSome = 200, kMany = 1 << 14;   // descriptors
std::atomic<bool> is_table_large{false};

// The system doubles its table of descriptors, and each time the thread waits some 10 ms for the other ones.  So a process
// that has some gets room for many at once.
void enlarge_table(int fd) {
    if (fd < kSome || is_table_large.exchange(true, std::memory_order_relaxed)) return;
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    const int last = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, kMany)) - 1;
    if (last <= fd) return;
    const int spare = fcntl(fd, F_DUPFD_CLOEXEC, last);
    if (spare >= 0) close(spare);
}

// Takes `fd` over, also when this throws.
Block* make_block(int fd, uint64_t size, uint64_t id, uint32_t device) {
    try {
        auto block = std::make_unique<Block>();
        block->fd = fd;
        block->size = size;
        block->device = device;
        block->id = id;
        std::lock_guard lock(descriptors_mutex);
        enlarge_table(fd);
        descriptors().insert(fd);
        return block.release();
    } catch (const std::bad_alloc&) {
        close(fd);
        throw Refusal{.why = Why::system_memory, .size = size, .error = ENOMEM};
    }
}

void destroy(Block* block) {
    {
        std::lock_guard lock(descriptors_mutex);
        descriptors().erase(block->fd);
        // Who has it mapped would keep its pages.
        if (block->is_read_elsewhere && !block->is_exported_as_file && !block->origin)
            (void)fallocate(block->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(block->size));
        close(block->fd);   // not later: a child forked between would keep it
    }
    delete block;
}

}  // namespace

std::atomic<void (*)(uint64_t block_id)> abandoned{[](uint64_t) {}};

bool raise_descriptor_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
    is_table_large.store(false, std::memory_order_relaxed);
    return true;
}

Account::~Account() {
    try {
        if (entry_ == LedgerLayout::kNone)
            ledger_->refund(device_, bytes_);
        else
            ledger_->let_go(entry_);
    } catch (const Refusal&) {
        // Somebody cut the node's file: there is no account left to put right.
    }
}

void Account::share(uint64_t block) {
    if (entry_ != LedgerLayout::kNone) return;
    const uint64_t entry = ledger_->list(block, device_, bytes_);
    try {
        ledger_->refund(device_, bytes_);
    } catch (const Refusal&) {
        ledger_->let_go(entry);
        throw;
    }
    entry_ = entry;
}

std::unique_ptr<Account> held_with_others(std::shared_ptr<Ledger> ledger, uint64_t device, uint64_t bytes, uint64_t block,
                                          uint64_t entry) {
    const uint64_t slot = ledger->hold(entry, block) ? entry : ledger->list(block, device, bytes);
    auto account = std::make_unique<Account>(std::move(ledger), device, bytes);
    account->entry_ = slot;
    return account;
}

Block* create_block(uint64_t size, uint32_t device, const std::string& name) {
    const uint64_t id = next_block_id().fetch_add(1, std::memory_order_relaxed);
    const std::string named = name.empty() ? "peerlane" : name + in_hexadecimal(id);
    const int fd = new_descriptor([&] { return memfd_create(named.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING); });
    if (fd < 0) refuse_descriptor(size);
    if (ftruncate(fd, static_cast<off_t>(size)) != 0 ||
        fcntl(fd, F_ADD_SEALS, kFileSeals) != 0) {
        const int error = errno;
        close(fd);
        throw Refusal{.why = Why::system_memory, .size = size, .error = error};
    }
    return make_block(fd, size, id, device);
}

Block* adopt_block(int fd, uint64_t size, uint64_t id, uint32_t device, bool read_only, std::unique_ptr<Origin> origin) {
    Block* block = make_block(fd, size, id, device);
    block->read_only = read_only;
    block->origin = std::move(origin);
    return block;
}

int file_of(Block& block, bool read_only) {
    block.is_exported_as_file = true;
    const std::string path = "/proc/self/fd/" + std::to_string(block.fd);
    const int fd = new_descriptor([&] {
        return read_only ? open(path.c_str(), O_RDONLY | O_CLOEXEC) : fcntl(block.fd, F_DUPFD_CLOEXEC, 0);
    });
    if (fd < 0) refuse_descriptor(block.size);
    return fd;
}

void hold(Block* block) { block->holders.fetch_add(1, std::memory_order_relaxed); }

void drop(Block* block) {
    const uint64_t id = block->id;
    const uint64_t left = block->holders.fetch_sub(1, std::memory_order_acq_rel) - 1;
    if (left == 0)
        destroy(block);
    else if (left % kForOthers == left / kForOthers)
        abandoned.load(std::memory_order_acquire)(id);
}

void hold_for_others(Block* block) { block->holders.fetch_add(kForOthers + 1, std::memory_order_relaxed); }

void drop_for_others(Block* block) {
    if (block->holders.fetch_sub(kForOthers + 1, std::memory_order_acq_rel) == kForOthers + 1) destroy(block);
}

void draw_block_ids() { next_block_id().store(draw_range(), std::memory_order_relaxed); }

void lock_descriptors() { descriptors_mutex.lock(); }
void unlock_descriptors() { descriptors_mutex.unlock(); }
size_t count_descriptors() { return descriptors().size(); }
void close_all_descriptors() {
    for (int fd : descriptors()) close(fd);
    descriptors().clear();
}

void map_block(const Block* block, void* at, bool inherited_by_fork, uint64_t most) {
    const uint64_t size = std::min(block->size, most);
    const int rights = block->read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    void* got = mmap(at, size, rights, MAP_SHARED | MAP_FIXED, block->fd, 0);
    if (got == MAP_FAILED) throw Refusal{.why = Why::system_memory, .size = size, .error = errno};
    if (!inherited_by_fork) madvise(at, size, MADV_DONTFORK);
}

bool map_part(const Block* block, void* at, uint64_t within, uint64_t size) {
    if (mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, block->fd, static_cast<off_t>(within)) == MAP_FAILED)
        return false;
    madvise(at, size, MADV_DONTFORK);
    return true;
}

void let_program(void* at, uint64_t size, unsigned rights) {
    if (mprotect(at, size, (rights & 1 ? PROT_READ : PROT_NONE) | (rights & 2 ? PROT_WRITE : PROT_NONE)) != 0)
        throw Refusal{.why = Why::system_memory, .size = size, .error = errno};
}

void unmap_range(void* at, uint64_t size, bool kept) {
    void* got = mmap(at, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    if (got != MAP_FAILED) return;
    // At the limit of mappings: the pages go back at least, if they are nobody else's, and the next block here is
    // mapped over it.
    if (!kept) madvise(at, size, MADV_REMOVE);
    mprotect(at, size, PROT_NONE);
}

}  // namespace peerlane
