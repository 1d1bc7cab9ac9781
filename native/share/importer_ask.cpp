// One question to an exporter, and what is believed of the answer: nothing that was not looked at.
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "memory/block.h"
#include "share/importer_line.h"

namespace peerlane {

namespace {

constexpr unsigned kMostDescriptors = 3;   // enough to see that there are more than two

struct Verdict {
    Status status = Status::ok;
    HandleNumbers numbers{};
};

Verdict false_size(uint64_t claimed, uint64_t there) {
    return {Status::false_size, {.bytes = {claimed, there}}};
}

// What was claimed, against the descriptor itself.
Verdict check(const Grant& grant, Kind wanted, int fd, std::optional<uint64_t> inode = std::nullopt) {
    constexpr uint16_t kKnownRights = kMayRead | kMayWrite | kForPeers;
    if (grant.kind != wanted || !(grant.rights & kMayRead) || (grant.rights & ~kKnownRights)) return {Status::bad_answer};
    struct stat status{};
    const int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &status) != 0 || (inode && *inode != status.st_ino) || !S_ISREG(status.st_mode) || seals < 0 || (seals & kFileSeals) != kFileSeals)
        return {Status::no_seals, {.seals = std::max(seals, 0)}};
    const auto size = static_cast<uint64_t>(status.st_size);
    if (grant.size > size) return false_size(grant.size, size);
    if (grant.offset > grant.size) return false_size(grant.offset, grant.size);
    if (grant.length > grant.size - grant.offset) return false_size(grant.length, grant.size - grant.offset);
    const int mode = fcntl(fd, F_GETFL) & O_ACCMODE;
    if (mode != (grant.rights & kMayWrite ? O_RDWR : O_RDONLY))
        return {Status::false_rights, {.rights = {grant.rights & (kMayRead | kMayWrite), mode}}};
    return {};
}

// The numbers of what the exporter refuses; nothing, if an exporter of this version does not say that.
std::optional<HandleNumbers> numbers_of(const Request& request, const Answer& answer) {
    switch (answer.status) {
        case Status::other_node: return HandleNumbers{.nodes = {answer.exporter_node, request.node}};
        case Status::other_user: return HandleNumbers{.users = {answer.exporter_user, answer.asker_user}};
        case Status::wrong_kind: return HandleNumbers{.kinds = {answer.exported_kind, static_cast<uint32_t>(request.kind)}};
        case Status::too_many:
        case Status::too_many_of_process: return HandleNumbers{.most = answer.most};
        case Status::exhausted: return HandleNumbers{.exporter_error = answer.exporter_error};
        case Status::malformed:
        case Status::unknown:
        case Status::stale:
        case Status::not_listed:
        case Status::pid_reused:
        case Status::listed_early:
        case Status::foreign_namespace:
        case Status::own_process: return HandleNumbers{};
        default: return std::nullopt;
    }
}

bool has_room_for_another(int descriptor) {
    const int fd = dup(descriptor);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

}  // namespace

struct ExporterLine::Received {
    int fds[kMostDescriptors] = {-1, -1, -1};
    unsigned count = 0;
    bool cut = false;   // there were more, or no room for them here

    Received() = default;
    ~Received() {
        for (int fd : fds)
            if (fd >= 0) close(fd);
    }
    Received(const Received&) = delete;

    void take(msghdr& message) {
        cut = message.msg_flags & MSG_CTRUNC;
        for (cmsghdr* header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
            if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
            const size_t sent = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (size_t i = 0; i < sent && count < kMostDescriptors; ++i, ++count)
                memcpy(&fds[count], CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        }
    }
};

// Answers come in order, so whoever asks has the line until his came.
class ExporterLine::Exchange {
  public:
    Exchange(ExporterLine& line, Patience& patience) : line_(line) {
        while (true) {
            const int span = patience.slice();   // may ask the interpreter: not under the lock
            Lock lock(line.mutex_);
            if (line.free_.wait_for(lock, std::chrono::milliseconds(span), [&] { return !line.asking_; })) {
                line.asking_ = true;
                return;
            }
        }
    }
    ~Exchange() {
        Lock lock(line_.mutex_);
        line_.asking_ = false;
        line_.free_.notify_one();
    }
    Exchange(const Exchange&) = delete;

