"""Calls in the host part of the vendor's operator samples: links, engines and contexts of engines."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

import peerlane as pl
from helpers.hcomm_ranks import CPU_TS, HCCS, UB_CTP, WAIT, Rank, code, descs, ok, run_ranks
from peerlane.dialects import acl, hcomm

AICPU, AICPU_TS, AIV, CCU = (
    hcomm.COMM_ENGINE_AICPU,
    hcomm.COMM_ENGINE_AICPU_TS,
    hcomm.COMM_ENGINE_AIV,
    hcomm.COMM_ENGINE_CCU,
)
NODE_950 = "devices=2,memory=2GiB,profile=ascend-950"

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def two(enter: Callable[[str], ModuleType]) -> None:
    enter("devices=2,memory=2GiB")
    ok(acl.rt.set_device(0))


@pytest.fixture
def node(enter: Callable[[str], ModuleType]) -> Iterator[Callable[[str], ModuleType]]:
    yield enter


def test_hcomm_rank_graph_get_links_on_950_reports_unified_bus(node: Callable[[str], ModuleType]) -> None:
    assert node(NODE_950).get_soc_name().startswith("Ascend950")

    def work(rank: Rank) -> None:
        links, number = ok(hcomm.HcclRankGraphGetLinks(rank.comm, 0, rank.number, 1 - rank.number))
        assert number == len(links) == 1
        assert links[0].linkAttr.linkProtocol == UB_CTP
        assert links[0].srcEndpointDesc.protocol == links[0].dstEndpointDesc.protocol == UB_CTP
        (ends, _) = ok(hcomm.HcclRankGraphGetEndpointDesc(rank.comm, 0, 0, 1))
        assert ends[0].protocol == UB_CTP
        [desc] = descs([1 - rank.number], protocol=links[0].linkAttr.linkProtocol)
        assert len(ok(hcomm.HcclChannelAcquire(rank.comm, AICPU_TS, [desc], 1))) == 1

    run_ranks(2, work)


def test_hcomm_endpoint_get_descs_on_950_returns_usable_endpoints(node: Callable[[str], ModuleType]) -> None:
    node(NODE_950)
    ok(acl.rt.set_device(1))
    number = ok(hcomm.HcommEndpointGetDescNum(1))
    count, ends = ok(hcomm.HcommEndpointGetDescs(1, number))
    assert (count, len(ends)) == (number, number)
    assert (ends[0].protocol, ends[0].loc.device.devPhyId) == (UB_CTP, 1)
    assert code(hcomm.HcommEndpointGetDescs(1, number - 1)) == 1
    endpoint = ok(hcomm.HcommEndpointCreate(ends[0]))
    ok(hcomm.HcommEndpointDestroy(endpoint))


def test_hcomm_endpoint_get_descs_on_other_chips_returns_5() -> None:
    assert hcomm.HcommEndpointGetDescNum(0) == (0, 5)
    assert hcomm.HcommEndpointGetDescs(0, 4) == (0, [], 5)
    assert "unified bus" in hcomm.explain()


def test_hcomm_engine_ctx_calls_copy_bytes_and_return_documented_codes() -> None:
    def work(rank: Rank) -> int:
        comm = rank.comm
        content = ctypes.create_string_buffer(bytes(range(64)), 64)
        there: list[int] = []
        for engine in (hcomm.COMM_ENGINE_CPU, CPU_TS, AICPU, AICPU_TS, CCU):
            assert code(hcomm.HcclEngineCtxGet(comm, "op", engine)) == 6
            address = ok(hcomm.HcclEngineCtxCreate(comm, "op", engine, 64))
            assert rank.content(address, 64) == bytes(64) if engine in (AICPU, AICPU_TS) else True
            assert code(hcomm.HcclEngineCtxCreate(comm, "op", engine, 64)) == 1
            assert ok(hcomm.HcclEngineCtxGet(comm, "op", engine)) == (address, 64)
            ok(hcomm.HcclEngineCtxCopy(comm, engine, "op", ctypes.addressof(content) + 8, 16, 48))
            assert code(hcomm.HcclEngineCtxCopy(comm, engine, "op", ctypes.addressof(content), 17, 48)) == 1
            most = (1 << 64) - 1
            assert code(hcomm.HcclEngineCtxCopy(comm, engine, "op", ctypes.addressof(content), 8, most)) == 1
            wanted = bytes(48) + bytes(range(8, 24))
            if engine in (AICPU, AICPU_TS):
                assert rank.content(address, 64) == wanted
            else:  # memory of the host
                assert ctypes.string_at(address, 64) == wanted
            there.append(address)
        assert len(set(there)) == 5
        ok(hcomm.HcclEngineCtxDestroy(comm, "op", AICPU))
        assert code(hcomm.HcclEngineCtxDestroy(comm, "op", AICPU)) == 1
        assert code(hcomm.HcclEngineCtxGet(comm, "op", AICPU)) == 6
        assert code(hcomm.HcclEngineCtxCreate(comm, "op", AIV, 64)) == 5
        assert ok(hcomm.HcclEngineCtxCreate(comm, "op", AICPU, 32))
        return there[3]

    before = pl.devices()[0].free_bytes
    run_ranks(2, work)
    assert pl.devices()[0].free_bytes == before, "the communicator's end frees them"


def test_hcomm_point_to_point_sample_of_engine_aicpu_moves_bytes() -> None:
    """As in the vendor's sample: a thread and a channel of AICPU; the receiver's ACK, then the sender's DATA."""

    def work(rank: Rank) -> bytes:
        comm, peer = rank.comm, 1 - rank.number
        address, _ = rank.buffer()
        (thread,) = ok(hcomm.HcclThreadAcquire(comm, AICPU, 1, 0))
        (channel,) = ok(hcomm.HcclChannelAcquire(comm, AICPU, descs([peer], protocol=HCCS, notifies=2), 1))
        theirs, _ = ok(hcomm.HcclChannelGetHcclBuffer(comm, channel))
        if rank.number == 0:
            rank.fill(address, bytes(range(200)))
            ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, 0, WAIT))
            ok(hcomm.HcommWriteOnThread(thread, channel, theirs, address, 200))
            ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channel, 1))
        else:
            ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channel, 0))
            ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, 1, WAIT))
        ok(hcomm.HcommThreadJoin(thread, WAIT))
        return rank.content(address, 200)

    assert run_ranks(2, work)[1] == bytes(range(200))


