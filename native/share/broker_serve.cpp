// What the broker answers.  The lock is held from reading a frame to sending its answer; nothing of it blocks.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <span>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "log/log.h"
#include "memory/block.h"
#include "memory/sharers.h"
#include "share/broker_loop.h"

namespace peerlane {

namespace {

constexpr int kFramesInARow = 16;   // frames of one connection before others have theirs
constexpr size_t kMostSent = 2;   // with one answer

// 0 or an errno.
int send_answer(int socket, const Answer& answer, std::span<const int> fds = {}) {
    iovec part{const_cast<Answer*>(&answer), sizeof answer};
    alignas(cmsghdr) char control[CMSG_SPACE(kMostSent * sizeof(int))] = {};
    msghdr message{.msg_iov = &part, .msg_iovlen = 1};
    if (!fds.empty()) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(fds.size_bytes());
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fds.size_bytes());
        memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
    }
    return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

// `page`: a second descriptor, or -1.
int send_descriptors(int socket, const Answer& answer, int fd, int page) {
    const std::array<int, kMostSent> fds{fd, page};
    return send_answer(socket, answer, std::span(fds).first(page < 0 ? 1 : 2));
}

int send_reader(int socket, const Answer& answer, int fd, int page) {
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    const int reader = new_descriptor([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); });
    if (reader < 0) return errno;
    const int error = send_descriptors(socket, answer, reader, page);
    close(reader);
    return error;
}

bool is_frame(const Request& request) {
    const bool verb = request.verb >= Verb::open && request.verb <= Verb::cancel;
    return verb && (request.nonce_bits == 64 || (request.nonce_bits == 28 && request.nonce <= kShortNonce));
}

}  // namespace

void BrokerLoop::serve(uint64_t id) {
    for (int n = 0; n < kFramesInARow; ++n) {
        std::vector<Gone> gone;
        Next next;
        Process sharer{};
        {
            Lock lock(mutex_);
            const auto connection = connections_.find(id);
            if (connection == connections_.end()) return;
            try {
                next = answer_one(connection->second, gone);
            } catch (const std::bad_alloc&) {
                next = Next::drop;
            }
            if (connection->second.last_granted && !std::exchange(connection->second.is_named, true)) sharer = connection->second.process;
        }
        if (sharer.pid != 0) log::name_sharer(sharer.pid);
        for (const Gone& each : gone) each();
        if (next == Next::drop) drop(id);
        if (next != Next::more) return;
    }
}

BrokerLoop::Next BrokerLoop::answer_one(Connection& connection, std::vector<Gone>& gone) {
    Request request;
    // One byte more than a frame has, so that a longer one shows; descriptors in it find no room, and are closed.
    char bytes[sizeof request + 1];
    const ssize_t size = recv(connection.socket, bytes, sizeof bytes, MSG_DONTWAIT);
    if (size < 0) return errno == EAGAIN || errno == EINTR ? Next::later : Next::drop;
    if (size == 0) return Next::drop;
    memcpy(&request, bytes, sizeof request);
    const auto received = static_cast<size_t>(size);
    const bool magic = received >= offsetof(Request, verb) && request.magic == kFrameMagic;
    const bool whole = magic && received == sizeof request;
    Answer answer{.id = whole ? request.id : 0, .exporter = pid_, .asker = connection.process.pid,
                  .asker_start = connection.process.start};
    if (magic && request.version != kFrameVersion) {
        answer.status = Status::version;
    } else if (!whole || !is_frame(request)) {
        answer.status = Status::malformed;
    } else if (request.verb == Verb::open) {
        return open(connection, request, answer) ? Next::more : Next::drop;
    } else {
        gone = undo(connection, request);
        return Next::more;
    }
    return send_answer(connection.socket, answer) == 0 ? Next::more : Next::drop;
}

bool BrokerLoop::open(Connection& connection, const Request& request, Answer& answer) {
    connection.last_request = request.id;
    connection.last_granted = false;
    connection.last_index = request.index;
    answer.status = judge(connection, request, answer);
    int error = 0;
    if (answer.status == Status::ok) {
        const ExportTable::Entry& entry = exports_.at(request.index);
        hold(connection, request.index);
        connection.last_granted = true;
        answer.nonce = entry.nonce;
        answer.grant = entry.what.grant;
        note_sharer(owner_word(connection.process.pid, connection.process.start));   // before it can say that it has the handle
        error = send_grant(connection, answer, entry.what);
        if (error == 0) return true;
        if (error == EAGAIN || error == EPIPE || error == ECONNRESET) return false;
        connection.last_granted = false;
        release(connection, request.index);   // others have it, or its owner: nothing is to be called
        answer.status = Status::exhausted;
        answer.exporter_error = static_cast<uint16_t>(error);
        answer.nonce = 0;
        answer.grant = {};
    }
    return send_answer(connection.socket, answer) == 0;
}

