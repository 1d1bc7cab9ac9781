// Refused requests: every status that an exporter gives, with its numbers.
#include <iostream>
#include <sched.h>
#include <sys/prctl.h>

#include "peer_roles.h"

using namespace peers;

namespace {

const std::string kName = "node.0.sock";

std::vector<std::string> words_of_this_process(const SocketDirectory& socket_directory, uint64_t node = kNode) { return importer_words(socket_directory, kName, node, getpid()); }

std::string refusal(Status status, const HandleNumbers& numbers, pid_t asker, uint64_t start, uint64_t listed) {
    return describe(refuse_handle(status, {getpid(), asker, start, listed}, numbers));
}

void refusals_carry_their_numbers(const SocketDirectory& socket_directory) {
    Child peer("importer", words_of_this_process(socket_directory)), elsewhere("importer", words_of_this_process(socket_directory, kNode + 1));
    const Shared shared(4096, kMayRead | kMayWrite, Kind::buffer, false);
    const auto [index, nonce] = shared.key;
    const uint64_t start = start_time(peer.pid);
    CHECK(start != 0 && start_time(getpid()) != 0 && start_time(1 << 30) == 0);
    const auto open = [&] { return peer.ask("open " + shared.words()); };
    const auto reported = [&](Status status, uint64_t listed = 0, const HandleNumbers& numbers = {}) {
        return refusal(status, numbers, peer.pid, start, listed);
    };
    CHECK(open() == reported(Status::not_listed));
    CHECK(broker().allow(index, nonce, peer.pid, start - 1));
    CHECK(open() == reported(Status::pid_reused, start - 1));
    CHECK(broker().allow(index, nonce, peer.pid, 0));
    CHECK(open() == reported(Status::listed_early));
    CHECK(shared.allow(peer.pid));
    CHECK(open() == reported(Status::wrong_kind, start, {.kinds = {2, 1}}));
    CHECK(peer.ask("open " + shared.words() + " 64 2") == "ok 0");
    const uint64_t other = start_time(elsewhere.pid);
    CHECK(elsewhere.ask("open " + shared.words()) ==
          refusal(Status::other_node, {.nodes = {kNode, kNode + 1}}, elsewhere.pid, other, 0));
    // A guessed nonce.
    const std::string directory_words = std::to_string(index) + " ";
    CHECK(is_refused(peer.ask("open " + directory_words + std::to_string(nonce + 1)), Status::unknown));
    CHECK(is_refused(peer.ask("open " + directory_words + std::to_string((nonce & kShortNonce) ^ 1) + " 28"), Status::unknown));
    CHECK(is_refused(peer.ask("open " + directory_words + "0"), Status::unknown));
    for (uint32_t far : {index + 1, kMaxExports - 1, kMaxExports, UINT32_MAX})
        CHECK(is_refused(peer.ask("open " + std::to_string(far) + " " + std::to_string(nonce)), Status::unknown));
    CHECK(is_refused(peer.ask("open " + shared.words() + " 64"), Status::wrong_kind));
    // A request of this process itself.
    const auto self = Exporter::connect(socket_directory.fd, kName, 0, kNode, getpid(), 0, Deadline::in(kPatience), {});
    const auto own = refused([&, i = index, n = nonce] { self->open(i, n, 64, Kind::buffer, Deadline::in(kPatience), {}); });
    CHECK(own && own->why == Why::handle && own->handle.status == static_cast<int>(Status::own_process));
    CHECK(Exporter::connect(socket_directory.fd, kName, 0, kNode, getpid(), 0, Deadline::in(kPatience), {}) == self);
    shared.abandon();
    peer.finish();
    elsewhere.finish();
    CHECK(comes_true([&] { return *shared.gone == 1; }));
}

void ended_exports_are_stale(const SocketDirectory& socket_directory) {
    Child peer("importer", words_of_this_process(socket_directory));
    const Shared abandoned, withdrawn;
    abandoned.abandon();
    withdrawn.withdraw();
    CHECK(*abandoned.gone == 1 && *withdrawn.gone == 1);
    const std::string brief = std::to_string(abandoned.key.index) + " " + std::to_string(abandoned.key.nonce & kShortNonce);
    CHECK(is_refused(peer.ask("open " + abandoned.words()), Status::stale));
    CHECK(is_refused(peer.ask("open " + brief + " 28"), Status::stale));
    CHECK(is_refused(peer.ask("open " + withdrawn.words()), Status::stale));
    Block* block = create_block(4096, 0);
    ExportKey last{};
    for (uint32_t i = 0; i < kStaleKept - 1; ++i) {
        last = broker().offer({{.size = 4096}, block->fd, true, {}});
        broker().abandon(last.index, last.nonce);
    }
    CHECK(is_refused(peer.ask("open " + abandoned.words()), Status::unknown));   // too long ago
    CHECK(is_refused(peer.ask("open " + withdrawn.words()), Status::stale));
    CHECK(is_refused(peer.ask("open " + std::to_string(last.index) + " " + std::to_string(last.nonce)), Status::stale));
    drop(block);
    peer.finish();
}

void malformed_frames_are_refused(const SocketDirectory& socket_directory) {
    const Raw raw(socket_directory, kName);
    Request request{.id = 77, .node = kNode, .nonce = 5};
    CHECK(raw.ask(request).status == Status::own_process && raw.ask(request).id == 77);
    request.version = kFrameVersion + 1;
    const Answer newer = raw.ask(request);
    CHECK(newer.status == Status::version && newer.version == kFrameVersion);
    CHECK(raw.send_line(&request, 6));   // a version that has shorter frames
    Answer answer;
    CHECK(raw.hear(answer) && answer.status == Status::version);
    const auto is_malformed = [&](const void* bytes, size_t size) {
        return raw.send_line(bytes, size) && raw.hear(answer) && answer.status == Status::malformed;
    };
    request.version = kFrameVersion;
    for (size_t size : {1, 5, 6, 20, 39}) CHECK(is_malformed(&request, size));
    char longer[4096] = {};
    memcpy(longer, &request, sizeof request);
    for (size_t size : {41, 48, 4096}) CHECK(is_malformed(longer, size));
    const auto changed = [&](auto change) {
        Request copy = request;
        change(copy);
        return is_malformed(&copy, sizeof copy);
    };
    CHECK(changed([](Request& each) { each.magic ^= 1; }));
    CHECK(changed([](Request& each) { each.verb = Verb{0}; }));
    CHECK(changed([](Request& each) { each.verb = Verb{4}; }));
    CHECK(changed([](Request& each) { each.nonce_bits = 27; }));
    CHECK(changed([](Request& each) {
        each.nonce_bits = 28;
        each.nonce = kShortNonce + 1;
    }));
    CHECK(raw.ask(request).status == Status::own_process);   // the connection still works
}

void connections_beyond_the_limit_are_refused(const SocketDirectory& socket_directory) {
    raise_descriptor_limit();
    std::vector<std::unique_ptr<Raw>> all;
    for (uint32_t i = 0; i < kMaxConnections; ++i) all.push_back(std::make_unique<Raw>(socket_directory, kName));
    const Request request{.id = 1, .node = kNode};
    for (const auto& raw : all) CHECK(raw->ask(request).status == Status::own_process);
    const Shared shared;
    Child peer("importer", words_of_this_process(socket_directory));
    CHECK(is_refused(peer.ask("open " + shared.words()), Status::too_many) && peer.ask("lost") == "1");
    all.clear();
    CHECK(peer.ask("leave") == "ok");
    CHECK(comes_true([&] {
        const std::string answer = peer.ask("open " + shared.words());
        return answer == "ok 0" || peer.ask("leave") != "ok";
    }));
    if (std::getenv("PEERLANE_SOAK")) {
        CHECK(peer.number("flood " + shared.words() + " " + std::to_string(kMaxOpens - 1)) != 0);
        CHECK(is_refused(peer.ask("open " + shared.words()), Status::too_many));
        CHECK(peer.ask("go " + shared.words()) == "ok" && peer.ask("open " + shared.words()) == "ok 0");
    }
    peer.finish();
    shared.abandon();
    CHECK(comes_true([&] { return *shared.gone == 1; }));
}

// Another user is stopped by the directory's mode, by the importer's check and by the exporter.
int stranger(const std::vector<std::string>& words) {
    const std::string path = words[0] + "/" + words[1];
    CHECK(setgid(65534) == 0 && setuid(65534) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
    const auto open = importer(words);
    return answer_lines([&](Words line) {
        if (line.word() != "raw") return open(Words("open 0 1"));
        const Answer answer = Raw(path).ask({.id = 1, .node = kNode});
        return std::to_string(static_cast<int>(answer.status)) + " " + std::to_string(answer.exporter_user) + " " +
               std::to_string(answer.asker_user);
    });
}

void another_user_is_refused(const SocketDirectory& socket_directory) {
    if (geteuid() != 0) {
        std::printf("    skipped: only root can become another user\n");
        return;
    }
    const Shared shared;
    CHECK(chmod(socket_directory.path.c_str(), 0755) == 0);
    Child peer("stranger", words_of_this_process(socket_directory));
    const std::string users = refusal(Status::other_user, {.users = {0, 65534}}, 0, 0, 0);
    CHECK(peer.ask("open") == users);   // the socket may not be dialled
    CHECK(fchmodat(socket_directory.fd, kName.c_str(), 0666, 0) == 0);
    CHECK(peer.ask("open") == users);
    CHECK(peer.ask("raw") == std::to_string(static_cast<int>(Status::other_user)) + " 0 65534");
    peer.finish();
    shared.abandon();
}

// Plays a role in its own pid namespace.
int apart(const std::vector<std::string>& words) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
        std::cout << "cannot" << std::endl;
        return 0;
    }
    const pid_t child = fork();
    if (child != 0) {
        int status;
        waitpid(child, &status, 0);
        _exit(WEXITSTATUS(status));   // LSan would fork, and no process can be made here any more
    }
    std::cout << "ready" << std::endl;
    const std::vector<std::string> rest{words.begin() + 1, words.end()};
    _exit(words[0] == "importer" ? import_lines(rest) : export_lines(rest));
}