  private:
    ExporterLine& line_;
};

std::optional<Offer> ExporterLine::take_early(const Request& request) {
    GrantPage* const page = early_page();
    if (!page) return std::nullopt;
    const std::optional<EarlyGrant> early = page->take(request.index, request.nonce, request.nonce_bits, request.kind);
    if (!early) return std::nullopt;
    const int fd = process_.descriptor(early->exporter_fd, early->grant.rights & kMayWrite ? O_RDWR : O_RDONLY);
    // The process may have replaced its program: so the file counts, not its number.
    if (fd >= 0 && check(early->grant, request.kind, fd, early->inode).status == Status::ok)
        return Offer{early->grant, early->nonce, fd, early->taken};
    if (fd >= 0) close(fd);
    let_go(request.index, early->nonce, early->taken);
    return std::nullopt;
}

Offer ExporterLine::open(Request request, Patience& patience) {
    if (std::optional<Offer> offer = take_early(request)) return *offer;
    const Exchange exchange(*this, patience);
    request.node = node_;
    request.id = next_id_++;
    try {
        return ask(request, patience);
    } catch (const Refusal& refusal) {
        if (refusal.why != Why::descriptors || !raise_descriptor_limit()) throw;
    }
    request.id = next_id_++;
    return ask(request, patience);
}

Offer ExporterLine::ask(const Request& request, Patience& patience) {
    try {
        send_request(request, patience);
        while (true) {
            if (std::optional<Offer> offer = receive(request, patience)) return *offer;
            wait_for(POLLIN, patience);
        }
    } catch (const Refusal& refusal) {
        // What is answered later, or was and is not believed, must not count as opened.
        const bool exporter_knows = refusal.why == Why::peer_lost ||
                                    (refusal.why == Why::handle && refusal.handle.status < static_cast<int>(Status::bad_answer));
        if (!exporter_knows) {
            Request cancel = request;
            cancel.verb = Verb::cancel;
            post(cancel);
        }
        throw;
    }
}

void ExporterLine::send_request(const Request& request, Patience& patience) {
    while (true) {
        int error = 0;
        {
            // Messages first: a server that answers in order must see them in order.
            Lock lock(mutex_);
            if (!flush()) error = EAGAIN;
            else if (send(socket_, &request, sizeof request, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) error = errno;
        }
        if (error == 0 || error == EPIPE || error == ECONNRESET) return;   // its last words can still be read
        if (error != EAGAIN && error != EINTR && error != ENOBUFS) lose(error);
        wait_for(POLLOUT, patience);
    }
}

// The answer; nothing, if it is not there yet.
std::optional<Offer> ExporterLine::receive(const Request& request, Patience& patience) {
    while (true) {
        Answer answer{};
        iovec part{&answer, sizeof answer};
        alignas(cmsghdr) char control[CMSG_SPACE(kMostDescriptors * sizeof(int))];
        // Without the padding, in which the kernel would put one descriptor more than are looked at.
        constexpr size_t kRoom = CMSG_LEN(kMostDescriptors * sizeof(int));
        msghdr message{.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = kRoom};
        ssize_t size = recvmsg(socket_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        // It hung up with our question unread: that error comes before its earlier answers.
        if (size < 0 && errno == ECONNRESET) size = recvmsg(socket_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (size < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
        if (size <= 0) lose(size == 0 ? ECONNRESET : errno);
        Received received;
        received.take(message);
        const auto refuse = [&](Status status, const HandleNumbers& numbers = {}) {
            Lock lock(mutex_);
            lost_ = true;   // what it says means nothing any more; what was imported stays as it is
            throw refuse_handle(status, patience.parties(), numbers);
        };
        const auto bytes = static_cast<size_t>(size);
        if (bytes < offsetof(Answer, status) || answer.magic != kFrameMagic) refuse(Status::bad_answer);
        if (answer.version != kFrameVersion) refuse(Status::version, {.versions = {answer.version, kFrameVersion}});
        const bool is_late = answer.id != 0 && answer.id < request.id;
        const bool of_connection = answer.id == 0 && answer.status != Status::ok;
        if (bytes != sizeof answer || (message.msg_flags & MSG_TRUNC) || !(is_late || of_connection || answer.id == request.id))
            refuse(Status::bad_answer);
        if (is_late) {   // and cancelled
            (void)patience.slice();   // an exporter that sends nothing else must not hold us
            continue;
        }
        return accept(request, answer, received, patience);
    }
}

Offer ExporterLine::accept(const Request& request, const Answer& answer, Received& received, const Patience& patience) {
    const HandleParties parties{patience.parties().exporter, answer.asker, answer.asker_start, answer.listed_start};
    if (answer.status != Status::ok) {
        const std::optional<HandleNumbers> numbers = numbers_of(request, answer);
        throw numbers ? refuse_handle(answer.status, parties, *numbers) : refuse_handle(Status::bad_answer, parties);
    }
    const bool lacks_room = received.cut && received.count < 2 && !has_room_for_another(socket_);
    if (lacks_room && received.count == 0) throw Refusal{.why = Why::descriptors, .role = "handle", .error = EMFILE};
    if ((received.cut && !lacks_room) || received.count < 1 || received.count > 2 ||
        !is_nonce(request.nonce, request.nonce_bits, answer.nonce))
        throw refuse_handle(Status::bad_answer, parties);
    if (received.count == 2) {
        Lock lock(mutex_);
        if (early_ || !GrantPage::is_page(received.fds[1])) throw refuse_handle(Status::bad_answer, parties);
        early_ = GrantPage::map(received.fds[1]);
    }
    const Verdict verdict = check(answer.grant, request.kind, received.fds[0]);
    if (verdict.status != Status::ok) throw refuse_handle(verdict.status, parties, verdict.numbers);
    return {answer.grant, answer.nonce, std::exchange(received.fds[0], -1)};
}

}  // namespace peerlane
