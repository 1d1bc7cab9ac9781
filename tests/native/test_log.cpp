#include "log/log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "check.h"
#include "log/reader.h"

using namespace peerlane;

namespace {

using log::Event;
using log::Kind;

constexpr uint64_t kBlock = uint64_t{1} << 60;   // those of a node are drawn

std::string folder;

std::string path_of_only_log(int pid) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const std::string name = entry.path().filename();
        if (name.starts_with(std::to_string(pid) + "-") && name.ends_with(".log")) return entry.path();
    }
    return "";
}

void write_access(uint64_t offset, uint64_t stream = 0, uint64_t sequence = 0, uint32_t site = 7) {
    log::Spans spans;
    spans.add(kBlock | 1, offset, 8, true);
    spans.add(kBlock | 2, offset, 8, false);
    log::write({.kind = Kind::access, .stream = stream, .sequence = sequence, .spans = &spans, .site = site});
}

template <class Work>
std::string logged(uint64_t capacity, const Work& work) {
    CHECK(log::begin(folder, capacity, 3));
    const std::string path = log::facts().path;
    work();
    log::end();
    return path;
}

bool is_bad(const std::string& path) {
    try {
        log::Reader reader(path);
        while (reader.next(true)) {
        }
    } catch (const log::BadLog&) {
        return true;
    }
    return false;
}

void events_come_back_as_they_were_written() {
    const std::string path = logged(1 << 20, [] {
        write_access(64, 5, 9);
        log::write({.kind = Kind::notify, .stream = 5, .sequence = 10, .a = 77, .b = 2, .c = 3, .d = 4, .site = 8});
        log::Spans many;
        for (uint64_t i = 0; i < 100; ++i) many.add(1, 16 * i, 8, i % 2 == 0);
        log::write({.kind = Kind::access, .spans = &many});
        log::Spans rows;
        rows.add({1, 0, 100}, {10, 4, 10});
        log::write({.kind = Kind::access, .spans = &rows});
    });
    log::Reader reader(path);
    CHECK(reader.pid() == getpid() && reader.rank() == 3 && reader.has_ended() && reader.dropped() == 0);
    const log::Record* at = reader.next(false);
    CHECK(at && at->head.kind == Kind::access && at->head.stream == 5 && at->head.sequence == 9 && at->head.site == 7);
    CHECK(at->head.spans == 2 && at->spans[0].block == (kBlock | 1 | log::Span::kWritten) && at->spans[1].block == (kBlock | 2) && at->spans[1].offset == 64);
    at = reader.next(false);
    CHECK(at && at->head.kind == Kind::notify && at->a() == 77 && at->b() == 2 && at->c() == 3 && at->d() == 4);
    at = reader.next(false);
    CHECK(at && at->head.spans == 100 && at->spans[99].offset == 16 * 99);
    at = reader.next(false);
    CHECK(at && at->rows && at->rows[0].pitch == 10 && at->rows[0].height == 10);
    at = reader.next(false);
    CHECK(at && at->head.kind == Kind::ended && !reader.next(true));
}

