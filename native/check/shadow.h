// Who touched which bytes of a block last: an interval map.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace peerlane::check {

// The bytes from `first` up to the next cell.
struct Cell {
    static constexpr uint32_t kUnwritten = uint32_t{1} << 31;   // of `write`: what lies there was never written
    static constexpr uint32_t kAccess = ~kUnwritten;   // the access's number
    static constexpr uint32_t kSet = uint32_t{1} << 31;         // of `read`: the number of a set of accesses

    uint64_t first;
    uint32_t write;   // the access that wrote last; 0: none that matters
    uint32_t read;    // the access that read since then, or a set of them; 0: none

    bool has_state_of(const Cell& other) const { return write == other.write && read == other.read; }
};

// A tree of three levels: a map of nodes, each of which has chunks, each of which has neighbouring cells.
class Shadow {
  public:
    static constexpr uint64_t kEnd = uint64_t{1} << 62;   // no byte of a block lies beyond

    Shadow() { nodes_.emplace(0, Node{{0}, {{Cell{0, 0, 0}}}}); }

    uint64_t cells() const { return cells_; }

    // Lets `change(cell, from, to)` change the state of each cell between `low` and `high`, cut to fit.
    template <class Change>
    void update(uint64_t low, uint64_t high, const Change& change) {
        if (low >= high || high > kEnd) return;
        while (low < high) {
            const Position position = find(low);
            const uint64_t end = std::min(high, end_of(position));
            update_in(position, low, end, change);
            low = end;
        }
    }

    template <class Visit>
    void each(uint64_t low, uint64_t high, const Visit& visit) const {
        if (low >= high || high > kEnd) return;
        auto node = std::prev(nodes_.upper_bound(low));
        for (; node != nodes_.end() && node->first < high; ++node) {
            const Node& content = node->second;
            const uint64_t node_end = std::next(node) == nodes_.end() ? kEnd : std::next(node)->first;
            for (size_t i = content.find(low); i < content.firsts.size() && content.firsts[i] < high; ++i) {
                const auto& cells = content.chunks[i];
                const uint64_t chunk_end = i + 1 < content.firsts.size() ? content.firsts[i + 1] : node_end;
                for (size_t k = cell_at(cells, low); k < cells.size() && cells[k].first < high; ++k)
                    visit(cells[k], std::max(cells[k].first, low), std::min(high, k + 1 < cells.size() ? cells[k + 1].first : chunk_end));
            }
        }
    }

    // Changes every cell, in order, and joins those that are alike.
    template <class Change>
    void change_all(const Change& change) {
        Nodes all;
        all.swap(nodes_);
        cells_ = 0;
        std::vector<Cell> chunk;
        Cell last{0, 0, 0};
        bool is_first = true;
        for (auto& [first, node] : all) {
            for (auto& cells : node.chunks) {
                for (Cell cell : cells) {
                    change(cell);
                    if (!is_first && last.has_state_of(cell)) continue;
                    is_first = false;
                    last = cell;
                    chunk.push_back(cell);
                    if (chunk.size() == kMost / 2) append(chunk);
                }
                std::vector<Cell>().swap(cells);
            }
        }
        if (!chunk.empty()) append(chunk);
    }

  private:
    static constexpr size_t kMost = 128;   // cells of a chunk, chunks of a node

    struct Node {
        std::vector<uint64_t> firsts;   // of the chunks
        std::vector<std::vector<Cell>> chunks;

        size_t find(uint64_t at) const {
            const auto position = std::upper_bound(firsts.begin(), firsts.end(), at);
            return position == firsts.begin() ? 0 : static_cast<size_t>(position - firsts.begin()) - 1;
        }
    };
    using Nodes = std::map<uint64_t, Node>;
    struct Position {
        Nodes::iterator node;
        size_t chunk;
    };

    static size_t cell_at(const std::vector<Cell>& cells, uint64_t at) {
        const auto position = std::upper_bound(cells.begin(), cells.end(), at, [](uint64_t wanted, const Cell& cell) { return wanted < cell.first; });
        return position == cells.begin() ? 0 : static_cast<size_t>(position - cells.begin()) - 1;
    }

    Position find(uint64_t at) {
        const auto node = std::prev(nodes_.upper_bound(at));
        return {node, node->second.find(at)};
    }
    uint64_t end_of(const Position& position) const {
        const auto& firsts = position.node->second.firsts;
        if (position.chunk + 1 < firsts.size()) return firsts[position.chunk + 1];
        return std::next(position.node) == nodes_.end() ? kEnd : std::next(position.node)->first;
    }

