"""Communicators: root info, rank tables, communicators of some ranks, and their ends."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import peerlane as pl
from helpers.hcomm_ranks import CPU_TS, WAIT, Rank, code, descs, in_threads, ok, run_ranks
from helpers.launched import until
from helpers.peers import peer as process
from helpers.promised import overdue
from peerlane.dialects import acl
from peerlane.dialects.hcomm import explain

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]


def on(device: int) -> None:
    ok(acl.rt.set_device(device))


def exchange(rank: Rank, hcomm: ModuleType) -> None:
    """Write the rank into the buffer of every other rank, and check the bytes that they wrote."""
    rank.threads()
    channels = rank.channels()
    address, _ = rank.buffer()
    rank.fill(address, bytes([rank.number + 1]) * 8)
    for peer, channel in channels.items():
        there, _ = ok(hcomm.HcclChannelGetHcclBuffer(rank.comm, channel))
        rank.handshake(channel, 0)
        ok(hcomm.HcommWriteOnThread(rank.thread, channel, there + 8 * (rank.number + 1), address, 8))
        rank.handshake(channel, 1)
        rank.sync()
        assert rank.content(address + 8 * (peer + 1), 8) == bytes([peer + 1]) * 8


def test_hcomm_comm_init_root_info_bad_or_used_info_returns_1(hcomm: ModuleType) -> None:
    assert code(hcomm.HcclGetRootInfo()) == 15  # no device is set
    on(0)
    first, second = ok(hcomm.HcclGetRootInfo()), ok(hcomm.HcclGetRootInfo())
    assert len(first) == hcomm.HCCL_ROOT_INFO_BYTES == 4108
    assert first != second and isinstance(first, bytes)
    names = run_ranks(3, lambda rank: ok(hcomm.HcclGetCommName(rank.comm)))
    assert len(set(names)) == 1
    assert run_ranks(
        1, lambda rank: (ok(hcomm.HcclGetRankId(rank.comm)), ok(hcomm.HcclGetRankSize(rank.comm)))
    ) == [(0, 1)]
    for wrong in (b"", first[:-1], first + b"\0", bytes(4108), b"x" * 4108, first[:40] + b"\1" + first[41:]):
        assert code(hcomm.HcclCommInitRootInfo(1, wrong, 0)) == 1
    assert code(hcomm.HcclCommInitRootInfo(1, None, 0)) == 2
    for size, rank in ((0, 0), (1, 1), (2, 5), (1025, 0)):
        assert code(hcomm.HcclCommInitRootInfo(size, first, rank)) == 1
    comm = ok(hcomm.HcclCommInitRootInfo(1, bytearray(first), 0))
    explain()
    assert code(hcomm.HcclCommInitRootInfo(1, first, 0)) == 1
    assert "has been used" in explain()
    ok(hcomm.HcclCommDestroy(comm))
    assert code(hcomm.HcclCommDestroy(comm)) == 6
    assert "ended by HcclCommDestroy" in explain()


def test_hcomm_comm_init_root_info_ignores_rank_variables_of_launcher(
    hcomm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A communicator of some ranks of a job ignores what the launcher's variables say of the whole job."""
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    assert run_ranks(2, lambda rank: ok(hcomm.HcclGetRankSize(rank.comm))) == [2, 2]


def test_hcomm_comm_init_root_info_ranks_disagree_return_1_or_9(
    hcomm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "5")
    on(0)
    info = ok(hcomm.HcclGetRootInfo())

    def rank(size: int, number: int) -> int:
        on(number)
        return code(hcomm.HcclCommInitRootInfo(size, info, number))

    start = time.monotonic()
    assert sorted(in_threads([lambda: rank(2, 0), lambda: rank(3, 1)])) == [1, 9]
    assert time.monotonic() - start < overdue(5)
    monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "1")
    info = ok(hcomm.HcclGetRootInfo())
    assert rank(2, 0) == 9  # no other rank calls
    assert rank(2, 0) == 9  # the rank number is free again


