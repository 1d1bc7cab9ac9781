"""Two ranks use one memory: rank 0 writes it, then rank 1 reads it; a means that peerlane does not order is between.

``two_ranks.py MEANS MODE``: in ``right`` the means carries the order, in ``none`` it is not used, and in ``early`` it
is used, but before rank 0 writes; in ``late`` rank 0 uses it before, and rank 1 behind that.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import mmap
import os
import resource
import select
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import termios
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import peerlane as pl
from peerlane.rendezvous import Rendezvous

SECONDS = 30
#: What rank 0 does to tell, and rank 1 does to wait.
Means = tuple[Callable[[], object], Callable[[], object]]


def until(holds: Callable[[], object]) -> None:
    """Wait for another process.

    Raises
    ------
    TimeoutError
        It did not come so far.
    """
    end = time.monotonic() + SECONDS
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.005)


def agreed(meeting: Rendezvous, make: Callable[[], bytes]) -> bytes:
    if meeting.rank == 0:
        meeting.put("agreed", make())
    return meeting.get("agreed")


def sockets(meeting: Rendezvous, family: int, kind: int, address: Any) -> Any:
    """Return a socket of each rank, rank 1's bound."""
    end = socket.socket(family, kind)
    end.settimeout(SECONDS)
    if meeting.rank == 1:
        end.bind(address)
        meeting.put("bound", repr(end.getsockname()).encode())
    else:
        address = eval(meeting.get("bound"))
    if kind == socket.SOCK_DGRAM:
        if meeting.rank == 0:
            end.connect(address)
        return end
    if meeting.rank == 1:
        end.listen()
        meeting.put("listens", b"")
        return end.accept()[0]
    meeting.get("listens")
    end.connect(address)
    return end


def tcp(meeting: Rendezvous, folder: Path) -> Means:
    end = sockets(meeting, socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
    return lambda: end.sendall(b"."), lambda: end.recv(1)


def udp(meeting: Rendezvous, folder: Path) -> Means:
    end = sockets(meeting, socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
    return lambda: end.send(b"."), lambda: end.recv(1)


def unix(meeting: Rendezvous, folder: Path) -> Means:
    end = sockets(meeting, socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "s"))
    return lambda: end.sendall(b"."), lambda: end.recv(1)


def c_socket(meeting: Rendezvous, folder: Path) -> Means:
    end = sockets(meeting, socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "s"))
    end.setblocking(True)
    libc, room = ctypes.CDLL(None), ctypes.create_string_buffer(1)
    return lambda: libc.send(end.fileno(), b".", 1, 0), lambda: libc.recv(end.fileno(), room, 1, 0)


def closed_socket(meeting: Rendezvous, folder: Path) -> Means:
    end = sockets(meeting, socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "s"))
    return end.close, lambda: end.recv(1)


def named_pipe(meeting: Rendezvous, folder: Path) -> Means:
    if meeting.rank == 0:
        os.mkfifo(folder / "p")
    meeting.barrier()
    end = os.open(folder / "p", os.O_RDWR)
    meeting.barrier()
    return lambda: os.write(end, b"."), lambda: os.read(end, 1)


def mapped_file(meeting: Rendezvous, folder: Path) -> Means:
    agreed(meeting, lambda: b"%d" % (folder / "m").write_bytes(bytes(4096)))
    with (folder / "m").open("r+b") as file:
        flag = mmap.mmap(file.fileno(), 4096)
    return lambda: flag.__setitem__(0, 1), lambda: until(lambda: flag[0])


def mapped_file_by_number(meeting: Rendezvous, folder: Path) -> Means:
    """Map a file by the number of the system call."""
    agreed(meeting, lambda: b"%d" % (folder / "m").write_bytes(bytes(mmap.PAGESIZE)))
    system, number = ctypes.CDLL(None).syscall, {"x86_64": 9, "aarch64": 222}[os.uname().machine]
    system.restype = ctypes.c_long
    with (folder / "m").open("r+b") as file:
        words = [ctypes.c_long(each) for each in (0, mmap.PAGESIZE, 3, mmap.MAP_SHARED, file.fileno(), 0)]
        flag = ctypes.c_char.from_address(system(ctypes.c_long(number), *words))
    return lambda: setattr(flag, "value", b"."), lambda: until(lambda: flag.value != bytes(1))


def file_bytes(meeting: Rendezvous, folder: Path) -> Means:
    file = folder / "f"
    return lambda: file.write_bytes(b"."), lambda: until(lambda: file.exists() and file.read_bytes())


