// Which bytes are touched, and whether those that touched them before come before.
#include "check/analysis.h"

#include <set>

#include "stream/operation.h"

namespace peerlane::check {

using log::Kind;
using log::Rows;
using log::Span;

namespace {

bool is_op(const Event& event, OpKind op) { return event.head.kind == Kind::access && event.head.op == static_cast<uint8_t>(op); }

// A read that is perhaps a look of a loop that waits.
bool is_doubtful(const Event& event) {
    return (event.head.kind == Kind::access || event.head.kind == Kind::host_access) && (event.head.flags & log::kDoubtful) != 0;
}

// A copy takes 'unwritten' along.
bool passes_on(const Event& event) {
    return event.head.kind == Kind::access && event.head.op != static_cast<uint8_t>(OpKind::reduce) && event.head.op != static_cast<uint8_t>(OpKind::fill) &&
           event.head.op != static_cast<uint8_t>(OpKind::write_value);
}

// The bytes themselves matter to the reader.
bool uses_values(const Event& event) {
    if (event.head.kind == Kind::host_access || is_op(event, OpKind::reduce)) return true;
    if (event.head.kind != Kind::collective) return false;
    switch (static_cast<log::Collective>(event.b() >> 8 & 0xff)) {
    case log::Collective::all_reduce:
    case log::Collective::reduce_scatter:
    case log::Collective::reduce:
        return true;
    default:
        return false;
    }
}

// Those that have a byte in common with a range.
template <class Parts>
void erase_parts(Parts& parts, uint64_t low, uint64_t high) {
    auto at = parts.upper_bound(low);
    if (at != parts.begin() && std::prev(at)->second.end > low) --at;
    while (at != parts.end() && at->first < high) at = parts.erase(at);
}

}  // namespace

size_t Analysis::OriginHash::operator()(const Origin& origin) const {
    return PairHash{}({uint64_t{origin.actor} << 32 ^ origin.site ^ uint64_t{origin.log} << 20,
                       origin.stream << 24 ^ origin.channel << 16 ^ uint64_t{origin.op} << 8 ^ static_cast<uint64_t>(origin.kind) ^ uint64_t{origin.thread} << 32});
}

Analysis::Block& Analysis::block_of(uint64_t id) {
    if (last_block_ && last_block_id_ == id) return *last_block_;
    auto& block = blocks_[id];
    if (!block) block = std::make_unique<Block>();
    last_block_id_ = id;
    last_block_ = block.get();
    block->used = events_;
    return *block;
}

template <class Change>
void Analysis::each_range(const Span& span, const Rows* rows, const Change& change) {
    if (span.offset >= Shadow::kEnd || span.size == 0 || span.size > Shadow::kEnd - span.offset) return;
    const uint64_t end = span.offset + span.size;
    if (!rows || rows->pitch <= rows->width || rows->height <= 1) {
        change(span.offset, end);
        return;
    }
    uint64_t at = span.offset;
    for (uint64_t row = 0; row < std::min(rows->height, kMostRows) && at < end && rows->width <= end - at; ++row) {
        change(at, at + rows->width);
        if (rows->pitch > end - at) break;
        at += rows->pitch;
    }
}

uint32_t Analysis::origin_of(uint32_t log, const Origin& origin) {
    Log& this_log = *logs_[log];
    for (const uint32_t last : this_log.last_origins)
        if (last != 0 && origins_[last] == origin) return last;
    auto [ref, is_new] = origin_numbers_.try_emplace(origin, static_cast<uint32_t>(origins_.size()));
    if (is_new) origins_.push_back(origin);
    this_log.last_origins[1] = this_log.last_origins[0];
    this_log.last_origins[0] = ref->second;
    return ref->second;
}

uint32_t Analysis::new_access(uint32_t log, const Event& event, Actor actor, uint64_t number) {
    const log::Head& head = event.head;
    const bool has_channel = head.kind == Kind::access;
    const Origin origin{actor, log, head.site, head.thread, head.stream, has_channel ? event.a() : 0, head.kind,
                        head.kind == Kind::collective ? static_cast<uint8_t>(event.b() >> 8) : head.op,
                        static_cast<uint8_t>((head.flags & (log::kLoose | log::kFetch)) | (is_doubtful(event) ? log::kDoubtful : 0))};
    accesses_.push_back({origin_of(log, origin), static_cast<uint32_t>(std::min<uint64_t>(event.number, UINT32_MAX)), number, head.time_ns});
    return static_cast<uint32_t>(accesses_.size() - 1);
}

bool Analysis::comes_before(uint32_t access, const Past& past, Actor actor, Actor also) const {
    const Access& before = accesses_[access];
    const Actor by = origins_[before.origin].actor;
    if (by == actor || by == also) {
        const Role role = actors_[by].role;
        if (role != Role::loose && role != Role::loose_delivery) return true;
    }
    if (past.sure.of(by) >= before.number) return true;
    const ActorState& state = actors_[by];
    if (state.role != Role::loose && state.role != Role::loose_delivery) return false;
    const auto channel = logs_[state.log]->channels.find(state.channel);
    if (channel == logs_[state.log]->channels.end()) return false;
    return past.sure.of(state.role == Role::loose ? channel->second.loose : channel->second.loose_delivery) >= before.number;
}

// Whether its writer knew that it was over, and passed that on: then it reaches its memory, though no notify brings it.
bool Analysis::is_over(uint32_t access, const Past& past) const {
    const Access& before = accesses_[access];
    const ActorState& state = actors_[origins_[before.origin].actor];
    if (state.role == Role::delivery) return past.sure.of(static_cast<Actor>(state.id)) >= before.number;
    if (state.role != Role::loose_delivery) return false;
    const auto channel = logs_[state.log]->channels.find(state.channel);
    return channel != logs_[state.log]->channels.end() && past.sure.of(channel->second.loose) >= before.number;
}

// The readers of which `access` is one: those that come before it need not be kept.
uint32_t Analysis::with_reader(uint32_t read, uint32_t access, const Past& past, Actor actor, Actor also) {
    if (read <= kOld) return access;
    const uint64_t asked = uint64_t{read} << 32 | access;
    if (last_set_.first == asked) return last_set_.second;
    const auto at = static_cast<uint32_t>(sets_.size());
    sets_.push_back(0);
    uint32_t count = 0;
    // With more of them a race with one of the oldest may stay unseen.
    std::vector<uint32_t> kept;
    each_reader(read, [&](uint32_t each) {
        if (each != access && !comes_before(each, past, actor, also)) kept.push_back(each);
    });
    const size_t most = 62;
    for (size_t i = kept.size() > most ? kept.size() - most : 0; i < kept.size(); ++i, ++count) sets_.push_back(kept[i]);
    uint32_t result = access;
    if (count == 0 || at >= Cell::kSet - 64) {
        sets_.resize(at);
    } else {
        sets_.push_back(access);
        sets_[at] = count + 1;
        result = at | Cell::kSet;
    }
    last_set_ = {asked, result};
    return result;
}

void Analysis::touch(uint32_t log, const Event& event, Actor actor, uint64_t number, const Past& past) {
    Actor writer = actor;
    if (event.head.kind == Kind::access && event.a() != 0)
        if (Channel* const channel = channel_of(log, event.a())) {
            writer = delivery_of(*channel, actor);
            if (!(event.head.flags & log::kFetch)) {
                Delivery& delivery = channel->deliveries[actor];
                delivery.newest = std::max(delivery.newest, number);
                actors_[writer].newest = delivery.newest;
            }
            touch_spans(log, event, event.spans, event.rows, event.head.spans, actor, writer, number, behind_fence(*channel, actor, past));
            return;
        }
    touch_spans(log, event, event.spans, event.rows, event.head.spans, actor, writer, number, past);
}

void Analysis::touch_spans(uint32_t log, const Event& event, const Span* spans, const Rows* rows, uint32_t count, Actor reader, Actor writer,
                           uint64_t number, const Past& past) {
    // A channel's read knows the writes of its stream before it, and what it writes is its stream's own.
    const bool fetches = event.head.flags & log::kFetch;
    const Actor also_reader = fetches ? writer : reader, also_writer = reader;
    const Actor owner = fetches ? reader : writer;
    const bool takes_along = passes_on(event), uses = uses_values(event);
    const bool is_look = event.head.kind == Kind::access && (event.head.flags & log::kPolled) != 0;
    uint32_t read_access = 0, write_access = 0;
    bool all_unwritten = true, any_unwritten = false;
    struct Unwritten {
        uint32_t nth;          // read span
        uint64_t from, to;     // in it
    };
    std::vector<Unwritten> unwritten;
    uint32_t reads = 0;
    // What a stream moves to other ranks: whether its memory of the host is touched too early is not seen.
    bool is_noted[2] = {event.head.stream == 0 || !(event.head.kind == Kind::collective || is_op(event, OpKind::far))};
    is_noted[1] = is_noted[0];
    const auto note = [&](Unwatched what) {
        if (!std::exchange(is_noted[static_cast<size_t>(what)], true)) note_unwatched(what, log, 1, event.head.site);
    };

    for (uint32_t i = 0; i < count; ++i) {
        const Span& span = spans[i];
        if (span.block & Span::kWritten) continue;
        const uint32_t nth = reads++;
        if (span.block == 0) {   // memory of the host, whose allocations are not known
            all_unwritten = false;
            note(Unwatched::source);
            continue;
        }
        Block& block = block_of(span.block);
        if (is_look || is_doubtful(event)) see(log, event, block, span, number);
        if (is_look) {
            all_unwritten = false;
            continue;
        }
        if (read_access == 0) read_access = new_access(log, event, reader, number);
        uint64_t bytes = 0, missing = 0, first_missing = UINT64_MAX, end_of_missing = 0;
        uint32_t passed_by = 0;
        each_range(span, rows ? rows + i : nullptr, [&](uint64_t low, uint64_t high) {
            bytes += high - low;
            block.shadow.update(low, high, [&](Cell& cell, uint64_t from, uint64_t to) {
                const uint32_t wrote = cell.write & Cell::kAccess;
                if (wrote > kOld && !comes_before(wrote, past, reader, also_reader)) race({wrote, true}, {read_access, false}, block, from, to, past);
                if (cell.write & Cell::kUnwritten) {
                    missing += to - from;
                    first_missing = std::min(first_missing, from);
                    end_of_missing = std::max(end_of_missing, to);
                    passed_by = wrote;
                    if (takes_along && unwritten.size() < kMostRecords) unwritten.push_back({nth, from - span.offset, to - span.offset});
                }
                cell.read = with_reader(cell.read, read_access, past, reader, also_reader);
            });
            if (block.freed != 0 || !block.retractions.empty()) check_dead(read_access, block, low, high, false, past);
        });
        all_unwritten = all_unwritten && missing == bytes && missing != 0;
        any_unwritten = any_unwritten || missing != 0;
        if (uses && missing != 0) report_unwritten(log, event, block, first_missing, end_of_missing, bytes, missing, passed_by);
    }

    all_unwritten = all_unwritten && any_unwritten && takes_along;
    uint32_t writes = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const uint64_t id = spans[i].block & ~Span::kWritten;
        if (!(spans[i].block & Span::kWritten)) continue;
        const uint32_t nth = writes++;
        if (id == 0) {
            note(Unwatched::destination);
            continue;
        }
        const Span& span = spans[i];
        Block& block = block_of(id);
        if (write_access == 0) write_access = owner == reader && read_access != 0 ? read_access : new_access(log, event, owner, number);
        const uint32_t state = write_access | (all_unwritten ? Cell::kUnwritten : 0);
        each_range(span, rows ? rows + i : nullptr, [&](uint64_t low, uint64_t high) {
            uint64_t missing = 0;
            uint32_t passed_by = 0;
            block.shadow.update(low, high, [&](Cell& cell, uint64_t from, uint64_t to) {
                const uint32_t wrote = cell.write & Cell::kAccess;
                if (cell.write & Cell::kUnwritten) {
                    missing += to - from;
                    passed_by = wrote;
                }
                if (wrote > kOld && wrote != write_access && !comes_before(wrote, past, owner, also_writer))
                    race({wrote, true}, {write_access, true}, block, from, to, past);
                each_reader(cell.read, [&](uint32_t read) {
                    if (read != read_access && !comes_before(read, past, owner, also_writer)) race({read, false}, {write_access, true}, block, from, to, past, cell.write & Cell::kUnwritten);
                });
                cell.write = state;
                cell.read = 0;
            });
            if ((event.head.kind == Kind::access && !fetches) || (event.head.kind == Kind::host_access && !block.aliases.empty())) {
                const Word word{low, high, event.b(), static_cast<uint8_t>(std::min<uint64_t>(event.c(), 8)), false, (event.head.flags & log::kLoose) != 0, log,
                                event.head.thread, event.head.flags & log::kLoose ? 0 : event.head.stream, event.a(), std::max(number, event.head.sequence)};
                const bool is_word = !rows && (event.c() != 0 || high - low <= log::kWordBytes);
                if (is_word && event.head.kind == Kind::access) note_word(block, word);
                if (!block.aliases.empty()) show(block, word, event, reader, owner, past);
                // Who sees it does not see what its thread does next.
                if ((is_word || !block.aliases.empty()) && actors_[reader].role == Role::thread) thread_of(log, event.head.thread).is_published = true;
            }
            // A reduction reads what it writes.
            if (missing != 0 && is_op(event, OpKind::reduce)) report_unwritten(log, event, block, low, high, high - low, missing, passed_by);
            if (block.freed != 0 || !block.retractions.empty()) check_dead(write_access, block, low, high, true, past);
        });
        if (all_unwritten || !takes_along || rows) continue;
        for (const Unwritten& part : unwritten)   // the nth span that is written has the bytes of the nth that is read
            if (part.nth == nth && part.to <= span.size)
                block.shadow.update(span.offset + part.from, span.offset + part.to, [](Cell& cell, uint64_t, uint64_t) { cell.write |= Cell::kUnwritten; });
    }
}

