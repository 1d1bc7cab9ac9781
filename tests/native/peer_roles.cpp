#include "peer_roles.h"

#include <algorithm>
#include <map>

namespace peers {

namespace {

class Importer {
  public:
    explicit Importer(const std::vector<std::string>& words)
        : directory_(::open(words[0].c_str(), O_DIRECTORY | O_RDONLY | O_CLOEXEC)), name_(words[1]),
          node_(std::stoull(words[2])), pid_(std::stoi(words[3])), start_(std::stoull(words[4])) {}

    std::string answer(Words words) {
        const std::string verb = words.word();
        try {
            return act(verb, words);
        } catch (const Refusal& refusal) {
            return describe(refusal);
        }
    }

  private:
    std::shared_ptr<Exporter> connect() const {
        return Exporter::connect(directory_, name_, 0, node_, pid_, start_, Deadline::in(seconds_), {});
    }
    Exporter& exporter() {
        if (!exporter_) exporter_ = connect();
        return *exporter_;
    }
    Offer open(Words& words) {
        const auto index = static_cast<uint32_t>(words.number());
        const uint64_t nonce = words.number();
        const std::string bits = words.word(), kind = words.word();
        return exporter().open(index, nonce, bits.empty() ? 64 : static_cast<unsigned>(std::stoul(bits)),
                               kind.empty() ? Kind::memory : static_cast<Kind>(std::stoul(kind)), Deadline::in(seconds_), {});
    }
    static uint64_t read_word(const Offer& offer) {
        void* at = mmap(nullptr, offer.grant.size, PROT_READ, MAP_SHARED, offer.fd, 0);
        CHECK(at != MAP_FAILED);
        uint64_t value;
        memcpy(&value, at, sizeof value);
        munmap(at, offer.grant.size);
        return value;
    }
    std::string act(const std::string& verb, Words& words) {
        if (verb == "open") {
            const Offer offer = open(words);
            taken_.insert_or_assign(offer.nonce, offer.taken);
            const uint64_t value = read_word(offer);
            close(offer.fd);
            return "ok " + std::to_string(value);
        }
        if (verb == "keep") {
            kept_ = open(words);
            return "ok";
        }
        if (verb == "peek") return std::to_string(read_word(kept_));
        if (verb == "again" || verb == "flood") {
            const auto index = static_cast<uint32_t>(words.number());
            const uint64_t nonce = words.number(), count = words.number();
            return std::to_string(time_opens(index, nonce, count, verb == "again"));
        }
        if (verb == "crowd") {
            const auto index = static_cast<uint32_t>(words.number());
            const uint64_t nonce = words.number(), threads = words.number(), count = words.number();
            crowd(index, nonce, threads, count);
            return "ok";
        }
        if (verb == "go") {
            const auto index = static_cast<uint32_t>(words.number());
            const uint64_t nonce = words.number();
            exporter().let_go(index, nonce, std::exchange(taken_[nonce], TakenGrant{}));
            return "ok";
        }
        if (verb == "within") {
            seconds_ = std::stod(words.word());
            return "ok";
        }
        if (verb == "fork") return std::to_string(fork_unheard());
        if (verb == "dead") return std::to_string(exporter().is_dead());
        if (verb == "lost") return std::to_string(exporter().is_lost());
        if (verb == "fds") return std::to_string(descriptors_open());
        if (verb == "leave") {
            exporter_.reset();
            return "ok";
        }
        return "what is " + verb;
    }
    int64_t time_opens(uint32_t index, uint64_t nonce, uint64_t count, bool let_go) {
        std::vector<int64_t> spans;
        for (uint64_t i = 0; i < count; ++i) {
            const auto start = steady_clock::now();
            const Offer offer = exporter().open(index, nonce, 64, Kind::memory, Deadline::in(seconds_), {});
            spans.push_back(std::chrono::nanoseconds(steady_clock::now() - start).count());
            close(offer.fd);
            if (let_go) exporter().let_go(index, nonce);
        }
        std::sort(spans.begin(), spans.end());
        return spans[spans.size() / 2];
    }

    void crowd(uint32_t index, uint64_t nonce, uint64_t threads, uint64_t count) {
        std::vector<std::thread> all;
        for (uint64_t t = 0; t < threads; ++t)
            all.emplace_back([=, this] {
                const auto line = connect();
                for (uint64_t i = 0; i < count; ++i) {
                    const Offer offer = line->open(index, nonce, 64, Kind::memory, Deadline::in(seconds_), {});
                    CHECK(offer.nonce == nonce && read_word(offer) == index);
                    close(offer.fd);
                    line->let_go(index, nonce);
                }
            });
        for (std::thread& thread : all) thread.join();
    }

    const int directory_;
    const std::string name_;
    const uint64_t node_;
    const int pid_;
    const uint64_t start_;
    double seconds_ = kPatience;
    Offer kept_;
    std::map<uint64_t, TakenGrant> taken_;   // of what was opened last, by the nonce
    std::shared_ptr<Exporter> exporter_;
};

}  // namespace

std::vector<std::string> importer_words(const SocketDirectory& socket_directory, const std::string& name, uint64_t node, pid_t exporter) {
    return {socket_directory.path, name, std::to_string(node), std::to_string(exporter), std::to_string(start_time(exporter))};
}

std::function<std::string(Words)> importer(const std::vector<std::string>& words) {
    return [importer = std::make_shared<Importer>(words)](Words line) { return importer->answer(std::move(line)); };
}

int import_lines(const std::vector<std::string>& words) { return answer_lines(importer(words)); }

int export_lines(const std::vector<std::string>& words) {
    const int directory = ::open(words[0].c_str(), O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    broker().open(directory, words[1], 0, kNode);
    std::vector<std::unique_ptr<Shared>> all;
    return answer_lines([&](Words line) -> std::string {
        const std::string verb = line.word();
        if (verb == "offer") {
            all.push_back(std::make_unique<Shared>());
            all.back()->write(line.number());
            return all.back()->words();
        }
        if (verb == "grant") {   // to one process
            all.push_back(std::make_unique<Shared>(4096, kMayRead | kMayWrite, Kind::memory, false));
            all.back()->write(line.number());
            CHECK(all.back()->allow(static_cast<pid_t>(line.number())));
            return all.back()->words();
        }
        if (verb == "importers" || verb == "abandon") {
            const auto index = static_cast<uint32_t>(line.number());
            if (verb == "importers") return std::to_string(broker().importers(index, line.number()));
            broker().abandon(index, line.number());
            return "ok";
        }
        if (verb == "gone") {
            int gone = 0;
            for (const auto& each : all) gone += *each->gone;
            return std::to_string(gone);
        }
        if (verb == "fork") return std::to_string(fork_unheard());
        broker().close();
        return "ok";
    });
}

int play(int argc, char** argv, std::map<std::string, Role> roles, const std::function<void()>& tests) {
    test_of_this_process = argv[0];
    roles.emplace("importer", import_lines);
    roles.emplace("exporter", export_lines);
    if (argc > 1) return roles.at(argv[1])({argv + 2, argv + argc});
    alarm(std::getenv("PEERLANE_SOAK") ? 1700 : 190);   // ends a process that hangs
    tests();
    return 0;
}

}  // namespace peers
