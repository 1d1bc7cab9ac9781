// Children that may die of a fault, and never outlive their deadline; a page that faults.
#pragma once
#include <csignal>
#include <string>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

inline constexpr unsigned kChildSeconds = 30;   // SIGALRM ends it: an unhandled fault repeats for ever

template <class Work>
int status_of_child(const Work& work, std::string* errors = nullptr) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    if (child == 0) {
        alarm(kChildSeconds);
        dup2(ends[1], STDERR_FILENO);
        work();
        _exit(0);
    }
    close(ends[1]);
    char text[1024];
    ssize_t n;
    while ((n = read(ends[0], text, sizeof text)) > 0)
        if (errors) errors->append(text, static_cast<size_t>(n));
    close(ends[0]);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

inline bool exited_with(int status, int code) {
    return WIFEXITED(status) && WEXITSTATUS(status) == code;
}

inline bool died_of(int status, int signal) {
    return WIFSIGNALED(status) && WTERMSIG(status) == signal;
}

inline char* forbidden() {
    static char* page = static_cast<char*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    return page;
}

inline void touch(char* byte) {
    *static_cast<volatile char*>(byte) = 1;
}