def test_hcomm_comm_config_and_variables_set_buffer_and_name_and_are_checked(
    hcomm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(0)
    config = hcomm.HcclCommConfig()
    assert (config.magicWord, config.version) == (0xF0F0F0F0, 11)
    assert config.hcclBufferSize == config.hcclExecTimeOut == hcomm.HCCL_COMM_BUFFSIZE_CONFIG_NOT_SET
    config.hcclBufferSize = 7
    ok(hcomm.HcclCommConfigInit(config))
    assert config.hcclBufferSize == 0xFFFFFFFF
    config.hcclBufferSize, config.hcclCommName = 3, "mine"

    def body(rank: Rank) -> tuple[int, str, int]:
        handle = ok(hcomm.HcclCommGetHandleWithName("mine"))
        return rank.buffer()[1], ok(hcomm.HcclGetCommName(rank.comm)), handle - rank.comm

    assert run_ranks(1, body, config=config) == [(6 << 20, "mine", 0)]
    assert code(hcomm.HcclCommGetHandleWithName("mine")) == 6
    monkeypatch.setenv("HCCL_BUFFSIZE", "8")
    assert run_ranks(1, lambda rank: rank.buffer()[1]) == [16 << 20]
    monkeypatch.delenv("HCCL_BUFFSIZE")

    def too_large(rank: Rank) -> int:
        return code(hcomm.HcclGetHcclBuffer(rank.comm))

    assert run_ranks(1, too_large) == [24]  # 400 MiB, and a device has 256
    info = ok(hcomm.HcclGetRootInfo())
    bad: list[tuple[str, Any]] = [
        *[("magicWord", 0), ("hcclBufferSize", 0), ("hcclBufferSize", -1), ("hcclBufferSize", "8")],
        *[("hcclCommName", "x" * 128), ("hcclCommName", 5), ("hcclExecTimeOut", 1 << 40)],
        *[("version", 0), ("version", 12), ("version", "11"), ("size", 0), ("size", 2247), ("size", None)],
    ]
    for name, value in bad:
        wrong = hcomm.HcclCommConfig()
        setattr(wrong, name, value)
        assert code(hcomm.HcclCommInitRootInfoConfig(1, info, 0, wrong)) == 1, name
    assert code(hcomm.HcclCommInitRootInfoConfig(1, info, 0, None)) == 2
    for name, value in (("HCCL_BUFFSIZE", "0"), ("HCCL_EXEC_TIMEOUT", "-1"), ("HCCL_CONNECT_TIMEOUT", "x")):
        monkeypatch.setenv(name, value)
        explain()
        assert code(hcomm.HcclCommInitRootInfo(1, info, 0)) == 1
        assert name in explain()
        monkeypatch.delenv(name)
    monkeypatch.setenv("PEERLANE_HCOMM_NOTIFIES", "loose")
    assert code(hcomm.HcclCommInitRootInfo(1, info, 0)) == 1
    ok(hcomm.HcclSetConfig(hcomm.HCCL_DETERMINISTIC, 1))
    assert ok(hcomm.HcclGetConfig(hcomm.HCCL_DETERMINISTIC)) == 1
    assert code(hcomm.HcclSetConfig(hcomm.HCCL_DETERMINISTIC, 3)) == 1
    assert code(hcomm.HcclSetConfig(1, 0)) == code(hcomm.HcclGetConfig(1)) == 5


def table(*devices: int, **changed: Any) -> str:
    entries = [{"device_id": str(each), "rank_id": str(rank)} for rank, each in enumerate(devices)]
    server = {"server_id": "node_0", "device": entries, "host_nic_ip": "reserve"}
    return json.dumps(
        {"version": "1.0", "status": "completed", "server_count": "1", "server_list": [server]} | changed
    )


def test_hcomm_comm_init_cluster_info_rank_table_connects_all_ranks(
    hcomm: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "table.json"
    path.write_text(table(2, 0, 1))

    def rank(number: int) -> None:
        on((2, 0, 1)[number])
        comm = ok(hcomm.HcclCommInitClusterInfo(str(path), number))
        assert code(hcomm.HcclCommInitClusterInfo(str(path), number)) == 1
        exchange(Rank(number, 3, comm), hcomm)
        ok(hcomm.HcclCommDestroy(comm))

    for _ in range(2):  # a destroyed communicator may be made again
        in_threads([lambda number=number: rank(number) for number in range(3)])  # type: ignore[misc]
    on(0)
    assert code(hcomm.HcclCommInitClusterInfo(str(path), 0)) == 1  # rank 0 has device 2
    assert code(hcomm.HcclCommInitClusterInfo(str(path), 3)) == 1
    assert code(hcomm.HcclCommInitClusterInfo(None, 0)) == 2
    assert code(hcomm.HcclCommInitClusterInfo(str(tmp_path / "none"), 0)) == 10
    assert code(hcomm.HcclCommInitClusterInfo(str(tmp_path), 0)) == 10
    assert code(hcomm.HcclCommInitClusterInfo("x" * 4097, 0)) == 1
    config = hcomm.HcclCommConfig(hcclCommName="of a table")
    path.write_text(table(0))
    comm = ok(hcomm.HcclCommInitClusterInfoConfig(str(path), 0, config))
    assert ok(hcomm.HcclGetCommName(comm)) == "of a table"
    ok(hcomm.HcclCommDestroy(comm))


_MAKES = """
import helpers.hcomm_ranks as ranks
from peerlane.dialects import acl, hcomm
ranks.ok(acl.rt.set_device({rank}))
comm = ranks.ok(hcomm.HcclCommInitClusterInfo({path!r}, {rank}))
"""
_AGAIN = "ranks.ok(hcomm.HcclCommDestroy(comm)); "


@pytest.mark.parametrize("restarted", [0, 1, 2])
def test_hcomm_comm_init_cluster_info_restarted_rank_connects_again(
    hcomm: ModuleType, tmp_path: Path, restarted: int
) -> None:
    """The surviving ranks have made the communicator before and the new process has not: they connect."""
    path = tmp_path / "table.json"
    path.write_text(table(0, 1, 2))
    node, path_of_tests = f"name=anew-{os.getpid()}-{restarted},devices=3", os.pathsep.join(sys.path)
    with contextlib.ExitStack() as ends:
        programs = [_MAKES.format(path=str(path), rank=rank) for rank in range(3)]
        ranks = [ends.enter_context(process(node, PYTHONPATH=path_of_tests)) for _ in range(3)]
        for each, program in zip(ranks, programs, strict=True):
            each.send(program)
        for each in ranks:
            each.receive()
        ranks[restarted].kill()
        ranks[restarted] = ends.enter_context(process(node, PYTHONPATH=path_of_tests))
        for rank, program in enumerate(programs):
            ranks[rank].send(program if rank == restarted else f"{_AGAIN}{program}")
        for each in ranks:
            each.receive()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        '{"server_list": 5}',
        '{"server_list": [5]}',
        '{"server_list": [{"device": [5]}]}',
        table(status="initializing"),
        table(),
        table(0, 0),
        table(0).replace('"rank_id": "0"', '"rank_id": "1"'),
        table(0).replace('"rank_id": "0"', '"rank_id": "zero"'),
        table(0).replace('"device_id": "0"', '"device_id": true'),
        table(0, 1).replace('"rank_id": "1"', '"rank_id": "0"'),
        json.dumps({"server_list": [{"device": []}, {"device": []}]}),
    ],
)
def test_hcomm_comm_init_cluster_info_unusable_table_returns_1(
    hcomm: ModuleType, tmp_path: Path, text: str
) -> None:
    on(0)
    path = tmp_path / "table.json"
    path.write_text(text)
    explain()
    assert code(hcomm.HcclCommInitClusterInfo(str(path), 0)) == 1
    assert "the rank table cannot be used" in explain()


