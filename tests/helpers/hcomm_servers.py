"""Programs of HCOMM whose ranks are in two servers, and the rank tables of such."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

SERVER = ("10.9.0.1", "10.9.0.2")

#: `made()` makes the communicator that the variables describe; a program of the vendor's does the same.
HEAD = """
import pathlib
import numpy as np
from helpers.hcomm_ranks import CPU, CPU_TS, HCCS, ROCE, WAIT, Rank, code, descs, ok, team_channels, team_desc
from peerlane.dialects import acl, hcomm
from peerlane.dialects.hcomm._comm import channel_of
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ok(acl.rt.set_device(int(os.environ.get("DEVICE") or os.environ["LOCAL_RANK"])))
def made():
    table = os.environ.get("RANK_TABLE_FILE")
    if table:
        return ok(hcomm.HcclCommInitClusterInfo(table, rank))
    file = pathlib.Path(os.environ["ROOT_INFO"])
    if rank == 0:
        file.with_suffix(".new").write_bytes(ok(hcomm.HcclGetRootInfo()))
        file.with_suffix(".new").rename(file)
    ends = time.monotonic() + 30
    while not file.exists() and time.monotonic() < ends:
        time.sleep(0.01)
    return ok(hcomm.HcclCommInitRootInfo(size, file.read_bytes(), rank))
"""

PROGRAM = (
    HEAD
    + """
