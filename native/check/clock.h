// What an actor knows of the others: for each of them how much of it has happened before.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace peerlane::check {

// A thread, a stream, a delivery (the writes of one stream to one channel), or the loose operations of a channel.
using Actor = uint32_t;

struct Known {
    Actor actor;
    uint32_t via;      // the edge that first brought it out of its actor; 0: it has not left it yet; with kCause: the finding that lacks it
    uint64_t number;
};
// Of `via`: the order was assumed, because the finding with the number in the other bits reports that it is missing.
constexpr uint32_t kCause = uint32_t{1} << 31, kByChance = uint32_t{1} << 30;

// A version is shared until somebody changes it.  One thread uses all clocks.
class Clock {
  public:
    Clock() = default;
    Clock(const Clock& other) : version_(other.version_) {
        if (version_) ++version_->holders;
    }
    Clock(Clock&& other) noexcept : version_(std::exchange(other.version_, nullptr)) {}
    Clock& operator=(Clock other) noexcept {
        std::swap(version_, other.version_);
        return *this;
    }
    ~Clock() {
        if (version_ && --version_->holders == 0) delete version_;
    }

    const Known* begin() const { return version_ ? version_->known.data() : nullptr; }
    const Known* end() const { return version_ ? version_->known.data() + version_->known.size() : nullptr; }
    bool is_same(const Clock& other) const { return version_ == other.version_; }
    const void* identity() const { return version_; }

    const Known* find(Actor actor) const {
        const Known* const at = position_of(actor);
        return at != end() && at->actor == actor ? at : nullptr;
    }
    uint64_t of(Actor actor) const {
        const Known* const known = find(actor);
        return known ? known->number : 0;
    }

    void set(Actor actor, uint64_t number, uint32_t via) {
        const Known* const known = find(actor);
        if (known && known->number >= number) return;
        const auto at = position_of(actor) - begin();
        auto& all = own();
        if (known)
            all[static_cast<size_t>(at)] = {actor, via, number};
        else
            all.insert(all.begin() + at, {actor, via, number});
    }

    // `via` is for what has not left its actor yet; with kCause for all that no other finding explains.
    void join(const Clock& other, uint32_t via) {
        if (is_same(other) || knows(other)) return;
        std::vector<Known> both;
        both.reserve(static_cast<size_t>((end() - begin()) + (other.end() - other.begin())));
        const Known* mine = begin();
        const auto take = [&](const Known& known) { both.push_back({known.actor, (via & kCause ? known.via & kCause : known.via) ? known.via : via, known.number}); };
        for (const Known& theirs : other) {
            for (; mine != end() && mine->actor < theirs.actor; ++mine) both.push_back(*mine);
            if (mine == end() || mine->actor != theirs.actor) {
                take(theirs);
            } else if (mine->number < theirs.number) {
                take(theirs);
                ++mine;
            } else {
                both.push_back(*mine++);
            }
        }
        both.insert(both.end(), mine, end());
        *this = Clock(std::move(both));
    }

    bool knows(const Clock& other) const {
        if (is_same(other)) return true;
        const Known* mine = begin();
        for (const Known& theirs : other) {
            while (mine != end() && mine->actor < theirs.actor) ++mine;
            if (mine == end() || mine->actor != theirs.actor || mine->number < theirs.number) return false;
        }
        return true;
    }

    template <class Keep>
    Clock filtered(const Keep& keep) const {
        std::vector<Known> left;
        for (const Known& known : *this)
            if (keep(known.actor)) left.push_back(known);
        return Clock(std::move(left));
    }

  private:
    struct Version {
        uint32_t holders = 1;
        std::vector<Known> known;   // by actor
    };

    explicit Clock(std::vector<Known>&& known) : version_(new Version{1, std::move(known)}) {}

    const Known* position_of(Actor actor) const {
        return std::lower_bound(begin(), end(), actor, [](const Known& known, Actor wanted) { return known.actor < wanted; });
    }
    std::vector<Known>& own() {
        if (!version_) version_ = new Version;
        if (version_->holders > 1) {
            auto* const copy = new Version{1, version_->known};
            --version_->holders;
            version_ = copy;
        }
        return version_->known;
    }

    Version* version_ = nullptr;
};

constexpr uint32_t kByThreads = uint32_t{1} << 31;

// What comes before: by promise, and also by what merely happened where that is more.
struct Past {
    Clock sure;
    Clock wide;              // all of it, if `has_more`
    bool has_more = false;
    // By log: until when what its process may know came along, by whatever means that process had it.  With kByThreads: until when its threads may have
    // passed on what any of them knew.  It orders nothing.
    Clock heard;

    const Clock& all() const { return has_more ? wide : sure; }

    void set(Actor actor, uint64_t number, uint32_t via) {
        sure.set(actor, number, via);
        if (has_more) wide.set(actor, number, via);
    }
    void join(const Past& other, uint32_t via) {
        if (has_more || other.has_more) {
            if (!has_more) wide = sure;
            has_more = true;
            wide.join(other.all(), via);
        }
        sure.join(other.sure, via);
        heard.join(other.heard, 0);
        if (has_more && sure.knows(wide)) {
            wide = Clock();
            has_more = false;
        }
    }
    // It happened so, or should have, and nobody may rely on it.
    void join_by_chance(const Past& other, uint32_t via) {
        if (!has_more) wide = sure;
        has_more = true;
        wide.join(other.all(), via);
        if (!sure.knows(wide)) return;
        wide = Clock();
        has_more = false;
    }
    bool is_same(const Past& other) const { return is_same_order(other) && heard.is_same(other.heard); }
    bool is_same_order(const Past& other) const {
        return sure.is_same(other.sure) && has_more == other.has_more && (!has_more || wide.is_same(other.wide));
    }
};

}  // namespace peerlane::check
