"""The layer without a communicator: endpoints, memory exported as bytes, channels that a program polls."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from helpers.hcomm_ranks import CPU_TS, ROCE, WAIT, code, in_threads, ok
from helpers.peers import peer
from helpers.prepared import run_python
from helpers.rank_peers import ask_all
from peerlane.dialects import acl
from peerlane.dialects.hcomm import explain
from peerlane.dialects.hcomm._appointments import Appointment

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]


def endpoint_desc(hcomm: ModuleType, device: int) -> Any:
    desc = hcomm.EndpointDesc()
    ok(hcomm.EndpointDescInit([desc], 1))
    desc.protocol, desc.loc.locType, desc.loc.device.devPhyId = ROCE, 0, device
    return desc


def channel_desc(hcomm: ModuleType, peer: int, *, listens: bool, **fields: Any) -> Any:
    desc = hcomm.HcommChannelDesc()
    ok(hcomm.HcommChannelDescInit([desc], 1))
    assert (desc.header.magicWord, desc.header.version) == (0x0FCF0F0F, 4)
    desc.remoteEndpoint, desc.role, desc.port = endpoint_desc(hcomm, peer), int(listens), 16666
    for name, value in fields.items():
        setattr(desc, name, value)
    return desc


def ready(hcomm: ModuleType, channel: int) -> None:
    deadline = time.monotonic() + WAIT
    while (status := ok(hcomm.HcommChannelGetStatus([channel], 1))[0]) == 1:
        assert time.monotonic() < deadline
    assert status == 0


def exchange(hcomm: ModuleType, number: int, swap: Callable[[int, bytes], bytes]) -> None:
    """Be one of two ends: register and export memory, connect, and write into the other end's memory."""
    ok(acl.rt.set_device(number))
    endpoint = ok(hcomm.HcommEndpointCreate(endpoint_desc(hcomm, number)))
    address = ok(hcomm.HcommMemAlloc(1 << 20))
    ok(acl.rt.memset(address, 1 << 20, number + 1, 1 << 20))
    handle = ok(hcomm.HcommMemReg(endpoint, "mine", hcomm.CommMem(0, address, 1 << 20)))
    description, nbytes = ok(hcomm.HcommMemExport(endpoint, handle))
    assert nbytes == len(description)
    assert ok(hcomm.HcommMemExport(endpoint, handle)) == (description, nbytes)
    theirs = swap(number, description)
    there = ok(hcomm.HcommMemImport(endpoint, theirs, len(theirs)))
    assert (there.type, there.size) == (0, 1 << 20)
    desc = channel_desc(hcomm, 1 - number, listens=number == 0, notifyNum=3, channelName="c")
    (channel,) = ok(hcomm.HcommChannelCreate(endpoint, CPU_TS, [desc], 1))
    (thread,) = ok(hcomm.HcommThreadAlloc(CPU_TS, 1, [0]))
    ready(hcomm, channel)
    for notify in (0, 1, 2):
        if notify == 1:
            ok(hcomm.HcommWriteOnThread(thread, channel, there.addr + (1 << 19), address, 1 << 19))
        ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channel, notify))
        ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, notify, WAIT))
    ok(hcomm.HcommThreadJoin(thread, WAIT))
    content = bytearray(1 << 20)
    import peerlane as pl

    ok(acl.rt.memcpy(pl.as_buffer(content).address, 1 << 20, address, 1 << 20, 2))
    assert content == bytes([number + 1]) * (1 << 19) + bytes([2 - number]) * (1 << 19)
    assert code(hcomm.HcommEndpointDestroy(endpoint)) == 20
    swap(number, b"done")
    ok(hcomm.HcommChannelDestroy([channel], 1))
    assert code(hcomm.HcommChannelDestroy([channel], 1)) == 6
    ok(hcomm.HcommThreadFree([thread], 1))
    ok(hcomm.HcommMemUnimport(endpoint, theirs, len(theirs)))
    ok(hcomm.HcommMemUnreg(endpoint, handle))
    ok(hcomm.HcommEndpointDestroy(endpoint))
    ok(hcomm.HcommMemFree(address))


def test_hcomm_endpoint_channel_between_two_threads_writes_in_both_directions(hcomm: ModuleType) -> None:
    from threading import Barrier

    values: list[bytes] = [b"", b""]
    both = Barrier(2)

    def swap(number: int, value: bytes) -> bytes:
        values[number] = value
        both.wait(WAIT)
        value_of_peer = values[1 - number]
        both.wait(WAIT)
        return value_of_peer

    in_threads([lambda number=number: exchange(hcomm, number, swap) for number in range(2)])  # type: ignore[misc]


def _main() -> None:
    """Be one of two processes under ``peerlane launch``."""
    from peerlane.dialects import hcomm
    from peerlane.rendezvous import Rendezvous

    with Rendezvous.from_environment() as line:
        rounds = iter(range(10))
        exchange(hcomm, line.rank, lambda _, value: line.gather(str(next(rounds)), value)[1 - line.rank])
    print("exchanged")


