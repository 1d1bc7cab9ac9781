#include "log/threads.h"

#include <dlfcn.h>

namespace peerlane::log {

namespace {

bool write_note(Kind kind, uint64_t key, uint64_t number, uint64_t posts = 0) {
    if (!wanted()) return false;
    write({.kind = kind, .a = key, .b = number, .c = posts, .site = 0});
    return true;
}

constexpr ThreadNotes notes{
    .is_quiet = [] { return context.quiet != 0; },
    .post = [](uint64_t key, uint64_t number) { return write_note(Kind::post, key, number); },
    .take = [](uint64_t key, uint64_t number) { write_note(Kind::take, key, number, 1); },
    .forget = [](uint64_t key, uint64_t number) { write_note(Kind::forget, key, number); },
};

}  // namespace

void follow_threads() {
    if (void* const follow = dlsym(RTLD_DEFAULT, "peerlane_follow_threads")) reinterpret_cast<void (*)(const ThreadNotes*)>(follow)(&notes);
}

}  // namespace peerlane::log
