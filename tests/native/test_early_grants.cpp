// Early grants: a process that has opened two things opens the next without its exporter's help, and no promise changes.
#include <set>

#include "peer_roles.h"
#include "share/early_grants.h"

using namespace peers;

namespace {

const std::string kName = "node.0.sock";

std::vector<std::string> words_of(const SocketDirectory& socket_directory, pid_t exporter = getpid()) {
    return importer_words(socket_directory, kName, kNode, exporter);
}

// An importer that has the page: it has opened two things, and let them go.
struct Known {
    Child peer;
    explicit Known(const SocketDirectory& socket_directory) : peer("importer", words_of(socket_directory)) {
        for (int i = 0; i < 2; ++i) {
            const Shared shared;
            CHECK(peer.ask("open " + shared.words()) == "ok 0" && peer.ask("go " + shared.words()) == "ok");
            CHECK(comes_true([&] { return shared.importers() == 0; }));
            shared.abandon();
        }
    }
};

struct Listed : Shared {   // for one process
    explicit Listed(pid_t pid, uint16_t rights = kMayRead | kMayWrite) : Shared(4096, rights, Kind::memory, false) { CHECK(allow(pid)); }
};

// Not a question to the broker: its process is stopped.
void a_stopped_exporter_is_not_asked() {
    const SocketDirectory socket_directory;
    Child exporter("exporter", {socket_directory.path, kName});
    const std::string first = exporter.ask("offer 1");
    Child peer("importer", words_of(socket_directory, exporter.pid));
    for (int i = 0; i < 2; ++i) CHECK(peer.ask("open " + first) == "ok 1");
    const std::string granted = exporter.ask("grant 7 " + std::to_string(peer.pid));
    const std::string of_another = exporter.ask("grant 8 1");
    exporter.stop();
    CHECK(peer.ask("open " + granted) == "ok 7" && peer.ask("within 0.2") == "ok");
    // Each grant is for one opening, and for those that are listed.
    for (const std::string& other : {granted, of_another})
        CHECK(peer.ask("open " + other).starts_with("refused " + std::to_string(static_cast<int>(Why::handle_timeout)) + " "));
    CHECK(peer.ask("within 60") == "ok");
    kill(exporter.pid, SIGCONT);
    CHECK(exporter.ask("importers " + granted) == "1" && is_refused(peer.ask("open " + of_another), Status::not_listed));
    CHECK(exporter.ask("abandon " + granted) == "ok" && exporter.ask("gone") == "0");
    CHECK(peer.ask("go " + granted) == "ok" && comes_true([&] { return exporter.ask("gone") == "1"; }));
    // A dead exporter's grants open nothing.
    const std::string late = exporter.ask("grant 9 " + std::to_string(peer.pid));
    exporter.kill_now();
    CHECK(comes_true([&] { return is_lost(peer.ask("open " + late)); }));
    peer.finish();
}

void importers_are_counted_before_they_answer(const SocketDirectory& socket_directory) {
    Known known(socket_directory);
    for (const uint16_t rights : {uint16_t{kMayRead}, uint16_t{kMayRead | kMayWrite}}) {
        const Listed shared(known.peer.pid, rights);
        CHECK(shared.importers() == 0);
        CHECK(known.peer.ask("open " + shared.words()) == "ok 0" && shared.importers() == 1);
        CHECK(known.peer.ask("open " + shared.words()) == "ok 0" && shared.importers() == 1);   // that was asked for
        CHECK(known.peer.ask("go " + shared.words()) == "ok" && shared.importers() == 1);
        shared.abandon();
        CHECK(*shared.gone == 0 && known.peer.ask("go " + shared.words()) == "ok");
        CHECK(comes_true([&] { return *shared.gone == 1; }));
    }
    const Listed brief(known.peer.pid), event(known.peer.pid);
    CHECK(known.peer.ask("open " + std::to_string(brief.key.index) + " " + std::to_string(brief.key.nonce & kShortNonce) + " 28") == "ok 0");
    CHECK(is_refused(known.peer.ask("open " + event.words() + " 64 3"), Status::wrong_kind));
    CHECK(brief.importers() == 1 && event.importers() == 0);
    known.peer.kill_now();
    CHECK(comes_true([&] { return brief.importers() == 0; }));
    for (const Shared* each : {static_cast<const Shared*>(&brief), static_cast<const Shared*>(&event)}) {
        each->abandon();
        CHECK(*each->gone == 1);
    }
}

// A grant that the exporter has not counted is released in the page, and one that it has counted by a message.
void early_release_needs_no_message() {
    const SocketDirectory socket_directory;
    Child exporter("exporter", {socket_directory.path, kName});
    const std::string first = exporter.ask("offer 1");
    Child peer("importer", words_of(socket_directory, exporter.pid));
    for (int i = 0; i < 2; ++i) CHECK(peer.ask("open " + first) == "ok 1");
    const std::string granted = exporter.ask("grant 7 " + std::to_string(peer.pid)), counted = exporter.ask("grant 8 " + std::to_string(peer.pid));
    CHECK(peer.ask("open " + counted) == "ok 8" && exporter.ask("importers " + counted) == "1");
    CHECK(peer.ask("open " + granted) == "ok 7" && peer.ask("go " + granted) == "ok");
    CHECK(exporter.ask("importers " + granted) == "0" && exporter.ask("abandon " + granted) == "ok" && exporter.ask("gone") == "1");
    // The exporter has counted this one, and keeps it until a message comes.
    CHECK(exporter.ask("abandon " + counted) == "ok" && exporter.ask("gone") == "1");
    CHECK(peer.ask("go " + counted) == "ok" && comes_true([&] { return exporter.ask("gone") == "2"; }));
    peer.finish();
    exporter.kill_now();
}

void what_ended_is_refused(const SocketDirectory& socket_directory) {
    Known known(socket_directory);
    const Listed withdrawn(known.peer.pid), abandoned(known.peer.pid), unlisted(known.peer.pid), reused(known.peer.pid);
    withdrawn.withdraw();
    abandoned.abandon();
    CHECK(*withdrawn.gone == 1 && *abandoned.gone == 1);   // nobody has it
    CHECK(broker().disallow(unlisted.key.index, unlisted.key.nonce, known.peer.pid));
    CHECK(broker().allow(reused.key.index, reused.key.nonce, known.peer.pid, 1));
    CHECK(is_refused(known.peer.ask("open " + withdrawn.words()), Status::stale));
    CHECK(is_refused(known.peer.ask("open " + abandoned.words()), Status::stale));
    CHECK(is_refused(known.peer.ask("open " + unlisted.words()), Status::not_listed));
    CHECK(is_refused(known.peer.ask("open " + reused.words()), Status::pid_reused));
    for (const Shared* each : {static_cast<const Shared*>(&unlisted), static_cast<const Shared*>(&reused)}) {
        each->abandon();
        CHECK(*each->gone == 1);
    }
    // More than the page has records for, the newest first; then all records are free again.
    for (int round = 0; round < 2; ++round) {
        std::vector<std::unique_ptr<Listed>> all;
        for (uint64_t i = 0; i < 2 * GrantPage::kRecords; ++i) {
            all.push_back(std::make_unique<Listed>(known.peer.pid));
            all.back()->write(i);
        }
        for (uint64_t i = all.size(); i-- > 0;) CHECK(known.peer.ask("open " + all[i]->words()) == "ok " + std::to_string(i));
        for (auto& each : all) {
            CHECK(each->importers() == 1 && known.peer.ask("go " + each->words()) == "ok");
            each->abandon();
            CHECK(comes_true([&] { return *each->gone == 1; }));
        }
    }
    known.peer.finish();
}

// One process takes grants and releases some, while the other takes them back: each grant goes to one of them, and what is
// released was not counted.
void both_sides_take_at_once() {
    int fd = -1;
    const auto page = GrantPage::make(fd);
    CHECK(page && GrantPage::is_page(fd));
    EarlyGrants early(GrantPage::map(fd));
    close(fd);
    const uint32_t rounds = static_cast<uint32_t>(scaled(20'000, 1'000'000));
    std::atomic<uint32_t> newest{0};
    std::atomic<bool> over{false};
    std::set<uint64_t> got, counted;
    std::thread importer([&] {
        while (!over) {
            const uint32_t n = newest;
            if (const auto grant = page->take(n % 7, n, 64, Kind::memory)) {
                CHECK(grant->grant.size == n && grant->grant.block == ~uint64_t{n} && grant->exporter_fd == static_cast<int>(n % 5) && grant->inode == n);
                if (n % 2 != 0 || !page->release(grant->taken)) CHECK(got.insert(n).second);
                CHECK(n % 2 != 0 || !page->release(grant->taken));   // at most once
            }
        }
    });
    for (uint32_t n = 1; n <= rounds; ++n) {
        CHECK(early.offer({n % 7, n}, {.block = ~uint64_t{n}, .size = n}, static_cast<int>(n % 5), n));
        newest = n;
        if (n % 3 == 0) std::this_thread::yield();
        early.take_back(n % 7, [&](uint32_t, bool has_it) { CHECK(!has_it || counted.insert(n).second); });
        CHECK(early.is_empty());
    }
    over = true;
    importer.join();
    CHECK(got == counted);
}

// The other process may write anything into the page.
void a_scribbled_page_hurts_nobody(std::mt19937_64& random) {
    int fd = -1;
    const auto page = GrantPage::make(fd);
    auto* words = static_cast<uint64_t*>(mmap(nullptr, GrantPage::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    CHECK(page && words != MAP_FAILED && ftruncate(fd, 0) != 0);
    {
        EarlyGrants early(GrantPage::map(fd));
        for (int round = 0; round < scaled(2'000, 200'000); ++round) {
            for (uint32_t i = 0; i < 8; ++i) early.offer({i, 100 + i}, {.size = 4096}, 3, 0);
            for (int n = 0; n < 20; ++n) words[random() % (GrantPage::kBytes / 8)] = random() >> random() % 64;
            uint32_t taken = 0;
            const auto count = [&](uint32_t index, bool) { CHECK(index < 8 && ++taken <= 8); };
            early.look(count);
            const auto grant = page->take(static_cast<uint32_t>(random() % 8), 100 + random() % 8, 64, Kind::memory);
            if (grant && random() % 2) (void)page->release(grant->taken);
            for (uint32_t i = 0; i < 8; ++i) early.take_back(i, count);
            CHECK(early.is_empty());
        }
    }
    munmap(words, GrantPage::kBytes);
    close(fd);
}

void all_of_it() {
    auto random = seeded("test_early_grants");
    RUN(a_stopped_exporter_is_not_asked());
    RUN(early_release_needs_no_message());
    RUN(both_sides_take_at_once());
    RUN(a_scribbled_page_hurts_nobody(random));
    const SocketDirectory socket_directory;
    broker().open(socket_directory.fd, kName, 0, kNode);
    const int before = descriptors_open();
    RUN(importers_are_counted_before_they_answer(socket_directory));
    RUN(what_ended_is_refused(socket_directory));
    CHECK(comes_true([&] { return descriptors_open() == before; }));
    broker().close();
}

}  // namespace

NATIVE_TEST(test_early_grants) {
    return play(argc, argv, {}, all_of_it);
}
