// Hostile exporters: the importer checks every answer, keeps its deadline and leaks nothing.
#include <poll.h>

#include "peer_roles.h"
#include "share/early_grants.h"

using namespace peers;

namespace {

const std::string kName = "node.0.sock";

// A thread that plays the exporter: `reply` is called for every request of every connection.
class Impostor {
  public:
    using Reply = std::function<void(int socket, const Request& request)>;

    Impostor(const SocketDirectory& socket_directory, Reply reply) : reply_(std::move(reply)) {
        listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        sockaddr_un address{.sun_family = AF_UNIX};
        const std::string path = socket_directory.path + "/" + kName;
        path.copy(address.sun_path, sizeof address.sun_path - 1);
        unlink(path.c_str());
        CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && listen(listener_, 16) == 0);
        thread_ = std::thread([this] { serve(); });
    }
    ~Impostor() {
        over_ = true;
        thread_.join();
        close(listener_);
    }
    Impostor(const Impostor&) = delete;

    std::atomic<int> let_go{0}, cancelled{0};

  private:
    void serve() {
        std::vector<int> sockets;
        while (!over_) {
            std::vector<pollfd> asked{{listener_, POLLIN, 0}};
            for (int each : sockets) asked.push_back({each, POLLIN, 0});
            poll(asked.data(), asked.size(), 10);
            if (asked[0].revents) sockets.push_back(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
            for (size_t i = 1; i < asked.size(); ++i) {
                Request request;
                if (!asked[i].revents || recv(asked[i].fd, &request, sizeof request, MSG_DONTWAIT) != sizeof request) continue;
                let_go += request.verb == Verb::let_go;
                cancelled += request.verb == Verb::cancel;
                if (request.verb == Verb::open) reply_(asked[i].fd, request);
            }
        }
        for (int each : sockets) close(each);
    }

    const Reply reply_;
    int listener_;
    std::atomic<bool> over_{false};
    std::thread thread_;
};

void send_with(int socket, const void* bytes, size_t size, const std::vector<int>& fds) {
    iovec part{const_cast<void*>(bytes), size};
    alignas(cmsghdr) char control[CMSG_SPACE(64 * sizeof(int))] = {};
    msghdr message{.msg_iov = &part, .msg_iovlen = 1};
    if (!fds.empty()) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
        memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
    }
    CHECK(sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(size));
}

struct Lie {
    Answer answer;
    std::vector<int> fds;
    bool read_only = false;   // another descriptor of the same file
    size_t size = sizeof(Answer);
};

std::shared_ptr<Exporter> dial(const SocketDirectory& socket_directory) {
    return Exporter::connect(socket_directory.fd, kName, 0, kNode, getpid(), start_time(getpid()), Deadline::in(kPatience), {});
}

Offer open(Exporter& exporter, double seconds = kPatience, Poll poll = {}) {
    return exporter.open(3, 9, 64, Kind::memory, Deadline::in(seconds), poll);
}

void check_refused(const SocketDirectory& socket_directory, Status status, const std::function<void(Lie&)>& change) {
    Block* block = create_block(8192, 0);
    const int before = descriptors_open();
    {
        Impostor impostor(socket_directory, [&](int socket, const Request& request) {
            Lie lie{.answer = {.id = request.id, .nonce = 9}, .fds = {block->fd}};
            lie.answer.grant = {.size = 8192, .length = 8192};
            change(lie);
            char bytes[4096] = {};
            memcpy(bytes, &lie.answer, sizeof lie.answer);
            const int reader = ::open(("/proc/self/fd/" + std::to_string(block->fd)).c_str(), O_RDONLY | O_CLOEXEC);
            if (lie.read_only) lie.fds = {reader};
            send_with(socket, bytes, lie.size, lie.fds);
            close(reader);
        });
        const auto exporter = dial(socket_directory);
        if (status == Status::ok) {
            close(open(*exporter).fd);
        } else {
            const auto refusal = refused([&] { open(*exporter); });
            CHECK(refusal && refusal->why == Why::handle);
            if (refusal->handle.status != static_cast<int>(status)) std::fprintf(stderr, "got status %d\n", refusal->handle.status);
            CHECK(refusal->handle.status == static_cast<int>(status));
            if (status >= Status::bad_answer) CHECK(comes_true([&] { return impostor.cancelled == 1; }));
        }
    }
    CHECK(comes_true([&] { return descriptors_open() == before; }));
    drop(block);
}

