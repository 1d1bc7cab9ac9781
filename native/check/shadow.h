// Who touched which bytes of a block last: an interval map.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace peerlane::check {

// The bytes from `first` up to the next cell.
struct Cell {
    static constexpr uint32_t kUnwritten = uint32_t{1} << 31;   // of `write`: what lies there was never written
    static constexpr uint32_t kSet = uint32_t{1} << 31;         // of `read`: the number of a set of accesses

    uint64_t first;
    uint32_t write;   // the access that wrote last; 0: none that matters
    uint32_t read;    // the access that read since then, or a set of them; 0: none

    bool has_state_of(const Cell& other) const { return write == other.write && read == other.read; }
};

class Shadow {
  public:
    static constexpr uint64_t kEnd = uint64_t{1} << 62;   // no byte of a block lies beyond

    Shadow() { chunks_.emplace(0, std::vector<Cell>{{0, 0, 0}}); }

    uint64_t cells() const { return cells_; }

    // Lets `change(cell, from, to)` change the state of each cell between `low` and `high`, cut to fit.
    template <class Change>
    void update(uint64_t low, uint64_t high, const Change& change) {
        if (low >= high || high > kEnd) return;
        cut(low);
        cut(high);
        auto chunk = chunk_of(low);
        while (chunk != chunks_.end() && chunk->first < high) {
            auto& cells = chunk->second;
            const auto after = std::next(chunk);
            const uint64_t chunk_end = after == chunks_.end() ? kEnd : after->first;
            const auto lowest = [](const Cell& cell, uint64_t at) { return cell.first < at; };
            size_t i = chunk->first >= low ? 0 : static_cast<size_t>(std::lower_bound(cells.begin(), cells.end(), low, lowest) - cells.begin());
            size_t kept = i;   // neighbours of one state become one cell
            size_t next = i;
            for (; next < cells.size() && cells[next].first < high; ++next) {
                Cell cell = cells[next];
                change(cell, cell.first, next + 1 < cells.size() ? cells[next + 1].first : chunk_end);
                if (kept != 0 && cells[kept - 1].has_state_of(cell)) continue;
                cells[kept++] = cell;
            }
            if (next < cells.size() && kept != 0 && cells[kept - 1].has_state_of(cells[next])) ++next;
            if (kept != next) {
                cells_ -= next - kept;
                cells.erase(cells.begin() + static_cast<std::ptrdiff_t>(kept), cells.begin() + static_cast<std::ptrdiff_t>(next));
            }
            // A chunk that says the same as the end of the one before it is not needed.
            if (cells.size() == 1 && chunk != chunks_.begin() && std::prev(chunk)->second.back().has_state_of(cells[0])) {
                --cells_;
                chunks_.erase(chunk);
            }
            chunk = after;
        }
    }

    template <class Visit>
    void each(uint64_t low, uint64_t high, const Visit& visit) const {
        if (low >= high || high > kEnd) return;
        auto chunk = std::prev(chunks_.upper_bound(low));
        for (; chunk != chunks_.end() && chunk->first < high; ++chunk) {
            const auto& cells = chunk->second;
            const auto after = std::next(chunk);
            const uint64_t chunk_end = after == chunks_.end() ? kEnd : after->first;
            auto at = std::upper_bound(cells.begin(), cells.end(), low, [](uint64_t wanted, const Cell& cell) { return wanted < cell.first; });
            for (at = at == cells.begin() ? at : std::prev(at); at != cells.end() && at->first < high; ++at)
                visit(*at, std::max(at->first, low), std::min(high, std::next(at) == cells.end() ? chunk_end : std::next(at)->first));
        }
    }

    // Changes every cell, in order, and joins those that are alike.
    template <class Change>
    void change_all(const Change& change) {
        cells_ = 0;
        const std::vector<Cell>* before = nullptr;
        for (auto chunk = chunks_.begin(); chunk != chunks_.end();) {
            auto& cells = chunk->second;
            size_t kept = 0;
            for (Cell cell : cells) {
                change(cell);
                if (kept == 0 || !cells[kept - 1].has_state_of(cell)) cells[kept++] = cell;
            }
            cells.resize(kept);
            if (kept < cells.capacity() / 2) cells.shrink_to_fit();
            if (kept == 1 && before && before->back().has_state_of(cells[0])) {
                chunk = chunks_.erase(chunk);
                continue;
            }
            cells_ += kept;
            before = &cells;
            ++chunk;
        }
    }

  private:
    static constexpr size_t kMost = 128;   // cells of a chunk
    using Chunks = std::map<uint64_t, std::vector<Cell>>;

    Chunks::iterator chunk_of(uint64_t at) { return std::prev(chunks_.upper_bound(at)); }

    // Makes a cell begin at `at`.
    void cut(uint64_t at) {
        if (at >= kEnd) return;
        const auto chunk = chunk_of(at);
        auto& cells = chunk->second;
        const auto place = std::lower_bound(cells.begin(), cells.end(), at, [](const Cell& cell, uint64_t wanted) { return cell.first < wanted; });
        if (place != cells.end() && place->first == at) return;
        Cell part = *std::prev(place);
        part.first = at;
        cells.insert(place, part);
        ++cells_;
        if (cells.size() < kMost) return;
        const auto half = cells.begin() + kMost / 2;
        std::vector<Cell> upper(half, cells.end());
        cells.erase(half, cells.end());
        const uint64_t first = upper.front().first;
        chunks_.emplace_hint(std::next(chunk), first, std::move(upper));
    }

    Chunks chunks_;
    uint64_t cells_ = 1;
};

}  // namespace peerlane::check
