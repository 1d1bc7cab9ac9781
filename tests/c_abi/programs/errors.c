// A wrong copy: the message names the functions of C, and the lines of this file.
#include "acl.h"
#include "check.h"

static void copy_too_far(void* memory) {
    char bytes[8] = {0};
    printf("%d\n", aclrtMemcpy((char*)memory + 4096, 8, bytes, 8, 1));   // line 7
    puts(aclGetRecentErrMsg());
}

int main(void) {
    void* memory = NULL;
    OK(aclrtSetDevice(0));
    OK(aclrtMalloc(&memory, 64, 0));   // line 14
    copy_too_far(memory);
    return 0;
}
