"""Communicators over several servers: on several machines, and several servers on one machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from helpers.absent import needs_engine
from helpers.hcomm_ranks import CPU_TS, UB_CTP, code, descs, in_threads, ok
from helpers.hcomm_servers import HEAD, PROGRAM, rank_table
from helpers.namespaces import OtherNetwork, other_network
from helpers.ports import free_port
from helpers.two_machines import Environment, ended, run, started, torchrun
from peerlane.dialects import acl, hcomm

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(180)]


@pytest.fixture
def network() -> Iterator[OtherNetwork]:
    with other_network() as environ:
        yield environ


def environments(machines: str, **more: str) -> list[Environment]:
    """Return what torchrun tells the ranks of these machines."""
    settings = {
        "UCX_TLS": "tcp,self",
        "HCCL_BUFFSIZE": "16",
        "HCCL_CONNECT_TIMEOUT": "40",
        "PYTHONPATH": PATH,
        **more,
    }
    return torchrun(machines, free_port(), **settings)


PATH = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])


def described(how: str, folder: Path, servers: Sequence[int] = (2, 2)) -> dict[str, str]:
    if how == "root info":
        return {"ROOT_INFO": str(folder / "root-info")}
    path = folder / "table.json"
    path.write_text(rank_table(servers))
    return {"RANK_TABLE_FILE": str(path)}


@needs_engine
@pytest.mark.parametrize("how", ["rank table", "root info"])
def test_hcomm_program_of_two_machines_runs_unmodified(
    network: OtherNetwork, tmp_path: Path, how: str
) -> None:
    environs = environments("aabb", **described(how, tmp_path))
    for environ, machine in zip(environs, "aabb", strict=True):
        environ["MASTER_ADDR"] = network.near
        environ["PEERLANE_INTERFACE"] = network.interfaces[machine == "b"]
    ends = run(PROGRAM, environs, [[], [], network.prefix, network.prefix])
    assert ends == [(0, "far far\n", "")] * 4


def test_hcomm_program_of_two_servers_on_one_machine_runs_unmodified(tmp_path: Path) -> None:
    environs = environments("aaaa", PEERLANE_UCX="/nowhere", **described("rank table", tmp_path))
    for rank, environ in enumerate(environs):
        environ["DEVICE"] = str(rank % 2)  # two ranks share a device
    ends = run(PROGRAM, environs)
    assert [(code, errors) for code, _, errors in ends] == [(0, "")] * 4
    assert all("far" not in output for _, output, _ in ends)


@pytest.mark.parametrize(
    ("servers", "changed", "cause"),
    [
        ([1, 1], {"server_id": "10.9.0.1"}, "is listed twice"),
        ([1, 1], {"server_id": None}, "server_id is 'None'"),
        ([1, 1], {"device": []}, "the ranks are [0]"),
        ([2], {"server_id": 7}, "server_id is '7'"),
    ],
)
def test_hcomm_comm_init_cluster_info_impossible_servers_return_1(
    tmp_path: Path, servers: list[int], changed: dict[str, Any], cause: str
) -> None:
    content = json.loads(rank_table(servers))
    content["server_list"][-1] |= changed
    if not changed.get("device", True):
        content["server_list"][0]["device"][0]["rank_id"] = "1"
        cause = "the ranks are [1]"
    assert cause in refusal_of(tmp_path, content)


@pytest.mark.parametrize("address", [None, "", "reserve", "::1", 7, "192.0.2.1.1"])
def test_hcomm_comm_init_cluster_info_several_servers_need_addresses(tmp_path: Path, address: object) -> None:
    content = json.loads(rank_table([1, 1]))
    content["server_list"][1]["device"][0]["device_ip"] = address
    assert "device_ip of rank 1 is" in refusal_of(tmp_path, content)


def refusal_of(folder: Path, content: object) -> str:
    """Return what a refused table's call explains."""
    path = folder / "table.json"
    path.write_text(json.dumps(content))
    ok(acl.rt.set_device(0))
    hcomm.explain()
    assert code(hcomm.HcclCommInitClusterInfo(str(path), 0)) == 1
    explanation: str = hcomm.explain()
    return explanation


def test_hcomm_comm_init_cluster_info_server_on_two_machines_returns_1(tmp_path: Path) -> None:
    program = (
        HEAD
        + """
result = hcomm.HcclCommInitClusterInfo(os.environ["RANK_TABLE_FILE"], rank)
say(code(result), hcomm.explain())
"""
    )
    environs = environments("abb", **described("rank table", tmp_path, [2, 1]))
    for environ, device in zip(environs, "010", strict=True):
        environ["DEVICE"] = device
    ends = run(program, environs)
    assert [(code, errors) for code, _, errors in ends] == [(0, "")] * 3
    for _, output, _ in ends:
        assert output.startswith("1 ") and "'a' and 'b'" in output and "server '10.9.0.1'" in output


