// The calls of NCCL that native code answers: what the dialect has served before in a communicator, on a stream that this thread knows.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "c_abi/quick.h"
#include "python/bind_collectives.h"
#include "python/c_facts.h"
#include "python/contexts.h"
#include "ranks/call_queue.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace peerlane;
using c_abi::kDeclined;

namespace nccl_calls {
namespace {

using Lane = CallQueue::Lane;
using CallKind = GroupCall::Kind;

struct VerbForm {
    const char* name;
    CallKind kind;
    bool has_root = false;   // or a peer
};
constexpr std::array<VerbForm, 10> kVerbs{{{"ncclAllReduce", CallKind::all_reduce},
                                           {"ncclReduce", CallKind::reduce, true},
                                           {"ncclReduceScatter", CallKind::reduce_scatter},
                                           {"ncclBroadcast", CallKind::broadcast, true},
                                           {"ncclBcast", CallKind::broadcast, true},
                                           {"ncclAllGather", CallKind::all_gather},
                                           {"ncclAlltoAll", CallKind::all_to_all},
                                           {"ncclScatter", CallKind::scatter, true},
                                           {"ncclSend", CallKind::send, true},
                                           {"ncclRecv", CallKind::receive, true}}};
const VerbForm& form_of(Verb verb) { return kVerbs[static_cast<size_t>(verb)]; }

// Set once, under the GIL, before the first communicator is known.
struct Elements {
    std::map<int32_t, uint64_t> widths;                               // bytes by type
    std::map<std::pair<int32_t, int32_t>, unsigned> reductions;       // numbers by type and operation
};
Elements elements;

// How far streams had got when a stream of the program had nothing but the last collective, or what was before it.
struct Position {
    uint64_t stream = 0, submitted = 0, null_submitted = 0;
    bool operator==(const Position&) const = default;
};

struct Communicator {
    ContextPtr context;
    uint32_t device = 0, rank = 0, size = 0;
    StreamPtr own;                       // of the collectives
    std::shared_ptr<CallQueue> queue;
    std::atomic<bool> is_usable{true};

    std::mutex mutex;                    // of what follows
    std::map<Lane, StreamPtr> lanes;
    std::optional<Position> behind;
    std::optional<Refusal> failure;      // of a call that failed half-way

