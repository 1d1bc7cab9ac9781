"""Native functions on the host, for every back-end; the first use of one sets all.

Neutral code tries these fast functions first.  A function that takes objects returns False if it does not recognise
one, and has then done nothing.  A function that takes addresses knows those of the host and of virtual devices.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

#: (destination, source) -> whether it was done
copy_memory: Callable[[Any, Any], bool]
#: (stream, destination, source) -> whether it was queued
submit_copy: Callable[[Any, Any, Any], bool]
#: (destination, source, number of the reduction) -> whether it was done
reduce_memory: Callable[[Any, Any, int], bool]
#: (stream, destination, source, number of the reduction) -> whether it was queued
submit_reduce: Callable[[Any, Any, Any, int], bool]
#: (stream or None, destinations, sources); TypeError for an object that it does not recognise
copy_batch: Callable[[Any, list[Any], list[Any]], None]
#: (destination, its pitch, source, its pitch, width, height); TypeError for an object that it does not recognise
copy_memory_2d: Callable[[Any, int, Any, int, int, int], None]
submit_copy_2d: Callable[[Any, Any, int, Any, int, int, int], None]
#: (destination, value, width); TypeError for an object that it does not recognise
fill_memory: Callable[[Any, int, int], None]
submit_fill: Callable[[Any, Any, int, int], None]

#: (destination, source, bytes, direct)
copy: Callable[..., None]
#: (a stream of a group, destination, source, bytes, whether both ends must lie on its device) -> whether it was done:
#: not while the group has something to do, or if no end lies there; an end is an address, or an object with a buffer
copy_if_alone: Callable[[Any, Any, Any, int, bool], bool]
submit_copy_at: Callable[..., None]
copy_2d: Callable[..., None]
submit_copy_2d_at: Callable[..., None]
fill: Callable[..., None]
submit_fill_at: Callable[..., None]
reduce: Callable[..., None]
submit_reduce_at: Callable[..., None]
submit_write_value: Callable[[Any, int, int, int], None]
submit_wait_value: Callable[[Any, int, int, int, int, int, int, bool], None]
#: (stream or None, address, bytes, direct, the number of the only device or 0)
launch_descriptor: Callable[[Any, int, int, bool, int], None]
#: address -> (the device's number in native code, base, bytes, allocation), or None for pageable memory
locate: Callable[[int], tuple[int, int, int, int] | None]
#: (address, bytes) -> an object that exports the bytes there
memory_at: Callable[[int, int], Any]

#: object -> (address, bytes, read-only) of its contiguous buffer, or None if it has none
buffer_of: Callable[[object], tuple[int, int, bool] | None]
#: base of classes that export the buffer of the object that their ``_exported()`` returns
Exporter: Any
#: DLPack capsule -> its tensor, or None if it is not one or was taken
take_tensor: Callable[[object], Any]
#: (address of a function for the processor, address of its arguments) -> what it returns; it may touch device memory
call_kernel: Callable[[int, int], int]
#: returns freed blocks that are kept for reuse to the system, and gives their bytes
trim: Callable[[], int]
#: gives a number that no allocation of the process has
next_allocation: Callable[[], int]
#: raises Closed in a forked child whose parent had used devices
check_usable: Callable[[], None]
#: the queue in which host functions wait for the thread that calls them
CallbackQueue: Callable[[], Any]

#: returns how many failures of queued operations there were so far
failures: Callable[[], int]
#: returns the failures that no call has reported, each a tuple that begins with the error and the stream's id
unreported_failures: Callable[[], list[Any]]
#: (stream) returns such a failure of a stream, which counts as reported from now on; None if there is none
take_failure: Callable[[Any], Any]

#: (event) returns the number of the stream that failed before its last record, and may not have reported it
failed_before: Callable[[Any], int]
#: of operations that the program may abort together: ``put_on(stream)``; once it is ``set()``, streams that waited
#: for one go on without its failure
AbortFlag: Callable[[], Any]
#: (stream or event) -> whether such an operation is why it, or the work before it, has failed, a few seconds ago
awaits_abort: Callable[[Any], bool]

#: what native code knows of a context of a vendor's program: its handle, references, device and null stream
Context: Callable[[], Any]
#: the contexts that each thread has pushed
ContextStack: Callable[[], Any]
#: the memory of all pools of a vendor's program
Pools: Callable[[], Any]
#: (the memory of all pools, native number of the device or 0): the memory of one pool
PoolMemory: Callable[[Any, int], Any]
#: what was freed to pools before the last record of an event
FreedBefore: Callable[[], Any]
#: lets joins and locks under the GIL give it away, in the modules that are loaded
follow_waits: Callable[[], None]
#: returns the address of the table by which C programs make calls without Python; the functions below fill it
c_calls: Callable[[bool], int]
#: returns the number of the present state of all threads; ask for it before you look up what to enter for a thread
c_epoch: Callable[[], int]
#: drops the entries of all threads: after a change that other threads see
forget_c_threads: Callable[[], None]
#: drops the entries of this thread: after its device or context has changed
forget_c_thread: Callable[[], None]
#: returns the last error of this thread in a library of CUDA's runtime, by the name of its header
last_error: Callable[[str], int]
#: (header, code): sets it
set_last_error: Callable[[str, int], None]
#: drops the last errors of all threads
forget_last_errors: Callable[[], None]
#: (dialect, number of the state, device, whether the program has registered host memory, whether copies between two
#: devices must be asked for, the code of a query of work that is not over, or -1, the stack whose newest context is
#: the current one, or None, the memory of the vendor's pools): enters this thread
know_c_thread: Callable[..., None]
#: (dialect, number of the state, handle, stream, handle of its context, 0 where contexts do not count): enters the
#: stream of a handle in this thread
know_c_stream: Callable[..., None]
#: (dialect, number of the state, handle, event, what was freed before its record, native number of its device, handle
#: of its context or 0): enters the event of a handle in this thread
know_c_event: Callable[[str, int, int, Any, Any, int, int], None]
#: (dialect, number of the state, context): enters a context that this thread makes current
know_c_context: Callable[[str, int, Any], None]
#: (dialect, number of the state, device, context, flags): enters the primary context of a device in this thread
know_c_primary: Callable[[str, int, int, Any, int], None]
#: (dialect, number of the state, function, argument, bytes): enters what a function writes for an argument
know_c_constant: Callable[[str, int, str, int, bytes], None]
#: (dialect, number of the state, attribute, allocation, bytes): enters an attribute of the addresses in an allocation
know_c_attribute: Callable[[str, int, int, int, bytes], None]
#: (dialect, number of the state, handle or 0, native number of the device whose current pool it is, or 0, memory):
#: enters a pool in this thread
know_c_pool: Callable[[str, int, int, int, Any], None]
#: (dialect, number of the state, queue): enters the queue of C functions that wait for this thread to call them
know_c_callbacks: Callable[[str, int, Any], None]
#: (number of the state, thread, channel, stream, memory of the peer, memory of this process): enters the memory that
#: a thread of HCOMM may write through a channel, and the memory that it may write from
know_c_lane: Callable[[int, int, int, Any, Any, Any], None]
#: a communicator of NCCL whose calls native code may queue: its handle, context, device's native number, rank, size,
#: stream of collectives, and what queues the calls of its group
NcclCommunicator: Callable[..., Any]
#: (bytes by type, number of the reduction by type and operation)
know_nccl_elements: Callable[[dict[int, int], dict[tuple[int, int], int]], None]
#: (whether the dialect has a group of this thread open) returns what native code has of one, which the dialect has
#: from now on: its depth, and the name, words and line of each call
take_nccl_group: Callable[[bool], tuple[int, list[tuple[str, tuple[int, ...], int]]] | None]
#: (stream, operation) returns the call of a group that native code has queued so, for a program in C; empty: unknown
queued_call: Callable[[int, int], str]
#: (stream) returns the number of its last operation that a thread of HCOMM submitted by a call of C, without Python
last_by_lane: Callable[[Any], int]
#: returns the table of functions that extensions compiled apart from peerlane call, in a capsule
device_calls: Callable[[], Any]

_NATIVE = "peerlane.backends.virtual"  # a name, not an import: that package imports this one

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Set the functions."""
        if name not in __annotations__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        import_module(_NATIVE)
        return globals()[name]
