// Messages in rings: whole, in order, across the ring's end, between threads and processes, and in memory that others overwrite.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "check.h"
#include "share/message_rings.h"

using namespace peerlane;

namespace {

constexpr uint64_t kOffset = 8192;
constexpr uint64_t kTailsAt = kOffset + 4096, kRingsAt = kOffset + 2 * 4096;

struct File {
    const int fd = memfd_create("rings", MFD_CLOEXEC);
    File() { CHECK(fd >= 0 && ftruncate(fd, kOffset + MessageRings::kBytes) == 0); }
    ~File() { close(fd); }
    void write(uint64_t at, uint64_t word) const { CHECK(pwrite(fd, &word, sizeof word, static_cast<off_t>(at)) == sizeof word); }
};

struct Ends {
    File file;
    MessageRings from{file.fd, kOffset}, to{file.fd, kOffset};
    explicit Ends(uint32_t ring = 0) { from.hold(ring); }
};

std::string text_of(uint64_t number, uint64_t size) {
    std::string text(size, '\0');
    for (uint64_t i = 0; i < size; ++i) text[i] = static_cast<char>(number * 31 + i * 7);
    return text;
}

void messages_come_whole_and_in_order(std::mt19937_64& random, int rounds) {
    Ends ends(63);
    CHECK(!ends.to.has_any() && ends.to.take().messages.empty());
    uint64_t sent = 0, taken = 0;
    std::vector<std::string> texts;
    for (int round = 0; round < rounds; ++round) {
        for (uint64_t size; ends.from.put("name " + std::to_string(sent), text_of(sent, size = random() % 70'000), false); ++sent) texts.push_back(text_of(sent, size));
        CHECK(ends.to.has_any());
        const auto message = ends.to.take();
        CHECK(message.nonsense == 0 && !message.messages.empty());
        for (const auto& each : message.messages) {
            CHECK(each.name == "name " + std::to_string(taken) && each.text == texts[taken] && each.ring == 63);
            ++taken;
        }
        CHECK(taken == sent && !ends.to.has_any());
    }
    CHECK(ends.from.position() > 20 * MessageRings::kRingBytes);   // it went round
}

void pieces_become_one_message() {
    Ends ends;
    CHECK(ends.from.put("a", "one ", true) && ends.from.put("a", "two ", true));
    CHECK(ends.to.take().messages.empty() && !ends.to.has_any());
    const uint64_t position = ends.from.position();
    CHECK(ends.from.put("a", "three", false) && ends.from.put("b", "", false));
    const auto message = ends.to.take().messages;
    CHECK(message.size() == 2 && message[0].text == "one two three" && message[0].position == position && message[1].name == "b" && message[1].text.empty());
}

void ring_has_the_bytes_that_it_declares() {
    Ends ends;
    const std::string most(MessageRings::kMostAtOnce - 8, 'x');
    for (int i = 0; i < 4; ++i) CHECK(ends.from.put("", most, false));
    CHECK(!ends.from.put("", "", false) && !ends.from.put("", "y", false));
    CHECK(ends.to.take().messages.size() == 4 && ends.from.put("", most, false));
}

void next_holder_goes_on_behind_the_last_one() {
    Ends ends(5);
    CHECK(ends.from.put("a", "first", false));
    MessageRings next{ends.file.fd, kOffset};
    next.hold(5);
    CHECK(next.position() == ends.from.position() && next.put("b", "second", false));
    const auto message = ends.to.take().messages;
    CHECK(message.size() == 2 && message[0].text == "first" && message[1].text == "second");
}

void messages_of_a_thread_and_of_a_process_arrive(uint64_t count) {
    File file;
    MessageRings to{file.fd, kOffset};
    const auto send = [&](uint32_t ring) {
        MessageRings from{file.fd, kOffset};
        from.hold(ring);
        for (uint64_t i = 0; i < count; ++i)
            while (!from.put("n", text_of(i, i % 3'000), i % 5 == 4)) std::this_thread::yield();
        while (!from.put("n", "", false)) std::this_thread::yield();
    };
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        send(1);
        _exit(0);
    }
    std::thread sender([&] { send(2); });
    std::string expected[3], message[3];
    for (uint64_t i = 0; i < count; ++i) expected[1] += text_of(i, i % 3'000);
    expected[2] = expected[1];
    while (message[1].size() < expected[1].size() || message[2].size() < expected[2].size()) {
        const auto taken = to.take();
        CHECK(taken.nonsense == 0);
        for (const auto& each : taken.messages) message[each.ring] += each.text;
        std::this_thread::yield();
    }
    sender.join();
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(message[1] == expected[1] && message[2] == expected[2]);
}

void what_is_no_message_is_dropped() {
    struct Piece {
        uint32_t bytes;
        uint16_t name, more;
    };
    const Piece wrong[] = {{0, 0, 0}, {7, 0, 0}, {8, 1, 0}, {9, 0, 0}, {8, 0, 2}, {UINT32_MAX, 0, 0}, {8, UINT16_MAX, 1}};
    for (const Piece& piece : wrong) {
        Ends ends;
        CHECK(pwrite(ends.file.fd, &piece, sizeof piece, kRingsAt) == sizeof piece);
        ends.file.write(kOffset, 8);
        const auto message = ends.to.take();
        CHECK(message.nonsense == 8 && message.messages.empty() && !ends.to.has_any());
        ends.from.hold(0);
        CHECK(ends.from.put("a", "after", false) && ends.to.take().messages.at(0).text == "after");
    }
    for (const uint64_t head : {uint64_t{3}, MessageRings::kRingBytes + 1, UINT64_MAX}) {
        Ends ends;
        ends.file.write(kOffset, head);
        CHECK(ends.to.take().nonsense == head && !ends.to.has_any());
    }
}

void tail_that_cannot_be_stops_the_sender() {
    Ends ends;
    for (const uint64_t tail : {uint64_t{1}, uint64_t{1} << 40}) {
        ends.file.write(kTailsAt, tail);
        CHECK(!ends.from.put("a", "b", false));
    }
    ends.file.write(kTailsAt, 0);
    CHECK(ends.from.put("a", "b", false));
}

void random_bytes_do_no_harm(std::mt19937_64& random, int rounds) {
    Ends ends;
    for (int round = 0; round < rounds; ++round) {
        for (int i = 0; i < 20; ++i) ends.file.write(kRingsAt + random() % 512, random());
        ends.file.write(kOffset, random() % 4 ? random() % 4096 : random());
        ends.to.take();
        ends.file.write(kTailsAt, random() % 2 ? random() : 0);
        ends.from.hold(0);
        ends.from.put("name", text_of(1, random() % 9'000), random() % 2);
    }
}

}  // namespace

NATIVE_TEST(test_message_rings) {
    auto random = seeded("test_message_rings");
    RUN(messages_come_whole_and_in_order(random, scaled(80, 400)));
    RUN(pieces_become_one_message());
    RUN(ring_has_the_bytes_that_it_declares());
    RUN(next_holder_goes_on_behind_the_last_one());
    RUN(messages_of_a_thread_and_of_a_process_arrive(static_cast<uint64_t>(scaled(3'000, 300'000))));
    RUN(what_is_no_message_is_dropped());
    RUN(tail_that_cannot_be_stops_the_sender());
    RUN(random_bytes_do_no_harm(random, scaled(3'000, 1'000'000)));
    return 0;
}