def test_hcomm_transfers_to_memory_freed_by_peer_return_6_and_name_owner() -> None:
    """Use after free returns 6, and the message names the owner."""

    def work(rank: Rank) -> None:
        comm, peer = rank.comm, 1 - rank.number
        address = ok(acl.rt.malloc(4096, 0))
        ok(hcomm.HcclCommMemReg(comm, "kv", hcomm.CommMem(0, address, 4096)))
        thread = rank.threads()
        (channel,) = ok(hcomm.HcclChannelAcquire(comm, CPU_TS, descs([peer], notifies=4), 1))
        _, mems, tags = ok(hcomm.HcclChannelGetRemoteMems(comm, channel))
        there = mems[tags.index("kv")].addr
        own, _ = rank.buffer()
        ok(hcomm.HcommWriteOnThread(thread, channel, there, own, 64))
        rank.handshake(channel, 0)
        rank.sync()
        if rank.number == 0:
            ok(acl.rt.free(address))
        rank.handshake(channel, 1)
        rank.sync()
        if rank.number:
            for call, args in (
                (hcomm.HcommWriteOnThread, (there, own, 64)),
                (hcomm.HcommReadOnThread, (own, there, 64)),
                (hcomm.HcommWriteReduceOnThread, (there, own, 16, 2, 0)),
                (hcomm.HcommReadReduceOnThread, (own, there, 16, 2, 0)),
                (hcomm.HcommWriteWithNotifyOnThread, (there, own, 64, 3)),
            ):
                hcomm.explain()
                assert call(thread, channel, *args) == 6
                text = hcomm.explain()
                assert "the memory 'kv' (4,096 bytes) of rank 0" in text and "rank 0 freed it" in text, text
            rank.sync()
        rank.handshake(channel, 2)
        rank.sync()

    run_ranks(2, work)
