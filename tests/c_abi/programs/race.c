// The second stream does not wait for the first.
#include "acl.h"
#include "check.h"

int main(int count, char** words) {
    (void)words;
    void *first, *second;
    aclrtStream one, other;
    aclrtEvent event;
    OK(aclrtSetDevice(0));
    OK(aclrtMalloc(&first, 4096, 0));
    OK(aclrtMalloc(&second, 4096, 0));
    OK(aclrtCreateStream(&one));
    OK(aclrtCreateStream(&other));
    OK(aclrtCreateEventWithFlag(&event, 1));
    OK(aclrtMemsetAsync(first, 4096, 1, 4096, one));   // line 16
    OK(aclrtRecordEvent(event, one));
    if (count > 1) OK(aclrtStreamWaitEvent(other, event));
    OK(aclrtMemcpyAsync(second, 4096, first, 4096, 3, other));   // line 19
    OK(aclrtSynchronizeStream(one));
    OK(aclrtSynchronizeStream(other));
    return 0;
}
