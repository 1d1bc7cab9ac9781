// Which event is next: the logs are read together, and no wait is taken before the record that it names.
#include "check/analysis.h"

namespace peerlane::check {

using log::Kind;

namespace {
}  // namespace

Analysis::Analysis(uint64_t limit) : limit_(limit) {
    accesses_.push_back({});   // none
    accesses_.push_back({});   // kOld
    origins_.push_back({});
    edges_.push_back({});
    actors_.push_back({Role::thread, 0});   // no actor has the number 0
    sets_.push_back(0);
}

Analysis::~Analysis() = default;

uint32_t Analysis::add(const std::string& path, bool may_give_back, int64_t shift_ns) {
    auto opened = std::make_unique<Log>(log::Reader(path, may_give_back), may_give_back);
    opened->reader.shift(shift_ns);
    unread_.push_back(static_cast<uint32_t>(logs_.size()));
    logs_.push_back(std::move(opened));
    return static_cast<uint32_t>(logs_.size() - 1);
}

void Analysis::close(uint32_t log) { logs_.at(log)->is_over = true; }

Analysis::LogFacts Analysis::facts(uint32_t log) const {
    const Log& one = *logs_.at(log);
    return {one.reader.pid(), one.reader.rank(), one.problem};
}

void Analysis::refill(Log& log) {
    if (log.now || !log.problem.empty()) return;
    try {
        log.now = log.reader.next(log.is_over);
    } catch (const std::exception& error) {   // the file ends early, or is wrong: what was read so far counts
        log.problem = error.what();
        log.is_over = true;
    }
}

void Analysis::end_growth() {
    for (const uint32_t number : unread_) {
        Log* const log = logs_[number].get();
        if (!log->problem.empty()) continue;
        try {
            log->reader.look();
        } catch (const std::exception& error) {
            log->problem = error.what();
            log->is_over = true;
        }
    }
}

void Analysis::poll(uint64_t horizon_ns) {
    end_growth();   // a log that was over before this is whole now
    run(horizon_ns);
    std::erase_if(unread_, [&](uint32_t number) {
        Log& log = *logs_[number];
        if (log.now) return false;
        try {
            if (log.may_give_back && log.problem.empty()) log.reader.give_back();
            if (!log.is_over || (log.problem.empty() && log.reader.read() != log.reader.written())) return false;
            log.reader.release(log.may_give_back);
        } catch (const std::exception& error) {
            log.problem = error.what();
            log.is_over = true;
        }
        return true;
    });
}

void Analysis::finish() {
    if (was_finished_) return;
    for (auto& log : logs_) log->is_over = true;
    poll(UINT64_MAX);
    note_vain_of_killed();
    for (uint32_t i = 0; i < logs_.size(); ++i)
        for (auto& [id, stream] : logs_[i]->streams) {
            // What an operation waited for did not come before the end, so the operation did not run.
            stream->queue.clear();
        }
    judge_vain();
    judge_lines();
    was_finished_ = true;
}

void Analysis::run(uint64_t horizon_ns) {
    std::vector<bool> blocked(logs_.size());
    for (;;) {
        // The earliest of those that can go on, and of those that wait for another log.
        uint32_t best = UINT32_MAX, longest_blocked = UINT32_MAX;
        uint64_t best_ns = UINT64_MAX, second_ns = UINT64_MAX, blocked_ns = UINT64_MAX, all_read_to = UINT64_MAX;
        for (const uint32_t i : unread_) {
            Log& log = *logs_[i];
            refill(log);
            if (!log.now) {
                if (!log.is_over) all_read_to = std::min(all_read_to, horizon_ns);
                continue;
            }
            const uint64_t at = log.now->head.time_ns;
            if (at > horizon_ns) {
                all_read_to = std::min(all_read_to, horizon_ns);
                continue;
            }
            if (blocked[i]) {
                if (longest_blocked == UINT32_MAX || at < blocked_ns) longest_blocked = i, blocked_ns = at;
            } else if (best == UINT32_MAX || at < best_ns) {
                second_ns = best_ns;
                best = i, best_ns = at;
            } else {
                second_ns = std::min(second_ns, at);
            }
        }
        const auto is_long_after = [&](uint64_t now) { return now > blocked_ns && now - blocked_ns > kPatienceNs; };
        bool give_up = false;
        if (longest_blocked != UINT32_MAX && (best == UINT32_MAX ? is_long_after(all_read_to) : is_long_after(best_ns))) {
            best = longest_blocked;
            give_up = true;
            second_ns = 0;
        }
        if (best == UINT32_MAX) return;
        Log& log = *logs_[best];
        const bool has_blocked = longest_blocked != UINT32_MAX;
        do {
            const log::Record& record = *log.now;
            Event event{record.head, {record.a(), record.b(), record.c(), record.d()}, record.spans, record.rows, log.events};
            if (!log.bodies.empty() && event.head.kind != Kind::callback_begin && event.head.kind != Kind::callback_end)
                if (const auto body = log.bodies.find(event.head.thread); body != log.bodies.end()) event.head.thread = body->second;
            note_run(best, event);
            if (step(best, event, give_up) == Step::blocked) {
                blocked[best] = true;
                break;
            }
            apply_repairs();
            ++log.events;
            ++events_;
            log.end_ns = event.head.time_ns;
            log.now = nullptr;
            give_up = false;
            settle();
            compact_if_large();
            refill(log);
            // What this one did may let others go on.
            if (has_blocked && may_unblock(event.head.kind)) {
                std::fill(blocked.begin(), blocked.end(), false);
                break;
            }
        } while (log.now && log.now->head.time_ns <= second_ns && log.now->head.time_ns <= horizon_ns);
    }
}

bool Analysis::may_unblock(Kind kind) {
    return kind != Kind::access && kind != Kind::host_access && kind != Kind::sync;
}

void Analysis::note_outside(uint32_t log, const Event& event) {
    const uint64_t time_ns = event.head.time_ns;
    if (event.a() == 0) {
        media_.note_open(log, time_ns);
    } else {
        const auto ago = [&](uint64_t span_ns) { return time_ns - std::min(span_ns, time_ns); };
        const bool is_sent = (event.b() & log::kSent) != 0;
        const uint64_t later_ns = time_ns + std::min(event.d(), UINT64_MAX - 1 - time_ns);
        if (event.b() & log::kReceived) logs_[log]->heard.set(log, time_ns, 0);
        media_.note(log, event.a(), event.b(), is_sent ? Media::Span{time_ns, later_ns} : Media::Span{ago(std::max(event.c(), event.d())), ago(event.c())});
    }
}

void Analysis::read_gap(uint32_t log, const Event& event) {
    // The reader's header counts the events that were dropped; nothing before the gap may be used any more.
    (void)event;
    forget_history();
    for (auto& [id, stream] : logs_[log]->streams) {
        stream->queue.clear();
        stream->unnumbered.clear();
        stream->gate = {};
        passed(*stream, stream->submitted);
    }
    for (auto& [key, line] : lines_) {
        line.is_tainted = true;
        line.was_consumed = false;
        line.records.clear();
    }
}

Analysis::Step Analysis::step(uint32_t log, const Event& event, bool give_up) {
    Log& this_log = *logs_[log];
    const log::Head& head = event.head;
    if (!this_log.new_aliases.empty() && head.kind != Kind::view)
        for (const NewAlias& each : std::exchange(this_log.new_aliases, {})) learn(anyone_of(log), each.shown, 0, head.time_ns);
    if (media_.may_hear(log, this_log.sent)) this_log.heard.set(log, head.time_ns, 0);
    switch (head.kind) {
    case Kind::pad:
    case Kind::op_started:
    case Kind::op_ended:
        return Step::taken;
    case Kind::gap:
        read_gap(log, event);
        return Step::taken;
    case Kind::outside:
        note_outside(log, event);
        return Step::taken;
    case Kind::ended:
        media_.note_end(log, head.time_ns);
        this_log.has_ended = true;
        return Step::taken;
    case Kind::source_changed:
        source_changed(log, event);
        return Step::taken;
    case Kind::touched_early:
        touched_early(log, event);
        return Step::taken;
    case Kind::view:
        if (head.flags & log::kEnd) {
            end_alias(log, event);
        } else {
            if (event.a() == 0) note_unwatched(Unwatched::alias, log, 1, head.site);
            note_alias(log, event);
        }
        return Step::taken;
    case Kind::unwatched:
        note_unwatched(head.flags & log::kShared ? Unwatched::destination : Unwatched::source, log, std::min(event.a(), uint64_t{1} << 32), head.site);
        return Step::taken;
    case Kind::cancelled:
        if (head.flags & log::kEnd)
            note_vain(log, event);
        else
            cancel(log, event);
        return Step::taken;
    case Kind::aborted:
        abort(log, event);
        return Step::taken;
    case Kind::shared_with:
        if (this_log.sharers.size() < kMostRecords) this_log.sharers.push_back({event.a(), head.time_ns});
        if (!has_log_of(log, event.a())) media_.note_listener(log, true);
        return Step::taken;
    case Kind::stream_made: {
        Stream& stream = stream_of(log, head.stream);
        if (event.a() != 0 && !stream.group && this_log.groups.size() < kMostActors) {
            Group& group = this_log.groups[event.a()];
            stream.group = &group;
            group.streams.push_back(&stream);
            if (event.b() != 0) group.legacy = &stream;
        }
        return Step::taken;
    }
    case Kind::stream_ended: {
        Stream& stream = stream_of(log, head.stream);
        stream.has_gone = true;
        return Step::taken;
    }
    case Kind::notify_made: {
        if (event.a() != 0 && head.sequence != 0) share_line(log, head.sequence, event.a(), event.b());
        Line& line = line_of(log, event.a(), event.b());
        line.kind = static_cast<uint8_t>(std::min<uint64_t>(event.c(), UINT8_MAX));
        if (event.d() != 0) line.index = event.d();
        return Step::taken;
    }
    case Kind::channel: {
        if (this_log.channels.size() >= kMostActors) return Step::taken;
        const auto [ref, is_new] = this_log.channels.try_emplace(event.a());
        if (!is_new) return Step::taken;
        setup_.insert(uint64_t{log} << 32 | head.site);
        Channel& channel = ref->second;
        channel.loose = new_actor(Role::loose, log, 0, event.a());
        channel.loose_delivery = new_actor(Role::loose_delivery, log, 0, event.a());
        channel.log = log;
        channel.number = event.a();
        channel.incoming = event.b();
        channel.outgoing = event.c();
        channel.rank = static_cast<int32_t>(event.d() >> 32);
        channel.peer = static_cast<int32_t>(event.d());
        Thread& thread = thread_of(log, head.thread);
        thread.rank = thread.rank == kNoRank || thread.rank == channel.rank ? channel.rank : kManyRanks;
        this_log.by_outgoing.emplace(event.c(), event.a());
        this_log.incoming.insert(event.b());
        return Step::taken;
    }
    case Kind::channel_closed:
        if (Channel* const channel = channel_of(log, event.a())) channel->is_closed = true;
        return Step::taken;
    case Kind::lent:
        setup_.insert(uint64_t{log} << 32 | head.site);
        if (this_log.leases.size() < kMostActors) this_log.leases[event.a()].spans.assign(event.spans, event.spans + std::min(head.spans, uint32_t{16}));
        lend_again(event);
        return Step::taken;
    case Kind::moved:
        moved(event);
        return Step::taken;
    case Kind::allocated:
        allocated(log, event);
        return Step::taken;
    case Kind::reused:
        reused(log, event);
        return Step::taken;
    case Kind::forget:
        keys_.erase(post_key(log, event));
        return Step::taken;
    case Kind::notified: {
        Stream& stream = stream_of(log, head.stream);
        if (!advance(stream, head.sequence, give_up)) return Step::blocked;
        const auto entry = stream.unnumbered.find(head.sequence);
        if (entry == stream.unnumbered.end()) return Step::taken;
        Record record = std::move(entry->second);
        stream.unnumbered.erase(entry);
        const Pair key = record.line;
        put(line_of(log, key.a, key.b), std::move(record), event.c(), key.a, key.b);
        return Step::taken;
    }
    case Kind::came:
        return take_came(event, give_up);
    case Kind::evident:
        return synchronize(anyone_of(log), event, give_up);
    case Kind::notify_waited: {
        Stream& stream = stream_of(log, head.stream);
        Item* const item = item_at(stream, head.sequence);
        if (!item || item->event.head.kind != Kind::notify_wait) return Step::taken;
        const bool is_there = has_record(line_of(log, item->event.a(), item->event.b()), event.c());
        if (!is_there && !give_up) return Step::blocked;
        if (head.sequence != 0 && !advance(stream, head.sequence - 1, give_up)) return Step::blocked;
        if (Item* const same = item_at(stream, head.sequence)) {
            same->done = true;
            same->result = is_there ? event.c() : 0;
        }
        advance(stream, 0, false);
        return Step::taken;
    }
    case Kind::pieces: {
        Stream& stream = stream_of(log, head.stream);
        if (Item* const item = item_at(stream, head.sequence)) {
            item->done = true;
            item->pieces.assign(event.spans, event.spans + head.spans);
            if (event.rows) item->piece_rows.assign(event.rows, event.rows + head.spans);
            advance(stream, 0, false);
        }
        return Step::taken;
    }
    case Kind::callback_end: {
        Stream& stream = stream_of(log, head.stream);
        this_log.bodies.erase(head.thread);
        Thread& body = thread_of(log, body_of(head.stream));
        body.has_ended = true;   // until the next one
        if (Item* const item = item_at(stream, head.sequence)) {
            item->done = true;
            item->ended = give(body, head.time_ns);
            advance(stream, 0, false);
        }
        return Step::taken;
    }
    case Kind::callback_begin: {
        Stream& stream = stream_of(log, head.stream);
        if (head.sequence == 0) return Step::taken;
        if (!advance(stream, head.sequence - 1, give_up)) return Step::blocked;
        this_log.bodies[head.thread] = body_of(head.stream);
        Thread& thread = thread_of(log, body_of(head.stream));
        thread.has_ended = false;
        const EventRef ref = ref_of(log, event, false);
        const auto [past, via] = past_at(stream, head.sequence - 1, ref);
        learn(thread, past, via, head.time_ns);
        if (const Item* const item = item_at(stream, head.sequence)) {
            learn(thread, item->giver, 0, head.time_ns);
            thread.rank = thread_of(log, item->event.head.thread).rank;
        }
        return Step::taken;
    }
    case Kind::post:
        if (head.stream != 0) {
            Stream& stream = stream_of(log, head.stream);
            if (!advance(stream, head.sequence, give_up)) return Step::blocked;
            post(log, event, past_at(stream, head.sequence, ref_of(log, event, false)).past);
            return Step::taken;
        }
        break;
    case Kind::collected:
        if (head.stream != 0) return advance(stream_of(log, head.stream), head.sequence, give_up) ? Step::taken : Step::blocked;
        break;
    default:
        break;
    }

    if (head.stream != 0 && event.c() != 0 && (head.kind == Kind::notify_wait || head.kind == Kind::notify)) {
        // It ran at once, so its stream's earlier operations are over.
        if (head.kind == Kind::notify_wait && !has_record(line_of(log, event.a(), event.b()), event.c()) && !give_up) return Step::blocked;
        Stream& stream = stream_of(log, head.stream);
        if (!advance(stream, stream.submitted, give_up)) return Step::blocked;
    }
    if (head.stream != 0 && head.kind != Kind::sync) {
        submit(log, event);
        return Step::taken;
    }

    Thread& thread = thread_of(log, head.thread);
    switch (head.kind) {
    case Kind::host_access:
        if (head.flags & log::kUnknown) {
            note_alias(log, event);
        } else if (head.flags & log::kPolled) {
            look(thread, event);
        } else {
            if (writes_behind_alias(event)) thread.is_published = true;
            touch(log, event, thread.actor, epoch_of(thread), thread.past);
        }
        return Step::taken;
    case Kind::access:
        if (head.flags & log::kLoose) {
            submit_loose(log, event, give(thread, head.time_ns));
        } else {
            if (writes_behind_alias(event)) thread.is_published = true;   // a reader of a part of a long write knows what came before it
            touch(log, event, thread.actor, epoch_of(thread), thread.past);
        }
        return Step::taken;
    case Kind::sync:
        return synchronize(thread, event, give_up);
    case Kind::event_wait: {
        if (!(head.flags & log::kShared)) return Step::taken;
        Signal& signal = signal_of(event.a());
        const auto record = signal.records.lower_bound(event.b());
        if (record == signal.records.end() && !give_up) return Step::blocked;
        const EventRef ref = ref_of(log, event, false);
        if (record != signal.records.end())
            learn(thread, record->second.past, edge(record->second.ref, ref), head.time_ns);
        else
            learn_all(thread, head.time_ns);
        return Step::taken;
    }
    case Kind::notify: {
        const uint64_t epoch = epoch_of(thread);
        Record record = record_by(log, event, thread.actor, epoch, give(thread, head.time_ns));
        if (event.c() == 0 && head.sequence != 0) {   // the other machine's `came` has its number
            this_log.unnumbered.insert_or_assign(head.sequence, std::move(record));
            if (this_log.unnumbered.size() > kMostKeys) this_log.unnumbered.erase(this_log.unnumbered.begin());
            return Step::taken;
        }
        put(line_of(log, event.a(), event.b()), std::move(record), event.c(), event.a(), event.b());
        return Step::taken;
    }
    case Kind::notify_wait: {
        Line& line = line_of(log, event.a(), event.b());
        const bool is_there = has_record(line, event.c());
        if (!is_there && !give_up) return Step::blocked;
        const EventRef ref = ref_of(log, event, false);
        const uint64_t epoch = epoch_of(thread);
        learn(thread, consume(log, event.a(), line, is_there ? event.c() : 0, thread.actor, epoch, ref), 0, head.time_ns);
        return Step::taken;
    }
    case Kind::notify_reset:
        reset(line_of(log, event.a(), event.b()), event.c(), thread.actor, epoch_of(thread), ref_of(log, event, false));
        return Step::taken;
    case Kind::fence:
    case Kind::drain:
        if (Channel* const channel = channel_of(log, event.a())) {
            for (auto& [base, delivery] : channel->deliveries)
                if (delivery.stream && !advance(*delivery.stream, delivery.submitted, give_up)) return Step::blocked;
            thread.is_published = true;
            thread.has_snapshot = false;
            fence(*channel, thread.past, thread.actor, epoch_of(thread), head.time_ns);
        }
        return Step::taken;
    case Kind::freed:
        freed(log, event, thread.actor, give(thread, head.time_ns));
        return Step::taken;
    case Kind::taken_back:
        taken_back(log, event, thread.actor, give(thread, head.time_ns));
        return Step::taken;
    case Kind::post:
        thread.has_ended = thread.has_ended || event.a() == log::kEndOfThread;
        thread.is_relay = thread.is_relay || (head.flags & log::kShared) != 0;
        post(log, event, event.c() != 0 ? thread.past : give(thread, head.time_ns));
        return Step::taken;
    case Kind::take:
        return take(thread, event, give_up);
    case Kind::collective:
        if (begin_collective_of(thread, event, give_up) == Step::blocked) return Step::blocked;
        return head.flags & log::kEnd ? end_collective_of(thread, event, give_up) : Step::taken;
    case Kind::collected:
        return end_collective_of(thread, event, give_up);
    default:
        return Step::taken;
    }
}

}  // namespace peerlane::check