void Analysis::report_unwritten(uint32_t log, const Event& event, Block& block, uint64_t low, uint64_t high, uint64_t bytes, uint64_t unwritten, uint32_t writer) {
    Finding location{};
    locate(location, block, low, high);
    if (!location.in_allocation) return;
    const EventRef allocated{.log = location.memory_log, .site = location.memory_site, .kind = Kind::allocated, .is_write = true};
    const bool is_of_unseen = shares_with_unseen(location.memory_log) || shares_with_unseen(log);   // it may have written them
    const Reported reported = report(FindingKind::unwritten_read, writer > kOld ? ref_of(writer, true) : allocated, ref_of(log, event, false),
                                     unwritten == bytes && !is_of_unseen && !is_doubtful(event), Missing::write, Finding::kNoCause);
    Finding* const finding = reported.fresh;
    if (reported.number != Finding::kNoCause && unwritten_reads_.size() < kMostRecords)
        unwritten_reads_.push_back({.finding = reported.number, .block = &block, .low = low, .high = high, .log = log, .site = event.head.site});
    if (!finding) return;
    finding->is_of_unseen = is_of_unseen;
    finding->is_of_look = is_doubtful(event);
    locate(*finding, block, low, high);
    find_elsewhere(*finding, block);
}

// What orders a use before the end of its memory: a synchronization where one process does both.
Missing Analysis::missing_before_end(const Origin& use, const EventRef& used, const EventRef& end) const {
    const Role role = actors_[use.actor].role;
    // What a channel reads of its own rank's memory, a synchronization orders, too.
    if (use.log != end.log || (use.channel != 0 && rank_of(used) != rank_of(end) && rank_of(end) != kNoRank) || (role != Role::stream && role != Role::thread)) return Missing::answer;
    if (role == Role::thread) return Missing::thread_order;
    return end.stream == 0 ? Missing::sync : Missing::event;
}

