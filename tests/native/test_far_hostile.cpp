// What a channel to another machine does with frames that are not as its peer would send them: both ends are in this process,
// and its engine sends to itself over TCP.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "net/far.h"
#include "peers.h"
#include "streams.h"

using namespace peers;
using namespace peerlane::net;

extern "C" size_t __sanitizer_get_current_allocated_bytes() __attribute__((weak));

namespace {

constexpr uint64_t kMargin = 16 << 10, kGranted = 192 << 10, kLargePayload = 160 << 10;
constexpr uint8_t kUntouched = 0xa5;
constexpr uint32_t kLines = 3;
constexpr uint64_t kMostGrowth = 4 << 20;   // of the allocated bytes: UCX keeps what it may use again

Engine& net() { return *Engine::get(); }

template <class Body>
void locked(const Body& body) {
    struct Does final : peerlane::net::Work {
        const Body* body = nullptr;
        std::atomic<bool> is_done{false};
        void run() override {
            (*body)();
            is_done.store(true, std::memory_order_release);
        }
    } work;
    work.body = &body;
    net().submit(work);
    CHECK(comes_true([&] { return work.is_done.load(std::memory_order_acquire); }));
}

void start() {
    setenv("UCX_TLS", "tcp", 1);
    const char* const library = std::getenv("PEERLANE_UCX");
    try {
        FarNode::start({.library = library ? library : "", .interface = "lo"});
    } catch (const Unavailable& none) {
        for (const std::string& one : none.tried) std::fprintf(stderr, "%s\n", one.c_str());
        CHECK(!"UCX was found");
    }
}

// Two ends of a channel.  `to` grants the middle of its memory, and nothing else of it may ever change.
struct Ends {
    const streams::Area whole;
    FarChannelPtr from, to;
    std::vector<Notify*> lines;

    explicit Ends(uint32_t device) : whole(streams::area(device, kGranted + 2 * kMargin)) {
        std::memset(whole.host, kUntouched, whole.size);
        for (uint32_t i = 0; i < kLines; ++i) lines.push_back(Notify::local(i == 0 ? NotifyKind::strict : NotifyKind::fifo, device));
        from = std::make_shared<FarChannel>(std::vector<Memory>{}, std::vector<Notify*>{}, false);
        std::vector<Memory> grants;
        grants.push_back(Memory::at(whole.address + kMargin, kGranted));
        to = std::make_shared<FarChannel>(std::move(grants), lines, false);
        from->enter();
        to->enter();
    }
    ~Ends() {
        for (Notify* line : lines) line->drop();
        whole.close();
    }
    Ends(const Ends&) = delete;

    void open() const {
        from->open(net().address(), FarNode::get().process(), to->number(), to->secret(), 1 << 30);
        to->open(net().address(), FarNode::get().process(), from->number(), from->secret(), (1 << 30) + 1);
    }
    bool is_whole() const {
        const auto is_untouched = [](char byte) { return static_cast<uint8_t>(byte) == kUntouched; };
        return std::all_of(whole.host, whole.host + kMargin, is_untouched) &&
               std::all_of(whole.host + kMargin + kGranted, whole.host + whole.size, is_untouched);
    }
    // Closed by both, or given up: the process keeps nothing of it.
    void finish() {
        from->close();
        to->close();
        CHECK(comes_true([&] { return from.use_count() == 1 && to.use_count() == 1; }));
        CHECK(is_whole());
    }
};

// Bytes of exactly the size that is said, so that ASan sees each one that is read beyond them.
struct Exact {
    explicit Exact(uint64_t size) : size(size), bytes(new char[size]) { std::memset(bytes.get(), 7, size); }
    const uint64_t size;
    const std::unique_ptr<char[]> bytes;
};

struct Sent final : Completion {
    std::unique_ptr<Exact> payload;
    void done(bool) override { delete this; }
};

class Forger {
  public:
    explicit Forger(std::mt19937_64& random) : random_(random) {
        locked([&] { self_ = &net().connect(net().address()); });
    }

    uint64_t below(uint64_t end) { return random_() % end; }
    bool chance(uint64_t of) { return below(of) == 0; }