def many_pipes(meeting: Rendezvous, folder: Path) -> Means:
    """Use more pipes than the log tells apart; the last one carries the order."""
    for number in range(600):
        if meeting.rank == 0:
            os.mkfifo(folder / f"p{number}")
    meeting.barrier()
    libc = ctypes.CDLL(None)
    ends = [os.open(folder / f"p{number}", os.O_RDWR | os.O_NONBLOCK) for number in range(600)]
    for end in ends[:-1]:
        os.write(end, b".")
    meeting.barrier()
    room = ctypes.create_string_buffer(1)
    return lambda: libc.write(ends[-1], b".", 1), lambda: until(lambda: libc.read(ends[-1], room, 1) == 1)


def c_stream(meeting: Rendezvous, folder: Path) -> Means:
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    path = os.fsencode(folder / "c")

    def put() -> None:
        file = ctypes.c_void_p(libc.fopen(path, b"w"))
        libc.fputs(b".", file)
        libc.fclose(file)

    def has() -> bool:
        file = ctypes.c_void_p(libc.fopen(path, b"r"))
        if not file:
            return False
        byte = libc.fgetc(file)
        libc.fclose(file)
        return byte == ord(".")

    return put, lambda: until(has)


def zmq_pair(meeting: Rendezvous, folder: Path) -> Means:
    import zmq

    end = zmq.Context().socket(zmq.PAIR)
    end.rcvtimeo = SECONDS * 1000
    (end.bind if meeting.rank == 0 else end.connect)(f"ipc://{folder}/z")
    return lambda: end.send(b"."), end.recv


def zmq_push(meeting: Rendezvous, folder: Path) -> Means:
    import zmq

    end = zmq.Context().socket(zmq.PUSH if meeting.rank == 0 else zmq.PULL)
    end.rcvtimeo = SECONDS * 1000
    if meeting.rank == 0:
        meeting.put("port", b"%d" % end.bind_to_random_port("tcp://127.0.0.1"))
    else:
        end.connect(f"tcp://127.0.0.1:{meeting.get('port').decode()}")
    return lambda: end.send(b"."), end.recv


def nng_pair(meeting: Rendezvous, folder: Path) -> Means:
    import pynng

    end = pynng.Pair0(recv_timeout=SECONDS * 1000, send_timeout=SECONDS * 1000)
    if meeting.rank == 0:
        end.listen(f"ipc://{folder}/n")
    meeting.barrier()
    if meeting.rank == 1:
        end.dial(f"ipc://{folder}/n")
    return lambda: end.send(b"."), end.recv


def lmdb_store(meeting: Rendezvous, folder: Path) -> Means:
    import lmdb

    store = lmdb.open(str(folder / "l"), map_size=1 << 20)

    def put() -> None:
        with store.begin(write=True) as change:
            change.put(b"k", b"v")

    def has() -> bool:
        with store.begin() as look:
            return look.get(b"k") is not None

    return put, lambda: until(has)


def new_name(meeting: Rendezvous) -> str:
    """Return a name for an object of this machine that no other program uses."""
    return agreed(meeting, lambda: f"/{uuid.uuid4().hex}".encode()).decode()


def posix_semaphore(meeting: Rendezvous, folder: Path) -> Means:
    import posix_ipc

    one = posix_ipc.Semaphore(new_name(meeting), posix_ipc.O_CREAT, initial_value=0)
    meeting.barrier()
    one_end = (one.release, lambda: one.acquire(SECONDS))
    if meeting.rank == 0:
        one.unlink()
    return one_end


def posix_queue(meeting: Rendezvous, folder: Path) -> Means:
    import posix_ipc

    queue = posix_ipc.MessageQueue(new_name(meeting), posix_ipc.O_CREAT)
    meeting.barrier()
    if meeting.rank == 0:
        queue.unlink()
    return lambda: queue.send(b"."), lambda: queue.receive(SECONDS)


def system_semaphore(meeting: Rendezvous, folder: Path) -> Means:
    import sysv_ipc

    one = in_both(meeting, lambda **how: sysv_ipc.Semaphore(initial_value=0, **how))
    return one.release, lambda: (one.acquire(SECONDS), one.remove())


def system_queue(meeting: Rendezvous, folder: Path) -> Means:
    import sysv_ipc

    queue = in_both(meeting, sysv_ipc.MessageQueue)
    return lambda: queue.send(b"."), lambda: (queue.receive(), queue.remove())


