"""Each of four ranks writes its part to all others by HCOMM, and copies theirs."""

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
peers = [peer for peer in range(size) if peer != rank]
descs = [hcomm.HcclChannelDesc() for _ in peers]
ok(hcomm.HcclChannelDescInit(descs, len(descs)))
for desc, peer in zip(descs, peers, strict=True):
    desc.remoteRank, desc.channelProtocol, desc.notifyNum = peer, hcomm.COMM_PROTOCOL_HCCS, 1
channels = dict(
    zip(peers, ok(hcomm.HcclChannelAcquire(comm, hcomm.COMM_ENGINE_CPU_TS, descs, len(descs))), strict=True)
)
mine, _ = ok(hcomm.HcclGetHcclBuffer(comm))
stream = ok(acl.rt.create_stream())
thread = ok(hcomm.HcclThreadAcquireWithStream(comm, hcomm.COMM_ENGINE_CPU_TS, stream, 1))
source, target = (ok(acl.rt.malloc(size * PART, 0)) for _ in range(2))
ok(acl.rt.memset(source, PART, rank + 1, PART))
at = rank * PART if rank < 3 else (rank - 1) * PART + PART // 2
for peer in peers:
    theirs = ok(hcomm.HcclChannelGetHcclBuffer(comm, channels[peer]))[0]
    ok(hcomm.HcommWriteOnThread(thread, channels[peer], theirs + at, source, PART))
    ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channels[peer], READY))
for peer in peers:
    ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channels[peer], READY, SECONDS))
    ok(hcomm.HcommLocalCopyOnThread(thread, target + peer * PART, mine + peer * PART, PART))
ok(acl.rt.synchronize_stream(stream))
line.barrier("end")