void another_pid_namespace_is_refused(const SocketDirectory& socket_directory) {
    const Shared shared;
    auto words = words_of_this_process(socket_directory);
    words.insert(words.begin(), "importer");
    Child peer("apart", words);
    if (peer.hear() == "cannot") {
        std::printf("    skipped: this system allows no pid namespace\n");
        return;
    }
    CHECK(is_refused(peer.ask("open " + shared.words()), Status::foreign_namespace));
    peer.finish();
    Child exporter("apart", {"exporter", socket_directory.path, "apart.sock"});
    CHECK(exporter.hear() == "ready");
    const std::string offered = exporter.ask("offer 1");
    Words parts(offered);
    const auto index = static_cast<uint32_t>(parts.number());
    const Answer answer = Raw(socket_directory, "apart.sock").ask({.id = 1, .node = kNode, .nonce = parts.number(), .index = index});
    CHECK(answer.status == Status::foreign_namespace && answer.asker == 0);
    CHECK(exporter.ask("close") == "ok");
    exporter.finish();
    shared.abandon();
}

void all_of_it() {
    const SocketDirectory socket_directory;
    const int before = descriptors_open();
    broker().open(socket_directory.fd, kName, 0, kNode);
    RUN(refusals_carry_their_numbers(socket_directory));
    RUN(ended_exports_are_stale(socket_directory));
    RUN(malformed_frames_are_refused(socket_directory));
    RUN(connections_beyond_the_limit_are_refused(socket_directory));
    RUN(another_user_is_refused(socket_directory));
    RUN(another_pid_namespace_is_refused(socket_directory));
    broker().close();
    CHECK(descriptors_open() == before);
}

}  // namespace

NATIVE_TEST(test_broker_refusals) {
    return play(argc, argv, {{"stranger", stranger}, {"apart", apart}}, all_of_it);
}
