"""What the programs share: a communicator, threads, channels, and the memory of the algorithm."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault("HCCL_BUFFSIZE", "1")  # MB

import acl
import hcomm
import numpy as np

from peerlane.rendezvous import Rendezvous

ACK, DATA, FIN = 0, 1, 2  # the notifies of a channel
SECONDS = 30
PART = 256  # bytes of a slice
ROUNDS = 2

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


def ok(result: Any) -> Any:
    """Return the outputs of a call that succeeded."""
    *outputs, ret = result if isinstance(result, tuple) else (result,)
    if ret:
        raise SystemExit(f"code {ret}: {hcomm.explain() or acl.get_recent_err_msg()}")
    return outputs[0] if len(outputs) == 1 else outputs


class Rank:
    """A rank of one of the programs.

    Attributes
    ----------
    number, size : int
    main : int
        The first thread.
    others : list of int
        The other threads.
    channels, theirs : dict of int to int
        By peer: the channel, and the address of the peer's buffer.
    buffer : int
        The address of this rank's buffer, of one slice for each rank.
    """

    def __init__(self, others: int = 0) -> None:
        self._line = Rendezvous.from_environment()
        self.number, self.size = self._line.rank, self._line.size
        ok(acl.rt.set_device(self.number))
        info = self._line.gather("info", ok(hcomm.HcclGetRootInfo()) if self.number == 0 else b"")[0]
        self._comm = ok(hcomm.HcclCommInitRootInfo(self.size, info, self.number))
        peers = [peer for peer in range(self.size) if peer != self.number]
        descs = [hcomm.HcclChannelDesc() for _ in peers]
        ok(hcomm.HcclChannelDescInit(descs, len(descs)))
        for desc, peer in zip(descs, peers, strict=True):
            desc.remoteRank, desc.channelProtocol, desc.notifyNum = peer, hcomm.COMM_PROTOCOL_HCCS, 4
        acquired = ok(hcomm.HcclChannelAcquire(self._comm, hcomm.COMM_ENGINE_CPU_TS, descs, len(descs)))
        self.channels = dict(zip(peers, acquired, strict=True))
        self.theirs = {
            peer: ok(hcomm.HcclChannelGetHcclBuffer(self._comm, channel))[0]
            for peer, channel in self.channels.items()
        }
        self.buffer, _ = ok(hcomm.HcclGetHcclBuffer(self._comm))
        self._streams = [ok(acl.rt.create_stream()) for _ in range(1 + others)]
        self.main, *self.others = (
            ok(hcomm.HcclThreadAcquireWithStream(self._comm, hcomm.COMM_ENGINE_CPU_TS, stream, 4))
            for stream in self._streams
        )
        self._allocated: list[int] = []

    def device_memory(self, content: Any) -> int:
        """Return the address of new device memory with this content."""
        address = int(ok(acl.rt.malloc(content.nbytes, 0)))
        ok(acl.rt.memcpy(address, content.nbytes, content.ctypes.data, content.nbytes, HOST_TO_DEVICE))
        self._allocated.append(address)
        return address

    def run(self, round_: Callable[[int], None]) -> None:
        """Queue the rounds, in batches if the program is told so, and wait for them."""
        for turn in range(ROUNDS):
            if "batch" in sys.argv:
                ok(hcomm.HcommBatchModeStart("round"))
                round_(turn)
                ok(hcomm.HcommBatchModeEnd("round"))
            else:
                round_(turn)
        for stream in self._streams:
            ok(acl.rt.synchronize_stream(stream))

    def compare(self, address: int, wanted: Any) -> None:
        """Check the content of device memory."""
        received = np.empty_like(wanted)
        ok(acl.rt.memcpy(received.ctypes.data, received.nbytes, address, received.nbytes, DEVICE_TO_HOST))
        if not np.array_equal(received, wanted):
            raise SystemExit(f"rank {self.number} has other bytes than it should")

    def end(self) -> None:
        """Give everything back once all ranks are here."""
        self._line.barrier()
        ok(hcomm.HcclCommDestroy(self._comm))
        for stream in self._streams:
            ok(acl.rt.destroy_stream(stream))
        for address in self._allocated:
            ok(acl.rt.free(address))
        self._line.close()


def drawn(rank: int, turn: int, parts: int = 1) -> Any:
    """Return the input of a rank in a round."""
    return np.random.default_rng(100 * rank + turn).integers(0, 256, parts * PART, np.uint8)


def gathered(ranks: Sequence[int], turn: int) -> Any:
    """Return the inputs of these ranks, one behind the other."""
    return np.concatenate([drawn(rank, turn) for rank in ranks])