void Analysis::check_dead(uint32_t access, const Block& block, uint64_t low, uint64_t high, bool is_write, const Past& past) {
    const Access& use = accesses_[access];
    const Origin& origin = origins_[use.origin];
    const bool is_of_channel = origin.kind == Kind::access && origin.channel != 0;
    const EventRef used = ref_of(access, is_write);
    // The end that a stream brings may be later than the host's access, by an order that no event shows.
    const auto is_behind = [&](const EventRef& end) {
        const auto stream = end.stream == 0 ? logs_[end.log]->streams.end() : logs_[end.log]->streams.find(end.stream);
        return stream == logs_[end.log]->streams.end() || past.sure.of(stream->second->actor) >= end.sequence;
    };
    const auto report_end = [&](const EventRef& end, bool certain, Missing missing) {
        if (end.site == 0) return;   // by no line
        // Memory ends once: all that a channel, or a process that opened it, does there later has one cause.
        const bool is_alone = missing == Missing::earlier_use;
        const std::tuple key{end.log, end.site, origin.log, is_of_channel ? origin.channel : 0};
        const auto known = is_alone ? ends_.end() : ends_.find(key);
        const auto [number, finding] = report(FindingKind::use_after_free, used, end, certain, missing, known == ends_.end() ? Finding::kNoCause : known->second);
        if (!is_alone && known == ends_.end() && ends_.size() < kMostFindings) ends_[key] = number;
        if (finding) locate(*finding, block, low, high);
    };
    if (block.freed != 0) {
        auto at = block.allocations.upper_bound(low);
        if (at != block.allocations.begin()) --at;
        for (; at != block.allocations.end() && at->first < high; ++at) {
            const Allocation& each = at->second;
            if (!each.is_freed || at->first + each.size <= low) continue;
            // Queued operations of its process still run, and a process with an open handle keeps the memory, unless the memory is gone.
            if (is_of_channel)
                report_end(each.freed, true, Missing::answer);
            else if (origin.kind == Kind::host_access && each.freed.log == origin.log)
                report_end(each.freed, is_behind(each.freed), Missing::earlier_use);
            else if (each.is_gone)
                report_end(each.freed, !is_excusable(origin.actor, use.number, used, each.freed, heard_by(each.freed), true),
                     missing_before_end(origin, used, each.freed));
        }
    }
    if (!is_of_channel) return;
    for (const Retraction& each : block.retractions)
        if (each.from < high && low < each.to && each.ref.log != origin.log) report_end(each.ref, true, Missing::answer);
}

