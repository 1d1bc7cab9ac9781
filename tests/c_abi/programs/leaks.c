// What is not freed at the end, unless there is an argument.
#include "acl.h"
#include "check.h"

int main(int count, char** words) {
    (void)words;
    void* memory[3];
    aclrtStream stream;
    OK(aclrtSetDevice(0));
    for (int i = 0; i < 3; ++i) OK(aclrtMalloc(&memory[i], 4096, 0));   // line 10
    OK(aclrtCreateStream(&stream));   // line 11
    if (count > 1) {
        for (int i = 0; i < 3; ++i) OK(aclrtFree(memory[i]));
        OK(aclrtDestroyStream(stream));
    }
    return 7;
}
