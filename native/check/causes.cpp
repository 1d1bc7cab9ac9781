// Which findings have one cause: docs/design/checker.md, "One mistake is one finding".
//
// A finding lacks an order.  What comes after is judged as if the order were there, and what it would have excused is a consequence.
#include "check/analysis.h"
#include "stream/notify.h"

namespace peerlane::check {

using log::Kind;

// The times that a line ran are counted where texts may name one of them.
void Analysis::note_run(uint32_t log, const Event& event) {
    Log& this_log = *logs_[log];
    const log::Head& head = event.head;
    if (head.site == 0 || head.site >= kMostIdle || this_log.run > event.number) return;   // a blocked event comes again
    this_log.run = event.number + 1;
    if (head.site >= this_log.runs.size()) this_log.runs.resize(head.site + size_t{1});
    auto& runs = this_log.runs[head.site];
    if (!runs) {
        runs = std::make_unique<Runs>();
        runs->kind = head.kind;
        runs->first = static_cast<uint32_t>(std::min<uint64_t>(event.number, UINT32_MAX));
        runs->first_ns = head.time_ns;
    }
    const uint32_t bit = head.kind == Kind::access ? Runs::kFirstOp + std::min<uint32_t>(head.op, 15) : std::min(static_cast<uint32_t>(head.kind), Runs::kFirstOp - 1);
    runs->verbs |= uint64_t{1} << bit;
    if (head.kind != runs->kind) return;   // a write with a notify is one run of its line
    const uint32_t repeats = head.flags & log::kMerged ? std::max(head.repeats, 1u) : 1;
    // A log may name any number of repeats: only the last ones are kept.
    for (uint64_t i = repeats - std::min<uint64_t>(repeats, Runs::kKept); i < repeats; ++i) runs->events[(runs->count + i) % Runs::kKept] = static_cast<uint32_t>(std::min<uint64_t>(event.number, UINT32_MAX));
    runs->count += repeats;
}

const Analysis::Runs* Analysis::runs_of(uint32_t log, uint32_t site) const {
    const auto& runs = logs_[log]->runs;
    return site < runs.size() ? runs[site].get() : nullptr;
}

std::vector<std::pair<uint32_t, uint64_t>> Analysis::verbs_of_lines(uint32_t log) const {
    std::vector<std::pair<uint32_t, uint64_t>> all;
    const auto& runs = logs_.at(log)->runs;
    for (uint32_t site = 0; site < runs.size(); ++site)
        if (runs[site]) all.emplace_back(site, runs[site]->verbs);
    return all;
}

// Whether the events of a line count its runs: a call may synchronize more than one stream before it does what it is for.
bool Analysis::counts_runs(const Runs& runs, const EventRef& ref) { return runs.kind != Kind::sync || ref.kind == Kind::sync; }

uint64_t Analysis::nth(const EventRef& ref) const {
    const Runs* const runs = runs_of(ref.log, ref.site);
    if (!runs || !counts_runs(*runs, ref)) return 0;
    const uint64_t kept = std::min(runs->count, Runs::kKept);
    const auto event = [&](uint64_t i) { return runs->events[(runs->count - 1 - i) % Runs::kKept]; };
    for (uint64_t i = 0; i < kept; ++i)
        if (event(i) <= ref.event) return i + 1 < kept && event(i) == event(i + 1) ? 0 : runs->count - i;   // of merged ones it could be any
    return 0;
}

// Whether the second's line runs again: it had run before the first's did.  Of two lines that one pass of a loop runs in this order it does not.
bool Analysis::runs_again(const Finding& finding) const {
    const EventRef &first = finding.first, &second = finding.second;
    switch (finding.missing) {
    case Missing::arrival:
    case Missing::write:
    case Missing::wait:
    case Missing::promise:
        return false;
    default:
        break;
    }
    const Runs *const one = runs_of(first.log, first.site), *const other = runs_of(second.log, second.site);
    if (!one || !other || !counts_runs(*other, second) || other->count < 2 || second.event <= other->first) return false;
    if (first.log == second.log) return first.site == second.site ? first.event < second.event : other->first < one->first;
    return logs_[first.log]->reader.clock() == logs_[second.log]->reader.clock() && other->first_ns < one->first_ns;
}

// A synchronization that came after the access which it should have preceded.
void Analysis::note_late_sync(const EventRef& sync, uint64_t stream, uint64_t sequence) {
    std::erase_if(unsynchronized_, [&](uint32_t number) {
        Finding& finding = findings_[number];
        if (finding.first.log != sync.log || finding.first.stream != stream || finding.first.sequence > sequence || sync.event <= finding.second.event) return false;
        finding.has_late = true;
        finding.late_log = sync.log;
        finding.late_site = sync.site;
        return true;
    });
}

// Nobody ever waits for what a line records: findings that a wait for it would end have one cause.
void Analysis::note_unwaited(Finding& finding, const EventRef& record, uint32_t waiter) const {
    if (finding.is_unwaited || waits_of_.contains({record.log, record.site, waiter})) return;
    finding.is_unwaited = true;
    finding.unwaited_log = record.log;
    finding.unwaited_site = record.site;
    finding.unwaited_by = waiter;
}

// A wait that took the helpful record, after the access which it should have preceded.
void Analysis::note_late_wait(Finding& finding, const FindingState& state) const {
    if (!finding.has_help || !finding.help_is_enough || !state.was_open) return;
    const auto line = lines_.find(state.help_line);
    if (line == lines_.end() || line->second.records.size() >= kMostRecords) return;   // not all records are known
    finding.is_untaken = is_open(finding.help, state.help_line);
    const auto wait = waits_of_.find({finding.help.log, finding.help.site, finding.second.log});
    if (finding.is_untaken) note_unwaited(finding, finding.help, finding.second.log);
    if (finding.is_untaken || wait == waits_of_.end()) return;
    finding.has_late = true;
    finding.late_log = finding.second.log;
    finding.late_site = wait->second;
}

// 1 + the event of the same line's time before; 0: there was none.
uint64_t Analysis::previous_run(const EventRef& ref) const {
    const Runs* const runs = runs_of(ref.log, ref.site);
    uint64_t own = UINT64_MAX;
    for (uint64_t i = 0; runs && i < std::min(runs->count, Runs::kKept); ++i) {
        const uint32_t event = runs->events[(runs->count - 1 - i) % Runs::kKept];
        if (event < own && own != UINT64_MAX) return event + uint64_t{1};
        if (event <= ref.event) own = event;
    }
    return 0;
}

// What an actor had done and knew when it came to `number`; of a delivery: when it came to the next record, which brings it.
Past Analysis::known_at(Actor actor, uint64_t number) const {
    const ActorState& state = actors_[actor];
    const Log& log = *logs_[state.log];
    Past past;
    if (state.role == Role::delivery) {
        if (const auto channel = log.channels.find(state.channel); channel != log.channels.end())
            for (const Sent& sent : channel->second.sent)
                if (sent.actor == state.id && sent.epoch >= number) {
                    number = sent.epoch;
                    break;
                }
        past = known_at(static_cast<Actor>(state.id), number);
    } else if (state.role == Role::stream) {
        if (const auto stream = log.streams.find(state.id); stream != log.streams.end())
            if (const Past* const version = version_at(*stream->second, number)) past = *version;
    } else if (state.role == Role::thread) {
        if (const auto thread = log.threads.find(static_cast<uint32_t>(state.id)); thread != log.threads.end()) {
            const auto& versions = thread->second->versions;
            const auto at = std::lower_bound(versions.begin(), versions.end(), number, [](const auto& version, uint64_t wanted) { return version.first < wanted; });
            past = at != versions.end() ? at->second : thread->second->past;
        }
    }
    past.set(actor, number, 0);
    return past;
}

// The finding whose missing order would put what `by` did before what `to` does, as a mark of a clock; 0: none.
uint32_t Analysis::via_of(Actor by, uint64_t number, const Past& past, Actor to, uint64_t to_number) const {
    if (past.has_more)
        if (const Known* const known = past.wide.find(by); known && known->number >= number && known->via & kCause) return known->via;
    const Actor holder = holder_of(to);
    for (const Repair& each : repairs_)
        if (each.to == holder && each.past.all().of(by) >= number) return kCause | each.cause;
    for (const EarlyRead& each : early_reads_) {
        if (each.reader != by || number < each.read || each.writer != to || to_number < each.written) continue;
        const ActorState& writer = actors_[to];
        const auto channel = logs_[writer.log]->channels.find(writer.channel);
        if (channel == logs_[writer.log]->channels.end()) continue;
        const auto& sent = channel->second.sent;
        if (std::none_of(sent.begin(), sent.end(), [&](const Sent& one) { return one.actor == writer.id && each.written <= one.epoch && one.epoch < to_number; }))
            return kCause | each.cause;
    }
    return 0;
}

// Whose past says what the actor knows.
Actor Analysis::holder_of(Actor actor) const {
    const ActorState& state = actors_[actor];
    switch (state.role) {
    case Role::delivery:
        return static_cast<Actor>(state.id);
    case Role::loose:
    case Role::loose_delivery:
        return 0;
    default:
        return actor;
    }
}

void Analysis::repair(uint32_t cause, Actor from, uint64_t number, Actor to) {
    const Actor holder = holder_of(to);
    if (cause != Finding::kNoCause && holder != 0) repairs_.push_back({cause, holder, known_at(from, number)});
}

// A read came before a write.  Of bytes that nobody had written it was meant to come after, and what the reader does next shall know the write.  Of others
// either order may have been meant: then the reader counts as knowing the write alone, so that its own later uses of these bytes make no finding.
void Analysis::repair_early_read(uint32_t cause, Touch read, Touch write, bool is_first_write) {
    const Access &one = accesses_[read.access], &other = accesses_[write.access];
    const Actor reader = origins_[one.origin].actor, writer = origins_[other.origin].actor;
    if (is_first_write) {
        repair(cause, writer, other.number, reader);
        early_reads_.push_back({cause, reader, writer, one.number, other.number});
        if (early_reads_.size() > Runs::kKept) early_reads_.pop_front();
        return;
    }
    repair(cause, reader, one.number, writer);
    Past alone;
    alone.set(writer, other.number, 0);
    if (const Actor holder = holder_of(reader); cause != Finding::kNoCause && holder != 0) repairs_.push_back({cause, holder, std::move(alone)});
}

void Analysis::apply_repairs() {
    for (const Repair& each : repairs_) {
        const ActorState& state = actors_[each.to];
        if (state.role == Role::stream) {
            stream_of(state.log, state.id).past.join_by_chance(each.past, kCause | each.cause);
        } else {
            Thread& thread = thread_of(state.log, static_cast<uint32_t>(state.id));
            thread.past.join_by_chance(each.past, kCause | each.cause);
            thread.has_snapshot = false;
        }
    }
    repairs_.clear();
}

// Of two accesses that lack an order either can be the one that should have waited.
void Analysis::ask_of_race(uint32_t finding, uint32_t first, uint32_t second, bool first_wrote, bool second_wrote) {
    const auto question = [&](uint32_t from, uint32_t to, bool is_write) {
        const Access& done = accesses_[from];
        const EventRef before = ref_of(to, is_write);
        ask({.finding = finding, .from_log = origins_[done.origin].log, .to_log = before.log, .actor = origins_[done.origin].actor, .number = done.number,
             .before = before, .previous = previous_run(before)});
    };
    question(first, second, second_wrote);
    question(second, first, first_wrote);
}

void Analysis::ask(Question question) {
    if (questions_.size() >= kMostRecords || question.finding == Finding::kNoCause) return;
    question.before = ranked(question.before);
    for (const auto& [key, line] : lines_)
        for (const Record& record : line.records)
            if (!question.has_record || record.ref.time_ns < question.record.time_ns) take_answer(question, key, record);
    questions_.push_back(std::move(question));
}

// Takes the record if it knows what the question asks for, and if the process that should have waited can wait for it.
void Analysis::take_answer(Question& question, const Pair& key, const Record& record) const {
    if (question.actor == 0 || record.ref.log != question.from_log || record.past.sure.of(question.actor) < question.number) return;
    const SharedRecord shared{record.ref, key, record.number};
    if (question.from_log == question.to_log || logs_[question.to_log]->incoming.contains(record.line.a)) {
        take_record(question, shared);
        return;
    }
    const bool is_known = std::any_of(question.shared.begin(), question.shared.end(), [&](const SharedRecord& each) { return each.ref.site == record.ref.site; });
    if (record.line.a != 0 && record.ref.channel == 0 && !is_known && question.shared.size() < Runs::kKept) question.shared.push_back(shared);
}

void Analysis::take_record(Question& question, const SharedRecord& record) const {
    question.has_record = true;
    question.record = ranked(record.ref);
    question.record_key = record.key;
    question.record_number = record.number;
    judge_wait(question);
}

void Analysis::hear_record(const Pair& key, const Record& record) {
    for (Question& question : questions_)
        if (!question.has_record) take_answer(question, key, record);
}

// The wait consumed the record.
void Analysis::hear_wait(const Record& record, const EventRef& wait) {
    if (waits_of_.size() < kMostIdle) waits_of_[{record.ref.log, record.ref.site, wait.log}] = wait.site;
}

// A wait was skipped if its line did not run since the line of the access had run the time before.
void Analysis::judge_wait(Question& question) const {
    if (question.is_judged) return;
    if (!question.has_record) {
        const auto taken = std::find_if(question.shared.begin(), question.shared.end(),
                                        [&](const SharedRecord& each) { return waits_of_.contains({each.ref.log, each.ref.site, question.to_log}); });
        if (taken != question.shared.end()) take_record(question, SharedRecord(*taken));
        return;
    }
    const auto wait = waits_of_.find({question.record.log, question.record.site, question.to_log});
    if (wait == waits_of_.end()) return;
    question.is_judged = true;
    question.wait_site = wait->second;
    const Runs* const runs = runs_of(question.to_log, wait->second);
    if (!runs) return;
    const uint64_t kept = std::min(runs->count, Runs::kKept);
    const uint32_t* const events = runs->events;
    const bool ran = std::any_of(events, events + kept, [&](uint32_t event) { return question.previous <= event && event < question.before.event; });
    const bool is_known = runs->count <= Runs::kKept || std::any_of(events, events + kept, [&](uint32_t event) { return event < question.previous; });
    question.is_skipped = !ran && is_known;
}

// Nobody ever waits for the record that would order the accesses in reverse: that wait is the missing one.
bool Analysis::lacks_other_wait(const Question& question) const {
    return std::any_of(questions_.begin(), questions_.end(), [&](const Question& other) {
        return &other != &question && other.finding == question.finding && other.has_record && !waits_of_.contains({other.record.log, other.record.site, other.to_log});
    });
}

void Analysis::answer_questions() {
    for (Question& question : questions_) {
        judge_wait(question);
        if (Finding& lost = findings_[question.finding]; lost.kind == FindingKind::lost_notify && question.has_record) note_unwaited(lost, question.record, question.to_log);
        if (!question.is_skipped || lacks_other_wait(question)) continue;
        const auto line = lines_.find(question.record_key);
        if (line == lines_.end()) continue;
        const Line& notify = line->second;
        Finding& finding = findings_[question.finding];
        // A deadlock cuts off records, but not those by which a notify was lost.
        if ((vain_.empty() || finding.kind == FindingKind::lost_notify) && notify.record_count <= notify.waits) continue;
        if (finding.is_skipped || finding.is_aside) continue;
        finding.is_skipped = true;
        finding.skipped = {.record = question.record, .before = question.before, .log = question.to_log, .site = question.wait_site,
                           .notify = notify.index != 0 ? notify.index - 1 : question.record_key.b, .records = notify.record_count, .waits = notify.waits};
    }
}

void Analysis::add_elsewhere(Finding& unwritten, const EventRef& ref, uint64_t from, uint64_t to) const {
    for (WrittenElsewhere& each : unwritten.elsewhere)
        if (each.ref.log == ref.log && each.ref.site == ref.site && from <= each.to && each.from <= to) {
            each.from = std::min(each.from, from);
            each.to = std::max(each.to, to);
            return;
        }
    if (unwritten.elsewhere.size() < Runs::kKept) unwritten.elsewhere.push_back({ranked(ref), from, to});
}

// What channels and other processes wrote into the allocation and nobody read may have been meant for the bytes that nobody wrote.
void Analysis::find_elsewhere(Finding& unwritten, const Block& block) const {
    const auto at = std::find_if(block.allocations.begin(), block.allocations.end(),
                                 [&](const auto& each) { return each.second.log == unwritten.memory_log && each.second.id == unwritten.allocation; });
    if (at == block.allocations.end()) return;
    std::unordered_set<uint32_t> read;   // a write of which somebody reads a byte was meant for its bytes
    block.shadow.each(at->first, at->first + at->second.size, [&](const Cell& cell, uint64_t, uint64_t) {
        if (cell.read != 0) read.insert(cell.write & Cell::kAccess);
    });
    const auto is_of_others = [](const Origin& writer, uint32_t owner) { return writer.channel != 0 || writer.log != owner; };
    block.shadow.each(at->first, at->first + at->second.size, [&](const Cell& cell, uint64_t low, uint64_t high) {
        const uint32_t writer = cell.write & Cell::kAccess;
        if (writer > kOld && !(cell.write & Cell::kUnwritten) && !read.contains(writer) && is_of_others(origins_[accesses_[writer].origin], unwritten.memory_log))
            add_elsewhere(unwritten, ref_of(writer, true), low - at->first, high - at->first);
    });
    std::erase_if(unwritten.elsewhere, [&](const WrittenElsewhere& each) { return each.to - each.from < unwritten.to - unwritten.from; });
}

// Two channels or other processes that wrote the same bytes: the one of them, then.
void Analysis::find_collision(Finding& unwritten) const {
    const auto is_of_others = [&](const EventRef& each) { return each.channel != 0 || each.log != unwritten.memory_log; };
    const auto is_collision = [&](const Finding& each) {
        return each.kind == FindingKind::race && each.in_allocation && each.memory_log == unwritten.memory_log && each.allocation == unwritten.allocation &&
               each.first.is_write && each.second.is_write && is_of_others(each.first) && is_of_others(each.second) &&
               (each.first.log != each.second.log || each.first.site != each.second.site);
    };
    if (std::none_of(findings_.begin(), findings_.end(), is_collision)) return;
    unwritten.elsewhere.clear();
    for (const Finding& each : findings_)
        if (is_collision(each)) {
            add_elsewhere(unwritten, each.first, each.from, each.to);
            add_elsewhere(unwritten, each.second, each.from, each.to);
        }
}

void Analysis::note_late_write(uint32_t race, const Block& block, uint64_t low, uint64_t high, const EventRef& read) {
    for (UnwrittenRead& each : unwritten_reads_)
        if (each.block == &block && each.low < high && low < each.high && each.log == read.log && each.site == read.site) each.race = race;
}

// Bytes that were all written after all, but too late.  Returns whether only some of them were.
bool Analysis::fold_unwritten(uint32_t finding) {
    bool lacks_some = unwritten_reads_.size() >= kMostRecords;
    uint32_t race = Finding::kNoCause;
    for (const UnwrittenRead& each : unwritten_reads_) {
        if (each.finding != finding) continue;
        lacks_some = lacks_some || each.race == Finding::kNoCause;
        if (each.race != Finding::kNoCause) race = each.race;
    }
    if (race == Finding::kNoCause) return false;
    if (!lacks_some && findings_[race].certain) set_cause(finding, race);
    return lacks_some;
}

void Analysis::set_cause(uint32_t finding, uint32_t cause) {
    if (findings_[finding].cause != Finding::kNoCause) return;
    for (uint32_t at = cause; at != Finding::kNoCause; at = findings_[at].cause)
        if (at == finding) return;
    findings_[finding].cause = cause;
}

// Whether an access of a finding lacks the records of the line for one of which its process had not waited before.
bool Analysis::is_behind_skipped(uint32_t finding, const SkippedWait& skipped) const {
    return std::any_of(questions_.begin(), questions_.end(), [&](const Question& each) {
        return each.finding == finding && each.has_record && each.to_log == skipped.log && each.record.log == skipped.record.log && each.record.site == skipped.record.site &&
               each.before.event > skipped.before.event;
    });
}

// What is known only at the end.
void Analysis::fold() {
    const auto have_logs = [](const Finding& one, const Finding& other) {
        return (one.first.log == other.first.log && one.second.log == other.second.log) || (one.first.log == other.second.log && one.second.log == other.first.log);
    };
    const auto is_of = [](const EventRef& ref, const EventRef& other) { return ref.log == other.log && ref.site == other.site; };
    for (uint32_t i = 0; i < findings_.size(); ++i) {
        const Finding& finding = findings_[i];
        const bool is_partly_written = finding.kind == FindingKind::unwritten_read && fold_unwritten(i);
        for (uint32_t k = 0; k < findings_.size() && finding.cause == Finding::kNoCause; ++k) {
            const Finding& other = findings_[k];
            if (i == k || other.cause == i) continue;
            bool is_consequence = false;
            // One record that one wait did not take.
            if (k < i && finding.is_skipped && other.is_skipped)
                is_consequence = is_of(finding.skipped.record, other.skipped.record) && finding.skipped.log == other.skipped.log && finding.skipped.notify == other.skipped.notify;
            // Behind a skipped wait each other one takes a record that is too old.
            else if (finding.kind == FindingKind::race && !finding.is_skipped && other.is_skipped && is_behind_skipped(i, other.skipped))
                is_consequence = true;
            // One line whose records nobody waits for.
            else if (finding.is_unwaited && other.is_unwaited && finding.unwaited_log == other.unwaited_log && finding.unwaited_site == other.unwaited_site &&
                     finding.unwaited_by == other.unwaited_by && finding.kind != other.kind)
                is_consequence = other.kind == FindingKind::race;
            // What a process ends because it waited in vain.
            else if (finding.kind == FindingKind::use_after_free && finding.second.time_ns >= logs_[finding.second.log]->vain_ns)
                is_consequence = other.kind != FindingKind::use_after_free && other.certain && have_logs(finding, other);
            // The record that it did not take is left over, or replaced by the next one.
            else if (finding.kind == FindingKind::unconsumed_notify || finding.kind == FindingKind::lost_notify)
                is_consequence = (other.is_skipped && is_of(other.skipped.record, finding.first) && other.skipped.notify == finding.notify) ||
                                 (other.kind == FindingKind::use_after_free && other.first.log == finding.first.log && other.first.channel == finding.first.channel &&
                                  other.first.event < finding.first.event) ||
                                 (other.missing == Missing::arrival && (other.help_is_enough || other.is_aside) && is_of(other.help, finding.first) && other.notify == finding.notify) ||
                                 (other.is_aside && finding.has_help && finding.first.log == other.second.log && finding.help.log == other.first.log);   // the answer to that record
            // Bytes that were written after all, too late.
            else if (finding.kind == FindingKind::unwritten_read) {
                const bool overlaps = !is_partly_written && other.from < finding.to && finding.from < other.to;
                const bool is_late = other.first.is_write && !other.second.is_write && is_of(other.second, finding.second);
                const bool is_early = !other.first.is_write && other.second.is_write && is_of(other.first, finding.second);
                const bool is_of_all = is_late && other.is_unwaited && finding.elsewhere.empty() && other.memory_log == finding.memory_log && other.allocation == finding.allocation;
                is_consequence = other.kind == FindingKind::race && other.certain && (((is_late || is_early) && overlaps) || is_of_all);
            }
            // A write that went astray.
            else if (finding.kind == FindingKind::race && other.kind == FindingKind::unwritten_read && other.certain)
                is_consequence = std::any_of(other.elsewhere.begin(), other.elsewhere.end(), [&](const WrittenElsewhere& each) {
                    return is_of(each.ref, finding.first) || is_of(each.ref, finding.second);
                });
            // What the owner reads of bytes that two others wrote, one of them at a wrong offset.
            else if (finding.kind == FindingKind::race && other.kind == FindingKind::race && other.certain && finding.first.is_write != finding.second.is_write) {
                const EventRef& write = finding.first.is_write ? finding.first : finding.second;
                const bool is_collision = other.first.is_write && other.second.is_write && other.first.channel != 0 && other.second.channel != 0 && other.first.log != other.second.log;
                is_consequence = is_collision && write.channel != 0 && (is_of(write, other.first) || is_of(write, other.second)) && other.from < finding.to && finding.from < other.to;
            }
            if (is_consequence) set_cause(i, k);
        }
    }
}

}  // namespace peerlane::check
