// The finding about two events that are not ordered.
#include "check/analysis.h"
#include "stream/operation.h"

namespace peerlane::check {

using log::Kind;

EventRef Analysis::ref_of(uint32_t log, const Event& event, bool is_write, bool is_delivery) const {
    const log::Head& head = event.head;
    EventRef ref{.log = log, .site = head.site, .thread = head.thread, .kind = head.kind, .op = head.op, .is_write = is_write,
                .is_loose = (head.flags & log::kLoose) != 0, .is_delivery = is_delivery, .is_fetch = (head.flags & log::kFetch) != 0,
                .stream = head.stream, .sequence = head.sequence, .event = event.number, .time_ns = head.time_ns};
    if (head.kind == Kind::collective) ref.op = static_cast<uint8_t>(event.b() >> 8);
    if (head.kind == Kind::access) ref.channel = event.a();
    if (head.kind == Kind::notify || head.kind == Kind::notify_wait) ref.channel = event.d();
    return ref;
}

EventRef Analysis::ref_of(uint32_t number, bool is_write) const {
    const Access& access = accesses_[number];
    const Origin& origin = origins_[access.origin];
    const Role role = actors_[origin.actor].role;
    return EventRef{.log = origin.log, .site = origin.site, .thread = origin.thread, .kind = origin.kind, .op = origin.op, .is_write = is_write,
                .is_loose = (origin.flags & log::kLoose) != 0, .is_delivery = role == Role::delivery || role == Role::loose_delivery,
                .is_fetch = (origin.flags & log::kFetch) != 0, .stream = origin.stream, .sequence = access.number, .channel = origin.channel,
                .event = access.event, .time_ns = access.time_ns};
}

// The rank of a process; of one that has several, as threads, that whose channel it was, or whose channels the thread made.
int32_t Analysis::rank_of(const EventRef& ref) const {
    const Log& log = *logs_[ref.log];
    if (log.reader.rank() >= 0) return log.reader.rank();
    if (const auto channel = log.channels.find(ref.channel); channel != log.channels.end()) return channel->second.rank;
    const auto thread = log.threads.find(ref.thread);
    return thread == log.threads.end() ? kNoRank : std::max(thread->second->rank, kNoRank);
}

EventRef Analysis::ranked(EventRef ref) const {
    ref.rank = rank_of(ref);
    ref.nth = nth(ref);
    return ref;
}

bool Analysis::was_cancelled(const ActorState& actor, uint64_t number) const {
    const ActorState& base = actor.role == Role::delivery ? actors_[actor.id] : actor;
    return std::any_of(base.cancelled.begin(), base.cancelled.end(), [&](const auto& range) { return range.first <= number && number <= range.second; });
}

// Whether a process of a log's machine has a log.
bool Analysis::has_log_of(uint32_t log, uint64_t pid) const {
    return std::any_of(logs_.begin(), logs_.end(), [&](const auto& other) {
        return other->reader.pid() >= 0 && static_cast<uint64_t>(other->reader.pid()) == pid && other->reader.machine() == logs_[log]->reader.machine();
    });
}

// Whether a process without a log may use memory and notifies of this one.  It can pass its knowledge on to any process.
bool Analysis::shares_with_unseen(uint32_t log) {
    bool is_any = false;
    for (Sharer& sharer : logs_[log]->sharers) {
        if (!sharer.is_noted && has_log_of(log, sharer.pid)) continue;
        is_any = true;
        if (!std::exchange(sharer.is_noted, true)) media_.note(log, log::kWorld, log::kMapped | log::kWrote, {sharer.since_ns, sharer.since_ns});
    }
    return is_any;
}

// What an operation of a stream may have heard by then; for a thread the times of its events show it.
Clock Analysis::heard_by(const EventRef& ref) const {
    const auto stream = logs_[ref.log]->streams.find(ref.stream);
    const Past* const past = ref.stream == 0 || ref.is_loose || stream == logs_[ref.log]->streams.end() ? nullptr : version_at(*stream->second, ref.sequence);
    return past ? past->heard : Clock();
}

// Whether an order that no log has could excuse that the second, which may know what is in `heard`, is not ordered behind the first.
bool Analysis::is_excusable(Actor number_of, uint64_t number, const EventRef& first, const EventRef& second, const Clock& heard, bool is_end) {
    // A stream may hear of the first after the second was submitted.
    const bool is_behind = first.time_ns > second.time_ns;
    if (is_behind && heard.begin() == heard.end()) return false;
    for (uint32_t i = 0; i < logs_.size(); ++i) (void)shares_with_unseen(i);
    const ActorState& by = actors_[number_of];
    const bool is_delivery = by.role == Role::delivery || by.role == Role::loose_delivery;
    const ActorState& actor = by.role == Role::delivery ? actors_[by.id] : by;
    std::vector<Media::End> ends{{second.log, second.time_ns}};
    for (const Known& each : heard) ends.push_back({each.actor & ~kByThreads, each.number});
    const auto can_pass_on = [&](uint32_t log, uint32_t thread, uint64_t since_ns) {
        if (log == second.log) return thread != second.thread && since_ns <= second.time_ns;
        if ((thread == kAnyone && heard.of(log) >= since_ns) || heard.of(log | kByThreads) >= since_ns) return true;
        // The times of two clocks are not compared exactly.
        if (logs_[log]->reader.clock() != logs_[second.log]->reader.clock())
            return std::any_of(ends.begin() + (since_ns > second.time_ns), ends.end(), [&](const Media::End& end) { return media_.has_received(end.process); });
        return media_.reaches(log, since_ns, ends);
    };
    const auto was_learned = [&](const ActorState& of, uint64_t least) {
        for (const Learned& each : of.learned)
            if (each.number >= least && can_pass_on(each.log, each.thread, each.time_ns)) return true;
        // What was forgotten was known before the oldest that is left.
        return !is_behind && of.has_forgotten_learned && !of.learned.empty() && of.learned.front().number >= least && of.learned.front().time_ns > second.time_ns;
    };
    // Only a notify brings what a channel wrote; a thread that waited for it, or looked at a word behind it, may pass that on.  The end of memory only
    // asks whether its writer knew that it was over.
    if (is_delivery && !is_end) return was_learned(by, number);
    if (actor.role == Role::loose || actor.role == Role::loose_delivery || (by.role == Role::delivery && actor.role == Role::thread && first.log != second.log)) {
        // A fence, or a drain, shows that they are over.
        const auto entry = logs_[actor.log]->channels.find(by.channel);
        if (entry == logs_[actor.log]->channels.end()) return false;
        const Channel& channel = entry->second;
        const Actor fenced = by.role == Role::delivery ? number_of : channel.loose_delivery;
        const auto fence = std::find_if(channel.fenced.begin(), channel.fenced.end(), [&](const Fence& each) { return each.past.sure.of(fenced) >= number; });
        if (fence == channel.fenced.end()) return false;
        // An earlier one may be forgotten.
        const bool is_first = fence != channel.fenced.begin() || channel.fences == channel.fenced.size();
        if (can_pass_on(first.log, first.thread, is_first ? fence->time_ns : first.time_ns)) return true;
        if (by.role != Role::delivery) return was_learned(actors_[channel.loose], number);
        return is_first ? was_learned(actors_[fence->actor], fence->epoch) : was_learned(actor, number);
    }
    return (actor.role == Role::thread && can_pass_on(first.log, first.thread, first.time_ns)) || was_learned(actor, number);
}

Missing Analysis::missing_between(const Origin& first, const Origin& second, const EventRef& before, const EventRef& after) const {
    const ActorState &one = actors_[first.actor], &other = actors_[second.actor];
    const int32_t rank = rank_of(before), other_rank = rank_of(after);
    const bool is_one_rank = first.log == second.log && (rank == other_rank || rank == kNoRank || other_rank == kNoRank);
    if (one.role == Role::loose || one.role == Role::loose_delivery) return is_one_rank ? Missing::fence : Missing::arrival;
    if (one.role == Role::delivery) return Missing::arrival;
    if (!is_one_rank) return Missing::answer;
    const bool is_of_body = (first.thread & EventRef::kBody) != 0, is_in_body = (second.thread & EventRef::kBody) != 0;
    if (one.role == Role::thread && !is_of_body) return Missing::thread_order;
    return other.role == Role::thread && !is_in_body ? Missing::sync : Missing::event;
}

void Analysis::note_last_order(Finding& finding, Actor actor, const Past& past) {
    const Known* known = past.sure.find(actor);
    // A notify that brought none of the writes still ordered the stream or thread that made them.
    if ((!known || known->via == 0) && actors_[actor].role == Role::delivery) known = past.sure.find(static_cast<Actor>(actors_[actor].id));
    finding.has_last_order = known && known->via != 0 && is_telling(edges_[known->via]);
    if (finding.has_last_order) finding.last_order = edges_[known->via];
}

// The wait that took the helpful record before the second access, where the first one came last: its past does not know that wait.
void Analysis::note_earlier_wait(Finding& finding) const {
    const EventRef &help = finding.help, &second = finding.second;
    if (!finding.has_help || help.event > finding.first.event) return;
    const auto wait = waits_of_.find({help.log, help.site, second.log});
    if (wait == waits_of_.end()) return;
    const uint64_t waits = nth({.log = second.log, .site = wait->second, .event = second.event});
    finding.has_last_order = waits != 0 && waits >= nth(help);
    if (finding.has_last_order) finding.last_order = {help.log, help.site, second.log, wait->second, Kind::notify, Kind::notify_wait};
}

// An order that the program asked for, and not one that peerlane needs to make channels and windows.
bool Analysis::is_telling(const Edge& edge) const {
    switch (edge.to) {
    case Kind::sync:
    case Kind::event_wait:
    case Kind::notify_wait:
    case Kind::value_wait:
    case Kind::collected:
        return !setup_.contains(uint64_t{edge.from_log} << 32 | edge.from_site) && !setup_.contains(uint64_t{edge.to_log} << 32 | edge.to_site);
    default:
        return false;
    }
}

// Whether a process has made the memory in which a byte of a block lies.
bool Analysis::is_allocated_by(const Block& block, uint64_t at, uint32_t log) const {
    const auto after = block.allocations.upper_bound(at);
    if (after == block.allocations.begin()) return false;
    const auto& [first, allocation] = *std::prev(after);
    return allocation.log == log && at - first < allocation.size;
}

void Analysis::locate(Finding& finding, const Block& block, uint64_t low, uint64_t high) const {
    finding.from = low;
    finding.to = high;
    auto at = block.allocations.upper_bound(low);
    if (at == block.allocations.begin()) return;
    --at;
    if (low >= at->first + at->second.size) return;
    finding.in_allocation = true;
    finding.memory_log = at->second.log;
    finding.memory_site = at->second.site;
    finding.memory_rank = rank_of(at->second.ref);
    finding.allocation = at->second.id;
    finding.size = at->second.size;
    finding.from = low - at->first;
    finding.to = std::min(high - at->first, at->second.size);
    locate_part(finding, block, low, high);
}

// What a cache of the program handed out is the allocation that the program knows.
void Analysis::locate_part(Finding& finding, const Block& block, uint64_t low, uint64_t high) const {
    auto at = block.parts.upper_bound(low);
    if (at == block.parts.begin()) return;
    --at;
    const EventRef& ref = at->second.ref;
    if (low >= at->second.end || ref.log != finding.second.log || ref.event > finding.second.event) return;
    finding.memory_log = ref.log;
    finding.memory_site = ref.site;
    finding.size = at->second.end - at->first;
    finding.from = low - at->first;
    finding.to = std::min(high, at->second.end) - at->first;
    finding.is_reused = finding.kind == FindingKind::race && ref.log == finding.first.log && finding.first.event < ref.event;
    finding.reuse_log = ref.log;
    finding.reuse_site = ref.site;
}

Analysis::Reported Analysis::report(FindingKind kind, const EventRef& first, const EventRef& second, bool certain, Missing missing, uint32_t cause) {
    const auto verb = [](const EventRef& ref) {
        return uint64_t{ref.op} << 16 | static_cast<uint64_t>(ref.kind) << 8 | uint64_t{ref.is_write} << 1 | uint64_t{ref.is_delivery};
    };
    const std::vector<uint64_t> lines{static_cast<uint64_t>(kind), uint64_t{first.log} << 32 | first.site, verb(first),
                                      uint64_t{second.log} << 32 | second.site, verb(second)};
    const auto known = by_lines_.find(lines);
    if (known != by_lines_.end()) {
        const auto number = static_cast<uint32_t>(known->second);
        Finding& old = findings_[number];
        FindingState& state = finding_states_[number];
        // What happened once without its cause is a mistake of its own.
        if (cause == Finding::kNoCause) old.cause = cause;
        if (state.last_event == second.event && state.last_log == second.log) return {number, nullptr};   // the same pair
        state.last_event = second.event;
        state.last_log = second.log;
        ++old.count;
        if (!certain || old.certain) return {number, nullptr};
        old = Finding{.kind = kind, .certain = certain, .count = old.count, .first = ranked(first), .second = ranked(second), .missing = missing, .cause = old.cause};
        return {number, &old};
    }
    if (findings_.size() >= kMostFindings) return {Finding::kNoCause, nullptr};
    by_lines_.emplace(lines, findings_.size());
    findings_.push_back(Finding{.kind = kind, .certain = certain, .first = ranked(first), .second = ranked(second), .missing = missing, .cause = cause});
    finding_states_.push_back(FindingState{.last_event = second.event, .last_log = second.log});
    return {static_cast<uint32_t>(findings_.size() - 1), &findings_.back()};
}

void Analysis::race(Touch first, Touch second, Block& block, uint64_t low, uint64_t high, const Past& past, bool is_first_write) {
    const Touch done = first, doing = second;
    const Actor last_known = origins_[accesses_[done.access].origin].actor, judged = origins_[accesses_[doing.access].origin].actor;
    const uint32_t via = via_of(last_known, accesses_[done.access].number, past, judged, accesses_[doing.access].number);
    const bool by_chance = via != 0 ? (via & kByChance) != 0 : past.all().of(last_known) >= accesses_[done.access].number;
    // An operation behind a wait is judged after what its process did later: people read the two as the process submitted them.
    const bool is_late = origins_[accesses_[first.access].origin].log == origins_[accesses_[second.access].origin].log && accesses_[second.access].event < accesses_[first.access].event;
    // Who reads before the first write of its bytes was to read what is written.
    const Origin &reads = origins_[accesses_[first.access].origin], &writes = origins_[accesses_[second.access].origin];
    const Channel* const channel = is_first_write && !first.is_write && reads.log != writes.log ? channel_of(writes.log, writes.channel) : nullptr;
    const bool is_early = channel ? logs_[reads.log]->incoming.contains(channel->outgoing)
                                  : is_first_write && !first.is_write && writes.channel == 0 && reads.log != writes.log && is_allocated_by(block, low, reads.log);
    if (is_late || is_early) std::swap(first, second);
    const Access &one = accesses_[first.access], &other = accesses_[second.access];
    const Origin &from = origins_[one.origin], &to = origins_[other.origin];
    if (was_cancelled(actors_[from.actor], one.number) || was_cancelled(actors_[to.actor], other.number)) return;
    const EventRef before = ref_of(first.access, first.is_write), after = ref_of(second.access, second.is_write);
    const bool is_doubtful = ((from.flags | to.flags) & log::kDoubtful) != 0;
    const Clock done_heard = heard_by(ref_of(done.access, done.is_write));
    const Clock &heard = is_late || is_early ? past.heard : done_heard, &heard_after = is_late || is_early ? done_heard : past.heard;
    const bool certain = !is_doubtful && !is_excusable(from.actor, one.number, before, after, heard_after) && !is_excusable(to.actor, other.number, after, before, heard);
    const auto [number, finding] = report(by_chance ? FindingKind::relied_on_schedule : FindingKind::race, before, after, certain,
                                        by_chance ? Missing::promise : missing_between(from, to, before, after), via != 0 ? via & ~(kCause | kByChance) : Finding::kNoCause);
    if (is_first_write && number != Finding::kNoCause) note_late_write(number, block, low, high, ref_of(done.access, false));
    if (via == 0 && !done.is_write)
        repair_early_read(number, done, doing, is_first_write);
    else if (via == 0)
        repair(number, last_known, accesses_[done.access].number, judged);
    if (!finding) return;
    finding->is_of_look = is_doubtful;
    ask_of_race(number, first.access, second.access, first.is_write, second.is_write);
    locate(*finding, block, low, high);
    if (!is_late && !is_early) note_last_order(*finding, last_known, past);
    FindingState& more = finding_states_[number];
    more.actor = from.actor;
    more.number = one.number;
    help(number);
    if (is_early) note_earlier_wait(*finding);
    if ((finding->missing == Missing::sync || finding->missing == Missing::event) && unsynchronized_.size() < Runs::kKept) unsynchronized_.push_back(number);
}

// Whether a channel leads from the one's rank to the other's.
bool Analysis::have_channel(const EventRef& one, const EventRef& other) const {
    const Log &from = *logs_[one.log], &to = *logs_[other.log];
    return std::any_of(from.channels.begin(), from.channels.end(), [&](const auto& each) {
        const Channel& channel = each.second;
        return one.log == other.log ? channel.rank == one.rank && channel.peer == other.rank : to.incoming.contains(channel.outgoing);
    });
}

bool Analysis::brings_loose(const Sent& sent, const EventRef& ref) { return sent.brings == ref.event || sent.fences >= ref.sequence; }

// A nonblocking operation that no notify brings: it is behind no fence, and is not the notify's own.
bool Analysis::lacks_fence(const EventRef& ref) const {
    if (!ref.is_loose || !ref.is_delivery) return false;
    const auto& channels = logs_[ref.log]->channels;
    const auto channel = channels.find(ref.channel);
    return channel != channels.end() && std::none_of(channel->second.sent.begin(), channel->second.sent.end(),
                                                     [&](const Sent& sent) { return brings_loose(sent, ref); });
}

// Whether no wait has taken a record.
bool Analysis::is_open(const EventRef& record, const Pair& key) const {
    const auto line = lines_.find(key);
    return line != lines_.end() && std::any_of(line->second.records.begin(), line->second.records.end(),
                                               [&](const Record& each) { return each.ref.log == record.log && each.ref.event == record.event; });
}

// Is there a record that a wait could name?  One that was made on this channel and stream after the first access is enough.
bool Analysis::find_help(Finding& finding, FindingState& state, const Channel& channel) const {
    const EventRef& first = finding.first;
    const ActorState& actor = actors_[state.actor];
    const auto base = actor.role == Role::delivery ? actor.id : uint64_t{state.actor};
    for (const Sent& sent : channel.sent) {
        const bool is_behind = sent.ref.event > first.event;
        const bool is_enough = first.is_loose ? brings_loose(sent, first) : sent.actor == base && sent.epoch >= state.number;
        const bool is_aside = is_behind && !first.is_loose && !is_enough;   // better than a record that came before
        if (finding.has_help && (finding.help_is_enough || (!is_enough && (!is_aside || finding.help.event > first.event)))) continue;
        if (!is_enough && finding.missing == Missing::answer) continue;
        if (finding.needs_fence && !is_behind) continue;
        finding.has_help = true;
        finding.help_is_enough = is_enough;
        finding.is_aside = false;
        finding.help = ranked(sent.ref);
        finding.notify = sent.notify;
        state.help_line = sent.line;
    }
    return finding.has_help && finding.help_is_enough;
}

// Looks for the record that could have helped: when the finding is new, and at the end for what came later.
void Analysis::help(uint32_t number) {
    Finding& finding = findings_[number];
    FindingState& state = finding_states_[number];
    const EventRef &first = finding.first, &second = finding.second;
    if (state.actor == 0 || (finding.missing != Missing::answer && finding.missing != Missing::arrival) || (finding.has_help && finding.help_is_enough)) return;
    bool is_new = false;
    if (finding.missing == Missing::answer) {
        if (first.log != second.log)
            for (const auto& [id, channel] : logs_[first.log]->channels)
                if (logs_[second.log]->incoming.contains(channel.outgoing) && (first.channel == 0 || first.channel == channel.number)) is_new = is_new || find_help(finding, state, channel);
    } else if (const Channel* const channel = channel_of(first.log, first.channel)) {
        finding.needs_fence = lacks_fence(first) && actors_[state.actor].id != LooseWrite::kOwn;
        is_new = find_help(finding, state, *channel);
        finding.is_aside = finding.is_aside || is_aside(finding);
    }
    // A record that is older than the second access, and that somebody took, was taken in time, but by another thread.
    if (is_new) state.was_open = finding.help.time_ns > second.time_ns || is_open(finding.help, state.help_line);
}

// Whether the second's rank waited for the record that came behind the first on another stream: then that record is the mistake.
bool Analysis::is_aside(const Finding& finding) const {
    const EventRef &first = finding.first, &second = finding.second, &help = finding.help;
    if (!finding.has_help || finding.help_is_enough || first.is_loose || first.log != help.log || first.stream == help.stream) return false;
    const auto wait = waits_of_.find({help.log, help.site, second.log});
    if (help.event <= first.event || wait == waits_of_.end()) return false;
    const uint64_t waits = nth({.log = second.log, .site = wait->second, .event = second.event});
    return waits != 0 && waits >= nth(help);
}

// What the missing order consists of, by the channels that there were.
void Analysis::specify(Finding& finding) {
    const EventRef &first = finding.first, &second = finding.second;
    if (finding.missing == Missing::answer) {
        finding.needs_fence = lacks_fence(second);
        if (!have_channel(first, second)) finding.missing = Missing::meeting;
        return;
    }
    Channel* const channel = channel_of(first.log, first.channel);
    if (finding.missing != Missing::arrival || !channel) return;
    const bool is_own = first.log == second.log ? second.rank == channel->peer || second.rank == kNoRank : logs_[second.log]->incoming.contains(channel->outgoing);
    if (!is_own && first.rank == second.rank && first.channel == second.channel) {
        finding.missing = Missing::fence;
        finding.has_help = finding.has_late = false;
        return;
    }
    if (!is_own) {
        finding.missing = Missing::relay;
        finding.owner = channel->peer;
        for (const auto& log : logs_)
            if (log->incoming.contains(channel->outgoing) && log->reader.rank() >= 0) finding.owner = log->reader.rank();
    }
    if (finding.needs_fence && finding.has_help && is_own) finding.missing = Missing::fence;
}

const std::vector<Finding>& Analysis::findings() {
    for (size_t i = 0; i < findings_.size(); ++i) {
        help(static_cast<uint32_t>(i));
        note_late_wait(findings_[i], finding_states_[i]);
        specify(findings_[i]);
        findings_[i].runs_again = runs_again(findings_[i]);
        if (findings_[i].kind == FindingKind::unwritten_read) find_collision(findings_[i]);
    }
    answer_questions();
    fold();
    return findings_;
}

}  // namespace peerlane::check
