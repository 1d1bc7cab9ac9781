// Notifies and their waits; channels and their fences.
#include "check/analysis.h"
#include "stream/notify.h"

namespace peerlane::check {

using log::Kind;

namespace {

constexpr uint8_t kBinary = static_cast<uint8_t>(NotifyKind::binary);

// Lines of one process have its log's number beside their own.
Pair key_of(uint32_t log, uint64_t bank, uint64_t line) {
    return bank == 0 ? Pair{uint64_t{log} << 1 | 1, line} : Pair{bank << 1 ^ bank >> 63, line};
}

}  // namespace

Analysis::Line& Analysis::line_of(uint32_t log, uint64_t bank, uint64_t line) {
    const auto [entry, is_new] = lines_.try_emplace(key_of(log, bank, line));
    Line& notify = entry->second;
    notify.used = events_;
    if (is_new && has_lost_lines_) {   // of whichever kind it was: a level line promises the least
        notify.kind = static_cast<uint8_t>(NotifyKind::level);
        notify.is_tainted = true;
    }
    return notify;
}

Analysis::Signal& Analysis::signal_of(uint64_t number) {
    Signal& signal = signals_[number];
    signal.used = events_;
    return signal;
}

// A line of one process has another name from now on.
void Analysis::share_line(uint32_t log, uint64_t own, uint64_t bank, uint64_t line) {
    auto node = lines_.extract(key_of(log, 0, own));
    if (!node) return;
    for (Record& record : node.mapped().records) record.line = {bank, line};
    node.key() = key_of(log, bank, line);
    lines_.erase(node.key());
    lines_.insert(std::move(node));
}

Analysis::Channel* Analysis::channel_of(uint32_t log, uint64_t number) {
    auto& channels = logs_[log]->channels;
    const auto channel = channels.find(number);
    return number == 0 || channel == channels.end() ? nullptr : &channel->second;
}

Actor Analysis::delivery_of(Channel& channel, Actor base) {
    Delivery& delivery = channel.deliveries[base];
    if (delivery.actor == 0) delivery.actor = new_actor(Role::delivery, channel.log, base, channel.number);
    return delivery.actor;
}

// The newest fence of the channel that comes before what an actor does; null: there is none.
Analysis::Fence* Analysis::fence_before(Channel& channel, Actor actor, const Past& past) {
    for (auto fence = channel.fenced.rbegin(); fence != channel.fenced.rend(); ++fence)
        if (fence->actor == actor || past.sure.of(fence->actor) >= fence->epoch) return &*fence;
    return nullptr;
}

// The past of what an actor does, with what the newest fence before it brings.
const Past& Analysis::behind_fence(Channel& channel, Actor actor, const Past& past) {
    Fence* const fence = fence_before(channel, actor, past);
    if (!fence) return past;
    if (!fence->joined.sure.identity() || !fence->of.is_same(past)) {
        fence->of = fence->joined = past;
        fence->joined.join(fence->past, 0);
    }
    return fence->joined;
}

// A record by `actor`, whose past and own part are `past`.
Analysis::Record Analysis::record_by(uint32_t log, const Event& event, Actor actor, uint64_t epoch, const Past& past) {
    Record record{0, past, actor, epoch, ref_of(log, event, false), {event.a(), event.b()}};
    uint64_t brings = 0;
    const auto bring = [&](Channel& channel) {
        // Without a stream all threads are one: a thread brings what it knows that others wrote.
        const bool is_thread = actors_[actor].role == Role::thread;
        for (const auto& [base, delivery] : channel.deliveries)
            if (base == actor || (is_thread && actors_[base].role == Role::thread))
                if (const uint64_t number = std::min(delivery.newest, past.sure.of(base))) record.past.set(delivery.actor, number, 0);
        const Fence* const fence = fence_before(channel, actor, past);
        if (fence) record.past.join(fence->past, 0);
        record.ref.channel = channel.number;
        const auto line = lines_.find(key_of(log, event.a(), event.b()));
        const bool has_index = line != lines_.end() && line->second.index != 0;
        channel.sent.push_back({actor, epoch, has_index ? line->second.index - 1 : event.b(), brings, fence ? fence->past.sure.of(channel.loose_delivery) : 0, record.ref,
                                key_of(log, event.a(), event.b())});
        if (channel.sent.size() > 16) channel.sent.pop_front();
    };
    if (event.d() != 0) {
        const auto loose = logs_[log]->loose_writes.find(event.head.stream);
        if (event.head.stream != 0 && loose != logs_[log]->loose_writes.end() && loose->second.sequence == event.head.sequence) {
            for (const auto& [own, number] : loose->second.brought) record.past.set(own, number, 0);
            brings = loose->second.event;
        }
        if (Channel* const channel = channel_of(log, event.d())) bring(*channel);
        return record;
    }
    auto& this_log = *logs_[log];
    const auto by_bank = this_log.by_outgoing.equal_range(event.a());
    // Both ends of a channel in one process share the notifies themselves, so such a line can be of several channels.
    for (auto each = by_bank.first; each != by_bank.second; ++each)
        if (Channel* const channel = channel_of(log, each->second)) bring(*channel);
    return record;
}

bool Analysis::has_record(const Line& line, uint64_t number) const {
    if (number == 0 || (line.was_consumed && number <= line.consumed)) return true;
    const auto at = std::lower_bound(line.records.begin(), line.records.end(), number,
                                     [](const Record& record, uint64_t wanted) { return record.number < wanted; });
    return at != line.records.end() && at->number == number;
}

void Analysis::put(Line& line, Record&& record, uint64_t number, uint64_t bank, uint64_t index) {
    record.number = number;
    const auto at = std::lower_bound(line.records.begin(), line.records.end(), number,
                                     [](const Record& each, uint64_t wanted) { return each.number < wanted; });
    if (number == 0 || (at != line.records.end() && at->number == number)) return;
    ++line.record_count;
    if (line.kind == kBinary && number > line.consumed) {
        const EventRef* doubled = nullptr;   // the record that this one may replace
        bool certain = true, is_of_unseen = false;
        if (at != line.records.begin()) {
            doubled = &std::prev(at)->ref;
            is_of_unseen = bank != 0 && !line.was_consumed && shares_with_unseen(record.ref.log);   // whose log would have the wait
        } else if (line.was_consumed && record.past.sure.of(line.consumer) < line.consumer_epoch &&
                   !was_cancelled(actors_[line.consumer], line.consumer_epoch)) {
            doubled = &line.last_record;
            certain = !is_excusable(line.consumer, line.consumer_epoch, line.consumption, record.ref, record.past.heard);
        }
        if (doubled) {
            const bool was_consumed = at == line.records.begin();
            const uint32_t via = was_consumed ? via_of(line.consumer, line.consumer_epoch, record.past, record.actor, 0) : 0;
            const auto [number_of, finding] = report(FindingKind::lost_notify, *doubled, record.ref, certain && !is_of_unseen, Missing::consumption,
                                                   via != 0 ? via & ~(kCause | kByChance) : Finding::kNoCause);
            line.lost = number_of;
            if (via == 0 && was_consumed) repair(number_of, line.consumer, line.consumer_epoch, record.actor);
            if (finding) {
                finding->notify = line.index != 0 ? line.index - 1 : index;
                finding->has_help = was_consumed;
                finding->is_of_unseen = is_of_unseen;
                finding->help = ranked(line.consumption);
                ask({.finding = number_of, .from_log = line.consumption.log, .to_log = record.ref.log, .actor = was_consumed ? line.consumer : 0,
                     .number = line.consumer_epoch, .is_of_consumption = !was_consumed, .before = record.ref, .previous = previous_run(record.ref)});
            }
        }
    }
    record.number = number;
    hear_record(key_of(record.ref.log, record.line.a, record.line.b), record);
    line.log = record.ref.log;
    line.records.insert(at, std::move(record));
    // Records that nobody waits for: the first and the newest say enough.
    if (line.records.size() > kMostRecords) line.records.erase(line.records.begin() + 1);
}

// A record of another process, whose log has it without a number: that one may be read later.
Analysis::Step Analysis::take_came(const Event& event, bool give_up) {
    const Step otherwise = give_up ? Step::taken : Step::blocked;
    for (uint32_t i = 0; i < logs_.size(); ++i) {
        if (!logs_[i]->by_outgoing.contains(event.a())) continue;
        const auto at = logs_[i]->streams.find(event.b());
        Stream* const stream = at == logs_[i]->streams.end() ? nullptr : at->second.get();
        if (event.b() != 0 && !stream) return otherwise;
        if (stream && !advance(*stream, event.c(), give_up)) return Step::blocked;
        auto& unnumbered = stream ? stream->unnumbered : logs_[i]->unnumbered;
        const auto entry = unnumbered.find(event.c());
        if (entry == unnumbered.end()) return otherwise;
        Record record = std::move(entry->second);
        unnumbered.erase(entry);
        const Pair key = record.line;
        put(line_of(i, key.a, key.b), std::move(record), event.d(), key.a, key.b);
        return Step::taken;
    }
    return otherwise;
}

// What the recorder may have done by now, for a wait whose record no log has.
Past Analysis::recorder_of(uint32_t log, uint64_t bank) const {
    for (uint32_t i = 0; i < logs_.size(); ++i)
        if (bank != 0 && logs_[i]->by_outgoing.contains(bank)) return everything_of(i);
    return bank == 0 ? everything_of(log) : everything();
}

Past Analysis::consume(uint32_t log, uint64_t bank, Line& line, uint64_t number, Actor actor, uint64_t epoch, const EventRef& ref) {
    Past past;
    auto& records = line.records;
    const auto is_there = has_record(line, number) && number != 0;
    if (!is_there) {
        ++unexplained_;
        past = recorder_of(log, bank);
        line.is_tainted = true;
    } else if (line.kind == kBinary) {
        bool is_first = true;
        for (; !records.empty() && records.front().number <= number; records.pop_front()) {
            const uint32_t via = edge(records.front().ref, ref);
            if (is_first)
                past.join(records.front().past, via);
            else
                past.join_by_chance(records.front().past, line.lost == Finding::kNoCause ? via : kCause | kByChance | line.lost);
            past.heard.join(records.front().past.heard, 0);
            hear_wait(records.front(), ref);
            is_first = false;
            line.last_record = records.front().ref;
        }
    } else {
        const auto at = std::lower_bound(records.begin(), records.end(), number,
                                         [](const Record& record, uint64_t wanted) { return record.number < wanted; });
        if (at != records.end() && at->number == number) {
            past.join(at->past, edge(at->ref, ref));
            line.last_record = at->ref;
            hear_wait(*at, ref);
            if (line.kind != static_cast<uint8_t>(NotifyKind::level)) records.erase(at);
        }
    }
    ++line.waits;
    reset(line, number, actor, epoch, ref);
    return past;
}

void Analysis::reset(Line& line, uint64_t number, Actor actor, uint64_t epoch, const EventRef& ref) {
    if (line.kind == kBinary)
        for (; !line.records.empty() && line.records.front().number <= number; line.records.pop_front()) line.last_record = line.records.front().ref;
    if (number == 0) return;
    for (Question& question : questions_)
        if (question.is_of_consumption && question.finding == line.lost) {
            question.is_of_consumption = false;
            question.actor = actor;
            question.number = epoch;
            question.from_log = ref.log;
        }
    line.was_consumed = true;
    line.consumed = std::max(line.consumed, number);
    line.consumer = actor;
    line.consumer_epoch = epoch;
    line.consumption = ref;
}

void Analysis::fence(Channel& channel, Past& past, Actor actor, uint64_t epoch, uint64_t time_ns) {
    Fence fence{actor, epoch, time_ns, {}, {}, {}};
    for (const auto& [base, delivery] : channel.deliveries)
        if (delivery.newest != 0) fence.past.set(delivery.actor, delivery.newest, 0);
    ++channel.fences;
    fence.past.set(channel.loose_delivery, channel.fences, 0);
    past.set(channel.loose, channel.fences, 0);
    channel.fenced.push_back(std::move(fence));
    if (channel.fenced.size() > 8) channel.fenced.pop_front();
}

// A deadlock: a wait that waits in vain, and all other waits that its process has submitted.
void Analysis::note_vain(uint32_t log, const Event& event) {
    const Item* const item = item_at(stream_of(log, event.head.stream), event.head.sequence);
    if (item) add_vain(log, *item);
}

void Analysis::add_vain(uint32_t log, const Item& wait) {
    if (wait.event.head.kind != Kind::notify_wait || wait.done || vain_.size() >= kMostRecords) return;
    ++line_of(log, wait.event.a(), wait.event.b()).waits;
    logs_[log]->vain_ns = std::min(logs_[log]->vain_ns, logs_[log]->end_ns);
    vain_.push_back({{wait.event.a(), wait.event.b()}, log, ref_of(log, wait.event, false)});
    for (const auto& [id, stream] : logs_[log]->streams)
        for (const Item& item : stream->queue)
            if (item.event.head.kind == Kind::notify_wait) awaited_[key_of(log, item.event.a(), item.event.b())] = true;
}

// Ranks that were ended by another one's report of a deadlock, before they logged their own waits.
void Analysis::note_vain_of_killed() {
    if (vain_.empty()) return;
    for (uint32_t i = 0; i < logs_.size(); ++i)
        for (const auto& [id, stream] : logs_[i]->streams)
            if (!logs_[i]->has_ended && !stream->queue.empty()) add_vain(i, stream->queue.front());
}

// Records that came to the end of a wait in vain, for which nobody waits: one of the two has the wrong number.
void Analysis::judge_vain() {
    for (const Vain& vain : vain_)
        for (auto& [key, line] : lines_) {
            if (line.records.empty() || line.is_tainted || line.kind == static_cast<uint8_t>(NotifyKind::level) || awaited_.contains(key)) continue;
            const Record& record = line.records.front();
            if (record.line.a != vain.line.a || (vain.line.a == 0 && line.log != vain.log)) continue;
            line.was_reported = true;
            const auto awaited = lines_.find(key_of(vain.log, vain.line.a, vain.line.b));   // its record may be lost
            const Reported reported = report(FindingKind::unconsumed_notify, record.ref, vain.ref, true, Missing::wait,
                                         awaited == lines_.end() ? Finding::kNoCause : awaited->second.lost);
            if (reported.fresh) reported.fresh->notify = line.index != 0 ? line.index - 1 : record.line.b;
        }
}

// At the end: records that nobody waited for, where the process that could wait has left its node itself.
void Analysis::judge_lines() {
    for (const auto& [key, line] : lines_) {
        if (line.records.empty() || line.was_reported || line.is_tainted || line.kind == static_cast<uint8_t>(NotifyKind::level)) continue;
        const Pair named = line.records.front().line;
        bool has_ended = false;
        for (uint32_t i = 0; i < logs_.size(); ++i)
            if (named.a == 0 ? line.log == i : logs_[i]->incoming.contains(named.a)) has_ended = logs_[i]->has_ended;
        if (!has_ended) continue;
        for (const Record& record : line.records)
            if (Finding* const finding = report(FindingKind::unconsumed_notify, record.ref, record.ref, false, Missing::wait, line.lost).fresh)
                finding->notify = line.index != 0 ? line.index - 1 : named.b;
    }
}

}  // namespace peerlane::check
