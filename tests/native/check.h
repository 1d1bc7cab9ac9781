// The whole test framework: CHECK, a refusal catcher, a seed that is printed, and the tests by their names.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <string>

#include "memory/refusal.h"

// Out of line: inlined into some 2,000 checks it would slow the compiler.
[[noreturn, gnu::cold, gnu::noinline]] inline void not_true(const char* file, int line, const char* condition) {
    std::fprintf(stderr, "%s:%d: not true: %s\n", file, line, condition);
    std::exit(1);
}

#define CHECK(condition)                                                \
    do {                                                                \
        if (!(condition)) not_true(__FILE__, __LINE__, #condition);     \
    } while (0)

// Prints the name first, so that the output of a hung program ends with it.
#define RUN(test)                          \
    do {                                   \
        std::printf("  %s\n", #test);      \
        std::fflush(stdout);               \
        test;                              \
    } while (0)

template <class Work>
std::optional<peerlane::Refusal> refused(const Work& work) {
    try {
        work();
    } catch (const peerlane::Refusal& refusal) {
        return refusal;
    }
    return std::nullopt;
}

template <class Work>
bool refuses(peerlane::Why why, const Work& work) {
    const auto refusal = refused(work);
    return refusal && refusal->why == why;
}

inline std::mt19937_64 seeded(const char* test) {
    const char* requested = std::getenv("PEERLANE_SEED");
    const uint64_t seed = requested ? std::strtoull(requested, nullptr, 0) : std::random_device{}();
    std::printf("%s: PEERLANE_SEED=%llu\n", test, static_cast<unsigned long long>(seed));
    std::fflush(stdout);
    return std::mt19937_64{seed};
}

inline int scaled(int usual, int soak) { return std::getenv("PEERLANE_SOAK") ? soak : usual; }

// TSan refuses windows beyond 1 TiB.
inline constexpr uint64_t kTestWindow = uint64_t{512} << 30;

inline std::map<std::string, int (*)(int, char**)>& native_tests() {
    static std::map<std::string, int (*)(int, char**)> all;
    return all;
}

// What follows is the body of a test; `argv` begins with its name.
#define NATIVE_TEST(name)                                                             \
    static int name(int argc, char** argv);                                           \
    static const bool name##_is_listed = native_tests().emplace(#name, name).second;  \
    static int name([[maybe_unused]] int argc, [[maybe_unused]] char** argv)