def system_memory(meeting: Rendezvous, folder: Path) -> Means:
    import sysv_ipc

    memory = in_both(meeting, lambda **how: sysv_ipc.SharedMemory(size=4096, **how))
    meeting.barrier()
    if meeting.rank == 0:
        memory.remove()  # it lives until both have let it go
    return lambda: memory.write(b"1"), lambda: until(lambda: memory.read(1) == b"1")


def in_both(meeting: Rendezvous, make: Callable[..., Any]) -> Any:
    """Return an object of System V that rank 0 makes, with a key that nobody uses, and rank 1 opens."""
    import sysv_ipc

    created = make(key=None, flags=sysv_ipc.IPC_CREX) if meeting.rank == 0 else None
    key = int(agreed(meeting, lambda: b"%d" % created.key))
    return created or make(key=key)


def sqlite_table(meeting: Rendezvous, folder: Path) -> Means:
    if meeting.rank == 0:
        with sqlite3.connect(folder / "d") as created:
            created.execute("pragma journal_mode=wal")
            created.execute("create table t(x)")
    meeting.barrier()
    base = sqlite3.connect(folder / "d", isolation_level=None)
    count = "select count(*) from t"
    return lambda: base.execute("insert into t values(1)"), lambda: until(
        lambda: base.execute(count).fetchone()[0]
    )


def locked_file(meeting: Rendezvous, folder: Path) -> Means:
    file = (folder / "k").open("a+")
    if meeting.rank == 0:
        fcntl.lockf(file, fcntl.LOCK_EX)
    meeting.barrier()
    return lambda: fcntl.lockf(file, fcntl.LOCK_UN), lambda: fcntl.lockf(file, fcntl.LOCK_EX)


def listening_socket(meeting: Rendezvous, folder: Path) -> Means:
    """Let rank 1 try to connect until rank 0 listens, which never accepts."""
    own = socket.socket(socket.AF_UNIX)
    if meeting.rank == 0:
        own.bind(str(folder / "s"))
    meeting.barrier()

    def listens() -> bool:
        with socket.socket(socket.AF_UNIX) as end:
            return end.connect_ex(str(folder / "s")) == 0

    return own.listen, lambda: until(listens)


def loop_thread(meeting: Rendezvous, folder: Path) -> Means:
    """Let loops of asyncio, in threads of their own, send and receive: they wait in ``epoll_wait``."""
    end = sockets(meeting, socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "s"))
    end.setblocking(False)
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    def run(call: Any) -> None:
        asyncio.run_coroutine_threadsafe(call, loop).result(SECONDS)

    return lambda: run(loop.sock_sendall(end, b".")), lambda: run(loop.sock_recv(end, 1))


def signal_descriptor(meeting: Rendezvous, folder: Path) -> Means:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    fd = ctypes.CDLL(None).signalfd(-1, (ctypes.c_uint64 * 16)(1 << signal.SIGUSR2 - 1), 0)
    processes = meeting.gather("pids", b"%d" % os.getpid())
    return lambda: os.kill(int(processes[1]), signal.SIGUSR2), lambda: os.read(fd, 128)


def timer_descriptor(meeting: Rendezvous, folder: Path) -> Means:
    """Let rank 0 start a timer for which rank 1 waits."""
    library = ctypes.CDLL(None)
    fd = sent_descriptor(meeting, folder, lambda: library.timerfd_create(time.CLOCK_MONOTONIC, 0))
    when = (ctypes.c_long * 4)(0, 0, 0, 1000)
    return lambda: library.timerfd_settime(fd, 0, when, None), lambda: os.read(fd, 8)


def known_of_process(
    meeting: Rendezvous, ask: Callable[[int], object], change: Callable[[], object]
) -> Means:
    """Let rank 1 ask what rank 0 is until that changes."""
    process = int(meeting.gather("pids", b"%d" % os.getpid())[0])
    before = ask(process)
    return change, lambda: until(lambda: ask(process) != before)


def priority(meeting: Rendezvous, folder: Path) -> Means:
    return known_of_process(
        meeting, lambda process: os.getpriority(os.PRIO_PROCESS, process), lambda: os.nice(1)
    )


def limit(meeting: Rendezvous, folder: Path) -> Means:
    kind = resource.RLIMIT_NOFILE
    most = resource.getrlimit(kind)[1]
    return known_of_process(
        meeting,
        lambda process: resource.prlimit(process, kind),
        lambda: resource.setrlimit(kind, (777, most)),
    )


