// fork with handles exported and open: the child has none of them; parent and peers go on.
#include "faults.h"
#include "peer_roles.h"

using namespace peers;

namespace {

const std::string kName = "node.0.sock";

void parent_of_many(const SocketDirectory& socket_directory) {
    broker().open(socket_directory.fd, kName, 0, kNode);
    Child other("exporter", {socket_directory.path, "other.sock"});
    const std::string offered = other.ask("offer 44");
    Words words(offered);
    const auto index = static_cast<uint32_t>(words.number());
    const uint64_t nonce = words.number();
    const auto exporter = Exporter::connect(socket_directory.fd, "other.sock", 1, kNode, other.pid, 0, Deadline::in(kPatience), {});
    close(exporter->open(index, nonce, 64, Kind::memory, Deadline::in(kPatience), {}).fd);
    const Shared shared;
    Child peer("importer", importer_words(socket_directory, kName, kNode, getpid()));
    CHECK(peer.ask("keep " + shared.words()) == "ok");
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;   // so that other threads hold the locks at any moment
    threads.emplace_back([&] {
        while (!over) {
            const Shared each;
            each.allow(1);
            each.abandon();
        }
    });
    threads.emplace_back([&] {
        while (!over) {
            close(exporter->open(index, nonce, 64, Kind::memory, Deadline::in(kPatience), {}).fd);
            exporter->let_go(index, nonce);
        }
    });
    for (int i = 0; i < scaled(20, 300); ++i) {
        std::string errors;
        const int status = status_of_child(
            [&] {
                for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
                    std::error_code none;
                    const std::string target = std::filesystem::read_symlink(entry.path(), none).string();
                    CHECK(!target.starts_with("socket:") && target.find("pidfd") == std::string::npos &&
                          target.find("eventpoll") == std::string::npos);
                }
                CHECK(refuses(Why::forked, [&] { broker().open(socket_directory.fd, kName, 0, kNode); }));
                CHECK(refuses(Why::forked, [&] { broker().offer({}); }));
                CHECK(!broker().is_open() && !shared.allow(1) && shared.importers() == 0);
                shared.abandon();
                shared.withdraw();
                broker().close();
                CHECK(*shared.gone == 0);
                CHECK(refuses(Why::forked, [&] { exporter->open(index, nonce, 64, Kind::memory, Deadline::in(1), {}); }));
                CHECK(refuses(Why::forked, [&] {
                    Exporter::connect(socket_directory.fd, "other.sock", 1, kNode, other.pid, 0, Deadline::in(1), {});
                }));
                exporter->let_go(index, nonce);
                CHECK(exporter->is_dead() && exporter->is_lost() && exporter->pid() == other.pid);
            },
            &errors);
        if (!exited_with(status, 0)) std::fprintf(stderr, "%s\n", errors.c_str());
        CHECK(exited_with(status, 0));
        CHECK(!socket_directory.is_empty() && peer.ask("open " + shared.words()) == "ok 0" && shared.importers() == 1);
    }
    over = true;
    for (std::thread& thread : threads) thread.join();
    CHECK(!exporter->is_dead() && !exporter->is_lost());
    exporter->let_go(index, nonce);
    CHECK(comes_true([&] { return other.ask("importers " + offered) == "0"; }));
    peer.finish();
    other.finish();
    broker().close();
    CHECK(*shared.gone == 1);
}

// A program that forks before its first use: parent and child both work.
int early(const std::vector<std::string>& words) {
    const pid_t child = fork();
    if (child != 0) {
        int status;
        waitpid(child, &status, 0);
        return export_lines({words[0], words[1]});
    }
    const int directory = ::open(words[0].c_str(), O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    broker().open(directory, words[1], 0, kNode);
    const Shared shared;
    shared.abandon();
    broker().close();
    close(directory);
    _exit(*shared.gone == 1 ? 0 : 1);
}

void a_child_forked_before_first_use_exports(const SocketDirectory& socket_directory) {
    Child exporter("early", {socket_directory.path, "early.sock"});
    const std::string offered = exporter.ask("offer 2");
    Child peer("importer", importer_words(socket_directory, "early.sock", kNode, exporter.pid));
    CHECK(peer.ask("open " + offered) == "ok 2");
    peer.finish();
    exporter.finish();
}

void all_of_it() {
    const SocketDirectory socket_directory;
    RUN(a_child_forked_before_first_use_exports(socket_directory));
    RUN(parent_of_many(socket_directory));
}

}  // namespace

NATIVE_TEST(test_broker_fork) {
    return play(argc, argv, {{"early", early}}, all_of_it);
}
