// Bytes to send, and whether they came.
#pragma once

#include <stdio.h>
#include <stdlib.h>

static inline unsigned char* pattern(size_t size) {
    unsigned char* const bytes = malloc(size);
    if (!bytes) abort();
    for (size_t i = 0; i < size; ++i) bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    return bytes;
}

// Ends the program unless both are equal, and frees them.
static inline void check_equal(unsigned char* sent, unsigned char* came, size_t size) {
    size_t wrong = 0;
    for (size_t i = 0; i < size; ++i) wrong += sent[i] != came[i];
    free(sent);
    free(came);
    if (wrong == 0) return;
    fprintf(stderr, "%zu of %zu bytes differ\n", wrong, size);
    exit(1);
}
