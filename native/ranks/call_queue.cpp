#include "ranks/call_queue.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "ranks/collective.h"

namespace peerlane {

namespace {

struct Queued {
    uint64_t stream = 0, first = 0, last = 0;
    const char* call = "";
};

constexpr size_t kQueued = 256;
std::mutex queued_mutex;
std::array<Queued, kQueued> queued;
size_t next_queued = 0;

// As collectives/agreement.py: a word has the low bits of the call's number on top.
constexpr uint64_t kNumbers = uint64_t{1} << 24, kWord = sizeof(uint64_t);
constexpr unsigned kOfCall = 32, kOfMessage = 40;
constexpr uint64_t kBytesOfMessage = (uint64_t{1} << 39) - 1;

// Of two ranks that post and then look, one sees what the other has posted.
void store(uint64_t* word, uint64_t value) { std::atomic_ref(*word).store(value, std::memory_order_seq_cst); }

void submit_steps(Stream& stream, std::unique_ptr<Stepwise> work, uint64_t timeout_ns, uint64_t site) {
    const Op op{.kind = OpKind::stepwise, .timeout_ns = timeout_ns, .extra = work.get()};
    Scheduler::get().submit(stream, op, site);
    (void)work.release();
}

}  // namespace

void note_queued(uint64_t stream, uint64_t first, uint64_t last, const char* call) {
    const std::scoped_lock lock(queued_mutex);
    queued[next_queued++ % kQueued] = {stream, first, last, call};
}

std::string queued_call(uint64_t stream, uint64_t operation) {
    const std::scoped_lock lock(queued_mutex);
    const auto at = std::find_if(queued.begin(), queued.end(),
                                 [&](const Queued& each) { return each.stream == stream && each.first <= operation && operation <= each.last; });
    return at == queued.end() ? "" : at->call;
}

CallQueue::Posts::~Posts() {
    for (const Range& each : theirs) Heap::get().unpin(each);
    Heap::get().unpin(mine);
}

void CallQueue::know_mail(uint32_t peer, bool sends, const std::shared_ptr<Mail>& mail) {
    const std::scoped_lock lock(mutex_);
    mails_[lane_of(peer, sends)] = mail;
}

void CallQueue::know_words(uint64_t word, uint32_t checksum, const std::string& text) {
    const std::scoped_lock lock(mutex_);
    if (texts_.size() >= kMostTexts) texts_.clear();
    texts_.insert_or_assign(word, Text{checksum, text});
}

void CallQueue::note_last(Lane lane, std::shared_ptr<Event> last) {
    const std::scoped_lock lock(mutex_);
    if (last) lasts_[lane] = std::move(last);
    else lasts_.erase(lane);
}

void CallQueue::forget_lasts() {
    const std::scoped_lock lock(mutex_);
    lasts_.clear();
}

// Whether a rank has not posted another word for the call of this number.
bool CallQueue::agrees(uint32_t rank, uint64_t at, uint64_t word, unsigned number_at) const {
    const Range& posts = posts_.theirs[rank];
    if (!posts.host) return true;   // they are this rank's
    const uint64_t seen = std::atomic_ref(*reinterpret_cast<uint64_t*>(posts.host + at)).load(std::memory_order_seq_cst);
    return seen == word || seen >> number_at != word >> number_at;
}

bool CallQueue::Turn::claim(std::timed_mutex& mutex) {
    const auto is_ours = [&](const auto& each) { return each.mutex() == &mutex; };
    if (std::any_of(claims_.begin(), claims_.end(), is_ours)) return true;
    std::unique_lock claimed(mutex, std::try_to_lock);
    if (!claimed) return false;
    claims_.push_back(std::move(claimed));
    return true;
}

bool CallQueue::Turn::begin(std::span<Call* const> calls) {
    rounds_ = lock_ ? queue_.rounds_.lock() : nullptr;
    if (!rounds_) return false;
    std::map<Lane, uint64_t> numbers;
    for (const Call* const each : calls) {
        const Call& call = *each;
        const Lane lane = call.lane();
        const auto last = queue_.lasts_.find(lane);
        if (last == queue_.lasts_.end() || !last->second->is_quick()) return false;   // Python has queued none that may still run
        if (call.stream->closing || call.stream->failed.load(std::memory_order_relaxed)) return false;
        const bool begins = lane == kCollectives ? begin_collective(call, ++numbers[lane]) : begin_message(call, ++numbers[lane]);
        if (!begins) return false;
    }
    return true;
}

bool CallQueue::Turn::begin_collective(const Call& call, uint64_t number) {
    if (!claim(rounds_->claim_mutex) || rounds_->farewell->is_sent()) return false;
    const auto text = queue_.texts_.find(call.of.word());
    const Posts& posts = queue_.posts_;
    if (text == queue_.texts_.end() || text->second.text.size() != posts.entry - kWord) return false;
    number += rounds_->calls;
    const uint64_t at = number % posts.kept * posts.entry, word = number % kNumbers << kOfCall | text->second.checksum;
    std::memcpy(posts.mine.host + at + kWord, text->second.text.data(), posts.entry - kWord);
    store(queue_.post_at(at), word);   // last: a rank that sees the word also sees the text
    for (uint32_t rank = 0; rank < rounds_->size; ++rank)
        if (!queue_.agrees(rank, at, word, kOfCall)) return false;
    return true;
}

bool CallQueue::Turn::begin_message(const Call& call, uint64_t number) {
    const Lane lane = call.lane();
    std::shared_ptr<Mail>& mail = mails_[lane];
    if (!mail) mail = queue_.mails_[lane].lock();
    Mail::Direction* const direction = mail ? mail->direction(call.sends()).get() : nullptr;
    if (!direction || !claim(direction->claim_mutex) || mail->farewell->is_sent()) return false;
    number += direction->calls;
    const Posts& posts = queue_.posts_;
    const uint64_t size = call.sends() ? call.of.src_size : call.of.dst_size;
    const uint64_t word = number % kNumbers << kOfMessage | (size & kBytesOfMessage);
    const auto at = [&](Lane of) { return posts.kept * posts.entry + (static_cast<uint64_t>(of) * posts.kept + number % posts.kept) * kWord; };
    store(queue_.post_at(at(lane)), word);
    return queue_.agrees(call.of.root, at(lane_of(rounds_->rank, !call.sends())), word, kOfMessage);
}

// Messages run behind earlier collectives, and collectives behind all earlier calls.
void CallQueue::Turn::wait_for_earlier(const Call& call) {
    const Lane lane = call.lane();
    for (const auto& [earlier, last] : queue_.lasts_) {
        if (lane != kCollectives && earlier != kCollectives && earlier != lane) continue;
        Mark* const mark = last->mark();
        if (!mark) continue;
        const std::unique_ptr<Mark, void (*)(Mark*)> held(mark, [](Mark* each) { each->drop(); });
        if (mark->stream_id != call.stream->id && mark->state.load(std::memory_order_acquire) != Mark::done)
            Scheduler::get().wait(*call.stream, *mark, 0, call.site);
    }
}

void CallQueue::Turn::give_up() noexcept {
    if (rounds_) rounds_->farewell->send();
    for (const auto& [lane, mail] : mails_)
        if (mail) mail->farewell->send();
}

Mark* CallQueue::Turn::queue(Call& call) {
    const Lane lane = call.lane();
    Stream& stream = *call.stream;
    wait_for_earlier(call);
    if (call.copied.extent) {
        Op op{.kind = OpKind::copy, .size = call.of.src_size};
        op.dst = call.copied_to.host;
        op.dst_extent = call.copied_to.extent;
        op.src = call.copied.host;
        op.src_extent = call.copied.extent;
        Scheduler::get().submit(stream, op, call.site);
        call.copied = call.copied_to = {};
    }
    const uint64_t first = stream.submitted.load(std::memory_order_relaxed) + 1;
    if (lane == kCollectives) {
        call.of.number = rounds_->calls + 1;
        submit_steps(stream, std::make_unique<Collective>(rounds_, std::exchange(call.of, {})), queue_.timeout_ns_, call.site);
        ++rounds_->calls;
    } else {
        const std::shared_ptr<Mail>& mail = mails_[lane];
        const bool sends = call.sends();
        const GroupCall message = std::exchange(call.of, {});
        submit_steps(stream, std::make_unique<Message>(mail, sends, sends ? message.src : message.dst, sends ? message.src_size : message.dst_size),
                     queue_.timeout_ns_, call.site);
        ++mail->direction(sends)->calls;
    }
    note_queued(stream.id, first, stream.submitted.load(std::memory_order_relaxed), call.name);
    Event& last = *queue_.lasts_.at(lane);
    last.record_quickly(stream);
    return last.mark();
}

}  // namespace peerlane
