// What comes before what: threads, the queues of streams, keys that threads pass on, collectives.
#include "check/analysis.h"
#include "stream/operation.h"

namespace peerlane::check {

using log::Kind;

namespace {

constexpr uint64_t kNewestKept = 64;      // the length of the lists of which only the newest entries matter
constexpr int kDeepest = 64;              // streams that wait for streams that wait ...

// Ready only once a later event shows that its wait is over.
bool needs_evidence(const Event& event) {
    switch (event.head.kind) {
    case Kind::notify_wait:
        return event.c() == 0;
    case Kind::value_wait:
    case Kind::callback:
        return true;
    case Kind::access:
        return event.head.op == static_cast<uint8_t>(OpKind::descriptor) || (event.head.flags & log::kLate) != 0;
    default:
        return false;
    }
}

}  // namespace

Actor Analysis::new_actor(Role role, uint32_t log, uint64_t id, uint64_t channel) {
    Actor actor;
    if (free_actors_.empty()) {
        actor = static_cast<Actor>(actors_.size());
        actors_.emplace_back();
    } else {
        actor = free_actors_.back();
        free_actors_.pop_back();
    }
    actors_[actor] = ActorState{.role = role, .log = log, .id = id, .channel = channel};
    return actor;
}

Analysis::Thread& Analysis::thread_of(uint32_t log, uint32_t id) {
    auto& thread = logs_[log]->threads[id];
    if (!thread) {
        thread = std::make_unique<Thread>();
        thread->log = log;
        thread->id = id;
        thread->actor = new_actor(Role::thread, log, id, 0);
        actors_[thread->actor].newest = 1;
        if (logs_[log]->has_lost_threads) thread->past = everything();
    }
    thread->past.heard = logs_[log]->heard;
    thread->used = events_;
    return *thread;
}

// What came along with an order is known to a process from now on.
void Analysis::hear(uint32_t log, const Clock& heard, uint64_t time_ns) {
    Clock& own = logs_[log]->heard;
    if (own.knows(heard)) return;
    for (const Known& each : heard) {
        const uint32_t from = each.actor & ~kByThreads;
        if (from != log && own.of(each.actor) < each.number) media_.carry(from, each.number, log, time_ns);
    }
    own.join(heard, 0);
}

Analysis::Thread& Analysis::anyone_of(uint32_t log) {
    Thread& anyone = thread_of(log, kAnyone);
    anyone.has_ended = true;   // no access waits for what it learns
    return anyone;
}

Analysis::Stream& Analysis::stream_of(uint32_t log, uint64_t id) {
    auto& stream = logs_[log]->streams[id];
    if (!stream) {
        stream = std::make_unique<Stream>();
        stream->log = log;
        stream->id = id;
        stream->actor = new_actor(Role::stream, log, id, 0);
    }
    return *stream;
}

uint64_t Analysis::epoch_of(Thread& thread) {
    if (thread.is_published) {
        thread.is_published = thread.has_snapshot = false;
        thread.versions.emplace_back(thread.number, thread.past);
        if (thread.versions.size() > kNewestKept) thread.versions.pop_front();
        actors_[thread.actor].newest = ++thread.number;
    }
    return thread.number;
}

// What the thread would pass on, without passing it on.
const Past& Analysis::give_for(Thread& thread) {
    if (!thread.has_snapshot) {
        thread.snapshot = thread.past;
        thread.snapshot.set(thread.actor, thread.number, 0);
        thread.has_snapshot = true;
    }
    thread.snapshot.heard = logs_[thread.log]->heard;
    return thread.snapshot;
}

const Past& Analysis::give(Thread& thread, uint64_t time_ns) {
    thread.is_published = true;
    (void)give_for(thread);
    // Another thread may have passed its knowledge on by a variable.
    const auto& threads = logs_[thread.log]->threads;
    const auto may_pass_on = [&](const auto& each) { return each.first != thread.id && each.first != kAnyone && !each.second->is_relay; };
    if (!thread.is_relay && std::any_of(threads.begin(), threads.end(), may_pass_on)) thread.snapshot.heard.set(thread.log | kByThreads, time_ns, 0);
    return thread.snapshot;
}

void Analysis::learn(Thread& thread, const Past& past, uint32_t via, uint64_t time_ns) {
    hear(thread.log, past.heard, time_ns);
    if (past.is_same_order(thread.past)) return;
    bool is_news = past.has_more && !thread.past.all().knows(past.wide);
    const Known* mine = thread.past.sure.begin();   // both go by actor
    const Known* const end = thread.past.sure.end();
    for (const Known& known : past.sure) {
        while (mine != end && mine->actor < known.actor) ++mine;
        if (known.actor == thread.actor || (mine != end && mine->actor == known.actor && mine->number >= known.number)) continue;
        is_news = true;
        ActorState& actor = actors_[known.actor];
        actor.learned.push_back({known.number, time_ns, thread.log, thread.id});
        if (actor.learned.size() > kNewestKept) {
            actor.learned.pop_front();
            actor.has_forgotten_learned = true;
        }
    }
    if (!is_news) return;
    if (thread.id == kAnyone) logs_[thread.log]->heard.set(thread.log, time_ns, 0);   // any other thread may pass it on
    thread.past.join(past, via);
    thread.has_snapshot = false;
}

void Analysis::learn_all(Thread& thread, uint64_t time_ns) {
    ++unexplained_;
    learn(thread, everything(), 0, time_ns);
}

// All that was read so far: the past behind an order that no log has.
Past Analysis::everything() const {
    Past all;
    for (Actor actor = 1; actor < actors_.size(); ++actor)
        if (actors_[actor].newest != 0) all.set(actor, actors_[actor].newest, 0);
    for (const auto& log : logs_) all.heard.join(log->heard, 0);
    return all;
}

Past Analysis::everything_of(uint32_t log) const {
    Past all;
    for (Actor actor = 1; actor < actors_.size(); ++actor)
        if (actors_[actor].log == log && actors_[actor].newest != 0) all.set(actor, actors_[actor].newest, 0);
    all.heard = logs_[log]->heard;
    for (const auto& [id, thread] : logs_[log]->threads) all.join(thread->past, 0);
    for (const auto& [id, stream] : logs_[log]->streams) all.join(stream->past, 0);
    return all;
}

size_t Analysis::EdgeHash::operator()(const Edge& edge) const {
    return PairHash{}({uint64_t{edge.from_log} << 40 ^ uint64_t{edge.from_site} << 8 ^ static_cast<uint64_t>(edge.from),
                       uint64_t{edge.to_log} << 40 ^ uint64_t{edge.to_site} << 8 ^ static_cast<uint64_t>(edge.to)});
}

uint32_t Analysis::edge(const EventRef& from, const EventRef& to) {
    const Edge new_edge{from.log, from.site, to.log, to.site, from.kind, to.kind};
    const auto entry = edge_numbers_.find(new_edge);
    if (entry != edge_numbers_.end()) return entry->second;
    if (edges_.size() > kMostActors) return 0;
    edges_.push_back(new_edge);
    return edge_numbers_[new_edge] = static_cast<uint32_t>(edges_.size() - 1);
}

// Null: it had no past then.
const Past* Analysis::version_at(const Stream& stream, uint64_t sequence) {
    const auto after = std::upper_bound(stream.versions.begin(), stream.versions.end(), sequence,
                                        [](uint64_t wanted, const Version& version) { return wanted < version.sequence; });
    return after != stream.versions.begin() ? &std::prev(after)->past : nullptr;
}

Analysis::Came Analysis::past_at(const Stream& stream, uint64_t sequence, const EventRef& to) {
    Past past;
    if (const Past* const version = version_at(stream, sequence)) past = *version;
    EventRef from{.log = stream.log, .kind = Kind::sync};
    const auto recorded = std::lower_bound(stream.recorded.begin(), stream.recorded.end(), std::pair<uint64_t, uint32_t>(sequence, 0));
    if (recorded != stream.recorded.end() && recorded->first == sequence) {
        from.site = recorded->second;
        from.kind = Kind::event_record;
    }
    const uint32_t via = edge(from, to);
    past.set(stream.actor, sequence, via);
    return {std::move(past), via};
}

void Analysis::note_version(Stream& stream, uint64_t sequence) {
    auto& versions = stream.versions;
    if (!versions.empty() && versions.back().past.is_same_order(stream.past)) {
        versions.back().past.heard = stream.past.heard;
        return;
    }
    versions.push_back({sequence, stream.past});
    if (versions.size() <= kMostVersions) return;
    // Of two neighbours the older one goes: a later question about it gets a slightly larger past.
    std::deque<Version> left;
    for (size_t i = 0; i + 1 < versions.size(); i += 2) left.push_back({versions[i].sequence, std::move(versions[i + 1].past)});
    if (versions.size() % 2 != 0) left.push_back(std::move(versions.back()));
    versions.swap(left);
}

void Analysis::passed(Stream& stream, uint64_t sequence) {
    if (sequence <= stream.passed) return;
    stream.passed = sequence;
    ready_.insert(ready_.end(), stream.followers.begin(), stream.followers.end());
    stream.followers.clear();
}

void Analysis::settle() {
    while (!ready_.empty()) {
        Stream* const stream = ready_.front();
        ready_.pop_front();
        advance(*stream, 0, false);
    }
}

Analysis::Item* Analysis::item_at(Stream& stream, uint64_t sequence) {
    const auto at = std::lower_bound(stream.queue.begin(), stream.queue.end(), sequence,
                                     [](const Item& item, uint64_t wanted) { return item.event.head.sequence < wanted; });
    return at != stream.queue.end() && at->event.head.sequence == sequence ? &*at : nullptr;
}

void Analysis::submit_loose(uint32_t log, const Event& event, const Past& giver) {
    Channel* const channel = channel_of(log, event.a());
    if (!channel) return;
    const bool fetches = event.head.flags & log::kFetch;
    const uint64_t number = channel->fences + 1;
    actors_[channel->loose].newest = actors_[channel->loose_delivery].newest = number;
    const auto first = static_cast<uint32_t>(accesses_.size());
    const Past& past = behind_fence(*channel, channel->loose, giver);
    touch_spans(log, event, event.spans, event.rows, event.head.spans, channel->loose, fetches ? channel->loose : channel->loose_delivery, number, past);
    auto& writes = logs_[log]->loose_writes;
    if (event.head.stream != 0 && (writes.size() < kMostActors || writes.contains(event.head.stream)))
        writes[event.head.stream] = {event.head.sequence, event.a(), event.number, event.head.thread, first, static_cast<uint32_t>(accesses_.size()), {}};
}

// Its accesses become those of actors of their own, which the notify knows; a fence of the channel still brings them.
void Analysis::bring_loose(uint32_t log, const Event& notify) {
    const auto writes = logs_[log]->loose_writes.find(notify.head.stream);
    if (writes == logs_[log]->loose_writes.end()) return;
    LooseWrite& write = writes->second;
    if (write.channel != notify.d() || write.thread != notify.head.thread || write.end > accesses_.size() || !write.brought.empty()) return;
    Actor created[2] = {0, 0};
    for (uint32_t i = write.first; i < write.end; ++i) {
        Origin origin = origins_[accesses_[i].origin];
        const Role role = actors_[origin.actor].role;
        if (role != Role::loose && role != Role::loose_delivery) continue;
        Actor& own = created[role == Role::loose_delivery];
        if (own == 0) {
            own = new_actor(role, log, LooseWrite::kOwn, write.channel);
            actors_[own].newest = accesses_[i].number;
            write.brought.emplace_back(own, accesses_[i].number);
        }
        origin.actor = own;
        accesses_[i].origin = origin_of(log, origin);
    }
    write.sequence = notify.head.sequence;
}

void Analysis::submit(uint32_t log, const Event& event) {
    const log::Head& head = event.head;
    Thread& thread = thread_of(log, head.thread);
    if (head.kind == Kind::access && head.flags & log::kLoose) {
        submit_loose(log, event, give(thread, head.time_ns));
        return;
    }
    Stream& stream = stream_of(log, head.stream);
    if (head.sequence <= stream.submitted) return;   // not in a log's order: each number is used once
    if (head.kind == Kind::notify) bring_loose(log, event);
    const Past& giver = give(thread, head.time_ns);
    std::vector<Dependency> after;
    switch (head.kind) {
    case Kind::event_wait:
        if (!(head.flags & log::kShared)) {
            const auto other = logs_[log]->streams.find(event.a());
            if (other != logs_[log]->streams.end() && other->second.get() != &stream)
                after.push_back({other->second.get(), std::min(event.b(), other->second->submitted), true});
        }
        break;
    case Kind::fence:
    case Kind::drain:
        if (Channel* const channel = channel_of(log, event.a()))
            for (auto& [base, delivery] : channel->deliveries)
                if (delivery.stream && delivery.stream != &stream) after.push_back({delivery.stream, delivery.submitted, false});
        break;
    case Kind::collective:
        after = earlier_calls(log, event);
        note_call(log, event);
        break;
    case Kind::access:
        if (event.a() != 0 && !(head.flags & log::kFetch))
            if (Channel* const channel = channel_of(log, event.a())) {
                delivery_of(*channel, stream.actor);
                Delivery& delivery = channel->deliveries[stream.actor];
                delivery.stream = &stream;
                delivery.submitted = head.sequence;
            }
        break;
    default:
        break;
    }
    if (stream.group && stream.group->legacy == &stream) {
        for (Stream* const other : stream.group->streams)
            if (other != &stream && other->legacy_seen < other->submitted) {
                other->legacy_seen = other->submitted;
                after.push_back({other, other->submitted, true});
            }
    } else if (stream.group && stream.group->legacy) {
        Stream& legacy = *stream.group->legacy;
        if (stream.legacy_seen_of_it < legacy.submitted) {
            stream.legacy_seen_of_it = legacy.submitted;
            after.push_back({&legacy, legacy.submitted, true});
        }
    }
    stream.submitted = head.sequence;
    actors_[stream.actor].newest = head.sequence;

    const bool is_free = stream.queue.empty() && !stream.gate.collection && !stream.is_busy && !needs_evidence(event) &&
                         !(head.kind == Kind::event_wait && head.flags & log::kShared) &&
                         std::all_of(after.begin(), after.end(), [](const Dependency& each) { return each.stream->passed >= each.sequence; });
    if (is_free) {
        perform(stream, event, nullptr, giver, after);
        return;
    }
    Item& item = stream.queue.emplace_back();
    item.event = event;
    item.spans.assign(event.spans, event.spans + head.spans);
    if (event.rows) item.rows.assign(event.rows, event.rows + head.spans);
    item.event.spans = item.spans.data();
    item.event.rows = event.rows ? item.rows.data() : nullptr;
    item.giver = giver;
    item.after = std::move(after);
    advance(stream, 0, false);
}

bool Analysis::is_ready(Stream& stream, Item& item, bool must, bool give_up, int depth) {
    for (const Dependency& each : item.after) {
        if (each.stream->passed >= each.sequence) continue;
        if (must && depth < kDeepest && !advance(*each.stream, each.sequence, give_up, depth + 1)) return false;
        if (must) continue;
        each.stream->followers.push_back(&stream);
        return false;
    }
    const Event& event = item.event;
    if (event.head.kind == Kind::event_wait && event.head.flags & log::kShared) {
        Signal& signal = signal_of(event.a());
        if (signal.records.lower_bound(event.b()) != signal.records.end() || (must && give_up)) return true;
        signal.waiting.push_back(&stream);
        return false;
    }
    return item.done || must || !needs_evidence(event);
}

// Operations up to `over` are over in the program; more of them as far as they are ready.  False: one of the former waits for
// events of another log that were not read yet.
bool Analysis::advance(Stream& stream, uint64_t over, bool give_up, int depth) {
    if (stream.is_busy) return true;
    stream.is_busy = true;
    bool is_over = true;
    for (;;) {
        if (stream.gate.collection) {
            const bool must = stream.gate_sequence <= over;
            if (!is_complete(stream.gate)) {
                if (!must || !give_up) {
                    stream.gate.collection->waiting.push_back(&stream);
                    is_over = !must;
                    break;
                }
                ++unexplained_;
            }
            const EventRef ref{.log = stream.log, .kind = Kind::collected};
            stream.past.join(end_collective(stream.gate, ref), 0);
            stream.gate = {};
            note_version(stream, stream.gate_sequence);
            passed(stream, stream.gate_sequence);
        }
        if (stream.queue.empty()) break;
        Item& item = stream.queue.front();
        const bool must = item.event.head.sequence <= over;
        if (!is_ready(stream, item, must, give_up, depth)) {
            is_over = !must;
            break;
        }
        Item first = std::move(item);
        stream.queue.pop_front();
        Event event = first.event;
        if (event.head.kind == Kind::access && !first.pieces.empty()) {   // it reads a list, and touches what that says
            if (!first.rows.empty() || !first.piece_rows.empty()) {
                first.rows.resize(first.spans.size());
                first.piece_rows.resize(first.pieces.size());
                first.rows.insert(first.rows.end(), first.piece_rows.begin(), first.piece_rows.end());
            }
            first.spans.insert(first.spans.end(), first.pieces.begin(), first.pieces.end());
            event.head.spans = static_cast<uint32_t>(first.spans.size());
        }
        event.spans = first.spans.data();
        event.rows = first.rows.empty() ? nullptr : first.rows.data();
        perform(stream, event, &first, first.giver, first.after);
    }
    stream.is_busy = false;
    return is_over;
}

void Analysis::perform(Stream& stream, const Event& event, const Item* item, const Past& giver, const std::vector<Dependency>& after) {
    const log::Head& head = event.head;
    const uint32_t log = stream.log;
    const EventRef ref = ref_of(log, event, false);
    if (!stream.giver.is_same(giver)) {
        stream.past.join(giver, 0);
        stream.giver = giver;
    }
    for (const Dependency& each : after)
        if (each.joins) {
            const auto [past, via] = past_at(*each.stream, each.sequence, ref);
            stream.past.join(past, via);
        }

    const uint64_t number = head.flags & log::kMerged && head.repeats != 0 && head.repeats <= head.sequence ? head.sequence - head.repeats + 1 : head.sequence;
    const auto until = [&](uint64_t sequence) {
        Past past = stream.past;
        past.set(stream.actor, sequence, 0);
        return past;
    };
    const auto with_own = [&] { return until(head.sequence); };
    switch (head.kind) {
    case Kind::access:
        touch(log, event, stream.actor, number, stream.past);
        break;
    case Kind::event_record:
        stream.recorded.emplace_back(head.sequence, head.site);
        if (stream.recorded.size() > kMostVersions) stream.recorded.pop_front();
        if (event.a() != 0) {
            Signal& signal = signal_of(event.a());
            signal.records[event.b()] = Record{event.b(), with_own(), stream.actor, head.sequence, ref, {}};
            if (signal.records.size() > kNewestKept) signal.records.erase(signal.records.begin());
            ready_.insert(ready_.end(), signal.waiting.begin(), signal.waiting.end());
            signal.waiting.clear();
        }
        break;
    case Kind::event_wait:
        if (head.flags & log::kShared) {
            const auto& records = signal_of(event.a()).records;
            const auto record = records.lower_bound(event.b());
            if (record == records.end()) ++unexplained_;
            if (record == records.end())
                stream.past.join(everything(), 0);
            else
                stream.past.join(record->second.past, edge(record->second.ref, ref));
        }
        break;
    case Kind::notify: {
        Record record = record_by(log, event, stream.actor, head.sequence, with_own());
        if (event.c() != 0) {
            put(line_of(log, event.a(), event.b()), std::move(record), event.c(), event.a(), event.b());
        } else {
            stream.unnumbered.insert_or_assign(head.sequence, std::move(record));
            if (stream.unnumbered.size() > kMostKeys) stream.unnumbered.erase(stream.unnumbered.begin());
        }
        break;
    }
    case Kind::notify_wait:
        stream.past.join(consume(log, event.a(), line_of(log, event.a(), event.b()), event.c() != 0 || !item ? event.c() : item->result, stream.actor, head.sequence, ref), 0);
        break;
    case Kind::callback:
        if (item) stream.past.join(item->ended, 0);
        break;
    case Kind::value_wait:
        for (uint32_t i = 0; i < head.spans; ++i) acquire_word(event.spans[i], stream.past, ref);
        break;
    case Kind::fence:
    case Kind::drain:
        if (Channel* const channel = channel_of(log, event.a())) fence(*channel, stream.past, stream.actor, head.sequence, head.time_ns);
        break;
    case Kind::freed:
        freed(log, event, stream.actor, with_own());
        break;
    case Kind::collective:
        touch(log, event, stream.actor, head.sequence, stream.past);
        apply_repairs();
        stream.gate = begin_collective(log, event, until(is_send(event) ? head.sequence : head.sequence - 1));
        stream.gate_sequence = head.sequence;
        note_version(stream, head.sequence);
        if (!stream.is_busy) advance(stream, 0, false);   // else the loop that called goes on
        return;
    default:
        break;
    }
    apply_repairs();
    note_version(stream, head.sequence);
    passed(stream, head.sequence);
}

Analysis::Step Analysis::synchronize(Thread& thread, const Event& event, bool give_up) {
    const log::Head& head = event.head;
    const auto entry = logs_[thread.log]->streams.find(head.stream);
    if (entry == logs_[thread.log]->streams.end()) return Step::taken;
    Stream& stream = *entry->second;
    const uint64_t sequence = std::min(head.sequence, stream.submitted);
    if (sequence == 0) return Step::taken;
    if (!advance(stream, sequence, give_up)) return Step::blocked;
    if (thread.past.sure.of(stream.actor) >= sequence) return Step::taken;
    const EventRef ref = ref_of(thread.log, event, false);
    const auto [past, via] = past_at(stream, sequence, ref);
    learn(thread, past, via, head.time_ns);
    see_what_came(thread, event);
    if (!unsynchronized_.empty()) note_late_sync(ref, head.stream, sequence);
    // Only other threads still ask for older versions; they then get a slightly larger past.
    while (stream.versions.size() > kNewestKept && stream.versions[1].sequence <= sequence) stream.versions.pop_front();
    return Step::taken;
}

// Whether an operation had begun is chance, but for one behind a wait that is not over: all others are accesses until the program
// knows of their end, as any operation.
void Analysis::abort(uint32_t log, const Event& event) {
    const auto entry = logs_[log]->streams.find(event.head.stream);
    if (entry == logs_[log]->streams.end()) return;
    Stream& stream = *entry->second;
    stream.aborted = std::max(stream.aborted, event.head.sequence);
    for (Item& item : stream.queue) {
        const Kind kind = item.event.head.kind;
        if (item.event.head.sequence <= stream.aborted && (kind == Kind::callback || kind == Kind::access)) item.done = true;
    }
    advance(stream, 0, false);
}

void Analysis::cancel(uint32_t log, const Event& event) {
    Stream& stream = stream_of(log, event.head.stream);
    const bool has_failed = event.b() != 0;
    if (Item* const item = item_at(stream, event.head.sequence); item && has_failed && item->event.head.kind == Kind::access) {
        item->done = true;
        advance(stream, event.head.sequence, false);
    }
    const uint64_t from = event.head.sequence, to = std::min(std::max(event.a(), from), stream.submitted);
    if (from > to) return;
    const auto is_before = [](const Item& item, uint64_t wanted) { return item.event.head.sequence < wanted; };
    const auto first = std::lower_bound(stream.queue.begin(), stream.queue.end(), from, is_before);
    const auto last = std::lower_bound(first, stream.queue.end(), to + 1, is_before);
    const bool was_front = first == stream.queue.begin();
    stream.queue.erase(first, last);
    if (was_front && !stream.gate.collection) passed(stream, stream.queue.empty() ? to : std::min(to, stream.queue.front().event.head.sequence - 1));
    stream.unnumbered.erase(stream.unnumbered.lower_bound(from), stream.unnumbered.upper_bound(to));
    if (has_failed || from <= stream.aborted) return;   // what it touched until then is not known
    auto& cancelled = actors_[stream.actor].cancelled;
    cancelled.emplace_back(from, to);
    if (cancelled.size() > kMostRecords) cancelled.erase(cancelled.begin());
    // What comes behind it is most often cancelled by the next events: only what the program does next lets it go on.
}

// The numbers of locks and threads are those of one process; other keys are hashes, and belong to the node.
Pair Analysis::post_key(uint32_t log, const Event& event) {
    return event.a() < log::kProcess ? Pair{uint64_t{log} * log::kProcess + event.a(), event.b()} : Pair{event.a(), event.b()};
}

void Analysis::post(uint32_t log, const Event& event, const Past& past) {
    if (event.a() == log::kMessage) {
        send_message(log, event, past);
        return;
    }
    Key& key = keys_[post_key(log, event)];
    key.free += event.c();
    if (event.c() != 0) return;
    key.all.join(past, 0);
    key.used = events_;
    key.posts.emplace_back(++key.count, key.all);
    if (key.posts.size() > kNewestKept) key.posts.pop_front();
}

void Analysis::send_message(uint32_t log, const Event& event, const Past& past) {
    Messages& messages = messages_[event.b()];
    messages.used = events_;
    Messages::Sender& sender = messages.senders[uint64_t{log} << 32 | (event.d() & UINT32_MAX)];
    if (event.head.flags & log::kEnd) {
        if (sender.newest.empty()) return;
        sender.newest.pop_back();
        --sender.count;
        return;
    }
    ++sender.count;
    sender.newest.push_back(past);
    if (sender.newest.size() > kNewestKept) sender.newest.pop_front();
}

// How many messages of these contents came is known, and not which ones: the past is what comes before one of any so many of other sockets.
Past Analysis::past_of_message(uint32_t log, const Event& event) {
    const auto entry = messages_.find(event.b());
    if (entry == messages_.end()) return {};
    entry->second.used = events_;
    const uint64_t own = uint64_t{log} << 32 | (event.d() & UINT32_MAX), came = event.c();
    uint64_t sent = 0;
    std::vector<const Past*> kept;
    size_t senders = 0;
    for (const auto& [socket, sender] : entry->second.senders) {
        if (socket == own) continue;
        sent += sender.count;
        senders += sender.count != 0;
        for (const Past& each : sender.newest) kept.push_back(&each);
    }
    const uint64_t forgotten = sent - kept.size();
    if (came <= forgotten || came > sent) return {};   // more than were sent: a process without a log sends such messages
    const size_t rank = came - forgotten;
    if (senders == 1) {
        Past past = *kept[rank - 1];
        past.heard = Clock();   // the message's medium brings what may have come along
        return past;
    }
    const auto common = [&](const auto& clock_of) {   // for each actor the rank-th number, from the least one on
        std::vector<Known> all;
        for (const Past* const past : kept) all.insert(all.end(), clock_of(*past).begin(), clock_of(*past).end());
        std::sort(all.begin(), all.end(), [](const Known& one, const Known& other) {
            return one.actor != other.actor ? one.actor < other.actor : one.number > other.number;
        });
        Clock clock;
        for (size_t first = 0, end = 0; first < all.size(); first = end) {
            while (end < all.size() && all[end].actor == all[first].actor) ++end;
            const size_t at = first + kept.size() - rank;   // a past without the actor has the least number
            if (at < end) clock.set(all[at].actor, all[at].number, all[at].via);
        }
        return clock;
    };
    Past past;
    past.sure = common([](const Past& each) -> const Clock& { return each.sure; });
    past.wide = common([](const Past& each) -> const Clock& { return each.all(); });
    past.has_more = !past.sure.knows(past.wide);
    if (!past.has_more) past.wide = Clock();
    return past;
}

Analysis::Step Analysis::take(Thread& thread, const Event& event, bool give_up) {
    thread.has_ended = false;   // the system reuses its number for a new one
    if (event.a() == log::kProcess) return take_process(thread, event, give_up);
    if (event.a() == log::kMessage) {
        learn(thread, past_of_message(thread.log, event), 0, event.head.time_ns);
        return Step::taken;
    }
    const auto entry = keys_.find(post_key(thread.log, event));
    uint64_t wanted = event.c();
    if (wanted == log::kNextPost) {
        wanted = entry == keys_.end() ? 1 : entry->second.next + 1;
        if (entry != keys_.end() && wanted <= entry->second.free) {
            ++entry->second.next;
            return Step::taken;
        }
        wanted -= entry == keys_.end() ? 0 : entry->second.free;
    }
    if (entry == keys_.end() || entry->second.count < wanted) {
        if (wanted == 0 && entry == keys_.end() && !has_lost_keys_) return Step::taken;
        if (!give_up && !(has_lost_keys_ && entry == keys_.end())) return Step::blocked;
        if (event.c() == log::kNextPost) ++keys_[post_key(thread.log, event)].next;
        learn_all(thread, event.head.time_ns);
        return Step::taken;
    }
    Key& key = entry->second;
    key.used = events_;
    key.next += event.c() == log::kNextPost;
    if (wanted == 0) {   // of a lock: all its earlier holders
        learn(thread, key.all, 0, event.head.time_ns);
        return Step::taken;
    }
    const auto at = std::lower_bound(key.posts.begin(), key.posts.end(), wanted,
                                     [](const auto& post, uint64_t number) { return post.first < number; });
    learn(thread, at == key.posts.end() ? key.all : at->second, 0, event.head.time_ns);
    return Step::taken;
}

Analysis::Step Analysis::take_process(Thread& thread, const Event& event, bool give_up) {
    const auto is_it = [&](uint32_t log) {
        const log::Reader& reader = logs_[log]->reader;
        return log != thread.log && reader.pid() >= 0 && static_cast<uint64_t>(reader.pid()) == event.b() && reader.start_ns() < event.head.time_ns &&
               reader.machine() == logs_[thread.log]->reader.machine();
    };
    for (uint32_t i = 0; i < logs_.size() && !give_up; ++i) {
        refill(*logs_[i]);
        if (is_it(i) && (!logs_[i]->is_over || logs_[i]->now)) return Step::blocked;
    }
    for (uint32_t i = 0; i < logs_.size(); ++i)
        if (is_it(i)) learn(thread, everything_of(i), 0, event.head.time_ns);
    return Step::taken;
}

// Its bytes were read before they were received.  What another collective reads and writes is over for its own rank only.
bool Analysis::is_send(const Event& collective) {
    return (collective.b() >> 8 & 0xff) == static_cast<uint64_t>(log::Collective::send);
}

namespace {

constexpr uint64_t kCollectives = 0;   // their lane

uint64_t lane_of(const Event& collective) {
    const uint64_t what = collective.b() >> 8 & 0xff;
    if (what < static_cast<uint64_t>(log::Collective::send)) return kCollectives;
    return (collective.c() & UINT32_MAX) << 1 | (what == static_cast<uint64_t>(log::Collective::send)) | uint64_t{1} << 33;
}

}  // namespace

std::map<uint64_t, Analysis::LastCall>& Analysis::last_calls_of(uint32_t log, const Event& collective) {
    if (last_calls_.size() > kMostKeys) last_calls_.clear();
    return last_calls_[{log, collective.a(), static_cast<uint32_t>(collective.d())}];
}

// A rank's collectives run one after the other, whatever their streams; a message runs after the collectives before it and
// the messages of its lane, and a collective after all messages before it.
std::vector<Analysis::Dependency> Analysis::earlier_calls(uint32_t log, const Event& collective) {
    std::vector<Dependency> dependencies;
    const uint64_t own = lane_of(collective);
    for (const auto& [lane, call] : last_calls_of(log, collective)) {
        if (own != kCollectives && lane != kCollectives && lane != own) continue;
        const auto stream = logs_[log]->streams.find(call.stream);
        if (call.stream != collective.head.stream && stream != logs_[log]->streams.end())
            dependencies.push_back({stream->second.get(), std::min(call.sequence, stream->second->submitted), true});
    }
    return dependencies;
}

void Analysis::note_call(uint32_t log, const Event& collective) {
    auto& calls = last_calls_of(log, collective);
    if (lane_of(collective) == kCollectives) calls.clear();
    calls[lane_of(collective)] = {collective.head.stream, collective.head.sequence};
}

Analysis::Gate Analysis::begin_collective(uint32_t log, const Event& event, Past past) {
    const auto what = static_cast<log::Collective>(std::min<uint64_t>(event.b() >> 8 & 0xff, static_cast<uint64_t>(log::Collective::receive)));
    const uint32_t rank = static_cast<uint32_t>(event.d()), peer = static_cast<uint32_t>(event.c());
    Pair key{event.a(), event.b() >> 16 << 1};
    if (what >= log::Collective::send) {
        const uint32_t sender = what == log::Collective::send ? rank : peer, receiver = what == log::Collective::send ? peer : rank;
        const uint64_t pair = (uint64_t{sender} << 32 | receiver) * 0x9e3779b97f4a7c15u;
        key = {event.a() ^ pair, calls_[{event.a() ^ pair, what == log::Collective::send}]++ << 1 | 1};
        if (calls_.size() > kMostKeys) calls_.clear();
    }
    auto& collection = collections_[key];
    if (!collection) {
        collection = std::make_shared<Collection>();
        collection->key = key;
        collection->what = what;
        collection->size = what >= log::Collective::send ? 1 : event.d() >> 32;
        collection->root = what == log::Collective::receive ? static_cast<uint32_t>(event.c()) : what == log::Collective::send ? rank : static_cast<uint32_t>(event.c());
    }
    collection->used = events_;
    if (what != log::Collective::receive)
        collection->begun.insert_or_assign(rank, Collection::Beginning{std::move(past), ref_of(log, event, false)});
    const Gate gate{collection, rank};
    if (what == log::Collective::send) return {};
    ready_.insert(ready_.end(), collection->waiting.begin(), collection->waiting.end());
    collection->waiting.clear();
    return gate;
}

bool Analysis::is_complete(const Gate& gate) const {
    const Collection& all = *gate.collection;
    switch (all.what) {
    case log::Collective::broadcast:
    case log::Collective::scatter:
    case log::Collective::send:
    case log::Collective::receive:
        return gate.rank == all.root || all.begun.contains(all.root);
    case log::Collective::reduce:
    case log::Collective::gather:
        return gate.rank != all.root || all.begun.size() >= all.size;
    default:
        return all.begun.size() >= all.size;
    }
}

// One that its thread makes, and that may be over with the same event: then the thread may come here again, until the other ranks are there.
Analysis::Step Analysis::begin_collective_of(Thread& thread, const Event& over, bool give_up) {
    if (thread.gate_event == over.number + 1) return Step::taken;
    Event event = over;
    if (event.head.flags & log::kEnd) {
        event.head.time_ns -= std::min(event.head.time_ns, event.head.sequence);
        event.head.sequence = 0;
    }
    const EventRef ref = ref_of(thread.log, event, false);
    for (const auto& [stream, sequence, joins] : earlier_calls(thread.log, event)) {
        if (!advance(*stream, sequence, give_up)) return Step::blocked;
        const auto [past, via] = past_at(*stream, sequence, ref);
        learn(thread, past, via, event.head.time_ns);
    }
    Past before = give(thread, event.head.time_ns);
    touch(thread.log, event, thread.actor, epoch_of(thread), thread.past);
    thread.gate = begin_collective(thread.log, event, is_send(event) ? give(thread, event.head.time_ns) : std::move(before));
    thread.gate_event = over.number + 1;
    return Step::taken;
}

Analysis::Step Analysis::end_collective_of(Thread& thread, const Event& event, bool give_up) {
    if (!thread.gate.collection) return Step::taken;
    if (!is_complete(thread.gate)) {
        if (!give_up) return Step::blocked;
        ++unexplained_;
    }
    learn(thread, end_collective(thread.gate, ref_of(thread.log, event, false)), 0, event.head.time_ns);
    thread.gate = {};
    return Step::taken;
}

Past Analysis::end_collective(const Gate& gate, const EventRef& ref) {
    Collection& all = *gate.collection;
    Past past;
    const auto take = [&](const Collection::Beginning& beginning) { past.join(beginning.past, edge(beginning.ref, ref)); };
    switch (all.what) {
    case log::Collective::broadcast:
    case log::Collective::scatter:
    case log::Collective::send:
    case log::Collective::receive:
        if (const auto root = all.begun.find(all.root); root != all.begun.end()) take(root->second);
        break;
    case log::Collective::reduce:
    case log::Collective::gather:
        if (gate.rank != all.root) break;
        [[fallthrough]];
    default:
        for (const auto& [rank, beginning] : all.begun) take(beginning);
    }
    if (++all.ends >= all.size) collections_.erase(all.key);
    return past;
}

}  // namespace peerlane::check
