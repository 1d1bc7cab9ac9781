"""One rank of ``bench machines``: peerlane's, or one of a bare TCP connection, run as a file as those of rivals are.

``python machine_rank.py peerlane|tcp TASK SIZE:TIMES ...``, with torchrun's variables.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from time import monotonic, sleep
from typing import cast

import numpy as np

import peerlane as pl
from peerlane import _bench
from peerlane.cli.bench import rival_rank
from peerlane.cli.bench.rival_rank import Call

STREAMED = 64 << 20  # bytes of all writes of the task "stream" together

_SECONDS = 60.0
_STEP = 0.02


class Peerlane:
    """Ranks of a group, on different machines or not."""

    def __init__(self, most: int) -> None:
        self._group = pl.Group(window=most, timeout=_SECONDS)
        self.rank = self._group.rank
        self._memory = self._group.device.allocate(most)
        self._memory.fill(0)
        self._group.window.fill(0)
        self._channel = self._group.channel(1 - self.rank, notifies=1) if self._group.size == 2 else None

    def together(self) -> None:
        self._group.barrier()

    def slowest(self, seconds: float) -> float:
        with self._group.device.allocate(8) as found:
            found.view(np.float64)[:] = seconds
            self._group.all_reduce(found, dtype="float64", op="max")
            return float(found.view(np.float64)[0])

    @contextlib.contextmanager
    def all_reduce(self, nbytes: int) -> Iterator[Call]:
        """Sum float32, in place."""
        elements = self._memory[:nbytes]
        yield lambda: self._group.all_reduce(elements, dtype="float32")

    @contextlib.contextmanager
    def message(self, nbytes: int) -> Iterator[Call]:
        """Write with a notify, there and back."""
        channel, block = cast("pl.Channel", self._channel), self._memory[:nbytes]
        write, wait = channel.write, channel.wait

        def begin() -> None:
            write(block, notify=0)
            wait(0, timeout=_SECONDS)

        def answer() -> None:
            wait(0, timeout=_SECONDS)
            write(block, notify=0)

        yield begin if self.rank == 0 else answer

    @contextlib.contextmanager
    def write(self, nbytes: int) -> Iterator[Call]:
        """Write until the bytes are there, while the other rank sleeps."""
        channel, block = cast("pl.Channel", self._channel), self._memory[:nbytes]
        yield (lambda: channel.write(block)) if self.rank == 0 else _nothing

    @contextlib.contextmanager
    def stream(self, nbytes: int) -> Iterator[Call]:
        """Write one block after the other, and wait for all."""
        channel, block = cast("pl.Channel", self._channel), self._memory[:nbytes]
        with self._group.device.create_stream() as stream:

            def all_of_them() -> None:
                for _ in range(STREAMED // nbytes):
                    channel.write(block, stream=stream)
                stream.sync()

            yield all_of_them if self.rank == 0 else _nothing

    def close(self) -> None:
        self._group.close()


class Tcp:
    """Two ends of a connection, timed in C."""

    def __init__(self, most: int) -> None:
        self.rank = int(os.environ["RANK"])
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self._socket = _accepted(address) if self.rank == 0 else _connected(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._memory = np.zeros(most, np.uint8)

    def together(self) -> None:
        self._turn(8, 8, spins=False)

    def slowest(self, seconds: float) -> float:
        return seconds

    @contextlib.contextmanager
    def message(self, nbytes: int) -> Iterator[Call]:
        """Send and receive, spinning."""
        yield lambda: self._turn(nbytes, nbytes, spins=True)

    @contextlib.contextmanager
    def write(self, nbytes: int) -> Iterator[Call]:
        """Send until 8 bytes say that all are there."""
        yield lambda: self._turn(nbytes, 8, spins=False)

    def close(self) -> None:
        self._socket.close()

    def _turn(self, there: int, back: int, *, spins: bool) -> None:
        where = self._memory.ctypes.data
        if not _bench.tcp_turn(self._socket.fileno(), where, self.rank == 0, there, back, spins):
            raise RuntimeError("the other end of the connection is gone, or silent for 60 s")


def _accepted(address: tuple[str, int]) -> socket.socket:
    with socket.create_server(address) as listening:
        listening.settimeout(_SECONDS)
        found, _ = listening.accept()
    found.settimeout(None)
    return found


def _connected(address: tuple[str, int]) -> socket.socket:
    deadline = monotonic() + _SECONDS
    while True:
        try:
            return socket.create_connection(address)
        except ConnectionRefusedError:
            if monotonic() > deadline:
                raise
            sleep(_STEP)


def _nothing() -> None:
    pass


if __name__ == "__main__":
    rival_rank.main({"peerlane": Peerlane, "tcp": Tcp})