def test_hcomm_comm_init_all_makes_a_rank_per_listed_device(hcomm: ModuleType) -> None:
    comms = ok(hcomm.HcclCommInitAll(3, [2, 0, 3]))
    assert [ok(hcomm.HcclGetRankId(comm)) for comm in comms] == [0, 1, 2]

    def rank(number: int) -> None:
        on((2, 0, 3)[number])
        exchange(Rank(number, 3, comms[number]), hcomm)
        ok(hcomm.HcclCommDestroy(comms[number]))

    in_threads([lambda number=number: rank(number) for number in range(3)])  # type: ignore[misc]
    for count, devices in ((0, []), (2, [0]), (2, [0, 0]), (1, [4]), (1, [-1])):
        assert code(hcomm.HcclCommInitAll(count, devices)) == 1
    assert code(hcomm.HcclCommInitAll(1, None)) == 2


def test_hcomm_create_sub_comm_config_connects_listed_ranks(hcomm: ModuleType) -> None:
    def body(rank: Rank) -> None:
        config = hcomm.HcclCommConfig()
        even = rank.number % 2 == 0
        ids = [2, 0] if even else [1, 3]
        position = ids.index(rank.number)
        for _ in range(2):
            sub = ok(hcomm.HcclCreateSubCommConfig(rank.comm, 2, ids, 7 if even else 8, position, config))
            assert ok(hcomm.HcclGetRankId(sub)) == position
            exchange(Rank(position, 2, sub), hcomm)
            ok(hcomm.HcclCommDestroy(sub))
        assert ok(hcomm.HcclCreateSubCommConfig(rank.comm, 0, None, 9, 0, config)) == 0
        for count, wrong, at in ((2, [0, 0], 0), (2, [0, 4], 0), (2, [0], 0), (0, [], 0), (2, [0, 1], 2)):
            assert code(hcomm.HcclCreateSubCommConfig(rank.comm, count, wrong, 9, at, config)) == 1
        other = [each for each in range(4) if each != rank.number][:2]
        assert code(hcomm.HcclCreateSubCommConfig(rank.comm, 2, other, 9, 0, config)) == 1
        assert code(hcomm.HcclCreateSubCommConfig(rank.comm, 2, None, 9, 0, config)) == 2
        assert code(hcomm.HcclCreateSubCommConfig(rank.comm, 2, ids, 9, position, None)) == 2
        exchange(rank, hcomm)

    run_ranks(4, body)


