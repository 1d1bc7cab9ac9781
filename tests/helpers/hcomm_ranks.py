"""Ranks of a communicator, each a thread of this process with a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

import peerlane as pl
from peerlane.dialects import acl, hcomm

T = TypeVar("T")
Bytes = npt.NDArray[np.uint8]

SECONDS = 60.0
WAIT = 30  # longer than any wait of a test that passes
CPU, CPU_TS, AICPU_TS = hcomm.COMM_ENGINE_CPU, hcomm.COMM_ENGINE_CPU_TS, hcomm.COMM_ENGINE_AICPU_TS
HCCS, ROCE, UB_CTP = hcomm.COMM_PROTOCOL_HCCS, hcomm.COMM_PROTOCOL_ROCE, hcomm.COMM_PROTOCOL_UB_CTP


def ok(result: Any) -> Any:
    """Check that a call succeeded, and return its outputs."""
    *outputs, ret = result if isinstance(result, tuple) else (result,)
    assert ret == 0, (ret, hcomm.explain() or acl.get_recent_err_msg())
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def code(result: Any) -> int:
    """Return the code of a call; check that a failed call gave the outputs of a failure."""
    *outputs, ret = result if isinstance(result, tuple) else (result,)
    assert type(ret) is int
    if ret:
        assert all(not each for each in outputs), result
    return ret


def descs(
    peers: Sequence[int], *, protocol: int = HCCS, notifies: int = 4, of: ModuleType = hcomm
) -> list[Any]:
    """Return descriptors of channels to these ranks."""
    descriptors = [of.HcclChannelDesc() for _ in peers]
    ok(of.HcclChannelDescInit(descriptors, len(descriptors)))
    for desc, peer in zip(descriptors, peers, strict=True):
        desc.remoteRank, desc.channelProtocol, desc.notifyNum = peer, protocol, notifies
    return descriptors


def team_desc(ranks: Sequence[int], own: int, **changed: Any) -> Any:
    """Return the descriptor of a team of these ranks, as one of them passes it."""
    descriptors = hcomm.HcclTeamCreateDesc()
    ok(hcomm.HcclTeamCreateDescInit(descriptors))
    descriptors.rankIds, descriptors.rankNum, descriptors.selfRankId = list(ranks), len(ranks), own
    descriptors.requirement.barrierCount = descriptors.channelCnt = 1
    descriptors.engine, descriptors.notifyNum = CPU_TS, 2
    return _with(descriptors, changed)


def team_channels(**changed: Any) -> Any:
    """Return the descriptor of a team's channels, without a protocol."""
    descriptors = hcomm.HcclTeamCreateChannelsDesc()
    ok(hcomm.HcclTeamCreateChannelsDescInit(descriptors))
    descriptors.engine, descriptors.notifyNum, descriptors.channelCnt = CPU_TS, 2, 1
    return _with(descriptors, changed)


def _with(struct: Any, changed: dict[str, Any]) -> Any:
    for name, value in changed.items():
        setattr(struct, name, value)
    return struct


class Rank:
    """A rank with its communicator, stream and thread.

    Attributes
    ----------
    number, size : int
    comm : int
    stream, thread : int
        A stream of acl, and the thread on it; for engine CPU the stream is 0.
    """

    def __init__(self, number: int, size: int, comm: int) -> None:
        self.number, self.size, self.comm = number, size, comm
        self.stream = self.thread = 0

    def threads(self, engine: int = CPU_TS, notifies: int = 4) -> int:
        """Make its stream and thread."""
        self.stream = ok(acl.rt.create_stream())
        self.thread = ok(hcomm.HcclThreadAcquireWithStream(self.comm, engine, self.stream, notifies))
        return self.thread

    def channels(self, *, engine: int = CPU_TS, protocol: int = HCCS, notifies: int = 4) -> dict[int, int]:
        """Return channels to all other ranks, by rank."""
        peers = [peer for peer in range(self.size) if peer != self.number]
        wanted = descs(peers, protocol=protocol, notifies=notifies)
        acquired = ok(hcomm.HcclChannelAcquire(self.comm, engine, wanted, len(wanted)))
        return dict(zip(peers, acquired, strict=True))

    def buffer(self) -> tuple[int, int]:
        """Return the address and the bytes of its HcclBuffer."""
        acquired: tuple[int, int] = ok(hcomm.HcclGetHcclBuffer(self.comm))
        return acquired

    def fill(self, address: int, content: bytes | Bytes) -> None:
        """Put bytes at an address of a device."""
        data = np.frombuffer(content, np.uint8) if isinstance(content, bytes) else content.view(np.uint8)
        if data.size:
            ok(acl.rt.memcpy(address, data.size, data.ctypes.data, data.size, 1))

    def content(self, address: int, nbytes: int) -> bytes:
        """Return bytes at an address of a device."""
        acquired = bytearray(nbytes)
        if nbytes:
            ok(acl.rt.memcpy(pl.as_buffer(acquired).address, nbytes, address, nbytes, 2))
        return bytes(acquired)

    def sync(self) -> None:
        """Synchronize the rank's stream."""
        ok(acl.rt.synchronize_stream(self.stream))

    def handshake(self, channel: int, notify: int) -> None:
        """Record a notify of the other end, and wait for this end's notify."""
        ok(hcomm.HcommChannelNotifyRecordOnThread(self.thread, channel, notify))
        ok(hcomm.HcommChannelNotifyWaitOnThread(self.thread, channel, notify, WAIT))


def run_ranks(size: int, body: Callable[[Rank], T], *, destroy: bool = True, config: Any = None) -> list[T]:
    """Call ``body(rank)`` in a thread for each rank of a new communicator; return what they return.

    Raises what the first raised.
    """
    ok(acl.rt.set_device(0))
    info = ok(hcomm.HcclGetRootInfo())

    def one(number: int) -> T:
        ok(acl.rt.set_device(number % len(pl.devices())))
        if config is None:
            comm = ok(hcomm.HcclCommInitRootInfo(size, info, number))
        else:
            comm = ok(hcomm.HcclCommInitRootInfoConfig(size, info, number, config))
        acquired = body(Rank(number, size, comm))
        if destroy:
            ok(hcomm.HcclCommDestroy(comm))
        return acquired

    return in_threads([lambda number=number: one(number) for number in range(size)])


def in_threads(bodies: Sequence[Callable[[], T]]) -> list[T]:
    """Call each function in its own thread; return their results, or raise the first exception."""
    acquired: list[Any] = [None] * len(bodies)
    raised: list[BaseException] = []

    def call(number: int) -> None:
        try:
            acquired[number] = bodies[number]()
        except BaseException as error:  # noqa: BLE001 - raised below
            raised.append(error)

    threads = [threading.Thread(target=call, args=(number,), daemon=True) for number in range(len(bodies))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + SECONDS
    for thread in threads:
        while thread.is_alive() and not raised and time.monotonic() < deadline:
            thread.join(0.1)
    if raised:
        raise raised[0]
    assert not any(thread.is_alive() for thread in threads), "a rank did not end"
    return acquired