    void fail(const Refusal& why) noexcept {
        is_usable.store(false, std::memory_order_release);
        const std::scoped_lock lock(mutex);
        if (!failure) failure = why;
    }
    StreamPtr stream_of(Lane lane) {
        if (lane == CallQueue::kCollectives) return own;
        const std::scoped_lock lock(mutex);
        const auto at = lanes.find(lane);
        return at == lanes.end() ? nullptr : at->second;
    }
};
using CommunicatorPtr = std::shared_ptr<Communicator>;

std::shared_mutex communicators_mutex;
std::unordered_map<uint64_t, CommunicatorPtr>& communicators() {
    static auto& all = *new std::unordered_map<uint64_t, CommunicatorPtr>;   // exit handlers still call
    return all;
}

CommunicatorPtr communicator_of(uint64_t handle) {
    const std::shared_lock lock(communicators_mutex);
    const auto at = communicators().find(handle);
    const bool is_usable = at != communicators().end() && at->second->is_usable.load(std::memory_order_acquire) &&
                           at->second->context->is_live.load(std::memory_order_acquire);
    return is_usable ? at->second : nullptr;
}

// A call that can be queued.  Of a message to this rank itself, only the kind and the memory of `call` count.
struct Planned {
    Asked asked;
    CommunicatorPtr communicator;
    StreamPtr program;
    CallQueue::Call call;
    uint64_t nbytes = 0;   // of `count` elements
    bool is_to_itself = false;
};

// What a thread has called since ncclGroupStart.  No memory is pinned meanwhile: the program may free it, or share it, which moves it.
struct CallGroup {
    unsigned depth = 1;
    std::vector<Planned> calls;
};
thread_local constinit CallGroup* call_group = nullptr;
thread_local constinit bool is_in_group_of_python = false;

bool take(Range& range, const char* role, uint64_t address, uint64_t size, uint32_t device) {
    range = pinned_memory(role, address, size, device);
    return range.extent != nullptr;
}

// False: the dialect says what is wrong, or serves it.
bool take_memory(Planned& plan) {
    const Communicator& own = *plan.communicator;
    const Asked& asked = plan.asked;
    const uint64_t nbytes = plan.nbytes;
    CallQueue::Call& call = plan.call;
    GroupCall& of = call.of;
    const bool is_root = static_cast<uint64_t>(static_cast<uint32_t>(asked.root)) == own.rank;
    const uint64_t whole = nbytes * own.size;
    uint64_t from = nbytes, into = nbytes;
    switch (asked.verb) {
        case Verb::reduce:
            into = is_root ? nbytes : 0;
            break;
        case Verb::reduce_scatter:
            from = whole;
            break;
        case Verb::broadcast:
        case Verb::bcast:
            from = is_root ? nbytes : 0;
            into = is_root ? 0 : nbytes;
            break;
        case Verb::all_gather:
            into = whole;
            break;
        case Verb::all_to_all:
            from = into = whole;
            break;
        case Verb::scatter:
            from = is_root ? whole : 0;
            break;
        case Verb::send:
            into = 0;
            break;
        case Verb::receive:
            from = 0;
            break;
        case Verb::all_reduce:
            break;
    }
    const bool is_broadcast = of.kind == CallKind::broadcast;
    if (from != 0 && !take(of.src, "src", is_broadcast ? asked.target : asked.source, from, own.device)) return false;
    if (into != 0 && !take(of.dst, "dst", asked.target, into, own.device)) return false;
    of.src_size = from;
    of.dst_size = into;
    if (is_broadcast && is_root && asked.source != asked.target &&
        (!take(call.copied, "src", asked.source, nbytes, own.device) || !take(call.copied_to, "dst", asked.target, nbytes, own.device)))
        return false;
    Heap::get().check_access(of.dst, of.src, own.device);
    Heap::get().check_access(call.copied_to, call.copied, own.device);
    return true;
}

// Nothing: the dialect must be asked.
std::optional<Planned> planned(const Asked& asked, uint64_t site) {
    constexpr uint64_t kMostElements = uint64_t{1} << 36;   // as counts and ranks are multiplied
    const ThreadStream on = cuda_stream_of(asked.stream);
    CommunicatorPtr known = on.stream ? communicator_of(asked.communicator) : nullptr;
    if (!known || on.context != known->context->handle.load(std::memory_order_relaxed) || on.stream->closing || on.stream->device != known->device) return {};
    const Communicator& own = *known;
    const auto width = elements.widths.find(asked.datatype);
    const bool has_root = form_of(asked.verb).has_root;
    if (width == elements.widths.end() || asked.count == 0 || asked.count > kMostElements || (has_root && static_cast<uint32_t>(asked.root) >= own.size)) return {};
    Planned plan{.asked = asked, .communicator = known, .program = on.stream->shared_from_this(), .call = {}};
    CallQueue::Call& call = plan.call;
    call.name = form_of(asked.verb).name;
    call.site = site;
    call.of.kind = form_of(asked.verb).kind;
    call.of.root = has_root ? static_cast<uint32_t>(asked.root) : 0;
    if (call.of.reduces()) {
        const auto reduction = elements.reductions.find({asked.datatype, asked.operation});
        if (reduction == elements.reductions.end()) return {};
        call.of.operation = reduction->second;
        call.of.reduction = &reduction_numbered(reduction->second);
    }
    const bool is_message = asked.verb == Verb::send || asked.verb == Verb::receive;
    plan.is_to_itself = is_message && call.of.root == own.rank;
    plan.nbytes = asked.count * width->second;
    if (!take_memory(plan)) return {};
    if (plan.is_to_itself) return plan;
    if (!is_message && (!call.of.take_size(own.rank, own.size) || !call.of.has_whole_elements())) return {};
    call.stream = known->stream_of(call.lane());
    if (!call.stream) return {};
    return plan;
}

using HeldMark = std::unique_ptr<Mark, void (*)(Mark*)>;
HeldMark held(Mark* mark) {
    return {mark, [](Mark* each) { each->drop(); }};
}

void follow(Stream& stream, const HeldMark& mark, uint64_t site) {
    if (mark->state.load(std::memory_order_acquire) != Mark::done) Scheduler::get().wait(stream, *mark, 0, site);
}

// Of the programs's stream; nothing where a null stream decides what runs before.
std::optional<Position> position_of(const Communicator& communicator, const Stream& program) {
    const Stream* const null = program.group ? communicator.context->null_stream() : nullptr;
    if (program.legacy || (program.group && !null)) return {};
    return Position{program.id, program.submitted.load(std::memory_order_relaxed), null ? null->submitted.load(std::memory_order_relaxed) : 0};
}

// What a communicator does in a group, in the order of the dialect: collectives, what goes to this rank itself, messages.
class Work {
  public:
    explicit Work(CommunicatorPtr communicator) : communicator_(std::move(communicator)), turn_(*communicator_->queue) {}

