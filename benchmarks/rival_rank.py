"""One rank of a contender, run as a file by that contender's own Python.

``python rival_rank.py KIND TASK,... SIZE:TIMES ...``, with a KIND of `MAKERS`, prints at rank 0, as JSON, a list for
each task with the seconds of one operation of each size; a barrier, which has no bytes, is done for the first size
only.  That Python need not have peerlane: this file imports nothing of it, but for the back-end of torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Protocol

Call = Callable[[], object]
CallContext = contextlib.AbstractContextManager[Call]

_PEER = {0: 1, 1: 0}
_SECONDS = 60.0
_STEP = 0.02


class Rank(Protocol):
    """A rank of a rival; each task that the rival can do is a method."""

    rank: int

    def together(self) -> None:
        """Wait for the others."""

    def slowest(self, seconds: float) -> float:
        """Return the seconds of the slowest rank, at least at rank 0."""

    def close(self) -> None:
        """End this rank, when all others have come to their end."""


class Mpi:
    """MPI, of the library that mpi4py loads by its configuration."""

    def __init__(self, most: int) -> None:
        self._numpy, self._mpi = importlib.import_module("numpy"), importlib.import_module("mpi4py.MPI")
        self._most, self._memory = most, _touched(self._numpy, most)
        self._world = self._mpi.COMM_WORLD
        self.rank: int = self._world.rank
        self._window: Any = None

    def together(self) -> None:
        self._world.Barrier()

    def slowest(self, seconds: float) -> float:
        return float(self._world.allreduce(seconds, op=self._mpi.MAX))

    @contextlib.contextmanager
    def barrier(self, nbytes: int) -> Iterator[Call]:
        """Wait for the others, whatever ``nbytes`` is."""
        yield self._world.Barrier

    @contextlib.contextmanager
    def broadcast(self, nbytes: int) -> Iterator[Call]:
        """Send the bytes of rank 0 to all."""
        words = [self._memory[:nbytes], self._mpi.BYTE]
        yield lambda: self._world.Bcast(words)

    @contextlib.contextmanager
    def all_gather(self, nbytes: int) -> Iterator[Call]:
        """Gather equal parts of ``nbytes`` in all, in place."""
        words = [self._memory[:nbytes], self._mpi.BYTE]
        yield lambda: self._world.Allgather(self._mpi.IN_PLACE, words)

    @contextlib.contextmanager
    def all_reduce(self, nbytes: int) -> Iterator[Call]:
        """Sum float32, in place."""
        elements = self._memory[:nbytes].view(self._numpy.float32)
        yield lambda: self._world.Allreduce(self._mpi.IN_PLACE, elements)

    @contextlib.contextmanager
    def write(self, nbytes: int) -> Iterator[Call]:
        """Put into memory that MPI allocated, which is its quickest kind, and flush."""
        if self._window is None:
            self._window = self._mpi.Win.Allocate(self._most if self.rank == 1 else 0, comm=self._world)
            self._window.Lock_all()
        window, words = self._window, [self._memory[:nbytes], self._mpi.BYTE]

        def put() -> None:
            window.Put(words, 1)
            window.Flush(1)

        yield put if self.rank == 0 else _nothing

    @contextlib.contextmanager
    def message(self, nbytes: int) -> Iterator[Call]:
        """Send and receive, into other memory."""
        words, peer = [self._memory[:nbytes], self._mpi.BYTE], _PEER[self.rank]
        into = [_touched(self._numpy, nbytes), self._mpi.BYTE]
        send, receive = self._world.Send, self._world.Recv
        yield _alternating(self.rank, lambda: send(words, peer), lambda: receive(into, peer))

    def close(self) -> None:
        if self._window is not None:
            self._window.Unlock_all()
            self._window.Free()


class Torch:
    """A back-end of torch for processors; ``torchrun``'s variables say which rank this is."""

    def __init__(self, backend: str, most: int) -> None:
        self._torch, self._ranks = (
            importlib.import_module("torch"),
            importlib.import_module("torch.distributed"),
        )
        self._torch.set_num_threads(1)
        self._memory = self._torch.full((most,), 0, dtype=self._torch.uint8)
        if backend == "peerlane":
            importlib.import_module("peerlane.torch")
        self._ranks.init_process_group(backend)
        self.rank: int = self._ranks.get_rank()

    def together(self) -> None:
        self._ranks.barrier()

    def slowest(self, seconds: float) -> float:
        slowest = self._torch.tensor([seconds], dtype=self._torch.float64)
        self._ranks.all_reduce(slowest, op=self._ranks.ReduceOp.MAX)
        return float(slowest)

    @contextlib.contextmanager
    def barrier(self, nbytes: int) -> Iterator[Call]:
        """Wait for the others, whatever ``nbytes`` is."""
        yield self._ranks.barrier

    @contextlib.contextmanager
    def broadcast(self, nbytes: int) -> Iterator[Call]:
        """Send the bytes of rank 0 to all."""
        memory = self._memory[:nbytes]
        yield lambda: self._ranks.broadcast(memory, 0)

    @contextlib.contextmanager
    def all_gather(self, nbytes: int) -> Iterator[Call]:
        """Gather equal parts of ``nbytes`` in all, in place."""
        whole = self._memory[:nbytes]
        part = whole.chunk(self._ranks.get_world_size())[self.rank]
        yield lambda: self._ranks.all_gather_into_tensor(whole, part)

    @contextlib.contextmanager
    def all_reduce(self, nbytes: int) -> Iterator[Call]:
        """Sum float32, in place."""
        elements = self._memory[:nbytes].view(self._torch.float32)
        yield lambda: self._ranks.all_reduce(elements)

    @contextlib.contextmanager
    def message(self, nbytes: int) -> Iterator[Call]:
        """Send and receive, into other memory."""
        memory, peer = self._memory[:nbytes], _PEER[self.rank]
        into = self._torch.full((nbytes,), 0, dtype=self._torch.uint8)
        send, receive = self._ranks.send, self._ranks.recv
        yield _alternating(self.rank, lambda: send(memory, peer), lambda: receive(into, peer))

    @contextlib.contextmanager
    def batch(self, nbytes: int) -> Iterator[Call]:
        """Send to and receive from the peer, in one batch."""
        ranks, memory, peer = self._ranks, self._memory[:nbytes], _PEER[self.rank]
        into = self._torch.full((nbytes,), 0, dtype=self._torch.uint8)

        def run() -> None:
            operations = [ranks.P2POp(ranks.isend, memory, peer), ranks.P2POp(ranks.irecv, into, peer)]
            for work in ranks.batch_isend_irecv(operations):
                work.wait()

        yield run

    def close(self) -> None:
        self._ranks.destroy_process_group()


