"""The event log: what this process does to device memory, and in which order.

``peerlane check`` reads it.  ``PEERLANE_LOG`` names a directory; then each process that
imports peerlane writes ``<pid>-<start>.log`` there, with the names in ``<pid>-<start>.names``.  A forked child writes
its own.  ``docs/design/event-log.md`` describes the log, and ``native/log/event.h`` has its bytes.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from peerlane import _core
from peerlane.errors import BadArgument, Error, InvalidValue
from peerlane.support.sizes import parse_size
from peerlane.support.variables import warn_of_path

VARIABLE, SIZE_VARIABLE = "PEERLANE_LOG", "PEERLANE_LOG_BYTES"
#: Standard output and standard error of the run.  No process of the run reads them, so writes there make no order.
_OUTPUTS = "PEERLANE_LOG_OUTPUTS"
_inherited_outputs = os.environ.get(_OUTPUTS, "")
#: Bytes that all logs of a folder hold at a time, unless ``PEERLANE_LOG_BYTES`` sets another size for each rank.
DEFAULT_BYTES = 1 << 30
_LEAST_BYTES, _MOST_BYTES = 1 << 20, 1 << 40
_MEMORY = Path("/dev/shm")

T = TypeVar("T")
Key: TypeAlias = tuple[int, int]  #: of an order between threads or processes
MemoryRange: TypeAlias = tuple[
    int, int, int
]  #: of memory, unique among machines: a block, an offset and bytes

#: Lets native code see forks from now on, instead of from its first use on.  Libraries that register fork handlers
#: after this call find native code already set up for the child when their handlers run there.
see_forks = _core.see_forks

active = False  #: whether this process has a log
KINDS: dict[str, int] = _core.LOG_KINDS  #: the numbers of the kinds of events, by name
_ACCESS, _POST, _TAKE, _FORGET, _OUTSIDE = (
    KINDS[each] for each in ("access", "post", "take", "forget", "outside")
)
_COLLECTIVE, _COLLECTED = KINDS["collective"], KINDS["collected"]
_ALLOCATED, _FREED = KINDS["allocated"], KINDS["freed"]
_SHARED, _END = 2, 4  # kShared and kEnd in native/log/event.h
_WORLD, _ANY_MEDIUM = 1, 2  # kWorld and kAnyMedium in native/log/event.h
_WROTE, _SENT, _RECEIVED, _MAPPED = 1, 4, 8, 16  # kWrote, ... there
_ALWAYS = (1 << 64) - 1  # ns
_PROCESS, _MESSAGE, _NEXT = 3, 5, (1 << 64) - 1  # kProcess, kMessage and kNextPost in native/log/event.h
_meetings: dict[tuple[Any, ...], int] = {}
_sharers: set[tuple[Path, int]] = set()  # logs of this process, and with whom it shared memory then
_MOST_OF_COMMAND = 4096  # bytes

#: The number of a kind is its index, as in ``native/log/event.h``.
COLLECTIVES = (
    *("barrier", "all_gather", "all_reduce", "all_to_all", "reduce_scatter"),
    *("broadcast", "scatter", "reduce", "gather", "send", "receive"),
)


READ, WRITTEN, UNKNOWN = range(3)  #: how the host touches bytes


class Facts(NamedTuple):
    """The log of this process."""

    path: Path
    written: int  #: Bytes
    dropped: int  #: Events for which there was no room
    capacity: int  #: bytes that are kept until they are read


def begin(directory: str | os.PathLike[str], *, capacity: int | None = None) -> bool:
    """Begin the log of this process; False if there is one already, which goes on.

    ``directory``: an existing directory.
    ``capacity``: bytes; by default those of ``PEERLANE_LOG_BYTES``.
    Raises OSError: the files cannot be made.
    Raises InvalidValue: ``PEERLANE_LOG_BYTES`` is not a size.
    """
    global active
    size = default_capacity() if capacity is None else capacity
    outputs = _inherited_outputs or _own_outputs()
    os.environ[_OUTPUTS] = outputs
    _core.log_outputs([int(number) for each in outputs.split() for number in each.split(":")])
    begun = _core.log_begin(
        os.fspath(Path(directory).absolute()),
        size,
        _number("RANK", -1),
        max(DEFAULT_BYTES, size * _number("WORLD_SIZE", 1)),
        *_machine_and_clock(),
    )
    active = True
    if begun and (machine := os.environ.get("PEERLANE_MACHINE")):
        add_name(machine=machine)
    return begun


def with_outputs(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program that gets the outputs of this process."""
    return {**environment, **({_OUTPUTS: _own_outputs()} if environment.get(VARIABLE) else {})}


