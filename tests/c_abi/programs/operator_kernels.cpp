// The AI CPU's part of custom operators: all is queued on communication threads; nothing here waits.
#include <cstring>

#include "operator.h"
#include "seconds.h"

namespace {

enum { kAck, kData };

#define MUST(call)         \
    do {                   \
        if (call) return 1; \
    } while (0)

char* at(void* base, uint64_t offset) { return static_cast<char*>(base) + offset; }

// The receiver reads from the sender's buffer.
int send_or_receive(const Call& call, const Resources& all) {
    const uint64_t thread = all.thread[0], channel = all.link[0].channel;
    if (call.sends) {
        MUST(HcommLocalCopyOnThread(thread, all.local, call.input, call.bytes));
        MUST(HcommChannelNotifyRecordOnThread(thread, channel, kAck));
        MUST(HcommChannelNotifyWaitOnThread(thread, channel, kData, kSeconds));
    } else {
        MUST(HcommChannelNotifyWaitOnThread(thread, channel, kAck, kSeconds));
        MUST(HcommReadOnThread(thread, channel, call.output, all.link[0].remote, call.bytes));
        MUST(HcommChannelNotifyRecordOnThread(thread, channel, kData));
    }
    return 0;
}

// Each rank writes its part into every other's buffer; each peer has a thread.
int gather(const Call& call, const Resources& all) {
    const uint64_t leading = all.thread[0], most = all.bytes / call.ranks / 128 * 128;
    for (uint64_t done = 0, bytes; done < call.bytes; done += bytes) {
        bytes = call.bytes - done < most ? call.bytes - done : most;
        char* const mine = at(all.local, bytes * call.rank);
        MUST(HcommLocalCopyOnThread(leading, mine, static_cast<const char*>(call.input) + done, bytes));
        for (uint32_t i = 1; i < all.threads; ++i) MUST(HcommThreadNotifyRecordOnThread(leading, all.thread[i], 0));
        for (uint32_t i = 1; i < all.threads; ++i) MUST(HcommThreadNotifyWaitOnThread(all.thread[i], 0, kSeconds));
        for (uint32_t i = 0; i < all.threads; ++i) {
            const uint64_t thread = all.thread[i], channel = all.link[i].channel;
            MUST(HcommChannelNotifyRecordOnThread(thread, channel, kAck));
            MUST(HcommChannelNotifyWaitOnThread(thread, channel, kAck, kSeconds));
            MUST(HcommWriteOnThread(thread, channel, at(all.link[i].remote, bytes * call.rank), mine, bytes));
            MUST(HcommChannelNotifyRecordOnThread(thread, channel, kData));
            MUST(HcommChannelNotifyWaitOnThread(thread, channel, kData, kSeconds));
        }
        for (uint32_t i = 1; i < all.threads; ++i) MUST(HcommThreadNotifyWaitOnThread(leading, i - 1, kSeconds));
        for (uint32_t i = 1; i < all.threads; ++i) MUST(HcommThreadNotifyRecordOnThread(all.thread[i], leading, i - 1));
        for (uint32_t rank = 0; rank < call.ranks; ++rank)
            MUST(HcommLocalCopyOnThread(leading, at(call.output, call.bytes * rank + done), at(all.local, bytes * rank), bytes));
    }
    return 0;
}

// The batch, the host's word to begin, and the word to the host that all is over.
unsigned batch(const Call& call, int (*body)(const Call&, const Resources&)) {
    const Resources& all = *call.resources;
    MUST(HcommAcquireComm(call.comm));
    MUST(HcommBatchModeStart(call.tag));
    MUST(HcommThreadNotifyWaitOnThread(all.thread[0], call.go, kSeconds));
    MUST(body(call, all));
    MUST(HcommThreadNotifyRecordOnThread(all.thread[0], all.host_thread, 0));
    MUST(HcommBatchModeEnd(call.tag));
    MUST(HcommReleaseComm(call.comm));
    return 0;
}

}  // namespace

extern "C" unsigned send_recv_kernel(const Call* call) { return batch(*call, send_or_receive); }
extern "C" unsigned all_gather_kernel(const Call* call) { return batch(*call, gather); }
