// By which media, that peerlane does not order, processes could have told each other something, and when.
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
    // Whether what a process knew at a time may have come to another one by a later time: directly, through others, or through a process
    // without a log.
    bool reaches(uint32_t from, uint64_t since_ns, uint32_t to, uint64_t until_ns) const;

    bool has_received(uint32_t process) const;   // anything so far

  private:
    // Times in order; beyond the most, neighbours are one: then it may have been at any time between.
    class Times {
      public:
        void add(Span when);
        void begin(uint64_t time_ns);   // at any time from now on
        void end(uint64_t time_ns);
        uint64_t first_since(uint64_t time_ns) const;   // kNever: none
        bool is_empty() const { return ranges_.empty(); }

      private:
        void make_room();
        std::vector<std::pair<uint64_t, uint64_t>> ranges_;
    };
    struct Use {
        bool is_sender() const { return !sent.is_empty() || !written.is_empty(); }
        Times sent, written, received;   // written: memory, which no descriptor tells of
    };
    struct Medium {
        std::unordered_map<uint32_t, Use> uses;   // by process
        bool is_relayed = false, is_apart = false;
    };
    static constexpr uint64_t kNever = UINT64_MAX;

    Use& use_of(uint32_t process, uint64_t key, uint64_t flags);

    std::unordered_map<uint64_t, Medium> media_{{log::kWorld, {}}};
    std::unordered_map<uint32_t, Use> anything_, descriptors_;   // by process: by media that are not known, whose keys are log::kAnyMedium and log::kAnyDescriptor
    bool is_one_ = false;   // no medium can be told apart
};

}  // namespace peerlane::check