comm = made()
mine = Rank(rank, size, comm)
here = [each for each in range(size) if each // 2 == rank // 2]
away = [each for each in range(size) if each not in here]
assert ok(hcomm.HcclRankGraphGetLayers(comm)) == ([0, 1], 2)
assert ok(hcomm.HcclRankGraphGetInstSizeListByLayer(comm, 0)) == ([2, 2], 2)
assert ok(hcomm.HcclRankGraphGetInstSizeListByLayer(comm, 1)) == ([4], 1)
assert ok(hcomm.HcclRankGraphGetRanksByLayer(comm, 0)) == (here, 2)
assert ok(hcomm.HcclRankGraphGetRanksByTopoInst(comm, 1, 0)) == ([0, 1, 2, 3], 4)
assert ok(hcomm.HcclRankGraphGetRankSizeByLayer(comm, 1)) == 4
assert ok(hcomm.HcclRankGraphGetTopoTypeByLayer(comm, 0)) == hcomm.COMM_TOPO_1DMESH
assert ok(hcomm.HcclRankGraphGetTopoType(comm, 1, 0)) == hcomm.COMM_TOPO_CLOS
assert code(hcomm.HcclRankGraphGetTopoTypeByLayer(comm, 2)) == 1
assert ok(hcomm.HcclRankGraphGetLinks(comm, 0, rank, away[0])) == ([], 0)
links, count = ok(hcomm.HcclRankGraphGetLinks(comm, 1, rank, away[0]))
assert (count, links[0].linkAttr.linkProtocol) == (1, ROCE)
there = links[0].dstEndpointDesc
assert there.protocol == ROCE and there.loc.device.serverIdx == away[0] // 2
(own,), _ = ok(hcomm.HcclRankGraphGetEndpointDesc(comm, 1, 0, ok(hcomm.HcclRankGraphGetEndpointNum(comm, 1, 0))))
assert own == links[0].srcEndpointDesc
if os.environ.get("RANK_TABLE_FILE"):
    assert there.commAddr.type == hcomm.COMM_ADDR_TYPE_IP_V4
    assert there.commAddr.addr == bytes([192, 0, 2, away[0]])

refused = descs([away[0]], protocol=HCCS)
assert code(hcomm.HcclChannelAcquire(comm, CPU_TS, refused, 1)) == 5
assert "COMM_PROTOCOL_HCCS ends at the server" in hcomm.explain()

extra = ok(acl.rt.malloc(4096, 0))
mem = hcomm.CommMem(hcomm.COMM_MEM_TYPE_DEVICE, extra, 4096)
ok(hcomm.HcclCommMemReg(comm, "extra", mem))
mine.fill(extra, np.full(1024, rank + 1, np.float32))
mine.threads()
channels = mine.channels(protocol=ROCE, notifies=4)
ways = {peer: str(channel_of(each).neutral.route) for peer, each in channels.items()}
address, nbytes = mine.buffer()
seen = []
for peer, channel in channels.items():
    theirs, size_there = ok(hcomm.HcclChannelGetHcclBuffer(comm, channel))
    assert size_there == nbytes
    data = np.random.default_rng(rank * 10 + peer).integers(0, 256, 300_000, np.uint8)
    mine.fill(address, data)
    mine.handshake(channel, 0)
    ok(hcomm.HcommWriteOnThread(mine.thread, channel, theirs + (1 << 20) * (rank + 1), address, data.size))
    ok(hcomm.HcommChannelNotifyRecordOnThread(mine.thread, channel, 1))
    ok(hcomm.HcommChannelNotifyWaitOnThread(mine.thread, channel, 1, WAIT))
    mine.sync()
    wanted = np.random.default_rng(peer * 10 + rank).integers(0, 256, 300_000, np.uint8)
    assert mine.content(address + (1 << 20) * (peer + 1), wanted.size) == wanted.tobytes()
    number, mems, tags = ok(hcomm.HcclChannelGetRemoteMems(comm, channel))
    assert number == 2 and set(tags) == {"HcclBuffer", "extra"}
    at = mems[tags.index("extra")]
    assert (at.size, mems[tags.index("HcclBuffer")].addr) == (4096, theirs)
    ok(hcomm.HcommReadOnThread(mine.thread, channel, address, at.addr, 4096))
    mine.handshake(channel, 2)
    mine.sync()
    assert (np.frombuffer(mine.content(address, 4096), np.float32) == peer + 1).all()
    mine.fill(address, np.full(16, 10 ** rank, np.int32))
    ok(hcomm.HcommWriteReduceOnThread(mine.thread, channel, theirs + (8 << 20), address, 16, 2, 0))
    mine.handshake(channel, 3)
    mine.sync()
    assert code(hcomm.HcommWriteOnThread(mine.thread, channel, theirs + nbytes - 8, address, 64)) == 6
    if peer in away:
        assert acl.rt.memcpy(address, 64, theirs, 64, 3) != 0
others = sum(10 ** each for each in range(size) if each != rank)
assert (np.frombuffer(mine.content(address + (8 << 20), 64), np.int32) == others).all()

peer = (rank + 2) % 4
(card,) = ok(hcomm.HcclChannelAcquire(comm, CPU, descs([peer], protocol=ROCE), 1))
theirs, _ = ok(hcomm.HcclChannelGetHcclBuffer(comm, card))
assert theirs == ok(hcomm.HcclChannelGetHcclBuffer(comm, channels[peer]))[0]
mine.fill(address, bytes([rank + 40]) * 4096)
ok(hcomm.HcommWriteNbi(card, theirs + (9 << 20), address, 4096))
ok(hcomm.HcommChannelFence(card))
ok(hcomm.HcommWriteWithNotifyNbi(card, theirs + (10 << 20), address, 4096, 1))
ok(hcomm.HcommChannelFence(card))
ok(hcomm.HcommChannelNotifyWait(card, 1, WAIT))
for start in (9 << 20, 10 << 20):
    assert mine.content(address + start, 4096) == bytes([peer + 40]) * 4096

def summed(of, ranks):
    memory, result = ok(acl.rt.malloc(1 << 16, 0)), ok(acl.rt.malloc(1 << 16, 0))
    mine.fill(memory, np.full(1 << 14, 10 ** rank, np.int32))
    ok(hcomm.HcclAllReduce(memory, result, 1 << 14, 2, 0, of, mine.stream))
    mine.sync()
    got = np.frombuffer(mine.content(result, 1 << 16), np.int32)
    assert (got == sum(10 ** each for each in ranks)).all()
summed(comm, range(size))
gathered = ok(acl.rt.malloc(4 * 4096, 0))
mine.fill(extra, bytes([rank + 70]) * 4096)
ok(hcomm.HcclAllGather(extra, gathered, 4096, 0, comm, mine.stream))
mine.sync()
assert mine.content(gathered, 4 * 4096) == b"".join(bytes([each + 70]) * 4096 for each in range(size))
if rank < 2:
    ok(hcomm.HcclSend(extra, 4096, 0, peer, comm, mine.stream))
else:
    ok(hcomm.HcclRecv(gathered, 4096, 0, peer, comm, mine.stream))
mine.sync()
assert rank < 2 or mine.content(gathered, 4096) == bytes([peer + 70]) * 4096

pair = sorted([rank, peer])
sub = ok(hcomm.HcclCreateSubCommConfig(comm, 2, pair, 7, pair.index(rank), hcomm.HcclCommConfig()))
assert ok(hcomm.HcclRankGraphGetInstSizeListByLayer(sub, 0)) == ([1, 1], 2)
summed(sub, pair)
ok(hcomm.HcclCommDestroy(sub))

part = ok(acl.rt.malloc(2 << 20, 0))
window = ok(hcomm.HcclCommSymWinRegister(comm, part, 2 << 20, 1))
near = here[1 - here.index(rank)]
mine.fill(part, bytes([rank + 90]) * 64)
ok(hcomm.HcclBarrier(comm, mine.stream))
mine.sync()
assert mine.content(ok(hcomm.HcclSymWinGetPeerPointer(window, 0, near)), 64) == bytes([near + 90]) * 64
assert code(hcomm.HcclSymWinGetPeerPointer(window, 0, peer)) == 5
lsa = ok(hcomm.HcclTeamGetLsaTeam(comm))
assert [ok(hcomm.HcclTeamMemberToRank(comm, lsa, each)) for each in (0, 1)] == here
assert code(hcomm.HcclTeamMemberToRank(comm, lsa, 2)) == 1

world = ok(hcomm.HcclWorldTeamCreate(comm, team_desc(range(size), rank)))
assert code(hcomm.HcclTeamChannelsCreate(comm, world, team_channels())) == 6  # no links in layer 0
world = ok(hcomm.HcclWorldTeamCreate(comm, team_desc(range(size), rank, netLayer=1)))
assert code(hcomm.HcclTeamChannelsCreate(comm, world, team_channels(protocol=HCCS))) == 5
ok(hcomm.HcclTeamChannelsCreate(comm, world, team_channels()))
assert ok(hcomm.HcclChannelQuery(comm, CPU_TS, descs([peer], protocol=ROCE), 1)) == [channels[peer]]
ok(hcomm.HcclBarrier(comm, mine.stream))
mine.sync()
ok(hcomm.HcclCommDestroy(comm))
if os.environ.get("RANK_TABLE_FILE"):
    again = made()
    summed(again, range(size))
    ok(hcomm.HcclCommDestroy(again))
say(" ".join("far" if "tcp/" in ways[each] else ways[each].partition(" ")[0] for each in away))
"""
)


def rank_table(servers: Sequence[int], **changed: Any) -> str:
    """Return a table whose servers have these numbers of ranks."""
    listed, first = [], 0
    for number, count in enumerate(servers):
        devices = [
            {"device_id": str(each), "device_ip": f"192.0.2.{first + each}", "rank_id": str(first + each)}
            for each in range(count)
        ]
        listed.append({"server_id": SERVER[number], "device": devices, "host_nic_ip": "reserve"})
        first += count
    return json.dumps(
        {"version": "1.0", "status": "completed", "server_count": str(len(servers)), "server_list": listed}
        | changed
    )
