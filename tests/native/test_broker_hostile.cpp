// Hostile importers harm only themselves.
#include <iostream>
#include <sys/prctl.h>

#include "peer_roles.h"

using namespace peers;

namespace {

const std::string kName = "node.0.sock";
constexpr double kServed = 10;   // the promise is 0.5, and a loaded machine may stop a process for seconds

void random_frames_are_refused_and_leak_nothing(const SocketDirectory& socket_directory, std::mt19937_64& random) {
    const Shared shared;
    const int before = descriptors_open();
    {
        auto raw = std::make_unique<Raw>(socket_directory, kName);
        for (int i = 0; i < scaled(10'000, 1'000'000); ++i) {
            Request request{.id = random(), .node = kNode, .nonce = shared.key.nonce, .index = shared.key.index};
            char bytes[4 * sizeof request];
            for (size_t at = 0; at < sizeof bytes; at += 8) {
                const uint64_t noise = random();
                memcpy(bytes + at, &noise, 8);
            }
            size_t size = 1 + random() % sizeof bytes;
            if (random() % 4 != 0) {   // nearly right
                memcpy(bytes, &request, sizeof request);
                for (uint64_t flips = random() % 4; flips != 0; --flips) bytes[random() % sizeof request] ^= static_cast<char>(1 << random() % 8);
                if (random() % 2) size = sizeof request;
            }
            Request sent;
            memcpy(&sent, bytes, sizeof sent);
            CHECK(raw->send_line(bytes, size));
            const bool is_without_answer = size == sizeof sent && sent.magic == kFrameMagic && sent.version == kFrameVersion &&
                                 (sent.verb == Verb::let_go || sent.verb == Verb::cancel) &&
                                 (sent.nonce_bits == 64 || (sent.nonce_bits == 28 && sent.nonce <= kShortNonce));
            Answer answer;
            if (!is_without_answer) {
                CHECK(raw->hear(answer) && answer.magic == kFrameMagic && answer.status != Status::ok);
                CHECK(answer.status <= Status::exhausted && answer.exporter == getpid() && answer.nonce == 0);
            }
            if (random() % 64 == 0) raw = std::make_unique<Raw>(socket_directory, kName);
        }
    }
    CHECK(comes_true([&] { return descriptors_open() == before; }));
    shared.abandon();
}

void unwanted_descriptors_are_closed(const SocketDirectory& socket_directory) {
    const Raw raw(socket_directory, kName);
    const Request request{.id = 3, .node = kNode};
    CHECK(raw.ask(request).id == 3);
    const int before = descriptors_open();
    for (int i = 0; i < 300; ++i) {
        iovec part{const_cast<Request*>(&request), sizeof request};
        constexpr int kMany = 100;
        alignas(cmsghdr) char control[CMSG_SPACE(kMany * sizeof(int))] = {};
        msghdr message{.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(kMany * sizeof(int));
        for (int n = 0; n < kMany; ++n) memcpy(CMSG_DATA(header) + n * static_cast<int>(sizeof(int)), &raw.fd, sizeof(int));
        CHECK(sendmsg(raw.fd, &message, 0) == sizeof request);
        Answer answer;
        CHECK(raw.hear(answer) && answer.status == Status::own_process);
        CHECK(descriptors_open() == before);
    }
}

// Hostile roles; arguments: socket's path, index, nonce.  They say "ready" and go on until they are killed.
int harm(const std::vector<std::string>& words, const std::function<void(const std::string&, const Request&)>& forever) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    alarm(static_cast<unsigned>(kPatience) * 3);
    std::cout << "ready" << std::endl;
    const Request request{.id = 1, .node = kNode, .nonce = std::stoull(words[2]), .index = static_cast<uint32_t>(std::stoul(words[1]))};
    while (true) forever(words[0], request);
}

int never_reads(const std::vector<std::string>& words) {   // and asks for descriptors all the time
    return harm(words, [](const std::string& path, const Request& request) {
        const Raw raw(path);
        while (raw.send_line(request)) {
        }
    });
}

int floods(const std::vector<std::string>& words) {   // with garbage, on many connections
    return harm(words, [](const std::string& path, const Request&) {
        std::vector<std::unique_ptr<Raw>> all;
        for (int i = 0; i < 20; ++i) all.push_back(std::make_unique<Raw>(path));
        char garbage[900] = {};
        for (int i = 0; i < 200; ++i)
            for (const auto& raw : all) raw->send_line(garbage, 1 + static_cast<size_t>(i) * 4, MSG_DONTWAIT);
    });
}

int floods_and_reads(const std::vector<std::string>& words) {   // with valid requests
    return harm(words, [](const std::string& path, const Request& request) {
        const Raw raw(path);
        Request go = request;
        go.verb = Verb::let_go;
        while (raw.send_line(request) && raw.send_line(go)) {
            Answer answer;
            while (recv(raw.fd, &answer, sizeof answer, MSG_DONTWAIT) > 0) {
            }
        }
    });
}

int half_a_frame(const std::vector<std::string>& words) {   // and then sends nothing more
    std::vector<std::unique_ptr<Raw>> all;
    return harm(words, [&](const std::string& path, const Request& request) {
        if (all.size() == 50) pause();
        all.push_back(std::make_unique<Raw>(path));
        all.back()->send_line(&request, sizeof request / 2);
    });
}

int comes_and_goes(const std::vector<std::string>& words) {
    return harm(words, [](const std::string& path, const Request& request) {
        const Raw raw(path);
        raw.send_line(&request, sizeof request);
    });
}

const std::map<std::string, Role> kHarm{{"never_reads", never_reads}, {"floods", floods}, {"floods_and_reads", floods_and_reads},
                                        {"half_a_frame", half_a_frame}, {"comes_and_goes", comes_and_goes}};

double worst = 0;

void honest_importers_are_served_beside(const SocketDirectory& socket_directory, const std::vector<std::string>& roles) {
    const Shared shared;
    shared.write(6);
    Child good("importer", importer_words(socket_directory, kName, kNode, getpid()));
    const int before = descriptors_open();
    std::vector<std::unique_ptr<Child>> bad;
    for (const std::string& role : roles) {
        Words words(shared.words());
        const std::string index = words.word();
        bad.push_back(std::make_unique<Child>(role, std::vector{socket_directory.path + "/" + kName, index, words.word()}));
        CHECK(bad.back()->hear() == "ready");
    }
    const auto start = steady_clock::now();
    do {
        const auto asked = steady_clock::now();
        CHECK(good.ask("open " + shared.words()) == "ok 6" && good.ask("go " + shared.words()) == "ok");
        CHECK(seconds_since(asked) < kServed);
        worst = std::max(worst, seconds_since(asked));
    } while (seconds_since(start) < scaled(300, 60'000) / 1e3);
    bad.clear();
    CHECK(comes_true([&] { return shared.importers() == 0; }, kDeathSeconds));
    good.finish();
    CHECK(comes_true([&] { return descriptors_open() <= before; }));
    shared.abandon();
    CHECK(comes_true([&] { return *shared.gone == 1; }));
}

// An exporter with few descriptors: offer, fill (take all of them), free.
int limited(const std::vector<std::string>& words) {
    const rlimit few{64, 64};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    const int directory = ::open(words[0].c_str(), O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    broker().open(directory, "limited.sock", 0, kNode);
    std::cout << "ready" << std::endl;
    const Shared shared(4096, kMayRead);
    std::vector<int> taken;
    const int result = answer_lines([&](Words line) -> std::string {
        const std::string verb = line.word();
        if (verb == "offer") return shared.words();
        if (verb == "fill")
            for (int fd; (fd = dup(directory)) >= 0;) taken.push_back(fd);
        if (verb == "free")
            for (; !taken.empty(); taken.pop_back()) close(taken.back());
        return "ok";
    });
    broker().close();
    return result;
}

// No descriptor is left for connections or for readers: they are refused, and nothing hangs or spins.
void opens_without_descriptors_are_refused(const SocketDirectory& socket_directory) {
    Child limited("limited", {socket_directory.path});
    CHECK(limited.hear() == "ready");
    Child asks("importer", importer_words(socket_directory, "limited.sock", kNode, limited.pid));
    const std::string words = limited.ask("offer");
    CHECK(asks.ask("open " + words) == "ok 0");
    // The broker may not have closed the descriptor that it sent last: then one more open succeeds.
    CHECK(comes_true([&] {
        return limited.ask("fill") == "ok" && is_refused(asks.ask("open " + words), Status::exhausted);
    }));
    Child next("importer", importer_words(socket_directory, "limited.sock", kNode, limited.pid));
    CHECK(is_refused(next.ask("open " + words), Status::exhausted));
    CHECK(next.ask("leave") == "ok" && limited.ask("free") == "ok");
    CHECK(asks.ask("open " + words) == "ok 0" && next.ask("open " + words) == "ok 0");
    for (Child* each : {&asks, &next, &limited}) each->finish();
}

void all_of_it() {
    auto random = seeded("test_broker_hostile");
    const SocketDirectory socket_directory;
    const int before = descriptors_open();
    broker().open(socket_directory.fd, kName, 0, kNode);
    RUN(random_frames_are_refused_and_leak_nothing(socket_directory, random));
    RUN(unwanted_descriptors_are_closed(socket_directory));
    for (const auto& [role, play] : kHarm) RUN(honest_importers_are_served_beside(socket_directory, {role}));
    RUN(honest_importers_are_served_beside(socket_directory, {"never_reads", "floods", "floods_and_reads", "half_a_frame", "comes_and_goes"}));
    RUN(opens_without_descriptors_are_refused(socket_directory));
    broker().close();
    CHECK(descriptors_open() == before);
    std::printf("  an honest importer waited %.4f s at most\n", worst);
}

}  // namespace

NATIVE_TEST(test_broker_hostile) {
    auto roles = kHarm;
    roles.emplace("limited", limited);
    return play(argc, argv, roles, all_of_it);
}
