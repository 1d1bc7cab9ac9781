// CHECK(call) ends the program unless the call returns 0.  It prints the call, its code and the runtime's message.
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "acl_declarations.h"

static inline void check(int code, const char* call) {
    if (code == 0) return;
    const char* const text = aclGetRecentErrMsg();
    fprintf(stderr, "%s returned %d\n%s\n", call, code, text ? text : "");
    exit(1);
}
#define CHECK(call) check((int)(call), #call)