class Nixl:
    """Two agents over UCX, without progress threads, because those starve waiting programs on few cores."""

    def __init__(self, most: int) -> None:
        numpy, nixl = importlib.import_module("numpy"), importlib.import_module("nixl_cu12._api")
        self.rank, pipe = _pair()
        self._agent = nixl.nixl_agent(f"rank {self.rank}", nixl.nixl_agent_config(enable_prog_thread=False))
        self._memory = [_touched(numpy, most) for _ in range(2)]
        source, target = (each.ctypes.data for each in self._memory)
        self._agent.register_memory([(source, most, 0, ""), (target, most, 0, "")], "DRAM")
        pipe.send((self._agent.get_agent_metadata(), target))
        metadata, theirs = pipe.recv()
        self._peer = self._agent.add_remote_agent(metadata)
        self._from, self._to = source, theirs
        self._notifications: Counter[bytes] = Counter()

    def together(self) -> None:
        self._agent.send_notif(self._peer, b"here")
        self._await(b"here")

    def slowest(self, seconds: float) -> float:
        return seconds

    @contextlib.contextmanager
    def write(self, nbytes: int) -> Iterator[Call]:
        """Write and wait until it is done; the target, which waits for its next message, makes progress meanwhile."""
        with self._transfer(nbytes) as transfer:
            yield transfer if self.rank == 0 else _nothing

    @contextlib.contextmanager
    def message(self, nbytes: int) -> Iterator[Call]:
        """Write with a notification."""
        with self._transfer(nbytes, b"written") as transfer:
            yield _alternating(self.rank, transfer, lambda: self._await(b"written"))

    @contextlib.contextmanager
    def _transfer(self, nbytes: int, message: bytes = b"") -> Iterator[Call]:
        agent = self._agent
        ends = (agent.get_xfer_descs([(each, nbytes, 0)], "DRAM") for each in (self._from, self._to))
        handle = agent.initialize_xfer("WRITE", *ends, self._peer)
        transfer, look = agent.transfer, agent.check_xfer_state

        def run() -> None:
            state = transfer(handle, message)
            while state == "PROC":
                state = look(handle)
            if state != "DONE":
                raise RuntimeError(f"a transfer ended with {state}")

        yield run
        agent.release_xfer_handle(handle)

    def close(self) -> None:
        """Do nothing: the end of the process ends all that is left."""

    def _await(self, message: bytes) -> None:
        while not self._notifications[message]:
            for messages in self._agent.get_new_notifs().values():
                self._notifications.update(messages)
        self._notifications[message] -= 1


