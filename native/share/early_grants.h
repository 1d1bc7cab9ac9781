// Grants that an exporter writes before the importer asks, in a page that both processes map.
//
// The importer takes a grant, or the exporter takes it back: one exchange of the record's state decides.  Another one decides
// whether the importer releases it before the exporter has counted it.  Either process may write anything into the page, so
// each compares what it reads, and the exporter remembers by itself what it wrote.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <optional>

#include "share/broker.h"

namespace peerlane {

// A record, at an importer.
struct EarlyGrant {
    Grant grant;
    uint64_t nonce = 0;
    TakenGrant taken;
    int exporter_fd = -1;   // a descriptor of the exporter's
    uint64_t inode = 0;     // of its file: the number may lead to another one by now
};

// The page, as either side has it.
class GrantPage {
  public:
    static constexpr uint32_t kRecords = 32;
    static constexpr uint64_t kBytes = 4096;

    // A new page; `fd`: its descriptor, the caller's to close.  Null: there is no memory or descriptor for one.
    static std::unique_ptr<GrantPage> make(int& fd);
    static bool is_page(int fd);
    static std::unique_ptr<GrantPage> map(int fd);   // null: there is no memory
    ~GrantPage();
    GrantPage(const GrantPage&) = delete;

    // The importer's.  `nonce`: its lowest 28 bits or all 64 are known.
    std::optional<EarlyGrant> take(uint32_t index, uint64_t nonce, unsigned nonce_bits, Kind wanted);
    // False: the exporter has counted it, so it needs a message.
    bool release(TakenGrant taken);

  private:
    friend class EarlyGrants;
    static constexpr unsigned kGrantWords = sizeof(Grant) / sizeof(uint64_t);
    enum State : uint64_t { settled = 0, offered = 1, taken = 2, released = 3 };   // in the lowest bits; above them a number that no other grant has
    static constexpr uint64_t kStateMask = 3;
    struct Record {
        std::atomic<uint64_t> state;
        std::atomic<uint64_t> nonce;
        std::atomic<uint64_t> index_and_fd;
        std::atomic<uint64_t> inode;
        std::array<std::atomic<uint64_t>, kGrantWords> grant;
    };
    static_assert(std::atomic<uint64_t>::is_always_lock_free && kRecords * sizeof(Record) <= kBytes);

    explicit GrantPage(void* at) : records_(static_cast<Record*>(at)) {}

    Record* const records_;
};

// The exporter's side of a page, with what it wrote and has not seen the end of.  No lock of its own.
class EarlyGrants {
  public:
    explicit EarlyGrants(std::unique_ptr<GrantPage> page) : page_(std::move(page)) {}
    ~EarlyGrants();
    EarlyGrants(const EarlyGrants&) = delete;

    // Whether it is written now; not where it is already, or every record is in use.
    bool offer(ExportKey key, const Grant& grant, int fd, uint64_t inode);
    // Calls `over(index, has_it)` for each that the importer took since the last look: whether it has it still.
    template <class Over>
    void look(const Over& over) {
        for (uint32_t i = 0; i < GrantPage::kRecords; ++i)
            if (written_[i].nonce != 0 && !is_offered(i)) settle(i, over);
    }
    // Takes those of an export back.  Calls `over(index, has_it)` for each: whether the importer was faster, and has it.
    template <class Over>
    void take_back(uint32_t index, const Over& over) {
        for (uint32_t i = 0; i < GrantPage::kRecords; ++i)
            if (written_[i].nonce != 0 && written_[i].index == index) settle(i, over);
    }
    bool is_empty() const { return count_ == 0; }
    bool has(uint32_t index) const;

  private:
    template <class Over>
    void settle(uint32_t i, const Over& over) {
        const uint32_t index = written_[i].index;
        const bool has_it = end(i);
        over(index, has_it);
    }
    bool is_offered(uint32_t i) const;
    bool end(uint32_t i);   // whether the importer has it

    const std::unique_ptr<GrantPage> page_;
    std::array<ExportKey, GrantPage::kRecords> written_{};   // nonce 0: the record is free
    uint64_t turn_ = 0;
    uint32_t count_ = 0;
};

}  // namespace peerlane
