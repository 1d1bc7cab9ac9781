// Calls of destructors that come after those of the library's own objects of the thread.
#include <cstdint>
#include <cstdlib>
#include <thread>

#include "acl.h"
#include "check.h"

static void ask(const char* who) {
    int32_t device = -1;
    OK(aclrtGetDevice(&device));
    printf("%s %d\n", who, device);
    fflush(stdout);
}

struct Asks {   // made before the thread's first call, so it ends last
    const char* who;
    ~Asks() { ask(who); }
};

static void run(const char* who) {
    static thread_local Asks asks{who};
    OK(aclrtSetDevice(0));
    for (int32_t i = 0, device; i < 3; ++i) OK(aclrtGetDevice(&device));
}

int main() {
    std::atexit([] { ask("exit"); });
    std::thread(run, "thread").join();
    run("main");
    return 0;
}
