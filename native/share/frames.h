// What an exporter and an importer say to each other: one record of a SOCK_SEQPACKET socket is one frame.
//
// All fields are little-endian, no frame has padding, and whatever has another length, magic or version is answered
// with a status or ends the connection.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

#include "memory/refusal.h"

namespace peerlane {

enum class Kind : uint16_t { memory = 1, buffer = 2, event = 3, notify = 4, notifies = 5 };   // what a handle stands for

constexpr uint16_t kMayRead = 1, kMayWrite = 2, kForPeers = 4;

// What travels with a descriptor: plain numbers, never trusted by the importer.
struct Grant {
    Kind kind = Kind::memory;
    uint16_t rights = kMayRead | kMayWrite;
    uint32_t device = 0;                 // ordinal in the node
    uint64_t block = 0;                  // id of the block, unique in the node
    uint64_t entry = 0;                  // its index in the node's list of shared blocks
    uint64_t size = 0;                   // bytes behind the descriptor
    uint64_t offset = 0, length = 0;     // the part that is meant (a buffer in its block)
    uint32_t notify_kind = 0;            // of a notify: how it is recorded and waited for
    uint32_t count = 0;                  // of the lines of a bank: how many notifies, ranks or leases they are for
};

// Which early grant an importer took; `state` 0: none, the exporter was asked.
struct TakenGrant {
    uint32_t record = 0;
    uint64_t state = 0;
};

// Why a handle was refused.  What is named behind one are the members of HandleNumbers that it has.
enum class Status : uint16_t {
    ok = 0,
    // from the exporter
    malformed = 1,           // a frame that is none
    version = 2,             // versions
    other_node = 3,          // nodes
    unknown = 4,             // was never exported
    stale = 5,               // was withdrawn, or its owner freed what it stood for
    not_listed = 6,
    pid_reused = 7,          // the pid is listed, and was another process then
    listed_early = 8,        // the pid was listed before there was such a process
    other_user = 9,          // users
    foreign_namespace = 10,  // one does not see the other's pid
    own_process = 11,
    wrong_kind = 12,         // kinds
    too_many = 13,           // most: of connections, or of opens of one connection
    exhausted = 14,          // the exporter has no descriptor left; exporter_error
    too_many_of_process = 15,   // most: of connections of one process
    // from the importer's own checks
    bad_answer = 32,         // a frame that is none, not the one asked for, or without its one descriptor
    false_size = 33,         // bytes
    no_seals = 34,           // seals
    false_rights = 35,       // rights
    too_many_members = 36,   // most: of processes that have it
};

Refusal refuse_handle(Status status, const HandleParties& parties, const HandleNumbers& numbers = {});

constexpr uint32_t kFrameMagic = 0x4B424C50;   // "PLBK"
constexpr uint16_t kFrameVersion = 4;
constexpr uint64_t kShortNonce = (uint64_t{1} << 28) - 1;   // the bits that the integer form of a handle carries

enum class Verb : uint16_t {
    open = 1,
    let_go = 2,   // no answer; undoes one open of the handle on this connection
    cancel = 3,   // no answer; undoes request `id`, if it was the last and was granted
};

struct Request {
    uint32_t magic = kFrameMagic;
    uint16_t version = kFrameVersion;
    Verb verb = Verb::open;
    uint64_t id = 0;
    uint64_t node = 0;
    uint64_t nonce = 0;
    uint32_t index = 0;
    uint16_t nonce_bits = 64;   // 28 or 64 of them are known
    Kind kind = Kind::memory;
};

// A field that the status does not call for is 0.  With status ok come one descriptor and, once in a connection, that of
// the page for early grants.
struct Answer {
    uint32_t magic = kFrameMagic;
    uint16_t version = kFrameVersion;
    Status status = Status::ok;
    uint64_t id = 0;            // of the request; 0: about the connection
    int32_t exporter = 0, asker = 0;               // pids, as the exporter sees them
    uint64_t asker_start = 0, listed_start = 0;
    uint64_t exporter_node = 0;                    // other_node
    uint32_t exporter_user = 0, asker_user = 0;    // other_user: as the exporter sees them
    uint32_t most = 0;                             // too_many, too_many_of_process
    uint16_t exporter_error = 0;                   // exhausted: an errno
    uint16_t exported_kind = 0;                    // wrong_kind: a Kind
    uint64_t nonce = 0;         // ok: all of it
    Grant grant;                // ok
};

static_assert(std::endian::native == std::endian::little);
static_assert(sizeof(Grant) == 56 && sizeof(Request) == 40 && sizeof(Answer) == 128);
static_assert(std::has_unique_object_representations_v<Grant> && std::has_unique_object_representations_v<Request> &&
              std::has_unique_object_representations_v<Answer>);

// Whether `nonce`, of which the lowest 28 or all 64 bits are known, may be `whole`.
constexpr bool is_nonce(uint64_t nonce, unsigned bits, uint64_t whole) {
    return bits == 28 ? nonce == (whole & kShortNonce) : nonce == whole;
}

}  // namespace peerlane
