// The entry points of a vendor's C library: each hands its arguments to the dialect, which answers.
#pragma once

#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "c_abi/quick.h"

#define PEERLANE_C extern "C" __attribute__((visibility("default")))
#define PEERLANE_BODY extern "C" __attribute__((visibility("hidden"), used))

// The exported function, which goes on in the body.  UCX replaces the first instructions of a vendor's function by a jump and runs
// them elsewhere, and it knows how to move few of them: these change nothing that the body reads.
#if defined(__x86_64__)
#define PEERLANE_EXPORTED(name)                                                             \
    asm(".pushsection .text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n"    \
        "mov $0, %eax\nmov $0, %eax\nmov $0, %eax\njmp peerlane_" #name "\n"               \
        ".size " #name ", . - " #name "\n.popsection");
#else
#define PEERLANE_EXPORTED(name) asm(".globl " #name "\n.set " #name ", peerlane_" #name);
#endif

namespace peerlane::c_abi {

// An argument or a result as C passes it in a register.
struct Word {
    enum class Kind : uint8_t { signed_integer, unsigned_integer, real } kind;
    union {
        int64_t number;
        uint64_t natural;
        double real;
    };

    Word() : kind(Kind::signed_integer), number(0) {}
    template <class T>
    Word(T value) {   // NOLINT: arguments become words by themselves
        if constexpr (std::is_floating_point_v<T>) {
            kind = Kind::real;
            real = value;
        } else if constexpr (std::is_signed_v<T>) {
            kind = Kind::signed_integer;
            number = value;
        } else {
            kind = Kind::unsigned_integer;
            natural = value;
        }
    }

    template <class T>
    T as() const {
        if constexpr (std::is_floating_point_v<T>) return static_cast<T>(real);
        else return static_cast<T>(natural);
    }
};

// What native code answers by itself; null until the dialects are there.
extern __attribute__((visibility("default"))) std::atomic<const Quick*> quick;

// What a function answers when Python has ended.
struct AtTheEnd {
    bool succeeds;                 // it ends, selects or awaits what has ended with Python
    size_t output = 0, size = 0;   // the argument that has the address of its output, which is 0 then
};

// A function of a library; it lives as long as the library.
struct Entry {
    const char* dialect;
    const char* header;
    const char* name;
    int64_t failed;   // what it returns if Python cannot be asked
    AtTheEnd at_the_end;
    std::atomic<void*> callable{nullptr};
};

// Ask the dialect; false if it cannot be asked.  The caller is where the program goes on after the call.
__attribute__((visibility("default"))) bool ask(Entry& entry, const Word* words, size_t count, void* caller, Word& result);

// A text of C's variable arguments, cut as the vendor's log cuts it; without a format there is none.
class Formatted {
public:
    Formatted(uint64_t format, va_list values) : has_format_(format != 0) {
        if (!has_format_) return;
        constexpr char kCut[] = "...[truncated]";
        const int length = std::vsnprintf(text_, sizeof text_, reinterpret_cast<const char*>(format), values);
        if (length >= static_cast<int>(sizeof text_)) std::memcpy(text_ + sizeof text_ - sizeof kCut, kCut, sizeof kCut);
    }
    uint64_t address() const { return has_format_ ? reinterpret_cast<uint64_t>(text_) : 0; }

private:
    bool has_format_;
    char text_[1024] = {};
};

template <class Result, class... Arguments>
Result call(Entry& entry, void* caller, Arguments... arguments) {
    const Word words[sizeof...(Arguments) + 1] = {Word(arguments)..., Word()};
    Word result;
    if constexpr (std::is_floating_point_v<Result>) result = Word(Result{});
    const bool is_answered = ask(entry, words, sizeof...(Arguments), caller, result);
    if constexpr (std::is_void_v<Result>) return;
    else return is_answered ? result.as<Result>() : static_cast<Result>(entry.failed);
}

}  // namespace peerlane::c_abi