// At the limits of the short form, and beyond them.
void numbers_of_any_width_come_back() {
    constexpr uint64_t kMost = UINT64_MAX;
    struct Case {
        uint64_t stream, sequence;
        log::Span span;
        bool is_short;
    };
    const Case cases[] = {
        {0, 0, {kBlock, 0, 1}, true},
        {(1 << 24) - 1, (uint64_t{1} << 40) - 1, {kBlock, (uint64_t{1} << 40) - 1, (1 << 24) - 1}, true},
        {0, 1, {0, 0x7fff'ffff'ffff, (uint64_t{1} << 40) - 1}, true},   // host memory
        {1, 0, {log::Span::kWritten, kMost, 0}, true},
        {1 << 24, 1, {kBlock, 0, 1}, false},
        {1, uint64_t{1} << 40, {kBlock, 0, 1}, false},
        {1, 1, {kBlock, uint64_t{1} << 40, 1}, false},
        {1, 1, {kBlock, 0, 1 << 24}, false},
        {1, 1, {0, 0, uint64_t{1} << 40}, false},
        {1, 1, {1, 0, 1}, false},   // it would be a size of host memory
        {kMost, kMost, {kMost, kMost, kMost}, false},
    };
    for (const Case& each : cases) {
        const std::string path = logged(1 << 20, [&] {
            log::Spans spans;
            spans.add(each.span.block & ~log::Span::kWritten, each.span.offset, each.span.size, (each.span.block & log::Span::kWritten) != 0);
            log::write({.kind = Kind::access, .op = 200, .flags = log::kLoose, .stream = each.stream, .sequence = each.sequence, .a = kMost, .b = 1,
                        .spans = &spans, .site = UINT32_MAX});
        });
        log::Reader reader(path);
        const log::Record* const at = reader.next(false);
        CHECK(at && at->head.kind == Kind::access && at->head.op == 200 && at->head.flags == log::kLoose && at->head.site == UINT32_MAX);
        CHECK(at->head.stream == each.stream && at->head.sequence == each.sequence && at->a() == kMost && at->b() == 1 && at->c() == 0);
        CHECK(at->head.spans == 1 && at->spans[0].block == each.span.block && at->spans[0].offset == each.span.offset && at->spans[0].size == each.span.size);
        const uint64_t short_bytes = 24 + (each.stream | each.sequence ? 8 : 0) + 16 + 16, long_bytes = sizeof(log::Head) + 16 + sizeof(log::Span);
        CHECK(reader.read() == (each.is_short ? short_bytes : long_bytes));
        CHECK(reader.next(true)->head.kind == Kind::ended && !reader.next(true));
    }
}

