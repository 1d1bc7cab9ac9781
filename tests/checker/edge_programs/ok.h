/* A failed call, or a value that is not 0, ends the program with its words. */
#pragma once
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(call)                                                                                       \
    do {                                                                                               \
        long code_ = (long)(call);                                                                     \
        if (code_ != 0) fprintf(stderr, "%s: %ld, %s\n", #call, code_, strerror(errno)), exit(1);      \
    } while (0)
