// The contexts of a vendor's program, and those that each thread has pushed: Python and the calls of C without Python share them.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "stream/stream.h"

namespace peerlane {

class Context {
  public:
    std::atomic<uint64_t> handle{0};     // by which the program knows it; 0: none yet
    std::atomic<int32_t> device{-1};     // the program's number of its device; -1: not known
    std::atomic<bool> is_live{true};
    std::atomic<bool> is_usable{true};   // no failed work has made each call of it fail

    // Null: not known.
    Stream* null_stream() const { return has_null_stream_.load(std::memory_order_acquire) ? null_stream_.get() : nullptr; }
    // With the GIL.
    void know_null_stream(const StreamPtr& stream) {
        if (has_null_stream_.load(std::memory_order_relaxed)) return;
        null_stream_ = stream;
        has_null_stream_.store(true, std::memory_order_release);
    }

    int64_t references() const { return references_.load(std::memory_order_relaxed); }
    void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
    int64_t release() { return references_.fetch_sub(1, std::memory_order_acq_rel) - 1; }
    void release_all() { references_.store(0, std::memory_order_release); }
    // For calls of C: false, and nothing happens, if the change would be from or to none, which begins or ends it.
    bool change_references(int64_t by) {
        int64_t now = references_.load(std::memory_order_relaxed);
        while (now > 0 && now + by > 0)
            if (references_.compare_exchange_weak(now, now + by, std::memory_order_acq_rel)) return true;
        return false;
    }

  private:
    std::atomic<int64_t> references_{0};
    StreamPtr null_stream_;              // set once
    std::atomic<bool> has_null_stream_{false};
};

using ContextPtr = std::shared_ptr<Context>;
using PushedContexts = std::vector<ContextPtr>;   // of one thread, the newest last

// The contexts that threads have pushed, on one node.
class ContextStack {
  public:
    // It lives as long as the thread and this; after the ends of the thread's objects, for ever.
    PushedContexts& of_thread() const;

    struct OfThread {
        std::weak_ptr<const char> stack;
        std::unique_ptr<PushedContexts> pushed;
    };

  private:
    const std::shared_ptr<const char> identity_ = std::make_shared<const char>();
};

}  // namespace peerlane

// What Python holds of a context.
struct ContextHandle {
    peerlane::ContextPtr context = std::make_shared<peerlane::Context>();
};
