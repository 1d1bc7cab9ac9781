#include "peers.h"

#include <iostream>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

extern char** environ;

namespace peers {

std::string test_of_this_process;

bool comes_true(const std::function<bool()>& condition, double seconds) {
    const auto start = steady_clock::now();
    while (!condition()) {
        if (seconds_since(start) > seconds) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

int descriptors_open() {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += !entry.path().empty();
    return count - 1;   // without the descriptor of the listing
}

Child::Child(const std::string& role, const std::vector<std::string>& words) {
    int to[2], from[2];
    CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
    std::vector<std::string> all{"peer", test_of_this_process, role};
    all.insert(all.end(), words.begin(), words.end());
    std::vector<char*> argv;
    for (std::string& word : all) argv.push_back(word.data());
    argv.push_back(nullptr);
    CHECK(posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argv.data(), environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(to[0]);
    close(from[1]);
    in_ = to[1];
    out_ = from[0];
}

Child::~Child() {
    if (pid > 0) kill_now();
    close(in_);
    close(out_);
}

void Child::send_line(const std::string& line) const {
    const std::string text = line + "\n";
    CHECK(write(in_, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

std::string Child::hear() {
    const auto start = steady_clock::now();
    while (true) {
        if (const size_t end = text_.find('\n'); end != std::string::npos) {
            const std::string line = text_.substr(0, end);
            text_.erase(0, end + 1);
            return line;
        }
        pollfd asked{out_, POLLIN, 0};
        CHECK(seconds_since(start) < kPatience);
        if (poll(&asked, 1, 1000) != 1) continue;
        char part[512];
        const ssize_t n = read(out_, part, sizeof part);
        CHECK(n > 0);   // 0: the process ended
        text_.append(part, static_cast<size_t>(n));
    }
}

std::string Child::ask(const std::string& line) {
    send_line(line);
    return hear();
}

uint64_t Child::number(const std::string& line) { return std::stoull(ask(line)); }

int Child::wait() {
    int status = 0;
    CHECK(comes_true([&] { return waitpid(pid, &status, WNOHANG) == pid; }));
    pid = 0;
    return status;
}

void Child::kill_now() {
    kill(pid, SIGKILL);
    wait();
}

void Child::stop() const {   // returns when it has stopped
    int status = 0;
    kill(pid, SIGSTOP);
    CHECK(comes_true([&] { return waitpid(pid, &status, WUNTRACED | WNOHANG) == pid; }) && WIFSTOPPED(status));
}

void Child::finish() {
    close(std::exchange(in_, -1));
    const int status = wait();
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

std::string Words::word() {
    std::string next;
    stream_ >> next;
    return next;
}

uint64_t Words::number() { return std::stoull(word()); }

int answer_lines(const std::function<std::string(Words)>& answer) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (std::string line; std::getline(std::cin, line);) std::cout << answer(Words(line)) << std::endl;
    return 0;
}

pid_t fork_unheard() {
    const pid_t child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
    if (child != 0) return child;
    alarm(static_cast<unsigned>(kPatience));
    for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(fd);   // so that no reader waits for their end
    while (true) pause();
}

SocketDirectory::SocketDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "peerlane-test-XXXXXX").string();
    CHECK(mkdtemp(name.data()));
    path = name;
    fd = ::open(path.c_str(), O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
}

SocketDirectory::~SocketDirectory() {
    close(fd);
    std::filesystem::remove_all(path);
}

bool SocketDirectory::is_empty() const { return std::filesystem::is_empty(path); }

Shared::Shared(uint64_t size, uint16_t rights, Kind kind, bool everyone) {
    block = create_block(size, 0);
    Grant grant{.kind = kind, .rights = rights, .block = block->id, .size = size, .length = size, .notify_kind = 7, .count = 9};
    key = broker().offer({grant, block->fd, everyone, [gone = gone] { ++*gone; }});
}

Shared::~Shared() { drop(block); }

void Shared::write(uint64_t value) const { CHECK(pwrite(block->fd, &value, sizeof value, 0) == sizeof value); }

uint64_t Shared::importers() const { return broker().importers(key.index, key.nonce); }

bool Shared::allow(pid_t pid) const { return broker().allow(key.index, key.nonce, pid, start_time(pid)); }

void Shared::abandon() const { broker().abandon(key.index, key.nonce); }

void Shared::withdraw() const { broker().withdraw(key.index, key.nonce); }

std::string Shared::words() const { return std::to_string(key.index) + " " + std::to_string(key.nonce); }

static std::string status_line(Status status, const HandleNumbers& numbers) {
    std::ostringstream text;
    switch (status) {
        case Status::version: text << numbers.versions.exporter << ' ' << numbers.versions.asker << ' '; break;
        case Status::other_node: text << numbers.nodes.exporter << ' ' << numbers.nodes.asker << ' '; break;
        case Status::other_user: text << numbers.users.exporter << ' ' << numbers.users.asker << ' '; break;
        case Status::wrong_kind: text << numbers.kinds.exported << ' ' << numbers.kinds.wanted << ' '; break;
        case Status::too_many:
        case Status::too_many_of_process:
        case Status::too_many_members: text << numbers.most << ' '; break;
        case Status::exhausted: text << numbers.exporter_error << ' '; break;
        case Status::false_size: text << numbers.bytes.claimed << ' ' << numbers.bytes.there << ' '; break;
        case Status::no_seals: text << numbers.seals << ' '; break;
        case Status::false_rights: text << numbers.rights.claimed << ' ' << numbers.rights.mode << ' '; break;
        default: break;
    }
    return text.str();
}

std::string describe(const Refusal& refusal) {
    std::ostringstream text;
    text << "refused " << static_cast<int>(refusal.why) << ' ';
    if (refusal.why != Why::handle) return text.str();
    const HandleParties& parties = refusal.handle.parties;
    const auto status = static_cast<Status>(refusal.handle.status);
    text << refusal.handle.status << ' ' << status_line(status, refusal.handle.numbers) << parties.asker << ' ' << parties.exporter << ' '
         << parties.asker_start << ' ' << parties.listed_start;
    return text.str();
}

bool is_refused(const std::string& answer, Status status) {
    const std::string start = "refused " + std::to_string(static_cast<int>(Why::handle)) + " " +
                              std::to_string(static_cast<int>(status)) + " ";
    if (answer.starts_with(start)) return true;
    std::fprintf(stderr, "got: %s\n", answer.c_str());
    return false;
}

bool is_lost(const std::string& answer) {
    return answer.starts_with("refused " + std::to_string(static_cast<int>(Why::peer_lost)) + " ");
}

Raw::Raw(const std::string& path) : fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{.sun_family = AF_UNIX};
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    timeval patience{static_cast<time_t>(kPatience), 0};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
    while (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) CHECK(errno == EINTR);
}

Raw::~Raw() { close(fd); }

bool Raw::send_line(const void* bytes, size_t size, int flags) const {
    return send(fd, bytes, size, flags | MSG_NOSIGNAL) == static_cast<ssize_t>(size);
}

bool Raw::send_line(const Request& request) const { return send_line(&request, sizeof request); }

bool Raw::hear(Answer& answer) const {
    const ssize_t n = recv(fd, &answer, sizeof answer, 0);
    CHECK(n == sizeof answer || n == 0 || (n < 0 && errno == ECONNRESET));
    return n == sizeof answer;
}

Answer Raw::ask(const Request& request) const {
    Answer answer;
    CHECK(send_line(request) && hear(answer));
    return answer;
}

}  // namespace peers
