// Texts that stay, texts that are not UTF-8, NULL where it is allowed, and what messages say of wrong structs.
#include <string.h>

#include "acl.h"
#include "check.h"

enum { kTexts = 5000 };

static int has_part(const char* part) {
    const char* message = aclGetRecentErrMsg();
    if (message != NULL && strstr(message, part) != NULL) return 1;
    fprintf(stderr, "%s\n", message ? message : "no message");
    return 0;
}

static void refuse_wrong_structs(void) {
    void* memory = NULL;
    aclrtMallocConfig config = {.attrs = NULL, .numAttrs = 3};
    IS(aclrtMallocHostWithCfg(&memory, 64, &config) == 100000);
    IS(has_part("Cause: aclrtMallocHostWithCfg: 'numAttrs' in cfg is 3, and there are 0."));
    aclrtMallocAttribute attribute = {.attr = 1};
    config.attrs = &attribute;
    config.numAttrs = (size_t)1 << 40;
    IS(aclrtMallocHostWithCfg(&memory, 64, &config) == 100000);
    const char* message = aclGetRecentErrMsg();
    IS(message != NULL && strstr(message, "size=64, cfg=0x") != NULL);
    IS(strstr(message, "attrs of cfg has less") != NULL);
    IS(strstr(message, "needs for attrs of cfg.") != NULL);
}

static void describe_tensors(void) {
    const int64_t dims[2] = {3, 4};
    void* const scalar = aclCreateTensorDesc(0, 0, NULL, 2);
    IS(scalar != NULL && aclGetTensorDescNumDims(scalar) == 0);
    IS(aclCreateTensorDesc(0, 2, NULL, 2) == NULL);
    IS(aclCreateTensorDesc(0, -1, dims, 2) == NULL);
    IS(aclCreateTensorDesc(0, -1, NULL, 2) == NULL);
    aclSetTensorDescName(scalar, "caf\xe9");
    const char* const name = aclGetTensorDescName(scalar);
    aclSetTensorDescName(scalar, "other");
    IS(strcmp(name, "caf\xe9") == 0 && strcmp(aclGetTensorDescName(scalar), "other") == 0);
    aclDestroyTensorDesc(scalar);
}

int main(void) {
    IS(aclInit("\xff") == 100003);
    uint64_t references = 99;
    OK(aclInit(NULL));
    IS(aclInit(NULL) == 100002);
    OK(aclFinalizeReference(NULL));
    OK(aclFinalizeReference(&references));
    IS(references == 0);
    OK(aclrtSetDevice(0));
    void* memory = NULL;
    IS(aclrtIpcMemImportByKey(&memory, "\xff\xfe", 0) == 507899);
    describe_tensors();
    refuse_wrong_structs();

    const char* const chip = aclrtGetSocName();
    char before[64];
    snprintf(before, sizeof before, "%s", chip);
    for (uintptr_t number = 16; number < 16 + kTexts; number++) {
        aclrtFree((void*)number);
        IS(aclGetRecentErrMsg() != NULL);
    }
    IS(strcmp(chip, before) == 0 && aclrtGetSocName() == chip);
    puts("done");
    return 0;
}
