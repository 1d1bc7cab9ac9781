"""Each of two ranks writes to the other by HCOMM, and has two threads there."""

import os

os.environ.setdefault("HCCL_BUFFSIZE", "1")

import acl
import hcomm

from peerlane.rendezvous import Rendezvous

PART, READY, SECONDS = 4096, 0, 30


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
descs = [hcomm.HcclChannelDesc()]
ok(hcomm.HcclChannelDescInit(descs, 1))
descs[0].remoteRank, descs[0].channelProtocol, descs[0].notifyNum = 1 - rank, hcomm.COMM_PROTOCOL_HCCS, 1
[channel] = ok(hcomm.HcclChannelAcquire(comm, hcomm.COMM_ENGINE_CPU_TS, descs, 1))
theirs = ok(hcomm.HcclChannelGetHcclBuffer(comm, channel))[0]
mine, _ = ok(hcomm.HcclGetHcclBuffer(comm))
streams = [ok(acl.rt.create_stream()) for _ in range(2)]
first, second = (
    ok(hcomm.HcclThreadAcquireWithStream(comm, hcomm.COMM_ENGINE_CPU_TS, each, 1)) for each in streams
)
source, target = (ok(acl.rt.malloc(PART, 0)) for _ in range(2))
ok(acl.rt.memset(source, PART, 1, PART))
ok(hcomm.HcommWriteOnThread(first, channel, theirs, source, PART))
ok(hcomm.HcommChannelNotifyRecordOnThread(second, channel, READY))
ok(hcomm.HcommChannelNotifyWaitOnThread(first, channel, READY, SECONDS))
ok(hcomm.HcommLocalCopyOnThread(first, target, mine, PART))
for each in streams:
    ok(acl.rt.synchronize_stream(each))
line.barrier("end")