def test_hcomm_endpoint_channel_between_two_processes_writes_in_both_directions(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PEERLANE_NODE")}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), env.get("PYTHONPATH", "")])
    command = ["-m", "peerlane", "launch", "-n", "2", "--devices", "2", __file__]
    done = run_python(command, timeout=60, env=env)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["[0] exchanged", "[1] exchanged"]), (
        done.stderr
    )
    assert sys.version_info


def test_hcomm_channel_create_exchanges_selected_memories_and_notify_counts(hcomm: ModuleType) -> None:
    def end(number: int) -> None:
        ok(acl.rt.set_device(number))
        endpoint = ok(hcomm.HcommEndpointCreate(endpoint_desc(hcomm, number)))
        address = ok(hcomm.HcommMemAlloc(4096))
        mem = hcomm.CommMem(0, address, 4096)
        handles = [ok(hcomm.HcommMemReg(endpoint, tag, mem)) for tag in ("a", "b")]
        some = {"exchangeAllMems": True} if number else {"memHandles": handles[:1], "memHandleNum": 1}
        desc = channel_desc(hcomm, 1 - number, listens=number == 1, notifyNum=number, **some)
        (channel,) = ok(hcomm.HcommChannelCreate(endpoint, CPU_TS, [desc], 1))
        ready(hcomm, channel)
        from peerlane.dialects.hcomm._comm import channel_of

        neutral = channel_of(channel).neutral
        assert set(neutral.memories) == ({"window", "a"} if number else {"window", "a", "b"})
        assert (neutral.notifies, neutral.peer_notifies) == (number, 1 - number)
        ok(hcomm.HcommChannelDestroy([channel], 1))

    in_threads([lambda number=number: end(number) for number in range(2)])  # type: ignore[misc]


def test_hcomm_channel_get_status_absent_peer_turns_from_connecting_to_failed(
    hcomm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "2")
    looked, meet = threading.Event(), Appointment.meet

    def meet_later(*args: Any) -> Any:
        assert looked.wait(WAIT)
        return meet(*args)

    # The 2 s of the appointment begin after the looks at what still connects.
    monkeypatch.setattr(Appointment, "meet", meet_later)
    ok(acl.rt.set_device(0))
    endpoint = ok(hcomm.HcommEndpointCreate(endpoint_desc(hcomm, 0)))
    (thread,) = ok(hcomm.HcommThreadAlloc(CPU_TS, 1, [0]))
    wanted = channel_desc(hcomm, 1, listens=False, notifyNum=1)
    (channel,) = ok(hcomm.HcommChannelCreate(endpoint, CPU_TS, [wanted], 1))
    assert ok(hcomm.HcommChannelGetStatus([channel], 1)) == [1]
    assert code(hcomm.HcommChannelNotifyRecordOnThread(thread, channel, 0)) == 20
    looked.set()
    deadline = time.monotonic() + WAIT
    while ok(hcomm.HcommChannelGetStatus([channel], 1)) == [1]:
        assert time.monotonic() < deadline
    assert ok(hcomm.HcommChannelGetStatus([channel], 1)) == [3]
    explain()
    assert code(hcomm.HcommChannelNotifyRecordOnThread(thread, channel, 0)) == 20
    assert "could not connect" in explain()
    ok(hcomm.HcommChannelDestroy([channel], 1))


_CONNECTS = """
import helpers.hcomm_ranks as ranks
import test_hcomm_basic as basic
from peerlane.dialects import acl, hcomm
ranks.ok(acl.rt.set_device({number}))
endpoint = ranks.ok(hcomm.HcommEndpointCreate(basic.endpoint_desc(hcomm, {number})))
def connect():
    desc = basic.channel_desc(hcomm, 1 - {number}, listens={listens}, notifyNum=1)
    return ranks.ok(hcomm.HcommChannelCreate(endpoint, ranks.CPU_TS, [desc], 1))[0]
channel = connect()
"""
_READY = "basic.ready(hcomm, channel)"


@pytest.mark.parametrize("restarted", ["server", "client"])
def test_hcomm_channel_create_restarted_peer_connects_again(hcomm: ModuleType, restarted: str) -> None:
    """The surviving end has connected before and the new process has not: they connect again."""
    node = f"name=anew-{os.getpid()}-{restarted},devices=2"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    programs = [_CONNECTS.format(number=0, listens=True), _CONNECTS.format(number=1, listens=False)]
    if restarted == "server":
        programs.reverse()
    with peer(node, PYTHONPATH=path) as stays:
        with peer(node, PYTHONPATH=path) as dies:
            ask_all([stays], programs[0])
            ask_all([dies], programs[1])
            ask_all([stays, dies], _READY)
        stays.run("ranks.ok(hcomm.HcommChannelDestroy([channel], 1)); channel = connect()")
        with peer(node, PYTHONPATH=path) as anew:
            anew.run(programs[1])
            ask_all([stays, anew], _READY)