    uint64_t wild() {
        constexpr std::array<uint64_t, 14> kWild{0, 1, 2, 15, 16, 1023, 1024, 1 << 20, kGranted, kGranted - 1, uint64_t{1} << 32,
                                                 uint64_t{1} << 63, UINT64_MAX, UINT64_MAX - 15};
        return chance(4) ? random_() : kWild[below(kWild.size())] + (chance(3) ? below(3) - 1 : 0);
    }

    // What a peer could send to `end`, but for what is wrong with it.
    void send(const FarChannel& end, uint64_t sequence) {
        Frame frame{.kind = static_cast<FrameKind>(1 + below(11)), .channel = end.number(), .secret = end.secret(),
                    .sequence = sequence, .lane = static_cast<uint32_t>(below(2)), .epoch = 1};
        frame.size = below(256);
        frame.at = below(kGranted - 256);
        frame.notify = static_cast<uint32_t>(below(kLines + 1));
        uint64_t size = 0;
        const bool is_large = chance(16);
        switch (frame.kind) {
            case FrameKind::write: size = frame.size = is_large ? kLargePayload : frame.size; break;
            case FrameKind::reduce:
                frame.detail = static_cast<uint32_t>(below(4));
                frame.at &= ~uint64_t{15};
                size = frame.size = is_large ? kLargePayload : frame.size & ~uint64_t{15};
                break;
            case FrameKind::scatter:
            case FrameKind::gather:
                frame.detail = 1 + static_cast<uint32_t>(below(3));
                frame.size = is_large && frame.kind == FrameKind::scatter ? kLargePayload : frame.size;
                size = frame.detail * sizeof(FarEntry) + (frame.kind == FrameKind::scatter ? frame.size : 0);
                break;
            case FrameKind::ack:
                frame.detail = static_cast<uint32_t>(below(3));
                size = frame.detail * sizeof(Acknowledged);
                break;
            case FrameKind::data: size = below(512); break;
            case FrameKind::open:
            case FrameKind::ping: size = below(100); break;
            default: frame.size = 0; break;
        }
        if (is_large) frame.at = 0;
        if (chance(3)) mutate(frame, size);
        auto payload = std::make_unique<Exact>(size);
        fill_in(frame, *payload);
        auto header = std::make_unique<Exact>(sizeof frame - (chance(50) ? 1 + below(sizeof frame) : 0));
        std::memcpy(header->bytes.get(), &frame, header->size);
        if (header->size != 0 && chance(40)) header->bytes[below(header->size)] ^= static_cast<char>(1 << below(8));
        ++count;
        if (size >= Engine::kFetchedFrom || chance(64)) return by_network(*header, std::move(payload));
        FarNode::get().arrived({.header = header->bytes.get(), .header_size = static_cast<uint32_t>(header->size), .size = size,
                                .data = payload->bytes.get(), .parcel = nullptr});
    }

    int count = 0;

  private:
    void mutate(Frame& frame, uint64_t& size) {
        for (uint64_t i = 1 + below(2); i > 0; --i) {
            switch (below(16)) {
                case 0: frame.channel = wild(); break;
                case 1: frame.secret = wild(); break;
                case 2: frame.sequence += wild(); break;
                case 3: frame.sequence -= std::min(frame.sequence, below(3)); break;
                case 4: frame.lane = static_cast<uint32_t>(wild()); break;
                case 5: frame.epoch = static_cast<uint32_t>(wild()); break;
                case 6: frame.acked_lane = static_cast<uint32_t>(wild()); break;
                case 7: frame.acked = wild(); break;
                case 8: frame.memory = static_cast<uint32_t>(wild()); break;
                case 9: frame.at = wild(); break;
                case 10: frame.size = wild(); break;
                case 11: frame.notify = static_cast<uint32_t>(wild()); break;
                case 12: frame.detail = static_cast<uint32_t>(wild()); break;
                case 13: frame.kind = static_cast<FrameKind>(wild()); break;
                case 14: frame.flags = static_cast<uint8_t>(wild()); break;
                default: size = chance(8) ? kLargePayload : below(200); break;
            }
        }
        if (frame.kind == FrameKind::ping && chance(2)) frame.secret = FarNode::get().process();
    }

