// What stays as it is in the process of a program that calls: each word of the command line names one check.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <clocale>
#include <cstring>
#include <string>
#include <thread>

#include "acl.h"
#include "check.h"

namespace {

void interrupt() {
    OK(aclInit(nullptr));
    OK(aclrtSetDevice(0));
    raise(SIGINT);
}

void locale() {
    unsetenv("LC_ALL");
    unsetenv("LC_CTYPE");
    OK(aclInit(nullptr));
    IS(std::string(setlocale(LC_CTYPE, nullptr)) == "C");
    IS(!getenv("LC_CTYPE"));
}

void reopen() {
    for (int round = 0; round < 3; ++round) {
        void* const library = dlopen("libascendcl.so", RTLD_NOW | RTLD_LOCAL);
        IS(library);
        auto* const set = reinterpret_cast<int (*)(int)>(dlsym(library, "aclrtSetDevice"));
        OK(set(0));
        IS(dlclose(library) == 0);
    }
}

void* allocate(void*) {
    aclrtSetDevice(0);
    for (;;) {
        void* memory = nullptr;
        aclrtMalloc(&memory, 64, 0);
        aclrtFree(memory);
        pthread_testcancel();
    }
}

void cancel() {
    OK(aclInit(nullptr));
    pthread_t threads[8];
    for (pthread_t& each : threads) IS(pthread_create(&each, nullptr, allocate, nullptr) == 0);
    for (pthread_t each : threads) IS(pthread_cancel(each) == 0);
    for (pthread_t each : threads) IS(pthread_join(each, nullptr) == 0);
    OK(aclrtSetDevice(0));
}

// Made before its thread calls first, so its end comes after what the library keeps of the thread.
struct Memory {
    void* address = nullptr;
    ~Memory() { OK(aclrtFree(address)); }
};
thread_local Memory memory;

void ending() {
    OK(aclInit(nullptr));
    for (int round = 0; round < 20; ++round)
        std::thread([] {
            void** const output = &memory.address;
            OK(aclrtSetDevice(0));
            OK(aclrtMalloc(output, 64, 0));
        }).join();
}

}  // namespace

int main(int, char** words) {
    const std::string check = words[1];
    if (check == "interrupt") interrupt();
    if (check == "locale") locale();
    if (check == "reopen") reopen();
    if (check == "cancel") cancel();
    if (check == "ending") ending();
    puts("done");
}
