"""Each of three ranks gives its part to the next one, by HCOMM, in three rounds."""

import os

os.environ.setdefault("HCCL_BUFFSIZE", "1")

import acl
import hcomm
import numpy as np

from peerlane.rendezvous import Rendezvous

READY, DONE, ROUNDS, PART = 0, 1, 3, 256


def ok(result):
    """Return the outputs of a call that succeeded."""
    *outputs, code = result if isinstance(result, tuple) else (result,)
    if code:
        raise SystemExit(f"code {code}: {hcomm.explain() or acl.get_recent_err_msg()}")
    return outputs[0] if len(outputs) == 1 else outputs


line = Rendezvous.from_environment()
rank, size = line.rank, line.size
ok(acl.rt.set_device(rank))
info = line.gather("info", ok(hcomm.HcclGetRootInfo()) if rank == 0 else b"")[0]
comm = ok(hcomm.HcclCommInitRootInfo(size, info, rank))
after, before = (rank + 1) % size, (rank - 1) % size
peers = sorted({after, before})
descs = [hcomm.HcclChannelDesc() for _ in peers]
ok(hcomm.HcclChannelDescInit(descs, len(descs)))
for desc, peer in zip(descs, peers, strict=True):
    desc.remoteRank, desc.channelProtocol, desc.notifyNum = peer, hcomm.COMM_PROTOCOL_HCCS, 4
channels = dict(
    zip(peers, ok(hcomm.HcclChannelAcquire(comm, hcomm.COMM_ENGINE_CPU_TS, descs, len(descs))), strict=True)
)
theirs = ok(hcomm.HcclChannelGetHcclBuffer(comm, channels[after]))[0]
mine, _ = ok(hcomm.HcclGetHcclBuffer(comm))
stream = ok(acl.rt.create_stream())
thread = ok(hcomm.HcclThreadAcquireWithStream(comm, hcomm.COMM_ENGINE_CPU_TS, stream, 4))
data = np.full(PART, rank, dtype=np.uint8)
source, target = int(ok(acl.rt.malloc(PART, 0))), int(ok(acl.rt.malloc(PART, 0)))
ok(acl.rt.memcpy(source, PART, data.ctypes.data, PART, 1))

for turn in range(ROUNDS):
    if turn > 1:
        ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channels[after], DONE, 30))
    ok(hcomm.HcommWriteOnThread(thread, channels[after], theirs, source, PART))
    ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channels[after], READY))
    ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channels[before], READY, 30))
    ok(hcomm.HcommLocalCopyOnThread(thread, target, mine, PART))
    if turn + 1 < ROUNDS:
        ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channels[before], DONE))
ok(acl.rt.synchronize_stream(stream))
line.barrier("end")
