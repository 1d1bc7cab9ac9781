"""Collectives: all ranks sum their gradients, and pass a block round a ring, on streams of acl.

The shape of the vendor's own samples: root info, communicator, device memory, ``HcclAllReduce``, synchronize,
compare.  On virtual devices, one process a rank::

    peerlane launch -n 4 --devices 4 hcomm_all_reduce.py
"""

import sys

import acl
import hcomm
import numpy as np
from hcomm import HCCL_DATA_TYPE_FP32, HCCL_RECV, HCCL_REDUCE_SUM, HCCL_SEND, HcclSendRecvItem

from peerlane.rendezvous import Rendezvous

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
HUGE_FIRST = 0
COUNT = 1_000_003


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


def gradients(rank):
    """Return what a rank has found out."""
    return np.random.default_rng(rank).integers(-999, 999, COUNT).astype(np.float32)


def main():
    """Be one rank."""
    line = Rendezvous.from_environment()
    rank, ranks = line.rank, line.size
    checked(acl.init(), "acl.init")
    call("set_device", rank)
    info = call("HcclGetRootInfo") if rank == 0 else b""
    info = line.gather("root info", info)[0]  # the bytes travel by any means
    comm = call("HcclCommInitRootInfo", ranks, info, rank)

    stream = call("create_stream")
    nbytes = 4 * COUNT
    send, recv, other = (call("malloc", nbytes, HUGE_FIRST) for _ in range(3))
    mine = gradients(rank)
    call("memcpy", send, nbytes, mine.ctypes.data, nbytes, HOST_TO_DEVICE)
    # Nothing here waits: the stream sums, then passes on what it summed from.
    call("HcclAllReduce", send, recv, COUNT, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, comm, stream)
    ring = [
        HcclSendRecvItem(HCCL_SEND, send, COUNT, HCCL_DATA_TYPE_FP32, (rank + 1) % ranks),
        HcclSendRecvItem(HCCL_RECV, other, COUNT, HCCL_DATA_TYPE_FP32, (rank - 1) % ranks),
    ]
    call("HcclBatchSendRecv", ring, len(ring), comm, stream)
    call("synchronize_stream", stream)

    received = np.empty_like(mine)
    call("memcpy", received.ctypes.data, nbytes, recv, nbytes, DEVICE_TO_HOST)
    if not np.array_equal(received, sum(map(gradients, range(ranks)))):
        raise HcommError(f"rank {rank} has another sum")
    call("memcpy", received.ctypes.data, nbytes, other, nbytes, DEVICE_TO_HOST)
    if not np.array_equal(received, gradients((rank - 1) % ranks)):
        raise HcommError(f"rank {rank} has other bytes than its neighbour sent")
    print(f"rank {rank} of {ranks}: {COUNT} gradients summed and passed on, every one verified")
    call("HcclCommDestroy", comm)
    call("destroy_stream", stream)
    for address in (send, recv, other):
        call("free", address)
    checked(acl.finalize(), "acl.finalize")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except HcommError as error:
        sys.exit(str(error))
