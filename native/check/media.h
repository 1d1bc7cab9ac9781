// The media, not ordered by peerlane, by which processes could have communicated, and when.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "log/event.h"

namespace peerlane::check {

class Media {
  public:
    struct Span {
        uint64_t begin_ns, end_ns;
    };
    // `flags`: those of Kind::outside; at any time of the span.
    void note(uint32_t process, uint64_t key, uint64_t flags, Span when);
    // It has ended, which others see, as they see what was in its buffers.
    void note_end(uint32_t process, uint64_t time_ns);
    // It can talk to any other one from now on, unseen.
    void note_open(uint32_t process, uint64_t time_ns);
    // What a process may have known until `until_ns` came to another one at `time_ns`, by an order that the log has.
    void carry(uint32_t from, uint64_t until_ns, uint32_t to, uint64_t time_ns);
    struct End {
        uint32_t process;
        uint64_t until_ns;
    };
    // Whether what a process knew at a time may have come to one of these ends in another process: directly, through others, or through a process without a log.
    bool reaches(uint32_t from, uint64_t since_ns, const std::vector<End>& ends) const;

    bool has_received(uint32_t process) const;   // anything so far
    // No event shows when it receives something; `always`: nor when another process sends it.
    void note_listener(uint32_t process, bool always = false);
    // Whether such a process may have received something since as much was sent as is noted there.
    bool may_hear(uint32_t process, uint64_t& sent) const {
        if (!is_one_ && (process >= listeners_.size() || !listeners_[process] || (!is_written_ && sent == sent_))) return false;
        sent = sent_;
        return true;
    }

  private:
    // Times in order; beyond the most, neighbours are one: then it may have been at any time between.
    class Times {
      public:
        void add(Span when);
        void begin(uint64_t time_ns);   // at any time from now on
        void end(uint64_t time_ns);
        bool is_open() const { return !ranges_.empty() && ranges_.back().second == kNever; }
        uint64_t first_since(uint64_t time_ns) const;   // kNever: none
        bool is_empty() const { return ranges_.empty(); }

      private:
        void make_room();
        std::vector<std::pair<uint64_t, uint64_t>> ranges_;
    };
    struct Use {
        bool is_sender() const { return !sent.is_empty() || !written.is_empty(); }
        Times sent, written, received;   // written: memory, which no wait for a descriptor receives
    };
    struct Medium {
        std::unordered_map<uint32_t, Use> uses;   // by process
        bool is_relayed = false, is_apart = false;
    };
    static constexpr uint64_t kNever = UINT64_MAX;

    static void note_use(Use& use, uint64_t flags, Span when);

    std::unordered_map<uint64_t, Medium> media_{{log::kWorld, {.uses = {}, .is_relayed = true}}};
    std::unordered_map<uint32_t, Use> anything_, descriptors_;   // by process: by media that are not known, whose keys are log::kAnyMedium and log::kAnyDescriptor
    std::unordered_map<uint32_t, std::unordered_map<uint32_t, Times>> carried_;   // by sender, then receiver: from when it came to until when it was known
    std::vector<bool> listeners_;
    uint64_t sent_ = 0;         // events of what was sent
    bool is_written_ = false;   // some process can write memory that others, or processes without a log, can read
    bool is_one_ = false;   // all media count as one
};

}  // namespace peerlane::check
