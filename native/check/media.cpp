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

// What does not fit any more is the world.
Media::Use& Media::use_of(uint32_t process, uint64_t key, uint64_t flags) {
    if (key == log::kAnyMedium) return anything_[process];
    if (key == log::kAnyDescriptor) return descriptors_[process];
    const auto known = media_.find(key);
    Medium& medium = known != media_.end() ? known->second : media_[media_.size() < kMostMedia ? key : log::kWorld];
    medium.is_relayed = medium.is_relayed || (flags & log::kRelayed) != 0;
    medium.is_apart = medium.is_apart || (flags & log::kApart) != 0;
    return medium.uses[process];
}

void Media::note(uint32_t process, uint64_t key, uint64_t flags, Span when) {
    is_one_ = is_one_ || (flags & log::kOverflown) != 0;
    Use& use = use_of(process, key, flags);
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

bool Media::reaches(uint32_t from, uint64_t since_ns, uint32_t to, uint64_t until_ns) const {
    std::unordered_map<uint32_t, uint64_t> known{{from, since_ns}};   // by process: since when
    uint64_t world_ns = kNever;
    for (bool is_new = true; is_new;) {
        is_new = false;
        const auto first_ns = [&](const std::unordered_map<uint32_t, Use>& uses, Times Use::*times) {   // when one that knows it sends, or can write, first
            uint64_t least_ns = kNever;
            for (const auto& [process, use] : uses)
                if (const auto one = known.find(process); one != known.end()) least_ns = std::min(least_ns, (use.*times).first_since(one->second));
            return least_ns;
        };
        const auto hear = [&](const std::unordered_map<uint32_t, Use>& uses, uint64_t there_ns) {   // true: `to` does
            for (const auto& [process, use] : uses) {
                const uint64_t came_ns = use.received.first_since(there_ns);
                if (came_ns > until_ns) continue;
                if (process == to) return true;
                const auto [one, is_first] = known.emplace(process, came_ns);
                if (is_first || came_ns < one->second) {
                    one->second = came_ns;
                    is_new = true;
                }
            }
            return false;
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
    }
    return false;
}

}  // namespace peerlane::check
