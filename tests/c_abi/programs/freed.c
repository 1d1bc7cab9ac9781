// Memory that ends, or is used again, while queued work uses it: "freed racy" or "freed right".  The call that comes too early has its kind
// at the end of its line.
#include <string.h>

#include "acl.h"
#include "check.h"

enum { SIZE = 4 << 20, TO_DEVICE = 1, ON_DEVICE = 3 };

typedef struct {
    void *source, *target;
} Pair;

static Pair copied(aclrtStream stream) {
    Pair pair;
    OK(aclrtMalloc(&pair.source, SIZE, 0));
    OK(aclrtMalloc(&pair.target, SIZE, 0));
    OK(aclrtMemset(pair.source, SIZE, 1, SIZE));
    OK(aclrtMemcpyAsync(pair.target, SIZE, pair.source, SIZE, ON_DEVICE, stream));
    return pair;
}

static void* uploaded(aclrtStream stream) {
    void *pinned, *target;
    OK(aclrtMallocHost(&pinned, SIZE));
    OK(aclrtMalloc(&target, SIZE, 0));
    OK(aclrtMemset(pinned, SIZE, 1, SIZE));
    OK(aclrtMemcpyAsync(target, SIZE, pinned, SIZE, TO_DEVICE, stream));
    return pinned;
}

static void end_early(aclrtStream stream) {
    OK(aclrtFree(copied(stream).source));   // source
    OK(aclrtFree(copied(stream).target));   // target
    OK(aclrtFreeHost(uploaded(stream)));   // pinned
    OK(aclrtSynchronizeStream(stream));
    aclrtStream forced;
    OK(aclrtCreateStream(&forced));
    const Pair abandoned = copied(forced);
    OK(aclrtDestroyStreamForce(forced));
    OK(aclrtMemset(abandoned.target, SIZE, 2, SIZE));   // forced
}

static void end_in_time(aclrtStream stream) {
    OK(aclrtFreeWithDevSync(copied(stream).source));
    OK(aclrtFreeWithDevSync(copied(stream).target));
    OK(aclrtFreeHostWithDevSync(uploaded(stream)));
    const Pair known = copied(stream);
    OK(aclrtSynchronizeStream(stream));
    OK(aclrtFree(known.source));
    const Pair aborted = copied(stream);
    OK(aclrtStreamAbort(stream));   // it waits for what runs
    OK(aclrtMemset(aborted.target, SIZE, 2, SIZE));
}

int main(int count, char** words) {
    aclrtStream stream;
    OK(aclInit(NULL));
    OK(aclrtSetDevice(0));
    OK(aclrtCreateStream(&stream));
    (count > 1 && !strcmp(words[1], "racy") ? end_early : end_in_time)(stream);
    puts("done");
    return 0;
}