    const CommunicatorPtr& communicator() const { return communicator_; }

    // The calls are the caller's until queue() was called.  False: the dialect must make them.
    bool begin(std::vector<Planned*>&& calls) {
        for (Planned* const each : calls) {
            if (std::find(programs_.begin(), programs_.end(), each->program.get()) == programs_.end()) programs_.push_back(each->program.get());
            if (each->is_to_itself) (each->asked.verb == Verb::send ? sent_ : received_).push_back(each);
            else (each->call.lane() == CallQueue::kCollectives ? collectives_ : messages_).push_back(each);
        }
        const auto has_size_of = [](const Planned* sent, const Planned* received) { return sent->call.of.src_size == received->call.of.dst_size; };
        if (!std::equal(sent_.begin(), sent_.end(), received_.begin(), received_.end(), has_size_of)) return false;
        std::vector<CallQueue::Call*> queued;
        for (const auto* some : {&collectives_, &messages_})
            for (Planned* const each : *some) queued.push_back(&each->call);
        return turn_.begin(queued);
    }

    // False: it failed half-way, and the communicator is lost.
    bool queue() noexcept {
        try {
            queue_each();
            return true;
        } catch (const Refusal& why) {
            communicator_->fail(why);
        } catch (...) {
            communicator_->fail({.why = Why::system_memory});
        }
        turn_.give_up();
        return false;
    }

  private:
    void queue_each() {
        Communicator& own = *communicator_;
        Scheduler& scheduler = Scheduler::get();
        const bool is_alone = collectives_.size() == 1 && messages_.empty() && sent_.empty();
        const uint64_t site = (collectives_.empty() ? messages_.empty() ? sent_ : messages_ : collectives_).front()->call.site;
        std::vector<HeldMark> begun, ends;
        if (!is_alone || !is_behind(*programs_.front()))
            for (Stream* const program : programs_) begun.push_back(held(scheduler.record(*program)));
        const auto follow_begun = [&](Stream& stream) {
            for (const HeldMark& each : begun) follow(stream, each, site);
        };
        if (!collectives_.empty() || !sent_.empty()) {
            follow_begun(*own.own);
            HeldMark end = held(nullptr);
            for (Planned* const each : collectives_) end = held(turn_.queue(each->call));
            for (size_t i = 0; i < sent_.size(); ++i) copy_to_itself(*sent_[i], *received_[i]);
            ends.push_back(sent_.empty() ? std::move(end) : held(scheduler.record(*own.own)));
        }
        std::map<Lane, HeldMark> lanes;
        for (Planned* const each : messages_) {
            const Lane lane = each->call.lane();
            if (!lanes.contains(lane)) follow_begun(*each->call.stream);
            lanes.insert_or_assign(lane, held(turn_.queue(each->call)));
        }
        for (auto& [lane, end] : lanes) ends.push_back(std::move(end));
        for (Stream* const program : programs_)
            for (const HeldMark& each : ends) follow(*program, each, site);
        if (is_alone) note_behind(*programs_.front());
    }
    bool is_behind(const Stream& program) {
        const auto now = position_of(*communicator_, program);
        const std::scoped_lock lock(communicator_->mutex);
        return now && communicator_->behind == now;
    }
    void note_behind(const Stream& program) {
        const auto now = position_of(*communicator_, program);
        const std::scoped_lock lock(communicator_->mutex);
        communicator_->behind = now;
    }
    void copy_to_itself(Planned& from, Planned& to) {
        Range &src = from.call.of.src, &dst = to.call.of.dst;
        Op op{.kind = OpKind::copy, .size = from.call.of.src_size};
        op.dst = dst.host;
        op.dst_extent = dst.extent;
        op.src = src.host;
        op.src_extent = src.extent;
        Scheduler::get().submit(*communicator_->own, op, from.call.site);
        src = dst = {};
    }

