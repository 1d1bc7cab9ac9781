"""
The virtual machine's hardware: address windows, blocks, copies.  No policy, no texts.
"""

from collections.abc import Callable, Mapping, Sequence
import types
from typing import Any, Final, overload

from typing_extensions import CapsuleType


def set_refusal_hook(hook: Callable[..., BaseException]) -> None:
    """
    Set hook(why, **facts) -> exception: role, address, size, errno, entry, device, other_device, and the facts of the reason.
    """

def configure(window_bytes: int, cache_bytes: int, poison: bool) -> None:
    """
    Reserve the address windows (the first call only) and set the cache bound and poisoning.
    """

class Ledger:
    """One process's slot in a node's shared account of device memory."""

    def __init__(self, fd: int, devices: int, slots: int, slot: int) -> None: ...

    def leave(self) -> None:
        """Write nothing any more: the slot is given back."""

    def set_peer(self, origin: int, target: int, enabled: bool) -> None:
        """Say whether this process enabled the peer."""

    def is_peer(self, origin: int, target: int) -> bool:
        """Whether this process enabled the peer, or one that counts."""

    def count_all(self, counts: bool) -> None:
        """
        Whether every process counts, or only those that share memory with this one.
        """

    def relied_on(self) -> list[int]:
        """The owners of the slots because of whose peers copies have passed."""

    def enablers(self, origin: int, target: int) -> list[int]:
        """The owners of the other slots that enabled the peer."""

    def used(self, device: int) -> int:
        """Bytes of `device` held by all processes of the node."""

def ledger_layout(devices: int, slots: int) -> tuple[int, int, int, int]:
    """
    Return the bytes of a ledger's file, where its entries and its holdings begin, and how long a slot's holdings are.
    """

def add_device(capacity: int, host_access: bool, routes_peer_memory_only: bool, ledger: Ledger, index: int) -> int:
    """Return the number of a new device."""

def close_device(number: int) -> None:
    """Let every allocation of a device die."""

def free_bytes(number: int) -> int: ...

def next_allocation() -> int:
    """Return a number that no allocation of this process has."""

def live_allocations(number: int) -> int: ...

def set_route(origin: int, target: int, open: bool) -> None: ...

def route_open(a: int, b: int) -> bool: ...

def call_kernel(kernel: int, arguments: int) -> int:
    """
    Call the function at an address, which may touch device memory, with another; return what it returns.
    """

def trim() -> int:
    """Give cached blocks back to the system; return their bytes."""

def interpreter_exits() -> None:
    """
    Let threads that come back for the GIL from now on wait for the end of the process.
    """

def check_usable() -> None:
    """Refuse in a forked child of a process that had used devices."""

def see_forks() -> None:
    """
    Let all native code see forks from now on, and not from its first use on: who registers for them after this sees a
    child when native code has made it one.
    """

def begin_use() -> None:
    """
    Say that what the process has now no forked child may share; refuses as check_usable.
    """

def end_use() -> None:
    """Say that the node was left."""

def begin_anew() -> bool:
    """
    In a forked child: be a process of its own.  False if its parent had used devices, and then nothing can be used.
    """

def window_offset(address: int) -> int | None:
    """
    Return the place of an address in its window (guard or shadow), None outside of both.
    """

def note_sharer(pid: int, start: int) -> None:
    """Note that this process has opened a handle of another one."""

def reserved_bytes() -> int:
    """Addresses of both windows; 0 before a node."""

def cached_bytes() -> int: ...

class Memory:
    """
    An allocation, a part of one, or foreign host memory; exports its bytes to the host.
    """

    def __buffer__(self, flags: int, /) -> memoryview: ...

    @overload
    def __init__(self, device: int, size: int, peer: bool) -> None: ...

    @overload
    def __init__(self, whole: Memory, offset: int, size: int) -> None: ...

    @overload
    def __init__(self, address: int, size: int, read_only: bool, host_view: bool) -> None: ...

    @overload
    def __init__(self, place: Reservation, offset: int, size: int) -> None: ...

    @property
    def address(self) -> int:
        """The address; raises when the memory is closed."""

    @property
    def writable_address(self) -> int:
        """The address; raises when it may not be written."""

    @property
    def last_address(self) -> int:
        """The address it has or had."""

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def id(self) -> int:
        """The allocation's number, unique in the process; 0 for foreign memory."""

    @property
    def is_live(self) -> bool: ...

    @property
    def is_read_only(self) -> bool: ...

    @property
    def is_peer(self) -> bool:
        """Whether it was allocated for peer access."""

    @property
    def homes(self) -> set[tuple[int, bool]]:
        """(device, whether for peer access) of each block that its bytes lie in."""

    def close(self) -> None:
        """
        End this object; an owner's memory goes back when the last use of it ends.
        """

def locate(address: int) -> tuple[int, int, int, int] | None:
    """Return (device, base, size, id), or None for pageable host memory."""

look_up_each: object
"""A C function that `benchmarks` times: void (*)(const uint64_t* addresses, size_t count)."""

def nearest(address: int) -> tuple[int, int, int, int] | None:
    """
    Return (device, address, size, id) of the live allocation nearest to a window address.
    """

class Exporter:
    """
    Base of classes that export the buffer of what their _exported() returns.
    """

    def _exported(self) -> object:
        """Return an object with the buffer that this one exports."""
    def __buffer__(self, flags: int, /) -> memoryview: ...

def buffer_of(object: object) -> tuple[int, int, bool] | None:
    """
    Return (address, bytes, read-only) of an object's buffer, None where it has none.
    """

def memory_at(address: int, size: int) -> Memory:
    """
    Return the bytes of whatever lives at an address now; refuses pageable host memory.
    """

class LentTensor:
    """What a DLPack capsule lends; given back when this object goes."""

    @property
    def flaw(self) -> str:
        """Why it is no contiguous host memory; empty: it is."""

    @property
    def address(self) -> int: ...

    @property
    def size(self) -> int:
        """Bytes."""

    @property
    def is_read_only(self) -> bool: ...

    @property
    def version(self) -> tuple[int, int]:
        """(major, minor); (0, 0) of a capsule that has none."""

    @property
    def device(self) -> tuple[int, int]:
        """(type, number)."""

    @property
    def element(self, /) -> tuple[int, int, int]:
        """(code, bits, lanes)."""

    @property
    def shape(self, /) -> tuple[int, ...]: ...

    @property
    def strides(self, /) -> tuple[int, ...]:
        """In elements."""

def take_tensor(capsule: object) -> LentTensor | None:
    """
    Take what a DLPack capsule lends; None: it is no such capsule, or was taken before.
    """

GRANULE: int = 2097152

ALL_DEVICES: int = 4294967295

class Block:
    """A hold on physical memory."""

    def __init__(self, device: int, size: int, peer: bool, name: str) -> None:
        """Its file is named `name` and its id."""

    @property
    def size(self) -> int: ...

    @property
    def id(self) -> int:
        """Unique in the node."""

    @property
    def device(self) -> int:
        """Native code's number of its device."""

    @property
    def is_read_only(self) -> bool: ...

    @property
    def is_imported(self) -> bool: ...

    @property
    def is_closed(self) -> bool: ...

    def export_file(self, read_only: bool) -> int:
        """Return a new descriptor of its file, the caller's to close."""

    def close(self) -> None:
        """Let go; idempotent."""