// Accesses of others that do not come before the memory's end.
void Analysis::check_end(const Block& block, uint64_t low, uint64_t high, const EventRef& ref, Actor by, const Past& past, bool is_gone, bool own_only) {
    if (ref.site == 0) return;
    const auto look = [&](uint32_t access, bool wrote, uint64_t from, uint64_t to) {
        if (access <= kOld || comes_before(access, past, 0, 0) || is_over(access, past)) return;
        const Access& use = accesses_[access];
        const Origin& origin = origins_[use.origin];
        if ((origin.channel == 0 && !is_gone) || (own_only && origin.log != ref.log)) return;   // as in check_dead
        if (was_cancelled(actors_[origin.actor], use.number)) return;
        const EventRef used = ref_of(access, wrote);
        const bool certain = !is_excusable(origin.actor, use.number, used, ref, past.heard, true);
        uint32_t via = via_of(origin.actor, use.number, past, by, 0);
        if (via == 0 && actors_[origin.actor].role == Role::delivery) via = via_of(static_cast<Actor>(actors_[origin.actor].id), use.number, past, by, 0);
        const auto end = std::tuple{ref.log, ref.site, origin.log, origin.channel};
        const auto known = ends_.find(end);
        const uint32_t cause = via != 0 ? via & ~(kCause | kByChance) : known != ends_.end() ? known->second : Finding::kNoCause;
        const auto [number, finding] = report(FindingKind::use_after_free, used, ref, certain, missing_before_end(origin, used, ref), cause);
        if (cause == Finding::kNoCause) {
            if (ends_.size() < kMostFindings) ends_[end] = number;
            repair(number, origin.actor, use.number, by);
        }
        if (!finding) return;
        locate(*finding, block, from, to);
        note_last_order(*finding, origin.actor, past);
        finding_states_[number].actor = origin.actor;
        finding_states_[number].number = use.number;
        help(number);
    };
    block.shadow.each(low, high, [&](const Cell& cell, uint64_t from, uint64_t to) {
        look(cell.write & Cell::kAccess, true, from, to);
        each_reader(cell.read, [&](uint32_t read) { look(read, false, from, to); });
    });
}

void Analysis::allocated(uint32_t log, const Event& event) {
    for (uint32_t i = 0; i < std::min(event.head.spans, uint32_t{16}); ++i) {
        const Span& span = event.spans[i];
        const uint64_t id = span.block & ~Span::kWritten;
        if (id == 0) continue;
        each_range(span, nullptr, [&](uint64_t low, uint64_t high) {
            Block& block = block_of(id);
            auto at = block.allocations.lower_bound(low);
            if (at != block.allocations.begin() && std::prev(at)->first + std::prev(at)->second.size > low) --at;
            while (at != block.allocations.end() && at->first < high) {
                block.freed -= at->second.is_freed;
                at = block.allocations.erase(at);
            }
            const EventRef ref = ref_of(log, event, true);
            block.allocations[low] = Allocation{.size = high - low, .log = log, .site = event.head.site, .id = event.a(), .ref = ref};
            const uint32_t nobody = event.head.flags & log::kShared ? 0 : Cell::kUnwritten;
            block.shadow.update(low, high, [nobody](Cell& cell, uint64_t, uint64_t) {
                cell.write = nobody;
                cell.read = 0;
            });
            std::erase_if(block.retractions, [&](const Retraction& each) { return each.from < high && low < each.to; });
            erase_parts(block.parts, low, high);
        });
    }
}

void Analysis::reused(uint32_t log, const Event& event) {
    for (uint32_t i = 0; i < std::min(event.head.spans, uint32_t{16}); ++i) {
        const uint64_t id = event.spans[i].block & ~Span::kWritten;
        if (id == 0) continue;
        each_range(event.spans[i], nullptr, [&](uint64_t low, uint64_t high) {
            Block& block = block_of(id);
            erase_parts(block.parts, low, high);
            block.parts[low] = {high, ref_of(log, event, true)};
        });
    }
}