def sent_descriptor(meeting: Rendezvous, folder: Path, make: Callable[[], int]) -> int:
    end = sockets(meeting, socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "s"))
    if meeting.rank == 1:
        return int(socket.recv_fds(end, 1, 1)[1][0])
    created = make()
    socket.send_fds(end, [b"."], [created])
    return created


def open_port(meeting: Rendezvous, folder: Path) -> Means:
    """Let rank 1 try to connect until rank 0 listens, with a limit: then ``connect`` itself tells nothing."""
    own, port = bound_port(meeting)

    def listens() -> bool:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=SECONDS).close()
        except OSError:
            return False
        return True

    return own.listen, lambda: until(listens)


def named_peer(meeting: Rendezvous, folder: Path) -> Means:
    """Let rank 1 begin to connect, and ask for its peer, until rank 0 listens."""
    own, port = bound_port(meeting)

    def listens() -> bool:
        with socket.socket() as end:
            end.setblocking(False)
            end.connect_ex(("127.0.0.1", port))
            try:
                end.getpeername()
            except OSError:
                return False
            return True

    return own.listen, lambda: until(listens)


def free_port(meeting: Rendezvous, folder: Path) -> Means:
    """Let rank 1 try to take a port until rank 0 gives it back."""
    own, port = bound_port(meeting)

    def is_free() -> bool:
        with socket.socket() as end:
            try:
                end.bind(("127.0.0.1", port))
            except OSError:
                return False
            return True

    return own.close, lambda: until(is_free)


def bound_port(meeting: Rendezvous) -> tuple[Any, int]:
    own = socket.socket()

    def bound() -> bytes:
        own.bind(("127.0.0.1", 0))
        return b"%d" % own.getsockname()[1]

    return own, int(agreed(meeting, bound))


def working_folder(meeting: Rendezvous, folder: Path) -> Means:
    """Let rank 1 ask in which folder rank 0 is until that changes."""
    return known_of_process(
        meeting, lambda process: Path(f"/proc/{process}/cwd").readlink(), lambda: os.chdir(folder)
    )


def event_descriptor(meeting: Rendezvous, folder: Path) -> Means:
    fd = sent_descriptor(meeting, folder, lambda: os.eventfd(0))
    return lambda: os.write(fd, (1).to_bytes(8, "little")), lambda: os.read(fd, 8)


def memory_file(meeting: Rendezvous, folder: Path) -> Means:
    """Let rank 1 ask for the size of a file without a name."""
    fd = sent_descriptor(meeting, folder, lambda: os.memfd_create("edge"))
    return lambda: os.write(fd, b"."), lambda: until(lambda: os.fstat(fd).st_size)


def polled_pipe(meeting: Rendezvous, folder: Path) -> Means:
    """Let rank 1 wait until a pipe is readable, and not read it."""
    if meeting.rank == 0:
        os.mkfifo(folder / "p")
    meeting.barrier()
    end = os.open(folder / "p", os.O_RDWR)
    epoll = select.epoll()
    epoll.register(end, select.EPOLLIN)
    meeting.barrier()
    return lambda: os.write(end, b"."), lambda: epoll.poll(SECONDS)


def terminal(meeting: Rendezvous, folder: Path) -> Means:
    ends: list[int] = []

    def opened() -> int:
        ends.extend(os.openpty())
        return ends[1]

    there = sent_descriptor(meeting, folder, opened)
    return lambda: os.write(ends[0], b".\n"), lambda: os.read(there, 1)


def watched_folder(meeting: Rendezvous, folder: Path) -> Means:
    libc = ctypes.CDLL(None)
    fd = libc.inotify_init() if meeting.rank == 1 else -1
    if meeting.rank == 1:
        libc.inotify_add_watch(fd, os.fsencode(folder), 0x100)  # IN_CREATE
    meeting.barrier()
    return (folder / "w").touch, lambda: os.read(fd, 4096)


def touched_file(meeting: Rendezvous, folder: Path) -> Means:
    return (folder / "t").touch, lambda: until((folder / "t").exists)


def opened_folder(meeting: Rendezvous, folder: Path) -> Means:
    """Let rank 1 list a folder by its descriptor."""
    fd = os.open(folder, os.O_RDONLY)
    return (folder / "t").touch, lambda: until(lambda: "t" in os.listdir(fd))  # noqa: PTH208 - a path has no descriptor