    const CommunicatorPtr communicator_;
    CallQueue::Turn turn_;
    std::vector<Stream*> programs_;
    std::vector<Planned*> collectives_, messages_, sent_, received_;
};

// kDeclined: the dialect must make the calls that are left, also those of a communicator that is lost, whose failure it words.
int32_t launch(std::vector<Planned>& calls) noexcept {
    try {
        std::vector<CommunicatorPtr> order;
        for (const Planned& each : calls)
            if (std::find(order.begin(), order.end(), each.communicator) == order.end()) order.push_back(each.communicator);
        std::vector<std::unique_ptr<Work>> works;
        for (const CommunicatorPtr& each : order) {
            std::vector<Planned*> own;
            for (Planned& call : calls)
                if (call.communicator == each) own.push_back(&call);
            works.push_back(std::make_unique<Work>(each));
            if (!works.back()->begin(std::move(own))) return kDeclined;
        }
        std::vector<Planned> left;
        left.reserve(calls.size());
        for (const std::unique_ptr<Work>& each : works)
            if (each->queue()) std::erase(order, each->communicator());
        if (order.empty()) return 0;
        for (Planned& each : calls)
            if (std::find(order.begin(), order.end(), each.communicator) != order.end()) left.push_back(std::move(each));
        calls.swap(left);
        return kDeclined;
    } catch (...) {
        return kDeclined;
    }
}

std::vector<uint64_t> words_of(const Asked& asked) {
    const auto word = [](int32_t value) { return static_cast<uint64_t>(static_cast<int64_t>(value)); };
    std::vector<uint64_t> words;
    if (asked.verb != Verb::bcast && asked.verb != Verb::receive) words.push_back(asked.source);
    if (asked.verb != Verb::send) words.push_back(asked.target);
    words.insert(words.end(), {asked.count, word(asked.datatype)});
    if (form_of(asked.verb).kind == CallKind::all_reduce || asked.verb == Verb::reduce || asked.verb == Verb::reduce_scatter) words.push_back(word(asked.operation));
    if (form_of(asked.verb).has_root) words.push_back(word(asked.root));
    words.insert(words.end(), {asked.communicator, asked.stream});
    return words;
}

}  // namespace

int32_t run(const Asked& asked) noexcept {
    if (is_in_group_of_python) return kDeclined;
    try {
        if (!communicator_of(asked.communicator) || !cuda_stream_of(asked.stream).stream) return kDeclined;
        const uint64_t site = line_of_c_call(asked.caller);   // other code of the program may run, and change what is known
        auto plan = planned(asked, site);
        if (!plan) return kDeclined;
        if (call_group) {
            plan->call.unpin();
            call_group->calls.push_back(std::move(*plan));
            return 0;
        }
        if (plan->is_to_itself) return kDeclined;
        std::vector<Planned> calls;
        calls.push_back(std::move(*plan));
        return launch(calls);
    } catch (...) {   // the dialect meets it again, and words it
        return kDeclined;
    }
}

bool begin_group() noexcept {
    if (is_in_group_of_python || !may_answer_cuda()) return false;
    if (call_group) {
        ++call_group->depth;
        return true;
    }
    call_group = new (std::nothrow) CallGroup;
    return call_group != nullptr;
}

// False: the program has ended what a call of a group names.
static bool take_again(Planned& plan) noexcept {
    const Communicator& own = *plan.communicator;
    try {
        return own.is_usable.load(std::memory_order_acquire) && own.context->is_live.load(std::memory_order_acquire) && !plan.program->closing &&
               take_memory(plan);
    } catch (...) {
        return false;
    }
}

int32_t end_group() noexcept {
    if (!call_group || !may_answer_cuda()) return kDeclined;
    if (call_group->depth > 1) {
        --call_group->depth;
        return 0;
    }
    if (!std::all_of(call_group->calls.begin(), call_group->calls.end(), take_again)) return kDeclined;
    const int32_t code = launch(call_group->calls);
    if (code != kDeclined) delete std::exchange(call_group, nullptr);
    return code;
}

static void bind(nb::module_& m) {
    struct CallQueueHandle {
        std::shared_ptr<CallQueue> queue;
    };
    nb::class_<CallQueueHandle>(m, "CallQueue", "The calls of a group that native code queues on streams.")
        .def(
            "__init__",
            [](CallQueueHandle* self, const RoundsHandle& rounds, const Memory& mine, const std::vector<nb::object>& theirs, uint64_t kept, uint64_t entry,
               uint64_t timeout_ns) {
                CallQueue::Posts posts;
                if (theirs.size() != rounds.rounds->size || entry <= sizeof(uint64_t) || kept == 0) throw nb::value_error("not as many posts as ranks");
                const uint64_t needed = kept * (entry + 2 * theirs.size() * sizeof(uint64_t));
                posts.kept = kept;
                posts.entry = entry;
                posts.theirs.resize(theirs.size());
                for (size_t rank = 0; rank < theirs.size(); ++rank) {
                    if (rank == rounds.rounds->rank) continue;
                    const Memory& memory = nb::cast<const Memory&>(theirs[rank]);
                    if (memory.size() < needed) throw nb::value_error("no room for the posts");
                    posts.theirs[rank] = memory.pin();
                }
                if (mine.size() < needed) throw nb::value_error("no room for the posts");
                posts.mine = mine.pin_writable();
                new (self) CallQueueHandle{std::make_shared<CallQueue>(rounds.rounds, std::move(posts), timeout_ns)};
            },
            "rounds"_a, "mine"_a, "theirs"_a, "kept"_a, "entry"_a, "timeout_ns"_a,
            "`mine`, `theirs`: the posts of this rank, and of each rank; `kept` calls of `entry` bytes each, and as many words of each lane.")
        .def(
            "know_mail",
            [](const CallQueueHandle& self, const MailsHandle& mails, uint32_t peer, bool sends) { self.queue->know_mail(peer, sends, mails.of.at(peer).mail); },
            "mails"_a, "peer"_a, "sends"_a)
        .def(
            "know_words",
            [](const CallQueueHandle& self, int kind, uint64_t size, int number, uint32_t root, uint32_t checksum, const nb::bytes& text) {
                GroupCall call{.kind = static_cast<CallKind>(kind), .root = root, .operation = number < 0 ? 0 : static_cast<unsigned>(number), .size = size};
                self.queue->know_words(call.word(), checksum, {text.c_str(), text.size()});
            },
            "kind"_a, "size"_a, "number"_a, "root"_a, "checksum"_a, "text"_a, "What is posted of a call without parts that differ.")
        .def(
            "note_last",
            [](const CallQueueHandle& self, std::optional<uint32_t> peer, bool sends, const EventHandle* last) {
                self.queue->note_last(peer ? CallQueue::lane_of(*peer, sends) : CallQueue::kCollectives, last ? last->event : nullptr);
            },
            "peer"_a.none(), "sends"_a, "last"_a.none(),
            "The end of the last message to a peer or from it, without a peer of the last collective; native code records it anew.  None: all are over.")
        .def("forget_lasts", [](const CallQueueHandle& self) { self.queue->forget_lasts(); });
    m.def("queued_call", &queued_call, "stream"_a, "operation"_a, "The call of C that queued an operation without Python; empty if it is not known.");

    struct CommunicatorHandle {
        uint64_t handle = 0;
        CommunicatorPtr communicator;
        CommunicatorHandle(uint64_t number, CommunicatorPtr known) : handle(number), communicator(std::move(known)) {
            const std::unique_lock lock(communicators_mutex);
            communicators()[handle] = communicator;
        }
        ~CommunicatorHandle() { end(); }
        CommunicatorHandle(const CommunicatorHandle&) = delete;
        void end() {
            communicator->is_usable.store(false, std::memory_order_release);
            const std::unique_lock lock(communicators_mutex);
            communicators().erase(handle);
        }
    };
    nb::class_<CommunicatorHandle>(m, "NcclCommunicator", "A communicator of NCCL whose calls native code may queue.")
        .def(
            "__init__",
            [](CommunicatorHandle* self, uint64_t handle, const ContextHandle& context, uint32_t device, uint32_t rank, uint32_t size, const StreamHandle& stream,
               const CallQueueHandle& queue) {
                auto known = std::make_shared<Communicator>();
                known->context = context.context;
                known->device = device;
                known->rank = rank;
                known->size = size;
                known->own = stream.stream;
                known->queue = queue.queue;
                new (self) CommunicatorHandle(handle, std::move(known));
            },
            "handle"_a, "context"_a, "device"_a, "rank"_a, "size"_a, "stream"_a, "queue"_a, "`device`: the number in native code; `stream`: of the collectives.")
        .def(
            "know_lane",
            [](const CommunicatorHandle& self, uint32_t peer, bool sends, const StreamHandle& stream) {
                const std::scoped_lock lock(self.communicator->mutex);
                self.communicator->lanes[CallQueue::lane_of(peer, sends)] = stream.stream;
            },
            "peer"_a, "sends"_a, "stream"_a)
        .def(
            "failure",
            [](const CommunicatorHandle& self) -> nb::object {
                std::optional<Refusal> failure;
                {
                    const std::scoped_lock lock(self.communicator->mutex);
                    failure = self.communicator->failure;
                }
                return failure ? as_exception(*failure) : nb::none();
            },
            nb::sig("def failure(self) -> BaseException | None"), "Why a call failed half-way, which lost the communicator.")
        .def("end", &CommunicatorHandle::end, "Let the dialect answer all its calls from now on.");
    m.def(
        "know_nccl_elements",
        [](std::map<int32_t, uint64_t> widths, std::map<std::pair<int32_t, int32_t>, unsigned> reductions) {
            elements = {std::move(widths), std::move(reductions)};
        },
        "widths"_a, "reductions"_a, "The bytes of each type, and the number of the reduction of each type and operation.");
    m.def(
        "take_nccl_group",
        [](bool begins) -> nb::object {
            is_in_group_of_python = begins;
            if (!call_group) return nb::none();
            const std::unique_ptr<CallGroup> group(std::exchange(call_group, nullptr));
            is_in_group_of_python = true;
            nb::list calls;
            for (const Planned& each : group->calls) {
                nb::list words;
                for (const uint64_t word : words_of(each.asked)) words.append(word);
                calls.append(nb::make_tuple(each.call.name, nb::tuple(words), each.call.site));
            }
            return nb::make_tuple(group->depth, calls);
        },
        "begins"_a, nb::sig("def take_nccl_group(begins: bool) -> tuple[int, list[tuple[str, tuple[int, ...], int]]] | None"),
        "Say whether the dialect has a group of this thread open; return what native code has of one, with its calls and their lines, and let the dialect have it.");
}

}  // namespace nccl_calls

void bind_nccl_calls(nb::module_& m) { nccl_calls::bind(m); }