// A process that opens a second thing gets the page with it: few open more than one.
int BrokerLoop::send_grant(Connection& connection, const Answer& answer, const Export& what) {
    int page = -1;
    if (!connection.early && std::exchange(connection.is_known, true))
        if (std::unique_ptr<GrantPage> own = GrantPage::make(page)) {
            connection.early.reset(new (std::nothrow) EarlyGrants(std::move(own)));
            if (!connection.early) close(std::exchange(page, -1));
        }
    const auto send = what.grant.rights & kMayWrite ? send_descriptors : send_reader;
    const int error = send(connection.socket, answer, what.fd, page);
    if (page < 0) return error;
    close(page);
    if (error != 0) connection.early = nullptr;
    return error;
}

void BrokerLoop::hold(Connection& connection, uint32_t index) {
    if (connection.held[index]++ == 0) exports_.add_importer(index);
    ++connection.opens;
}

uint64_t BrokerLoop::start_of(int32_t pid) const {
    const auto its = of_process_.find(pid);
    if (its == of_process_.end() || its->second.empty()) return 0;
    const Process& process = connections_.at(its->second.front()).process;
    return process.pidfd >= 0 && !process.has_ended() ? process.start : 0;
}

void BrokerLoop::grant_early(uint32_t index, int32_t pid) {
    const auto its = of_process_.find(pid);
    if (its == of_process_.end()) return;
    const ExportTable::Entry& entry = exports_.at(index);
    struct stat file {};
    if (fstat(entry.what.fd, &file) != 0) return;
    for (const uint64_t id : its->second) {
        Connection& connection = connections_.at(id);
        Answer refusal;
        if (!connection.early || judge(connection, {.node = node_, .nonce = entry.nonce, .index = index, .kind = entry.what.grant.kind}, refusal) != Status::ok)
            continue;
        try {
            connection.held.try_emplace(index);   // now, so that counting needs no memory
        } catch (const std::bad_alloc&) {
            return;
        }
        note_sharer(owner_word(connection.process.pid, connection.process.start));   // before it can say that it has the handle
        const auto offer = [&] { return connection.early->offer({index, entry.nonce}, entry.what.grant, entry.what.fd, file.st_ino); };
        if (offer() || connection.early->has(index)) continue;
        count_early(connection);   // what has ended gives its room back
        if (!offer()) settle_early(connection, index, false);
    }
}

void BrokerLoop::count_early(Connection& connection) {
    if (connection.early && !connection.early->is_empty())
        connection.early->look([&](uint32_t index, bool has_it) { settle_early(connection, index, has_it); });
}

void BrokerLoop::settle_early(Connection& connection, uint32_t index, bool has_it) {
    if (has_it) return hold(connection, index);
    if (const auto held = connection.held.find(index); held != connection.held.end() && held->second == 0) connection.held.erase(held);
}

void BrokerLoop::count_early() {
    for (auto& [id, connection] : connections_) count_early(connection);
}

void BrokerLoop::take_back_early(uint32_t index) {
    for (auto& [id, connection] : connections_) {
        if (!connection.early || !connection.early->has(index)) continue;
        connection.early->take_back(index, [&](uint32_t its, bool has_it) { settle_early(connection, its, has_it); });
    }
}

Status BrokerLoop::judge(const Connection& connection, const Request& request, Answer& answer) {
    const Process& process = connection.process;
    if (request.node != node_) {
        answer.exporter_node = node_;
        return Status::other_node;
    }
    if (process.pid == 0) return Status::foreign_namespace;
    if (connection.user != geteuid()) {
        answer.exporter_user = geteuid();
        answer.asker_user = connection.user;
        return Status::other_user;
    }
    if (process.pid == pid_) return Status::own_process;
    const Status status = exports_.status(request.index, request.nonce, request.nonce_bits);
    if (status != Status::ok) return status;
    const ExportTable::Entry* entry = &exports_.at(request.index);
    if (!entry->what.everyone) {
        const auto listed = std::find_if(entry->listed.begin(), entry->listed.end(),
                                         [&](const auto& each) { return each.first == process.pid; });
        if (listed == entry->listed.end()) return Status::not_listed;
        answer.listed_start = listed->second;
        if (listed->second == 0) return Status::listed_early;
        if (listed->second != process.start) return Status::pid_reused;
    }
    if (const Kind kind = entry->what.grant.kind; kind != request.kind) {
        answer.exported_kind = static_cast<uint16_t>(kind);
        return Status::wrong_kind;
    }
    if (connection.opens >= kMaxOpens) {
        answer.most = kMaxOpens;
        return Status::too_many;
    }
    return Status::ok;
}

std::vector<BrokerLoop::Gone> BrokerLoop::undo(Connection& connection, const Request& request) {
    count_early(connection);
    if (request.verb == Verb::let_go) {
        const bool known = exports_.find(request.index, request.nonce & kShortNonce, 28);
        return known ? release(connection, request.index) : std::vector<Gone>{};
    }
    if (request.id != connection.last_request || !connection.last_granted) return {};
    connection.last_granted = false;
    return release(connection, connection.last_index);
}

std::vector<BrokerLoop::Gone> BrokerLoop::release(Connection& connection, uint32_t index) {
    const auto held = connection.held.find(index);
    if (held == connection.held.end() || held->second == 0) return {};
    --connection.opens;
    if (--held->second != 0) return {};
    if (!connection.early || !connection.early->has(index)) connection.held.erase(held);
    return exports_.drop_importer(index);
}

}  // namespace peerlane
