// Long calls: peers read a rank's bytes where they lie, in a file that both map or by process_vm_readv, and not in a slot.
#pragma once
#include "ranks/group_call.h"
#include "ranks/rounds.h"

namespace peerlane {

// In the first round of a long call each rank announces where its source and its result lie.  Peers are to read them there
// only if all have confirmed, in earlier calls, that they can; until then bytes go through slots.  A call in which anybody has
// announced anything ends with a round of confirmations: what each could read, and that it has read.
class InPlace {
  public:
    // Whether a call of so many bytes announces at all.  All ranks must decide alike.
    static bool is_worthwhile(const GroupCall& call, uint32_t ranks, uint64_t longest);

    // How many threads of a rank read one peer's memory by system calls: as many as find a core that no other reader needs.
    static unsigned threads_of_a_reader(const GroupCall& call, uint32_t ranks, uint64_t longest);

    bool is_on() const { return is_on_; }
    bool is_source_read() const { return is_read_ && src_; }   // peers read this rank's source where it lies
    bool is_result_read() const { return is_read_ && dst_; }
    // Whether all bytes of the call are read where they lie.  The same in all ranks, once they have all announcements.
    bool serves_all(const GroupCall& call, const Rounds& rounds) const;
    bool ends_with_confirmations(const GroupCall& call) const {   // a root's reduction announces to the root alone
        return is_on_ && (is_announced_ || call.kind == GroupCall::Kind::reduce);
    }

    // Before the first round.
    void prepare(const GroupCall& call, Rounds& rounds, uint64_t longest);
    void announce(const GroupCall& call, const Rounds& rounds, const Rounds::Round& round, uint64_t word, uint64_t longest) const;
    // Take a peer's announcement; false: it cannot be served.  `longest` grows to that of the longest part of all ranks.
    bool note(const GroupCall& call, const Rounds& rounds, Rounds::Peer& peer, const Rounds::Round& round, uint64_t& longest, Refusal& why);
    // Fault in what peers will read of this process.
    void touch_source(const GroupCall& call, const Rounds& rounds) const;
    void confirm(const Rounds& rounds, const Rounds::Round& round, uint64_t word) const;
    static void note_confirmation(const Rounds& rounds, Rounds::Peer& peer, const Rounds::Round& round);

  private:
    bool is_on_ = false, is_read_ = false, is_announced_ = false;   // by any rank
    MemoryAddress src_{}, dst_{};   // what this rank announces
};

}  // namespace peerlane
