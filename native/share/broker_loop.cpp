#include "share/broker_loop.h"

#include <cerrno>
#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "memory/block.h"
#include "log/threads.h"
#include "memory/threads.h"

namespace peerlane {

namespace {

constexpr int kBacklog = 1024;
constexpr int kEvents = 64;
constexpr int kAccepts = 16;         // in a row
constexpr int kLookPeriod = 100;     // milliseconds
// Answers that nobody reads must not hold many descriptors in flight: their number is limited for all of a user.
constexpr int kSendBuffer = 8192;

[[noreturn]] void refuse(int error) {
    const bool descriptors = error == EMFILE || error == ENFILE;
    throw Refusal{.why = descriptors ? Why::descriptors : Why::system_memory, .role = "handle", .error = error};
}

int required(int fd) {
    if (fd < 0) refuse(errno);
    return fd;
}

void close_one(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
}

Answer exhausted(int error) {
    return {.status = Status::exhausted, .exporter_error = static_cast<uint16_t>(error)};
}

}  // namespace

void BrokerLoop::listen(int directory, const std::string& name) {
    // Through the descriptor: the directory's own path may be longer than an address can be.
    const std::string path = "/proc/self/fd/" + std::to_string(directory) + "/" + name;
    sockaddr_un address{.sun_family = AF_UNIX};
    if (path.size() >= sizeof address.sun_path) refuse(ENAMETOOLONG);
    path.copy(address.sun_path, path.size());
    unlinkat(directory, name.c_str(), 0);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) refuse(errno);
    // Nobody can connect before it listens, so nobody gets in by the mode it was made with.
    if (fchmodat(directory, name.c_str(), S_IRUSR | S_IWUSR, 0) != 0 || ::listen(listener_, kBacklog) != 0) {
        const int error = errno;
        unlinkat(directory, name.c_str(), 0);
        refuse(error);
    }
}

void BrokerLoop::start(int directory, const std::string& name) {
    listener_ = required(new_descriptor([] { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }));
    epoll_ = required(new_descriptor([] { return epoll_create1(EPOLL_CLOEXEC); }));
    stop_ = required(new_descriptor([] { return eventfd(0, EFD_CLOEXEC); }));
    reserve_ = required(new_descriptor([] { return eventfd(0, EFD_CLOEXEC); }));
    watch(stop_, Source::stop, 0);
    watch(listener_, Source::listener, 0);
    listen(directory, name);
    try {
        thread_ = log::own_thread([this] { run(); });
    } catch (const std::system_error& error) {
        unlinkat(directory, name.c_str(), 0);
        refuse(error.code().value());
    }
}

void BrokerLoop::stop() {
    eventfd_write(stop_, 1);
    thread_.join();
    std::lock_guard lock(mutex_);
    shutdown(listener_, SHUT_RDWR);
    // Also where a child that was forked behind our back keeps them open.
    for (auto& [id, connection] : connections_) shutdown(connection.socket, SHUT_RDWR);
}

void BrokerLoop::close_descriptors() {
    for (int* fd : {&listener_, &epoll_, &stop_, &reserve_}) close_one(*fd);
    for (auto& [id, connection] : connections_) {
        close_one(connection.socket);
        close_one(connection.process.pidfd);
    }
}

void BrokerLoop::watch(int fd, Source source, uint64_t id) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = id << 2 | static_cast<uint64_t>(source)}};
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) refuse(errno);
}

void BrokerLoop::run() {
    begin_own_thread();
    pthread_setname_np(pthread_self(), "peerlane-broker");
    epoll_event events[kEvents];
    int timeout = -1;
    while (true) {
        const int count = epoll_wait(epoll_, events, kEvents, timeout);
        for (int i = 0; i < count; ++i) {
            const uint64_t id = events[i].data.u64 >> 2;
            switch (static_cast<Source>(events[i].data.u64 & 3)) {
                case Source::stop: return;
                case Source::listener:
                    for (int n = 0; n < kAccepts && accept_one(); ++n) {
                    }
                    break;
                case Source::socket: serve(id); break;
                case Source::process: drop(id); break;
            }
        }
        look_for_dead();
        Lock lock(mutex_);
        timeout = polled_ == 0 ? -1 : kLookPeriod;
    }
}