def _own_outputs() -> str:
    outputs = []
    for descriptor in (1, 2):
        with suppress(OSError):  # it is closed
            about = os.fstat(descriptor)
            outputs.append(f"{about.st_dev}:{about.st_ino}")
    return " ".join(outputs)


def _machine_and_clock() -> tuple[int, int]:
    """Return a number for this machine, and one for its clock, which differ from those of other machines."""
    from peerlane.support.machine_identity import boot, own_machine  # as below

    try:
        machine = key_of("machine", own_machine())[0]
    except Error:  # who makes a group gets the error
        machine = 0
    return machine, key_of("clock", boot())[0]


def begin_from_environment() -> None:
    """Begin a log if ``PEERLANE_LOG`` is set; without room for one, the program runs without a log."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        return
    if not Path(directory).is_dir():
        warn_of_path(VARIABLE, directory, "it is not a directory, so this process writes no event log")
        return
    try:
        begin(directory)
    except OSError as error:
        warn_of_path(VARIABLE, directory, f"this process writes no event log: {error.strerror}")


def end() -> None:
    """End the log; without one nothing happens."""
    global active
    active = False
    _core.log_end()


def discard() -> None:
    """End the log and delete its files, as a process that only starts others does."""
    log = facts()
    end()
    if log is not None:
        for suffix in (".log", ".names"):
            log.path.with_suffix(suffix).unlink(missing_ok=True)


@contextmanager
def folder() -> Iterator[Path]:
    """Make a folder for the logs of several processes, and remove it after the block.

    It lies in memory if there is room for :data:`DEFAULT_BYTES`, else among the temporary files.  On a disk an event
    costs two to three times as much, because its pages are written back.
    """
    from peerlane.support.scratch_folders import scratch_folder  # which a program without a log does not need

    with scratch_folder(_MEMORY if _has_room(_MEMORY) else None) as logs:
        yield logs


def _has_room(parent: Path) -> bool:
    try:
        free = os.statvfs(parent)
    except OSError:
        return False
    return free.f_bavail * free.f_frsize > DEFAULT_BYTES and os.access(parent, os.W_OK)


def facts() -> Facts | None:
    """Return the facts of this process's log, None if it has none."""
    path, *numbers = _core.log_facts()
    return Facts(Path(path), *numbers) if path else None