def waited_signal(meeting: Rendezvous, folder: Path) -> Means:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    processes = meeting.gather("pids", b"%d" % os.getpid())
    return lambda: os.kill(int(processes[1]), signal.SIGUSR1), lambda: signal.sigwait([signal.SIGUSR1])


def handled_signal(meeting: Rendezvous, folder: Path) -> Means:
    came: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, frame: came.append(number))
    processes = meeting.gather("pids", b"%d" % os.getpid())
    return lambda: os.kill(int(processes[1]), signal.SIGUSR1), lambda: until(lambda: came)


def new_semaphore(meeting: Rendezvous, folder: Path) -> Means:
    """Let rank 1 try to open a semaphore until rank 0 makes it."""
    import posix_ipc

    name = new_name(meeting)

    def has() -> bool:
        try:
            posix_ipc.Semaphore(name).unlink()
        except posix_ipc.ExistentialError:
            return False
        return True

    return lambda: posix_ipc.Semaphore(name, posix_ipc.O_CREX), lambda: until(has)


def full_pipe(meeting: Rendezvous, folder: Path) -> Means:
    """Let rank 1 wait until rank 0 makes room in a pipe."""
    if meeting.rank == 0:
        os.mkfifo(folder / "p")
    meeting.barrier()
    fd = os.open(folder / "p", os.O_RDWR | os.O_NONBLOCK)
    meeting.barrier()
    if meeting.rank == 1:
        while select.select([], [fd], [], 0)[1]:
            os.write(fd, bytes(4096))
    os.set_blocking(fd, True)
    meeting.barrier()
    return lambda: os.read(fd, 1 << 16), lambda: os.write(fd, b".")


def taken_bytes(meeting: Rendezvous, folder: Path) -> Means:
    """Let rank 1 ask until rank 0 has taken what it sent."""
    end = sockets(meeting, socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "s"))
    if meeting.rank == 1:
        end.send(b".")
    meeting.barrier()
    left = bytearray(4)
    return lambda: end.recv(1), lambda: until(
        lambda: fcntl.ioctl(end, termios.TIOCOUTQ, left) or not any(left)
    )


def process_memory(meeting: Rendezvous, folder: Path) -> Means:
    """Let rank 1 read a word of rank 0's memory."""
    library, word = ctypes.CDLL(None), (ctypes.c_uint64 * 1)(0)
    if meeting.rank == 0:
        library.prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # who may: anyone
    about = agreed(meeting, lambda: b"%d %d" % (os.getpid(), ctypes.addressof(word))).split()
    own, other = (ctypes.c_uint64 * 2)(ctypes.addressof(word), 8), (ctypes.c_uint64 * 2)(int(about[1]), 8)

    def is_there() -> bool:
        assert library.process_vm_readv(int(about[0]), own, 1, other, 1, 0) == 8
        return bool(word[0])

    return lambda: word.__setitem__(0, 1), lambda: until(is_there)


def folder_with_own_prefix(meeting: Rendezvous, folder: Path) -> Means:
    """Map a file of a folder that is named as peerlane names its own."""
    inner = folder / "peerlane-job"
    inner.mkdir(exist_ok=True)
    fd = os.open(inner / "sem.state", os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, mmap.PAGESIZE)
    words = mmap.mmap(fd, mmap.PAGESIZE)
    return lambda: words.__setitem__(0, 1), lambda: until(lambda: words[0])


def c_file_time(meeting: Rendezvous, folder: Path) -> Means:
    path, times = folder / "t", (ctypes.c_long * 2)(5, 5)
    path.touch()
    meeting.barrier()
    library = ctypes.CDLL(None)
    return lambda: library.utime(bytes(path), times), lambda: until(lambda: path.stat().st_mtime == 5)


def c_new_folder(meeting: Rendezvous, folder: Path) -> Means:
    name, library = ctypes.create_string_buffer(bytes(folder / "newXXXXXX")), ctypes.CDLL(None)
    return lambda: library.mkdtemp(name), lambda: until(lambda: list(folder.glob("new*")))


def c_asynchronous_write(meeting: Rendezvous, folder: Path) -> Means:
    """Write to a pipe by ``aio_write``, whose descriptor, buffer and size are at 0, 16 and 24."""
    if meeting.rank == 0:
        os.mkfifo(folder / "p")
    meeting.barrier()
    fd = os.open(folder / "p", os.O_RDWR)
    block, data = ctypes.create_string_buffer(256), ctypes.create_string_buffer(b".", 8)
    struct.pack_into("iiiiQQ", block, 0, fd, 0, 0, 0, ctypes.addressof(data), 1)
    struct.pack_into("i", block, 44, 1)  # SIGEV_NONE
    library = ctypes.CDLL("librt.so.1")
    return lambda: library.aio_write(block), lambda: os.read(fd, 1)


