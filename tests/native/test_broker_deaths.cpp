// Killed processes: the other side sees the end in time, also where a forked child keeps their sockets.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "peer_roles.h"

using namespace peers;

namespace {

const std::string kName = "node.0.sock";

std::vector<std::string> words_of_this_process(const SocketDirectory& socket_directory, pid_t exporter = getpid()) {
    return importer_words(socket_directory, kName, kNode, exporter);
}

double worst = 0;

void seen_within(const std::function<bool()>& condition) {
    const auto start = steady_clock::now();
    CHECK(comes_true(condition, kDeathSeconds));
    worst = std::max(worst, seconds_since(start));
}

void importer_dies(const SocketDirectory& socket_directory, bool with_child) {
    const Shared kept, abandoned;
    Child peer("importer", words_of_this_process(socket_directory)), other("importer", words_of_this_process(socket_directory));
    for (const Shared* each : {&kept, &abandoned}) CHECK(peer.ask("keep " + each->words()) == "ok");
    CHECK(other.ask("open " + kept.words()) == "ok 0");
    abandoned.abandon();
    const pid_t orphan = with_child ? static_cast<pid_t>(peer.number("fork")) : 0;
    CHECK(kept.importers() == 2 && *abandoned.gone == 0);
    peer.kill_now();
    seen_within([&] { return kept.importers() == 1 && *abandoned.gone == 1; });
    CHECK(other.ask("open " + kept.words()) == "ok 0");
    if (orphan) kill(orphan, SIGKILL);
    other.finish();
    kept.abandon();
    CHECK(comes_true([&] { return *kept.gone == 1; }));
}

void exporter_dies(const std::string& role, bool with_child) {
    const SocketDirectory socket_directory;
    Child exporter(role, {socket_directory.path, kName});
    const std::string offered = exporter.ask("offer 31");
    Child peer("importer", words_of_this_process(socket_directory, exporter.pid)), late("importer", words_of_this_process(socket_directory, exporter.pid));
    CHECK(peer.ask("keep " + offered) == "ok" && peer.ask("dead") == "0");
    const pid_t orphan = with_child ? static_cast<pid_t>(exporter.number("fork")) : 0;
    exporter.kill_now();
    seen_within([&] { return peer.ask("dead") == "1"; });
    CHECK(peer.ask("lost") == "1" && peer.ask("peek") == "31" && peer.ask("go " + offered) == "ok");
    seen_within([&] { return is_lost(peer.ask("open " + offered)); });
    seen_within([&] { return is_lost(late.ask("open " + offered)); });   // the child still listens
    if (orphan) kill(orphan, SIGKILL);
    peer.finish();
    late.finish();
}

void exporter_dies_while_asked(bool with_child) {
    const SocketDirectory socket_directory;
    Child exporter("exporter", {socket_directory.path, kName});
    const std::string offered = exporter.ask("offer 31");
    Child peer("importer", words_of_this_process(socket_directory, exporter.pid));
    CHECK(peer.ask("open " + offered) == "ok 31");
    const pid_t orphan = with_child ? static_cast<pid_t>(exporter.number("fork")) : 0;
    exporter.stop();
    CHECK(peer.ask("within 0.2") == "ok");
    CHECK(peer.ask("open " + offered).starts_with("refused " + std::to_string(static_cast<int>(Why::handle_timeout)) + " "));
    CHECK(peer.ask("within 60") == "ok");
    peer.send_line("open " + offered);
    kill(exporter.pid, SIGKILL);
    const auto start = steady_clock::now();
    CHECK(is_lost(peer.hear()) && seconds_since(start) < kDeathSeconds);
    worst = std::max(worst, seconds_since(start));
    if (orphan) kill(orphan, SIGKILL);
    peer.finish();
}

// A descriptor that arrives after its request timed out is let go.
void late_answers() {
    const SocketDirectory socket_directory;
    Child exporter("exporter", {socket_directory.path, kName});
    const std::string offered = exporter.ask("offer 8");
    Child peer("importer", words_of_this_process(socket_directory, exporter.pid));
    CHECK(peer.ask("open " + offered) == "ok 8" && peer.ask("go " + offered) == "ok" && peer.ask("within 0.05") == "ok");
    const uint64_t before = peer.number("fds");
    exporter.stop();
    for (int i = 0; i < 20; ++i) CHECK(!peer.ask("open " + offered).starts_with("ok"));
    kill(exporter.pid, SIGCONT);
    CHECK(peer.ask("within 60") == "ok");
    CHECK(comes_true([&] { return exporter.ask("importers " + offered) == "0"; }));
    CHECK(peer.ask("open " + offered) == "ok 8" && peer.number("fds") == before);
    CHECK(exporter.ask("importers " + offered) == "1" && peer.ask("go " + offered) == "ok");
    CHECK(comes_true([&] { return exporter.ask("importers " + offered) == "0"; }));
    peer.finish();
    exporter.finish();
}

// Stands for a system call filter that refuses pidfds.
void forbid_pidfds() {
    constexpr auto refuse = [](int error) { return SECCOMP_RET_ERRNO | static_cast<uint32_t>(error); };
    constexpr uint32_t number = offsetof(seccomp_data, nr), option = offsetof(seccomp_data, args) + 2 * sizeof(uint64_t);
    const sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_getfd, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockopt, 2, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, refuse(EPERM)),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, option),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 77, 0, 1),   // SO_PEERPIDFD
        BPF_STMT(BPF_RET | BPF_K, refuse(ENOPROTOOPT)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter{std::size(program), const_cast<sock_filter*>(program)};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    CHECK(syscall(SYS_pidfd_open, getpid(), 0) == -1 && errno == EPERM);
}

