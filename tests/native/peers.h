// Other processes for the tests of the broker: this program again, in a role that takes commands line by line.
#pragma once
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/resource.h>
#include <sys/stat.h>
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

namespace peers {

using namespace peerlane;
using std::chrono::steady_clock;

inline constexpr double kPatience = 60;          // seconds; a longer wait is a hang
inline constexpr double kDeathSeconds = 10;    // the promise is 0.5, and a loaded machine may stop a process for seconds
inline constexpr uint64_t kNode = 0x1122334455667788;

inline double seconds_since(steady_clock::time_point start) {
    return std::chrono::duration<double>(steady_clock::now() - start).count();
}

bool comes_true(const std::function<bool()>& condition, double seconds = kPatience);
int descriptors_open();

extern std::string test_of_this_process;   // a child takes a role of the same test

class Child {
  public:
    Child(const std::string& role, const std::vector<std::string>& words = {});
    ~Child();
    Child(const Child&) = delete;

    void send_line(const std::string& line) const;
    std::string hear();
    std::string ask(const std::string& line);
    uint64_t number(const std::string& line);

    int wait();
    void kill_now();
    void stop() const;
    void finish();

    pid_t pid = 0;

  private:
    int in_ = -1, out_ = -1;
    std::string text_;
};

// The rest of a line of words.
class Words {
  public:
    explicit Words(const std::string& line) : stream_(line) {}
    std::string word();
    uint64_t number();

  private:
    std::istringstream stream_;
};

// A role: answers every line on stdin with one on stdout until stdin ends.
int answer_lines(const std::function<std::string(Words)>& answer);

// Forks past pthread_atfork, so that the child keeps every descriptor.
pid_t fork_unheard();

struct SocketDirectory {   // a runtime directory
    std::string path;
    int fd = -1;
    SocketDirectory();
    ~SocketDirectory();
    SocketDirectory(const SocketDirectory&) = delete;
    bool is_empty() const;
};

inline Broker& broker() { return Broker::get(); }

// An exported block, and how often the broker reported that it is gone.
struct Shared {
    Block* block;
    ExportKey key;
    std::shared_ptr<std::atomic<int>> gone = std::make_shared<std::atomic<int>>(0);

    explicit Shared(uint64_t size = 4096, uint16_t rights = kMayRead | kMayWrite, Kind kind = Kind::memory, bool everyone = true);
    ~Shared();
    Shared(const Shared&) = delete;

    void write(uint64_t value) const;
    uint64_t importers() const;
    bool allow(pid_t pid) const;
    void abandon() const;
    void withdraw() const;
    std::string words() const;
};

// "refused WHY STATUS NUMBERS ASKER EXPORTER START LISTED"; the numbers are those that the status has
std::string describe(const Refusal& refusal);
bool is_refused(const std::string& answer, Status status);
bool is_lost(const std::string& answer);

// A socket that sends any bytes.
class Raw {
  public:
    explicit Raw(const SocketDirectory& socket_directory, const std::string& name) : Raw(socket_directory.path + "/" + name) {}
    explicit Raw(const std::string& path);
    ~Raw();
    Raw(const Raw&) = delete;

    bool send_line(const void* bytes, size_t size, int flags = 0) const;
    bool send_line(const Request& request) const;
    // False: the connection was closed.  Descriptors that come with the frame are closed.
    bool hear(Answer& answer) const;
    Answer ask(const Request& request) const;

    const int fd;
};

}  // namespace peers