class Reservation:
    """Reserved addresses."""

    def __init__(self, device: int, size: int, alignment: int, wanted: int) -> None: ...

    @property
    def address(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def id(self) -> int:
        """Unique in the process."""

    @property
    def is_closed(self) -> bool: ...

    def grow(self, size: int) -> bool:
        """
        Reserve more behind what there is; False when that is in use, or not there.
        """

    @property
    def most(self) -> int:
        """Bytes from its start to the end of the windows."""

    def map(self, at: int, block: Block, others: int, named: Sequence[tuple[int, int]], limit: int) -> None:
        """
        Rights: 1 read, 2 write; those of devices not named are `others`.  Of the block its first `limit` bytes are mapped; those behind are out of bounds.
        """

    def map_for(self, at: int, block: Block, user: int, limit: int) -> None:
        """
        The same, with all rights that the block has for three devices: its own, `user` and the range's.
        """

    def unmap(self, at: int) -> None:
        """End the mapping that starts at `at`; it stays until its last use ends."""

    def set_access(self, at: int, size: int, device: int, rights: int) -> None: ...

    def rights(self, at: int, device: int) -> int: ...

    def close(self) -> None:
        """
        Unmap everything and give the addresses back after the last use; idempotent.
        """

def start_time(pid: int) -> int:
    """
    The kernel's start time of a process in clock ticks, 0 if there is none.
    """

def serve(directory: int, name: str, slot: int, node: int) -> None:
    """
    Serve handles on a socket of this name, from a thread of its own; idempotent.
    """

def stop_serving() -> None:
    """Nobody opens anything any more; idempotent."""

def forget_lost() -> None:
    """Let go of connections to processes that have ended."""

def offer(block: Block, kind: int, rights: int, device: int, offset: int, length: int, allowed: Sequence[int] | None) -> tuple[int, int]:
    """
    Let processes open it: those with the pids `allowed`, or all of the user.  Return (index, nonce).
    """

HANDLE_MAGIC: bytes = ...

HANDLE_VERSION: int = 1

def handle_text(kind: int, node: int, slot: int, index: int, nonce: int, size: int, pid: int, start: int) -> bytes:
    """Return the text form of a handle."""

def handle_claims(text: bytes) -> tuple[bytes, int, int, int, int, int, int, int, int, int, int] | None:
    """
    Return (magic, version, kind, node, slot and index, nonce, size, pid, start, checksum, right checksum) of a text, whatever it
    claims; None if it is not 64 characters of the alphabet.
    """

def open_early(text: bytes, node: int, kind: int) -> Offer | None:
    """Open what a known process granted before it was asked; None: ask it."""

def allow(index: int, nonce: int, pid: int, start: int | None = None) -> bool:
    """
    Let a process open it, by default the one that has this pid now; False when it is over.
    """

def disallow(index: int, nonce: int, pid: int) -> bool: ...

def allowed(index: int, nonce: int) -> list[tuple[int, int]]:
    """Return (pid, start time) of each that may open it."""

def refuse_own(index: int, nonce: int, nonce_bits: int) -> None:
    """Raise why this process does not open a handle that it made itself."""

def is_offered(index: int, nonce: int) -> bool:
    """Whether others can still open it."""

def withdraw(index: int, nonce: int) -> None: ...

def importers(index: int, nonce: int) -> int: ...

class Offer:
    """
    What another process gave; closed with this object unless it was adopted.
    """

    @property
    def device(self) -> int:
        """Ordinal in the node."""

    @property
    def size(self) -> int:
        """Bytes of the block."""

    @property
    def part(self) -> tuple[int, int]:
        """(offset, length) of what is meant."""

    def signal(self, ledger: Ledger, bank: int = 0) -> Signal:
        """
        What it shares of a notify, an event or, of `bank` lines, a bank; the offer is used up.
        """

    @property
    def notify_kind(self) -> int: ...

    @property
    def count(self) -> int:
        """How many notifies, ranks or leases the lines of a bank are for."""

    @staticmethod
    def of_file(fd: int, device: int, block: int, size: int, read_only: bool, peer: bool) -> Offer:
        """One of a descriptor that was checked, which is taken over."""

    def close(self) -> None:
        """Let go of it; idempotent."""

    def adopt(self, device: int, ledger: Ledger) -> Block:
        """Make it a block of this process; the offer is used up."""

def open_handle(directory: int, name: str, slot: int, node: int, pid: int, start: int, index: int, nonce: int, nonce_bits: int, kind: int, timeout: float) -> Offer:
    """
    Ask process `pid` for what a handle stands for; waits at most `timeout` seconds.
    """

def share(memory: Memory) -> tuple[Block, int]:
    """
    Return (block, offset): where its bytes lie, in memory that other processes may have.
    """

def copy(dst: int, src: int, size: int, direct: bool = False) -> None:
    """Copy between any two addresses; the GIL is released above 256 KiB."""

def copy_if_alone(stream: Stream, dst: Any, src: Any, size: int, within: bool) -> bool:
    """
    Copy between two places, each an address or an object with a buffer, if the streams of the group have nothing to do, this one has no failure to report, and one end, or both if `within`, lies on its device; else return False, and nothing happens.
    """

def copy_memory(dst: Any, src: Any) -> bool:
    """
    Copy all of `src` to `dst`, which must be as large; False if one is no Memory, and then nothing happens.
    """

def copy_memory_2d(dst: Memory, dst_pitch: int, src: Memory, src_pitch: int, width: int, height: int) -> None: ...

def fill_memory(dst: Memory, value: int, width: int) -> None:
    """Fill all of `dst`, a multiple of `width` bytes."""

def copy_2d(dst: int, dst_pitch: int, src: int, src_pitch: int, width: int, height: int, direct: bool = False) -> None: ...

def fill(dst: int, value: int, width: int, count: int) -> None: ...

def reduce(dst: int, src: int, count: int, number: int, direct: bool = False) -> None:
    """`number`: four times the type, plus the operation."""

def reduce_memory(dst: Any, src: Any, number: int) -> bool:
    """
    As `reduce`, all of `src` into `dst`; False if one is no Memory, and then nothing happens.
    """

def has_stream_copy() -> bool:
    """Return whether this processor has non-temporal copies."""

SHARED_RECORDS: int = 32

MOST_LINES: int = 524288

class LateArea:
    """Memory of two processes for late writes; exports its bytes."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

    def __init__(self, bank: Signal) -> None: ...

    def discard(self) -> None:
        """Return the pages behind the entries to the system."""

LATE_LINES: int = 524288

LATE_ENTRIES: int = 4096

LATE_HEADER: int = 64

class Undelivered:
    """Delivers the entries of an area."""

    def __init__(self, area: LateArea, memories: Sequence[Memory], receives: bool) -> None:
        """
        To memories that the sender was offered; `receives`: they are this process's.
        """

    def deliver_all(self) -> None:
        """Deliver all that is staged."""

    @staticmethod
    def deliver_to(part: Memory) -> None:
        """
        Deliver all that is staged for memory that this process lends, and is about to take back.
        """

    @staticmethod
    def await_all_to(part: Memory, seconds: float) -> None:
        """
        Wait until the peers have delivered their entries for memory that is about to be taken back.
        """

    def step(self, step: int, argument: int) -> Notify:
        """
        What a stream records to make a step: 3 stage an entry, 4 deliver all of a source, 5 a fence.
        """

class Members:
    """The processes of a group."""

class Signal:
    """What processes share of a notify or an event, or a bank of notifies."""

    def __init__(self, ledger: Ledger, bank: int = 0) -> None:
        """`bank`: how many lines of a bank."""

    def offer(self, kind: int, device: int, allowed: Sequence[int] | None, notify_kind: int, count: int) -> tuple[int, int]:
        """
        Let processes open it: those with the pids `allowed`, or all of the user.  Return (index, nonce).
        """

    def let_go(self) -> None:
        """
        This process offers it to nobody any more, and has opened it once less.
        """

    def belong_to(self, members: Members, recorder: int) -> None:
        """
        Waits here end too when one of a group's processes is lost, and when the rank that records here has left the group.
        """

    def expect(self, undelivered: Undelivered) -> None:
        """
        The process that records in this bank delivers late: a wait delivers its entries, also if that process has ended.
        """

    def issue(self) -> int:
        """The number of a new record of an event."""

    @property
    def issued(self) -> int: ...

    def is_done(self, number: int) -> bool: ...

    def has_failed(self, number: int) -> bool: ...

    def time_ns(self, number: int) -> int: ...

    @property
    def lost_to(self) -> int:
        """
        The pid of a process that has ended, when no other one that had it lives; else 0.
        """

    def record_of(self, number: int, device: int) -> Notify:
        """What stands for one record of an event."""

def members(membership: Signal, listed: Sequence[tuple[int, int, int]], far: Sequence[tuple[int, int]]) -> Members:
    """
    Watch the processes (rank, pid, start time), and those of other machines (rank, number of peerlane.diagnostics.ranks.losses); rank i records line i of `membership` when it leaves.
    """

class Lease:
    """Whether memory that was lent to others may still be used."""

    @overload
    def __init__(self) -> None:
        """Of this process alone."""

    @overload
    def __init__(self, bank: Signal, line: int, number: int) -> None:
        """Line `line` of a bank, while it has this number."""

    @property
    def id(self) -> int:
        """Unique in the process."""

    def begin(self) -> None:
        """Its owner's, once."""

    def take_back(self, memory: Memory) -> None:
        """End it; its owner's."""

    def end_with(self, memory: Memory) -> None:
        """End it when the memory is freed; its owner's."""

    def lend(self, memory: Memory, mapped: bool) -> None:
        """Refuse uses of a buffer once it has ended; `mapped`: by address too."""

    @property
    def has_ended(self) -> bool: ...

class Completions:
    """The completion queue of one end of a channel."""

    def __init__(self, bank: Signal | None) -> None:
        """In a bank of COMPLETION_LINES; without one it is this process's alone."""

COMPLETION_LINES: int = 66

class ChannelLines:
    """
    The notifies of one direction of a channel, each made when it is first used.
    """

    @overload
    def __init__(self, kind: int, count: int, device: int, bank: Signal | None) -> None:
        """In a bank of as many lines; without one they are this process's alone."""

    @overload
    def __init__(self, queue: Completions, count: int, device: int) -> None:
        """Those of a completion queue."""

    def __len__(self) -> int: ...

    @property
    def first_id(self) -> int:
        """The others have the ids behind it; 0: there are none."""

    def unconsumed(self) -> list[int]:
        """Those that were recorded more often than consumed."""

    def abandon(self) -> None:
        """
        Say that only what is queued already will record them: waits in vain fail.
        """

def first_id_of(id: int) -> int:
    """
    Return the first id of the channel's notifies to which an id belongs; the id itself, if it is of another notify.
    """

class Notify:
    """A signal line, used by this process."""

    @overload
    def __init__(self, kind: int, device: int) -> None:
        """`kind`: 0 binary, 1 fifo, 2 strict."""

    @overload
    def __init__(self, kind: int, device: int, signal: Signal, index: int = 0) -> None:
        """One that another process made, or a line of a bank."""

    @overload
    def __init__(self, lines: ChannelLines, number: int) -> None:
        """One of those of a channel."""

    @overload
    def __init__(self, line: Notify, area: LateArea, entry: int, staged: bool) -> None:
        """A record of a line of a bank, as an entry of an area of late delivery."""

    @property
    def id(self) -> int: ...

    def _share(self, ledger: Ledger) -> Signal:
        """Let other processes record it and wait for it."""

    def _withdraw(self) -> None:
        """This process offers it to nobody any more."""

    @property
    def recorded(self) -> int: ...

    @property
    def consumed(self) -> int: ...

    def _record(self) -> None:
        """Record now, outside of any stream."""

    def _promise(self) -> None:
        """
        Say that it will be recorded, whatever is cancelled: a stream that closes waits for it.
        """

    def _reset(self) -> None: ...

class Mark:
    """One record of an event."""

    @property
    def stream_id(self) -> int: ...

    @property
    def sequence(self) -> int: ...

    @property
    def time_ns(self) -> int | None:
        """Steady clock; None while it is pending."""

    def query(self) -> bool: ...

    def synchronize(self, seconds: float) -> bool: ...

    def failure(self) -> Any: ...

    def fileno(self) -> int:
        """
        A descriptor that is readable once the record is over; it lives as long as this object.
        """

class Event:
    """The last record of an event."""

    def __init__(self) -> None: ...

    def _query(self) -> bool | None:
        """Whether the last record is over; None if there is none."""

    def _synchronize(self, seconds: float) -> bool | None:
        """
        Wait for the last record, and return whether it was over in time; None if there is none, or it failed.
        """

    @property
    def _mark(self) -> Mark | None:
        """The last record, None if there is none."""

    def _end_quick_calls(self) -> None:
        """
        Let no call of C use it without Python any more: it is closed, or other processes know it.
        """

class WaitSet:
    """What the tasks of an event loop wait for, by tokens of the caller's."""

    def __init__(self) -> None: ...

    def fileno(self) -> int:
        """
        A descriptor that is readable when a wait is over; it lives as long as this object.
        """

    @overload
    def add(self, token: int, stream: Stream) -> bool:
        """
        Wait for what the stream was given by now; False, and nothing is added: that is over.
        """

    @overload
    def add(self, token: int, mark: Mark) -> bool: ...

    def remove(self, token: int) -> None: ...

    def take(self) -> list[int]:
        """
        The waits that are over, in the order in which they ended; they are not in the set any more.
        """

    def take_hopeless(self) -> list[tuple[int, Any]]:
        """
        The waits that no submitted operation would end, each with an exception; they are not in the set any more.
        """

    @staticmethod
    def log_over(stream: int, sequence: int) -> None:
        """The task that waited goes on, and the calling thread with it."""

    @staticmethod
    def is_help_needed() -> bool:
        """
        Whether operations run only in the threads that wait: then call `help` while something waits.
        """

    @staticmethod
    def help() -> bool:
        """
        Run operations for which no other thread is there; True: more may follow.
        """

class Group:
    """Streams with a legacy barrier."""

    def __init__(self) -> None: ...

    @property
    def is_idle(self) -> bool:
        """Whether all that its streams were given is over."""

class CallbackQueue:
    """Where callbacks wait for the thread that runs them."""

    def __init__(self) -> None: ...

    def take(self, seconds: float) -> int | None:
        """
        The token of the next callback, None when `seconds` (negative: for ever) are over.
        """

    def finish(self, token: int, raised: bool) -> None:
        """Let the stream go on, by the thread that took the token."""

class Stream:
    """An ordered queue of operations."""

    def __init__(self, device: int, stops: bool, group: Group | None, legacy: bool) -> None: ...

    @property
    def id(self) -> int: ...

    @property
    def submitted(self) -> int:
        """Number of the last operation that was submitted."""

    @property
    def completed(self) -> int:
        """Number of the last operation that is over."""

    @property
    def _is_live(self) -> bool: ...

    def _query(self) -> bool:
        """Whether everything submitted is over."""

    def _synchronize(self, seconds: float) -> bool:
        """
        Wait for what was submitted by now; False when `seconds` (negative: for ever) are over.
        """

    def _take_failure(self) -> Any:
        """The first failure that was not taken yet; the stream goes on."""

    def _close(self, *, wait: bool = True) -> None:
        """Let what can end end, cancel waits that nothing submitted satisfies."""

    def _cancel(self, close: bool) -> None:
        """Cancel what is queued; running copies end at their next chunk."""

    def _set_stops(self, stops: bool) -> None: ...

    def _record_event(self, event: Event) -> None:
        """Make the event's last record."""

    def _wait_event(self, event: Event, timeout_ns: int) -> bool:
        """Wait for the event's last record; False if there is none."""

    def _wait_mark(self, mark: Mark, timeout_ns: int, only: int = 0) -> None:
        """
        `only`: if the mark has failed, that many operations behind the wait are cancelled, and the stream has not failed.
        """

    def _record_notify(self, notify: Notify) -> None: ...

    def _wait_notify(self, notify: Notify, timeout_ns: int, consumes: bool = True) -> None:
        """`consumes`: else the record stays for another wait."""

    def _callback(self, queue: CallbackQueue, token: int) -> None: ...

    def _call_code(self, queue: CallbackQueue, code: int, words: Sequence[int]) -> None:
        """Call a function in C, with one word or three."""

    def _free(self, memory: Memory, by_line: bool) -> None:
        """
        Free an allocation when what was submitted by now is over; `by_line`: a line of the program asks for it.
        """

def configure_schedule(schedule: int, seed: int, changes: Sequence[int] | None = None) -> None:
    """
    `schedule`: 0 eager, 1 lazy, 2 seeded.  `changes`: draw priorities, and change one at these steps, in order.
    """

def synchronize_device(device: int, seconds: float) -> tuple[int, list[tuple[int, int]]]:
    """
    Wait for what all streams of a device have by now; return the stream for which `seconds` were too short, or 0, and each stream before it with the number of its last operation.
    """

def take_failure_on(device: int) -> Any:
    """
    As `Stream._take_failure`, of the first stream of a device that has one.
    """

def is_stream_open(device: int, id: int) -> bool:
    """Whether the stream of this number takes operations."""

def close_streams(device: int) -> None:
    """Abort and close the streams of a device."""

def drain() -> None:
    """Run what can run, on all streams."""

def waiting() -> list[tuple[int, int, int, str, int, int, int, tuple[types.CodeType, int] | None]]:
    """
    (stream, operation, submitted, waits for, whom, its operation, device, site) of every stream that is not done.
    """

def awaited_words() -> list[tuple[int, int, int, int, int, str, int, int, tuple[types.CodeType, int] | None]]:
    """
    (stream, operation, address, bytes, value, comparison, wanted, mask, site) of every wait for a word that has no time-out.
    """

def failures() -> int:
    """How many failures streams have kept so far."""

class AbortFlag:
    """Of operations that the program may abort together."""

    def __init__(self) -> None: ...

    def put_on(self, stream: Stream) -> None:
        """From now on it is that of the operations of a stream."""

    def set(self) -> None:
        """
        Streams that waited for such an operation have no failure because of it, and those that wait go on.
        """

def take_failure(stream: Stream) -> Any:
    """The failure of a stream, which is reported now; None if there is none."""

def failed_before(event: Event) -> int:
    """
    The stream that failed before the last record of an event, and may not have reported it; 0: none.
    """

@overload
def awaits_abort(stream: Stream) -> bool:
    """
    Whether an operation that the program may still abort is why the stream has a failure.
    """

@overload
def awaits_abort(event: Event) -> bool:
    """The same of the work before the last record of an event."""

def unreported_failures() -> list[Any]:
    """
    The failures of streams that no call has reported; they stay unreported.
    """

def submit_copy(stream: Stream, dst: Any, src: Any) -> bool:
    """
    Copy all of `src` to `dst`, which must be as large, in stream order; False if one is no Memory, and then nothing happens.
    """

def submit_copy_at(stream: Stream, dst: int, src: int, size: int, direct: bool) -> None: ...

def submit_copy_2d(stream: Stream, dst: Memory, dst_pitch: int, src: Memory, src_pitch: int, width: int, height: int) -> None: ...

def submit_copy_2d_at(stream: Stream, dst: int, dst_pitch: int, src: int, src_pitch: int, width: int, height: int, direct: bool) -> None: ...

def submit_fill(stream: Stream, dst: Memory, value: int, width: int) -> None: ...

def submit_fill_at(stream: Stream, dst: int, value: int, width: int, count: int) -> None: ...

def submit_reduce(stream: Stream, dst: Any, src: Any, number: int) -> bool:
    """As reduce_memory, on a stream."""

def submit_reduce_at(stream: Stream, dst: int, src: int, count: int, number: int, direct: bool) -> None: ...

def submit_write_value(stream: Stream, address: int, value: int, width: int) -> None: ...

def submit_write_word(stream: Stream, dst: Memory, value: int) -> None: ...

def submit_wait_value(stream: Stream, address: int, value: int, mask: int, compare: int, width: int, timeout_ns: int, pageable: bool) -> None:
    """
    `compare`: 0 at least, 1 equal, 2 and, 3 nor, 4 since.  `pageable`: whether the word may be the caller's to keep.
    """

def copy_batch(stream: Stream | None, dsts: list[Any], srcs: list[Any]) -> None:
    """
    Copy every source to the destination of the same place; as many, as large.
    """

def launch_descriptor(stream: Stream | None, table: int, size: int, direct: bool, only_device: int) -> None:
    """Run the copy list that lies at `table` when it starts."""

def put(stream: Stream | None, dst: Memory, at: int, src: Memory) -> None:
    """Copy all of `src` to byte `at` of `dst`."""

def get(stream: Stream | None, dst: Memory, src: Memory, at: int) -> None:
    """Copy to all of `dst` from byte `at` of `src`."""

def copy_blocks(stream: Stream | None, dst: Memory, src: Memory, table: Any) -> None:
    """
    Copy blocks; an entry of `table` is 3 words: first byte in `dst`, first byte in `src`, bytes.
    """

class GroupLog:
    """What the event log has of a rank's collectives and messages."""

    def __init__(self, name: str, group: int, rank: int, size: int) -> None: ...

    def begin(self, kind: int, peer: int, written: Sequence[Memory], read: Sequence[Memory], stream: int = 0, sequence: int = 0) -> LoggedGroupCall:
        """Log the beginning of a call, on a stream or in this thread."""

    def end(self, call: LoggedGroupCall) -> None:
        """Log the end of a call of this thread."""

class LoggedGroupCall:
    """A call of a group, as the event log has it."""

ROUND_LINES: int = 17

def barrier_neighbours(rank: int, ranks: int) -> list[int]:
    """The ranks that a rank signals in a barrier."""

def bytes_of_rounds(long_slot: int) -> int:
    """How many bytes of memory a rank's slots take."""

class Farewell:
    """
    Ends the waits of channels' peers for what this rank will not do any more.
    """

    def __init__(self, lines: Sequence[ChannelLines]) -> None:
        """`lines`: the notifies that this rank records, of each channel."""

    def behind(self, stream: Stream) -> None:
        """Send it if operations that the stream has by now are cancelled."""

    def add(self, lines: ChannelLines) -> None:
        """Add the notifies of one more channel."""

    def send(self) -> None:
        """Send it now."""

    @property
    def is_sent(self) -> bool: ...

class Rounds:
    """A rank's part in the collectives of the ranks of one machine."""

    def __init__(self, rank: int, size: int, slots: Memory, pids: Sequence[int], farewell: Farewell, processors: int) -> None:
        """
        `pids`: the processes of the other ranks, from the one behind this one on.
        """

    def connect(self, peer: int, slots: Memory, incoming: ChannelLines, outgoing: ChannelLines, first: int) -> None:
        """
        Connect a rank, once: its slots, and the lines from it and to it, from line `first` on.
        """

    @property
    def is_whole(self) -> bool:
        """Whether all ranks are connected."""

    def run(self, kind: int, dst: object | None, src: object | None, root: int, number: int, at: Sequence[int], sizes: Sequence[int], source_at: Sequence[int], source_sizes: Sequence[int], finish: object) -> bool:
        """
        Make a collective in this thread.  False: it was not begun, and Python must make it, for instance because calls are queued, another thread makes one, or an argument is refused.  If it waits for long, `finish` is called, which has the claim, calls queue_begun() and releases the claim.
        """

    def queue_begun(self, stream: Stream, timeout_ns: int, dst: object | None, src: object | None) -> None: ...

    def queue(self, stream: Stream, timeout_ns: int, kind: int, dst: object | None, src: object | None, root: int, number: int, at: Sequence[int], sizes: Sequence[int], source_at: Sequence[int], source_sizes: Sequence[int]) -> None: ...

    @property
    def begun(self) -> tuple[int, int, int, int, bool]:
        """What run() has begun, in numbers."""

    def let_go(self) -> None:
        """Let go of what peers' memory is mapped here; there are no more calls."""

    def claim(self, seconds: float) -> bool:
        """
        Claim the calls for this thread; False: another thread still has the claim.
        """

    def release(self) -> None:
        """
        End the claim; a call that run() has begun in it and nobody has queued ends.
        """

    @property
    def log(self) -> GroupLog:
        """
        What the event log has of its calls; None: native code makes none while a log is written.
        """

    @log.setter
    def log(self, arg: GroupLog | None, /) -> None: ...

    @property
    def is_plain(self) -> bool:
        """Whether run() may make a call: nothing is queued."""

    @is_plain.setter
    def is_plain(self, arg: bool, /) -> None: ...

    def count(self) -> int:
        """Count a call; its number."""

    @property
    def calls(self) -> int:
        """How many calls there were."""

class Mails:
    """The messages between a rank and the others of its machine."""

    def __init__(self, size: int) -> None: ...

    def has(self, peer: int, sends: bool) -> bool:
        """Whether add() was called."""

    def add(self, rank: int, peer: int, sends: bool, sent: tuple[ChannelLines, int], taken: tuple[ChannelLines, int], depth: int, slots: Memory, pid: int, farewell: Farewell, must_yield: bool) -> None:
        """
        Messages to a peer, or from it: the lines that tell of a piece, those that tell of its taking, each with the first, and as many slots in the receiver's memory.
        """

    def run(self, peer: int, sends: bool, memory: Memory, finish: object) -> bool:
        """Make a message in this thread, or return False, as Rounds.run()."""

    def is_ready(self, peer: int, sends: bool, sizes: Sequence[int], looks_on: bool) -> bool:
        """
        Whether the next messages, of these sizes, would not wait for the peer; it may look on as long as run() waits in its thread.
        """

    def queue_begun(self, peer: int, sends: bool, stream: Stream, timeout_ns: int, keep: object | None) -> None: ...

    def queue(self, peer: int, sends: bool, stream: Stream, timeout_ns: int, buffer: object) -> None: ...

    def count(self, peer: int, sends: bool) -> int:
        """Count a message that run() does not make; its number."""

    def calls(self, peer: int, sends: bool) -> int:
        """How many messages there were."""

    def claim(self, peer: int, sends: bool, seconds: float) -> bool:
        """
        Claim one direction for this thread; False: another thread still has the claim.
        """

    def release(self, peer: int, sends: bool) -> None:
        """
        End the claim; a call that run() has begun in it and nobody has queued ends.
        """

    @property
    def log(self) -> GroupLog:
        """As Rounds.log."""

    @log.setter
    def log(self, arg: GroupLog | None, /) -> None: ...

    @property
    def is_plain(self) -> bool:
        """Whether run() may make a message: nothing is queued."""

    @is_plain.setter
    def is_plain(self, arg: bool, /) -> None: ...

    def let_go(self) -> None:
        """
        Let go of what peers' memory is mapped here; there are no more messages.
        """

COLLECTIVE_VERBS: tuple[str, ...]

MESSAGE_VERBS: tuple[str, ...]

class GroupCall:
    """A collective or message of a group that native code makes where it can, and `otherwise` else."""
    def __init__(
        self,
        maker: Rounds | Mails,
        name: str,
        otherwise: Callable[..., None],
        finish: Callable[..., None],
        number_of: Callable[[str, Any, str], int],
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> None: ...

class ChannelEnd:
    """What the quick methods of a channel need of it."""

    def __init__(self) -> None: ...

    def _serve(self, window: Memory | None, incoming: ChannelLines | None, outgoing: ChannelLines | None) -> None:
        """Let quick methods serve it; for None they serve nothing."""

    def _serve_far(self, end: FarEnd, window: int, nbytes: int, notifies: int) -> None:
        """
        The same, to another machine: the number and the bytes of the peer's window, and how many notifies it has.
        """

    def _serve_nothing(self) -> None:
        """Let everything come to the methods in Python."""

    def _log(self, incoming: ChannelLines, outgoing: ChannelLines | None, rank: int, peer: int, far_bank: int = 0) -> None:
        """
        Log that it was made, with its lines; `far_bank`: of the lines on another machine.
        """

CHANNEL_VERBS: tuple[str, ...]

class QuickMethod:
    """A method of a ChannelEnd that native code serves where it can, and `otherwise` else."""
    def __init__(self, way: str, otherwise: Callable[..., None]) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> None: ...

class Pools:
    """The memory of all pools of a vendor's program."""

    def __init__(self) -> None: ...

    @property
    def keep_memory(self) -> bool:
        """Whether any memory is kept."""

    def take_changes(self) -> list[tuple[int, bool, bool]]:
        """
        Return what calls of C without Python have allocated or freed since the last call: the allocation, whether it is in use, and whether one allocated it.
        """

class FreedBefore:
    """What was freed to pools before the last record of an event."""

    def __init__(self) -> None: ...

    def record(self, pools: Pools, stream: int) -> None:
        """A stream records the event."""

    def wait(self, pools: Pools, stream: int) -> None:
        """
        A stream waits for the record: it is behind those frees, where pools follow events.
        """

class PoolMemory:
    """
    The memory that a pool has of its location, by allocation: in use, or freed and kept.
    """

    def __init__(self, pools: Pools, device: int) -> None:
        """`device`: its number in native code, 0 for one of another back-end."""

    def setting(self, number: int) -> int: ...

    def set(self, number: int, value: int) -> None: ...

    @property
    def used(self) -> int:
        """Bytes in use."""

    @property
    def kept(self) -> int:
        """Bytes that were freed and are kept."""

    @property
    def most_used(self) -> int: ...

    @property
    def most_reserved(self) -> int: ...

    def reset_most_used(self) -> None: ...

    def reset_most_reserved(self) -> None: ...

    def add(self, allocation: int, address: int, size: int) -> None:
        """Enter memory that the location gave, in use."""

    def remove(self, allocation: int) -> bool:
        """
        Drop memory that the location gets back; False if another thread was quicker.
        """

    def end_quick_frees(self, allocation: int) -> None:
        """Let no call of C without Python free it."""

    def end_quick_calls(self) -> None:
        """Let no call of C without Python use the pool any more."""

    def is_in_use(self, allocation: int) -> bool: ...

    def begin_free(self, allocation: int) -> bool:
        """End the use of memory; False if it was not in use."""

    def keep(self, allocation: int, stream: int, event: Event | None) -> None:
        """
        Keep memory whose use has ended; the event is over when the free is, None: only the caller knows.
        """

    def use(self, allocation: int) -> bool:
        """Use kept memory again; False if another thread was quicker."""

    def fitting(self, size: int, stream: int) -> list[tuple[int, bool]]:
        """
        Return kept memory that fits, smallest first, and whether the stream is behind its free.
        """

    def kept_allocations(self) -> list[int]:
        """Return what is kept, smallest first."""

    def freed(self, allocation: int) -> tuple[int, Mark | None] | None:
        """
        Return the stream of the free, by number, and its mark, None if it was passed none; None if the memory is not kept.
        """

class Context:
    """What native code knows of a context of a vendor's program."""

    def __init__(self) -> None: ...

    @property
    def handle(self) -> int: ...

    @handle.setter
    def handle(self, arg: int, /) -> None: ...

    @property
    def references(self) -> int: ...

    def retain(self) -> None: ...

    def release(self) -> int:
        """Drop a reference, and return how many are left."""

    def release_all(self) -> None: ...

    def end(self) -> None: ...

    def mark_unusable(self) -> None: ...

    def know(self, device: int, null_stream: Stream | None) -> None:
        """Tell the program's number of its device, and its null stream."""

class ContextStack:
    """
    The contexts that each thread has pushed; all methods are about the calling thread.
    """

    def __init__(self) -> None: ...

    def newest(self) -> tuple[int, bool] | None:
        """
        The handle of the newest context, and whether it is alive; None if there is none.
        """

    def push(self, context: Context) -> None: ...

    def pop(self) -> int:
        """
        Take the newest context away, and return its handle; 0 if there is none.
        """

def c_calls(is_of_python: bool) -> int:
    """
    The address of the table that libraries for C ask, in a program of Python or of C.
    """

def follow_waits() -> None:
    """
    Let joins and locks under the GIL give it away, in the modules that are loaded.
    """

def c_epoch() -> int:
    """
    The number of the present state of all threads, to be read before the facts of a thread are looked up.
    """

def forget_c_threads() -> None:
    """
    Drop what is known of all threads: after a change that another thread may see.
    """

def last_error(library: str) -> int:
    """
    The last error of this thread in a library of the runtime, by the name of its header.
    """

def set_last_error(library: str, code: int) -> None: ...

def forget_last_errors() -> None:
    """Drop the last errors of all threads."""

def forget_c_thread() -> None:
    """
    Drop what is known of this thread: after its device or context has changed.
    """

def know_c_thread(vendor: str, epoch: int, device: int, has_registrations: bool, has_pools: bool, not_ready: int = -1, contexts: ContextStack | None = None, pools: Pools | None = None) -> None:
    """
    Tell the device of this thread, as of that state, whether the program has registered host memory, whether a device may lack access to memory of another one, the code of a query of work that is not over (-1: the dialect is asked), of which contexts the newest is the current one, and the memory of the vendor's pools.
    """

def know_c_context(vendor: str, epoch: int, context: Context) -> None:
    """Tell a context that this thread makes current, as of that state."""

def know_c_constant(vendor: str, epoch: int, function: str, about: int, answer: bytes) -> None:
    """
    Tell what a function has written, and writes as long as that state holds.
    """

def know_c_attribute(vendor: str, epoch: int, attribute: int, allocation: int, answer: bytes) -> None:
    """Tell an attribute of the addresses in an allocation, as of that state."""

def know_c_primary(vendor: str, epoch: int, device: int, context: Context, flags: int) -> None:
    """
    Tell the primary context of a device, by the program's number, and its flags, as of that state.
    """

def know_c_stream(vendor: str, epoch: int, handle: int, stream: Stream, context: int = 0) -> None:
    """
    Tell the stream of a handle in this thread, as of that state, and the handle of its context, 0 where contexts do not count.
    """

def know_c_event(vendor: str, epoch: int, handle: int, event: Event, freed: FreedBefore, device: int, context: int) -> None:
    """
    Tell the event of a handle, what was freed before its record, whose streams record it, and the handle of its context as of a stream, as of that state.
    """

def know_c_pool(vendor: str, epoch: int, handle: int, current_of: int, pool: PoolMemory) -> None:
    """
    Tell the memory of a pool, as of that state: by its handle, or of the device whose current one it is, by the number in native code; 0: not so.
    """

def know_c_callbacks(vendor: str, epoch: int, queue: CallbackQueue) -> None:
    """
    Tell this thread, as of that state, where functions of C wait for the thread that calls them.
    """

def know_c_lane(epoch: int, thread: int, channel: int, stream: Stream, theirs: Memory, ours: Memory) -> None:
    """
    Tell what a thread of HCOMM may write through a channel, as of that state: from all of `ours` to all of `theirs`.
    """

def last_by_lane(stream: object) -> int:
    """
    The number of the stream's last operation that a thread of HCOMM submitted by a quick call; 0 if there is none.
    """

class CallQueue:
    """The calls of a group that native code queues on streams."""

    def __init__(self, rounds: Rounds, mine: Memory, theirs: Sequence[object], kept: int, entry: int, timeout_ns: int) -> None:
        """
        `mine`, `theirs`: the posts of this rank, and of each rank; `kept` calls of `entry` bytes each, and as many words of each lane.
        """

    def know_mail(self, mails: Mails, peer: int, sends: bool) -> None: ...

    def know_words(self, kind: int, size: int, number: int, root: int, checksum: int, text: bytes) -> None:
        """What is posted of a call without parts that differ."""

    def note_last(self, peer: int | None, sends: bool, last: Event | None) -> None:
        """
        The end of the last message to a peer or from it, without a peer of the last collective; native code records it anew.  None: all are over.
        """

    def forget_lasts(self) -> None: ...

def queued_call(stream: int, operation: int) -> str:
    """
    The call of C that queued an operation without Python; empty if it is not known.
    """

class NcclCommunicator:
    """A communicator of NCCL whose calls native code may queue."""

    def __init__(self, handle: int, context: Context, device: int, rank: int, size: int, stream: Stream, queue: CallQueue) -> None:
        """`device`: the number in native code; `stream`: of the collectives."""

    def know_lane(self, peer: int, sends: bool, stream: Stream) -> None: ...

    def failure(self) -> BaseException | None:
        """Why a call failed half-way, which lost the communicator."""

    def end(self) -> None:
        """Let the dialect answer all its calls from now on."""

def know_nccl_elements(widths: Mapping[int, int], reductions: Mapping[tuple[int, int], int]) -> None:
    """
    The bytes of each type, and the number of the reduction of each type and operation.
    """

def take_nccl_group(begins: bool) -> tuple[int, list[tuple[str, tuple[int, ...], int]]] | None:
    """
    Say whether the dialect has a group of this thread open; return what native code has of one, with its calls and their lines, and let the dialect have it.
    """

LOG_NOTICES: dict[str, int]
"""The numbers of what an event `noticed` says of an object, by name."""

LOG_OBJECTS: dict[str, int]
"""The numbers of the kinds of objects of which it says it, by name."""

def observe(called: Callable[..., None] | None, capacity: int) -> None:
    """
    Call it with a tuple (kind, order, op, site, stream, sequence, a, b, spans) for each event of the observer's log, of so many bytes; with None, end that log.  OSError if it cannot be made.
    """

def tell_observer() -> None:
    """Hand over what is new."""

def notice(kind: int, what: int, id: int, memory: Memory | None, stream: int, sequence: int) -> None:
    """Tell the observer of something that is not an operation."""

def log_site_of(number: int) -> tuple[types.CodeType, int] | None:
    """Code and offset of a line's number."""

def trace_begin(capacity: int) -> None:
    """Keep so many bytes of events; OSError if there is no room."""

def trace_end() -> None: ...

def trace_take() -> tuple[list[tuple[int, int, int, str, int, int, int]], list[tuple[int, int, int, int]], int]:
    """
    ((device, stream, sequence, kind, bytes, start ns, end ns), ...) and ((stream, sequence, awaited stream, its operation), ...) since the last call, and how many events were dropped.
    """

def host_view_type(ndarray: type) -> type[Any]:
    """
    The base of the arrays that tell the event log what the host reads and writes.
    """

def log_host_access(access: int, address: int, width: int, pitch: int = 0, height: int = 1) -> None:
    """
    Log an access of the host that comes now: `height` rows of `width` bytes, `pitch` apart.
    """

def log_alias(address: int, size: int, ends: bool = False) -> None:
    """
    Log that the program takes, or gives back, an array on a view, whose accesses nobody tells.
    """

def is_poll() -> bool:
    """Whether the line that calls is in a loop that waits for what it reads."""

def ask_for_lines(ask: object) -> None:
    """
    What tells, once for a line, what the line that calls does with what it reads: `polls.line`.
    """

def log_host_look(address: int, width: int, element: object) -> None:
    """Log a look of a waiting loop at an element, and what it saw."""

def log_host_rows(access: int, rows: Sequence[tuple[int, int, int, int]]) -> None:
    """Log an access of the host to several such places as one event."""

def ask_for_c_sites(ask: object) -> None:
    """
    What returns the number of a place in C, by its address: threads without frames of Python touch memory, too.
    """

def follow_readiness(select: object, polls: Sequence[object], reads: Sequence[object]) -> bool:
    """
    Let calls that see that an event's descriptor is readable tell the event log; once, and for good.  False: not all could be followed.
    """

def site(number: int) -> tuple[types.CodeType, int] | None:
    """The place that has a number, if it is known still."""

def ask_for_c_callers(ask: object) -> None:
    """
    What returns the code object that stands for a place in C, and 0, by the place's address.
    """

def site_number() -> int:
    """The number of the place that call_site() returns; see fix_site()."""

def fix_site(number: int) -> int:
    """
    Let what this thread submits be submitted at this place, 0: where it is called; return what was set before.
    """

def call_site() -> tuple[types.CodeType, int] | None:
    """
    Code and offset of the instruction that called, in the innermost frame of the program.
    """

def pass_through(package: str) -> None:
    """
    Do not take lines of a library's package for the program's from now on.
    """

def line_of(code: types.CodeType, offset: int) -> int:
    """The line of an instruction, -1 when it has none."""

def is_readable(address: int) -> bool:
    """Whether the host can read the byte there."""

def is_code(address: int) -> bool:
    """Whether a function may be there."""

class Turns:
    """A rank's part in its group's turns."""

    def __init__(self, bank: Signal, members: Members, rank: int) -> None: ...

    def join(self, seconds: float) -> None:
        """The calling thread is this rank from now on; wait for the others."""

    def decline(self) -> None:
        """Take no turns."""

    def leave(self) -> None:
        """Take no turns any more."""

    @property
    def steps(self) -> int: ...

    @property
    def why(self) -> tuple[int, int]:
        """
        Why the run may not repeat, 0 if it does, and the rank that it is about.
        """

def is_turns_participant() -> bool:
    """Whether the calling thread is a rank that takes turns."""

def turn_point() -> None:
    """Let another rank go first."""

def wait_in_turns(fd: int, seconds: float) -> bool:
    """
    Wait until something can be read there, in turns; False: not within these seconds.
    """

def regain_turn() -> None:
    """Wait for the next turn."""

def suspend_turns() -> None:
    """What the calling thread does from now on is not a step of the program."""

def resume_turns() -> None: ...

def go_inside() -> None:
    """Wait for an answer of another process, with the turn."""

def come_out() -> None: ...

def plan_faults(faults: Sequence[tuple[int, bool, int, str, str]], report: str) -> None:
    """
    At its n-th logged event (op, whether it is killed, else nanoseconds that it sleeps, what is appended to the report, what standard error gets) something happens to this process.
    """

def counted_events() -> int:
    """How many logged events were counted since faults were planned."""

def own_steps() -> int:
    """How many steps the seed has drawn outside of groups."""

def set_wait_hook(called: Callable[[], None] | None) -> None:
    """
    Call it about ten times a second while threads of the program wait for long.
    """

def no_progress(others_wait: bool) -> tuple[int, list[tuple[int, int]], list[tuple[int, int, tuple[types.CodeType, int] | None, bool, int, bool]]] | None:
    """
    None if something can run, or a wait ends by itself, else (token, waiting threads and their streams, (stream, operation, site, whether for a notify, the notify or stream that it waits for, whether only this process can record it) of parked streams).
    """

NET_SECONDS: float = 10.0

def foreign_threads(known: Sequence[int], may_watch: bool) -> int | None:
    """
    None if a native thread that peerlane did not make, and that is not one of these, may run by itself; else a number that changes when one has run.  `may_watch`: one of them may be the thread of Python's faulthandler.
    """

def put_off_losses() -> None:
    """
    For a second no wait fails because a peer is lost: the verdict on a deadlock is reported first.
    """

def end_waits(token: int, number: int, others_wait: bool) -> bool:
    """
    Let the waits for notifies fail; False if something has happened since the token was given.
    """

def log_waits_in_vain(token: int, others_wait: bool) -> None:
    """
    Log that the waits of this process will end in vain, unless something has moved since `token`.
    """

def refuse_waits(token: int, number: int) -> bool:
    """
    Refuse the waits of threads for streams; False if something has happened since the token was given.
    """

class WaitBoard:
    """
    What the ranks of a group say of themselves while nothing of them can run.
    """

    def __init__(self, bank: Signal, rank: int) -> None: ...

    @staticmethod
    def lines(ranks: int) -> int:
        """How many lines the bank must have."""

    def begin(self, now_ns: int, awaited: Sequence[int], text: bytes, over_store: bool = False, has_children: bool = False) -> None: ...

    def renew(self, now_ns: int) -> None: ...

    def withdraw(self) -> None: ...

    def circle(self, overlap_ns: int) -> list[int]: ...

    def reached(self) -> list[int]: ...

    def in_vain(self) -> list[int]: ...

    def condemn(self, ranks: Sequence[int]) -> None: ...

    @property
    def is_condemned(self) -> bool: ...

    def acknowledge(self) -> None: ...

    def have_acknowledged(self, ranks: Sequence[int]) -> bool: ...

    def spell(self, rank: int) -> int: ...

    def text(self, rank: int) -> bytes:
        """The text that the rank wrote last; any bytes."""

def log_begin(directory: str, capacity: int, rank: int, total: int = 18446744073709551615, machine: int = 0, clock: int = 0) -> bool:
    """
    Begin the log of this process there, which names its machine and its clock; False if there is one.  All logs there hold `total` bytes at most.  OSError if it cannot be made.
    """

LOG_KINDS: dict[str, int]
"""The numbers of the kinds of events in a log, by name."""

LOG_OPS: tuple[str, ...] = ...

def log_end() -> None:
    """End it: the process leaves in an orderly way."""

def log_facts() -> tuple[str, int, int, int]:
    """
    (path, bytes written, events dropped, capacity); the path is empty if there is no log.
    """

def log_past(is_notify: bool, id: int) -> list[tuple[int, int, str, tuple[types.CodeType, int] | None]]:
    """
    (stream, sequence, kind, place) of the last logged operations of a stream, or records of a notify and waits for it; oldest first.
    """

def log_settle() -> None:
    """Let a reader see the newest event."""

def log_name(line: str) -> None:
    """Add a JSON object to the names."""

def log_site() -> int:
    """The number of the program's line that is calling."""

def log_site_of_program() -> int:
    """The number of the line that called libraries that are installed."""

def log_site_launched(added: int, launch: int) -> int:
    """
    The number for an operation of a graph: the line that added it, and the one that launches the graph.
    """

def log_fix(site: int) -> int:
    """
    Let this thread's events have this line, 0: that of the call; return what was set before.
    """

def log_follow_outside() -> None:
    """
    See what modules that were loaded since send and receive, and the shared mappings of a forked child.
    """

def log_outputs(files: Sequence[int]) -> None:
    """Device and inode of each file that is an output of the whole run."""

def log_changed_file() -> None:
    """The program changes a file, which others may look at."""

def log_looked_at(path: bytes) -> None:
    """The program looks at a file, or tries to."""

def log_hush(on: bool) -> None:
    """Log nothing that this thread does, until as many calls with False."""

def log_wanted() -> bool:
    """Whether the log is to have what this thread does."""

def log_free_ends(on: bool) -> None:
    """
    What this thread frees from now on has no bytes any more: not for what is queued, nor for who opened it.
    """

def log_event(kind: int, *, stream: int = 0, sequence: int = 0, a: int = 0, b: int = 0, c: int = 0, d: int = 0, flags: int = 0, written: Sequence[Memory] = ..., read: Sequence[Memory] = ..., places: Sequence[tuple[int, int, int]] = ...) -> None:
    """
    Write an event of the calling thread.  `places`: bytes on another machine that are written.
    """

def live_blocks() -> list[tuple[int, int]]:
    """
    The blocks of live allocations and mappings, as events name them, and native code's numbers of their devices.
    """

def log_places(memory: Memory) -> list[tuple[int, int, int]]:
    """Where memory lies, as events have it: blocks, offsets and sizes."""

def log_late_notify(stream: Stream | None, notify: Notify | None, far_bank: int = 0, far_line: int = 0) -> None:
    """
    Log a notify of a stream, of this machine or the place of one of another; until the call with None, what this thread submits quietly makes its record.
    """

class LogReader:
    """Reads the events of a log, also of one that is being written."""

    def __init__(self, path: str, may_give_back: bool = False) -> None: ...

    def take(self, also_open: bool = False, most: int = ...) -> list[Any]:
        """
        (kind, flags, op, site, thread, repeats, time, stream, sequence, words, spans, rows) of the events since the last call.
        """

    def give_back(self) -> None: ...

    @property
    def dropped(self) -> int: ...

    @property
    def has_ended(self) -> bool: ...

    @property
    def pid(self) -> int: ...

    @property
    def rank(self) -> int: ...

    @property
    def clock(self) -> int:
        """Which clock its times are of; 0: not known."""

    @property
    def since_epoch_ns(self) -> int:
        """The time of day at which that clock was 0."""

    def shift(self, nanoseconds: int) -> None:
        """Let all times that are read from now on be so much later."""

class MessageRings:
    """
    Rings in shared memory: each has one process that sends, and all have one that reads.
    """

    def __init__(self, fd: int, offset: int) -> None:
        """Map the BYTES of a file that begin at a page."""

    def close(self) -> None:
        """Unmap them; idempotent."""

    def hold(self, ring: int) -> None:
        """Send by this ring from now on; no other process holds it."""

    def put(self, name: bytes, text: bytes, more: bool) -> bool:
        """Send a piece of a message; False: there is not room enough now."""

    @property
    def place(self) -> int:
        """Where the next piece will stand in its ring."""

    def take(self) -> tuple[list[tuple[str, bytes, int, int]], int] | None:
        """
        Return the messages that have come, each with the sender's name, its ring and the place of its last piece, and how many bytes were none; None if nothing has come.
        """

    RINGS: Final[int] = ...
    """(arg: object, /) -> int"""

    BYTES: Final[int] = ...
    """(arg: object, /) -> int"""

    MOST_AT_ONCE: Final[int] = ...
    """(arg: object, /) -> int"""

class ProcessCopies:
    """Copies between this process's memory and another's, by the system."""

    def __init__(self, pid: int, writes: bool, pieces: Sequence[tuple[int, int, int]]) -> None:
        """``pieces``: this process's address, the other's, and bytes."""

    def __call__(self) -> int:
        """Copy; return 0, or the number of the system's error."""

    @property
    def size(self) -> int: ...

class ProcessMemory:
    """Which addresses of a process, this one or another, are memory."""

    def __init__(self, pid: int) -> None: ...

    def check(self, ranges: Sequence[tuple[int, int]], writes: bool) -> int:
        """
        Return 0 if all bytes of ``ranges`` (address, bytes) may be read or, with ``writes``, written; else the number of the system's error.
        """

class FileCopies:
    """Copies between memory and files that were given to a stream."""

    @property
    def failure(self) -> tuple[int, int, int] | None:
        """
        Once they are over: the system's error, or 0 where the file ends; the index of the piece, and how many of its bytes were copied.
        """

class FilePieces:
    """Pieces of memory and of files, between which bytes are copied."""

    def __init__(self, reads: bool, pieces: Sequence[tuple[int, int, int, int]], files: Sequence[tuple[int, int, int]]) -> None:
        """
        ``pieces``: the file's descriptor and offset, the memory's address, and bytes.  ``files``: each descriptor, and the device and inode of its file.
        """

    def run_at_once(self) -> bool:
        """
        Copy them now, if the page cache has or takes the bytes; False: some of it has to be submitted, or a descriptor is another file's by now.
        """

    def submit(self, stream: Stream) -> FileCopies:
        """Copy them on a stream."""

def far_start(library: str, interface: str) -> tuple[bytes, str, str] | list[str] | str:
    """
    Start the engine, once; return this process's address, the library and its version, what was tried to load one, or why it does not start.
    """

def far_unreachable(seconds: float) -> None:
    """After how many seconds of silence a process is lost."""

def far_deliver() -> None:
    """Deliver the withheld writes of all peers."""

def far_refused() -> int:
    """How many messages were not of a channel of this process."""

class FarEnd:
    """An end of a channel to a process of another machine."""

    def __init__(self, grants: Sequence[Memory], lines: ChannelLines, withholds: bool, members: Members | None, peer: int) -> None:
        """
        `grants`: memory that the peer may use; `lines`: notifies that it may record; `withholds`: what it writes is there when this end waits for a later record; `members`: of the group in which it is rank `peer`.
        """

    @property
    def number(self) -> int: ...

    @property
    def process(self) -> int:
        """The number of this process, for its peers."""

    @property
    def secret(self) -> int: ...

    @property
    def peer_bank(self) -> int:
        """In event logs, the bank of the peer's notifies; once it is open."""

    def set_blocks(self, blocks: list[list[tuple[int, int, int]]]) -> None:
        """
        The blocks of the peer's memories, for the event log, with offsets and sizes; before the first operation.
        """

    def blocks(self, memory: int, at: int, size: int) -> list[tuple[int, int, int]]:
        """The blocks of a part of a memory; empty: the peer has no event log."""

    @property
    def why_lost(self) -> str:
        """Why the peer is lost; empty: it is not."""

    def open(self, address: bytes, process: int, number: int, secret: int, peer: int) -> None:
        """Connect it; RuntimeError, in the engine's words, if there is no way."""

    def close(self) -> None:
        """Tell the peer, once all its operations are over; idempotent."""

    def transports(self) -> list[str]:
        """The ways to the peer, in the engine's words."""

    def write(self, stream: Stream | None, memory: int, at: int, src: Memory, notify: int) -> None:
        """`notify`: its number plus 1, or 0."""

    def read(self, stream: Stream | None, dst: Memory, memory: int, at: int) -> None: ...

    def reduce(self, stream: Stream | None, memory: int, at: int, src: Memory, number: int, notify: int) -> None: ...

    def write_blocks(self, stream: Stream | None, memory: int, at: int, limit: int, src: Memory, table: Any, notify: int) -> None:
        """
        Rows of `table`: offset from `at` on, below `limit`; offset in `src`; bytes.
        """

    def read_blocks(self, stream: Stream | None, dst: Memory, memory: int, at: int, limit: int, table: Any) -> None:
        """
        Rows of `table`: offset in `dst`; offset from `at` on, below `limit`; bytes.
        """

    def notify(self, stream: Stream | None, index: int) -> None: ...

def device_calls() -> CapsuleType:
    """
    The table of functions that `torch/extension/device_calls.h` describes.
    """

def failed_work(token: int) -> tuple[str, str, str] | None:
    """
    The name of a function that an extension submitted, and the type and text of its error; None if it is not known.
    """
