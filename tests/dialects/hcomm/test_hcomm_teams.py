"""Teams: members, channels, windows that the channels make usable, sub teams, and their ends."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest

from helpers.hcomm_ranks import (
    AICPU_TS,
    CPU,
    CPU_TS,
    HCCS,
    ROCE,
    UB_CTP,
    WAIT,
    Bytes,
    Rank,
    code,
    descs,
    ok,
    run_ranks,
    team_channels,
    team_desc,
)
from peerlane.dialects import acl, hcomm
from peerlane.dialects.acl._state import machine

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]

SIZE = 6000
GRANULE = 2 << 20  # the allocator reuses the address of memory of this size


@pytest.fixture(autouse=True)
def _fresh(hcomm: Any) -> None:
    """Enter a new node for each test."""


def drawn(number: int, nbytes: int = SIZE) -> Bytes:
    return np.random.default_rng(number).integers(0, 256, nbytes, np.uint8)


def memory(rank: Rank, nbytes: int = SIZE, content: Bytes | None = None) -> int:
    address = int(ok(acl.rt.malloc(nbytes, 0)))
    if content is not None:
        rank.fill(address, content)
    return address


def window_of(rank: Rank, team: int, address: int, nbytes: int = SIZE) -> int:
    return int(ok(hcomm.HcclTeamWindowRegister(rank.comm, team, hcomm.CommMem(0, address, nbytes), 0)))


def channel_to(rank: Rank, peer: int, *, engine: int = CPU_TS, protocol: int = HCCS) -> int:
    return int(ok(hcomm.HcclChannelQuery(rank.comm, engine, descs([peer], protocol=protocol), 1))[0])


def ring(rank: Rank, team: int, members: list[int], window: int, engine: int, protocol: int) -> None:
    """Write into the window of the next member, and check the bytes of the previous one in one's own."""
    position = members.index(rank.number)
    after, before = members[(position + 1) % len(members)], members[position - 1]
    right, left = (channel_to(rank, each, engine=engine, protocol=protocol) for each in (after, before))
    mine = drawn(rank.number, 1000)
    source = memory(rank, 1000, mine)
    if engine == CPU:  # goes through a network card, which needs registered memory
        ok(hcomm.HcclTeamWindowRegister(rank.comm, team, hcomm.CommMem(0, source, 1000), 0))
        ok(hcomm.HcclTeamChannelsCreate(rank.comm, team, team_channels(engine=engine, protocol=protocol)))
    there = ok(hcomm.HcclSymWinGetPeerPointer(window, 64, after))
    ok(hcomm.HcommWriteOnThread(rank.thread, right, there, source, 1000))
    ok(hcomm.HcommChannelNotifyRecordOnThread(rank.thread, right, 0))
    ok(hcomm.HcommChannelNotifyWaitOnThread(rank.thread, left, 0, WAIT))
    if engine != CPU:
        rank.sync()
    pointer = ok(hcomm.HcclSymWinGetPeerPointer(window, 64, rank.number))
    assert rank.content(pointer, 1000) == drawn(before, 1000).tobytes()
    barrier(rank)


def test_hcomm_team_desc_init_calls_fill_structs_as_vendor_does() -> None:
    desc = hcomm.HcclTeamCreateDesc(rankIds=[3], rankNum=9, sharedQueueTag="x", isSharedQueue=1)
    ok(hcomm.HcclTeamCreateDescInit(desc))
    header = desc.header
    assert (header.version, header.magicWord, header.size, header.reserved) == (2, 0x0FCF0F14, 376, 0)
    assert (desc.rankIds, desc.rankNum, desc.selfRankId, desc.netLayer) == (None, 0, 0, 0)
    assert (desc.protocol, desc.engine) == (-1, -1)
    assert (desc.notifyNum, desc.channelCnt, desc.isSharedQueue, desc.sharedQueueTag) == (0, 0, 0, "")
    needs = desc.requirement
    assert (needs.signalCount, needs.counterCount, needs.barrierCount) == (0, 0, 0)
    assert (needs.reserved, desc.reserved) == (b"\xff" * 20, bytes(32))
    channels = hcomm.HcclTeamCreateChannelsDesc(notifyNum=7)
    ok(hcomm.HcclTeamCreateChannelsDescInit(channels))
    assert (channels.header.version, channels.header.magicWord, channels.header.size) == (1, 0x0FCF0F15, 48)
    assert (channels.engine, channels.protocol, channels.notifyNum, channels.channelCnt) == (-1, -1, 0, 0)


