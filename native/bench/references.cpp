// peerlane._bench: what `peerlane bench` compares peerlane with, timed in C.  It shares no state with peerlane._core.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "copy/kernels.h"
#include "copy/thread_team.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;

namespace {

using Addresses = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig>;

template <class Work>
double seconds(uint64_t rounds, const Work& work) {
    const auto start = std::chrono::steady_clock::now();
    for (uint64_t i = 0; i < rounds; ++i) {
        work();
        std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / static_cast<double>(rounds);
}

// One side of an exchange over a connected socket, which blocks unless it spins.
class TcpTurn {
  public:
    TcpTurn(int fd, char* memory, bool spins) : fd_(fd), memory_(memory), spins_(spins) {}

    bool send(uint64_t size) const {
        for (uint64_t at = 0; at < size;) {
            const ssize_t done = ::send(fd_, memory_ + at, std::min(size - at, kChunk), MSG_NOSIGNAL);
            if (done < 0 && errno == EINTR) continue;
            if (done <= 0) return false;
            at += static_cast<uint64_t>(done);
        }
        return true;
    }

    bool receive(uint64_t size) const {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        uint64_t looks = 0;
        for (uint64_t at = 0; at < size;) {
            const ssize_t done = ::recv(fd_, memory_ + at, std::min(size - at, kChunk), spins_ ? MSG_DONTWAIT : 0);
            if (done > 0) {
                at += static_cast<uint64_t>(done);
                continue;
            }
            if (done == 0 || (errno != EAGAIN && errno != EINTR)) return false;
            if (++looks % 4096 == 0 && std::chrono::steady_clock::now() > end) return false;
        }
        return true;
    }

  private:
    static constexpr uint64_t kChunk = uint64_t{256} << 10;
    const int fd_;
    char* const memory_;
    const bool spins_;
};

}  // namespace

NB_MODULE(_bench, m) {
    m.doc() = "What the command `peerlane bench` compares peerlane with, timed in C.";
    m.def(
        "time_ping_pong",
        [](uint64_t mine, uint64_t theirs, uint64_t begin, uint64_t rounds, bool first, double deadline) {
            const std::atomic_ref seen(*reinterpret_cast<uint64_t*>(mine));
            const std::atomic_ref told(*reinterpret_cast<uint64_t*>(theirs));
            const nb::gil_scoped_release released;
            const auto start = std::chrono::steady_clock::now();
            const auto wait = [&](uint64_t value) {
                for (uint64_t looks = 1; seen.load(std::memory_order_acquire) != value; ++looks)
                    if (looks % 4096 == 0 &&
                        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > deadline)
                        return false;
                return true;
            };
            for (uint64_t i = begin + 1; i <= begin + rounds; ++i) {
                if (first) told.store(i, std::memory_order_release);
                if (!wait(i)) return -1.0;
                if (!first) told.store(i, std::memory_order_release);
            }
            return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
                   static_cast<double>(2 * rounds);
        },
        "mine"_a, "theirs"_a, "begin"_a, "rounds"_a, "first"_a, "deadline"_a,
        "Two processes tell each other numbers from begin + 1 on, by host addresses of a word each; the seconds of one way, "
        "negative if the other does not come.");
    m.def(
        "tcp_turn",
        [](int fd, uint64_t address, bool first, uint64_t there, uint64_t back, bool spins) {
            const TcpTurn turn(fd, reinterpret_cast<char*>(address), spins);
            return first ? turn.send(there) && turn.receive(back) : turn.receive(there) && turn.send(back);
        },
        "fd"_a, "address"_a, "first"_a, "there"_a, "back"_a, "spins"_a, nb::call_guard<nb::gil_scoped_release>(),
        "Send so many bytes over a TCP connection in chunks of 256 KiB, and receive the answer, or the other way round; False: the "
        "other end is gone, or silent.");
    m.def(
        "time_copy",
        [](uint64_t dst, uint64_t src, uint64_t size, bool streaming, unsigned threads, uint64_t rounds) {
            auto* to = reinterpret_cast<char*>(dst);
            const auto* from = reinterpret_cast<const char*>(src);
            const auto part = [=](unsigned index) {
                const uint64_t start = size / threads * index / 64 * 64;
                const uint64_t end = index + 1 == threads ? size : size / threads * (index + 1) / 64 * 64;
                if (streaming) {
                    stream_copy(to + start, from + start, end - start);
                    store_fence();
                } else {
                    memcpy(to + start, from + start, end - start);
                }
            };
            return seconds(rounds, [&] {
                if (threads == 1) {
                    part(0);
                    return;
                }
                std::atomic<unsigned> next{0};
                const std::function<void(bool)> work = [&](bool) {
                    for (unsigned i; (i = next.fetch_add(1)) < threads;) part(i);
                };
                ThreadTeam::get().run(threads - 1, work);
            });
        },
        "dst"_a, "src"_a, "size"_a, "streaming"_a, "threads"_a, "rounds"_a,
        nb::call_guard<nb::gil_scoped_release>(),
        "Seconds of one plain or streaming copy between two host addresses, without any check.");
    m.def(
        "time_scattered_copies",
        [](Addresses dsts, Addresses srcs, uint64_t size, uint64_t rounds) {
            if (dsts.shape(0) != srcs.shape(0)) throw nb::value_error("as many destinations as sources");
            const uint64_t* to = dsts.data();
            const uint64_t* from = srcs.data();
            const size_t count = dsts.shape(0);
            const nb::gil_scoped_release released;
            return seconds(rounds, [&] {
                for (size_t i = 0; i < count; ++i)
                    memcpy(reinterpret_cast<char*>(to[i]), reinterpret_cast<const char*>(from[i]), size);
            });
        },
        "dsts"_a, "srcs"_a, "size"_a, "rounds"_a,
        "Seconds of a loop of memcpy between pairs of host addresses, all of one size, without any check.");
    m.def(
        "time_lookups",
        [](Addresses addresses, uint64_t rounds) {
            // The allocations are known to peerlane._core only.
            const auto look_up_each = reinterpret_cast<void (*)(const uint64_t*, size_t)>(
                nb::cast<nb::capsule>(nb::module_::import_("peerlane._core").attr("look_up_each")).data("look_up_each"));
            const uint64_t* list = addresses.data();
            const size_t count = addresses.shape(0);
            return seconds(rounds, [&] { look_up_each(list, count); }) / static_cast<double>(count);
        },
        "addresses"_a, "rounds"_a, "Seconds of one look-up, over the whole list in order.");
}
