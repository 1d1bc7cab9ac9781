"""Order of work: deferred waits, the vendor's order of calls, batches, time-outs, and busy communicators."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from helpers.hcomm_ranks import CPU, CPU_TS, ROCE, WAIT, Rank, code, in_threads, ok, run_ranks
from helpers.peers import peer as process_in
from peerlane.dialects import acl
from peerlane.dialects.hcomm import explain
from peerlane.dialects.hcomm._comm import comm_of

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("is_batch", [False, True])
def test_hcomm_all_gather_sample_waits_submitted_before_records_gathers_bytes(
    hcomm: ModuleType, size: int, is_batch: bool
) -> None:
    """Every wait is submitted before the record that ends it, from one thread of the program (facts/hcomm 3.2)."""
    chunk = 40_000

    def body(rank: Rank) -> None:
        me, others = rank.number, [peer for peer in range(size) if peer != rank.number]
        main = rank.threads(notifies=len(others))
        slaves = ok(hcomm.HcclThreadAcquire(rank.comm, CPU_TS, len(others), 1))
        channels = rank.channels(notifies=2)
        address, _ = rank.buffer()
        source, target = ok(acl.rt.malloc(chunk, 0)), ok(acl.rt.malloc(chunk * size, 0))
        for iteration in range(3):
            rank.fill(source, np.full(chunk, 16 * me + iteration, np.uint8))
            if is_batch:
                ok(hcomm.HcommBatchModeStart("gather"))
            ok(hcomm.HcommLocalCopyOnThread(main, address + me * chunk, source, chunk))
            for slave in slaves:
                ok(hcomm.HcommThreadNotifyWaitOnThread(slave, 0, WAIT))
            for slave in slaves:
                ok(hcomm.HcommThreadNotifyRecordOnThread(main, slave, 0))
            for index in range(len(others)):
                ok(hcomm.HcommThreadNotifyWaitOnThread(main, index, WAIT))
            for index, (peer, slave) in enumerate(zip(others, slaves, strict=True)):
                there, _ = ok(hcomm.HcclChannelGetHcclBuffer(rank.comm, channels[peer]))
                slot = me * chunk
                link = slave, channels[peer]
                ok(hcomm.HcommChannelNotifyRecordOnThread(*link, 0))
                ok(hcomm.HcommChannelNotifyWaitOnThread(*link, 0, WAIT))
                ok(hcomm.HcommWriteOnThread(*link, there + slot, address + slot, chunk))
                ok(hcomm.HcommChannelNotifyRecordOnThread(*link, 1))
                ok(hcomm.HcommChannelNotifyWaitOnThread(*link, 1, WAIT))
                ok(hcomm.HcommThreadNotifyRecordOnThread(slave, main, index))
            for peer in range(size):
                ok(hcomm.HcommLocalCopyOnThread(main, target + peer * chunk, address + peer * chunk, chunk))
            if is_batch:
                ok(hcomm.HcommBatchModeEnd("gather"))
            rank.sync()
            wanted = b"".join(bytes([16 * peer + iteration]) * chunk for peer in range(size))
            assert rank.content(target, chunk * size) == wanted
        for slave in slaves:
            ok(hcomm.HcommThreadJoin(slave, WAIT))
        ok(acl.rt.free(source))
        ok(acl.rt.free(target))

    run_ranks(size, body)


def test_hcomm_aclrt_notifies_order_streams_and_threads(hcomm: ModuleType) -> None:
    def body(rank: Rank) -> None:
        thread = rank.threads()
        other = ok(acl.rt.create_stream())
        to, back = (ok(acl.rt.create_notify(0)) for _ in range(2))
        address, size = rank.buffer()
        ok(hcomm.HcommAclrtNotifyWaitOnThread(thread, ok(acl.rt.get_notify_id(to)), WAIT))
        ok(hcomm.HcommLocalCopyOnThread(thread, address + 8, address, 8))
        ok(hcomm.HcommAclrtNotifyRecordOnThread(thread, ok(acl.rt.get_notify_id(back))))
        ok(acl.rt.wait_and_reset_notify(back, other, WAIT))
        ok(acl.rt.memset_async(address + 8, size - 8, 9, 4, other))
        rank.fill(address, b"ABCDEFGH")
        third = ok(acl.rt.create_stream())
        ok(acl.rt.record_notify(to, third))
        ok(acl.rt.synchronize_stream(other))
        assert rank.content(address, 16) == b"ABCDEFGH\t\t\t\tEFGH"
        rank.sync()
        assert code(hcomm.HcommAclrtNotifyRecordOnThread(thread, 1 << 40)) == 6
        for notify in (to, back):
            ok(acl.rt.destroy_notify(notify))

    run_ranks(1, body)


def test_hcomm_batch_mode_calls_run_at_batch_mode_end(hcomm: ModuleType) -> None:
    def body(rank: Rank) -> None:
        thread = rank.threads()
        address, _ = rank.buffer()
        rank.fill(address, b"abcdefgh" + bytes(24))
        for tag in (None, "", "named"):
            ok(hcomm.HcommBatchModeStart(tag))
            assert code(hcomm.HcommBatchModeStart("again")) == 1
            ok(hcomm.HcommLocalCopyOnThread(thread, address + 8, address, 8))
            assert code(hcomm.HcommLocalCopyOnThread(thread, 0, address, 8)) == 2  # checked at once
            rank.sync()
            assert rank.content(address + 8, 8) == bytes(8)
            assert code(hcomm.HcommBatchModeEnd("another")) == 1
            assert in_threads([lambda tag=tag: code(hcomm.HcommBatchModeEnd(tag))]) == [1]
            assert rank.content(address + 8, 8) == bytes(8)
            ok(hcomm.HcommBatchModeEnd(tag))
            assert code(hcomm.HcommBatchModeEnd(tag)) == 1
            rank.sync()
            assert rank.content(address + 8, 8) == b"abcdefgh"
            rank.fill(address + 8, bytes(8))

    run_ranks(1, body)


def test_hcomm_batch_mode_end_first_failure_stops_later_calls(hcomm: ModuleType) -> None:
    def body(rank: Rank) -> None:
        thread = rank.threads()
        address, _ = rank.buffer()
        rank.fill(address, b"abcdefgh" + bytes(24))
        doomed = ok(acl.rt.malloc(64, 0))
        ok(hcomm.HcommBatchModeStart("b"))
        ok(hcomm.HcommLocalCopyOnThread(thread, address + 8, address, 8))
        ok(hcomm.HcommLocalCopyOnThread(thread, doomed, address, 8))
        ok(hcomm.HcommLocalCopyOnThread(thread, address + 16, address, 8))
        ok(acl.rt.free(doomed))
        explain()
        assert code(hcomm.HcommBatchModeEnd("b")) == 6
        assert "call 2 of 3 of the batch, HcommLocalCopyOnThread" in explain()
        rank.sync()
        assert rank.content(address + 8, 16) == b"abcdefgh" + bytes(8)

    run_ranks(1, body)


def test_hcomm_channel_notify_wait_time_out_fails_stream_with_507046(hcomm: ModuleType) -> None:
    def body(rank: Rank) -> None:
        thread = rank.threads()
        channel = rank.channels()[1 - rank.number]
        address, _ = rank.buffer()
        rank.fill(address, b"abcdefgh" + bytes(8))
        if rank.number == 0:
            ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, 0, 1))
            ok(hcomm.HcommLocalCopyOnThread(thread, address + 8, address, 8))
            explain(), acl.get_recent_err_msg()
            assert acl.rt.synchronize_stream(rank.stream) == 507046
            text = acl.get_recent_err_msg()
            assert "EI0002" in text and "notify 0 from rank 1 to rank 0" in text
            assert rank.content(address + 8, 8) == bytes(8)  # later tasks do not run
        else:
            ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, 0, WAIT))
            rank.sync()
            return
        ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channel, 0))
        rank.sync()

    run_ranks(2, body)


def test_hcomm_thread_notify_wait_time_out_message_names_thread_notify(hcomm: ModuleType) -> None:
    def body(rank: Rank) -> None:
        thread = rank.threads()
        ok(hcomm.HcommThreadNotifyWaitOnThread(thread, 3, 1))
        acl.get_recent_err_msg()
        assert acl.rt.synchronize_stream(rank.stream) == 507046
        assert f"notify 3 of thread {thread:#x}" in acl.get_recent_err_msg()
        notify = ok(acl.rt.create_notify(0))
        ok(acl.rt.wait_and_reset_notify(notify, rank.stream, 1))
        assert acl.rt.synchronize_stream(rank.stream) == 107019  # a wait of acl keeps acl's code

    run_ranks(1, body)


def test_hcomm_engine_cpu_waits_block_caller_and_return_9_on_time_out(hcomm: ModuleType) -> None:
    def body(rank: Rank) -> None:
        thread = rank.threads(CPU)
        channel = rank.channels(engine=CPU, protocol=ROCE)[1 - rank.number]
        for wait in (
            lambda seconds: hcomm.HcommChannelNotifyWaitOnThread(thread, channel, 0, seconds),
            lambda seconds: hcomm.HcommChannelNotifyWait(channel, 0, seconds),
            lambda seconds: hcomm.HcommThreadNotifyWaitOnThread(thread, 0, seconds),
        ):
            assert code(wait(0)) == 1
            start = time.monotonic()
            assert code(wait(1)) == 9
            assert 0.9 < time.monotonic() - start < 20
        ok(hcomm.HcommThreadNotifyRecordOnThread(thread, thread, 0))
        ok(hcomm.HcommThreadNotifyWaitOnThread(thread, 0, 1))
        ok(hcomm.HcommSetNotifyWaitTimeOut(1.0))
        assert code(hcomm.HcommChannelNotifyWaitOnThreadWithDefaultTimeout(thread, channel, 0)) == 9
        assert code(hcomm.HcommThreadNotifyWaitOnThreadWithDefaultTimeout(thread, 0)) == 9
        ok(hcomm.HcommChannelNotifyRecord(channel, 1))
        ok(hcomm.HcommChannelNotifyWait(channel, 1, WAIT))

    run_ranks(2, body)


def test_hcomm_engine_cpu_copy_runs_after_work_of_its_stream(hcomm: ModuleType) -> None:
    def body(rank: Rank) -> None:
        thread = rank.threads(CPU)
        address, size = rank.buffer()
        ok(acl.rt.memset_async(address, size, 7, size // 2, rank.stream))
        ok(hcomm.HcommLocalCopyOnThread(thread, address + size // 2, address, size // 2))
        assert rank.content(address, size) == bytes([7]) * size

    run_ranks(1, body)


def test_hcomm_destroy_stream_ends_its_thread_and_frees_its_notifies(hcomm: ModuleType) -> None:
    """A program that makes a stream for each request does not run out of notifies, and no table grows."""

    def body(rank: Rank) -> None:
        address, _ = rank.buffer()
        threads = []
        for _ in range(40):
            stream = ok(acl.rt.create_stream())
            threads.append(ok(hcomm.HcclThreadAcquireWithStream(rank.comm, CPU_TS, stream, 2000)))
            ok(hcomm.HcclAllReduce(address, address, 4, 4, 0, rank.comm, stream))
            ok(acl.rt.synchronize_stream(stream))
            ok(acl.rt.destroy_stream(stream))
            assert code(hcomm.HcommLocalCopyOnThread(threads[-1], address, address + 64, 8)) == 6
        assert code(hcomm.HcommThreadNotifyRecordOnThread(threads[0], threads[0], 0)) == 6
        assert "the end of its stream" in explain()
        comm = comm_of(rank.comm)
        assert (len(comm.threads), len(comm.streams), comm.notifies) == (1, 1, 2000)

    run_ranks(1, body)


def test_hcomm_default_time_outs_apply_and_bad_values_return_1(
    hcomm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HCCL_EXEC_TIMEOUT", "1")
    for wrong in (-1.0, 0.5, float("nan"), float("inf"), 1e30):
        assert code(hcomm.HcommSetNotifyWaitTimeOut(wrong)) == 1
        assert code(hcomm.HcommThreadResAcquireTimeOut(wrong)) == 1
    ok(hcomm.HcommThreadResAcquireTimeOut(0))

    def body(rank: Rank) -> None:
        thread = rank.threads()
        ok(hcomm.HcommThreadNotifyWaitOnThreadWithDefaultTimeout(thread, 0))
        assert acl.rt.synchronize_stream(rank.stream) == 507046
        ok(hcomm.HcommSetNotifyWaitTimeOut(0.0))  # for ever
        ok(hcomm.HcommThreadNotifyWaitOnThreadWithDefaultTimeout(thread, 1))
        assert code(hcomm.HcommThreadJoin(thread, 1)) == 9
        assert code(hcomm.HcommThreadJoin(thread, 0)) == 9  # HCCL_EXEC_TIMEOUT
        other = ok(hcomm.HcclThreadAcquire(rank.comm, CPU_TS, 1, 1))[0]
        ok(hcomm.HcommThreadNotifyRecordOnThread(other, thread, 1))
        ok(hcomm.HcommThreadJoin(thread, WAIT))
        rank.sync()

    run_ranks(1, body)


def test_hcomm_comm_destroy_with_queued_wait_returns_20(hcomm: ModuleType) -> None:
    both = threading.Barrier(2)

    def body(rank: Rank) -> None:
        thread = rank.threads()
        channel = rank.channels()[1 - rank.number]
        ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, 0, 0))
        assert code(hcomm.HcclCommDestroy(rank.comm)) == 20
        assert "communication thread" in explain()
        both.wait(WAIT)
        (slave,) = ok(hcomm.HcclThreadAcquire(rank.comm, CPU_TS, 1, 0))
        ok(hcomm.HcommChannelNotifyRecordOnThread(slave, channel, 0))
        rank.sync()
        ok(hcomm.HcommThreadJoin(slave, WAIT))
        rank.handshake(channel, 1)
        rank.sync()

    run_ranks(2, body)


def _unfenced() -> None:
    from peerlane.dialects import hcomm

    def body(rank: Rank) -> None:
        channel = rank.channels(engine=CPU, protocol=ROCE)[1 - rank.number]
        there, _ = ok(hcomm.HcclChannelGetHcclBuffer(rank.comm, channel))
        ok(hcomm.HcommWriteNbi(channel, there, rank.buffer()[0], 4096))
        assert code(hcomm.HcclCommDestroy(rank.comm)) == 20
        assert "no fence has waited for" in explain()
        both.wait(WAIT)
        ok(hcomm.HcommChannelFence(channel))

    both = threading.Barrier(2)
    run_ranks(2, body)


def test_hcomm_comm_destroy_unfenced_write_returns_20() -> None:
    env = {"PEERLANE_SCHEDULE": "lazy", "HCCL_BUFFSIZE": "1"}  # no operation runs before a wait
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    with process_in(f"name=unfenced-{os.getpid()},devices=2", PYTHONPATH=path, **env) as process:
        process.run("import test_hcomm_order; test_hcomm_order._unfenced()")


def test_hcomm_comm_busy_while_caller_is_blocked_names_call(hcomm: ModuleType) -> None:
    def body(rank: Rank) -> None:
        channel = rank.channels(engine=CPU, protocol=ROCE)[1 - rank.number]
        if rank.number == 1:
            ok(hcomm.HcommChannelNotifyWait(channel, 0, WAIT))
            ok(hcomm.HcommChannelNotifyRecord(channel, 0))
            return
        waiter = threading.Thread(target=hcomm.HcommChannelNotifyWait, args=(channel, 0, WAIT))
        waiter.start()
        while True:
            ret = code(hcomm.HcommChannelFence(channel))
            assert ret == 0
            if (text := _busy(hcomm, rank.comm)) is not None:
                break
        assert "1 call of it blocks" in text
        ok(hcomm.HcommChannelNotifyRecord(channel, 0))
        waiter.join(WAIT)
        assert not waiter.is_alive()

    run_ranks(2, body)


def _busy(hcomm: ModuleType, comm: int) -> str | None:
    """Return the text of what keeps a communicator busy, or None."""
    from peerlane.dialects.hcomm._comm import comm_of

    return comm_of(comm).why_busy() or None


def test_hcomm_channel_drain_on_thread_waits_for_submitted_work(hcomm: ModuleType) -> None:
    def body(rank: Rank) -> None:
        thread = rank.threads()
        channel = rank.channels()[1 - rank.number]
        address, size = rank.buffer()
        there, _ = ok(hcomm.HcclChannelGetHcclBuffer(rank.comm, channel))
        rank.fill(address, np.full(size // 2, rank.number + 1, np.uint8))
        rank.handshake(channel, 0)
        ok(hcomm.HcommWriteOnThread(thread, channel, there + size // 2, address, size // 2))
        ok(hcomm.HcommChannelFenceOnThread(thread, channel))
        ok(hcomm.HcommChannelDrainOnThread(thread, channel))
        assert acl.rt.stream_query(rank.stream) == (0, 0)
        rank.handshake(channel, 1)
        rank.sync()
        assert rank.content(address + size // 2, size // 2) == bytes([2 - rank.number]) * (size // 2)

    run_ranks(2, body)


def test_hcomm_comm_suspend_refuses_transfers_until_resume(hcomm: ModuleType) -> None:
    calls: list[tuple[int, int, object]] = []
    ok(hcomm.HcclCommRegCommStateCallback("test", lambda *args: calls.append(args), "args"))

    def body(rank: Rank) -> int:
        thread = rank.threads()
        address, _ = rank.buffer()
        name = ok(hcomm.HcclGetCommName(rank.comm))
        assert ok(hcomm.HcclCommGetStatus(name)) == 0
        ok(hcomm.HcclCommSuspend(rank.comm))
        assert ok(hcomm.HcclCommGetStatus(name)) == 1
        assert code(hcomm.HcommLocalCopyOnThread(thread, address + 8, address, 8)) == 22
        ok(hcomm.HcclCommResume(rank.comm))
        ok(hcomm.HcommLocalCopyOnThread(thread, address + 8, address, 8))
        rank.sync()
        assert ok(hcomm.HcclCommGetStatus("none")) == 254
        return rank.comm

    (comm,) = run_ranks(1, body)
    assert calls == [(comm, phase, "args") for phase in (2, 3, 0, 1)]


def test_hcomm_fifo_notifies_wait_out_of_order_returns_19(
    hcomm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_HCOMM_NOTIFIES", "fifo")
    notified, seen = threading.Event(), threading.Event()

    def body(rank: Rank) -> None:
        channel = rank.channels(engine=CPU, protocol=ROCE)[1 - rank.number]
        thread = rank.threads()
        stream_channel = rank.channels()[1 - rank.number]
        if rank.number == 0:
            for index in (2, 0, 0):
                ok(hcomm.HcommChannelNotifyRecord(channel, index))
            ok(hcomm.HcommChannelNotifyRecordOnThread(thread, stream_channel, 3))
            rank.sync()
            notified.set()
            assert seen.wait(WAIT)
            return
        assert notified.wait(WAIT)
        assert code(hcomm.HcommChannelNotifyWait(channel, 1, WAIT)) == 19
        assert "the next record is of notify 2" in explain()
        ok(hcomm.HcommChannelNotifyWait(channel, 0, WAIT))
        ok(hcomm.HcommChannelNotifyWaitOnThread(0, channel, 0, WAIT))
        assert code(hcomm.HcommChannelNotifyWait(channel, 0, 1)) == 9
        ok(hcomm.HcommChannelNotifyWaitOnThread(thread, stream_channel, 0, WAIT))
        assert acl.rt.synchronize_stream(rank.stream) == 507000
        seen.set()

    run_ranks(2, body)
