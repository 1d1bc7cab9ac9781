// What the test programs share: a failed call ends the program with its words.
#pragma once
#include <stdio.h>
#include <stdlib.h>

#ifndef LAST_ERROR
#define LAST_ERROR() aclGetRecentErrMsg()
#endif

#define OK(call)                                                                          \
    do {                                                                                  \
        const int code_ = (int)(call);                                                    \
        if (code_ != 0) {                                                                 \
            const char* message_ = LAST_ERROR();                                             \
            fprintf(stderr, "%s: %d at line %d\n%s\n", #call, code_, __LINE__, message_ ? message_ : ""); \
            exit(99);                                                                     \
        }                                                                                 \
    } while (0)

#define IS(condition)                                                     \
    do {                                                                  \
        if (!(condition)) {                                               \
            fprintf(stderr, "%s is false at line %d\n", #condition, __LINE__); \
            exit(98);                                                     \
        }                                                                 \
    } while (0)