void Analysis::freed(uint32_t log, const Event& event, Actor by, const Past& past) {
    for (uint32_t i = 0; i < std::min(event.head.spans, uint32_t{16}); ++i) {
        const Span& span = event.spans[i];
        const uint64_t id = span.block & ~Span::kWritten;
        if (id == 0) continue;
        each_range(span, nullptr, [&](uint64_t low, uint64_t high) {
            Block& block = block_of(id);
            const EventRef ref = ref_of(log, event, true);
            const bool is_gone = event.head.flags & log::kEnd, is_mapping = event.head.flags & log::kShared;
            check_end(block, low, high, ref, by, past, is_gone, is_mapping);
            if (is_mapping) return;
            block.shadow.update(low, high, [](Cell& cell, uint64_t, uint64_t) { cell.write = cell.read = 0; });
            const auto at = block.allocations.find(low);
            if (at == block.allocations.end() || at->second.is_freed) return;
            at->second.is_freed = true;
            at->second.is_gone = is_gone;
            at->second.freed = ref;
            ++block.freed;
            freed_allocations_.emplace_back(id, low);
            if (freed_allocations_.size() <= kMostFreed) return;
            const auto [old_id, old_low] = freed_allocations_.front();
            freed_allocations_.pop_front();
            const auto old = blocks_.find(old_id);
            if (old == blocks_.end()) return;
            const auto oldest = old->second->allocations.find(old_low);
            if (oldest == old->second->allocations.end() || !oldest->second.is_freed) return;
            --old->second->freed;
            old->second->allocations.erase(oldest);
            if (old->second->allocations.empty()) {
                blocks_.erase(old);
                last_block_ = nullptr;
            }
        });
    }
}

void Analysis::moved(const Event& event) {
    if (event.head.spans < 2) return;
    const Span &from = event.spans[0], &to = event.spans[1];
    const uint64_t from_id = from.block & ~Span::kWritten, to_id = to.block & ~Span::kWritten;
    const uint64_t size = std::min(from.size, to.size);
    if (from_id == 0 || to_id == 0 || from_id == to_id || size == 0 || from.offset >= Shadow::kEnd || to.offset >= Shadow::kEnd ||
        size > Shadow::kEnd - from.offset || size > Shadow::kEnd - to.offset)
        return;
    Block &old = block_of(from_id), &now = block_of(to_id);
    std::vector<std::pair<Cell, uint64_t>> cells;
    old.shadow.each(from.offset, from.offset + size, [&](const Cell& cell, uint64_t low, uint64_t high) {
        Cell part = cell;
        part.first = low;
        cells.emplace_back(part, high);
    });
    for (const auto& [cell, high] : cells)
        now.shadow.update(cell.first - from.offset + to.offset, high - from.offset + to.offset, [&](Cell& there, uint64_t, uint64_t) {
            there.write = cell.write;
            there.read = cell.read;
        });
    old.shadow.update(from.offset, from.offset + size, [](Cell& cell, uint64_t, uint64_t) { cell.write = cell.read = 0; });
    if (auto allocation = old.allocations.extract(from.offset)) {
        allocation.key() = to.offset;
        old.freed -= allocation.mapped().is_freed;
        now.freed += allocation.mapped().is_freed;
        if (const auto before = now.allocations.find(to.offset); before != now.allocations.end()) {
            now.freed -= before->second.is_freed;
            now.allocations.erase(before);
        }
        now.allocations.insert(std::move(allocation));
    }
}

void Analysis::note_unwatched(Unwatched what, uint32_t log, uint64_t count, uint32_t site) {
    UnwatchedCount& all = unwatched_[static_cast<size_t>(what)];
    if (all.count == 0) {
        all.log = log;
        all.site = site;
    }
    all.count += count;
}

// Somebody wrote what an operation reads, and no thread that knows of its end could have.
void Analysis::source_changed(uint32_t log, const Event& event) {
    const log::Head& head = event.head;
    if (logs_[log]->reader.dropped() != 0) return;   // the thread that knew it may be in the dropped events
    const ActorState& actor = actors_[stream_of(log, head.stream).actor];
    if (was_cancelled(actor, head.sequence) || actor.has_forgotten_learned) return;
    const auto knew = [&](bool is_sure) {
        return std::any_of(actor.learned.begin(), actor.learned.end(), [&](const Learned& each) { return each.number >= head.sequence && (each.thread != kAnyone || !is_sure); });
    };
    if (knew(true)) return;
    const EventRef reader{.log = log, .site = static_cast<uint32_t>(event.a() >> 32), .thread = static_cast<uint32_t>(event.a()), .kind = Kind::access,
                       .op = head.op, .stream = head.stream, .sequence = head.sequence, .event = event.number, .time_ns = event.b()};
    EventRef seen = ref_of(log, event, true);
    seen.stream = seen.sequence = seen.op = 0;
    const Block* block = nullptr;
    uint64_t from = 0, to = 0;
    bool is_lent = false;
    for (uint32_t i = 0; i < head.spans; ++i) {
        const Span& span = event.spans[i];
        if (i == 0) to = span.size;
        if (span.block == 0) continue;
        Block& there = block_of(span.block & ~Span::kWritten);
        if (!block) {
            block = &there;
            from = span.offset;
            to = span.offset + span.size;
        }
        // Of what the log has, the accesses themselves are judged.
        bool is_judged = false;
        each_range(span, event.rows ? event.rows + i : nullptr, [&](uint64_t low, uint64_t high) {
            there.shadow.each(low, high, [&](const Cell& cell, uint64_t, uint64_t) {
                const uint32_t write = cell.write & Cell::kAccess;
                is_judged = is_judged || (write > kOld && (accesses_[write].time_ns >= event.b() || origins_[accesses_[write].origin].log != log));
            });
        });
        if (is_judged) return;
        for (const auto& [number, lease] : logs_[log]->leases)
            for (const Span& lent : lease.spans) is_lent = is_lent || (lent.block & ~Span::kWritten) == (span.block & ~Span::kWritten);
    }
    Finding* const finding = report(FindingKind::race, reader, seen, !is_lent && !knew(false), Missing::sync, Finding::kNoCause).fresh;
    if (!finding) return;
    finding->from = from;
    finding->to = to;
    if (block) locate(*finding, *block, from, to);
}

