// The events of a log: what a process did to device memory, in the order in which it did it.
//
// docs/design/event-log.md says what the log has, docs/design/checker.md what its events order.  A log is a file: a header of one page, then a ring of records.  A record
// is a Head, words that depend on its kind, and spans, or the short form of these (short_form.h); its length is a number of units.  All fields are of the host's byte order:
// a log is read on the machine that wrote it.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace peerlane::log {

constexpr uint64_t kMagic = 0x3230474f4c524550;   // "PERLOG02"
constexpr uint32_t kUnit = 8;                     // bytes
constexpr uint64_t kHeaderBytes = 4096;

enum class Kind : uint8_t {
    pad = 0,          // the rest of the ring up to its end
    gap,              // a = events that were dropped here, b = time of the first of them
    // What touches memory.  `op` says how; the spans say which bytes.  stream 0: over when the call returned.
    access,           // a = channel (0: none); a fill, or a word: b = the value, c = its bytes
    pieces,           // of a descriptor's launch (stream, sequence), or of a wait: the bytes, known when it ran
    cancelled,        // stream: its operations `sequence` to a never ran.  b = 1: they failed, and what they moved until then is not known.
                      // kEnd: soon; the first waits in vain, in a deadlock
    host_access,      // a read or a write of the host through a view: spans.  kPolled: a look of a loop that waits for a word; a = what it saw,
                      // b = its bytes (0: not known)
    view,             // the program took an array or a tensor on memory, whose accesses are not logged: spans; a = 1: on a view.  kEnd: it was released
    // Order within a process.
    event_record,     // (stream, sequence) is the mark that waits name; a = shared signal and b = number, if processes share it
    event_wait,       // a, b = stream and sequence of the mark; or, with kShared, the signal and the number
    sync,             // the thread knows that operation `sequence` of `stream`, and all before it, are over
    callback,         // submitted
    callback_begin,   // the thread begins the callback (stream, sequence)
    callback_end,
    stream_made,      // stream; a = its group of legacy streams (0: none), b = 1: it is the legacy stream
    stream_ended,
    // Notifies.  a = bank (0: of this process), b = line; a notify and its wait: d = the channel (0: none).
    notify,           // submitted to a stream, or (stream 0) made: c = number of the record, 0 if it is not made yet.  Without a stream, but
                      // to another machine: `sequence` is a number of its own, and `came` tells the record's
    notified,         // the record of (stream, sequence) was made: c = its number
    notify_wait,      // submitted to a stream, or (stream 0) over: c = number of the newest record that it consumed
    notify_waited,    // the wait (stream, sequence) is over: c as above
    notify_reset,     // c = number of the last record that was discarded
    notify_made,      // c = NotifyKind, d = 1 + its index in the channel whose incoming end it is; a line without one is binary.  `sequence`: 0, or
                      // the number that it had with bank 0 until now: its records there are those of this line
    value_wait,       // submitted; its word is the span.  `pieces` follows when it is over
    // Channels.
    channel,          // a = its number in this process, b = incoming bank, c = outgoing bank, d = this rank << 32 | peer
    channel_closed,   // a
    fence,            // a = channel; (stream, sequence), or stream 0: the thread waited
    drain,            // the same
    // Memory.
    allocated,        // a = allocation (unique in the process), b = 1 + its device (0: a device that an earlier event of the block has), spans: where it
                      // lies; kShared: the program writes it unseen
    freed,            // a, b; spans: where it lay.  Operations of this process that were queued before still run, and who opened it keeps it; kEnd: not so;
                      // kShared: only for what this process queued, as the bytes live on (they were mapped here, or a pool keeps them)
    moved,            // a = allocation; spans[0] -> spans[1]: the bytes have another block from now on
    lent,             // a = the lease's number, spans: peers may use it
    taken_back,       // a; spans
    // Order between threads and processes that has no memory of its own.
    post,             // a, b = key (128 bits); the thread's past goes to it; with a stream the stream's, up to the sequence.  c: instead, so many
                      // takes of the next one need none.  kShared: the thread passes on what others gave it, and has nothing else to tell
    take,             // a, b = key; c = how many posts there are at least before it: the thread has their past.  kNextPost: as many
                      // as there were such takes, with this one.  Key kProcess, pid: all that this process of the machine did, which is over.
                      // Key kMessage, contents: a post is a message of socket d, with kEnd one that was not sent after all; a take is
                      // the c-th one that socket d got
    forget,           // a, b = key: nobody posts or takes it again
    // One operation of a group; its own traffic is not logged.
    collective,       // a = group, b = number << 16 | what << 8, c = root or peer, d = size << 32 | rank; spans.  With kEnd, and stream 0: it
                      // is over, and no `collected` follows; `sequence`: the nanoseconds that it took
    collected,        // it is over for (stream, sequence); only for stream 0
    outside,          // the process communicated by other means than peerlane's; a = 0, or the key of a medium; b = kSent (and until d ns
                      // later); kReceived (from d to c ns ago); kMapped, kUnmapped; kOverflown
    ended,            // the process left its node in an orderly way
    came,             // a record that a process of another machine submitted as (b, c) was made here: a = bank, d = its number
    evident,          // from now on any thread of the process may see, without an event, that operation `sequence` of `stream` is over
    // In the logs that this process reads itself: an observer's, and a trace's, which also has `event_wait`.
    op_submitted,     // spans; a, b = what it records or waits for: stream and sequence of the mark, or this process's notify
    op_started,       // the same, but for a notify b = number of the record; a wait starts when it is over
    noticed,          // op = what happened to the object, whose kind is a and whose number is b; (stream, sequence), spans
    op_ended,         // (stream, sequence), at the record's time; a = start in ns, b = bytes, c = device
    // Memory of the host that operations read.
    source_changed,   // the bytes that (stream, sequence) reads have changed since its submission, before any thread knew that it was over.
                      // spans; op; a = its site << 32 | its thread, b = the time of its submission
    unwatched,        // too early touches of the bytes that (stream, sequence) reads, or kShared: writes, could not be seen; a: of so many operations
    touched_early,    // before (stream, sequence) wrote its destination this thread touched it; c: 0 it read, 1 it wrote, 2 it is not known who
                      // wrote.  spans: the first such bytes; of memory without a block the offset is from its beginning; op, a, b as above
    aborted,          // stream: its operations up to `sequence` were aborted; the program does not know which of them had begun
    shared_with,      // a = pid: that process of this machine may use memory and notifies of this one from now on, or this one its
    reused,           // a cache of the program hands out bytes of an allocation, whose history goes on: spans
};