class Pipe:
    """A connection of multiprocessing."""

    def __init__(self, most: int) -> None:
        self._memory = bytearray(b"\1") * most
        self.rank, self._pipe = _pair()

    def together(self) -> None:
        self._pipe.send(None)
        self._pipe.recv()

    def slowest(self, seconds: float) -> float:
        return seconds

    @contextlib.contextmanager
    def message(self, nbytes: int) -> Iterator[Call]:
        """Send and receive bytes, into other memory that exists already."""
        part, into = memoryview(self._memory)[:nbytes], bytearray(b"\1") * nbytes
        send, receive = self._pipe.send_bytes, self._pipe.recv_bytes_into
        yield _alternating(self.rank, lambda: send(part), lambda: receive(into))

    def close(self) -> None:
        self._pipe.close()


class Tcp:
    """Two ends of a connection, timed in C."""

    def __init__(self, most: int) -> None:
        self.rank = int(os.environ["RANK"])
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self._socket = _accepted(address) if self.rank == 0 else _connected(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._memory = importlib.import_module("numpy").zeros(most, "uint8")
        self._exchange = ctypes.CDLL(os.environ["BENCHMARKS_REFERENCES"]).tcp_turn
        self._exchange.restype = ctypes.c_bool

    def together(self) -> None:
        self._exchange_once(8, 8, spins=False)

    def slowest(self, seconds: float) -> float:
        return seconds

    @contextlib.contextmanager
    def message(self, nbytes: int) -> Iterator[Call]:
        """Send and receive, spinning."""
        yield lambda: self._exchange_once(nbytes, nbytes, spins=True)

    @contextlib.contextmanager
    def write(self, nbytes: int) -> Iterator[Call]:
        """Send until 8 bytes say that all are there."""
        yield lambda: self._exchange_once(nbytes, 8, spins=False)

    def close(self) -> None:
        self._socket.close()

    def _exchange_once(self, there: int, back: int, *, spins: bool) -> None:
        sizes = ctypes.c_uint64(there), ctypes.c_uint64(back)
        address = ctypes.c_uint64(self._memory.ctypes.data)
        if not self._exchange(
            self._socket.fileno(), address, ctypes.c_bool(self.rank == 0), *sizes, ctypes.c_bool(spins)
        ):
            raise RuntimeError("the other end of the connection is gone, or silent for 60 s")


def _accepted(address: tuple[str, int]) -> socket.socket:
    with socket.create_server(address) as listening:
        listening.settimeout(_SECONDS)
        connection, _ = listening.accept()
    connection.settimeout(None)
    return connection


def _connected(address: tuple[str, int]) -> socket.socket:
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_STEP)


def _touched(numpy: Any, nbytes: int) -> Any:
    """Return bytes whose pages were all touched."""
    return numpy.full(nbytes, 0, numpy.uint8)


def _pair() -> tuple[int, Connection[Any, Any]]:
    """Return the number of this rank, of two, and the connection to the other."""
    return int(os.environ["RANK"]), Connection(int(os.environ["BENCHMARKS_PIPE"]))


def _alternating(rank: int, send: Call, receive: Call) -> Call:
    first, then = (send, receive) if rank == 0 else (receive, send)

    def both() -> None:
        first()
        then()

    return both


def _nothing() -> None:
    pass


def _seconds(rank: Rank, make: Callable[[int], CallContext], nbytes: int, times: int) -> float:
    """Return the seconds of one operation at the slowest rank."""
    seconds = 0.0
    with make(nbytes) as call:
        for count in (max(1, times // 4), times):  # the first does not count
            rank.together()
            began = time.perf_counter()
            for _ in range(count):
                call()
            seconds = (time.perf_counter() - began) / count
        rank.together()
    return rank.slowest(seconds)


MAKERS: dict[str, Callable[[int], Rank]] = {
    "mpi": Mpi,
    "gloo": partial(Torch, "gloo"),
    "torch-peerlane": partial(Torch, "peerlane"),
    "nixl": Nixl,
    "pipe": Pipe,
    "tcp": Tcp,
}


def main() -> None:
    """Do the tasks that the command line names, in all sizes that it names."""
    name, tasks, *words = sys.argv[1:]
    jobs = [tuple(map(int, word.split(":"))) for word in words]
    rank = MAKERS[name](max(nbytes for nbytes, _ in jobs))
    figures = {}
    for task in tasks.split(","):
        make = getattr(rank, task.replace("-", "_"))
        directions = 2 if task == "message" else 1  # there and back
        figures[task] = [
            _seconds(rank, make, *job) / directions for job in (jobs[:1] if task == "barrier" else jobs)
        ]
    rank.close()
    if rank.rank == 0:
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