def default_capacity() -> int:
    """Return ``PEERLANE_LOG_BYTES``, or this process's share of :data:`DEFAULT_BYTES`."""
    setting = os.environ.get(SIZE_VARIABLE)
    if not setting:
        return max(DEFAULT_BYTES // max(_number("WORLD_SIZE", 1), 1), _LEAST_BYTES)
    size = parse_size(setting)
    if size is None or not _LEAST_BYTES <= size <= _MOST_BYTES:
        raise InvalidValue(
            f"{SIZE_VARIABLE} is {setting!r}; valid are 1MiB to 1TiB; 64MiB keep about 1,000,000 events",
            call="event_log.begin",
            detail=BadArgument(SIZE_VARIABLE, setting, least=_LEAST_BYTES, most=_MOST_BYTES),
        )
    return size


def _number(variable: str, otherwise: int) -> int:
    setting = os.environ.get(variable, "")
    return int(setting) if setting.isdecimal() else otherwise


def host_access(access: int, address: int, nbytes: int) -> None:
    """Log that the host accesses bytes of its memory now: :data:`READ`, :data:`WRITTEN` or :data:`UNKNOWN`."""
    _core.log_host_access(access, address, nbytes)


def note_done(stream: Any, operation: int) -> None:
    """Log that this thread knows that an operation of a stream, and all before it, are over."""
    if active:
        _core.WaitSet.log_over(stream.id, operation)


@contextmanager
def quiet() -> Iterator[None]:
    """Log nothing that this thread does in the block."""
    _core.log_hush(True)
    try:
        yield
    finally:
        _core.log_hush(False)


@contextmanager
def freed_for_reuse(memory: Any, stream: Any) -> Iterator[None]:
    """Log that memory is freed in the order of a stream, and kept for reuse.

    The block submits one operation to the stream, which is logged as the free.
    """
    if not active:
        yield
        return
    where = {"stream": stream.id, "sequence": stream.submitted + 1}
    _core.log_event(_FREED, **where, a=memory.id, flags=_END | _SHARED, written=[memory])
    with quiet():
        yield


def reused(memory: Any) -> None:
    """Log that freed memory, which was kept for reuse, is allocated again."""
    if active:
        _core.log_event(_ALLOCATED, a=memory.id, written=[memory])


def live_blocks() -> dict[int, int]:
    """Return the native numbers of the devices of the blocks that this process has memory in."""
    return dict(_core.live_blocks())


def written_unseen(memory: Any) -> None:
    """Log that the program writes memory by its address, which the log does not see: its bytes count as written."""
    if active:
        _core.log_event(_ALLOCATED, a=memory.id, flags=_SHARED, written=[memory])


@contextmanager
def freed_at_once() -> Iterator[None]:
    """Log that the memory which this thread frees in the block ends at once, as the vendor's free promises.

    From then on neither queued operations nor other processes that opened the memory may use it.  (peerlane's own
    free keeps the bytes for both.)
    """
    _core.log_free_ends(True)
    try:
        yield
    finally:
        _core.log_free_ends(False)


def ranges_of(memory: Any) -> list[MemoryRange]:
    """Return the ranges of blocks that memory of this process lies in."""
    return _core.log_places(memory)


@contextmanager
def channel_access(stream: Any, written: Sequence[Any], read: Sequence[Any]) -> Iterator[None]:
    """Log the operation of a channel that the block submits to a stream, or makes at once (None), as one access."""
    if active:
        where = {} if stream is None else {"stream": stream.id, "sequence": stream.submitted + 1}
        own = [each for each in written if isinstance(each, _core.Memory)]
        far = [block for each in written if not isinstance(each, _core.Memory) for block in each.blocks]
        _core.log_event(_ACCESS, **where, written=own, read=read, places=far)
    with quiet():
        yield


@contextmanager
def channel_notify(stream: Any, notify: Any) -> Iterator[None]:
    """Log a notify of a channel as submitted to ``stream``, whichever stream records it in the block."""
    if isinstance(notify, _core.Notify):
        _core.log_late_notify(stream, notify)
    else:
        _core.log_late_notify(stream, None, notify.bank, notify.number)
    try:
        with quiet():
            yield
    finally:
        _core.log_late_notify(None, None)


def line() -> int:
    """Return the number of the program's present line, for :func:`called_at`; 0 without a log."""
    return _core.log_site_of_program() if active else 0


@contextmanager
def called_at(site: int) -> Iterator[None]:
    """Log what this thread does in the block as called at a site of :func:`line`; 0 changes nothing."""
    before = _core.log_fix(site) if site else 0
    try:
        yield
    finally:
        if site:
            _core.log_fix(before)


def site() -> int:
    """Return the number of the program's line that calls, for :func:`launched_at`; 0 without a log."""
    return _core.log_site()


def launched_at(added: int, launch: int) -> AbstractContextManager[None]:
    """Log what this thread does in the block as an operation of a graph.

    ``added``: the :func:`site` of the call that added the operation; 0 if it had no log.
    ``launch``: that of the call that launches the graph.
    """
    return called_at(_core.log_site_launched(added, launch))


def unwatched(*, read: bool, written: bool) -> None:
    """Log the start of an operation that reads or writes memory of the host which the log does not follow."""
    with called_at(line()):
        for is_so, flags in ((read, 0), (written, _SHARED)):
            if is_so:
                _core.log_event(KINDS["unwatched"], a=1, flags=flags)


def alias(memory: Any) -> None:
    """Log that the program takes an array or a tensor on memory: the log does not see its accesses."""
    _core.log_event(KINDS["view"], read=[memory])


def ask_for_c_sites(frame_of: Callable[[int], Callable[..., Any]]) -> None:
    """Let the log name lines of C for threads without Python frames.

    ``frame_of`` takes an address of code, and returns what calls a function from a frame for that code.
    """
    frames = functools.cache(frame_of)
    _core.ask_for_c_sites(lambda address: frames(address)(_core.log_site))


def with_call_site(call: Callable[[], T]) -> Callable[[], T]:
    """Return a call to run later, for which the log and all texts name the present line."""
    return functools.partial(present_line(), call)


def present_line() -> Callable[[Callable[[], T]], T]:
    """Return what makes a call later, for which the log and all texts name the present line."""
    text_site, log_site = _core.site_number(), _core.log_site()

    def at_line(call: Callable[[], T]) -> T:
        with called_at(log_site):
            return at_call_site(text_site, call)

    return at_line


def at_call_site(number: int, call: Callable[[], T]) -> T:
    """Make a call, for which all texts name the line that has a number in native code."""
    before = _core.fix_site(number)
    try:
        return call()
    finally:
        _core.fix_site(before)


def is_logged(pid: int) -> bool:
    """Tell whether a process writes a log beside that of this one."""
    own = facts()
    return own is not None and any(own.path.parent.glob(f"{pid}-*.log"))


def shares_with(pid: int) -> None:
    """Log that a process may use the same memory as this one, if it has no log beside this one."""
    own = facts()
    if own is None or (own.path, pid) in _sharers:
        return
    _sharers.add((own.path, pid))
    if is_logged(pid):
        return
    _core.log_event(KINDS["shared_with"], a=pid)
    argv: list[str] = []
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes()[:_MOST_OF_COMMAND].rstrip(b"\0").split(b"\0")
        argv = [word.decode(errors="replace") for word in words]
    add_name(sharer=pid, argv=argv)


def key_of(*parts: object) -> Key:
    """Return the key of an order: the same in all processes for the same parts, of str, bytes, int or tuples."""
    import hashlib  # which a program without a log does not need

    digest = hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def post(key: Key, *, free: int = 0, is_relay: bool = False) -> None:
    """Log that what this thread has done so far comes before what takes the key.

    ``free``: instead, how many :func:`take_next` need no post: the initial value of a semaphore.
    ``is_relay``: whether this thread only passes on what others have posted for it.
    """
    _core.log_event(_POST, a=key[0], b=key[1], c=free, flags=_SHARED if is_relay else 0)


def post_of(key: Key, stream: int, sequence: int) -> None:
    """Log that a stream's operations, up to one that is over, come before what takes the key."""
    _core.log_event(_POST, stream=stream, sequence=sequence, a=key[0], b=key[1])


def take_next(key: Key) -> None:
    """Log that this thread takes the oldest post that nobody has taken: what came before it is over."""
    take(key, _NEXT)


def take_end(pid: int) -> None:
    """Log that this thread knows that a process has ended."""
    take((_PROCESS, pid), 0)


def take(key: Key, posts: int) -> None:
    """Log that what came before the key's first ``posts`` posts is over for this thread; 0: before all so far."""
    _core.log_event(_TAKE, a=key[0], b=key[1], c=posts)


def sends_message(contents: int, socket: int, *, is_undone: bool = False) -> None:
    """Log that this thread is about to send a message, which other sockets receive by calls that are logged.

    ``contents``: a number of the message's bytes.
    ``socket``: a number of this process.
    ``is_undone``: it was not sent after all.
    """
    _core.log_event(_POST, a=_MESSAGE, b=contents, d=socket, flags=_END if is_undone else 0)


def received_message(contents: int, socket: int, count: int) -> None:
    """Log that this thread has received a message; ``count``: how many with these contents its socket has got."""
    _core.log_event(_TAKE, a=_MESSAGE, b=contents, c=count, d=socket)


def forget(key: tuple[int, int]) -> None:
    """Log that nobody posts or takes a key again."""
    _core.log_event(_FORGET, a=key[0], b=key[1])


def unlogged_ipc() -> None:
    """Log that the process may communicate from now on by means that the log does not see."""
    _core.log_event(_OUTSIDE)


def lends_host_memory() -> None:
    """Log that others may read and write memory of this process from now on."""
    _core.log_event(_OUTSIDE, a=key_of("host memory", os.getpid())[0], b=_MAPPED | _WROTE)


def copies_host_memory(pid: int, *, writes: bool) -> None:
    """Log that this process writes memory of the host that another one lends, or has read it."""
    _core.log_event(_OUTSIDE, a=key_of("host memory", pid)[0], b=_SENT if writes else _RECEIVED)


def received_before() -> None:
    """Log that this process may have received anything until now, as its calls were not seen."""
    _core.log_event(_OUTSIDE, a=_ANY_MEDIUM, b=_RECEIVED, d=time.monotonic_ns())


def shows_semaphores() -> None:
    """Log that others can see from now on when this process takes or releases a semaphore of multiprocessing."""
    _core.log_event(_OUTSIDE, a=key_of("semaphores")[0], b=_SENT, d=_ALWAYS)


def saw_semaphore() -> None:
    """Log that this process has read the value of a semaphore of multiprocessing."""
    _core.log_event(_OUTSIDE, a=key_of("semaphores")[0], b=_RECEIVED)


def sends() -> None:
    """Log that the process passes data to others now, as to a program that it starts."""
    if active:
        _core.log_event(_OUTSIDE, a=_WORLD, b=_SENT)


@contextmanager
def barrier(*key: object, rank: int, size: int) -> Iterator[None]:
    """Log a barrier of ``size`` ranks; the n-th one of this key meets the n-th one of the other ranks."""
    group = key_of(*key)[0]
    number = _meetings.get((group, rank), 0) + 1
    where: dict[str, Any] = {"a": group, "b": number << 16, "d": size << 32 | rank}
    _core.log_event(_COLLECTIVE, **where)
    yield
    _meetings[group, rank] = number  # one that failed does not count
    _core.log_event(_COLLECTED, **where)


def group_log(name: str, key: str, rank: int, size: int) -> _core.GroupLog:
    """Return what logs the collectives and messages of a rank; ``key`` identifies the group."""
    return _core.GroupLog(name, key_of("group", key)[0], rank, size)


def add_name(**entry: object) -> None:
    """Add an entry to the file with the names."""
    import json  # which a program without a log does not need

    _core.log_name(json.dumps(entry))
