// The one exception of native code.  Texts are written in Python: this carries numbers only.
#pragma once
#include <cstdint>

namespace peerlane {

enum class Why : int {
    unknown_address,   // in a device window, and no live allocation is there
    out_of_bounds,     // starts inside an allocation and ends beyond it
    host_fault,        // the host range cannot be touched
    device_fault,      // device memory could not be touched: the system has no page to give
    out_of_memory,     // the device's capacity is used up
    system_memory,     // the system refused a mapping or a file
    descriptors,       // no file descriptor left
    handles_full,      // this process has exported as many handles as it may
    address_space,     // no room in the windows
    overflow,          // address + size would wrap
    pitch_overflow,    // so many rows with such a pitch would wrap
    interrupted,       // the poll asked to stop
    forked,            // this process was forked after the first use
    closed,            // the object, or the device below it, was closed
    read_only,         // a destination that may only be read
    overlap,           // a mapping is already there
    no_route,          // two devices without an open route, and staging was not wanted
    not_peer_memory,   // the device routes only memory allocated for it
    size_mismatch,     // `size` bytes are to go where `other_size` are; `role`: by which call, if not by a copy
    node_file,         // the node's shared file has no page to give
    stream_closed,     // the stream takes no more operations
    cancelled,         // not run because of an earlier failure, an abort or a close
    wait_timeout,      // a wait on the device reached its deadline
    handle_timeout,    // process `pid`, which made a handle, did not answer in time
    callback_failed,   // a callback raised
    bad_descriptor,    // a copy list in device memory is not one: `list` says which field
    notify_doubled,    // a strict notify was recorded again before it was consumed
    notifies_full,     // the records of a completion queue were not waited for
    notify_order,      // the next record of its queue is of another notify
    own_callback,      // a callback would wait for itself
    deadlock,          // what is waited for waits for the waiter
    no_access,         // no device that takes part may do that with the mapping: `device` its own, `other_device` the stream's
    not_mapped,        // nothing is mapped at `address`
    imported,          // only who made a block gives it to others
    imported_read_only,   // another process gave it to be read
    seam,              // what must lie in one block lies in several
    in_use,            // it would have to move, and something uses it
    shared_blocks,     // the node's list of shared blocks is full
    handle,            // a shareable handle was refused, see Status in frames.h
    waits_for_lost,    // process `pid` ended, and nobody else could record what is waited for
    misaligned,        // no multiple of an element's bytes
    partly_overlapping,   // a reduction's operands share bytes and are not the same range
    no_whole_elements,    // `size` bytes are no multiple of an element's
    peer_lost,         // process `pid` ended, or no longer serves its handles (`error`: errno, 0 when it ended)
    no_block,          // what must lie in one block has no bytes, or is not a device's
    lease_ended,       // its owner took lent memory back
    no_progress,       // all that this process, or a group of ranks, can do is wait
    far,               // the other end of a channel, on another machine, refused `role`, or is lost
    calls_differ,      // ranks have called different collectives, and the other one is past its call
};

// The two processes of a refused handle.
struct HandleParties {   // trivial, as a member of a union must be
    int32_t exporter, asker;               // pids, 0: not known
    uint64_t asker_start, listed_start;    // start times: the asker's, and that of the process which was listed
};

// The numbers of a refused handle.  Its status tells which member counts: see Status in frames.h.
union HandleNumbers {
    struct {
        uint32_t exporter, asker;
    } versions;                            // of the protocol
    struct {
        uint64_t exporter, asker;
    } nodes;
    struct {
        uint32_t exporter, asker;
    } users;
    struct {
        uint32_t exported, wanted;
    } kinds;
    uint64_t most;
    int exporter_error;                    // an errno of the exporter
    struct {
        uint64_t claimed, there;
    } bytes;
    int seals;                             // that the descriptor has
    struct {
        int claimed, mode;
    } rights;                              // `mode`: of the descriptor
};

// The fields of all reasons, and those of one: `why` says which.  No field has two meanings.
struct Refusal {
    Why why;
    const char* role = "";        // which operand: "dst", "src", "address"; or by which call, or for what
    uint64_t address = 0;         // what was asked for
    uint64_t size = 0;
    union {
        struct {
            uint64_t base, size, allocation;          // where it starts, its bytes, its id
        } within = {};                                // out_of_bounds, unknown_address; `allocation`: closed, in_use
        uint64_t fault_address;                       // host_fault: where the touch failed; 0: not known
        struct {
            uint64_t free, capacity;
        } room;                                       // out_of_memory
        struct {
            uint64_t rows, bytes;
        } pitch;                                      // pitch_overflow
        uint64_t other_size;                          // size_mismatch: the destination's
        uint64_t source;                              // partly_overlapping: its address
        uint64_t width;                               // misaligned, no_whole_elements: bytes of an element
        uint64_t most;                                // shared_blocks, handles_full: how many there may be
        struct {
            uint64_t id, allocation_site, closed_site;
        } stream;                                     // stream_closed; `id`: own_callback, deadlock
        struct {
            uint64_t id;
            uint64_t other;                           // notify_order: the number of what was recorded
            uint64_t most;                            // notifies_full: how many records may be left
        } notify;                                     // notify_doubled, notifies_full, notify_order
        uint64_t timeout_ns;                          // wait_timeout of an operation
        struct {
            uint64_t actual, most;
            int field;
        } list;                                       // bad_descriptor
        uint64_t token;                               // callback_failed
        uint64_t occasion;                            // no_progress: by which number a text finds it
        uint64_t pid;                                 // waits_for_lost, peer_lost, handle_timeout
        struct {
            uint64_t id;
            int end;
        } lease;                                      // lease_ended: see Lease::End
        struct {
            uint32_t peer, why, memory, notify;           // far: see FarWhy in frame.h
        } far;
        struct {
            uint64_t number, own, theirs;                 // which call, and the words of both
            uint32_t rank, peer;
        } calls;                                      // calls_differ
        struct {
            int status;
            HandleParties parties;
            HandleNumbers numbers;
        } handle;                                     // handle: see Status
    };
    int error = 0;                // errno, where the system refused; of host_fault: EIO the file has no such page, EACCES protected
    uint64_t entry = 0;           // of a list, from 1; 0: not of a list
    uint32_t device = 0;
    uint32_t other_device = 0;
};

}  // namespace peerlane