def shell(meeting: Rendezvous, folder: Path, script: str, signal_peer: Callable[[Any], object]) -> Means:
    """Let a shell, which writes no log, write to a pipe when rank 0 tells it something."""
    if meeting.rank == 1:
        os.mkfifo(folder / "b")
    meeting.barrier()
    end = os.open(folder / "b", os.O_RDWR)
    relay = (
        subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, cwd=folder)
        if meeting.rank == 0
        else None
    )
    return lambda: signal_peer(relay), lambda: os.read(end, 1)


def shell_that_reads(meeting: Rendezvous, folder: Path) -> Means:
    def signal_peer(relay: Any) -> None:
        relay.stdin.write(b"go\n")
        relay.stdin.flush()

    return shell(meeting, folder, "read x; echo $x > b", signal_peer)


def shell_that_reads_output(meeting: Rendezvous, folder: Path) -> Means:
    """Make the shell's input rank 0's standard output."""

    def signal_peer(relay: Any) -> None:
        os.dup2(relay.stdin.fileno(), 1)
        print("go", flush=True)

    return shell(meeting, folder, "read x; echo $x > b", signal_peer)


def shell_that_looks(meeting: Rendezvous, folder: Path) -> Means:
    script = "while [ ! -e flag ]; do sleep 0.02; done; echo go > b"
    return shell(meeting, folder, script, lambda _: (folder / "flag").touch())


ALL = {
    each.__name__: each
    for each in (
        *(
            tcp,
            udp,
            unix,
            c_socket,
            closed_socket,
            named_pipe,
            mapped_file,
            mapped_file_by_number,
            file_bytes,
            many_pipes,
            c_stream,
            zmq_pair,
            zmq_push,
            nng_pair,
        ),
        *(lmdb_store, posix_semaphore, posix_queue, system_semaphore, system_queue, system_memory),
        *(sqlite_table, locked_file, listening_socket, event_descriptor, memory_file, polled_pipe, terminal),
        *(watched_folder, touched_file, waited_signal, handled_signal, new_semaphore),
        *(full_pipe, taken_bytes, process_memory, folder_with_own_prefix, c_file_time, c_new_folder),
        *(c_asynchronous_write, shell_that_reads, shell_that_reads_output, shell_that_looks),
        *(loop_thread, signal_descriptor, timer_descriptor, priority, limit),
        *(open_port, named_peer, free_port, working_folder, opened_folder),
    )
}
#: Memory that both can read can carry an order at any time from then on.
ALWAYS_OPEN = frozenset(
    {
        *("mapped_file", "mapped_file_by_number", "lmdb_store", "sqlite_table", "system_memory"),
        *("process_memory", "folder_with_own_prefix", "working_folder"),
    }
)


@contextmanager
def memory(meeting: Rendezvous) -> Iterator[pl.Buffer]:
    """Lend rank 0's memory to rank 1."""
    processes = [int(each) for each in meeting.gather("process", b"%d" % os.getpid())]
    if meeting.rank == 0:
        with pl.devices()[0].allocate(4096) as own:
            meeting.put("memory", bytes(own.export(allow=processes)))
            yield own
    else:
        with pl.Buffer.open(meeting.get("memory")) as lent:
            yield lent


def main(means: str, mode: str, folder: Path) -> None:
    with Rendezvous.from_environment() as meeting, memory(meeting) as shared:
        signal_peer, wait = ALL[means](meeting, folder) if mode != "none" else (None, None)
        meeting.barrier()
        if meeting.rank == 0 and mode in ("early", "late"):
            signal_peer()
        elif meeting.rank == 1 and mode not in ("none", "late"):
            wait()
        if mode in ("early", "late"):
            meeting.barrier()  # a thread of the means may send late
        if meeting.rank == 0:
            shared.view()[:8] = 7
            if mode == "right":
                signal_peer()
            time.sleep(0.3)  # so that the accesses have an order in time, not by the program
        else:
            if mode != "right":
                time.sleep(0.1)
            if mode == "late":
                wait()
            assert mode != "right" or bytes(shared.view()[:8].copy()) == bytes([7] * 8)
            shared.view()[:8].sum()
        meeting.barrier()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
