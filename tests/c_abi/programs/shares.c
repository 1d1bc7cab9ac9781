// Physical memory, mapped and shared by a handle with a list of processes; the parent and a process that it executes.
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "acl.h"
#include "check.h"

enum { kGranule = 2 << 20 };

static void* mapped(aclrtDrvMemHandle handle) {
    void* address = NULL;
    OK(aclrtReserveMemAddress(&address, kGranule, 0, NULL, 0));
    OK(aclrtMapMem(address, kGranule, 0, handle, 0));
    return address;
}

static int importer(char** words) {
    aclrtDrvMemHandle handle = NULL;
    char got[6] = {0};
    int32_t pid = 0;
    OK(aclrtSetDevice(0));
    OK(aclrtDeviceGetBareTgid(&pid));
    printf("%d\n", pid);   // whom to list
    fflush(stdout);
    IS(getchar() == 'x');
    OK(aclrtMemImportFromShareableHandle(strtoull(words[1], NULL, 0), 0, &handle));
    void* const address = mapped(handle);
    OK(aclrtMemcpy(got, 5, address, 5, 2));
    IS(strcmp(got, "hello") == 0);
    OK(aclrtUnmapMem(address));
    OK(aclrtReleaseMemAddress(address));
    OK(aclrtFreePhysical(handle));
    return 0;
}

int main(int count, char** words) {
    if (count > 1) return importer(words);
    aclrtPhysicalMemProp property = {.location = {.id = 0, .type = 1}};
    aclrtDrvMemHandle handle = NULL;
    uint64_t shareable = 0;
    size_t granularity = 0;
    property.memAttr = 4;
    OK(aclrtSetDevice(0));
    OK(aclrtMemGetAllocationGranularity(&property, 0, &granularity));
    IS(granularity == kGranule);
    OK(aclrtMallocPhysical(&handle, kGranule, &property, 0));
    void* const address = mapped(handle);
    OK(aclrtMemcpy(address, kGranule, "hello", 5, 1));
    OK(aclrtMemExportToShareableHandle(handle, 0, 0, &shareable));

    int to[2], from[2];
    IS(pipe(to) == 0 && pipe(from) == 0);
    char number[32];
    snprintf(number, sizeof number, "%llu", (unsigned long long)shareable);
    const pid_t child = fork();
    if (child == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        execl(words[0], words[0], number, (char*)NULL);
        _exit(97);
    }
    int32_t pid = 0;
    FILE* const answers = fdopen(from[0], "r");
    IS(fscanf(answers, "%d", &pid) == 1 && pid == child);
    OK(aclrtMemSetPidToShareableHandle(shareable, &pid, 1));
    IS(write(to[1], "x", 1) == 1);
    int status = 0;
    waitpid(child, &status, 0);
    IS(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    aclrtPtrAttributes attributes;
    memset(&attributes, 0xFF, sizeof attributes);
    OK(aclrtPointerGetAttributes(address, &attributes));
    IS(attributes.location.id == 0 && attributes.location.type == 1 && attributes.page_size == kGranule);
    OK(aclrtUnmapMem(address));
    OK(aclrtReleaseMemAddress(address));
    OK(aclrtFreePhysical(handle));
    puts("done");
    return 0;
}
