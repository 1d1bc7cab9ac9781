"""One-sided writes: rank 0 writes its communication buffer into that of every other rank, over channels.

The program of the vendor's page of HcommWriteOnThread, completed: root info, communicator, streams, threads and
channels, then for each peer a handshake in three notifies.  On virtual devices, one process a rank::

    peerlane launch -n 3 --devices 3 hcomm_write_on_thread.py
"""

import os
import sys

os.environ.setdefault("HCCL_BUFFSIZE", "8")  # MB: the communication buffer has twice as much

import acl
import hcomm
import numpy as np
from hcomm import COMM_ENGINE_CPU_TS, COMM_PROTOCOL_HCCS, HcclChannelDesc

from peerlane.rendezvous import Rendezvous

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
READY, WRITTEN, DONE = 0, 1, 2  # the notifies of a channel
NOTIFY_TIMEOUT = 30  # seconds


class HcommError(Exception):
    """A call did not return 0."""


def checked(result, name):
    """Return the outputs of a call; raise HcommError with the library's words when it failed."""
    *outputs, ret = result if isinstance(result, tuple) else (result,)
    if ret:
        raise HcommError(f"{name} returned {ret}\n{acl.get_recent_err_msg() or ''}")
    return outputs[0] if len(outputs) == 1 else outputs


def call(name, *args):
    """Call a function of HCOMM, or of acl.rt in lower case, and return its outputs."""
    function = getattr(hcomm, name, None) or getattr(acl.rt, name)
    return checked(function(*args), name)


def sample(comm, channel, thread, rank):
    """Queue the exchange with one peer, in which rank 0 writes; nothing here waits."""
    address, size = call("HcclGetHcclBuffer", comm)
    call("HcommChannelNotifyRecordOnThread", thread, channel, READY)
    call("HcommChannelNotifyWaitOnThread", thread, channel, READY, NOTIFY_TIMEOUT)
    if rank == 0:
        remote_address, remote_size = call("HcclChannelGetHcclBuffer", comm, channel)
        call("HcommWriteOnThread", thread, channel, remote_address, address, min(size, remote_size))
    for notify in (WRITTEN, DONE):
        call("HcommChannelNotifyRecordOnThread", thread, channel, notify)
        call("HcommChannelNotifyWaitOnThread", thread, channel, notify, NOTIFY_TIMEOUT)


def main():
    """Be one rank."""
    line = Rendezvous.from_environment()
    rank, ranks = line.rank, line.size
    checked(acl.init(), "acl.init")
    call("set_device", rank)
    info = call("HcclGetRootInfo") if rank == 0 else b""
    info = line.gather("root info", info)[0]  # the bytes travel by any means
    comm = call("HcclCommInitRootInfo", ranks, info, rank)

    peers = [other for other in range(ranks) if (rank == 0) != (other == 0)]
    descs = [HcclChannelDesc() for _ in peers]
    call("HcclChannelDescInit", descs, len(descs))
    for desc, peer in zip(descs, peers, strict=True):
        desc.remoteRank, desc.channelProtocol, desc.notifyNum = peer, COMM_PROTOCOL_HCCS, 3
    channels = call("HcclChannelAcquire", comm, COMM_ENGINE_CPU_TS, descs, len(descs))
    streams = [call("create_stream") for _ in peers]
    threads = [call("HcclThreadAcquireWithStream", comm, COMM_ENGINE_CPU_TS, stream, 2) for stream in streams]

    address, size = call("HcclGetHcclBuffer", comm)
    words = np.arange(size // 8, dtype=np.uint64) * 0x9E3779B97F4A7C15
    mine = words if rank == 0 else np.zeros_like(words)
    call("memcpy", address, size, mine.ctypes.data, size, HOST_TO_DEVICE)
    for channel, thread in zip(channels, threads, strict=True):
        sample(comm, channel, thread, rank)
    for stream in streams:
        call("synchronize_stream", stream)

    received = np.zeros_like(words)
    call("memcpy", received.ctypes.data, size, address, size, DEVICE_TO_HOST)
    if not np.array_equal(received, words):
        raise HcommError(f"rank {rank} has other bytes than rank 0 wrote")
    print(
        f"rank {rank} of {ranks}: {size} bytes {'written' if rank == 0 else 'received'}, every byte verified"
    )
    call("HcclCommDestroy", comm)
    for stream in streams:
        call("destroy_stream", stream)
    checked(acl.finalize(), "acl.finalize")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HcommError as error:
        sys.exit(str(error))
