// The one way native code says no.  Texts are written in Python: this carries numbers only.
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
    address_space,     // no room in the windows
    overflow,          // address + size would wrap
    pitch_overflow,    // `size` rows with a pitch of `address` bytes would wrap
    interrupted,       // the poll asked to stop
    forked,            // this process was forked after the first use
    closed,            // the object, or the device below it, was closed
    read_only,         // a destination that may only be read
    overlap,           // a mapping is already there
    no_route,          // two devices without an open route, and staging was not wanted
    not_peer_memory,   // the device routes only memory allocated for it
    size_mismatch,     // `size` bytes are to go where `extent_size` are; `role`: by which call, if not by a copy
    node_file,         // the node's shared file has no page to give
    stream_closed,     // the stream takes no more operations
    cancelled,         // given up because of an earlier failure, an abort or a close
    wait_timeout,      // a wait on the device reached its deadline
    callback_failed,   // a callback raised
    bad_descriptor,    // a copy list in device memory is not one: `id` says which entry, `error` which field
    notify_doubled,    // a strict notify was recorded again before it was consumed
    notifies_full,     // `size` records of a completion queue were not waited for
    notify_order,      // the next record of its queue is of another notify, number `size`
    own_callback,      // a callback would wait for itself
    deadlock,          // what is waited for waits for the waiter
    no_access,         // no device that takes part may do that with the mapping: `device` its own, `other_device` the stream's
    not_mapped,        // nothing is mapped at `address`
    imported,          // only who made a block gives it to others
    imported_read_only,   // another process gave it to be read
    seam,              // what must lie in one block lies in several
    in_use,            // it would have to move, and something uses it
    shared_blocks,     // the node's list of shared blocks is full: `size` of them
    handle,            // a shareable handle was refused: `error` is a Status, see refuse_handle() in frames.h
    waits_for_lost,    // process `id` ended, and nobody else could record what is waited for
    misaligned,        // no multiple of an element's `size` bytes
    partly_overlapping,   // a reduction's operands share bytes and are not the same place; the source is at `base`
    no_whole_elements,    // `size` bytes of elements of `extent_size`
    peer_lost,         // process `id` ended, or no longer serves its handles (`error`: errno, 0 when it ended)
    no_block,          // what must lie in one block has no bytes, or is not a device's
    lease_ended,       // its owner took lent memory back: `id` says which lease, `error` which Lease::End
    no_progress,       // all that this process, or a group of ranks, can do is wait: `id` says which time
};

struct Refusal {
    Why why;
    const char* role = "";        // which operand: "dst", "src", "address"
    uint64_t address = 0;         // what was asked for
    uint64_t size = 0;
    uint64_t base = 0;            // the allocation it fell into, if any
    uint64_t extent_size = 0;
    uint64_t id = 0;
    uint64_t fault_address = 0;   // where the touch failed
    int error = 0;                // errno, where the system refused; of host_fault: EIO the file has no such page, EACCES protected
    uint64_t entry = 0;           // of a list, from 1; 0: not of a list
    uint32_t device = 0;
    uint32_t other_device = 0;
};

}  // namespace peerlane
