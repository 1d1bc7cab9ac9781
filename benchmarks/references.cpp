// What the benchmarks compare peerlane with.  references.py compiles and loads it; it shares no state with peerlane._core.
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "copy/kernels.h"

using namespace peerlane;

namespace {

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

extern "C" {

double time_ping_pong(uint64_t mine, uint64_t theirs, uint64_t begin, uint64_t rounds, bool first, double deadline) {
    const std::atomic_ref seen(*reinterpret_cast<uint64_t*>(mine));
    const std::atomic_ref flag(*reinterpret_cast<uint64_t*>(theirs));
    const auto start = std::chrono::steady_clock::now();
    const auto passed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
    const auto wait = [&](uint64_t value) {
        for (uint64_t looks = 1; seen.load(std::memory_order_acquire) != value; ++looks)
            if (looks % 4096 == 0 && passed() > deadline) return false;
        return true;
    };
    for (uint64_t i = begin + 1; i <= begin + rounds; ++i) {
        if (first) flag.store(i, std::memory_order_release);
        if (!wait(i)) return -1.0;
        if (!first) flag.store(i, std::memory_order_release);
    }
    return passed() / static_cast<double>(2 * rounds);
}

// Send so many bytes over a TCP connection, and receive the answer, or the other way round; false: the other end is
// gone, or silent.
bool tcp_turn(int fd, uint64_t address, bool first, uint64_t there, uint64_t back, bool spins) {
    const TcpTurn turn(fd, reinterpret_cast<char*>(address), spins);
    return first ? turn.send(there) && turn.receive(back) : turn.receive(there) && turn.send(back);
}

double time_copy(uint64_t dst, uint64_t src, uint64_t size, bool streaming, unsigned threads, uint64_t rounds) {
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
    if (threads == 1) return seconds(rounds, [&] { part(0); });
    std::barrier together(threads);   // its threads spin before they sleep
    const auto work = [&](unsigned index) {
        return seconds(rounds, [&] {
            part(index);
            together.arrive_and_wait();
        });
    };
    std::vector<std::thread> helpers;
    for (unsigned index = 1; index < threads; ++index)
        helpers.emplace_back([&, index] {
            together.arrive_and_wait();
            work(index);
        });
    together.arrive_and_wait();
    const double taken = work(0);
    for (std::thread& helper : helpers) helper.join();
    return taken;
}

double time_scattered_copies(const uint64_t* dsts, const uint64_t* srcs, uint64_t count, uint64_t size, uint64_t rounds) {
    return seconds(rounds, [&] {
        for (size_t i = 0; i < count; ++i)
            memcpy(reinterpret_cast<char*>(dsts[i]), reinterpret_cast<const char*>(srcs[i]), size);
    });
}

double time_lookups(void (*look_up_each)(const uint64_t*, size_t), const uint64_t* addresses, uint64_t count,
                    uint64_t rounds) {
    return seconds(rounds, [&] { look_up_each(addresses, count); }) / static_cast<double>(count);
}

}  // extern "C"