bool BrokerLoop::accept_one() {
    Lock lock(mutex_);
    const auto accept = [&] { return accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); };
    int socket = new_descriptor(accept);
    if (socket >= 0) {
        if (connections_.size() >= kMaxConnections)
            refuse_connection(socket, {.status = Status::too_many, .most = kMaxConnections});
        else
            enter(socket);
        return true;
    }
    if (errno != EMFILE && errno != ENFILE) return errno == ECONNABORTED || errno == EINTR;
    const int error = errno;
    close_one(reserve_);
    socket = accept();
    if (socket >= 0) refuse_connection(socket, exhausted(error));
    reserve_ = eventfd(0, EFD_CLOEXEC);
    if (socket >= 0) return true;
    lock.unlock();
    usleep(1000);   // no descriptor even to refuse with: without a pause this would spin
    return false;
}

void BrokerLoop::refuse_connection(int socket, Answer answer) {
    answer.exporter = pid_;
    send(socket, &answer, sizeof answer, MSG_DONTWAIT | MSG_NOSIGNAL);
    close(socket);
}

void BrokerLoop::enter(int socket) {
    setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
    ucred credentials{};
    socklen_t size = sizeof credentials;
    getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size);
    // One process must not take all connections.
    const auto its = of_process_.find(credentials.pid);
    if (credentials.pid != pid_ && its != of_process_.end() && its->second.size() >= kMaxOfProcess)
        return refuse_connection(socket, {.status = Status::too_many_of_process, .most = kMaxOfProcess});
    const uint64_t id = next_id_++;
    Connection connection{.socket = socket, .user = credentials.uid};
    // A pid of 0 is one of a foreign namespace: it gets nothing, so its end need not be known.
    if (credentials.pid != 0) connection.process = Process::watch(credentials.pid, socket);
    const Process& process = connection.process;
    try {
        if (process.pid != 0 && process.start == 0) throw Refusal{.why = Why::peer_lost};
        if (process.start == kUnknownStart) throw Refusal{.why = Why::descriptors, .error = EMFILE};
        watch(socket, Source::socket, id);
        if (process.pidfd >= 0) watch(process.pidfd, Source::process, id);
        const bool is_polled = connection.is_polled();
        std::vector<uint64_t>& ids = of_process_[credentials.pid];
        ids.reserve(ids.size() + 1);
        connections_.emplace(id, std::move(connection));
        ids.push_back(id);
        polled_ += is_polled;
    } catch (const std::exception&) {
        refuse_connection(socket, exhausted(ENOMEM));
        close_one(connection.process.pidfd);
    } catch (const Refusal& refusal) {
        refuse_connection(socket, exhausted(refusal.error));
        close_one(connection.process.pidfd);
    }
}

void BrokerLoop::look_for_dead() {
    std::vector<uint64_t> dead;
    {
        Lock lock(mutex_);
        if (polled_ == 0) return;
        const auto now = std::chrono::steady_clock::now();
        if (now < next_look_) return;
        next_look_ = now + std::chrono::milliseconds(kLookPeriod);
        for (const auto& [id, connection] : connections_)
            if (connection.is_polled() && connection.process.has_ended()) dead.push_back(id);
    }
    for (uint64_t id : dead) drop(id);
}

void BrokerLoop::drop(uint64_t id) {
    std::vector<Gone> all;
    {
        Lock lock(mutex_);
        const auto entry = connections_.find(id);
        if (entry == connections_.end()) return;
        Connection& connection = entry->second;
        for (const auto& [index, times] : connection.held)
            if (times != 0)
                for (Gone& gone : exports_.drop_importer(index)) all.push_back(std::move(gone));
        // A child that was forked behind our back may keep them open: without this they would be reported for ever.
        for (int fd : {connection.socket, connection.process.pidfd})
            if (fd >= 0) epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
        shutdown(connection.socket, SHUT_RDWR);
        polled_ -= connection.is_polled();
        close_one(connection.socket);
        close_one(connection.process.pidfd);
        const auto its = of_process_.find(connection.process.pid);
        std::erase(its->second, id);
        if (its->second.empty()) of_process_.erase(its);
        connections_.erase(entry);
    }
    for (const Gone& gone : all) gone();
}

}  // namespace peerlane