void lying_answers_are_refused(const SocketDirectory& socket_directory) {
    using enum Status;
    const int plain = memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING), unsealable = memfd_create("plain", MFD_CLOEXEC);
    CHECK(ftruncate(plain, 8192) == 0 && ftruncate(unsealable, 8192) == 0);
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    check_refused(socket_directory, ok, [](Lie&) {});
    check_refused(socket_directory, ok, [](Lie& lie) { lie.answer.grant.size = 4096, lie.answer.grant.length = 0; });
    check_refused(socket_directory, false_size, [](Lie& lie) { lie.answer.grant.size = 8193; });
    check_refused(socket_directory, false_size, [](Lie& lie) { lie.answer.grant.size = UINT64_MAX; });
    check_refused(socket_directory, false_size, [](Lie& lie) { lie.answer.grant.length = 8193; });
    check_refused(socket_directory, false_size, [](Lie& lie) { lie.answer.grant.offset = 1; });
    check_refused(socket_directory, false_size, [](Lie& lie) { lie.answer.grant.offset = UINT64_MAX - 8191, lie.answer.grant.length = 8192; });
    check_refused(socket_directory, false_size, [](Lie& lie) { lie.answer.grant.offset = 4096, lie.answer.grant.length = UINT64_MAX - 4095; });
    check_refused(socket_directory, no_seals, [&](Lie& lie) { lie.fds = {plain}; });
    check_refused(socket_directory, no_seals, [&](Lie& lie) { lie.fds = {unsealable}; });
    check_refused(socket_directory, no_seals, [&](Lie& lie) { lie.fds = {ends[1]}; });
    check_refused(socket_directory, no_seals, [&](Lie& lie) { lie.fds = {socket_directory.fd}; });
    check_refused(socket_directory, false_rights, [](Lie& lie) { lie.answer.grant.rights = kMayRead; });
    check_refused(socket_directory, false_rights, [](Lie& lie) { lie.read_only = true; });
    check_refused(socket_directory, ok, [](Lie& lie) { lie.read_only = true, lie.answer.grant.rights = kMayRead; });
    check_refused(socket_directory, bad_answer, [](Lie& lie) { lie.answer.grant.rights = 0; });
    check_refused(socket_directory, bad_answer, [](Lie& lie) { lie.answer.grant.rights = 8 | kMayRead; });
    check_refused(socket_directory, bad_answer, [](Lie& lie) { lie.answer.grant.kind = Kind::event; });
    check_refused(socket_directory, bad_answer, [](Lie& lie) { lie.answer.nonce = 10; });
    check_refused(socket_directory, bad_answer, [](Lie& lie) { lie.fds = {}; });
    check_refused(socket_directory, bad_answer, [](Lie& lie) { lie.fds = {lie.fds[0], lie.fds[0]}; });
    check_refused(socket_directory, bad_answer, [](Lie& lie) { lie.fds = std::vector<int>(60, lie.fds[0]); });
    check_refused(socket_directory, bad_answer, [](Lie& lie) { ++lie.answer.id; });
    check_refused(socket_directory, bad_answer, [](Lie& lie) { lie.answer.id = 0; });
    check_refused(socket_directory, bad_answer, [](Lie& lie) { lie.answer.magic = 0; });
    check_refused(socket_directory, bad_answer, [](Lie& lie) { lie.answer.status = Status{200}; });
    for (int unsaid = 32; unsaid <= 36; ++unsaid) check_refused(socket_directory, bad_answer, [=](Lie& lie) { lie.answer.status = Status{static_cast<uint16_t>(unsaid)}; });
    check_refused(socket_directory, bad_answer, [](Lie& lie) { lie.answer.status = version; });   // in a frame of this very version
    check_refused(socket_directory, wrong_kind, [](Lie& lie) { lie.answer.status = wrong_kind, lie.answer.exported_kind = UINT16_MAX; });
    check_refused(socket_directory, exhausted, [](Lie& lie) { lie.answer.status = exhausted, lie.answer.exporter_error = UINT16_MAX; });
    for (size_t size : {1, 4, 6, 8, 100, 127, 129, 4096}) check_refused(socket_directory, bad_answer, [=](Lie& lie) { lie.size = size; });
    check_refused(socket_directory, version, [](Lie& lie) { lie.answer.version = 9; });
    check_refused(socket_directory, version, [](Lie& lie) { lie.answer.version = 0, lie.size = 6; });
    check_refused(socket_directory, stale, [](Lie& lie) { lie.answer.status = stale; });   // with a descriptor that was not asked for
    check_refused(socket_directory, too_many, [](Lie& lie) { lie.answer.status = too_many, lie.answer.id = 0; });
    // A second descriptor is a page for early grants, and there is one of a connection.
    int page = -1;
    CHECK(GrantPage::make(page));
    const int unsealed_page = memfd_create("plain", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(ftruncate(unsealed_page, GrantPage::kBytes) == 0);
    check_refused(socket_directory, ok, [&](Lie& lie) { lie.fds.push_back(page); });
    check_refused(socket_directory, bad_answer, [&](Lie& lie) { lie.fds.push_back(unsealed_page); });
    check_refused(socket_directory, bad_answer, [&](Lie& lie) { lie.fds.insert(lie.fds.end(), {page, page}); });
    for (int fd : {plain, unsealable, ends[0], ends[1], page, unsealed_page}) close(fd);
}

