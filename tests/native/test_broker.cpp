// The broker hands out descriptors: open, let go, abandon and withdraw in every order, rights, kinds, many at a time.
#include "peer_roles.h"

using namespace peers;

namespace {

const std::string kName = "node.0.sock";

std::vector<std::string> words_of_this_process(const SocketDirectory& socket_directory) { return importer_words(socket_directory, kName, kNode, getpid()); }

void opens_and_releases_of_one_importer_are_counted(const SocketDirectory& socket_directory) {
    broker().open(socket_directory.fd, kName, 0, kNode);   // idempotent
    CHECK(refuses(Why::closed, [&] { broker().open(socket_directory.fd, "other.sock", 1, kNode); }));
    const Shared shared;
    shared.write(4711);
    Child peer("importer", words_of_this_process(socket_directory));
    CHECK(shared.importers() == 0);
    CHECK(peer.ask("open " + shared.words()) == "ok 4711");
    CHECK(shared.importers() == 1);
    CHECK(peer.ask("open " + shared.words()) == "ok 4711" && shared.importers() == 1);   // twice by one process
    CHECK(peer.ask("go " + shared.words()) == "ok");
    CHECK(peer.ask("open " + shared.words()) == "ok 4711");
    CHECK(shared.importers() == 1);
    for (int i = 0; i < 5; ++i) CHECK(peer.ask("go " + shared.words()) == "ok");   // more often than it was opened
    CHECK(comes_true([&] { return shared.importers() == 0; }) && *shared.gone == 0);
    // The short form of the nonce works too.
    const std::string brief = std::to_string(shared.key.index) + " " + std::to_string(shared.key.nonce & kShortNonce);
    CHECK(peer.ask("open " + brief + " 28") == "ok 4711" && shared.importers() == 1);
    CHECK(peer.ask("go " + brief) == "ok" && comes_true([&] { return shared.importers() == 0; }));
    CHECK(peer.ask("open " + shared.words()) == "ok 4711" && peer.ask("leave") == "ok");   // the connection ends
    CHECK(comes_true([&] { return shared.importers() == 0; }));
    peer.finish();
    shared.abandon();
    CHECK(*shared.gone == 1);
}

// The steps of an owner and of two importers, in every order; `gone` is called once, after the last release.
void releases_in_every_order_end_the_export_once(const SocketDirectory& socket_directory) {
    Child one("importer", words_of_this_process(socket_directory)), two("importer", words_of_this_process(socket_directory));
    std::vector<int> steps{0, 1, 2, 3};   // abandon or withdraw, one lets go, two lets go, one opens again
    do {
        for (const bool withdraw : {false, true}) {
            const Shared shared;
            CHECK(one.ask("open " + shared.words()) == "ok 0" && two.ask("open " + shared.words()) == "ok 0");
            int held[2] = {1, 1};
            bool ended = false;
            for (const int step : steps) {
                const bool is_dead = ended && held[0] + held[1] == 0;
                if (step == 0) {
                    withdraw ? shared.withdraw() : shared.abandon();
                    ended = true;
                } else if (step == 3) {
                    const std::string answer = one.ask("open " + shared.words());
                    if (is_dead || (withdraw && ended)) {
                        CHECK(is_refused(answer, Status::stale));
                    } else {
                        CHECK(answer == "ok 0");
                        ++held[0];
                    }
                } else {
                    CHECK((step == 1 ? one : two).ask("go " + shared.words()) == "ok");
                    --held[step - 1];
                }
                const uint64_t holders = (held[0] != 0) + (held[1] != 0);
                CHECK(comes_true([&] { return shared.importers() == holders; }));
                CHECK(comes_true([&] { return *shared.gone == (ended && holders == 0 ? 1 : 0); }));
            }
            if (held[0] != 0) CHECK(one.ask("go " + shared.words()) == "ok");
            CHECK(comes_true([&] { return *shared.gone == 1; }));
        }
    } while (std::next_permutation(steps.begin(), steps.end()));
    one.finish();
    two.finish();
}

void rights_and_kinds_of_an_export_are_checked(const SocketDirectory& socket_directory) {
    Child peer("importer", words_of_this_process(socket_directory));
    const Shared readable(4096, kMayRead), event(4096, kMayRead | kMayWrite, Kind::event);
    readable.write(12);
    CHECK(peer.ask("open " + readable.words()) == "ok 12");
    const int before = descriptors_open();
    for (int i = 0; i < 50; ++i) CHECK(peer.ask("open " + readable.words()) == "ok 12");   // importers check the mode
    CHECK(comes_true([&] { return descriptors_open() <= before; }));   // each answer's own descriptor is closed
    CHECK(is_refused(peer.ask("open " + event.words()), Status::wrong_kind));
    CHECK(peer.ask("open " + event.words() + " 64 3") == "ok 0");
    peer.finish();
    readable.abandon();
    event.abandon();
    CHECK(comes_true([&] { return *event.gone == 1; }));
}

void only_listed_importers_open(const SocketDirectory& socket_directory) {
    const Shared shared(4096, kMayRead, Kind::memory, false);
    const auto [index, nonce] = shared.key;
    CHECK(broker().allowed(index, nonce).empty());
    CHECK(broker().allow(index, nonce, 5, 50) && broker().allow(index, nonce, 6, 60) && broker().allow(index, nonce, 5, 51));
    CHECK((broker().allowed(index, nonce) == std::vector<std::pair<int32_t, uint64_t>>{{5, 51}, {6, 60}}));
    CHECK(broker().disallow(index, nonce, 5) && !broker().disallow(index, nonce, 5));
    CHECK(!broker().allow(index, nonce + 1, 5, 50) && !broker().allow(kMaxExports, nonce, 5, 50));
    Child listed("importer", words_of_this_process(socket_directory)), other("importer", words_of_this_process(socket_directory));
    CHECK(shared.allow(listed.pid));
    CHECK(listed.ask("open " + shared.words()) == "ok 0");
    CHECK(is_refused(other.ask("open " + shared.words()), Status::not_listed));
    CHECK(broker().disallow(index, nonce, listed.pid));   // the importer keeps what it has
    CHECK(is_refused(listed.ask("open " + shared.words()), Status::not_listed) && shared.importers() == 1);
    shared.withdraw();
    CHECK(!shared.allow(listed.pid) && broker().allowed(index, nonce).empty() && shared.importers() == 1 && *shared.gone == 0);
    listed.finish();
    CHECK(comes_true([&] { return *shared.gone == 1; }));
    other.finish();
}

void many_importers_and_exports_are_served(const SocketDirectory& socket_directory) {
    const int importers = scaled(16, 200), exports = scaled(1000, 10'000);
    std::vector<std::unique_ptr<Shared>> all;
    for (int i = 0; i < exports; ++i) {
        all.push_back(std::make_unique<Shared>());
        all.back()->write(static_cast<uint64_t>(i));
    }
    const Shared& shared = *all[0];
    shared.write(99);
    std::vector<std::unique_ptr<Child>> peers;
    for (int i = 0; i < importers; ++i) peers.push_back(std::make_unique<Child>("importer", words_of_this_process(socket_directory)));
    for (auto& peer : peers) peer->send_line("keep " + shared.words());
    for (auto& peer : peers) CHECK(peer->hear() == "ok");
    CHECK(shared.importers() == static_cast<uint64_t>(importers));
    shared.abandon();
    shared.write(100);
    for (auto& peer : peers) CHECK(peer->ask("peek") == "100" && *shared.gone == 0);
    for (int i = 1; i < exports; i += 7)
        CHECK(peers[static_cast<size_t>(i % importers)]->ask("open " + all[static_cast<size_t>(i)]->words()) == "ok " + std::to_string(i));
    for (auto& peer : peers) peer->finish();
    CHECK(comes_true([&] { return *shared.gone == 1; }));
    for (size_t i = 1; i < all.size(); ++i) all[i]->abandon();
    for (auto& each : all) CHECK(comes_true([&] { return *each->gone == 1; }));
}

void a_closed_broker_ends_exports_and_can_open_again(const SocketDirectory& socket_directory) {
    Child peer("importer", words_of_this_process(socket_directory));
    const Shared kept, lost;
    kept.write(5);
    CHECK(peer.ask("keep " + kept.words()) == "ok");
    broker().close();
    CHECK(*kept.gone == 1 && *lost.gone == 1 && socket_directory.is_empty() && !broker().is_open());
    broker().close();   // idempotent
    CHECK(refuses(Why::closed, [] { broker().offer({}); }));
    CHECK(!kept.allow(1) && kept.importers() == 0);
    kept.abandon();
    CHECK(*kept.gone == 1);
    CHECK(peer.ask("peek") == "5" && peer.ask("lost") == "1" && peer.ask("dead") == "0");
    CHECK(is_lost(peer.ask("open " + kept.words())) && peer.ask("leave") == "ok" && is_lost(peer.ask("open " + kept.words())));
    // A second open at the same place, where a dead owner left a socket.
    CHECK(mknodat(socket_directory.fd, kName.c_str(), S_IFSOCK | 0600, 0) == 0);
    broker().open(socket_directory.fd, kName, 0, kNode);
    struct stat socket_stat{};
    CHECK(fstatat(socket_directory.fd, kName.c_str(), &socket_stat, 0) == 0 && (socket_stat.st_mode & 0777) == 0600);
    CHECK(is_refused(peer.ask("open " + kept.words()), Status::stale));
    const Shared next;
    CHECK(peer.ask("open " + next.words()) == "ok 0");
    peer.finish();
    next.abandon();
    broker().close();
    // Without a place to serve at, nothing stays open.
    const int before = descriptors_open();
    CHECK(refuses(Why::system_memory, [&] { broker().open(socket_directory.fd, "none/node.sock", 0, kNode); }));
    CHECK(refuses(Why::system_memory, [&] { broker().open(socket_directory.fd, std::string(200, 'n'), 0, kNode); }));
    CHECK(descriptors_open() == before && !broker().is_open());
}

void a_socket_in_a_long_path_is_served() {
    const SocketDirectory socket_directory;
    std::string path = socket_directory.path;
    for (int i = 0; i < 8; ++i) {
        path += "/" + std::string(60, 'd');
        CHECK(mkdir(path.c_str(), 0700) == 0);
    }
    const int directory = ::open(path.c_str(), O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    broker().open(directory, kName, 0, kNode);
    const Shared shared;
    auto words = words_of_this_process(socket_directory);
    words[0] = path;
    Child peer("importer", words);
    CHECK(peer.ask("open " + shared.words()) == "ok 0");
    peer.finish();
    broker().close();
    close(directory);
}

void exports_of_threads_beside_an_importer_end_once(const SocketDirectory& socket_directory) {
    std::atomic<bool> over{false};
    std::vector<std::thread> all;
    Child peer("importer", words_of_this_process(socket_directory));
    for (int t = 0; t < 3; ++t)
        all.emplace_back([&] {
            while (!over) {
                const Shared shared;
                CHECK(shared.allow(peer.pid) && shared.importers() == 0);
                shared.abandon();
                CHECK(*shared.gone == 1);
            }
        });
    const Shared shared;
    for (int i = 0; i < scaled(200, 5000); ++i) {
        CHECK(peer.ask("open " + shared.words()) == "ok 0" && peer.ask("go " + shared.words()) == "ok");
    }
    over = true;
    for (std::thread& thread : all) thread.join();
    shared.abandon();
    peer.finish();
    CHECK(comes_true([&] { return *shared.gone == 1; }));
}

// Threads open the same few exports at the same time, through one connection.
void opens_of_threads_of_one_importer_are_counted(const SocketDirectory& socket_directory) {
    std::vector<std::unique_ptr<Shared>> all;
    for (int i = 0; i < 3; ++i) {
        all.push_back(std::make_unique<Shared>());
        all.back()->write(all.back()->key.index);
    }
    std::vector<std::unique_ptr<Child>> peers;
    for (int i = 0; i < 3; ++i) peers.push_back(std::make_unique<Child>("importer", words_of_this_process(socket_directory)));
    const std::string much = " 4 " + std::to_string(scaled(200, 20'000));
    for (int i = 0; i < 3; ++i) {
        for (size_t n = 0; n < 3; ++n) peers[n]->send_line("crowd " + all[(n + static_cast<size_t>(i)) % 3]->words() + much);
        for (auto& peer : peers) CHECK(peer->hear() == "ok");
    }
    for (auto& each : all) {
        CHECK(comes_true([&] { return each->importers() == 0; }));
        each->abandon();
        CHECK(*each->gone == 1);
    }
    for (auto& peer : peers) peer->finish();
}

void an_open_beside_a_busy_thread_returns(const SocketDirectory& socket_directory) {
    std::atomic<bool> over{false};
    std::thread busy([&] {
        while (!over) {
        }
    });
    const Shared shared;
    Child peer("importer", words_of_this_process(socket_directory));
    const uint64_t nanoseconds = peer.number("again " + shared.words() + " " + std::to_string(scaled(2000, 50'000)));
    over = true;
    busy.join();
    std::printf("  open, median round trip: %.1f us\n", static_cast<double>(nanoseconds) / 1e3);
    peer.finish();
    shared.abandon();
    CHECK(comes_true([&] { return *shared.gone == 1; }));
}

void all_of_it() {
    const SocketDirectory socket_directory;
    const int before = descriptors_open();
    broker().open(socket_directory.fd, kName, 0, kNode);
    RUN(opens_and_releases_of_one_importer_are_counted(socket_directory));
    RUN(releases_in_every_order_end_the_export_once(socket_directory));
    RUN(rights_and_kinds_of_an_export_are_checked(socket_directory));
    RUN(only_listed_importers_open(socket_directory));
    RUN(many_importers_and_exports_are_served(socket_directory));
    RUN(exports_of_threads_beside_an_importer_end_once(socket_directory));
    RUN(opens_of_threads_of_one_importer_are_counted(socket_directory));
    RUN(an_open_beside_a_busy_thread_returns(socket_directory));
    RUN(a_closed_broker_ends_exports_and_can_open_again(socket_directory));
    RUN(a_socket_in_a_long_path_is_served());
    CHECK(descriptors_open() == before);
}

}  // namespace

NATIVE_TEST(test_broker) {
    return play(argc, argv, {}, all_of_it);
}