@pytest.mark.parametrize(("engine", "protocol"), [(CPU, ROCE), (CPU_TS, HCCS), (AICPU_TS, UB_CTP)])
def test_hcomm_world_team_windows_are_written_by_members(engine: int, protocol: int) -> None:
    def body(rank: Rank) -> None:
        members = [2, 0, 1]
        team = ok(hcomm.HcclWorldTeamCreate(rank.comm, team_desc(members, rank.number, protocol=protocol)))
        own = ok(hcomm.HcclTeamRankToMember(rank.comm, team, rank.number))
        assert members[own] == rank.number == ok(hcomm.HcclTeamMemberToRank(rank.comm, team, own))
        address = memory(rank)
        window = window_of(rank, team, address)
        assert window_of(rank, team, address + 100, 50) == window  # inside the first window
        assert code(hcomm.HcclSymWinGetPeerPointer(window, 0, (rank.number + 1) % 3)) == 20
        assert ok(hcomm.HcclSymWinGetPeerPointer(window, 5, rank.number)) == address + 5
        rank.threads(engine)
        ok(hcomm.HcclTeamChannelsCreate(rank.comm, team, team_channels(engine=engine)))
        ring(rank, team, members, window, engine, protocol)

    run_ranks(3, body)


def test_hcomm_sub_team_reaches_windows_of_world_team() -> None:
    """Two pairs of four ranks: a pair reaches and awaits only its members."""

    def body(rank: Rank) -> None:
        pair = [1, 3] if rank.number % 2 else [0, 2]
        world = ok(hcomm.HcclWorldTeamCreate(rank.comm, team_desc(range(4), rank.number)))
        team = ok(hcomm.HcclSubTeamCreate(world, team_desc(pair, rank.number)))
        window = window_of(rank, world, memory(rank, content=drawn(rank.number)))
        rank.threads()
        ok(hcomm.HcclTeamChannelsCreate(rank.comm, team, team_channels(protocol=HCCS)))
        peer = pair[1 - pair.index(rank.number)]
        assert code(hcomm.HcclSymWinGetPeerPointer(window, 0, (rank.number + 1) % 4)) == 20
        there = ok(hcomm.HcclSymWinGetPeerPointer(window, 0, peer))
        assert rank.content(there, SIZE) == drawn(peer).tobytes()
        into = memory(rank)
        ok(hcomm.HcommReadOnThread(rank.thread, channel_to(rank, peer), into, there, SIZE))
        rank.sync()
        assert rank.content(into, SIZE) == drawn(peer).tobytes()
        assert channel_to(rank, (rank.number + 1) % 4) == 0
        ok(hcomm.HcclTeamDestroy(team))
        assert rank.content(there, SIZE) == drawn(peer).tobytes()  # the window belongs to the world team
        assert code(hcomm.HcclTeamWindowRegister(rank.comm, team, hcomm.CommMem(0, into, SIZE), 0)) == 6
        barrier(rank)

    run_ranks(4, body)


def test_hcomm_team_channels_create_adds_windows_to_existing_channels() -> None:
    """Channels acquired before and after, also of another engine; windows registered later; their tags."""

    def body(rank: Rank) -> None:
        peer = 1 - rank.number
        rank.threads()
        before = rank.channels()[peer]
        team = ok(hcomm.HcclWorldTeamCreate(rank.comm, team_desc([0, 1], rank.number)))
        first = window_of(rank, team, memory(rank, content=drawn(rank.number)))
        known = ok(hcomm.HcclChannelGetRemoteMems(rank.comm, before))[0]
        ok(hcomm.HcclTeamChannelsCreate(rank.comm, team, team_channels()))
        assert channel_to(rank, peer) == before
        second = window_of(rank, team, memory(rank, 100, drawn(10 + rank.number, 100)), 100)
        ok(hcomm.HcclTeamChannelsCreate(rank.comm, team, team_channels()))
        number, mems, tags = ok(hcomm.HcclChannelGetRemoteMems(rank.comm, before))
        assert number == known + 2 == len(set(tags)) and [each.size for each in mems[-2:]] == [SIZE, 100]
        assert [each.addr for each in mems[-2:]] == [
            ok(hcomm.HcclSymWinGetPeerPointer(each, 0, peer)) for each in (first, second)
        ]
        after = ok(hcomm.HcclChannelAcquire(rank.comm, AICPU_TS, descs([peer]), 1))[0]
        ok(hcomm.HcommReadOnThread(rank.thread, before, rank.buffer()[0], mems[-2].addr, SIZE))
        ok(hcomm.HcommReadOnThread(_on(rank, AICPU_TS), after, rank.buffer()[0] + SIZE, mems[-1].addr, 100))
        rank.sync()
        wanted = drawn(peer).tobytes() + drawn(10 + peer, 100).tobytes()
        assert rank.content(rank.buffer()[0], SIZE + 100) == wanted
        barrier(rank)
        ok(hcomm.HcclTeamWindowDeregister(team, first))
        assert ok(hcomm.HcclChannelGetRemoteMems(rank.comm, before))[0] == known + 1
        assert code(hcomm.HcommReadOnThread(rank.thread, before, rank.buffer()[0], mems[-2].addr, 8)) == 6
        barrier(rank)

    run_ranks(2, body)


