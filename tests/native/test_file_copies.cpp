// Copies between memory and files: pieces of any number and size, both ways, in any order of steps, and what ends early.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "check.h"
#include "copy/file_copies.h"

using namespace peerlane;

namespace {

int new_file() {
    const int fd = memfd_create("test_file_copies", MFD_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

void run(FileCopies& copies, std::mt19937_64& random) {
    std::vector<uint64_t> order(copies.steps());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    for (const uint64_t i : order) copies.step(i);
}

// Neighbours in the file, gaps and backward order are drawn.
void drawn_pieces_arrive(std::mt19937_64& random, uint64_t size, size_t count) {
    std::vector<char> mine(size), back(size);
    for (char& each : mine) each = static_cast<char>(random());
    const int fd = new_file();
    FileCopies out(false, 1), in(true, 1);
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    if (random() % 2 != 0) std::shuffle(order.begin(), order.end(), random);
    const uint64_t part = size / count, gap = random() % 2 * 7;
    for (size_t i = 0; i < count; ++i) {
        const uint64_t offset = order[i] * (part + gap);
        out.add({fd, offset, 0, part}, &mine[i * part]);
        in.add({fd, offset, 0, part}, &back[i * part]);
    }
    CHECK(out.size() == count * part);
    run(out, random);
    run(in, random);
    CHECK(!out.failure() && !in.failure());
    CHECK(memcmp(mine.data(), back.data(), count * part) == 0);
    close(fd);
}

void short_file_names_the_piece(std::mt19937_64& random) {
    const int fd = new_file();
    CHECK(ftruncate(fd, 1000) == 0);
    std::vector<char> bytes(4096, 9);
    FileCopies in(true, 1);
    in.add({fd, 0, 0, 100}, bytes.data());
    in.add({fd, 0, 0, 0}, nullptr);
    in.add({fd, 900, 0, 200}, &bytes[100]);
    in.add({fd, 100, 0, 100}, &bytes[300]);
    run(in, random);
    const FileCopies::Failure* const failure = in.failure();
    CHECK(failure && failure->error == 0 && failure->piece == 2 && failure->moved == 100);
    CHECK(bytes[0] == 0 && bytes[199] == 0 && bytes[200] == 9 && bytes[300] == 0);   // what stands behind it is copied
    close(fd);
}

void refusals_are_the_system_s(std::mt19937_64& random) {
    char byte = 1;
    FileCopies closed(false, 1);
    closed.add({-1, 0, 0, 1}, &byte);
    run(closed, random);
    CHECK(closed.failure() && closed.failure()->error == EBADF && closed.failure()->moved == 0);
    const int full = open("/dev/full", O_RDWR | O_CLOEXEC);
    FileCopies out(false, 1);
    out.add({full, 0, 0, 1}, &byte);
    run(out, random);
    CHECK(out.failure() && out.failure()->error == ENOSPC);
    close(full);
}

void kept_files_outlive_the_program_s(std::mt19937_64& random) {
    const int fd = new_file(), copy = dup(fd);
    char byte = 42, back = 0;
    FileCopies out(false, 1);
    out.add({fd, 0, 0, 1}, &byte);
    out.keep_files();
    close(fd);
    run(out, random);
    CHECK(!out.failure() && pread(copy, &back, 1, 0) == 1 && back == 42);
    close(copy);
}

void at_once_moves_all_or_reports_it() {
    const int fd = new_file();
    char byte = 42, back = 0;
    FileCopies out(false, 1), in(true, 1), beyond(true, 1);
    out.add({fd, 0, 0, 1}, &byte);
    CHECK(out.is_cached() && (out.run_at_once() == FileCopies::AtOnce::done || out.run_through_cache()));
    in.add({fd, 0, 0, 1}, &back);
    CHECK((in.run_at_once() == FileCopies::AtOnce::done || in.run_through_cache()) && back == 42);
    beyond.add({fd, 1, 0, 1}, &back);
    CHECK(beyond.run_at_once() != FileCopies::AtOnce::done && !beyond.run_through_cache());
    close(fd);
}

}  // namespace

NATIVE_TEST(test_file_copies) {
    auto random = seeded("test_file_copies");
    for (int round = 0; round < 4; ++round) {
        RUN(drawn_pieces_arrive(random, 1, 1));
        RUN(drawn_pieces_arrive(random, 100'000, 7));
        RUN(drawn_pieces_arrive(random, 300'000, 3'000));
        RUN(drawn_pieces_arrive(random, uint64_t{5} << 20, 2));
    }
    RUN(short_file_names_the_piece(random));
    RUN(refusals_are_the_system_s(random));
    RUN(kept_files_outlive_the_program_s(random));
    RUN(at_once_moves_all_or_reports_it());
    return 0;
}