uint64_t inode_of(int fd) {
    struct stat status{};
    return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

// What a false grant stands for is not opened; the exporter is asked instead, and a lie of its answer is refused.
void false_early_grants_are_not_believed(const SocketDirectory& socket_directory) {
    const int before = descriptors_open();
    {
        int page_fd = -1, ends[2];
        EarlyGrants early(GrantPage::make(page_fd));
        CHECK(pipe2(ends, O_CLOEXEC) == 0);
        Block* block = create_block(8192, 0);
        std::atomic<int> asked{0};
        std::atomic<bool> with_page{true};
        Impostor impostor(socket_directory, [&](int socket, const Request& request) {
            ++asked;
            Answer answer{.id = request.id, .nonce = 9};
            answer.grant = {.size = 8192, .length = 8192};
            send_with(socket, &answer, sizeof answer, with_page ? std::vector{block->fd, page_fd} : std::vector{block->fd});
        });
        const auto exporter = dial(socket_directory);
        close(open(*exporter).fd);
        with_page = false;
        int expected = 1;
        const auto is_asked = [&](const Grant& grant, int fd) {
            CHECK(early.offer({3, 9}, grant, fd, inode_of(fd)));
            close(open(*exporter).fd);
            CHECK(asked == ++expected);
            early.look([](uint32_t, bool has_it) { CHECK(!has_it); });
            CHECK(early.is_empty());
        };
        const Grant honest{.size = 8192, .length = 8192};
        CHECK(early.offer({3, 9}, honest, block->fd, inode_of(block->fd)));
        close(open(*exporter).fd);
        CHECK(asked == expected);
        early.look([](uint32_t, bool has_it) { CHECK(has_it); });
        is_asked({.size = 8193, .length = 8192}, block->fd);
        is_asked({.size = 8192, .offset = 1, .length = 8192}, block->fd);
        is_asked({.rights = 8 | kMayRead, .size = 8192}, block->fd);
        for (const int fd : {ends[0], ends[1], socket_directory.fd, page_fd, 1 << 20, INT32_MAX}) is_asked(honest, fd);
        // The number leads to another block by now, as after an exec.
        Block* other = create_block(8192, 0);
        const int reused = dup(block->fd);
        const uint64_t inode = inode_of(reused);
        CHECK(dup2(other->fd, reused) == reused && early.offer({3, 9}, honest, reused, inode));
        const int opened = open(*exporter).fd;
        CHECK(asked == ++expected && inode_of(opened) == inode);
        for (const int fd : {opened, reused}) close(fd);
        drop(other);
        with_page = true;   // a second one
        const auto refusal = refused([&] { open(*exporter); });
        CHECK(refusal && refusal->why == Why::handle && refusal->handle.status == static_cast<int>(Status::bad_answer));
        CHECK(impostor.let_go == 0);   // the page says it
        drop(block);
        for (int fd : {page_fd, ends[0], ends[1]}) close(fd);
    }
    CHECK(comes_true([&] { return descriptors_open() == before; }));
}

bool stops(void* count) { return ++*static_cast<int*>(count) == 3; }

void silent_or_late_exporters_time_out(const SocketDirectory& socket_directory) {
    const int before = descriptors_open();
    {
        Impostor impostor(socket_directory, [](int, const Request&) {});
        const auto exporter = dial(socket_directory);
        auto start = steady_clock::now();
        const auto refusal = refused([&] { open(*exporter, 0.3); });
        CHECK(refusal && refusal->why == Why::handle_timeout && std::string(refusal->role) == "handle");
        CHECK(seconds_since(start) >= 0.3 && seconds_since(start) < 20 && refusal->pid == static_cast<uint64_t>(getpid()));
        int asked = 0;
        start = steady_clock::now();
        CHECK(refuses(Why::interrupted, [&] { open(*exporter, kPatience, {stops, &asked}); }));
        CHECK(asked == 3 && seconds_since(start) < 20);
        // A thread that waits for its turn has a deadline too.
        std::thread first([&] { CHECK(refuses(Why::handle_timeout, [&] { open(*exporter, 1); })); });
        std::thread second([&] { CHECK(refuses(Why::handle_timeout, [&] { open(*exporter, 0.2); })); });
        first.join();
        second.join();
        CHECK(comes_true([&] { return impostor.cancelled >= 3; }) && !exporter->is_lost() && !exporter->is_dead());
    }
    {
        const Impostor impostor(socket_directory, [](int socket, const Request&) { shutdown(socket, SHUT_RDWR); });
        const auto exporter = dial(socket_directory);
        CHECK(refuses(Why::peer_lost, [&] { open(*exporter); }) && exporter->is_lost() && !exporter->is_dead());
        CHECK(dial(socket_directory) != exporter);
    }
    {   // Endless old answers.
        const Impostor impostor(socket_directory, [](int socket, const Request& request) {
            Answer answer{.id = request.id - 1};
            if (request.id > 1)
                for (int i = 0; i < 1'000'000 && send(socket, &answer, sizeof answer, MSG_NOSIGNAL) > 0; ++i) {
                }
        });
        auto exporter = dial(socket_directory);
        CHECK(refuses(Why::handle_timeout, [&] { open(*exporter, 0.01); }));
        CHECK(refuses(Why::handle_timeout, [&] { open(*exporter, 0.3); }));
        exporter.reset();
    }
    // Answers that come too late are dropped.
    {
        std::atomic<int> hold{1}, asked{0};
        Block* block = create_block(4096, 0);
        Impostor impostor(socket_directory, [&](int socket, const Request& request) {
            static thread_local std::vector<Request> kept;
            kept.push_back(request);
            ++asked;
            if (hold) return;
            for (const Request& each : std::exchange(kept, {})) {
                Answer answer{.id = each.id, .nonce = 9};
                answer.grant = {.size = 4096, .length = 4096};
                send_with(socket, &answer, sizeof answer, {block->fd});
            }
        });
        const auto exporter = dial(socket_directory);
        for (int i = 0; i < 5; ++i) CHECK(refuses(Why::handle_timeout, [&] { open(*exporter, 0.01); }));
        CHECK(comes_true([&] { return asked == 5; }));   // and has opened its end of the connection
        hold = 0;
        const int now = descriptors_open();
        close(open(*exporter).fd);
        CHECK(descriptors_open() == now);
        drop(block);
    }
    CHECK(comes_true([&] { return descriptors_open() == before; }));
}

void connects_without_an_exporter_are_refused(const SocketDirectory& socket_directory) {
    const int before = descriptors_open();
    const auto connect = [&](const std::string& name, pid_t pid, uint64_t start) {
        return [=, &socket_directory] { Exporter::connect(socket_directory.fd, name, 0, kNode, pid, start, Deadline::in(kPatience), {}); };
    };
    const uint64_t start = start_time(getpid());
    CHECK(refuses(Why::peer_lost, connect("none.sock", getpid(), start)));
    CHECK(refuses(Why::peer_lost, connect(kName, getpid(), start)));   // a socket without a listener
    CHECK(refuses(Why::system_memory, connect(std::string(120, 'n'), getpid(), start)));
    {
        const Impostor impostor(socket_directory, [](int, const Request&) {});
        CHECK(!refused(connect(kName, getpid(), 0)) && !refused(connect(kName, getpid(), start & UINT32_MAX)));
        CHECK(refuses(Why::peer_lost, connect(kName, getpid(), start + 1)));   // the pid was used again
        CHECK(refuses(Why::peer_lost, connect(kName, getppid(), 0)));          // another process has its slot
    }
    // More connections than the backlog holds.
    {
        const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        sockaddr_un address{.sun_family = AF_UNIX};
        (socket_directory.path + "/full.sock").copy(address.sun_path, sizeof address.sun_path - 1);
        CHECK(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && listen(listener, 0) == 0);
        std::vector<std::shared_ptr<Exporter>> all;
        const auto full = refused([&] {
            for (uint32_t slot = 0; slot < 10; ++slot)
                all.push_back(Exporter::connect(socket_directory.fd, "full.sock", slot, kNode, getpid(), start, Deadline::in(0.3), {}));
        });
        CHECK(full && full->why == Why::handle_timeout && all.size() < 10);
        close(listener);
    }
    CHECK(descriptors_open() == before);
}

// A release never blocks and never gets lost, also when the exporter reads slowly.
void releases_to_a_slow_exporter_do_not_block(const SocketDirectory& socket_directory) {
    std::atomic<bool> slow{true};
    Impostor impostor(socket_directory, [&](int, const Request&) {
        while (slow) usleep(1000);
    });
    const auto exporter = dial(socket_directory);
    CHECK(refuses(Why::handle_timeout, [&] { open(*exporter, 0.05); }));
    constexpr int kMany = 20'000;
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < kMany / 2; ++i) exporter->let_go(1, 2);
        });
    for (std::thread& thread : threads) thread.join();
    slow = false;
    CHECK(comes_true([&] { return impostor.let_go == kMany; }));
}

void all_of_it() {
    const SocketDirectory socket_directory;
    const int before = descriptors_open();
    RUN(lying_answers_are_refused(socket_directory));
    RUN(false_early_grants_are_not_believed(socket_directory));
    RUN(silent_or_late_exporters_time_out(socket_directory));
    RUN(connects_without_an_exporter_are_refused(socket_directory));
    RUN(releases_to_a_slow_exporter_do_not_block(socket_directory));
    CHECK(comes_true([&] { return descriptors_open() == before; }));
}

}  // namespace

NATIVE_TEST(test_importer_hostile) {
    return play(argc, argv, {}, all_of_it);
}
