// The program of all native tests: its first argument names the test.  Linked one by one they would take most of a build.
#include "check.h"

int main(int argc, char** argv) {
    const auto test = native_tests().find(argc > 1 ? argv[1] : "");
    if (test == native_tests().end()) {
        for (const auto& [name, run] : native_tests()) std::printf("%s\n", name.c_str());
        return 2;
    }
    return test->second(argc - 1, argv + 1);
}
