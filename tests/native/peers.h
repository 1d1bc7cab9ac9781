// Other processes for the tests of the broker: this program again, in a role, told line by line what to do.
#pragma once
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <poll.h>
#include <spawn.h>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "check.h"
#include "memory/block.h"
#include "share/broker.h"
#include "share/process.h"

extern char** environ;

namespace peers {

using namespace peerlane;
using std::chrono::steady_clock;

inline constexpr double kPatience = 60;          // seconds; what takes longer hangs
inline constexpr double kDeathSeconds = 0.5 * 5;   // the promise, and what a loaded machine may add
inline constexpr uint64_t kNode = 0x1122334455667788;

inline double seconds_since(steady_clock::time_point start) {
    return std::chrono::duration<double>(steady_clock::now() - start).count();
}

inline bool comes_true(const std::function<bool()>& condition, double seconds = kPatience) {
    const auto start = steady_clock::now();
    while (!condition()) {
        if (seconds_since(start) > seconds) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

inline int descriptors_open() {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += !entry.path().empty();
    return count - 1;   // that of the listing
}

class Child {
  public:
    Child(const std::string& role, const std::vector<std::string>& words = {}) {
        int to[2], from[2];
        CHECK(pipe2(to, O_CLOEXEC) == 0 && pipe2(from, O_CLOEXEC) == 0);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
        std::vector<std::string> all{"peer", role};
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
    ~Child() {
        if (pid > 0) kill_now();
        close(in_);
        close(out_);
    }
    Child(const Child&) = delete;

    void say(const std::string& line) const {
        const std::string text = line + "\n";
        CHECK(write(in_, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    }
    std::string hear() {
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
            CHECK(n > 0);   // it ended
            text_.append(part, static_cast<size_t>(n));
        }
    }
    std::string ask(const std::string& line) {
        say(line);
        return hear();
    }
    uint64_t number(const std::string& line) { return std::stoull(ask(line)); }

    int wait() {
        int status = 0;
        CHECK(comes_true([&] { return waitpid(pid, &status, WNOHANG) == pid; }));
        pid = 0;
        return status;
    }
    void kill_now() {
        kill(pid, SIGKILL);
        wait();
    }
    void stop() const {   // and it has stopped: the signal alone takes its time
        int status = 0;
        kill(pid, SIGSTOP);
        CHECK(comes_true([&] { return waitpid(pid, &status, WUNTRACED | WNOHANG) == pid; }) && WIFSTOPPED(status));
    }
    void finish() {
        close(std::exchange(in_, -1));
        const int status = wait();
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }

    pid_t pid = 0;

  private:
    int in_ = -1, out_ = -1;
    std::string text_;
};

// The rest of a line of words.
class Words {
  public:
    explicit Words(const std::string& line) : stream_(line) {}
    std::string word() {
        std::string next;
        stream_ >> next;
        return next;
    }
    uint64_t number() { return std::stoull(word()); }

  private:
    std::istringstream stream_;
};

// A role: answers every line on stdin with one on stdout until stdin ends.
inline int answer_lines(const std::function<std::string(Words)>& answer) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (std::string line; std::getline(std::cin, line);) std::cout << answer(Words(line)) << std::endl;
    return 0;
}

// A process that is not the caller's child in any way that pthread_atfork hears of: it keeps every descriptor.
inline pid_t fork_unheard() {
    const pid_t child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
    if (child != 0) return child;
    alarm(static_cast<unsigned>(kPatience));
    for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) close(fd);   // nobody waits for their end
    while (true) pause();
}

struct SocketPlace {   // a runtime directory
    std::string path;
    int fd = -1;
    SocketPlace() {
        std::string name = (std::filesystem::temp_directory_path() / "peerlane-test-XXXXXX").string();
        CHECK(mkdtemp(name.data()));
        path = name;
        fd = ::open(path.c_str(), O_DIRECTORY | O_RDONLY | O_CLOEXEC);
        CHECK(fd >= 0);
    }
    ~SocketPlace() {
        close(fd);
        std::filesystem::remove_all(path);
    }
    SocketPlace(const SocketPlace&) = delete;
    bool is_empty() const { return std::filesystem::is_empty(path); }
};

inline Broker& broker() { return Broker::get(); }

// A block on offer, and how often the broker said that it is gone.
struct Shared {
    Block* block;
    ExportKey key;
    std::shared_ptr<std::atomic<int>> gone = std::make_shared<std::atomic<int>>(0);

    explicit Shared(uint64_t size = 4096, uint16_t rights = kMayRead | kMayWrite, Kind kind = Kind::memory, bool everyone = true) {
        block = create_block(size, 0);
        Grant grant{.kind = kind, .rights = rights, .block = block->id, .size = size, .length = size, .detail = {7, 9}};
        key = broker().offer({grant, block->fd, everyone, [gone = gone] { ++*gone; }});
    }
    ~Shared() { drop(block); }
    Shared(const Shared&) = delete;

    void write(uint64_t value) const { CHECK(pwrite(block->fd, &value, sizeof value, 0) == sizeof value); }
    uint64_t importers() const { return broker().importers(key.index, key.nonce); }
    bool allow(pid_t pid) const { return broker().allow(key.index, key.nonce, pid, start_time(pid)); }
    void abandon() const { broker().abandon(key.index, key.nonce); }
    void withdraw() const { broker().withdraw(key.index, key.nonce); }
    std::string words() const { return std::to_string(key.index) + " " + std::to_string(key.nonce); }
};

// "refused WHY STATUS FIRST SECOND ASKER EXPORTER START LISTED"
inline std::string describe(const Refusal& refusal) {
    std::ostringstream text;
    text << "refused " << static_cast<int>(refusal.why) << ' ';
    if (refusal.why != Why::handle) return text.str();
    const Asked& asked = refusal.handle.asked;
    text << refusal.handle.status << ' ' << asked.first << ' ' << asked.second << ' ' << asked.asker << ' ' << asked.exporter << ' '
         << asked.asker_start << ' ' << asked.listed_start;
    return text.str();
}

inline bool is_refused(const std::string& answer, Status status) {
    const std::string start = "refused " + std::to_string(static_cast<int>(Why::handle)) + " " +
                              std::to_string(static_cast<int>(status)) + " ";
    if (answer.starts_with(start)) return true;
    std::fprintf(stderr, "got: %s\n", answer.c_str());
    return false;
}

inline bool is_lost(const std::string& answer) {
    return answer.starts_with("refused " + std::to_string(static_cast<int>(Why::peer_lost)) + " ");
}

// A socket that says what it likes.
class Raw {
  public:
    explicit Raw(const SocketPlace& place, const std::string& name) : Raw(place.path + "/" + name) {}
    explicit Raw(const std::string& path) : fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
        sockaddr_un address{.sun_family = AF_UNIX};
        path.copy(address.sun_path, sizeof address.sun_path - 1);
        timeval patience{static_cast<time_t>(kPatience), 0};
        CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
        while (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) CHECK(errno == EINTR);
    }
    ~Raw() { close(fd); }
    Raw(const Raw&) = delete;

    bool say(const void* bytes, size_t size, int flags = 0) const {
        return send(fd, bytes, size, flags | MSG_NOSIGNAL) == static_cast<ssize_t>(size);
    }
    bool say(const Request& request) const { return say(&request, sizeof request); }
    // False: the connection was closed.  Descriptors that come with it are closed.
    bool hear(Answer& answer) const {
        const ssize_t n = recv(fd, &answer, sizeof answer, 0);
        CHECK(n == sizeof answer || n == 0 || (n < 0 && errno == ECONNRESET));
        return n == sizeof answer;
    }
    Answer ask(const Request& request) const {
        Answer answer;
        CHECK(say(request) && hear(answer));
        return answer;
    }

    const int fd;
};

}  // namespace peers
