"""Transfers over channels between ranks that are threads: every byte written, read and reduced is checked."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.hcomm_ranks import (
    AICPU_TS,
    CPU,
    CPU_TS,
    HCCS,
    ROCE,
    WAIT,
    Rank,
    code,
    ok,
    run_ranks,
)
from peerlane.dialects import acl
from peerlane.dialects.hcomm import explain

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]

SIZES = (1, 7, 4096, 1_000_003)


def drawn(rank: int, nbytes: int) -> bytes:
    return np.random.default_rng(rank).integers(0, 256, nbytes, np.uint8).tobytes()


@pytest.mark.parametrize("protocol", [HCCS, ROCE, 2, 3, 4, 5, 6, 7, 8, 9])
@pytest.mark.parametrize("engine", [CPU_TS, AICPU_TS, CPU])
def test_hcomm_write_on_thread_then_record_delivers_bytes(
    hcomm: ModuleType, engine: int, protocol: int
) -> None:
    def body(rank: Rank) -> None:
        thread = rank.threads(engine)
        channel = rank.channels(engine=engine, protocol=protocol)[1 - rank.number]
        address, size = rank.buffer()
        there, their_size = ok(hcomm.HcclChannelGetHcclBuffer(rank.comm, channel))
        assert size == their_size == 2 << 20
        half = size // 2
        at = 0
        for nbytes in SIZES:
            rank.fill(address + at, drawn(rank.number, nbytes))
            rank.handshake(channel, 0)
            ok(hcomm.HcommWriteOnThread(thread, channel, there + half, address + at, nbytes))
            rank.handshake(channel, 1)
            rank.sync()
            assert rank.content(address + half, nbytes) == drawn(1 - rank.number, nbytes)
            at += 13
        rank.handshake(channel, 2)
        rank.sync()

    run_ranks(2, body)


@pytest.mark.parametrize("engine", [CPU_TS, CPU])
def test_hcomm_read_on_thread_fetches_bytes_of_peer(hcomm: ModuleType, engine: int) -> None:
    def body(rank: Rank) -> None:
        thread = rank.threads(engine)
        channel = rank.channels(engine=engine, protocol=ROCE)[1 - rank.number]
        address, size = rank.buffer()
        there, _ = ok(hcomm.HcclChannelGetHcclBuffer(rank.comm, channel))
        rank.fill(address, drawn(rank.number, 100_003))
        rank.handshake(channel, 0)
        ok(hcomm.HcommReadOnThread(thread, channel, address + size // 2, there, 100_003))
        rank.handshake(channel, 1)
        rank.sync()
        assert rank.content(address + size // 2, 100_003) == drawn(1 - rank.number, 100_003)

    run_ranks(2, body)


def test_hcomm_read_on_thread_into_unregistered_memory_over_hccs_succeeds(hcomm: ModuleType) -> None:
    """As in the vendor's sample of point to point: over HCCS any memory of the rank's device will do."""

    def body(rank: Rank) -> None:
        thread = rank.threads()
        channel = rank.channels()[1 - rank.number]
        address, _ = rank.buffer()
        there, _ = ok(hcomm.HcclChannelGetHcclBuffer(rank.comm, channel))
        mine = ok(acl.rt.malloc(5000, 0))
        if rank.number == 0:
            rank.fill(mine, drawn(0, 5000))
            ok(hcomm.HcommLocalCopyOnThread(thread, address, mine, 5000))
            ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channel, 0))
            ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, 1, WAIT))
            rank.sync()
        else:
            ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, 0, WAIT))
            ok(hcomm.HcommReadOnThread(thread, channel, mine, there, 5000))
            ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channel, 1))
            rank.sync()
            assert rank.content(mine, 5000) == drawn(0, 5000)
        ok(acl.rt.free(mine))

    run_ranks(2, body)


TYPES: dict[int, Any] = {0: np.int8, 1: np.int16, 2: np.int32, 3: np.float16, 4: np.float32}
REMOTE: dict[int, Any] = {**TYPES, 7: np.uint8, 8: np.uint16, 9: np.uint32}
OPS: dict[int, Any] = {0: np.add, 2: np.maximum, 3: np.minimum}


def numbers(rank: int, dtype: Any) -> Any:
    return np.random.default_rng(rank + 10).integers(0, 20, 1001).astype(dtype)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", REMOTE)
def test_hcomm_reduce_calls_every_type_and_operation_equal_numpy(
    hcomm: ModuleType, dtype: int, op: int
) -> None:
    kind = REMOTE[dtype]
    wanted = OPS[op](numbers(0, kind), numbers(1, kind)).astype(kind).tobytes()

    def body(rank: Rank) -> None:
        thread = rank.threads()
        channel = rank.channels()[1 - rank.number]
        address, size = rank.buffer()
        there, _ = ok(hcomm.HcclChannelGetHcclBuffer(rank.comm, channel))
        nbytes = len(wanted)
        pulled, pushed, local = (address + size * part // 4 for part in (1, 2, 3))
        for part in (address, pulled, pushed, local):
            rank.fill(part, numbers(rank.number, kind))
        rank.handshake(channel, 0)
        count = nbytes // np.dtype(kind).itemsize
        if rank.number == 0:
            reduce = (count, dtype, op)
            ok(hcomm.HcommWriteReduceOnThread(thread, channel, there + size // 2, address, *reduce))
            ok(hcomm.HcommReadReduceOnThread(thread, channel, pulled, there, *reduce))
        rank.handshake(channel, 1)
        if dtype in TYPES:
            ok(hcomm.HcommReadOnThread(thread, channel, pushed if rank.number == 0 else local, there, nbytes))
            target = local
            ok(
                hcomm.HcommLocalReduceOnThread(
                    thread, target, pushed if rank.number == 0 else address, count, dtype, op
                )
            )
        rank.handshake(channel, 2)
        rank.sync()
        if rank.number == 0:
            assert rank.content(pulled, nbytes) == wanted
        else:
            assert rank.content(pushed, nbytes) == wanted
        if dtype in TYPES:
            assert rank.content(local, nbytes) == wanted

    run_ranks(2, body)


def test_hcomm_write_with_notify_calls_deliver_bytes_before_notify(hcomm: ModuleType) -> None:
    def body(rank: Rank) -> None:
        thread = rank.threads()
        channel = rank.channels()[1 - rank.number]
        address, size = rank.buffer()
        there, _ = ok(hcomm.HcclChannelGetHcclBuffer(rank.comm, channel))
        rank.fill(address, numbers(rank.number, np.int32))
        rank.fill(address + size // 2, np.ones(1001, np.int32))
        rank.handshake(channel, 0)
        target = there + size // 2
        ok(hcomm.HcommWriteReduceWithNotifyOnThread(thread, channel, target, address, 1001, 2, 0, 1))
        ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, 1, WAIT))
        ok(hcomm.HcommWriteWithNotifyOnThread(thread, channel, there + size // 4, address, 4004, 2))
        ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, 2, WAIT))
        rank.sync()
        theirs = numbers(1 - rank.number, np.int32)
        assert rank.content(address + size // 2, 4004) == (theirs + 1).tobytes()
        assert rank.content(address + size // 4, 4004) == theirs.tobytes()

    run_ranks(2, body)


def test_hcomm_batch_transfer_on_thread_runs_list_in_order(hcomm: ModuleType) -> None:
    def desc(kind: int, name: str, **values: int) -> Any:
        transfer = hcomm.HcommBatchTransferDesc()
        transfer.transType = kind
        for each, value in values.items():
            setattr(getattr(transfer.transferInfo, name), each, value)
        return transfer

    def body(rank: Rank) -> None:
        thread = rank.threads()
        channel = rank.channels()[1 - rank.number]
        address, size = rank.buffer()
        there, _ = ok(hcomm.HcclChannelGetHcclBuffer(rank.comm, channel))
        rank.fill(address, numbers(rank.number, np.int32))
        rank.handshake(channel, 0)
        to = there + size // 2
        reduction = {"dst": to, "src": address, "count": 1001, "reduceOp": 0, "dataType": 2}
        listed = [
            desc(0, "write", dst=to, src=address, len=4004),  # the next writes overwrite it
            desc(0, "write", dst=to, src=address + 4, len=4000),
            desc(0, "write", dst=to, src=address, len=4004),
            desc(1, "reduce", **reduction),
            desc(3, "writeReduceWithNotify", **reduction, notifyIdx=1),
            desc(2, "writeWithNotify", dst=there + size // 4, src=address, len=8, notifyIdx=2),
            desc(6, "notifyRecord", notifyIdx=3),
        ]
        ok(hcomm.HcommBatchTransferOnThread(thread, channel, listed, len(listed)))
        for notify in (1, 2, 3):
            ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, notify, WAIT))
        reads = [
            desc(4, "read", dst=address + size // 8, src=there, len=4004),
            desc(5, "reduce", dst=address + size // 8, src=there, count=1001, reduceOp=2, dataType=2),
        ]
        ok(hcomm.HcommBatchTransferOnThread(thread, channel, reads, 2))
        rank.handshake(channel, 0)
        rank.sync()
        theirs = numbers(1 - rank.number, np.int32)
        assert rank.content(address + size // 2, 4004) == (theirs * 3).tobytes()
        assert rank.content(address + size // 4, 8) == theirs.tobytes()[:8]
        assert rank.content(address + size // 8, 4004) == theirs.tobytes()

    run_ranks(2, body)


@pytest.mark.parametrize("is_threadless", [False, True])
def test_hcomm_nbi_transfers_are_complete_after_fence(hcomm: ModuleType, is_threadless: bool) -> None:
    def body(rank: Rank) -> None:
        channel = rank.channels(engine=CPU, protocol=ROCE)[1 - rank.number]
        address, size = rank.buffer()
        there, _ = ok(hcomm.HcclChannelGetHcclBuffer(rank.comm, channel))
        rank.fill(address, drawn(rank.number, 9000))
        first = () if is_threadless else (0,)
        end = "" if is_threadless else "OnThread"

        def call(name: str, *args: int) -> None:
            ok(getattr(hcomm, f"{name}{end}")(*first, channel, *args))

        call("HcommChannelNotifyRecord", 0)
        call("HcommChannelNotifyWait", 0, WAIT)
        call("HcommWriteNbi", there + size // 2, address, 4000)
        call("HcommWriteWithNotifyNbi", there + size // 2 + 4000, address + 4000, 5000, 1)
        call("HcommReadNbi", address + size // 4, there, 9000)
        call("HcommChannelFence")
        ok(hcomm.HcommFenceOnThread(0))
        assert rank.content(address + size // 4, 9000) == drawn(1 - rank.number, 9000)
        call("HcommChannelNotifyWait", 1, WAIT)
        call("HcommChannelNotifyRecord", 2)  # after the fence every byte has arrived
        call("HcommChannelNotifyWait", 2, WAIT)
        assert rank.content(address + size // 2, 9000) == drawn(1 - rank.number, 9000)
        call("HcommChannelNotifyRecord", 3)
        call("HcommChannelNotifyWait", 3, WAIT)

    run_ranks(2, body)


def test_hcomm_comm_mem_reg_tagged_memory_is_looked_up_and_written_by_peer(hcomm: ModuleType) -> None:
    def body(rank: Rank) -> None:
        thread = rank.threads()
        mine = ok(acl.rt.malloc(3 << 20, 0))
        mem = hcomm.CommMem(hcomm.COMM_MEM_TYPE_DEVICE, mine + 4096, 2 << 20)
        assert ok(hcomm.HcclCommMemReg(rank.comm, "weights", mem))
        small = hcomm.CommMem(0, mine, 64)
        assert ok(hcomm.HcclCommMemReg(rank.comm, "w" * 255, small))
        channel = rank.channels(protocol=ROCE)[1 - rank.number]
        number, mems, tags = ok(hcomm.HcclChannelGetRemoteMems(rank.comm, channel))
        assert (number, sorted(tags)) == (3, ["HcclBuffer", "weights", "w" * 255])
        by_tag = dict(zip(tags, mems, strict=True))
        assert [by_tag[tag].size for tag in sorted(tags)] == [2 << 20, 2 << 20, 64]
        rank.fill(mine, drawn(rank.number, 3 << 20))
        rank.handshake(channel, 0)
        target = by_tag["weights"].addr
        ok(hcomm.HcommWriteOnThread(thread, channel, target + (1 << 20), mine + 4096, 1 << 20))
        rank.handshake(channel, 1)
        rank.sync()
        wanted = drawn(1 - rank.number, 3 << 20)[4096 : 4096 + (1 << 20)]
        assert rank.content(mine + 4096 + (1 << 20), 1 << 20) == wanted
        ok(hcomm.HcclCommDestroy(rank.comm))
        ok(acl.rt.free(mine))

    run_ranks(2, body, destroy=False)


@pytest.mark.parametrize("protocol", [HCCS, ROCE])
def test_hcomm_write_on_thread_freed_memory_returns_6_until_registered_again(
    hcomm: ModuleType, protocol: int
) -> None:
    """An allocator reuses an address: the new memory there has no part in the old registration."""
    size = 4096

    def body(rank: Rank) -> None:
        thread = rank.threads()
        first = ok(acl.rt.malloc(size, 0))
        ok(hcomm.HcclCommMemReg(rank.comm, "cache", hcomm.CommMem(0, first, size)))
        channel = rank.channels(protocol=protocol)[1 - rank.number]
        there, _ = ok(hcomm.HcclChannelGetHcclBuffer(rank.comm, channel))
        at = there + rank.number * size
        ok(hcomm.HcommWriteOnThread(thread, channel, at, first, size))
        ok(hcomm.HcclAllReduce(first, first, size, 0, 0, rank.comm, rank.stream))
        rank.sync()
        ok(acl.rt.free(first))
        assert code(hcomm.HcommWriteOnThread(thread, channel, at, first, size)) == 6
        again = ok(acl.rt.malloc(size, 0))
        assert again == first
        rank.fill(again, drawn(rank.number, size))
        ok(hcomm.HcclAllReduce(again, again, size, 0, 0, rank.comm, rank.stream))
        if protocol == ROCE:  # the network card does not know the new memory
            assert code(hcomm.HcommWriteOnThread(thread, channel, at, again, size)) == 6
            assert "('cache', freed)" in explain()
        ok(hcomm.HcclCommMemReg(rank.comm, "cache", hcomm.CommMem(0, again, size)))
        rank.sync()
        rank.fill(again, drawn(rank.number, size))
        rank.handshake(channel, 0)
        ok(hcomm.HcommWriteOnThread(thread, channel, at, again, size))
        rank.handshake(channel, 1)
        rank.sync()
        mine, _ = rank.buffer()
        assert rank.content(mine + (1 - rank.number) * size, size) == drawn(1 - rank.number, size)
        # A new channel offers only memory that lives.
        other = rank.channels(protocol=5)[1 - rank.number]
        mems = ok(hcomm.HcclChannelGetRemoteMems(rank.comm, other))
        assert sorted(mems[2]) == ["HcclBuffer", "cache"]
        ok(hcomm.HcommReadOnThread(thread, other, mine, mems[1][mems[2].index("cache")].addr, size))
        rank.handshake(other, 0)
        rank.sync()
        assert rank.content(mine, size) == drawn(1 - rank.number, size)

    run_ranks(2, body)


def test_hcomm_all_reduce_beyond_hccl_buffer_returns_6(hcomm: ModuleType) -> None:
    def body(rank: Rank) -> None:
        rank.threads()
        address, size = rank.buffer()
        assert code(hcomm.HcclAllReduce(address, address, size + 1, 0, 0, rank.comm, rank.stream)) == 6
        assert "end 1 bytes beyond" in explain()

    run_ranks(1, body)


def test_hcomm_get_hccl_buffer_cleared_zeroes_same_buffer(hcomm: ModuleType) -> None:
    def body(rank: Rank) -> None:
        address, size = rank.buffer()
        rank.fill(address, drawn(1, size))
        assert ok(hcomm.HcclGetHcclBufferCleared(rank.comm)) == (address, size)
        assert rank.content(address, size) == bytes(size)
        assert rank.buffer() == (address, size)

    run_ranks(1, body)
