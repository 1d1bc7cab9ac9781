"""P7: sharing memory with another process, against sending a bare descriptor over a socket and mapping it there.

The time includes the export with the importer's pid listed, sending the handle over a socket, the import, the mapping
and the acknowledgement.  The memory was allocated before.
"""

from __future__ import annotations

import mmap
import os
import socket
import statistics
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

import peerlane as pl
from benchmarks import seams
from benchmarks.bars import EXPORTER_STATES, PEERLANE_CONNECTED, SHARED, share_case
from benchmarks.overlaps import compute
from peerlane.cli import machine
from peerlane.cli.bench.measure import PEERLANE, TIME, Contender, Figure, Skip, figure, interleaved
from peerlane.cli.bench.plan import Plan
from peerlane.cli.children import Child, interrupts_deferred
from peerlane.errors import DeviceFault
from peerlane.support.sizes import UNITS

SHARES = 15

_RAW = "raw memfd, SCM_RIGHTS, mmap"
_SIZES = dict(zip(SHARED, (2 * UNITS["MiB"], UNITS["GiB"], 8 * UNITS["GiB"]), strict=True))
_SPARSE = SHARED[-1]

_SECONDS = 30.0
_LAPS = 20_000  # about a millisecond
_MESSAGE = 128
_DESCRIPTOR, _HANDLE, _KEEP = b"d", b"h", b"k"
_ACKNOWLEDGED, _SEEN = struct.Struct("d"), struct.Struct("QQ")

Words = npt.NDArray[np.uint64]


class Importer:
    """The importing process, and the socket to it."""

    def __init__(self, node: str, stack: ExitStack) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stack.enter_context(self._socket)
        self._socket.settimeout(_SECONDS)
        with theirs:
            self._child = stack.enter_context(Child(_serve, node, theirs))
        self.pid = self._child.pid

    def send(self, what: bytes, *descriptors: int) -> None:
        """Send a handle or a descriptor."""
        socket.send_fds(self._socket, [what], descriptors) if descriptors else self._socket.send(what)

    def acknowledged(self, is_busy: bool) -> float:
        """Return the time of the acknowledgement.

        A busy exporter computes and looks for it only after each millisecond.  So for a busy one it is the time at
        which the importer sent it; all processes have the same clock.
        """
        if not is_busy:
            self._receive(_ACKNOWLEDGED)
            return perf_counter()
        self._socket.setblocking(False)
        deadline = perf_counter() + _SECONDS
        while perf_counter() < deadline:
            compute(_LAPS)
            try:
                (seconds,) = self._receive(_ACKNOWLEDGED)
            except BlockingIOError:
                continue
            self._socket.settimeout(_SECONDS)
            return float(seconds)
        raise pl.WaitTimeout(f"the importing process did not answer within {_SECONDS:g} s")

    def check(self, stamp: int, size: int) -> None:
        """Check that the importer saw the exporter's bytes; by then it has closed the memory."""
        seen = self._receive(_SEEN)
        if seen != (stamp, size):
            raise DeviceFault(f"shared memory of {size:,} bytes holds {seen}, and {stamp} was written")

    def _receive(self, form: struct.Struct) -> tuple[Any, ...]:
        try:
            message = self._socket.recv(_MESSAGE)
        except TimeoutError:
            raise pl.WaitTimeout(f"the importing process did not answer within {_SECONDS:g} s") from None
        if not message:
            self._child.ask("what happened?", timeout=_SECONDS)
        return form.unpack(message)