// The program touched what an operation writes before that wrote it.  When it was submitted nothing stood before it that the program could
// have made come after the touch.
void Analysis::touched_early(uint32_t log, const Event& event) {
    enum { reads, writes, changed };
    const log::Head& head = event.head;
    const EventRef writer{.log = log, .site = static_cast<uint32_t>(event.a() >> 32), .thread = static_cast<uint32_t>(event.a()), .kind = Kind::access,
                       .op = head.op, .is_write = true, .stream = head.stream, .sequence = head.sequence, .event = event.number, .time_ns = event.b()};
    EventRef by = ref_of(log, event, event.c() != reads);
    by.kind = event.c() == changed ? Kind::source_changed : Kind::host_access;
    by.stream = by.sequence = by.op = 0;
    const Span span = head.spans != 0 ? event.spans[0] : Span{};
    const uint64_t id = span.block & ~Span::kWritten;
    bool is_lent = false;   // a peer may have changed it; nobody else touches pages of this process
    if (event.c() == changed)
        for (const auto& [number, lease] : logs_[log]->leases)
            for (const Span& lent : lease.spans) is_lent = is_lent || (id != 0 && (lent.block & ~Span::kWritten) == id);
    Finding* const finding = report(FindingKind::race, writer, by, !is_lent, Missing::sync, Finding::kNoCause).fresh;
    if (!finding) return;
    finding->from = span.offset;
    finding->to = span.offset + span.size;
    if (id != 0) locate(*finding, block_of(id), finding->from, finding->to);
}

void Analysis::lend_again(const Event& event) {
    for (uint32_t i = 0; i < std::min(event.head.spans, uint32_t{16}); ++i)
        each_range(event.spans[i], nullptr, [&](uint64_t low, uint64_t high) {
            std::erase_if(block_of(event.spans[i].block & ~Span::kWritten).retractions,
                          [&](const Retraction& each) { return each.from < high && low < each.to; });
        });
}

void Analysis::taken_back(uint32_t log, const Event& event, Actor by, const Past& past) {
    auto& leases = logs_[log]->leases;
    leases.erase(event.a());
    for (uint32_t i = 0; i < std::min(event.head.spans, uint32_t{16}); ++i) {
        const uint64_t id = event.spans[i].block & ~Span::kWritten;
        if (id == 0) continue;
        each_range(event.spans[i], nullptr, [&](uint64_t low, uint64_t high) {
            // Bytes with another live lease may be used.
            for (const auto& [number, lease] : leases)
                for (const Span& span : lease.spans)
                    if ((span.block & ~Span::kWritten) == id && span.offset < high && low - std::min(low, span.offset) < span.size) return;
            Block& block = block_of(id);
            const EventRef ref = ref_of(log, event, true);
            check_end(block, low, high, ref, by, past, false, false);
            // What was over has arrived when the call returns: nothing after it races with that.
            block.shadow.update(low, high, [&](Cell& cell, uint64_t, uint64_t) {
                const uint32_t write = cell.write & Cell::kAccess;
                if (write > kOld && is_over(write, past)) cell.write = 0;
            });
            block.retractions.push_back({low, high, ref});
            if (block.retractions.size() > 64) block.retractions.erase(block.retractions.begin());
        });
    }
}

void Analysis::note_word(Block& block, const Word& word) {
    if (block.words.size() == kMostWords) block.words.erase(block.words.begin());
    block.words.push_back(word);
}

// What a process may know that looks at these bytes.
Past Analysis::shown_by(const Block& block, uint64_t low, uint64_t high, const EventRef& ref) {
    std::set<uint32_t> writers;
    block.shadow.each(low, high, [&](const Cell& cell, uint64_t, uint64_t) {
        if (const uint32_t writer = cell.write & Cell::kAccess; writer > kOld && writers.size() < kMostAliases) writers.insert(writer);
    });
    Past shown;
    for (const uint32_t writer : writers) join_writer(writer, shown, ref);
    return shown;
}

void Analysis::note_alias(uint32_t log, const Event& event) {
    const EventRef ref = ref_of(log, event, false);
    for (uint32_t i = 0; i < event.head.spans; ++i) {
        const uint64_t id = event.spans[i].block & ~Span::kWritten;
        if (id == 0) continue;
        Block& block = block_of(id);
        each_range(event.spans[i], event.rows ? event.rows + i : nullptr, [&](uint64_t low, uint64_t high) {
            Past shown = shown_by(block, low, high, ref);
            if (event.head.flags & log::kPolled) learn(anyone_of(log), shown, 0, event.head.time_ns);
            if (event.head.kind != log::Kind::view) return;
            if (!(event.head.flags & log::kPolled)) logs_[log]->new_aliases.push_back({id, low, high, std::move(shown)});
            if (block.aliases.size() >= kMostAliases && std::none_of(block.aliases.begin(), block.aliases.end(), [&](const Alias& each) { return each.log == log && each.high == UINT64_MAX; })) {
                std::erase_if(block.aliases, [&](const Alias& each) { return each.log == log; });
                block.aliases.push_back({0, UINT64_MAX, log, 1});   // it does not end
            }
            const auto known = std::find_if(block.aliases.begin(), block.aliases.end(), [&](const Alias& each) {
                return each.log == log && ((each.low == low && each.high == high) || each.high == UINT64_MAX);
            });
            if (known != block.aliases.end())
                ++known->count;
            else
                block.aliases.push_back({low, high, log, 1});
            has_aliases_ = true;
        });
    }
}