def test_hcomm_comm_init_root_info_unknown_address_of_other_machine_returns_19(tmp_path: Path) -> None:
    program = (
        HEAD
        + """
del os.environ["MASTER_ADDR"]
os.environ.pop("PEERLANE_INTERFACE", None)
if rank == 0:
    pathlib.Path(os.environ["ROOT_INFO"]).write_bytes(ok(hcomm.HcclGetRootInfo()))
    say("made")
    time.sleep(60)
info = pathlib.Path(os.environ["ROOT_INFO"]).read_bytes()
say(code(hcomm.HcclCommInitRootInfo(2, info, 1)), hcomm.explain())
"""
    )
    environs = environments("ab", **described("root info", tmp_path))
    with started(program, environs[:1]) as (root,):
        assert root.stdout and root.stdout.readline() == "made\n"
        ((left, output, errors),) = run(program, environs[1:])
    assert (left, errors, output[:3]) == (0, "", "19 "), output
    assert "MASTER_ADDR or PEERLANE_INTERFACE" in output


def test_hcomm_root_info_nothing_listens_on_one_machine(
    hcomm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where other machines may come a port is open: not under a launcher of one machine, nor by default."""
    ok(acl.rt.set_device(0))
    for name in ("MASTER_ADDR", "PEERLANE_INTERFACE"):
        monkeypatch.delenv(name, raising=False)
    before = listeners()
    ok(hcomm.HcclGetRootInfo())
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    ok(hcomm.HcclGetRootInfo())
    assert listeners() == before
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    ok(hcomm.HcclGetRootInfo())
    assert listeners() == before + 1


def listeners() -> int:
    """Return how many TCP sockets of this process listen."""
    own = {os.path.realpath(each).rpartition("/")[2] for each in Path("/proc/self/fd").iterdir()}
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum(row[3] == "0A" and f"socket:[{row[9]}]" in own for row in rows)


@needs_engine
def test_hcomm_killed_rank_of_other_machine_is_named(tmp_path: Path) -> None:
    program = (
        HEAD
        + """
comm = made()
mine = Rank(rank, size, comm)
mine.threads()
(channel,) = mine.channels(protocol=ROCE).values()
mine.handshake(channel, 0)
mine.sync()
say("ready")
if rank == 1:
    time.sleep(60)
begun = time.monotonic()
ok(hcomm.HcommChannelNotifyWaitOnThread(mine.thread, channel, 1, WAIT))
ret = acl.rt.synchronize_stream(mine.stream)
say(ret, time.monotonic() - begun < 20, "rank 1" in (acl.get_recent_err_msg() or ""))
"""
    )
    environs = environments("ab", **described("rank table", tmp_path, [1, 1]))
    with started(program, environs) as children:
        for child in children:
            assert child.stdout and child.stdout.readline() == "ready\n"
        children[1].kill()
        (survivor, *_) = ended(children)
    assert survivor == (0, "507057 True True\n", "")


@needs_engine
@pytest.mark.any_schedule  # under `seeded` the write arrives later, and the refusal too
def test_hcomm_memory_freed_on_other_machine_is_refused(tmp_path: Path) -> None:
    program = (
        HEAD
        + """
comm = made()
mine = Rank(rank, size, comm)
extra = ok(acl.rt.malloc(4096, 0))
handle = ok(hcomm.HcclCommMemReg(comm, "extra", hcomm.CommMem(hcomm.COMM_MEM_TYPE_DEVICE, extra, 4096)))
mine.threads()
(channel,) = mine.channels(protocol=ROCE).values()
_, mems, tags = ok(hcomm.HcclChannelGetRemoteMems(comm, channel))
there = mems[tags.index("extra")].addr
if rank == 0:
    ok(acl.rt.free(extra))
mine.handshake(channel, 0)
mine.sync()
if rank == 1:
    address, _ = mine.buffer()
    ret = hcomm.HcommWriteOnThread(mine.thread, channel, there, address, 64) or acl.rt.synchronize_stream(mine.stream)
    say(ret != 0, "'extra'" in acl.get_recent_err_msg())
    address, _ = mine.buffer()
"""
    )
    environs = environments("ab", **described("rank table", tmp_path, [1, 1]))
    ends = run(program, environs)
    assert [(code, errors) for code, _, errors in ends] == [(0, "")] * 2
    assert ends[1][1] == "True True\n"


BASIC = """
import numpy as np
from helpers.hcomm_ranks import CPU, ROCE, WAIT, code, ok
from peerlane.dialects import acl, hcomm
rank = int(os.environ["RANK"])
ok(acl.rt.set_device(0))
def end(number):
    made = hcomm.EndpointDesc()
    ok(hcomm.EndpointDescInit([made], 1))
    made.protocol, made.loc.locType = ROCE, hcomm.ENDPOINT_LOC_TYPE_DEVICE
    made.loc.device.devPhyId = 0
    made.commAddr.type, made.commAddr.addr = hcomm.COMM_ADDR_TYPE_IP_V4, bytes([192, 0, 2, number])
    return made
endpoint = ok(hcomm.HcommEndpointCreate(end(rank)))
memory = ok(hcomm.HcommMemAlloc(1 << 20))
handle = ok(hcomm.HcommMemReg(endpoint, "mine", hcomm.CommMem(hcomm.COMM_MEM_TYPE_DEVICE, memory, 1 << 20)))
desc = hcomm.HcommChannelDesc()
ok(hcomm.HcommChannelDescInit([desc], 1))
desc.remoteEndpoint, desc.notifyNum, desc.exchangeAllMems = end(1 - rank), 2, True
desc.role = hcomm.HCOMM_SOCKET_ROLE_CLIENT if rank else hcomm.HCOMM_SOCKET_ROLE_SERVER
(channel,) = ok(hcomm.HcommChannelCreate(endpoint, CPU, [desc], 1))
ends = time.monotonic() + 40
while ok(hcomm.HcommChannelGetStatus([channel], 1)) == [1] and time.monotonic() < ends:
    time.sleep(0.01)
assert ok(hcomm.HcommChannelGetStatus([channel], 1)) == [0], hcomm.explain()
"""


@needs_engine
def test_hcomm_channel_create_joins_endpoints_of_two_machines() -> None:
    program = (
        BASIC
        + """
from peerlane.dialects.hcomm._comm import channel_of
link = channel_of(channel)
(there, nbytes), = [found for tag, found in link.remote.listed().items() if tag == "mine"]
ok(acl.rt.memset(memory, 1 << 20, rank + 5, 4096))
ok(hcomm.HcommWriteWithNotifyNbi(channel, there + 8192, memory, 4096, 1))
ok(hcomm.HcommChannelFence(channel))
ok(hcomm.HcommChannelNotifyWait(channel, 1, WAIT))
found = bytearray(4096)
import peerlane
ok(acl.rt.memcpy(peerlane.as_buffer(found).address, 4096, memory + 8192, 4096, 2))
assert found == bytes([6 - rank]) * 4096
ok(hcomm.HcommChannelNotifyRecord(channel, 0))
ok(hcomm.HcommChannelNotifyWait(channel, 0, WAIT))
say("tcp/" in str(link.neutral.route))
ok(hcomm.HcommChannelDestroy([channel], 1))
"""
    )
    assert run(program, environments("ab")) == [(0, "True\n", "")] * 2


def test_hcomm_mem_import_memory_of_other_machine_returns_5(tmp_path: Path) -> None:
    file = tmp_path / "description"
    program = (
        BASIC.partition("desc = hcomm.HcommChannelDesc()")[0]
        + f"""
import pathlib
file = pathlib.Path({str(file)!r})
if rank == 0:
    file.write_bytes(ok(hcomm.HcommMemExport(endpoint, handle))[0])
    say("exported")
    time.sleep(60)
said = file.read_bytes()
say(code(hcomm.HcommMemImport(endpoint, said, len(said))), hcomm.explain())
"""
    )
    environs = environments("ab")
    with started(program, environs[:1]) as (exporter,):
        assert exporter.stdout and exporter.stdout.readline() == "exported\n"
        ((left, output, errors),) = run(program, environs[1:])
    assert (left, errors, output[:2]) == (0, "", "5 ") and "exchangeAllMems" in output


def test_hcomm_rank_graph_of_unified_bus_has_uboe_before_roce_between_servers(
    hcomm_on: Callable[..., ModuleType], tmp_path: Path
) -> None:
    hcomm = hcomm_on("profile=ascend-950,devices=2,memory=64MiB")
    path = tmp_path / "table.json"
    path.write_text(rank_table([1, 1]))

    def rank(number: int) -> None:
        ok(acl.rt.set_device(0))
        comm = ok(hcomm.HcclCommInitClusterInfo(str(path), number))
        links, count = ok(hcomm.HcclRankGraphGetLinks(comm, 1, number, 1 - number))
        wanted = [hcomm.COMM_PROTOCOL_UBOE, hcomm.COMM_PROTOCOL_ROCE]
        assert ([each.linkAttr.linkProtocol for each in links], count) == (wanted, 2)
        assert ok(hcomm.HcclRankGraphGetEndpointNum(comm, 1, 0)) == 2
        ends, _ = ok(hcomm.HcclRankGraphGetEndpointDesc(comm, 1, 0, 2))
        assert [each.protocol for each in ends] == wanted
        assert code(hcomm.HcclRankGraphGetEndpointDesc(comm, 1, 0, 1)) == 1
        (channel,) = ok(hcomm.HcclChannelAcquire(comm, CPU_TS, descs([1 - number], protocol=wanted[0]), 1))
        assert channel
        in_server = ok(hcomm.HcclRankGraphGetEndpointDesc(comm, 0, 0, 1))[0][0]
        assert (in_server.protocol, in_server.commAddr.type) == (UB_CTP, hcomm.COMM_ADDR_TYPE_ID)
        ok(hcomm.HcclCommDestroy(comm))

    in_threads([lambda number=number: rank(number) for number in (0, 1)])  # type: ignore[misc]
