// Physical memory: one sealed memfd.  Shared by descriptor; never by name.
#pragma once
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <memory>
#include <string>
#include <utility>

#include "memory/ledger.h"

namespace peerlane {

// A shared file keeps its size: a process that maps it cannot lose pages of it.
constexpr int kFileSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Who pays for a block that lives by itself.  What the heap hands out and takes back it counts itself.
class Account {
  public:
    Account(std::shared_ptr<Ledger> ledger, uint64_t device, uint64_t bytes)
        : ledger_(std::move(ledger)), device_(device), bytes_(bytes) {}
    ~Account();
    Account(const Account&) = delete;
    Account& operator=(const Account&) = delete;

    // From now on the node counts it once, whoever holds it.  Throws Refusal, and nothing has changed.
    void share(uint64_t block);
    uint64_t entry() const { return entry_; }
    uint64_t device() const { return device_; }   // its index in the node

  private:
    friend std::unique_ptr<Account> held_with_others(std::shared_ptr<Ledger>, uint64_t, uint64_t, uint64_t, uint64_t);

    const std::shared_ptr<Ledger> ledger_;
    const uint64_t device_, bytes_;
    uint64_t entry_ = LedgerLayout::kNone;
};

// The account of a block that another process listed at `entry`.
std::unique_ptr<Account> held_with_others(std::shared_ptr<Ledger> ledger, uint64_t device, uint64_t bytes, uint64_t block,
                                          uint64_t entry);

// What a block owes to where it came from; its end is the block's.
struct Origin {
    virtual ~Origin() = default;
};

struct Block {
    int fd = -1;
    uint64_t size = 0;
    uint64_t id = 0;          // unique in the node
    uint32_t device = 0;
    bool read_only = false;
    bool peer = false;        // allocated for peer access
    char* at = nullptr;       // where it lies, if that is not where its allocation's address says
    std::atomic<bool> is_read_elsewhere{false};   // processes that do not hold it may have it mapped, for reading
    std::atomic<bool> is_exported_as_file{false};    // somebody has a descriptor, and expects the bytes there
    // How many hold it, and in the upper half how many of them do so for other processes only.
    std::atomic<uint64_t> holders{1};
    std::unique_ptr<Account> account;
    std::unique_ptr<Origin> origin;   // of one that another process made

    bool is_shared() const { return holders.load(std::memory_order_acquire) != 1 || account || origin; }
};

// A memfd of `size` bytes, sealed against shrinking, growing and further seals, so that nobody's truncate
// becomes our SIGBUS.  Raises the soft descriptor limit when it is reached.  The file is named `name` and the block's id
// in hexadecimal, or "peerlane" when there is no name.  Throws Refusal.
Block* create_block(uint64_t size, uint32_t device, const std::string& name = {});
// One around a descriptor that another process sent, which is taken over, also when this throws.
Block* adopt_block(int fd, uint64_t size, uint64_t id, uint32_t device, bool read_only, std::unique_ptr<Origin> origin);
void hold(Block* block);
void drop(Block* block);   // the last one closes the descriptor
// Hold it for other processes: when nobody else does, `abandoned(id)` is called, without any lock.
void hold_for_others(Block* block);
void drop_for_others(Block* block);
// A new descriptor of its file, the caller's to close.  Throws Refusal.
int file_of(Block& block, bool read_only);
extern std::atomic<void (*)(uint64_t block_id)> abandoned;

// Around fork: the child closes every block's descriptor, as it must not keep its parent's memory alive.
void lock_descriptors();
void unlock_descriptors();
size_t count_descriptors();     // of blocks, with the lock
void close_all_descriptors();   // with the lock
void draw_block_ids();          // others than the parent's

// False when it is as high as this process may have it.
bool raise_descriptor_limit();
// Tries again with a higher limit when there is no descriptor left; -1 with errno.
template <class Make>
int new_descriptor(const Make& make) {
    const int fd = make();
    return fd < 0 && errno == EMFILE && raise_descriptor_limit() ? make() : fd;
}

// Map the block, at most its first bytes, at exactly `at`, or put the inaccessible reservation back.
void map_block(const Block* block, void* at, bool inherited_by_fork, uint64_t most = UINT64_MAX);
// The part of it from `within` on; false: it could not be mapped.
bool map_part(const Block* block, void* at, uint64_t within, uint64_t size);
// Let the program touch what is mapped at `at`, or not: `rights` are bits of Mapping::kRead and kWrite.  Throws Refusal.
void let_program(void* at, uint64_t size, unsigned rights);
// `kept`: others have the bytes, now or later.
void unmap_range(void* at, uint64_t size, bool kept);

}  // namespace peerlane