constexpr const char* kKindNames[] = {
    "pad", "gap", "access", "pieces", "cancelled", "host_access", "view", "event_record", "event_wait", "sync", "callback", "callback_begin",
    "callback_end", "stream_made", "stream_ended", "notify", "notified", "notify_wait", "notify_waited", "notify_reset", "notify_made",
    "value_wait", "channel", "channel_closed", "fence", "drain", "allocated", "freed", "moved", "lent", "taken_back", "post", "take", "forget",
    "collective", "collected", "outside", "ended", "came", "evident", "op_submitted", "op_started", "noticed", "op_ended",
    "source_changed", "unwatched", "touched_early", "aborted", "shared_with", "reused"};
static_assert(sizeof kKindNames / sizeof *kKindNames == static_cast<size_t>(Kind::reused) + 1);

// What `noticed` says of an object.
enum class Notice : uint8_t { create, destroy, sync, query, abort, reset, view, unview, exported, imported };
constexpr const char* kNoticeNames[] = {"create", "destroy", "sync", "query", "abort", "reset", "view", "unview", "export", "import"};
enum class Object : uint8_t { stream, event, notify, buffer, physical, node };
constexpr const char* kObjectNames[] = {"Stream", "Event", "Notify", "Buffer", "Physical", "Node"};

enum class Collective : uint8_t {
    // A beginning is before what the rank reads and writes; only a send's is after it.
    barrier, all_gather, all_reduce, all_to_all, reduce_scatter,   // each rank's end is after all ranks' beginnings
    broadcast, scatter,                                            // after the root's
    reduce, gather,                                                // the root's is after all
    send, receive,                                                 // c = the peer
};

