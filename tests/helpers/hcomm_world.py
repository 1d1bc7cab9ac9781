"""Two ranks in one process, with an object by name for each argument of the calls of HCOMM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.hcomm_ranks import (
    CPU,
    CPU_TS,
    HCCS,
    ROCE,
    UB_CTP,
    descs,
    in_threads,
    ok,
    team_channels,
    team_desc,
)
from peerlane.dialects import acl, hcomm


class World:
    """What a call may be given: ``world["comm"]`` is rank 0's communicator, ``world["gone"]`` one that was destroyed.

    Device 0 is set in the thread that makes it.
    """

    def __init__(self, folder: Path) -> None:
        ok(acl.rt.set_device(0))
        comm, other = ok(hcomm.HcclCommInitAll(2, [0, 1]))
        self.values: dict[str, Any] = {"comm": comm, "other comm": other}
        self.values["gone"] = self._gone()
        self.values["alone"] = ok(hcomm.HcclCommInitAll(1, [0]))[0]
        stream = ok(acl.rt.create_stream())
        address, size = ok(hcomm.HcclGetHcclBuffer(comm))
        self.values |= {
            "stream": stream,
            "thread": ok(hcomm.HcclThreadAcquireWithStream(comm, CPU_TS, stream, 2)),
            "cpu": ok(hcomm.HcclThreadAcquireWithStream(comm, CPU, stream, 2)),
            "slave": ok(hcomm.HcclThreadAcquire(comm, CPU_TS, 1, 1))[0],
            "here": address,
            "size": size,
            "end": address + size - 4,
            "host": id(self),
            "stray": ok(acl.rt.malloc(4096, 0)),
            "notify": ok(acl.rt.get_notify_id(ok(acl.rt.create_notify(0)))),
            "name": ok(hcomm.HcclGetCommName(comm)),
            "config": hcomm.HcclCommConfig(),
            "info": ok(hcomm.HcclGetRootInfo()),
            "table": str(folder / "table.json"),
            "descs": descs([1]),
            "raw descs": [hcomm.HcclChannelDesc()],
            "links": [hcomm.CommLink()],
            "endpoints": [hcomm.EndpointDesc()],
            "thread configs": [hcomm.ThreadConfig(1)],
            "transfers": [hcomm.HcommBatchTransferDesc()],
            "stray end": self._stray_end(),
            "items": [hcomm.HcclSendRecvItem(kind, address, 1, 4, 0) for kind in (0, 1)],
            "odd items": [hcomm.HcclSendRecvItem(2, address, 1, 4, 0)],
            "far items": [hcomm.HcclSendRecvItem(0, address, 1, 4, 1)],
        }
        entry = {"device_id": "0", "rank_id": "0"}
        (folder / "table.json").write_text(json.dumps({"server_list": [{"device": [entry]}]}))
        pair = in_threads([lambda: self._channels(comm, 1), lambda: self._channels(other, 0)])
        self.values["channel"], self.values["by card"], _ = pair[0]
        there, _ = ok(hcomm.HcclChannelGetHcclBuffer(comm, self.values["channel"]))
        self.values |= {"there": there, "their end": there + size - 4}
        self.values["symmetric"] = ok(hcomm.HcclCommSymWinRegister(comm, self["stray"], 4096, 1))
        self._write_transfers()
        self._basic()
        self._teams()

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def _stray_end(self) -> int:
        return int(ok(acl.rt.malloc(4096, 0))) + 4092

    def _gone(self) -> int:
        comm = ok(hcomm.HcclCommInitAll(1, [0]))[0]
        ok(hcomm.HcclCommDestroy(comm))
        return int(comm)

    def _channels(self, comm: int, peer: int) -> list[int]:
        ok(acl.rt.set_device(1 - peer))
        channels = [
            ok(hcomm.HcclChannelAcquire(comm, engine, descs([peer], protocol=protocol, notifies=2), 1))[0]
            for engine, protocol in ((CPU_TS, 0), (CPU, ROCE), (CPU_TS, UB_CTP))
        ]
        ok(acl.rt.reset_device(1 - peer))
        return channels

    def _teams(self) -> None:
        comm, other = self["comm"], self["other comm"]
        for name, changed in {
            "team desc": {},
            "raw team desc": {"header": hcomm.CommAbiHeader()},
            "no ranks": {"rankIds": None},
            "few ranks": {"rankIds": [0]},
            "odd ranks": {"rankIds": "01"},
            "twice": {"rankIds": [0, 0]},
            "far ranks": {"rankIds": [0, 2]},
            "not there": {"rankIds": [1, 2]},
            "one rank": {"rankNum": 1},
            "many ranks": {"rankNum": 3},
            "not this rank": {"selfRankId": 1},
            "far layer": {"netLayer": 3},
            "no protocol": {"protocol": 99},
            "protocol of a plugin": {"protocol": 1000},
            "by HCCS": {"protocol": 0},
            "shared": {"isSharedQueue": 1},
            "by kernels": {"engine": hcomm.COMM_ENGINE_AIV},
            "in layer 1": {"netLayer": 1},
            "odd needs": {"requirement": None},
        }.items():
            self.values[name] = team_desc([0, 1], 0, **{"protocol": UB_CTP, **changed})
        for name, needs in {"signals": (1, 0, 1), "counters": (0, 1, 1), "no barrier": (0, 0, 0)}.items():
            self.values[name] = team_desc([0, 1], 0)
            self.values[name].requirement = hcomm.HcommTeamSyncMemRequirement(*needs)
        self.values["other team desc"] = team_desc([0, 1], 1, protocol=UB_CTP)
        team = self.values["team"] = ok(hcomm.HcclWorldTeamCreate(comm, team_desc([0, 1], 0)))
        theirs = self.values["other team"] = ok(hcomm.HcclWorldTeamCreate(other, team_desc([0, 1], 1)))
        self.values["sub team"] = ok(hcomm.HcclSubTeamCreate(team, team_desc([1, 0], 0)))
        self.values["UB team"] = ok(hcomm.HcclWorldTeamCreate(comm, self["team desc"]))
        self.values["far team"] = ok(hcomm.HcclWorldTeamCreate(comm, self["in layer 1"]))
        self.values["team mem"] = hcomm.CommMem(0, ok(acl.rt.malloc(4096, 0)), 4096)
        self.values["lsa"] = ok(hcomm.HcclTeamGetLsaTeam(comm))
        for name, args in {
            "mem without address": (0, 0, 64),
            "mem without size": (0, self["stray"], 0),
            "host mem": (1, self["stray"], 64),
            "odd mem": (0, self["host"], 64),
            "long mem": (0, self["stray"], 4097),
        }.items():
            self.values[name] = hcomm.CommMem(*args)
        self.values["team window"] = ok(hcomm.HcclTeamWindowRegister(comm, team, self["team mem"], 0))
        ok(acl.rt.set_device(1))
        memory = hcomm.CommMem(0, ok(acl.rt.malloc(4096, 0)), 4096)
        self.values["other team window"] = ok(hcomm.HcclTeamWindowRegister(other, theirs, memory, 0))
        self.values["mem elsewhere"] = memory
        ok(acl.rt.set_device(0))
        self.values["team channels"] = team_channels()
        in_threads(
            [
                lambda: ok(hcomm.HcclTeamChannelsCreate(comm, team, team_channels(protocol=HCCS))),
                lambda: ok(hcomm.HcclTeamChannelsCreate(other, theirs, team_channels(protocol=HCCS))),
            ]
        )
        self.values["silent window"] = ok(
            hcomm.HcclTeamWindowRegister(comm, self["UB team"], self["team mem"], 0)
        )
        for name, changed in {
            "raw team channels": {"header": hcomm.CommAbiHeader()},
            "no channels": {"channelCnt": 0},
            "many channels": {"channelCnt": 2},
            "many notifies": {"notifyNum": 65},
            "no engine": {"engine": -1},
            "of kernels": {"engine": hcomm.COMM_ENGINE_AIV},
            "of CCU": {"engine": hcomm.COMM_ENGINE_CCU},
            "of another protocol": {"protocol": ROCE},
            "of no protocol": {"protocol": 99},
            "of a plugin": {"protocol": 1000},
        }.items():
            self.values[name] = team_channels(**changed)

    def _write_transfers(self) -> None:
        write = self["transfers"][0].transferInfo.write
        write.dst, write.src, write.len = self["there"], self["here"], 4

    def _basic(self) -> None:
        desc = hcomm.EndpointDesc(protocol=ROCE)
        endpoint = ok(hcomm.HcommEndpointCreate(desc))
        mem = hcomm.CommMem(hcomm.COMM_MEM_TYPE_DEVICE, self["stray"], 4096)
        handle = ok(hcomm.HcommMemReg(endpoint, "tag", mem))
        exported, nbytes = ok(hcomm.HcommMemExport(endpoint, handle))
        wanted = [hcomm.HcommChannelDesc()]
        ok(hcomm.HcommChannelDescInit(wanted, 1))
        wanted[0].role, wanted[0].remoteEndpoint = hcomm.HCOMM_SOCKET_ROLE_SERVER, desc
        self.values |= {
            "endpoint desc": desc,
            "endpoint": endpoint,
            "mem": mem,
            "memory": handle,
            "said": exported,
            "said bytes": nbytes,
            "basic descs": wanted,
            "basic thread": ok(hcomm.HcommThreadAlloc(CPU_TS, 1, [1]))[0],
        }


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """Make a World; its objects end with the node."""
    yield World(folder)
