#include "share/importer_line.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <set>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include "memory/block.h"
#include "log/threads.h"
#include "memory/threads.h"

namespace peerlane {

namespace {

constexpr int kPollMilliseconds = 100;   // between two looks at signals and at who died
constexpr int kDialAgain = 2;        // milliseconds
constexpr int kLastWords = 100;      // milliseconds: a dying process closes its sockets before it counts as dead

// Every line that has descriptors; a forked child closes them.
struct OpenLines {
    std::mutex mutex;
    std::set<ExporterLine*> all;
    static OpenLines& get() {
        static auto* lines = new OpenLines;
        return *lines;
    }
};

// The user of a socket that may not be dialled; that of its directory, where the socket cannot be looked at either.
uint32_t owner_of(int directory, const std::string& name) {
    struct stat status{};
    if (fstatat(directory, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) fstat(directory, &status);
    return status.st_uid;
}

}  // namespace

void refuse_lost(int32_t pid, int error) {
    throw Refusal{.why = Why::peer_lost, .role = "handle", .pid = static_cast<uint64_t>(pid), .error = error};
}

int Patience::slice() {
    const auto now = Clock::now();
    if (now >= next_poll_) {
        next_poll_ = now + std::chrono::milliseconds(kPollMilliseconds);
        if (poll_.ask && poll_.ask(poll_.context)) throw Refusal{.why = Why::interrupted};
    }
    if (now >= deadline_.at)
        throw Refusal{.why = Why::handle_timeout, .role = "handle", .pid = static_cast<uint64_t>(exporter_)};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::min(deadline_.at, next_poll_) - now);
    return std::clamp(static_cast<int>(left.count()), 1, kPollMilliseconds);
}

void ExporterLine::obtain_socket() {
    std::lock_guard lock(OpenLines::get().mutex);
    socket_ = new_descriptor([] { return ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    if (socket_ >= 0) {
        OpenLines::get().all.insert(this);
        return;
    }
    const bool descriptors = errno == EMFILE || errno == ENFILE;
    throw Refusal{.why = descriptors ? Why::descriptors : Why::system_memory, .role = "handle", .error = errno};
}

ExporterLine::~ExporterLine() {
    std::lock_guard lock(OpenLines::get().mutex);
    OpenLines::get().all.erase(this);
    for (int fd : {socket_, process_.pidfd})
        if (fd >= 0) close(fd);
}

std::shared_ptr<ExporterLine> ExporterLine::connect(int directory, const std::string& name, uint64_t node, int32_t pid,
                                                    uint64_t start, Patience& patience) {
    std::shared_ptr<ExporterLine> line(new ExporterLine(node));
    line->obtain_socket();
    line->dial(directory, name, pid, patience);
    line->identify(pid, start, patience);
    return line;
}

void ExporterLine::dial(int directory, const std::string& name, int32_t pid, Patience& patience) {
    // Through the descriptor: the directory's own path may be longer than an address can be.
    const std::string path = "/proc/self/fd/" + std::to_string(directory) + "/" + name;
    sockaddr_un address{.sun_family = AF_UNIX};
    if (path.size() >= sizeof address.sun_path)
        throw Refusal{.why = Why::system_memory, .role = "handle", .error = ENAMETOOLONG};
    path.copy(address.sun_path, path.size());
    while (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        const int error = errno;
        if (error == EACCES || error == EPERM)
            throw refuse_handle(Status::other_user, patience.parties(), {.users = {owner_of(directory, name), geteuid()}});
        if (error != EAGAIN && error != EINTR) refuse_lost(pid, start_time(pid) == 0 ? 0 : error);
        // More than the backlog want in.
        if (start_time(pid) == 0) refuse_lost(pid, 0);
        poll(nullptr, 0, std::min(patience.slice(), kDialAgain));
    }
}

void ExporterLine::identify(int32_t pid, uint64_t start, const Patience& patience) {
    ucred credentials{};
    socklen_t size = sizeof credentials;
    getsockopt(socket_, SOL_SOCKET, SO_PEERCRED, &credentials, &size);
    if (credentials.uid != geteuid())
        throw refuse_handle(Status::other_user, patience.parties(), {.users = {credentials.uid, geteuid()}});
    if (credentials.pid == 0) throw refuse_handle(Status::foreign_namespace, patience.parties());
    if (credentials.pid != pid) refuse_lost(pid, 0);
    {
        std::lock_guard lock(OpenLines::get().mutex);
        process_ = Process::watch(pid, socket_);
    }
    const bool is_other = start != 0 && static_cast<uint32_t>(start) != static_cast<uint32_t>(known_start(process_.start));
    if (process_.start == 0 || is_other) refuse_lost(pid, 0);
}

bool ExporterLine::is_lost() {
    {
        Lock lock(mutex_);
        if (lost_) return true;
    }
    pollfd asked{socket_, POLLRDHUP, 0};
    return poll(&asked, 1, 0) == 1 || process_.has_ended();
}

void ExporterLine::lose(int error) {
    {
        Lock lock(mutex_);
        lost_ = true;
    }
    pollfd asked{process_.pidfd, POLLIN, 0};
    if (process_.pidfd >= 0) poll(&asked, 1, kLastWords);
    refuse_lost(process_.pid, process_.has_ended() ? 0 : error);
}

void ExporterLine::wait_for(short events, Patience& patience) {
    pollfd asked[2] = {{socket_, events, 0}, {process_.pidfd, POLLIN, 0}};
    while (true) {
        if (poll(asked, 2, patience.slice()) <= 0) {
            if (process_.pidfd < 0 && process_.has_ended()) lose(0);
            continue;
        }
        if (asked[0].revents) return;   // its last answer counts, also when it is dead by now
        lose(0);
    }
}

void ExporterLine::hang_up() {
    if (socket_ >= 0) shutdown(socket_, SHUT_RDWR);
}

GrantPage* ExporterLine::early_page() {
    Lock lock(mutex_);
    return lost_ ? nullptr : early_.get();
}

void ExporterLine::let_go(uint32_t index, uint64_t nonce, TakenGrant taken) {
    if (taken.state != 0)
        if (GrantPage* const page = early_page(); page && page->release(taken)) return;
    post({.verb = Verb::let_go, .node = node_, .nonce = nonce, .index = index});
}

void ExporterLine::post(const Request& request) {
    Lock lock(mutex_);
    try {
        unsent_.push_back(request);
    } catch (const std::bad_alloc&) {
        return;   // it is let go with the connection
    }
    if (!flush()) flush_later();
}

bool ExporterLine::flush() {
    while (!unsent_.empty()) {
        if (send(socket_, &unsent_.front(), sizeof(Request), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
            if (errno == EAGAIN || errno == EINTR || errno == ENOBUFS) return false;
            lost_ = true;
            unsent_.clear();
            return true;
        }
        unsent_.pop_front();
    }
    return true;
}

// The exporter is behind with reading.  Nobody may ever call again, so a thread stays until all is sent.
void ExporterLine::flush_later() {
    if (flushing_) return;
    const auto work = [self = shared_from_this()] {
        begin_own_thread();
        pollfd asked[2] = {{self->socket_, POLLOUT, 0}, {self->process_.pidfd, POLLIN, 0}};
        while (true) {
            poll(asked, 2, kPollMilliseconds);
            const bool dead = self->process_.has_ended();
            Lock lock(self->mutex_);
            if (!dead && !self->flush()) continue;
            self->flushing_ = false;
            return;
        }
    };
    try {
        log::own_thread(work).detach();
        flushing_ = true;
    } catch (const std::exception&) {
        // The next call tries again.
    }
}

void ExporterLine::fork_prepare() { OpenLines::get().mutex.lock(); }
void ExporterLine::fork_parent() { OpenLines::get().mutex.unlock(); }
bool ExporterLine::fork_child() {
    const bool any = !OpenLines::get().all.empty();
    for (ExporterLine* line : OpenLines::get().all) {
        for (int fd : {line->socket_, line->process_.pidfd})
            if (fd >= 0) close(fd);
        line->socket_ = line->process_.pidfd = -1;
    }
    OpenLines::get().all.clear();
    OpenLines::get().mutex.unlock();
    return any;
}

}  // namespace peerlane