def _on(rank: Rank, engine: int) -> int:
    return int(ok(hcomm.HcclThreadAcquireWithStream(rank.comm, engine, rank.stream, 1)))


def barrier(rank: Rank) -> None:
    ok(hcomm.HcclBarrier(rank.comm, rank.stream))
    rank.sync()


def test_hcomm_team_create_reaches_symmetric_windows() -> None:
    def body(rank: Rank) -> None:
        peer = 1 - rank.number
        rank.threads()
        address = memory(rank, content=drawn(rank.number))
        window = ok(hcomm.HcclCommSymWinRegister(rank.comm, address, SIZE, 1))
        team = ok(hcomm.HcclTeamCreate(rank.comm, team_desc([1, 0], rank.number, protocol=UB_CTP)))
        assert ok(hcomm.HcclTeamRankToMember(rank.comm, team, rank.number)) == peer
        channel = channel_to(rank, peer, protocol=UB_CTP)
        there = ok(hcomm.HcclSymWinGetPeerPointer(window, 100, peer))
        ok(hcomm.HcommReadOnThread(rank.thread, channel, rank.buffer()[0], there, SIZE - 100))
        rank.sync()
        assert rank.content(rank.buffer()[0], SIZE - 100) == drawn(peer)[100:].tobytes()
        barrier(rank)
        ok(hcomm.HcclTeamDestroy(team))
        ok(hcomm.HcclCommSymWinDeregister(window))
        assert code(hcomm.HcommReadOnThread(rank.thread, channel, rank.buffer()[0], there, 8)) == 6
        barrier(rank)

    run_ranks(2, body)


def test_hcomm_window_register_after_memory_was_freed_makes_new_window() -> None:
    """New memory at the address of freed memory is in no window until it is registered."""

    def body(rank: Rank) -> None:
        peer = 1 - rank.number
        team = ok(hcomm.HcclWorldTeamCreate(rank.comm, team_desc([0, 1], rank.number)))
        freed = memory(rank, GRANULE)
        ok(hcomm.HcclCommSymWinRegister(rank.comm, freed, SIZE, 1))
        of_team = window_of(rank, team, freed)
        lives = memory(rank)
        other = ok(hcomm.HcclCommSymWinRegister(rank.comm, lives, SIZE, 1))
        barrier_of_host.wait(WAIT)
        ok(acl.rt.free(freed))
        assert ok(hcomm.HcclCommSymWinGet(rank.comm, lives + 1, 1)) == (other, 1)
        again = memory(rank, GRANULE)
        assert again == freed
        rank.fill(again, drawn(rank.number))
        assert code(hcomm.HcclCommSymWinGet(rank.comm, again, 1)) == 6
        window = ok(hcomm.HcclCommSymWinRegister(rank.comm, again, SIZE, 1))
        assert ok(hcomm.HcclCommSymWinGet(rank.comm, again, SIZE)) == (window, 0)
        assert window_of(rank, team, again) != of_team
        there = ok(hcomm.HcclSymWinGetPeerPointer(window, 0, peer))
        assert rank.content(there, SIZE) == drawn(peer).tobytes()
        barrier_of_host.wait(WAIT)

    barrier_of_host = threading.Barrier(2)
    run_ranks(2, body)


def test_hcomm_window_register_host_memory_returns_5() -> None:
    """Pinned memory is private to its process, also where the ranks are threads of that process."""

    def body(rank: Rank) -> None:
        pinned = ok(acl.rt.malloc_host(SIZE))
        assert code(hcomm.HcclCommSymWinRegister(rank.comm, pinned, SIZE, 1)) == 5
        team = ok(hcomm.HcclWorldTeamCreate(rank.comm, team_desc([0, 1], rank.number)))
        mem = hcomm.CommMem(0, pinned, SIZE)
        assert code(hcomm.HcclTeamWindowRegister(rank.comm, team, mem, 0)) == 5

    run_ranks(2, body)


