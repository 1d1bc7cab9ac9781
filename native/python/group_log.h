// What the event log has of a rank's collectives and messages: one event each, whichever code makes the call.
#pragma once
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <unordered_map>

#include "log/log.h"
#include "memory/memory.h"
#include "ranks/group_call.h"

// Counts the calls of one rank in one group.  With the GIL.
class GroupLog {
  public:
    struct Call {
        peerlane::log::Collective kind;
        uint32_t peer;     // or the root
        uint64_t number;   // among the collectives of the rank, or among the messages of its lane
        uint32_t site;
    };

    GroupLog(std::string name, uint64_t group, uint32_t rank, uint32_t size) : name_(std::move(name)), group_(group), rank_(rank), size_(size) {}

    // Whether the present log has the group's name.
    bool is_named() const { return named_in_ == peerlane::log::number.load(std::memory_order_relaxed); }
    void write_name();
    Call count(peerlane::log::Collective kind, uint32_t peer);
    // The event of a call, which comes before all that it waits for; or, of one that is over, the only one of it.
    void write(peerlane::log::Kind event, const Call& call, const peerlane::log::Spans* spans, uint64_t stream = 0, uint64_t sequence = 0, uint8_t flags = 0) const noexcept;

  private:
    const std::string name_;
    const uint64_t group_;
    const uint32_t rank_, size_;
    uint64_t named_in_ = 0;
    std::unordered_map<uint64_t, uint64_t> counts_;   // by lane
};

// A call that this thread makes at once: what it is made of is not logged.  Its event is written when it is over, or else, without
// its end, when this object goes.
class LoggedCall {
  public:
    // Without a log nothing happens.
    LoggedCall(GroupLog* log, peerlane::GroupCall::Kind kind, uint32_t peer, const peerlane::Range& dst, uint64_t dst_size, const peerlane::Range& src,
               uint64_t src_size);
    ~LoggedCall();
    LoggedCall(const LoggedCall&) = delete;
    void is_over();
    std::optional<GroupLog::Call> begun() const;   // what is not over; nothing without a log

  private:
    GroupLog* log_;   // null: the event is written, or none is wanted
    GroupLog::Call call_{};
    peerlane::log::Spans spans_;
    uint64_t since_ns_ = 0;
    std::optional<peerlane::log::Quiet> quiet_;
};

// The rest of a call that was begun: nothing of it is logged but its end, unless it fails.
class LoggedEnd {
  public:
    LoggedEnd(const GroupLog* log, const std::optional<GroupLog::Call>& call) : log_(call ? log : nullptr), call_(call) {
        if (log_) quiet_.emplace();
    }
    ~LoggedEnd() {
        if (log_ && std::uncaught_exceptions() == exceptions_) log_->write(peerlane::log::Kind::collected, *call_, nullptr);
    }
    LoggedEnd(const LoggedEnd&) = delete;

  private:
    const GroupLog* const log_;
    const std::optional<GroupLog::Call> call_;
    const int exceptions_ = std::uncaught_exceptions();
    std::optional<peerlane::log::Quiet> quiet_;
};
