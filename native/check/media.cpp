#include "check/media.h"

#include <algorithm>

#include "log/event.h"

namespace peerlane::check {

namespace {

constexpr size_t kMostMedia = 4096, kMostRanges = 128;

}  // namespace

void Media::Times::make_room() {
    if (ranges_.size() < kMostRanges) return;
    for (size_t i = 0; i < ranges_.size() / 2; ++i) ranges_[i] = {std::min(ranges_[2 * i].first, ranges_[2 * i + 1].first), std::max(ranges_[2 * i].second, ranges_[2 * i + 1].second)};
    ranges_.resize(ranges_.size() / 2);
}

void Media::Times::add(Span when) {
    if (!ranges_.empty() && when.begin_ns <= ranges_.back().second) {   // a log's clock may have been shifted
        ranges_.back() = {std::min(ranges_.back().first, when.begin_ns), std::max(ranges_.back().second, when.end_ns)};
        return;
    }
    make_room();
    ranges_.emplace_back(when.begin_ns, when.end_ns);
}

void Media::Times::begin(uint64_t time_ns) {
    make_room();
    if (ranges_.empty() || ranges_.back().second != kNever) ranges_.emplace_back(time_ns, kNever);
}

void Media::Times::end(uint64_t time_ns) {
    if (!ranges_.empty() && ranges_.back().second == kNever) ranges_.back().second = std::max(ranges_.back().first, time_ns);
}

uint64_t Media::Times::first_since(uint64_t time_ns) const {
    uint64_t first = kNever;
    for (const auto& [begin, end] : ranges_)
        if (end >= time_ns) first = std::min(first, std::max(begin, time_ns));
    return first;
}

void Media::note(uint32_t process, uint64_t key, uint64_t flags, Span when) {
    is_one_ = is_one_ || (flags & log::kOverflown) != 0;
    is_written_ = is_written_ || ((flags & log::kMapped) != 0 && (flags & log::kWrote) != 0 && (flags & log::kApart) == 0);
    sent_ += (flags & log::kSent) != 0;
    if (key == log::kAnyMedium || key == log::kAnyDescriptor) {
        note_use((key == log::kAnyMedium ? anything_ : descriptors_)[process], flags, when);
        if (flags & log::kMapped) note_listener(process);
        return;
    }
    const auto known = media_.find(key);
    // What does not fit any more is the world.
    Medium& medium = known != media_.end() ? known->second : media_[media_.size() < kMostMedia ? key : log::kWorld];
    Use& used = medium.uses[process];
    const bool was_relayed = medium.is_relayed, was_sender = used.is_sender();
    medium.is_relayed = medium.is_relayed || (flags & log::kRelayed) != 0;
    medium.is_apart = medium.is_apart || (flags & log::kApart) != 0;
    note_use(used, flags, when);
    if ((flags & log::kMapped) == 0 && medium.is_relayed == was_relayed && used.is_sender() == was_sender) return;
    const auto senders = std::count_if(medium.uses.begin(), medium.uses.end(), [](const auto& each) { return each.second.is_sender(); });
    for (const auto& [each, use] : medium.uses)
        if (use.received.is_open() && (medium.is_relayed || senders > use.is_sender())) note_listener(each);
}

void Media::note_use(Use& use, uint64_t flags, Span when) {
    if (flags & log::kSent) use.sent.add(when);
    if (flags & log::kReceived) use.received.add(when);
    if (flags & log::kMapped) {
        use.received.begin(when.begin_ns);
        if (flags & log::kWrote) use.written.begin(when.begin_ns);
    }
    if (flags & log::kUnmapped) {
        use.received.end(when.end_ns);
        if (flags & log::kWrote) use.written.end(when.end_ns);
    }
}

void Media::note_listener(uint32_t process, bool always) {
    is_written_ = is_written_ || always;
    if (process >= listeners_.size()) listeners_.resize(process + size_t{1});
    listeners_[process] = true;
}

void Media::note_end(uint32_t process, uint64_t time_ns) {
    const auto end = [&](std::unordered_map<uint32_t, Use>& uses) {
        if (const auto use = uses.find(process); use != uses.end() && use->second.is_sender()) use->second.sent.add({time_ns, time_ns});
    };
    for (auto& [key, medium] : media_) end(medium.uses);
    end(anything_);
    note(process, log::kWorld, log::kSent, {time_ns, time_ns});
}

void Media::note_open(uint32_t process, uint64_t time_ns) { note(process, log::kAnyMedium, log::kMapped | log::kWrote, {time_ns, time_ns}); }

bool Media::has_received(uint32_t process) const {
    const auto has = [&](const std::unordered_map<uint32_t, Use>& uses) {
        const auto use = uses.find(process);
        return use != uses.end() && !use->second.received.is_empty();
    };
    return has(anything_) || has(descriptors_) || std::any_of(media_.begin(), media_.end(), [&](const auto& each) { return has(each.second.uses); });
}

// A range of `carried_` begins with when it came, which is later than its end.
void Media::carry(uint32_t from, uint64_t until_ns, uint32_t to, uint64_t time_ns) { carried_[from][to].add({time_ns, until_ns}); }

bool Media::reaches(uint32_t from, uint64_t since_ns, const std::vector<End>& ends) const {
    std::unordered_map<uint32_t, uint64_t> known{{from, since_ns}}, until;   // by process: since when; the ends
    uint64_t world_ns = kNever, until_ns = 0;
    for (const End& end : ends) {
        if (end.process == from) continue;   // the log has the order of its threads
        uint64_t& latest_ns = until[end.process];
        latest_ns = std::max(latest_ns, end.until_ns);
        until_ns = std::max(until_ns, end.until_ns);
    }
    for (bool is_new = true; is_new;) {
        is_new = false;
        const auto first_ns = [&](const std::unordered_map<uint32_t, Use>& uses, Times Use::*times) {   // when one that knows it sends, or can write, first
            uint64_t least_ns = kNever;
            for (const auto& [process, use] : uses)
                if (const auto one = known.find(process); one != known.end()) least_ns = std::min(least_ns, (use.*times).first_since(one->second));
            return least_ns;
        };
        const auto come = [&](uint32_t process, uint64_t came_ns) {   // true: to an end
            if (came_ns > until_ns) return false;
            if (const auto end = until.find(process); end != until.end() && came_ns <= end->second) return true;
            const auto [one, is_first] = known.emplace(process, came_ns);
            if (is_first || came_ns < one->second) {
                one->second = came_ns;
                is_new = true;
            }
            return false;
        };
        const auto hear = [&](const std::unordered_map<uint32_t, Use>& uses, uint64_t there_ns) {
            return std::any_of(uses.begin(), uses.end(), [&](const auto& each) { return come(each.first, each.second.received.first_since(there_ns)); });
        };
        const uint64_t anywhere_ns = std::min(first_ns(anything_, &Use::sent), first_ns(anything_, &Use::written));
        uint64_t earliest_ns = anywhere_ns, by_descriptor_ns = anywhere_ns;
        for (const auto& [key, medium] : media_) {
            const bool is_world = key == log::kWorld || (is_one_ && !medium.is_apart);
            // What no other process with a log has the other end of goes to the world, and comes from it.
            bool has_sender = false, has_receiver = false;
            for (const auto& [process, use] : medium.uses) {
                has_sender = has_sender || use.is_sender();
                has_receiver = has_receiver || !use.received.is_empty();
            }
            const bool is_alone = medium.uses.size() == 1;
            const uint64_t sent_ns = std::min(anywhere_ns, first_ns(medium.uses, &Use::sent));
            uint64_t there_ns = std::min(sent_ns, first_ns(medium.uses, &Use::written));
            if (is_world || (medium.is_relayed && (is_alone || !has_sender))) there_ns = std::min(there_ns, world_ns);
            if (there_ns > until_ns) continue;
            earliest_ns = std::min(earliest_ns, there_ns);
            by_descriptor_ns = std::min(by_descriptor_ns, is_world ? there_ns : sent_ns);
            if ((is_world || (medium.is_relayed && (is_alone || !has_receiver))) && there_ns < world_ns) {
                world_ns = there_ns;
                is_new = true;
            }
            if (hear(medium.uses, there_ns)) return true;
        }
        if ((earliest_ns <= until_ns && hear(anything_, earliest_ns)) || (by_descriptor_ns <= until_ns && hear(descriptors_, by_descriptor_ns))) return true;
        for (const auto& [process, receivers] : carried_) {
            const auto one = known.find(process);
            if (process == from || one == known.end()) continue;
            const uint64_t known_ns = one->second;
            if (std::any_of(receivers.begin(), receivers.end(), [&](const auto& each) { return come(each.first, each.second.first_since(known_ns)); })) return true;
        }
    }
    return false;
}

}  // namespace peerlane::check