def measure(
    plan: Plan,
    devices: Sequence[pl.Device],
    node: str,
    shares: int = SHARES,
    blocks: int = seams.BLOCKS,
) -> tuple[list[Figure], list[Skip]]:
    """Time sharing in all sizes, with an idle and with a busy exporter; before that, copies across seams."""
    figures, skips = seams.measure(plan, devices, blocks)
    with ExitStack() as stack:
        with interrupts_deferred():
            first, connected = Importer(node, stack), Importer(node, stack)
        kept = stack.enter_context(pl.Physical(devices[0], devices[0].granularity))
        connected.send(_KEEP + bytes(stack.enter_context(kept.export(allow=[connected.pid]))))
        connected.acknowledged(False)
        for what, size in _SIZES.items():
            need = 0 if what == _SPARSE else 2 * size
            if why := machine.shortage(need):
                skips += [Skip(share_case(what, state), why) for state in EXPORTER_STATES]
                continue
            plan.show(f"share {what}")
            with _physical(devices[0], size) as ours, _memfd(size) as raw:
                for words in (ours[1], raw[1]):
                    words[: 1 if what == _SPARSE else None] = 1
                for state in EXPORTER_STATES:
                    busy = state == "busy"
                    calls: dict[str, Callable[[], float]] = {
                        _RAW: partial(_raw_shared, *raw, first, busy),
                        PEERLANE: partial(_shared, *ours, first, busy),
                        PEERLANE_CONNECTED: partial(_shared, *ours, connected, busy),
                    }
                    contenders = [
                        Contender(name, partial(_median, call, shares)) for name, call in calls.items()
                    ]
                    samples = interleaved(contenders, plan.rounds)
                    figures += [
                        figure(samples, share_case(what, state), name, _RAW, TIME)
                        for name in (PEERLANE, PEERLANE_CONNECTED)
                    ]
    return figures, skips


def _median(share: Callable[[], float], shares: int) -> float:
    return statistics.median(share() for _ in range(shares))


def _shared(physical: pl.Physical, words: Words, importer: Importer, busy: bool) -> float:
    words[0] += np.uint64(1)
    start = perf_counter()
    handle = physical.export(allow=[importer.pid])
    importer.send(_HANDLE + bytes(handle))
    end = importer.acknowledged(busy)
    importer.check(int(words[0]), physical.size)
    handle.close()
    return end - start


def _raw_shared(descriptor: int, words: Words, importer: Importer, busy: bool) -> float:
    words[0] += np.uint64(1)
    start = perf_counter()
    importer.send(_DESCRIPTOR, descriptor)
    end = importer.acknowledged(busy)
    importer.check(int(words[0]), words.nbytes)
    return end - start


@contextmanager
def _physical(device: pl.Device, size: int) -> Iterator[tuple[pl.Physical, Words]]:
    with pl.Physical(device, size) as physical, pl.AddressRange(device, size) as whole:
        whole.map(physical)
        yield physical, whole[:size].view(np.uint64)


@contextmanager
def _memfd(size: int) -> Iterator[tuple[int, Words]]:
    descriptor = os.memfd_create("bench")
    try:
        os.ftruncate(descriptor, size)
        yield descriptor, np.frombuffer(mmap.mmap(descriptor, size), np.uint64)
    finally:
        os.close(descriptor)


def _serve(node: str, exporter: socket.socket, pipe: Connection[Any, Any]) -> None:
    try:
        with exporter:
            pl.enter_node(node)
            kept: list[object] = []
            while _import(exporter, kept):
                pass
    except pl.Error as error:
        pipe.recv()
        pipe.send(error)
    except (EOFError, OSError):  # the socket ended
        return


def _import(exporter: socket.socket, kept: list[object]) -> bool:
    """Import what was sent, acknowledge it, and close it; return False when the socket ends."""
    message, descriptors, _, _ = socket.recv_fds(exporter, _MESSAGE, 1)
    if message[:1] == _DESCRIPTOR:
        with closing(mmap.mmap(descriptors[0], 0)) as mapped:
            exporter.send(_ACKNOWLEDGED.pack(perf_counter()))
            seen = _SEEN.pack(int.from_bytes(mapped[:8], "little"), len(mapped))
        os.close(descriptors[0])
        exporter.send(seen)
    elif message:
        physical = pl.Physical.open(message[1:])
        whole = pl.AddressRange(physical.device, physical.size)
        whole.map(physical)
        exporter.send(_ACKNOWLEDGED.pack(perf_counter()))
        if message[:1] == _KEEP:
            kept.append((physical, whole))
            return True
        seen = _SEEN.pack(int(whole[:8].view(np.uint64)[0]), whole.size)
        whole.close()
        physical.close()
        exporter.send(seen)
    return bool(message)