def test_hcomm_channel_create_after_time_out_connects_again(
    hcomm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok(acl.rt.set_device(0))
    ends = [ok(hcomm.HcommEndpointCreate(endpoint_desc(hcomm, 0))) for _ in range(2)]

    def create(listens: bool) -> int:
        desc = channel_desc(hcomm, 0, listens=listens, notifyNum=1)
        (channel,) = ok(hcomm.HcommChannelCreate(ends[listens], CPU_TS, [desc], 1))
        assert type(channel) is int
        return channel

    for early in (True, False):
        monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "1")
        channel = create(early)
        deadline = time.monotonic() + WAIT
        while ok(hcomm.HcommChannelGetStatus([channel], 1)) == [1]:
            assert time.monotonic() < deadline
        ok(hcomm.HcommChannelDestroy([channel], 1))
        monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "60")
        cancelled = create(early)
        ok(hcomm.HcommChannelDestroy([cancelled], 1))
        channels = [create(listens) for listens in (early, not early)]
        for each in channels:
            ready(hcomm, each)
        ok(hcomm.HcommChannelDestroy(channels, 2))


def test_hcomm_channel_create_equal_descriptions_pair_in_order(hcomm: ModuleType) -> None:
    ok(acl.rt.set_device(0))
    handles: list[list[int]] = []
    for listens in (False, True):
        endpoint = ok(hcomm.HcommEndpointCreate(endpoint_desc(hcomm, 0)))
        wanted = [channel_desc(hcomm, 0, listens=listens, notifyNum=count) for count in (1, 2, 3)]
        handles.append(ok(hcomm.HcommChannelCreate(endpoint, CPU_TS, wanted, 3)))
    from peerlane.dialects.hcomm._comm import channel_of

    for both in zip(*handles, strict=True):
        for channel in both:
            ready(hcomm, channel)
        counts = [channel_of(channel).neutral for channel in both]
        assert {(each.notifies, each.peer_notifies) for each in counts} == {
            (handles[0].index(both[0]) + 1,) * 2
        }
    ok(hcomm.HcommChannelDestroy([*handles[0], *handles[1]], 6))


def test_hcomm_endpoint_create_struct_reused_by_program_keeps_first_endpoint(hcomm: ModuleType) -> None:
    """A program uses one struct for one endpoint after the other."""
    ok(acl.rt.set_device(0))
    desc = endpoint_desc(hcomm, 0)
    endpoint = ok(hcomm.HcommEndpointCreate(desc))
    ok(acl.rt.set_device(1))
    desc.loc.device.devPhyId = 1
    other = ok(hcomm.HcommEndpointCreate(desc))
    channels = []
    for number, each in enumerate((endpoint, other)):
        wanted = channel_desc(hcomm, 1 - number, listens=number == 0, notifyNum=1)
        channels += ok(hcomm.HcommChannelCreate(each, CPU_TS, [wanted], 1))
    for channel in channels:
        ready(hcomm, channel)
    ok(hcomm.HcommChannelDestroy(channels, 2))


def test_hcomm_endpoint_and_channel_create_bad_descriptions_return_codes(hcomm: ModuleType) -> None:
    assert code(hcomm.HcommEndpointCreate(endpoint_desc(hcomm, 0))) == 15
    ok(acl.rt.set_device(0))
    for changed, wanted in (({"protocol": -1}, 1), ({"protocol": 1000}, 5), ({"protocol": 55}, 1)):
        desc = endpoint_desc(hcomm, 0)
        for name, value in changed.items():
            setattr(desc, name, value)
        assert code(hcomm.HcommEndpointCreate(desc)) == wanted
    assert code(hcomm.HcommEndpointCreate(endpoint_desc(hcomm, 1))) == 1
    desc = endpoint_desc(hcomm, 0)
    desc.loc.locType = 2
    assert code(hcomm.HcommEndpointCreate(desc)) == 1
    endpoint = ok(hcomm.HcommEndpointCreate(endpoint_desc(hcomm, 0)))
    bad: list[tuple[dict[str, Any], int]] = [
        *[({"role": -1}, 1), ({"notifyNum": 65}, 1), ({"port": 65536}, 1), ({"socket": 5}, 5)],
        *[
            ({"channelName": "x" * 192}, 1),
            ({"memHandles": [5], "memHandleNum": 1}, 6),
            ({"notifyNum": "x"}, 1),
        ],
    ]
    for fields, wanted in bad:
        one = channel_desc(hcomm, 1, listens=True)
        for name, value in fields.items():
            setattr(one, name, value)
        assert code(hcomm.HcommChannelCreate(endpoint, CPU_TS, [one], 1)) == wanted, fields
    assert code(hcomm.HcommChannelCreate(endpoint, CPU_TS, [hcomm.HcommChannelDesc()], 1)) == 1


if __name__ == "__main__":
    _main()
