// The analysis on logs that say anything: whatever they hold, it reads on or refuses, and takes no memory without bound.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "check/analysis.h"
#include "stream/operation.h"

using namespace peerlane;

namespace {

using log::Kind;
using log::Span;

constexpr uint64_t kCapacity = uint64_t{1} << 18;

class Folder {
  public:
    Folder() {
        char name[] = "/tmp/peerlane-check-XXXXXX";
        CHECK(mkdtemp(name) != nullptr);
        path = name;
    }
    ~Folder() {
        for (const auto& file : files) unlink(file.c_str());
        rmdir(path.c_str());
    }
    std::string file(unsigned number) {
        files.push_back(path + "/" + std::to_string(number) + ".log");
        return files.back();
    }

    std::string path;
    std::vector<std::string> files;
};

struct Bytes {
    std::vector<char> ring;

    void add(log::Head head, const std::vector<uint64_t>& words, const std::vector<Span>& spans) {
        const uint64_t length = sizeof head + words.size() * 8 + spans.size() * sizeof(Span);
        head.units = static_cast<uint32_t>((length + log::kUnit - 1) / log::kUnit);
        head.words = static_cast<uint8_t>(words.size());
        head.spans = static_cast<uint32_t>(spans.size());
        const size_t at = ring.size();
        ring.resize(at + head.units * log::kUnit);
        memcpy(ring.data() + at, &head, sizeof head);
        if (!words.empty()) memcpy(ring.data() + at + sizeof head, words.data(), words.size() * 8);
        if (!spans.empty()) memcpy(ring.data() + at + sizeof head + words.size() * 8, spans.data(), spans.size() * sizeof(Span));
    }
    void write(const std::string& path, int rank) const {
        std::vector<char> whole(log::kHeaderBytes + kCapacity);
        uint64_t header[8] = {log::kMagic, kCapacity, static_cast<uint64_t>(rank) << 32 | 77, 1, ring.size(), ring.size(), 0, 0};
        memcpy(whole.data(), header, sizeof header);
        memcpy(whole.data() + log::kHeaderBytes, ring.data(), std::min<size_t>(ring.size(), kCapacity));
        std::ofstream(path, std::ios::binary).write(whole.data(), static_cast<std::streamsize>(whole.size()));
    }
};

// Events of every kind whose numbers are small, so that they refer to one another often, or are anything.
Bytes random_log(std::mt19937_64& random, unsigned rank, unsigned events) {
    Bytes bytes;
    uint64_t time = 1000, sequence[4] = {};
    const auto below = [&](uint64_t limit) { return random() % limit; };
    const auto number = [&]() -> uint64_t {
        switch (below(12)) {
        case 0: return random();
        case 1: return UINT64_MAX - below(3);
        case 2: return uint64_t{1} << below(64);
        default: return below(6);
        }
    };
    for (unsigned i = 0; i < events; ++i) {
        log::Head head{};
        head.kind = static_cast<Kind>(1 + below(static_cast<uint64_t>(Kind::unwatched)));
        if (below(2) == 0) {
            constexpr Kind kOften[] = {Kind::access, Kind::notify, Kind::notified, Kind::notify_wait, Kind::notify_waited, Kind::sync, Kind::collective};
            head.kind = kOften[below(std::size(kOften))];
        }
        if (head.kind == Kind::gap && below(8) != 0) head.kind = Kind::access;
        head.flags = static_cast<uint8_t>(below(3) == 0 ? random() & ~uint64_t{log::kRows} : 0);
        head.op = static_cast<uint8_t>(below(15));
        head.site = static_cast<uint32_t>(below(9));
        head.thread = static_cast<uint32_t>(below(3) + rank * 10);
        head.repeats = static_cast<uint32_t>(below(4) == 0 ? number() : 1);
        head.time_ns = time += below(3) == 0 ? below(3'000'000'000) : 10;
        head.stream = below(4);
        head.sequence = below(5) == 0 ? number() : ++sequence[head.stream];
        std::vector<uint64_t> words(below(5));
        for (auto& word : words) word = number();
        if (head.kind == Kind::collective && words.size() == 4) words = {5, below(3) << 16 | below(11) << 8, below(2), uint64_t{2} << 32 | rank};
        std::vector<Span> spans(below(5));
        for (auto& span : spans) span = {number() | (below(2) != 0 ? Span::kWritten : 0), number(), below(3) == 0 ? number() : below(200)};
        bytes.add(head, words, spans);
        if (bytes.ring.size() > kCapacity - 512) break;
    }
    return bytes;
}

void analyse(Folder& folder, const std::vector<Bytes>& logs) {
    check::Analysis analysis(uint64_t{1} << 16);
    unsigned added = 0;
    for (unsigned rank = 0; rank < logs.size(); ++rank) {
        const std::string path = folder.path + "/" + std::to_string(rank) + ".log";
        logs[rank].write(path, static_cast<int>(rank));
        try {
            analysis.add(path, rank % 2 != 0);
            ++added;
        } catch (const log::BadLog&) {
        }
    }
    analysis.poll(5'000'000'000);
    if (added != 0) analysis.close(0);
    analysis.poll(UINT64_MAX);
    analysis.finish();
    for (const auto& finding : analysis.findings()) CHECK(finding.first.log < added && finding.second.log < added);
    CHECK(analysis.stats().actors < 100'000);
}

void test_random_events() {
    Folder folder;
    for (unsigned rank = 0; rank < 3; ++rank) folder.file(rank);
    for (uint64_t seed = 0; seed < static_cast<uint64_t>(scaled(600, 20000)); ++seed) {
        std::mt19937_64 random(seed);
        std::vector<Bytes> logs;
        for (unsigned rank = 0; rank < 3; ++rank) logs.push_back(random_log(random, rank, 20 + static_cast<unsigned>(random() % 300)));
        analyse(folder, logs);
    }
}

void test_changed_bytes() {
    Folder folder;
    for (unsigned rank = 0; rank < 2; ++rank) folder.file(rank);
    for (uint64_t seed = 0; seed < static_cast<uint64_t>(scaled(600, 20000)); ++seed) {
        std::mt19937_64 random(seed + 1'000'000);
        std::vector<Bytes> logs;
        for (unsigned rank = 0; rank < 2; ++rank) {
            logs.push_back(random_log(random, rank, 60));
            auto& ring = logs.back().ring;
            for (uint64_t i = random() % 8; i != 0; --i) ring[random() % ring.size()] = static_cast<char>(random());
        }
        analyse(folder, logs);
    }
}

// An interval map against one state for each byte.
void test_shadow() {
    for (uint64_t seed = 0; seed < static_cast<uint64_t>(scaled(10, 400)); ++seed) {
        std::mt19937_64 random(seed);
        check::Shadow shadow;
        constexpr uint64_t kBytes = 20000;
        std::vector<std::pair<uint32_t, uint32_t>> plain(kBytes);
        for (unsigned step = 0; step < 3000; ++step) {
            const uint64_t low = random() % kBytes, most = step % 50 == 0 ? kBytes : 16, high = std::min(kBytes, low + 1 + random() % most);
            const auto value = static_cast<uint32_t>(random() % 4);
            const bool is_write = random() % 2 != 0;
            uint64_t seen = low;
            shadow.update(low, high, [&](check::Cell& cell, uint64_t from, uint64_t to) {
                CHECK(from == seen && from < to && to <= high);
                CHECK(cell.write == plain[from].first && cell.read == plain[to - 1].second);
                seen = to;
                (is_write ? cell.write : cell.read) = value;
            });
            CHECK(seen == high);
            for (uint64_t i = low; i < high; ++i) (is_write ? plain[i].first : plain[i].second) = value;
            if (step % 500 == 499)
                shadow.change_all([](check::Cell& cell) { cell.read = cell.read == 3 ? 0 : cell.read; });
            if (step % 500 == 499)
                for (auto& [write, read] : plain) read = read == 3 ? 0 : read;
        }
        uint64_t cells = 0, at = 0;
        shadow.each(0, check::Shadow::kEnd, [&](const check::Cell& cell, uint64_t from, uint64_t to) {
            CHECK(from == at);
            at = to;
            ++cells;
            for (uint64_t i = from; i < std::min(to, kBytes); ++i) CHECK(cell.write == plain[i].first && cell.read == plain[i].second);
        });
        CHECK(at == check::Shadow::kEnd && cells == shadow.cells());
    }
}

// Hours of one pattern: what is kept does not grow.
void test_compaction() {
    Folder folder;
    const std::string path = folder.file(0);
    check::Analysis analysis;
    Bytes first;
    first.write(path, 0);
    analysis.add(path, true);
    // The log's ring goes round; its reader gives the pages back.
    uint64_t head = 0, time = 1000, sequence = 0;
    std::mt19937_64 random(1);
    const int file = open(path.c_str(), O_RDWR);
    CHECK(file >= 0);
    uint64_t most = 0;
    const unsigned rounds = static_cast<unsigned>(scaled(5000, 50000));
    for (unsigned round = 0; round < rounds; ++round) {
        Bytes part;
        const uint64_t stream = 1 + round / 100;   // streams come and go
        if (round % 100 == 0) sequence = 0;
        for (unsigned i = 0; i < 500; ++i) {
            log::Head access{.kind = Kind::access, .op = static_cast<uint8_t>(OpKind::fill), .site = i % 5, .thread = 7, .repeats = 1,
                             .time_ns = time += 100, .stream = stream, .sequence = ++sequence};
            part.add(access, {}, {{1 | Span::kWritten, random() % 4096 * 8, 8}});
        }
        log::Head sync{.kind = Kind::sync, .thread = 7, .repeats = 1, .time_ns = time += 100, .stream = stream, .sequence = sequence};
        part.add(sync, {}, {});
        if (round % 100 == 99) part.add({.kind = Kind::stream_ended, .thread = 7, .repeats = 1, .time_ns = time, .stream = stream}, {}, {});
        const uint64_t left = kCapacity - head % kCapacity;
        if (left < part.ring.size()) {
            const log::Head pad{.units = static_cast<uint32_t>(left / log::kUnit), .kind = Kind::pad};
            CHECK(pwrite(file, &pad, 8, static_cast<off_t>(log::kHeaderBytes + head % kCapacity)) == 8);
            head += left;
        }
        CHECK(pwrite(file, part.ring.data(), part.ring.size(), static_cast<off_t>(log::kHeaderBytes + head % kCapacity)) ==
              static_cast<ssize_t>(part.ring.size()));
        head += part.ring.size();
        const uint64_t counts[2] = {head, head};
        CHECK(pwrite(file, counts, sizeof counts, offsetof(log::Header, head)) == sizeof counts);
        analysis.poll(UINT64_MAX);
        most = std::max(most, analysis.stats().accesses);
    }
    close(file);
    const check::Stats stats = analysis.stats();
    CHECK(stats.events > uint64_t{rounds} * 500 && analysis.findings().empty());
    CHECK(stats.compactions >= 1 || rounds < 5000);
    CHECK(most <= (uint64_t{1} << 21) + 100'000 && stats.cells <= 10'000 && stats.actors < 200);
}

}  // namespace

NATIVE_TEST(test_check) {
    RUN(test_shadow());
    RUN(test_random_events());
    RUN(test_changed_bytes());
    RUN(test_compaction());
    return 0;
}
