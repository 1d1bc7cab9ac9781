// An hour's run must not grow without end: what can take part in no finding any more is let go.
#include "check/analysis.h"

namespace peerlane::check {

Stats Analysis::stats() const {
    Stats now{.events = events_, .forgotten = forgotten_, .unexplained = unexplained_, .accesses = accesses_.size(),
              .actors = actors_.size() - free_actors_.size(), .compactions = compactions_};
    for (const auto& [id, block] : blocks_) now.cells += block->shadow.cells();
    for (const auto& log : logs_) {
        now.dropped += log->reader.dropped();
        for (const auto& [id, stream] : log->streams) now.waiting += stream->queue.size();
    }
    return now;
}

template <class Visit>
void Analysis::each_past(const Visit& visit) {
    for (auto& log : logs_) {
        for (auto& [id, thread] : log->threads) {
            visit(thread->past);
            visit(thread->snapshot);
            for (auto& [number, past] : thread->versions) visit(past);
        }
        for (auto& [id, stream] : log->streams) {
            visit(stream->past);
            visit(stream->giver);
            for (auto& version : stream->versions) visit(version.past);
            for (auto& item : stream->queue) {
                visit(item.giver);
                visit(item.ended);
            }
            for (auto& [sequence, record] : stream->unnumbered) visit(record.past);
        }
        for (auto& [number, channel] : log->channels)
            for (auto& fence : channel.fenced) {
                visit(fence.past);
                fence.of = fence.joined = {};
            }
    }
    for (auto& [key, line] : lines_)
        for (auto& record : line.records) visit(record.past);
    for (auto& [number, signal] : signals_)
        for (auto& [record_number, record] : signal.records) visit(record.past);
    for (auto& [name, key] : keys_) {
        visit(key.all);
        for (auto& post : key.posts) visit(post.second);
    }
    for (auto& [contents, messages] : messages_)
        for (auto& [socket, sender] : messages.senders)
            for (Past& past : sender.newest) visit(past);
    for (auto& [name, collection] : collections_)
        for (auto& [rank, beginning] : collection->begun) visit(beginning.past);
}

void Analysis::forget_history() {
    for (auto& [id, block] : blocks_)
        block->shadow.change_all([](Cell& cell) {
            cell.write = cell.write == 0 && cell.read == 0 ? 0 : kOld;
            cell.read = 0;
        });
    compact();
}

void Analysis::compact_if_large() {
    if (accesses_.size() < next_compaction_ && sets_.size() < next_compaction_ && origins_.size() < kMostActors * 8 && keys_.size() <= kMostKeys && messages_.size() <= kMostKeys &&
        blocks_.size() + lines_.size() + signals_.size() <= next_idle_ && actors_.size() - free_actors_.size() <= next_actors_)
        return;
    compact();
}

void Analysis::compact() {
    ++compactions_;
    const uint64_t count = accesses_.size();

    // An access that every thread knows comes before all that is still to be submitted.
    std::vector<const Past*> readers;
    for (auto& log : logs_) {
        if (log->is_over && !log->now) continue;
        for (auto& [id, thread] : log->threads)
            if (!thread->has_ended) readers.push_back(&give_for(*thread));
        for (auto& [id, stream] : log->streams)
            for (auto& item : stream->queue) readers.push_back(&item.giver);
    }
    std::vector<uint64_t> known(actors_.size(), readers.empty() ? 0 : UINT64_MAX);
    const void* last = nullptr;
    for (const Past* past : readers) {
        if (past->sure.identity() == last && last) continue;   // a million queued operations of one thread
        last = past->sure.identity();
        for (Actor actor = 1; actor < known.size(); ++actor)
            if (known[actor] != 0) known[actor] = std::min(known[actor], past->sure.of(actor));
    }

    std::vector<uint32_t> renamed(count, 0);
    const auto keep = [&](uint32_t access) {
        if (access <= kOld) return;
        renamed[access] = accesses_[access].number <= known[origins_[accesses_[access].origin].actor] ? kOld : UINT32_MAX;
    };
    for (auto& [id, block] : blocks_)
        block->shadow.each(0, Shadow::kEnd, [&](const Cell& cell, uint64_t, uint64_t) {
            keep(cell.write & Cell::kAccess);
            each_reader(cell.read, keep);
        });
    uint64_t live = 0, oldest_left = 0, cells = 0;
    for (uint64_t i = kOld + 1; i < count; ++i) live += renamed[i] == UINT32_MAX;
    for (auto& [id, block] : blocks_) cells += block->shadow.cells();
    // Beyond the limit the older half is forgotten: what is numbered first came first.
    const uint64_t bytes = live * sizeof(Access) * 3 / 2 + cells * sizeof(Cell) * 2 + sets_.size() * sizeof(uint32_t);
    if (bytes > limit_) {
        uint64_t to_forget = live / 2;
        for (oldest_left = kOld + 1; oldest_left < count && to_forget != 0; ++oldest_left)
            if (renamed[oldest_left] == UINT32_MAX) {
                renamed[oldest_left] = kOld;
                --to_forget;
                ++forgotten_;
            }
    }
    uint32_t next = kOld + 1;
    std::vector<bool> is_used(actors_.size());
    std::vector<uint32_t> origin_renamed(origins_.size(), 0);
    std::vector<Origin> origins(1);
    for (uint64_t i = kOld + 1; i < count; ++i) {
        if (renamed[i] != UINT32_MAX) continue;
        renamed[i] = next;
        accesses_[next] = accesses_[i];
        uint32_t& origin = origin_renamed[accesses_[next].origin];
        if (origin == 0) {
            origin = static_cast<uint32_t>(origins.size());
            origins.push_back(origins_[accesses_[next].origin]);
            is_used[origins.back().actor] = true;
            is_used[static_cast<Actor>(actors_[origins.back().actor].role == Role::delivery ? actors_[origins.back().actor].id : 0)] = true;
        }
        accesses_[next].origin = origin;
        ++next;
    }
    accesses_.shrink(next);
    origins_.swap(origins);
    origin_numbers_.clear();
    for (uint32_t i = 1; i < origins_.size(); ++i) origin_numbers_.emplace(origins_[i], i);
    for (auto& log : logs_) log->last_origins[0] = log->last_origins[1] = 0;

    std::vector<uint32_t> sets(1);
    std::unordered_map<uint32_t, uint32_t> set_renamed;
    const auto rename_read = [&](uint32_t read) -> uint32_t {
        if (read == 0) return 0;
        if (!(read & Cell::kSet)) return renamed[read] <= kOld ? 0 : renamed[read];
        const auto [ref, is_new] = set_renamed.try_emplace(read, 0);
        if (!is_new) return ref->second;
        std::vector<uint32_t> left;
        each_reader(read, [&](uint32_t each) {
            if (renamed[each] > kOld) left.push_back(renamed[each]);
        });
        if (left.empty()) return 0;
        if (left.size() == 1) return ref->second = left[0];
        ref->second = static_cast<uint32_t>(sets.size()) | Cell::kSet;
        sets.push_back(static_cast<uint32_t>(left.size()));
        sets.insert(sets.end(), left.begin(), left.end());
        return ref->second;
    };
    renamed[kOld] = kOld;
    for (auto& [id, block] : blocks_)
        block->shadow.change_all([&](Cell& cell) {
            const uint32_t wrote = cell.write & Cell::kAccess;
            cell.write = renamed[wrote] | (cell.write & Cell::kUnwritten);
            cell.read = rename_read(cell.read);
        });
    for (auto& log : logs_)
        for (auto& [stream, write] : log->loose_writes) write.first = write.end = 0;   // the accesses have other numbers
    sets_.swap(sets);
    last_set_ = {};
    forget_actors(is_used);

    if (keys_.size() > kMostKeys / 2) {
        has_lost_keys_ = true;
        std::erase_if(keys_, [&](const auto& each) { return events_ - each.second.used > kMostKeys; });
        if (keys_.size() > kMostKeys / 2) keys_.clear();
    }
    if (messages_.size() > kMostKeys / 2) {
        std::erase_if(messages_, [&](const auto& each) { return events_ - each.second.used > kMostKeys; });
        if (messages_.size() > kMostKeys / 2) messages_.clear();
    }
    forget_idle();
    if (collections_.size() > kMostRecords) std::erase_if(collections_, [&](const auto& each) { return events_ - each.second->used > kMostKeys; });
    next_compaction_ = std::max<uint64_t>(uint64_t{1} << 21, std::max<uint64_t>(accesses_.size(), sets_.size()) * 3 / 2);
    next_actors_ = std::max<uint64_t>(4096, 2 * (actors_.size() - free_actors_.size()));
}

// What no event has named for long, where there is much of it.
void Analysis::forget_idle() {
    const auto is_idle = [&](uint64_t used) { return events_ - used > kLongAgo; };
    if (blocks_.size() > kMostIdle) {
        std::erase_if(blocks_, [&](const auto& each) {
            if (!is_idle(each.second->used)) return false;
            bool is_live = false;   // an access there may take part in a race
            each.second->shadow.each(0, Shadow::kEnd, [&](const Cell& cell, uint64_t, uint64_t) { is_live = is_live || (cell.write & Cell::kAccess) > kOld || cell.read > kOld; });
            return !is_live;
        });
        last_block_ = nullptr;
    }
    if (lines_.size() > kMostIdle) {
        has_lost_lines_ = std::erase_if(lines_, [&](const auto& each) { return is_idle(each.second.used); }) != 0 || has_lost_lines_;
    }
    if (signals_.size() > kMostIdle) std::erase_if(signals_, [&](const auto& each) { return is_idle(each.second.used) && each.second.waiting.empty(); });
    next_idle_ = std::max(kMostIdle, 2 * (blocks_.size() + lines_.size() + signals_.size()));
}

// Closed channels, of whose operations no access is left.
void Analysis::forget_channels(uint32_t log, const std::vector<bool>& is_used, std::vector<Actor>& gone) {
    Log& this_log = *logs_[log];
    std::unordered_set<uint64_t> needed;   // an actor of one operation asks the channel for its fences
    for (Actor actor = 1; actor < actors_.size(); ++actor) {
        const ActorState& state = actors_[actor];
        if (is_used[actor] && state.log == log && state.channel != 0) needed.insert(state.channel);
    }
    std::erase_if(this_log.channels, [&](const auto& each) {
        const Channel& channel = each.second;
        if (!channel.is_closed || needed.contains(each.first)) return false;
        gone.insert(gone.end(), {channel.loose, channel.loose_delivery});
        for (const auto& [base, delivery] : channel.deliveries)
            if (delivery.actor != 0) gone.push_back(delivery.actor);
        const auto [first, last] = this_log.by_outgoing.equal_range(channel.outgoing);
        for (auto at = first; at != last; ++at)
            if (at->second == each.first) {
                this_log.by_outgoing.erase(at);
                break;
            }
        return true;
    });
}

// Actors that have gone, and of which no access is left, leave the clocks.
void Analysis::forget_actors(const std::vector<bool>& is_used) {
    std::vector<bool> has_gone(actors_.size());
    bool any = false;
    const auto let_go = [&](Actor actor) {
        if (is_used[actor]) return false;
        has_gone[actor] = any = true;
        return true;
    };
    for (uint32_t number = 0; number < logs_.size(); ++number) {
        auto& log = logs_[number];
        const bool is_done = log->is_over && !log->now;
        const bool has_queue = std::any_of(log->streams.begin(), log->streams.end(), [](const auto& each) { return !each.second->queue.empty(); });
        std::unordered_set<Actor> bases;
        if (!has_queue)
            std::erase_if(log->streams, [&](const auto& each) {
                Stream& stream = *each.second;
                if ((!stream.has_gone && !is_done) || stream.gate.collection || !stream.unnumbered.empty() || !stream.followers.empty() || !let_go(stream.actor)) return false;
                if (stream.group) {
                    std::erase(stream.group->streams, &stream);
                    if (stream.group->legacy == &stream) stream.group->legacy = nullptr;
                }
                for (auto& [number, signal] : signals_) std::erase(signal.waiting, &stream);
                for (auto& [key, collection] : collections_) std::erase(collection->waiting, &stream);
                std::erase(ready_, &stream);
                bases.insert(stream.actor);
                return true;
            });
        // Of many threads those that have ended go, and those that were not seen for long: if one comes back, it knows all.
        if (is_done || log->threads.size() > kMostRecords)
            std::erase_if(log->threads, [&](const auto& each) {
                const Thread& thread = *each.second;
                const uint64_t idle = events_ - thread.used;
                if (thread.gate.collection || (!is_done && idle < (thread.has_ended ? kMostRecords : kLongAgo)) || !let_go(thread.actor)) return false;
                log->has_lost_threads = log->has_lost_threads || !thread.has_ended;
                bases.insert(thread.actor);
                return true;
            });
        for (auto& [number, channel] : log->channels)
            for (auto each = channel.deliveries.begin(); each != channel.deliveries.end();) {
                if (bases.contains(each->first) && (each->second.actor == 0 || let_go(each->second.actor))) {
                    each = channel.deliveries.erase(each);
                    continue;
                }
                // Its base may still be asked for.
                if (bases.contains(each->first)) each->second.stream = nullptr;
                ++each;
            }
        std::vector<Actor> of_channels;
        if (!has_queue && !log->channels.empty()) forget_channels(number, is_used, of_channels);
        for (const Actor actor : of_channels) let_go(actor);
    }
    for (Actor actor = 1; actor < actors_.size(); ++actor) {
        const ActorState& state = actors_[actor];
        if ((state.role == Role::loose || state.role == Role::loose_delivery) && state.id == LooseWrite::kOwn) let_go(actor);
    }
    if (!any) return;
    std::unordered_map<const void*, Clock> filtered;   // versions stay shared
    std::vector<Clock> held;                           // no identity is used twice meanwhile
    const auto filter = [&](Clock& clock) {
        if (!clock.identity()) return;
        const auto [ref, is_new] = filtered.try_emplace(clock.identity());
        if (is_new) {
            held.push_back(clock);
            const bool has_any = std::any_of(clock.begin(), clock.end(), [&](const Known& known) { return has_gone[known.actor]; });
            ref->second = has_any ? clock.filtered([&](Actor actor) { return !has_gone[actor]; }) : clock;
        }
        clock = ref->second;
    };
    each_past([&](Past& past) {
        filter(past.sure);
        filter(past.wide);
    });
    // A line whose last consumer has gone: nobody can come before it any more, or all do.
    for (auto& [key, line] : lines_)
        if (line.was_consumed && has_gone[line.consumer]) line.consumer_epoch = 0;
    for (size_t i = 0; i < finding_states_.size(); ++i)
        if (has_gone[finding_states_[i].actor]) finding_states_[i].actor = 0;
    for (Question& question : questions_)
        if (has_gone[question.actor]) question.actor = 0;
    std::erase_if(early_reads_, [&](const EarlyRead& each) { return has_gone[each.reader] || has_gone[each.writer]; });
    for (auto& log : logs_)
        for (auto& [number, channel] : log->channels) {
            std::erase_if(channel.sent, [&](const Sent& sent) { return has_gone[sent.actor]; });
            std::erase_if(channel.fenced, [&](const Fence& fence) { return has_gone[fence.actor]; });
        }
    for (auto& log : logs_)
        for (auto& [stream, write] : log->loose_writes)
            std::erase_if(write.brought, [&](const auto& brought) { return has_gone[brought.first]; });
    for (Actor actor = 1; actor < has_gone.size(); ++actor)
        if (has_gone[actor]) {
            actors_[actor] = ActorState{.role = Role::thread, .log = 0};
            free_actors_.push_back(actor);
        }
}

}  // namespace peerlane::check