@pytest.mark.parametrize("early", [0, 1])
def test_hcomm_create_sub_comm_config_after_time_out_connects_again(
    hcomm: ModuleType, monkeypatch: pytest.MonkeyPatch, early: int
) -> None:
    both = threading.Barrier(2)
    config = hcomm.HcclCommConfig()

    def body(rank: Rank) -> None:
        def make() -> Any:
            return hcomm.HcclCreateSubCommConfig(rank.comm, 2, [0, 1], 1, rank.number, config)

        both.wait(WAIT)
        if rank.number == early:
            monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "1")
            assert code(make()) == 9
            monkeypatch.delenv("HCCL_CONNECT_TIMEOUT")
        both.wait(WAIT)
        ok(hcomm.HcclCommDestroy(ok(make())))

    run_ranks(2, body)


def test_hcomm_channel_acquire_same_description_returns_same_channel(hcomm: ModuleType) -> None:
    def body(rank: Rank) -> None:
        peer = 1 - rank.number
        channel = rank.channels(notifies=2)[peer]
        assert rank.channels(notifies=4)[peer] == channel
        assert ok(hcomm.HcclChannelGetNotifyNum(rank.comm, channel)) == 2
        assert ok(hcomm.HcclChannelQuery(rank.comm, CPU_TS, descs([peer]), 1)) == [channel]
        assert ok(hcomm.HcclChannelQuery(rank.comm, CPU_TS, descs([peer], protocol=1), 1)) == [0]
        order = [1, 2] if rank.number else [2, 1]  # of protocols: the two ends may differ in the order
        wanted = [descs([peer], protocol=each, notifies=each)[0] for each in order]
        channels = ok(hcomm.HcclChannelAcquire(rank.comm, CPU_TS, wanted, 2))
        numbers = [ok(hcomm.HcclChannelGetNotifyNum(rank.comm, each)) for each in channels]
        assert numbers == order and len({channel, *channels}) == 3
        assert code(hcomm.HcclChannelDestroy(rank.comm, channels, 2)) == 5

    run_ranks(2, body)


def test_hcomm_channel_acquire_any_order_of_peers_does_not_deadlock(hcomm: ModuleType) -> None:
    def body(rank: Rank) -> None:
        peers = [(rank.number + step) % 4 for step in (1, 2, 3)]
        wanted = descs(peers if rank.number % 2 else peers[::-1])
        ok(hcomm.HcclChannelAcquire(rank.comm, CPU_TS, wanted, 3))

    run_ranks(4, body)