int filtered_exporter(const std::vector<std::string>& words) {
    forbid_pidfds();
    return export_lines(words);
}

int filtered_importer(const std::vector<std::string>& words) {
    forbid_pidfds();
    return import_lines(words);
}

void without_pidfds(bool with_child) {
    const SocketDirectory socket_directory;
    Child exporter("filtered_exporter", {socket_directory.path, kName});
    const std::string offered = exporter.ask("offer 3");
    Child doomed("importer", words_of_this_process(socket_directory, exporter.pid)), peer("filtered_importer", words_of_this_process(socket_directory, exporter.pid));
    for (Child* each : {&doomed, &peer}) CHECK(each->ask("keep " + offered) == "ok");
    CHECK(exporter.ask("importers " + offered) == "2" && exporter.ask("abandon " + offered) == "ok" && peer.ask("dead") == "0");
    pid_t orphan = with_child ? static_cast<pid_t>(doomed.number("fork")) : 0;
    doomed.kill_now();
    seen_within([&] { return exporter.ask("importers " + offered) == "1"; });
    if (orphan) kill(orphan, SIGKILL);
    orphan = with_child ? static_cast<pid_t>(exporter.number("fork")) : 0;
    exporter.stop();
    peer.send_line("open " + offered);
    kill(exporter.pid, SIGKILL);
    exporter.wait();
    const auto start = steady_clock::now();
    CHECK(is_lost(peer.hear()) && seconds_since(start) < kDeathSeconds);
    CHECK(peer.ask("dead") == "1" && peer.ask("peek") == "3");
    if (orphan) kill(orphan, SIGKILL);
    peer.finish();
}

void killed_at_random_points(const SocketDirectory& socket_directory, std::mt19937_64& random) {
    const Shared shared;
    const int before = descriptors_open();
    for (int round = 0; round < scaled(20, 500); ++round) {
        Child one("importer", words_of_this_process(socket_directory)), two("importer", words_of_this_process(socket_directory));
        for (Child* each : {&one, &two}) each->send_line("again " + shared.words() + " 1000000000");
        CHECK(comes_true([&] { return shared.importers() != 0; }));
        usleep(static_cast<useconds_t>(random() % 3000));
        if (random() % 2) one.stop();   // a stopped process does not read while it dies
        one.kill_now();
        two.kill_now();
        seen_within([&] { return shared.importers() == 0; });
    }
    CHECK(comes_true([&] { return descriptors_open() == before; }));
    shared.abandon();
    CHECK(*shared.gone == 1);
}

void exporters_killed_at_random_points(std::mt19937_64& random) {
    for (int round = 0; round < scaled(20, 500); ++round) {
        const SocketDirectory socket_directory;
        Child exporter("exporter", {socket_directory.path, kName});
        const std::string offered = exporter.ask("offer 3");
        Child peer("importer", words_of_this_process(socket_directory, exporter.pid));
        CHECK(peer.ask("keep " + offered) == "ok");
        peer.send_line("again " + offered + " 1000000000");
        usleep(static_cast<useconds_t>(random() % 3000));
        exporter.kill_now();
        const auto start = steady_clock::now();
        CHECK(is_lost(peer.hear()) && seconds_since(start) < kDeathSeconds && peer.ask("peek") == "3");
        worst = std::max(worst, seconds_since(start));
        peer.finish();
    }
}

void all_of_it() {
    auto random = seeded("test_broker_deaths");
    const SocketDirectory socket_directory;
    const int before = descriptors_open();
    broker().open(socket_directory.fd, kName, 0, kNode);
    for (const bool with_child : {false, true}) {
        RUN(importer_dies(socket_directory, with_child));
        RUN(exporter_dies("exporter", with_child));
        RUN(exporter_dies_while_asked(with_child));
        RUN(without_pidfds(with_child));
    }
    RUN(late_answers());
    RUN(killed_at_random_points(socket_directory, random));
    RUN(exporters_killed_at_random_points(random));
    broker().close();
    CHECK(descriptors_open() == before && socket_directory.is_empty());
    std::printf("  a death was seen after %.3f s at most\n", worst);
}

}  // namespace

NATIVE_TEST(test_broker_deaths) {
    return play(argc, argv, {{"filtered_exporter", filtered_exporter}, {"filtered_importer", filtered_importer}}, all_of_it);
}