void Analysis::end_alias(uint32_t log, const Event& event) {
    for (uint32_t i = 0; i < event.head.spans; ++i) {
        const uint64_t id = event.spans[i].block & ~Span::kWritten;
        if (id == 0) continue;
        Block& block = block_of(id);
        each_range(event.spans[i], event.rows ? event.rows + i : nullptr, [&](uint64_t low, uint64_t high) {
            auto& recent = logs_[log]->new_aliases;
            const auto latest = std::find_if(recent.rbegin(), recent.rend(), [&](const NewAlias& each) { return each.block == id && each.low == low && each.high == high; });
            if (latest != recent.rend()) recent.erase(std::prev(latest.base()));
            std::erase_if(block.aliases, [&](Alias& each) { return each.log == log && each.low == low && each.high == high && --each.count == 0; });
        });
    }
}

bool Analysis::writes_behind_alias(const Event& event) {
    return has_aliases_ && std::any_of(event.spans, event.spans + event.head.spans, [&](const Span& span) {
        return span.block > Span::kWritten && !block_of(span.block & ~Span::kWritten).aliases.empty();
    });
}

// A write to memory of which processes have aliases: of a long one only a part may be seen, which shows what came before it.
void Analysis::show(const Block& block, const Word& word, const Event& event, Actor base, Actor writer, const Past& past) {
    const bool is_whole = word.width != 0 || word.high - word.low <= log::kWordBytes;
    std::set<uint32_t> watchers;
    for (const Alias& alias : block.aliases)
        if (alias.low < word.high && word.low < alias.high) watchers.insert(alias.log);
    if (watchers.empty()) return;
    Past seen;
    if (word.is_loose) {
        seen = past_of(word, ref_of(word.log, event, true), word.number);
    } else {
        seen = past;
        for (const Actor actor : {base, writer}) seen.set(actor, is_whole ? word.number : word.number - 1, 0);
    }
    for (const uint32_t watcher : watchers) learn(anyone_of(watcher), seen, 0, event.head.time_ns);
}

// Whether a look comes after this write by an order of other events.
bool Analysis::is_known(const Word& word, const Thread& thread) const {
    const Log& log = *logs_[word.log];
    Actor base = 0;
    if (word.stream != 0) {
        const auto stream = log.streams.find(word.stream);
        if (stream == log.streams.end()) return true;
        base = stream->second->actor;
    } else {
        const auto writer = log.threads.find(word.thread);
        if (writer == log.threads.end()) return true;
        base = writer->second->actor;
    }
    const Past& past = thread.past;
    if (base == thread.actor && word.channel == 0) return true;
    if (word.channel == 0) return past.sure.of(base) >= word.number;
    const auto channel = log.channels.find(word.channel);
    if (channel == log.channels.end()) return true;
    if (word.is_loose) return past.sure.of(channel->second.loose_delivery) >= word.number;
    const auto delivery = channel->second.deliveries.find(base);
    return delivery == channel->second.deliveries.end() || past.sure.of(delivery->second.actor) >= word.number;
}

// What comes before what follows a look that saw this write: all before it on its stream, and with `number` the write itself.
Past Analysis::past_of(const Word& word, const EventRef& look, uint64_t number) {
    Past past;
    Channel* const channel = channel_of(word.log, word.channel);
    if (word.is_loose) {   // it is in no order with others, but those before the fence that it is behind
        if (!channel) return past;
        const uint64_t later = channel->fences + 1 - std::min(word.number, channel->fences + 1);
        if (word.number > 1 && channel->fenced.size() > later) past.join(channel->fenced[channel->fenced.size() - 1 - later].past, 0);
        return past;
    }
    Actor base;
    if (word.stream != 0) {
        const auto stream = logs_[word.log]->streams.find(word.stream);
        if (stream == logs_[word.log]->streams.end()) return past;
        past = past_at(*stream->second, number, look).past;
        base = stream->second->actor;
    } else {
        Thread& thread = thread_of(word.log, word.thread);
        past = thread.past;
        base = thread.actor;
        past.set(base, number, 0);
    }
    if (!channel) return past;
    if (const Fence* const fence = fence_before(*channel, base, past)) past.join(fence->past, 0);
    const auto delivery = channel->deliveries.find(base);
    if (delivery != channel->deliveries.end() && delivery->second.actor != 0) past.set(delivery->second.actor, number, 0);
    return past;
}

// A loop looks at bytes until they have a value.  The value identifies the write that it saw, if one of the kept writes wrote it.
void Analysis::look(Thread& thread, const Event& event) {
    for (uint32_t i = 0; i < event.head.spans; ++i) {
        const Span& span = event.spans[i];
        if (span.block == 0 || span.block & Span::kWritten) continue;
        Block& block = block_of(span.block);
        each_range(span, event.rows ? event.rows + i : nullptr, [&](uint64_t low, uint64_t high) {
            look_in(thread, event, block, low, high);
            if (block.freed != 0) check_dead(new_access(thread.log, event, thread.actor, epoch_of(thread)), block, low, high, false, thread.past);
        });
    }
}