    // Entries and acknowledgements that are often, and not always, true.
    void fill_in(const Frame& frame, const Exact& payload) {
        char* const bytes = payload.bytes.get();
        if (frame.kind == FrameKind::scatter || frame.kind == FrameKind::gather) {
            uint64_t left = frame.size;
            for (uint64_t i = 0; i < frame.detail && (i + 1) * sizeof(FarEntry) <= payload.size; ++i) {
                const uint64_t mine = i + 1 == frame.detail ? left : left / 2;
                const FarEntry entry{chance(20) ? wild() : below(kGranted - std::min(mine, kGranted - 1)), chance(20) ? wild() : mine};
                std::memcpy(bytes + i * sizeof entry, &entry, sizeof entry);
                left -= mine;
            }
        } else if (frame.kind == FrameKind::ack) {
            for (uint64_t i = 0; (i + 1) * sizeof(Acknowledged) <= payload.size; ++i) {
                Acknowledged acknowledged{static_cast<uint32_t>(below(2)), static_cast<uint32_t>(below(3)), below(4), below(3),
                                  static_cast<FarWhy>(below(14)), static_cast<uint32_t>(below(4))};
                if (chance(4)) acknowledged.sequence = wild();
                if (chance(4)) acknowledged.refused = wild();
                if (chance(4)) acknowledged.why = static_cast<FarWhy>(wild());
                if (chance(8)) acknowledged.lane = static_cast<uint32_t>(wild());
                std::memcpy(bytes + i * sizeof acknowledged, &acknowledged, sizeof acknowledged);
            }
        } else if (payload.size != 0 && chance(2)) {
            for (uint64_t i = 0; i < std::min<uint64_t>(payload.size, 64); ++i) bytes[i] = static_cast<char>(random_());
        }
    }

    void by_network(const Exact& header, std::unique_ptr<Exact> payload) {
        auto* const sent = new Sent;
        sent->payload = std::move(payload);
        const Exact& what = *sent->payload;
        net().send(*self_, header.bytes.get(), static_cast<uint32_t>(header.size), what.bytes.get(), what.size, sent);
    }

