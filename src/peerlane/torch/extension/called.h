// For the checker's log: the line of the program that calls, and the operation of torch that it calls.
#pragma once
#include <c10/util/ThreadLocalDebugInfo.h>

#include "runtime.h"

namespace peerlane_torch {

#ifdef PEERLANE_AS_CUDA
constexpr const char* kLibrary = "torch.cuda";
#else
constexpr const char* kLibrary = "torch";
#endif

// A kind of such information.  In torch 2.12 kinds are small numbers, of which torch has the lowest; later they are names by address.
template <class Kind>
constexpr Kind kind_named(const std::string_view* name) {
    if constexpr (std::is_enum_v<Kind>) return static_cast<Kind>(0xe0);
    else return Kind(name);
}

// The thread that runs the program.  torch hands it to the threads that compute gradients, as it does with all such information, and the
// thread waits for those.
class CallingThread final : public c10::DebugInfoBase {
  public:
    explicit CallingThread(const peerlane::Caller& caller) : caller_(caller) {}

    // The thread that waits for this one; null: none.
    static const peerlane::Caller* waiting() {
        const auto* const info = static_cast<const CallingThread*>(c10::ThreadLocalDebugInfo::get(kKind));
        return info && info != own() ? &info->caller_ : nullptr;
    }
    // Who has put information of another kind there will take it away, and finds it on top.
    static void introduce() {
        if (c10::ThreadLocalDebugInfo::current()) return;
        const peerlane::Caller caller = calls->caller();
        if (caller.number == 0) return;
        const auto info = std::make_shared<CallingThread>(caller);
        own() = info.get();
        c10::ThreadLocalDebugInfo::_push(kKind, info);
    }

  private:
    static constexpr std::string_view kName = "peerlane.CallingThread";
    static constexpr c10::DebugInfoKind kKind = kind_named<c10::DebugInfoKind>(&kName);

    static const CallingThread*& own() {
        static thread_local const CallingThread* info = nullptr;
        return info;
    }
    const peerlane::Caller caller_;
};

// While it lives, what this thread submits belongs to the line that calls now.
class Called {
  public:
    explicit Called(const char* operation = nullptr) : is_noted_(calls->is_checked()) {
        if (!is_noted_) [[likely]] return;
        const peerlane::Caller* const waiting = CallingThread::waiting();
        before_ = calls->enter(operation ? kLibrary : nullptr, operation, waiting);
        if (!waiting) CallingThread::introduce();
    }
    ~Called() {
        if (is_noted_) [[unlikely]] calls->leave(before_);
    }
    Called(const Called&) = delete;

  private:
    const bool is_noted_;
    peerlane::Entered before_;
};

}  // namespace peerlane_torch
