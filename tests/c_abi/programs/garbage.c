// After the first call Python collects garbage, and leaves alone what its imports have made.
#define _GNU_SOURCE
#include <dlfcn.h>

#include "acl.h"
#include "check.h"

int main(void) {
    OK(aclInit(NULL));
    int (*ensure)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    void (*release)(int) = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
    int (*run)(const char*) = (int (*)(const char*))dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
    IS(ensure && release && run);
    const int state = ensure();
    IS(run("import gc\nassert gc.isenabled() and gc.get_freeze_count() > 10_000") == 0);
    release(state);
    OK(aclFinalize());
    puts("done");
    return 0;
}
