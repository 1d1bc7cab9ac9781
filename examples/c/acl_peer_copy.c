// Copy between two devices over peer access, there and back, and verify every byte.
//
//     gcc acl_peer_copy.c -L$(peerlane c-abi --print-dir) -lascendcl -o acl_peer_copy
//     peerlane run ./acl_peer_copy [DEVICE DEVICE [MIB]]
#include <stdio.h>
#include <stdlib.h>

#include "acl_declarations.h"
#include "check.h"
#include "pattern.h"

static void check_reachable(int32_t device, int32_t peer) {
    int32_t reachable = 0;
    CHECK(aclrtDeviceCanAccessPeer(&reachable, device, peer));
    if (reachable) return;
    fprintf(stderr, "there is no peer access between device %d and device %d\n", device, peer);
    exit(1);
}

static void round_trip(void* on_first, void* on_second, size_t size) {
    unsigned char* const sent = pattern(size);
    unsigned char* const came = calloc(size, 1);
    if (!came) abort();
    CHECK(aclrtMemcpy(on_first, size, sent, size, ACL_MEMCPY_HOST_TO_DEVICE));
    CHECK(aclrtMemcpy(on_second, size, on_first, size, ACL_MEMCPY_DEVICE_TO_DEVICE));
    CHECK(aclrtMemset(on_first, size, 0, size));
    CHECK(aclrtMemcpy(on_first, size, on_second, size, ACL_MEMCPY_DEVICE_TO_DEVICE));
    CHECK(aclrtMemcpy(came, size, on_first, size, ACL_MEMCPY_DEVICE_TO_HOST));
    check_equal(sent, came, size);
}

int main(int count, char** words) {
    const int32_t first = count > 2 ? atoi(words[1]) : 0;
    const int32_t second = count > 2 ? atoi(words[2]) : 1;
    const size_t mib = count > 3 ? strtoul(words[3], NULL, 10) : 8;
    const size_t size = mib << 20;
    void *on_first = NULL, *on_second = NULL;
    CHECK(aclInit(NULL));

    // Peer access has a direction, from the current device to the peer.  A copy needs both directions.
    CHECK(aclrtSetDevice(first));
    check_reachable(first, second);
    CHECK(aclrtDeviceEnablePeerAccess(second, 0));
    CHECK(aclrtMalloc(&on_first, size, ACL_MEM_MALLOC_NORMAL_ONLY_P2P));
    CHECK(aclrtSetDevice(second));
    CHECK(aclrtDeviceEnablePeerAccess(first, 0));
    CHECK(aclrtMalloc(&on_second, size, ACL_MEM_MALLOC_NORMAL_ONLY_P2P));

    round_trip(on_first, on_second, size);
    printf("%s: %zu MiB from device %d to %d and back, every byte verified\n", aclrtGetSocName(), mib, first, second);

    CHECK(aclrtFree(on_second));
    CHECK(aclrtDeviceDisablePeerAccess(first));
    CHECK(aclrtResetDevice(second));
    CHECK(aclrtSetDevice(first));
    CHECK(aclrtFree(on_first));
    CHECK(aclrtDeviceDisablePeerAccess(second));
    CHECK(aclrtResetDevice(first));
    CHECK(aclrtResetDevice(first));   // each aclrtSetDevice needs a reset
    CHECK(aclFinalize());
    return 0;
}