def test_hcomm_team_get_lsa_team_is_one_per_communicator() -> None:
    """A communicator has one such team; its windows have other numbers than those of the program's teams."""

    def body(rank: Rank) -> None:
        lsa = 0 if rank.number else ok(hcomm.HcclTeamGetLsaTeam(rank.comm))
        world = ok(hcomm.HcclWorldTeamCreate(rank.comm, team_desc([0, 1, 2], rank.number)))
        lsa = lsa or ok(hcomm.HcclTeamGetLsaTeam(rank.comm))
        assert ok(hcomm.HcclTeamGetLsaTeam(rank.comm)) == lsa != world
        members = [ok(hcomm.HcclTeamMemberToRank(rank.comm, lsa, each)) for each in range(3)]
        assert members == [0, 1, 2] and code(hcomm.HcclTeamDestroy(lsa)) == 1
        rank.threads()
        window = window_of(rank, world, memory(rank, content=drawn(rank.number)))
        other = window_of(rank, lsa, memory(rank, content=drawn(10 + rank.number)))
        for team in (lsa, world):
            ok(hcomm.HcclTeamChannelsCreate(rank.comm, team, team_channels()))
        for peer in range(3):
            for each, seed in ((window, peer), (other, 10 + peer)):
                there = ok(hcomm.HcclSymWinGetPeerPointer(each, 0, peer))
                assert rank.content(there, SIZE) == drawn(seed).tobytes()
        assert channel_to(rank, (rank.number + 1) % 3, protocol=hcomm.COMM_PROTOCOL_UB_MEM)
        barrier(rank)

    run_ranks(3, body)


def test_hcomm_team_destroy_of_world_team_ends_sub_teams_and_windows() -> None:
    """The end of a world team ends its sub teams and windows; the end of the communicator ends all teams."""

    def body(rank: Rank) -> list[int]:
        rank.threads()
        world = ok(hcomm.HcclWorldTeamCreate(rank.comm, team_desc([0, 1], rank.number)))
        sub = ok(hcomm.HcclSubTeamCreate(world, team_desc([0, 1], rank.number)))
        window = window_of(rank, world, memory(rank))
        ok(hcomm.HcclTeamChannelsCreate(rank.comm, sub, team_channels()))
        barrier(rank)
        ok(hcomm.HcclTeamDestroy(world))
        assert {code(hcomm.HcclTeamDestroy(each)) for each in (world, sub)} == {6}
        assert "HcclTeamDestroy" in hcomm.explain()
        assert code(hcomm.HcclSymWinGetPeerPointer(window, 0, rank.number)) == 6
        assert channel_to(rank, 1 - rank.number)  # the channels belong to the communicator
        again = ok(hcomm.HcclWorldTeamCreate(rank.comm, team_desc([0, 1], rank.number)))
        window = window_of(rank, again, memory(rank, content=drawn(rank.number)))
        ok(hcomm.HcclTeamChannelsCreate(rank.comm, again, team_channels()))
        there = ok(hcomm.HcclSymWinGetPeerPointer(window, 0, 1 - rank.number))
        assert rank.content(there, SIZE) == drawn(1 - rank.number).tobytes()
        barrier(rank)
        return [again, window]

    for again, window in run_ranks(2, body):
        assert code(hcomm.HcclTeamDestroy(again)) == 6
        assert code(hcomm.HcclSymWinGetPeerPointer(window, 0, 0)) == 6


@pytest.mark.parametrize("registers", [True, False])
def test_hcomm_team_channels_create_unequal_or_missing_window_returns_1_or_9(
    monkeypatch: pytest.MonkeyPatch, registers: bool
) -> None:
    """Another size gives 1, no window within HCCL_CONNECT_TIMEOUT gives 9; the channels are made in both cases."""
    monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "20" if registers else "5")

    def body(rank: Rank) -> int:
        rank.threads()
        team = ok(hcomm.HcclWorldTeamCreate(rank.comm, team_desc([0, 1], rank.number)))
        if registers or not rank.number:
            window_of(rank, team, memory(rank), SIZE - rank.number)
        ret = hcomm.HcclTeamChannelsCreate(rank.comm, team, team_channels())
        assert channel_to(rank, 1 - rank.number)
        barrier(rank)
        return code(ret)

    assert run_ranks(2, body) == ([1, 1] if registers else [9, 0])


def test_hcomm_team_window_deregister_during_channels_create_ends_it_with_6() -> None:
    """The other rank has not registered its window: deregistration ends the wait and nothing else."""
    ended = threading.Event()

    def body(rank: Rank) -> int:
        team = ok(hcomm.HcclWorldTeamCreate(rank.comm, team_desc([0, 1], rank.number)))
        if rank.number:
            ok(hcomm.HcclTeamChannelsCreate(rank.comm, team, team_channels()))
            assert ended.wait(WAIT)
            window_of(rank, team, memory(rank))
            return 0
        window = window_of(rank, team, memory(rank))
        refused: list[int] = []
        channels = [team_channels()]
        maker = threading.Thread(
            target=lambda: refused.append(hcomm.HcclTeamChannelsCreate(rank.comm, team, *channels)),
            daemon=True,
        )
        maker.start()
        comm, deadline = machine.resources[rank.comm], time.monotonic() + WAIT
        while not comm.why_busy() and time.monotonic() < deadline:
            time.sleep(0.001)
        ok(hcomm.HcclTeamWindowDeregister(team, window))
        ended.set()
        maker.join(WAIT)
        return refused[0]

    assert run_ranks(2, body, destroy=False) == [6, 0]
