// The objects that a process has exported, who may open each and how many have it.  No lock, no descriptors of its own.
#pragma once
#include <deque>

#include "share/broker.h"

namespace peerlane {

class ExportTable {
  public:
    using Gone = std::function<void()>;
    using Listed = std::vector<std::pair<int32_t, uint64_t>>;   // pid, start time

    struct Entry {
        Export what;
        uint64_t nonce = 0;        // 0: the entry is free
        uint64_t importers = 0;
        bool abandoned = false, withdrawn = false;
        Listed listed;
    };

    ExportKey add(Export what);   // throws Refusal
    // Null: not there, or `bits` of the nonce differ.
    Entry* find(uint32_t index, uint64_t nonce, unsigned bits = 64);
    Entry& at(uint32_t index) { return entries_[index]; }
    // ok, stale or unknown.
    Status status(uint32_t index, uint64_t nonce, unsigned bits);
    void add_importer(uint32_t index);
    // All below: what to call then, without a lock.
    std::vector<Gone> drop_importer(uint32_t index);
    // Take out what nobody needs any more: it, and others of its group.
    std::vector<Gone> settle(uint32_t index);
    std::vector<Gone> take_all();

  private:
    bool was_there(uint32_t index, uint64_t nonce, unsigned bits) const;
    bool is_over(const Entry& entry) const;
    void end(uint32_t index, std::vector<Gone>& gone);
    void forget(uint32_t index);

    std::deque<Entry> entries_;           // entries keep their index
    std::deque<uint32_t> free_;           // the longest unused first
    std::deque<ExportKey> dead_;          // the oldest first
};

}  // namespace peerlane