void a_record_that_would_outgrow_the_short_form_ends() {
    const std::string path = logged(1 << 20, [] {
        for (uint64_t i = 0; i < 70'000; ++i) write_access(8 * i, 1, i + 1);
    });
    log::Reader reader(path);
    const log::Record* at = reader.next(true);
    CHECK(at && at->head.repeats == UINT16_MAX && at->head.sequence == UINT16_MAX && at->spans[1].size == 8 * UINT16_MAX);
    at = reader.next(true);
    CHECK(at && at->head.repeats == 70'000 - UINT16_MAX && at->head.sequence == 70'000 && at->spans[0].offset == 8 * UINT16_MAX);
}

void neighbours_of_one_line_are_one_record() {
    const std::string path = logged(1 << 20, [] {
        for (uint64_t i = 0; i < 1000; ++i) write_access(8 * i, 1, i + 1);
        write_access(8000, 1, 1002);   // not the next operation
        write_access(8008, 1, 1003, 9);   // another line
        write_access(8000, 1, 1004, 9);   // not behind it
    });
    log::Reader reader(path);
    const log::Record* at = reader.next(true);
    CHECK(at && at->head.repeats == 1000 && at->head.sequence == 1000 && (at->head.flags & log::kMerged));
    CHECK(at->spans[0].size == 8000 && at->spans[1].size == 8000);
    for (int i = 0; i < 3; ++i) CHECK((at = reader.next(true)) && at->head.repeats == 1);
}

void looks_that_see_the_same_are_one_record() {
    const std::string path = logged(1 << 20, [] {
        log::Spans spans;
        spans.add(kBlock | 1, 64, 4, false);
        const auto look = [&](uint64_t value) { log::write({.kind = Kind::host_access, .flags = log::kPolled, .a = value, .b = 4, .spans = &spans, .site = 7}); };
        for (int i = 0; i < 1000; ++i) look(0);
        look(1);
        write_access(0);
        look(1);
    });
    log::Reader reader(path);
    for (const int value : {0, 1}) {
        const log::Record* const at = reader.next(true);
        CHECK(at && at->head.kind == Kind::host_access && at->a() == static_cast<uint64_t>(value));
    }
    CHECK(reader.next(true)->head.kind == Kind::access && reader.next(true)->head.kind == Kind::host_access && reader.next(true)->head.kind == Kind::ended);
}

void the_newest_record_is_not_read_while_it_may_grow() {
    CHECK(log::begin(folder, 1 << 20, -1));
    log::Reader reader(log::facts().path);
    write_access(0);
    reader.look();
    CHECK(!reader.next(false));
    write_access(8);
    log::settle();
    reader.look();
    const log::Record* const at = reader.next(false);
    CHECK(at && at->head.repeats == 2);
    log::end();
}

void the_newest_record_grows_no_more_once_a_look_has_seen_it() {
    CHECK(log::begin(folder, 1 << 20, -1));
    log::Reader reader(log::facts().path, true);
    write_access(0);
    write_access(8);
    reader.look();
    CHECK(!reader.next(false));
    reader.look();
    const log::Record* at = reader.next(false);
    CHECK(at && at->head.repeats == 2 && !reader.next(false));
    write_access(16);
    reader.look();
    CHECK(!reader.next(false));
    write_access(24);   // a record of its own: that of the one before was seen
    reader.look();
    at = reader.next(false);
    CHECK(at && at->head.repeats == 1 && at->spans[0].offset == 16 && !reader.next(false));
    log::end();
}

void a_full_log_drops_events_and_logs_it_once_there_is_room() {
    CHECK(log::begin(folder, 1 << 20, -1));
    log::Reader reader(log::facts().path, true);
    uint64_t written = 0, read = 0, gaps = 0, missing = 0;
    for (int round = 0; round < 20; ++round) {
        for (int i = 0; i < 3000; ++i, ++written) write_access(32 * written);
        reader.look();
        while (const log::Record* const at = reader.next(true)) {
            if (at->head.kind == Kind::gap) {
                ++gaps;
                missing += at->a();
            } else {
                CHECK(at->spans[0].offset == 32 * (read + missing));
                ++read;
            }
        }
        reader.give_back();
    }
    CHECK(log::facts().dropped == 0 && read == written);   // 20 times around the ring
    for (int i = 0; i < 20000; ++i, ++written) write_access(32 * written);
    CHECK(log::facts().dropped > 0);
    reader.look();
    while (reader.next(true)) ++read;
    reader.give_back();
    write_access(32 * written++);
    log::settle();
    reader.look();
    const log::Record* at = reader.next(false);
    CHECK(at && at->head.kind == Kind::gap && at->a() == log::facts().dropped && at->a() == written - 1 - read);
    CHECK((at = reader.next(false)) && at->spans[0].offset == 32 * (written - 1));
    log::end();
}

void logs_of_a_folder_share_their_room() {
    const std::string shared = folder + "/shared";
    CHECK(std::filesystem::create_directory(shared));
    CHECK(log::begin(shared, 4 << 20, -1, 2 << 20));
    const std::string path = log::facts().path;
    for (uint64_t i = 0; i < 50000; ++i) write_access(32 * i);
    CHECK(log::facts().dropped > 0 && log::facts().written <= 2 << 20);
    const auto dropped_by_child = [] {
        const pid_t child = fork();
        if (child == 0) {
            for (uint64_t i = 0; i < 14000; ++i) write_access(32 * i);
            const bool has_dropped = log::facts().dropped != 0;
            log::end();
            _exit(has_dropped ? 1 : 0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
        return WEXITSTATUS(status) != 0;
    };
    CHECK(dropped_by_child());
    log::Reader reader(path, true);
    while (reader.next(true)) {
    }
    reader.give_back();
    CHECK(!dropped_by_child());
    CHECK(!dropped_by_child());
    CHECK(dropped_by_child());   // the logs of the two before were not read
    write_access(0);
    log::end();
    log::Reader rest(path, true);
    while (rest.next(true)) {
    }
    CHECK(rest.has_ended() && rest.read() == rest.written());
    rest.give_back();
    rest.release(true);
    CHECK(rest.is_released() && rest.dropped() > 0);
    struct stat file_stat {};
    CHECK(stat(path.c_str(), &file_stat) == 0 && file_stat.st_blocks * 512 <= 3 * 4096);
}

void a_killed_process_leaves_all_that_it_published() {
    int ready[2];
    CHECK(pipe(ready) == 0);
    const pid_t child = fork();
    if (child == 0) {
        log::begin(folder, 1 << 20, -1);
        for (uint64_t i = 0; i < 100; ++i) write_access(32 * i);
        (void)!write(ready[1], "x", 1);
        for (uint64_t i = 100;; ++i) write_access(32 * i);
    }
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    log::Reader reader(path_of_only_log(child));
    uint64_t file_stat = 0;
    while (const log::Record* const at = reader.next(true)) {
        if (at->head.kind == Kind::gap) break;   // the ring was full before the signal came
        CHECK(at->spans[0].offset == 32 * file_stat++);
    }
    CHECK(file_stat >= 100 && !reader.has_ended());
    close(ready[0]);
    close(ready[1]);
}

void a_forked_child_writes_a_log_of_its_own() {
    CHECK(log::begin(folder, 1 << 20, -1));
    write_access(0);
    const std::string own = log::facts().path;
    const uint64_t number = log::number.load();
    const pid_t child = fork();
    if (child == 0) {
        CHECK(log::number.load() != number);
        write_access(4096);
        log::end();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    log::end();
    log::Reader parents(own), childs(path_of_only_log(child));
    CHECK(parents.next(true)->spans[0].offset == 0 && parents.next(true)->head.kind == Kind::ended && !parents.next(true));
    CHECK(childs.pid() == child && childs.next(true)->spans[0].offset == 4096);
}

void threads_write_whole_records_at_once() {
    constexpr int kThreads = 4;
    constexpr uint64_t kEach = 5000;
    const std::string path = logged(64 << 20, [] {
        std::vector<std::thread> threads;
        for (int t = 0; t < kThreads; ++t)
            threads.emplace_back([t] {
                for (uint64_t i = 0; i < kEach; ++i) write_access(32 * i, static_cast<uint64_t>(t) + 1, i + 1);
            });
        for (auto& thread : threads) thread.join();
    });
    log::Reader reader(path);
    uint64_t next[kThreads] = {};
    while (const log::Record* const at = reader.next(true))
        if (at->head.kind == Kind::access) CHECK(at->head.sequence == ++next[at->head.stream - 1]);
    for (const uint64_t each : next) CHECK(each == kEach);
}

void a_quiet_thread_wants_no_log() {
    const std::string path = logged(1 << 20, [] {
        CHECK(log::wanted());
        const log::Quiet quiet;
        CHECK(!log::wanted());
        std::thread([] { CHECK(log::wanted()); }).join();
    });
    CHECK(!log::wanted());
}

// Whatever the file has: an error, or an end.
void broken_logs_are_refused_or_read_to_an_end() {
    const std::string good = logged(1 << 20, [] {
        for (uint64_t i = 0; i < 50; ++i) write_access(32 * i, i % 2 ? 0 : 1 << 24);   // every second one in the long form
    });
    std::ifstream file(good, std::ios::binary);
    const std::string bytes(log::kHeaderBytes + 8192, '\0');
    std::string whole = bytes;
    file.read(whole.data(), static_cast<std::streamsize>(whole.size()));
    const std::string path = folder + "/broken.log";
    const auto put = [&](const std::string& content) { std::ofstream(path, std::ios::binary) << content; };
    for (const size_t length : {size_t{0}, size_t{7}, size_t{40}, size_t{100}, size_t{4096}, size_t{4100}, size_t{6000}}) {
        put(whole.substr(0, length));
        CHECK(is_bad(path));
    }
    auto random = seeded("broken logs");
    for (int i = 0; i < scaled(3000, 300000); ++i) {
        std::string broken = whole;
        for (int changes = 1 + static_cast<int>(random() % 4); changes != 0; --changes) {
            const size_t area = random() % 2 ? 72 : log::kHeaderBytes + 6400, at = random() % area;
            broken[at] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
        }
        put(broken);
        is_bad(path);
    }
}

}  // namespace

NATIVE_TEST(test_log) {
    std::string name = (std::filesystem::temp_directory_path() / "peerlane-log-XXXXXX").string();
    CHECK(mkdtemp(name.data()));
    folder = name;
    RUN(events_come_back_as_they_were_written());
    RUN(numbers_of_any_width_come_back());
    RUN(a_record_that_would_outgrow_the_short_form_ends());
    RUN(neighbours_of_one_line_are_one_record());
    RUN(looks_that_see_the_same_are_one_record());
    RUN(the_newest_record_is_not_read_while_it_may_grow());
    RUN(the_newest_record_grows_no_more_once_a_look_has_seen_it());
    RUN(a_full_log_drops_events_and_logs_it_once_there_is_room());
    RUN(logs_of_a_folder_share_their_room());
    RUN(a_killed_process_leaves_all_that_it_published());
    RUN(a_forked_child_writes_a_log_of_its_own());
    RUN(threads_write_whole_records_at_once());
    RUN(a_quiet_thread_wants_no_log());
    RUN(broken_logs_are_refused_or_read_to_an_end());
    std::filesystem::remove_all(folder);
    return 0;
}