constexpr uint64_t kBeginning = 1, kEndOfThread = 2, kProcess = 3, kStarted = 4, kMessage = 5;   // a of a key; kStarted, pid: a process that a program in C started
constexpr uint64_t kThreadOfC = uint64_t{1} << 63;   // in b of a thread's key; those of Python count from 1
constexpr uint64_t kNextPost = UINT64_MAX;   // c of a take

// Head.flags
constexpr uint64_t kWrote = 1, kSent = 4, kReceived = 8, kMapped = 16, kUnmapped = 32;   // by a medium; a mapping is writable with kWrote
constexpr uint64_t kRelayed = 64;   // a process without a log may have the other end
constexpr uint64_t kOverflown = 128;   // from now on all media of the run count as one
constexpr uint64_t kApart = 256;    // but this one
constexpr uint64_t kWorld = 1;      // one medium for sockets and all else without an identity of its own
constexpr uint64_t kAnyMedium = 2;  // what was sent or received by one that is not known
constexpr uint64_t kAnyDescriptor = 3;   // what was received by such a one, but by no memory
constexpr uint8_t kLoose = 1;        // nonblocking: in no order with others of its channel until a fence
constexpr uint8_t kShared = 2;
constexpr uint8_t kEnd = 4;
constexpr uint8_t kLate = 2;         // access of a stream: `pieces` follows, with bytes that are known when it runs
constexpr uint8_t kDoubtful = 4;     // access, host_access: perhaps what it reads decides whether a loop ends
constexpr uint8_t kUnknown = 8;      // host_access: the interval, and whether it was read or written, is not known
constexpr uint8_t kRows = 16;        // the spans are followed by one Rows for each span
constexpr uint8_t kMerged = 32;      // `repeats` accesses of one line, which lie side by side
constexpr uint8_t kPolled = 128;     // host_access, view, access of a stream: a look of a loop that waits
constexpr uint8_t kFetch = 64;       // access of a channel: it reads the peer's memory, and writes this end's

constexpr uint64_t kWordBytes = 64;  // what is written at once, for who polls a part of it

struct Head {
    uint32_t units;          // of the whole record
    Kind kind;
    uint8_t flags;
    uint8_t op;              // OpKind of an access
    uint8_t words;           // 8-byte words a, b, c, d that follow
    uint32_t spans;          // that follow the words
    uint32_t site;           // the line that called; 0: none.  The names file says what it is
    uint32_t thread;         // gettid()
    uint32_t repeats;        // 1, or with kMerged: sequences `sequence` - `repeats` + 1 to `sequence`
    uint64_t time_ns;        // CLOCK_MONOTONIC
    uint64_t stream, sequence;
};
static_assert(sizeof(Head) == 48);

struct Span {
    static constexpr uint64_t kWritten = uint64_t{1} << 63;
    uint64_t block;          // of the node; 0: host memory.  kWritten: written, else read
    uint64_t offset, size;   // of host memory: the address
};

// The span is `height` rows of `width` bytes, `pitch` apart.
struct Rows {
    uint64_t pitch, width, height;
};

// The first page of a log.
struct Header {
    uint64_t magic, capacity;             // bytes of the ring
    int32_t pid, rank;                    // rank -1: not known
    uint64_t start_ns;
    std::atomic<uint64_t> head;           // bytes written since the beginning; published after the record
    std::atomic<uint64_t> open;           // records before it are final; the one that begins there, if one does, may still grow
    std::atomic<uint64_t> tail;           // the reader's
    std::atomic<uint64_t> dropped;        // events
    std::atomic<uint32_t> ended;          // the process left in an orderly way
    std::atomic<uint64_t> reserved;       // as `head`: the bytes that have pages, but for those that the reader gave back
    uint64_t machine, clock;              // which they are, as numbers of any kind; 0: not known
    uint64_t since_epoch_ns;              // CLOCK_REALTIME when CLOCK_MONOTONIC was 0
    std::atomic<uint64_t> closed;         // the reader's: the record that ends there grows no more
};

}  // namespace peerlane::log
