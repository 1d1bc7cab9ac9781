// A thread writes, and main reads what it wrote: after a join; after a condition variable, which the checker does not see; or at once.
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "acl.h"
#include "check.h"

namespace {

constexpr size_t kBytes = 4096;
std::mutex mutex;
std::condition_variable is_signalled;
bool is_done = false;

void write(void* first, void* second) {
    aclrtStream stream;
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    OK(aclrtMemsetAsync(first, kBytes, 1, kBytes, stream));
    OK(aclrtMemcpyAsync(second, kBytes, first, kBytes, 3, stream));
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtDestroyStream(stream));
    const std::lock_guard lock(mutex);
    is_done = true;
    is_signalled.notify_one();
}

}  // namespace

int main(int, char** words) {
    void *first, *second;
    char got[64];
    OK(aclrtSetDevice(0));
    OK(aclrtMalloc(&first, kBytes, 0));
    OK(aclrtMalloc(&second, kBytes, 0));
    std::thread thread(write, first, second);
    if (strcmp(words[1], "join") == 0) thread.join();
    if (strcmp(words[1], "condition") == 0) {
        std::unique_lock lock(mutex);
        is_signalled.wait(lock, [] { return is_done; });
    }
    OK(aclrtMemset(first, kBytes, 0, kBytes));
    OK(aclrtMemcpy(got, sizeof got, second, sizeof got, 2));
    if (thread.joinable()) thread.join();
    OK(aclrtFree(first));
    OK(aclrtFree(second));
}