void Analysis::look_in(Thread& thread, const Event& event, Block& block, uint64_t low, uint64_t high) {
    const uint64_t width = event.b() != 0 && event.b() == high - low && event.b() <= 8 ? event.b() : 0;
    const EventRef ref = ref_of(thread.log, event, false);
    const auto shows = [&](const Word& word) {   // these bytes, after the write
        uint64_t value = 0;
        for (uint64_t i = 0; i < width; ++i) value |= (word.value >> (low + i - word.low) % word.width * 8 & 0xff) << i * 8;
        return value;
    };
    std::vector<Word> unknown;   // that the look may have seen, oldest first
    bool is_covered = false, has_before = false;
    uint64_t before = 0;         // what the bytes held, as far as this thread knows
    for (const Word& word : block.words) {
        if (word.low >= high || low >= word.high) continue;
        if (word.low > low || word.high < high) {
            has_before = false;
            continue;
        }
        const bool has_value = word.width != 0 && width != 0;
        if (!word.is_look) is_covered = true;
        if (!word.is_look && !is_known(word, thread)) {
            unknown.push_back(word);
            continue;
        }
        if (!word.is_look) unknown.clear();
        has_before = has_value;
        before = has_value ? shows(word) : 0;
    }
    const auto order = [&](Thread& who, const Word& word) {
        // Of a long write only a part was seen.
        const bool is_whole = word.high - word.low <= log::kWordBytes;
        learn(who, past_of(word, ref, is_whole ? word.number : word.number - 1), 0, event.head.time_ns);
        if (!is_whole) learn(anyone_of(who.log), past_of(word, ref, word.number), 0, event.head.time_ns);
    };
    if (width == 0) {
        for (const Word& word : unknown) order(anyone_of(thread.log), word);
    } else if (!has_before || before != event.a()) {
        std::erase_if(unknown, [&](const Word& word) { return word.width != 0 && shows(word) != event.a(); });
        if (!unknown.empty()) {
            order(thread, unknown.front());
            if (unknown.size() > 1) order(anyone_of(thread.log), unknown.back());
        }
    }
    if (!is_covered) {   // it is a part of a longer write, or of one that is long ago
        Past past;
        for (const uint32_t writer : writers_of(block, low, high))
            if (!comes_before(writer, thread.past, 0, 0)) join_writer(writer, past, ref);
        learn(anyone_of(thread.log), past, 0, event.head.time_ns);
    }
    if (width != 0 && (!has_before || before != event.a()))
        note_word(block, {low, high, event.a(), static_cast<uint8_t>(width), true, false, thread.log, thread.id, 0, 0, 0});
}

// What a copy brings, or code whose source nobody can read, decides perhaps whether a loop ends.  A stream has read it only when
// somebody knows that the copy is over.
void Analysis::see(uint32_t log, const Event& event, const Block& block, const Span& span, uint64_t number) {
    each_range(span, nullptr, [&](uint64_t low, uint64_t high) {
        learn(anyone_of(log), shown_by(block, low, high, ref_of(log, event, false)), 0, event.head.time_ns);
        if (event.head.stream == 0) return;
        auto& looks = logs_[log]->looks;
        if (looks.size() == kMostAliases) looks.erase(looks.begin());
        looks.push_back({span.block, low, high, event.head.stream, number});
    });
}

void Analysis::see_what_came(const Thread& thread, const Event& event) {
    const auto& streams = logs_[thread.log]->streams;
    std::erase_if(logs_[thread.log]->looks, [&](const Look& each) {
        const auto stream = streams.find(each.stream);
        if (stream == streams.end()) return true;
        if (thread.past.sure.of(stream->second->actor) < each.number) return false;
        learn(anyone_of(thread.log), shown_by(block_of(each.block), each.low, each.high, ref_of(thread.log, event, false)), 0, event.head.time_ns);
        return true;
    });
}

std::vector<uint32_t> Analysis::writers_of(const Block& block, uint64_t low, uint64_t high) {
    std::vector<uint32_t> writers;
    block.shadow.each(low, std::min(high, low + log::kWordBytes), [&](const Cell& cell, uint64_t, uint64_t) {
        if ((cell.write & Cell::kAccess) > kOld) writers.push_back(cell.write & Cell::kAccess);
    });
    return writers;
}

// What a write of a stream, a thread or a delivery comes after, and itself.
void Analysis::join_writer(uint32_t writer, Past& past, const EventRef& ref) {
    const Access& access = accesses_[writer];
    const Origin& origin = origins_[access.origin];
    const ActorState& delivery = actors_[origin.actor];
    const bool is_delivery = delivery.role == Role::delivery;
    const Actor base = is_delivery ? static_cast<Actor>(delivery.id) : origin.actor;
    const ActorState& actor = actors_[base];
    const EventRef from = ref_of(writer, true);
    if (actor.role == Role::stream) {
        past.join(past_at(stream_of(origin.log, actor.id), access.number, ref).past, edge(from, ref));
    } else if (actor.role == Role::thread) {
        Past known = thread_of(origin.log, static_cast<uint32_t>(actor.id)).past;
        known.set(base, access.number, 0);
        past.join(known, edge(from, ref));
    }
    if (is_delivery) past.set(origin.actor, access.number, 0);
}

// A wait for a word comes after what wrote the word.
void Analysis::acquire_word(const Span& span, Past& past, const EventRef& ref) {
    const uint64_t id = span.block & ~Span::kWritten;
    if (id == 0) return;
    std::vector<uint32_t> writers;
    each_range(span, nullptr, [&](uint64_t low, uint64_t high) { writers = writers_of(block_of(id), low, high); });
    for (const uint32_t writer : writers)
        if (const Role role = actors_[origins_[accesses_[writer].origin].actor].role; role == Role::stream || role == Role::thread)
            join_writer(writer, past, ref);
}

}  // namespace peerlane::check