def test_hcomm_channel_acquire_absent_peer_returns_9(
    hcomm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "5")
    done = threading.Barrier(2)

    def body(rank: Rank) -> None:
        if rank.number == 0:
            explain()
            assert code(hcomm.HcclChannelAcquire(rank.comm, CPU_TS, descs([1]), 1)) == 9
            assert "rank 1 did not come" in explain()
        done.wait(WAIT)

    run_ranks(2, body)


def test_hcomm_comm_destroy_during_channel_acquire_ends_it_with_6(hcomm: ModuleType) -> None:
    done = threading.Barrier(2)

    def body(rank: Rank) -> None:
        if rank.number == 0:
            codes: list[int] = []
            waiting = threading.Thread(
                target=lambda: codes.append(code(hcomm.HcclChannelAcquire(rank.comm, CPU_TS, descs([1]), 1)))
            )
            waiting.start()
            until(lambda: _acquires(rank.comm))
            start = time.monotonic()
            ok(hcomm.HcclCommDestroy(rank.comm))
            waiting.join(WAIT)
            assert codes == [6] and time.monotonic() - start < 10
        done.wait(WAIT)
        if rank.number == 1:
            ok(hcomm.HcclCommDestroy(rank.comm))

    run_ranks(2, body, destroy=False)


def _acquires(comm: int) -> bool:
    from peerlane.dialects.hcomm._comm import comm_of

    return comm_of(comm).acquiring.locked()


def test_hcomm_reset_device_ends_communicators_threads_and_channels(hcomm: ModuleType) -> None:
    def body(rank: Rank) -> None:
        thread = rank.threads()
        channel = rank.channels()[1 - rank.number]
        rank.handshake(channel, 0)
        rank.sync()
        while acl.rt.get_device()[1] == 0:  # the main thread has set device 0 too
            ok(acl.rt.reset_device(rank.number))
        for each in (
            hcomm.HcclGetRankId(rank.comm),
            hcomm.HcommThreadJoin(thread, 1),
            hcomm.HcclChannelGetHcclBuffer(rank.comm, channel),
        ):
            assert code(each) == 6

    run_ranks(2, body, destroy=False)
    assert not pl.devices()[1].is_closed


def test_hcomm_acquire_comm_is_a_lock_per_thread(hcomm: ModuleType) -> None:
    def body(rank: Rank) -> None:
        name = ok(hcomm.HcclGetCommName(rank.comm))
        assert code(hcomm.HcommReleaseComm(name)) == 1
        ok(hcomm.HcommAcquireComm(name))
        assert code(hcomm.HcommAcquireComm(name)) == 1
        assert in_threads([lambda: code(hcomm.HcommAcquireComm(name))]) == [20]
        assert in_threads([lambda: code(hcomm.HcommReleaseComm(name))]) == [1]
        ok(hcomm.HcommReleaseComm(name))
        assert code(hcomm.HcommAcquireComm("none")) == 6
        assert code(hcomm.HcommAcquireComm(None)) == 2

    run_ranks(1, body)


def test_hcomm_strict_notifies_second_record_before_wait_fails_stream(
    hcomm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_HCOMM_NOTIFIES", "strict")
    both = threading.Barrier(2)

    def body(rank: Rank) -> None:
        thread = rank.threads()
        channel = rank.channels()[1 - rank.number]
        if rank.number == 0:
            ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channel, 0))
            ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channel, 0))
            assert acl.rt.synchronize_stream(rank.stream) == 507000
        both.wait(WAIT)
        if rank.number == 1:
            ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, 0, WAIT))
            rank.sync()

    run_ranks(2, body)


def test_hcomm_strict_notifies_unused_record_comm_destroy_returns_4(
    hcomm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_HCOMM_NOTIFIES", "strict")
    both = threading.Barrier(2)

    def body(rank: Rank) -> None:
        thread = rank.threads()
        channel = rank.channels()[1 - rank.number]
        ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channel, 0))
        rank.sync()
        ok(hcomm.HcommChannelFence(channel))
        both.wait(WAIT)
        explain()
        assert code(hcomm.HcclCommDestroy(rank.comm)) == 4
        assert "recorded and nobody waited for it" in explain()
        assert code(hcomm.HcclCommDestroy(rank.comm)) == 6

    run_ranks(2, body, destroy=False)