    void append(std::vector<Cell>& chunk) {
        if (nodes_.empty() || nodes_.rbegin()->second.firsts.size() >= kMost / 2) nodes_.emplace_hint(nodes_.end(), chunk.front().first, Node{});
        Node& node = nodes_.rbegin()->second;
        node.firsts.push_back(chunk.front().first);
        node.chunks.emplace_back(chunk.begin(), chunk.end());
        cells_ += chunk.size();
        chunk.clear();
    }

    // Both bounds lie in the chunk.
    template <class Change>
    void update_in(const Position& position, uint64_t low, uint64_t high, const Change& change) {
        auto& cells = position.node->second.chunks[position.chunk];
        const uint64_t chunk_end = end_of(position);
        const auto end_of_cell = [&](size_t k) { return k + 1 < cells.size() ? cells[k + 1].first : chunk_end; };
        new_cells_.clear();
        const auto add = [&](const Cell& cell) {
            if (new_cells_.empty() || !new_cells_.back().has_state_of(cell)) new_cells_.push_back(cell);
        };
        size_t begin = cell_at(cells, low), k = begin;
        if (cells[begin].first < low)
            add(cells[begin]);
        else if (begin != 0)
            add(cells[--begin]);
        for (; k < cells.size() && cells[k].first < high; ++k) {
            Cell cell = cells[k];
            cell.first = std::max(cell.first, low);
            change(cell, cell.first, std::min(high, end_of_cell(k)));
            add(cell);
        }
        const Cell& last = cells[k - 1];
        if (end_of_cell(k - 1) > high)
            add({high, last.write, last.read});
        else if (k < cells.size())
            add(cells[k++]);

        const size_t old = k - begin;
        cells_ += new_cells_.size();
        cells_ -= old;
        const auto at = cells.begin() + static_cast<std::ptrdiff_t>(begin);
        const size_t common = std::min(old, new_cells_.size());
        std::copy_n(new_cells_.begin(), common, at);
        if (old > common)
            cells.erase(at + static_cast<std::ptrdiff_t>(common), at + static_cast<std::ptrdiff_t>(old));
        else
            cells.insert(at + static_cast<std::ptrdiff_t>(common), new_cells_.begin() + static_cast<std::ptrdiff_t>(common), new_cells_.end());
        if (cells.size() >= kMost)
            split(position);
        else if (cells.size() == 1)
            drop_if_alike(position);
    }

    void split(const Position& position) {
        Node& node = position.node->second;
        auto& cells = node.chunks[position.chunk];
        const auto half = cells.begin() + kMost / 2;
        std::vector<Cell> upper(half, cells.end());
        cells.erase(half, cells.end());
        const auto after = static_cast<std::ptrdiff_t>(position.chunk + 1);
        node.firsts.insert(node.firsts.begin() + after, upper.front().first);
        node.chunks.insert(node.chunks.begin() + after, std::move(upper));
        if (node.firsts.size() < kMost) return;
        constexpr auto middle = static_cast<std::ptrdiff_t>(kMost / 2);
        Node rest;
        rest.firsts.assign(node.firsts.begin() + middle, node.firsts.end());
        rest.chunks.assign(std::make_move_iterator(node.chunks.begin() + middle), std::make_move_iterator(node.chunks.end()));
        node.firsts.resize(kMost / 2);
        node.chunks.resize(kMost / 2);
        const uint64_t first = rest.firsts.front();
        nodes_.emplace_hint(std::next(position.node), first, std::move(rest));
    }

    // A chunk that says the same as the end of the one before it is not needed.
    void drop_if_alike(const Position& position) {
        Node& node = position.node->second;
        const Cell& only = node.chunks[position.chunk].front();
        if (position.chunk == 0 && position.node == nodes_.begin()) return;
        const auto& before = position.chunk != 0 ? node.chunks[position.chunk - 1] : std::prev(position.node)->second.chunks.back();
        if (!before.back().has_state_of(only)) return;
        --cells_;
        if (node.firsts.size() == 1) {
            nodes_.erase(position.node);
            return;
        }
        // The node begins where its first chunk begins.
        if (position.chunk == 0) {
            auto rest = nodes_.extract(position.node);
            rest.mapped().firsts.erase(rest.mapped().firsts.begin());
            rest.mapped().chunks.erase(rest.mapped().chunks.begin());
            rest.key() = rest.mapped().firsts.front();
            nodes_.insert(std::move(rest));
            return;
        }
        node.firsts.erase(node.firsts.begin() + static_cast<std::ptrdiff_t>(position.chunk));
        node.chunks.erase(node.chunks.begin() + static_cast<std::ptrdiff_t>(position.chunk));
    }

    Nodes nodes_;
    std::vector<Cell> new_cells_;
    uint64_t cells_ = 1;
};

}  // namespace peerlane::check