    std::mt19937_64& random_;
    Peer* self_ = nullptr;
};

FarOpPtr operation(const FarChannelPtr& on, FarOp::Verb verb, uint64_t at, char* local_bytes, uint64_t size, uint32_t notify) {
    auto op = std::make_shared<FarOp>(on, verb);
    op->at = at;
    op->local = local_bytes;
    op->size = size;
    op->notify = notify;
    return op;
}

bool is_posted(const FarChannelPtr& on, FarOp& op) {
    return comes_true([&] {
        const bool all = on->post(op);
        net().kick();
        net().help();
        return all;
    });
}

// Why it was refused, once it is over.
FarWhy outcome(const FarOpPtr& op) {
    CHECK(comes_true([&] { return net().help(), op->is_over(); }));
    return op->failure() ? static_cast<FarWhy>(op->failure()->far.why) : FarWhy::none;
}

FarWhy carried_out(const FarOpPtr& op) {
    CHECK(is_posted(op->channel, *op));
    return outcome(op);
}

void random_bytes_are_frames_only_if_each_field_is_right(std::mt19937_64& random) {
    for (int i = 0; i < scaled(8'000, 1'000'000); ++i) {
        const Exact bytes(i % 4 == 0 ? random() % 120 : sizeof(Frame));
        for (uint64_t k = 0; k < bytes.size; ++k) bytes.bytes[k] = static_cast<char>(random());
        constexpr uint32_t kMagic = Frame::kMagic;
        if (bytes.size >= 8 && i % 2) std::memcpy(bytes.bytes.get(), &kMagic, sizeof kMagic);
        if (bytes.size >= 8 && i % 3) bytes.bytes[5] = bytes.bytes[6] = bytes.bytes[7] = 0;
        const auto frame = Frame::decode(bytes.bytes.get(), bytes.size);
        if (!frame) continue;
        CHECK(bytes.size == sizeof(Frame) && frame->kind >= FrameKind::write && frame->kind <= FrameKind::ping);
    }
}

// A right frame is carried out, and one with a wrong secret, number, or neither magic nor kind changes nothing.
void frames_for_nobody_are_counted_and_change_nothing(uint32_t device) {
    Ends ends(device);
    ends.open();
    char eight[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    const Frame right{.kind = FrameKind::write, .channel = ends.to->number(), .secret = ends.to->secret(), .sequence = 1, .size = 8};
    std::vector<Frame> wrong(5, right);
    wrong[0].secret ^= 1;
    wrong[1].channel += 1000;
    wrong[2].magic ^= 1;
    wrong[3].kind = static_cast<FrameKind>(12);
    wrong[4].kind = static_cast<FrameKind>(0);
    const uint64_t before = FarNode::get().refused();
    locked([&] {
        for (const Frame& frame : wrong) FarNode::get().arrived({&frame, sizeof frame, sizeof eight, eight, nullptr});
    });
    CHECK(FarNode::get().refused() == before + wrong.size() && !ends.to->is_lost());
    CHECK(static_cast<uint8_t>(ends.whole.host[kMargin]) == kUntouched);
    CHECK(carried_out(operation(ends.from, FarOp::Verb::write, 0, eight, sizeof eight, 0)) == FarWhy::none);
    CHECK(std::memcmp(ends.whole.host + kMargin, eight, sizeof eight) == 0);
    ends.finish();
}

// Each breaks the channel at one end; the other end is told, and what it waits for ends.
void what_no_peer_sends_ends_the_channel_at_both_ends(uint32_t device) {
    const auto base = [](const Ends& ends, FrameKind kind, uint64_t sequence) {
        return Frame{.kind = kind, .channel = ends.to->number(), .secret = ends.to->secret(), .sequence = sequence, .lane = 1, .epoch = 1};
    };
    const Acknowledged never_sent{.lane = 0, .epoch = 1, .sequence = 1};
    const std::vector<std::function<void(Ends&)>> wrongs{
        [&](Ends& ends) {   // a replay
            Frame frame = base(ends, FrameKind::notify, 1);
            for (int i = 0; i < 2; ++i) FarNode::get().arrived({&frame, sizeof frame, 0, &frame, nullptr});
        },
        [&](Ends& ends) {   // no lane
            Frame frame = base(ends, FrameKind::notify, 1);
            frame.lane = 1 << 20;
            FarNode::get().arrived({&frame, sizeof frame, 0, &frame, nullptr});
        },
        [&](Ends& ends) {   // too early to be within any credit
            Frame frame = base(ends, FrameKind::notify, 1 + FarChannel::kMostFrames);
            FarNode::get().arrived({&frame, sizeof frame, 0, &frame, nullptr});
        },
        [&](Ends& ends) {   // more frames than the credit, over several lanes
            for (uint64_t i = 0; i <= FarChannel::kMostFrames; ++i) {
                Frame frame = base(ends, FrameKind::notify, 2 + i / 16);
                frame.lane = static_cast<uint32_t>(1 + i % 16);
                FarNode::get().arrived({&frame, sizeof frame, 0, &frame, nullptr});
            }
        },
        [&](Ends& ends) {   // more bytes than the credit
            const Exact bytes(60'000);
            for (uint64_t i = 0; i < 200 && !ends.to->is_lost(); ++i) {
                Frame frame = base(ends, FrameKind::write, 2 + i);
                frame.size = bytes.size;
                FarNode::get().arrived({&frame, sizeof frame, bytes.size, bytes.bytes.get(), nullptr});
            }
        },
        [&](Ends& ends) {   // acknowledged, and never sent
            Frame frame = base(ends, FrameKind::ack, 0);
            frame.detail = 1;
            FarNode::get().arrived({&frame, sizeof frame, sizeof never_sent, &never_sent, nullptr});
        },
        [&](Ends& ends) {
            Frame frame = base(ends, FrameKind::notify, 1);
            frame.acked_lane = 1;
            frame.acked = 1;
            FarNode::get().arrived({&frame, sizeof frame, 0, &frame, nullptr});
        },
        [&](Ends& ends) {   // as many acknowledgements as it does not have
            Frame frame = base(ends, FrameKind::ack, 0);
            frame.detail = UINT32_MAX;
            FarNode::get().arrived({&frame, sizeof frame, sizeof never_sent, &never_sent, nullptr});
        },
        [&](Ends& ends) {   // somebody else says that he is the other end
            const std::string& address = net().address();
            Frame frame = base(ends, FrameKind::open, 1);
            FarNode::get().arrived({&frame, sizeof frame, address.size(), address.data(), nullptr});
        },
    };
    char byte = 1;
    for (const auto& wrong : wrongs) {
        Ends ends(device);
        ends.open();
        // A write that `to` cannot start, so that it is under way when the channel ends.
        auto op = operation(ends.from, FarOp::Verb::write, 0, &byte, 1, 0);
        locked([&] {
            wrong(ends);
            CHECK(ends.to->is_lost());
            CHECK(ends.from->post(*op));
        });
        CHECK(outcome(op) == FarWhy::lost && ends.from->is_lost());
        op.reset();
        CHECK(static_cast<uint8_t>(ends.whole.host[kMargin]) == kUntouched);
        CHECK(!ends.to->why_lost().empty() && !ends.from->why_lost().empty());
        ends.finish();
    }
}

// Refused, and the channel goes on: sizes and places that wrap, or lie beyond the memory.
void wild_addresses_are_refused(uint32_t device) {
    Ends ends(device);
    ends.open();
    const std::array<std::pair<uint64_t, uint64_t>, 6> ranges{{{kGranted, 1}, {kGranted - 7, 8}, {UINT64_MAX, 8}, {UINT64_MAX - 7, 8},
                                                               {uint64_t{1} << 63, 8}, {kGranted + 1, 0}}};
    char local_bytes[8] = {};
    for (const FarOp::Verb verb : {FarOp::Verb::write, FarOp::Verb::read, FarOp::Verb::reduce}) {
        for (const auto& [at, size] : ranges) {
            CHECK(carried_out(operation(ends.from, verb, at, local_bytes, size, 0)) == FarWhy::out_of_bounds);
        }
        for (const auto& [memory, notify] : {std::pair{1u, 0u}, std::pair{UINT32_MAX, 0u}, std::pair{0u, kLines + 1}, std::pair{0u, UINT32_MAX}}) {
            const auto op = operation(ends.from, verb, 0, local_bytes, 8, notify);
            op->memory = memory;
            CHECK(carried_out(op) == (memory != 0 && notify == 0 ? FarWhy::no_such_memory : FarWhy::no_such_notify));
            CHECK(!ends.to->is_lost());
        }
    }
    ends.finish();
}

// A large scatter is on its way when its channel ends: its bytes come to a target that grants nothing any more.
void a_channel_ends_before_the_bytes_of_a_frame_are_there(uint32_t device) {
    for (int i = 0; i < scaled(30, 1000); ++i) {
        const FrameKind kind = std::array{FrameKind::scatter, FrameKind::reduce, FrameKind::write}[static_cast<size_t>(i % 3)];
        Ends ends(device);
        ends.open();
        const bool is_scatter = kind == FrameKind::scatter;
        const Exact payload(kLargePayload + (is_scatter ? sizeof(FarEntry) : 0));
        const FarEntry entry{0, kLargePayload};
        if (is_scatter) std::memcpy(payload.bytes.get(), &entry, sizeof entry);
        struct Reported final : Completion {
            std::atomic<int> times{0};
            void done(bool) override { ++times; }
        } reported;
        const Frame frame{.kind = kind, .channel = ends.to->number(), .secret = ends.to->secret(), .sequence = 1,
                          .size = kLargePayload, .detail = is_scatter ? 1u : 0u};
        Frame again = frame;
        again.kind = FrameKind::notify;
        Peer* self = nullptr;
        ends.to->close();
        locked([&] {
            self = &net().connect(net().address());
            net().send(*self, &frame, sizeof frame, payload.bytes.get(), payload.size, &reported);
        });
        for (int k = 0; k < i / 3 % 10; ++k) net().help();   // it comes meanwhile, or not yet
        locked([&] { FarNode::get().arrived({&again, sizeof again, 0, &again, nullptr}); });
        CHECK(comes_true([&] { return reported.times == 1; }));
        locked([&] { net().disconnect(*self); });
        ends.finish();
    }
}

// The peer gives the channel up while this end's program opens it.
void a_channel_is_lost_while_it_opens(uint32_t device) {
    for (int i = 0; i < scaled(50, 1000); ++i) {
        Ends ends(device);
        const Frame frame{.kind = FrameKind::closed, .channel = ends.to->number(), .secret = ends.to->secret(), .detail = 1};
        Peer* self = nullptr;
        locked([&] {
            self = &net().connect(net().address());
            net().send(*self, &frame, sizeof frame, nullptr, 0, nullptr);
        });
        ends.open();
        CHECK(comes_true([&] { return ends.to->is_lost(); }));
        for (const Notify* line : ends.lines) CHECK(comes_true([&] { return line->lost_to == (1 << 30) + 1; }));
        locked([&] { net().disconnect(*self); });
        ends.finish();
    }
}

void malformed_frames_break_nothing(std::mt19937_64& random, uint32_t device, int frames) {
    Forger forger(random);
    const auto large = std::make_unique<Exact>(kLargePayload);
    size_t before = 0;
    int rounds = 0;
    while (forger.count < frames) {
        Ends ends(device);
        const bool opens_first = forger.below(4) != 0;
        if (opens_first) ends.open();
        std::vector<FarOpPtr> ops;
        std::vector<std::unique_ptr<Exact>> ranges;
        for (uint64_t i = forger.below(4); opens_first && i > 0; --i) {
            const uint64_t size = forger.chance(16) ? kLargePayload : forger.below(200);
            ranges.push_back(std::make_unique<Exact>(size));
            ops.push_back(operation(ends.from, static_cast<FarOp::Verb>(forger.below(4)), 0, ranges.back()->bytes.get(), size,
                                    static_cast<uint32_t>(forger.below(kLines + 1))));
            if (ops.back()->verb == FarOp::Verb::notify) ops.back()->size = 0;
            ends.from->post(*ops.back());
        }
        const uint64_t most = 1 + forger.below(60);
        locked([&] {
            for (uint64_t i = 0; i < most; ++i) {
                const FarChannel& end = forger.below(3) == 0 ? *ends.from : *ends.to;
                forger.send(end, 1 + (forger.chance(4) ? forger.below(1200) : i / 2));
                if (end.is_lost() && forger.chance(2)) break;
            }
        });
        if (!opens_first) try {
                ends.open();
            } catch (const Failed&) {   // a forged opening was there before
                locked([&] {
                    Frame frame{.kind = FrameKind::closed, .detail = 1};
                    for (const FarChannelPtr& end : {ends.from, ends.to}) {
                        frame.channel = end->number();
                        frame.secret = end->secret();
                        FarNode::get().arrived({&frame, sizeof frame, 0, &frame, nullptr});
                    }
                });
            }
        // Whatever the forged frames did, all ends when both give up.
        locked([&] {
            for (const FarChannelPtr& end : {ends.from, ends.to}) {
                const Frame frame{.kind = FrameKind::closed, .channel = end->number(), .secret = end->secret(), .detail = 1};
                FarNode::get().arrived({&frame, sizeof frame, 0, &frame, nullptr});
            }
        });
        for (const FarOpPtr& op : ops) CHECK(is_posted(op->channel, *op) && comes_true([&] { return op->is_over(); }));
        ops.clear();
        ends.finish();
        if (++rounds == 200 && __sanitizer_get_current_allocated_bytes) before = __sanitizer_get_current_allocated_bytes();
    }
    const size_t after = __sanitizer_get_current_allocated_bytes ? __sanitizer_get_current_allocated_bytes() : 0;
    std::printf("    %d frames in %d channels; allocated were %zu bytes after 200 channels, %zu at the end\n", forger.count, rounds,
                before, after);
    CHECK(before == 0 || after < before + kMostGrowth);
}

}  // namespace

NATIVE_TEST(test_far_hostile) {
    test_of_this_process = "test_far_hostile";
    auto random = seeded("test_far_hostile");
    streams::open_heap();
    const uint32_t device = streams::new_device();
    RUN(random_bytes_are_frames_only_if_each_field_is_right(random));
    RUN(start());
    RUN(frames_for_nobody_are_counted_and_change_nothing(device));
    RUN(what_no_peer_sends_ends_the_channel_at_both_ends(device));
    RUN(wild_addresses_are_refused(device));
    RUN(a_channel_ends_before_the_bytes_of_a_frame_are_there(device));
    RUN(a_channel_is_lost_while_it_opens(device));
    RUN(malformed_frames_break_nothing(random, device, scaled(8'000, 1'000'000)));
    return 0;
}
