// Tells the log which thread started and which joined which.  `peerlane check` and its like load this library into a program of C
// before all others; it needs nothing but the C library, so that it can be in any process.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>

#include "log/threads.h"

#define PEERLANE_C extern "C" __attribute__((visibility("default")))

namespace {

using peerlane::log::kBeginning;
using peerlane::log::kEndOfThread;

struct Thread {
    pthread_t thread;
    uint64_t number;
    void* (*run)(void*);
    void* argument;
    bool is_beginning_logged, is_end_logged, has_ended, is_detached, is_last_round;
    Thread* next;
};

std::atomic<const peerlane::log::ThreadNotes*> notes{nullptr};
std::atomic<uint64_t> numbers{0};
pthread_once_t is_set_up = PTHREAD_ONCE_INIT;
pthread_key_t current;
pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;   // of the list, and of what its threads have but for the first lines
Thread* threads = nullptr;                           // neither joined nor, if they are detached, ended

class Lock {
  public:
    Lock() { pthread_mutex_lock(&mutex); }
    ~Lock() { pthread_mutex_unlock(&mutex); }
    Lock(const Lock&) = delete;
};

const peerlane::log::ThreadNotes* log_of_process() { return notes.load(std::memory_order_acquire); }

// The function that comes after the one of this library.
template <auto* kOwn>
auto next(const char* name) {
    static std::atomic<void*> known{nullptr};
    void* address = known.load(std::memory_order_relaxed);
    if (!address) {
        address = dlsym(RTLD_NEXT, name);
        known.store(address, std::memory_order_relaxed);
    }
    return reinterpret_cast<decltype(kOwn)>(address);
}

Thread* find(pthread_t thread) {
    Thread* each = threads;
    while (each && !pthread_equal(each->thread, thread)) each = each->next;
    return each;
}

void drop(Thread* gone) {
    Thread** at = &threads;
    while (*at != gone) at = &(*at)->next;
    *at = gone->next;
    std::free(gone);
}

void* begin(void* argument) {
    auto* const self = static_cast<Thread*>(argument);
    { const Lock until_it_is_listed; }
    pthread_setspecific(current, self);
    if (const auto* const log = log_of_process(); log && self->is_beginning_logged) {
        log->take(kBeginning, self->number);
        log->forget(kBeginning, self->number);
    }
    return self->run(self->argument);
}

void end(void* argument) {
    auto* const self = static_cast<Thread*>(argument);
    if (!self->is_last_round) {   // the program's own destructors for threads may still call
        self->is_last_round = true;
        pthread_setspecific(current, self);
        return;
    }
    const auto* const log = log_of_process();
    const bool is_logged = log && log->post(kEndOfThread, self->number);
    const uint64_t number = self->number;
    bool is_detached;
    {
        const Lock lock;
        self->is_end_logged = is_logged;
        self->has_ended = true;
        is_detached = self->is_detached;
        if (is_detached) drop(self);
    }
    if (is_detached && is_logged) log->forget(kEndOfThread, number);
}

// `join` waits for the end of a thread; afterwards another thread may already have the same handle.
template <class Join>
int joined(pthread_t thread, const Join& join) {
    Thread* record;
    {
        const Lock lock;
        record = find(thread);
    }
    const int code = join();
    if (code != 0 || !record) return code;
    const uint64_t number = record->number;
    bool is_logged;
    {
        const Lock lock;
        is_logged = record->is_end_logged;
        drop(record);
    }
    if (const auto* const log = log_of_process(); log && is_logged) {
        log->take(kEndOfThread, number);
        log->forget(kEndOfThread, number);
    }
    return code;
}

// Constructors of other libraries may start threads before this library's would run.
void set_up() {
    pthread_key_create(&current, end);
    pthread_atfork([] { pthread_mutex_lock(&mutex); }, [] { pthread_mutex_unlock(&mutex); }, [] { pthread_mutex_unlock(&mutex); });
}

}  // namespace

PEERLANE_C void peerlane_follow_threads(const peerlane::log::ThreadNotes* thread_notes) { notes.store(thread_notes, std::memory_order_release); }

PEERLANE_C int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
    const auto create = next<&pthread_create>("pthread_create");
    const auto* const log = log_of_process();
    if (log && log->is_quiet()) return create(thread, attributes, run, argument);
    auto* const record = static_cast<Thread*>(std::calloc(1, sizeof(Thread)));
    if (!record) return EAGAIN;
    pthread_once(&is_set_up, set_up);
    int state = PTHREAD_CREATE_JOINABLE;
    if (attributes) pthread_attr_getdetachstate(attributes, &state);
    record->number = numbers.fetch_add(1, std::memory_order_relaxed) | peerlane::log::kThreadOfC;
    record->run = run;
    record->argument = argument;
    record->is_detached = state == PTHREAD_CREATE_DETACHED;
    record->is_beginning_logged = log && log->post(kBeginning, record->number);
    int code;
    {
        const Lock lock;   // the new thread waits for it: else it could end, and what `thread` lies in be gone
        code = create(&record->thread, attributes, begin, record);
        if (code == 0) {
            *thread = record->thread;
            record->next = threads;
            threads = record;
        }
    }
    if (code == 0) return 0;
    if (record->is_beginning_logged) log->forget(kBeginning, record->number);
    std::free(record);
    return code;
}

PEERLANE_C int pthread_detach(pthread_t thread) {
    const auto detach = next<&pthread_detach>("pthread_detach");
    const Lock lock;   // a thread that is detached can end at once
    Thread* const record = find(thread);
    const int code = detach(thread);
    if (code != 0 || !record) return code;
    if (record->has_ended) drop(record);
    else record->is_detached = true;
    return code;
}

PEERLANE_C int pthread_join(pthread_t thread, void** result) {
    const auto join = next<&pthread_join>("pthread_join");
    return joined(thread, [&] { return join(thread, result); });
}

PEERLANE_C int pthread_tryjoin_np(pthread_t thread, void** result) {
    const auto join = next<&pthread_tryjoin_np>("pthread_tryjoin_np");
    return joined(thread, [&] { return join(thread, result); });
}

PEERLANE_C int pthread_timedjoin_np(pthread_t thread, void** result, const timespec* until) {
    const auto join = next<&pthread_timedjoin_np>("pthread_timedjoin_np");
    return joined(thread, [&] { return join(thread, result, until); });
}
