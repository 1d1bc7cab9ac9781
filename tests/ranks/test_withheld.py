"""Under ``lazy`` the bytes of a channel arrive when the peer waits for a later notify, and not before."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator

import pytest

from helpers.peers import Peer, PeerError
from helpers.rank_peers import ask_all, ranks

RUNS = 30

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(240)]

_BEGIN = """
import os, signal, time
import numpy as np
s = grp.device.create_stream(); t = grp.device.create_stream()
me = grp.window; me.fill(0)
"""


@contextlib.contextmanager
def lazy(monkeypatch: pytest.MonkeyPatch, options: str = "window=1 << 20") -> Iterator[list[Peer]]:
    """Yield two processes with a group under ``lazy``: the writer, rank 0, and the reader."""
    monkeypatch.setenv("PEERLANE_SCHEDULE", "lazy")
    with ranks(2, options=options) as peers:
        ask_all(peers, _BEGIN)
        yield peers


def _arrived(reader: Peer, at: int = 0) -> int:
    content = reader.run(f"result = int(me[{at}:{at + 1}].view()[0])")
    assert isinstance(content, int)
    return content


def _rested(began: float) -> bool:
    """Whether the reader may have brought all that came since ``began``: it does after 1 s without a call."""
    return time.monotonic() - began > 0.9


@pytest.mark.parametrize("stream", ["None", "s"])
@pytest.mark.parametrize("nbytes", [8, 70_000])
def test_withheld_write_without_receivers_wait_shows_every_time(
    stream: str, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lazy(monkeypatch) as (writer, reader):
        for value in range(1, RUNS + 1):
            code = f"src = grp.device.allocate({nbytes}); src.fill({value})\n"
            began = time.monotonic()
            writer.run(code + f"ch[1].write(src, notify=0, stream={stream}); s.sync()")
            assert _arrived(reader, nbytes - 1) == value - 1 or _rested(began)
            reader.run("ch[0].wait(0, timeout=20)")
            assert _arrived(reader, nbytes - 1) == value
            assert _arrived(reader) == value


def test_withheld_write_waited_for_on_a_stream_is_there_for_its_next_operation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with lazy(monkeypatch) as (writer, reader):
        reader.run("out = grp.device.allocate(64); host = np.zeros(64, np.uint8)")
        for value in range(1, RUNS + 1):
            reader.run("ch[0].wait(1, stream=s, timeout=20); out.copy_from(me[:64], stream=s)")
            writer.run(f"ch[1].write(np.full(64, {value}, np.uint8), notify=1, stream=s)")
            assert reader.run("s.sync(); result = int(out.view()[63])") == value


def test_withheld_notify_before_its_data_shows_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with lazy(monkeypatch) as (writer, reader):
        for value in range(1, RUNS + 1):
            began = time.monotonic()
            writer.run(
                f"ch[1].notify(0, stream=s); ch[1].write(np.full(64, {value}, np.uint8), stream=s); s.sync()"
            )
            reader.run("ch[0].wait(0, timeout=20)")
            assert _arrived(reader) == value - 1 or _rested(began)
            writer.run("ch[1].notify(1, stream=s); s.sync()")
            reader.run("ch[0].wait(1, timeout=20)")
            assert _arrived(reader) == value


def test_withheld_write_of_another_stream_does_not_come_with_the_notify(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with lazy(monkeypatch) as (writer, reader):
        began = time.monotonic()
        writer.run(
            "ch[1].write(b'\\1', stream=t); ch[1].write(b'\\2', at=1, notify=0, stream=s); s.sync(); t.sync()"
        )
        reader.run("ch[0].wait(0, timeout=20)")
        assert (_arrived(reader), _arrived(reader, 1)) == (0, 2) or _rested(began)
        writer.run("ch[1].fence(); ch[1].notify(1, stream=s); s.sync()")
        reader.run("ch[0].wait(1, timeout=20)")
        assert (_arrived(reader), _arrived(reader, 1)) == (1, 2)


def test_withheld_nonblocking_writes_come_with_a_notify_after_a_fence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with lazy(monkeypatch) as (writer, reader):
        for value, fence in (
            (1, "ch[1].fence(); ch[1].notify(0)"),
            (2, "ch[1].fence(stream=s); ch[1].notify(0, stream=s)"),
        ):
            for at in range(4):
                writer.run(f"ch[1].write(bytes([{value}]), at={at}, nonblocking=True)")
            writer.run(fence + "; s.sync()")
            reader.run("ch[0].wait(0, timeout=20)")
            assert [_arrived(reader, at) for at in range(4)] == [value] * 4


def test_withheld_writes_reductions_and_blocks_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    with lazy(monkeypatch) as (writer, reader):
        began = time.monotonic()
        writer.run(
            "ones = np.ones(256, np.int32)\n"
            "ch[1].write(5 * ones, stream=s)\n"
            "ch[1].write_reduce(3 * ones, dtype='int32', stream=s)\n"
            "ch[1].write_blocks(9 * ones, [[0, 0, 8], [512, 0, 8]], notify=0, stream=s)\n"
            "ch[1].write(np.zeros(256, np.int32), stream=s)\n"
            "s.sync()"
        )
        assert reader.run("result = int(me.view('int32')[:256].sum())") == 0 or _rested(began)
        reader.run("ch[0].wait(0, timeout=20)")
        content = reader.run("result = me.view('int32')[:256].tolist()")
        assert content == [9, 9, *[8] * 126, 9, 9, *[8] * 126] or _rested(began)


def test_withheld_write_is_seen_by_the_writers_read_of_the_same_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with lazy(monkeypatch) as (writer, _reader):
        code = "got = np.zeros(4, np.uint8)\n"
        assert writer.run(code + "ch[1].write(b'\\1\\2\\3\\4'); ch[1].read(got); result = got.tolist()") == [
            1,
            2,
            3,
            4,
        ]
        code += "ch[1].write(b'\\5\\6\\7\\0', stream=s); ch[1].read(got, stream=s); s.sync(); result = got.tolist()"
        assert writer.run(code) == [5, 6, 7, 0]


def test_withheld_barrier_brings_nothing_and_a_collective_its_own_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with lazy(monkeypatch) as peers:
        writer, reader = peers
        ask_all(peers, "total = np.zeros(1, np.int64); one = np.ones(1, np.int64)")
        for value in range(1, RUNS + 1):
            began = time.monotonic()
            writer.run(f"ch[1].write(bytes([{value}]), notify=0, stream=s); s.sync()")
            ask_all(peers, "grp.all_reduce(total, one, dtype='int64')")
            assert reader.run("result = int(total[0])") == 2
            assert _arrived(reader) == value - 1 or _rested(began)
            reader.run("ch[0].wait(0, timeout=20)")
            assert _arrived(reader) == value


@pytest.mark.parametrize("kind", ["binary", "fifo", "strict"])
def test_withheld_writes_come_with_records_of_each_kind_of_notify(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lazy(monkeypatch, f"window=1 << 20, notifies={kind!r}") as (writer, reader):
        for value in range(1, RUNS + 1):
            began = time.monotonic()
            writer.run(f"ch[1].write(bytes([{value}]), notify=2, stream=s); s.sync()")
            assert _arrived(reader) == value - 1 or _rested(began)
            reader.run("ch[0].wait(2, timeout=20)")
            assert _arrived(reader) == value


def test_withheld_records_waited_for_once_bring_what_came_before_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with lazy(monkeypatch) as (writer, reader):
        began = time.monotonic()
        writer.run(
            "ch[1].write(b'\\1', notify=0, stream=s); ch[1].write(b'\\2', at=1, notify=0, stream=s); s.sync()"
        )
        reader.run("ch[0].wait(0, timeout=20)")
        assert (_arrived(reader), _arrived(reader, 1)) == (1, 0) or _rested(began)
        writer.run("ch[1].notify(0, stream=s); s.sync()")
        reader.run("ch[0].wait(0, timeout=20)")
        assert (_arrived(reader), _arrived(reader, 1)) == (1, 2)


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)", "raise SystemExit"])
def test_withheld_writer_ends_after_sync_its_writes_arrive(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with lazy(monkeypatch) as (writer, reader):
        began = time.monotonic()
        writer.send(
            "src = grp.device.allocate(70_000); src.fill(7)\n"
            "ch[1].write(src, notify=0, stream=s)\n"
            "ch[1].write_reduce(np.ones(8, np.uint8), dtype='uint8', at=70_000, stream=s)\n"
            f"ch[1].write(src, at=80_000, stream=s); s.sync()\n{end}"
        )
        os.waitid(os.P_PID, writer.pid, os.WEXITED | os.WNOWAIT)
        closed = end == "raise SystemExit"  # its end closes the channel
        assert _arrived(reader) == (7 if closed else 0) or _rested(began)
        reader.run("ch[0].wait(0, timeout=20)")
        assert _arrived(reader) == 7
        with pytest.raises(PeerError) as refused:
            reader.run("ch[0].wait(0)")
        assert refused.value.kind == "PeerLost"
        assert [_arrived(reader, at) for at in (69_999, 70_000, 149_999)] == [7, 1, 7]


@pytest.mark.parametrize("closes", [0, 1])
def test_withheld_channel_closed_at_either_end_brings_what_was_written(
    closes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lazy(monkeypatch) as peers:
        began = time.monotonic()
        peers[0].run("ch[1].write(b'\\1', stream=s); s.sync()")
        assert _arrived(peers[1]) == 0 or _rested(began)
        peers[closes].run(f"ch[{1 - closes}].close()")
        assert _arrived(peers[1]) == 1


def test_withheld_reader_that_only_looks_sees_the_bytes_after_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with lazy(monkeypatch) as (writer, reader):
        began = time.monotonic()  # the clock of every process, and the second counts from the write
        writer.run("ch[1].write(b'\\1', stream=s); s.sync()")
        code = "end = time.monotonic() + 20\n"
        code += "while not me[:1].view()[0] and time.monotonic() < end: pass\n"
        seen_at = reader.run(code + "assert me[:1].view()[0]; result = time.monotonic()")
        assert isinstance(seen_at, float)
        assert seen_at - began > 0.5


def test_withheld_memory_taken_back_has_what_was_written_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with lazy(monkeypatch) as peers:
        writer, reader = peers
        reader.run("mem = grp.device.allocate(64, peer=True); mem.fill(0); grp.register(mem, 'kv')")
        ask_all(peers, "link = grp.channel(1 - grp.rank)")
        began = time.monotonic()
        writer.run(
            "link.write(b'\\1', memory='kv', notify=0, stream=s); link.write(b'\\2', stream=s); s.sync()\n"
            "n = grp.device.create_notify(); s.wait(n); link.write(b'\\3', memory='kv', stream=s)"
        )
        assert reader.run("result = int(mem.view()[0])") == 0 or _rested(began)
        reader.run("grp.deregister('kv')")
        arrived = reader.run("result = int(mem.view()[0])"), _arrived(reader)
        assert arrived == (1, 0) or (arrived == (1, 2) and _rested(began))
        with pytest.raises(PeerError, match="took it back"):
            writer.run("n.record(); s.sync()")
        reader.run("link.wait(0, timeout=20)")
        assert (reader.run("result = int(mem.view()[0])"), _arrived(reader)) in [(1, 0), (1, 2)]


def test_withheld_beyond_the_area_the_last_page_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with lazy(monkeypatch, "window=80 << 20") as (writer, reader):
        writer.run("src = grp.device.allocate(80 << 20); src.fill(1)")
        began = time.monotonic()
        writer.run("ch[1].write(src, notify=0, stream=s); s.sync()")
        last = (80 << 20) - 1
        arrived = _arrived(reader), _arrived(reader, last - 4096), _arrived(reader, last)
        assert arrived == (1, 1, 0) or _rested(began)
        reader.run("ch[0].wait(0, timeout=20)")
        assert _arrived(reader, last) == 1
        began = time.monotonic()
        writer.run("src.fill(2); ch[1].write(src[: 60 << 20], notify=0, stream=s); s.sync()")
        assert _arrived(reader) == 1 or _rested(began)
        reader.run("ch[0].wait(0, timeout=20)")
        assert (_arrived(reader), _arrived(reader, (60 << 20) - 1)) == (2, 2)


def test_withheld_many_writes_without_a_wait_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    with lazy(monkeypatch) as (writer, reader):
        writer.run(
            "for n in range(10_000): ch[1].write(n.to_bytes(4, 'little'), stream=s)\n"
            "ch[1].notify(0, stream=s); s.sync()"
        )
        reader.run("ch[0].wait(0, timeout=20)")
        assert reader.run("result = int(me.view('int32')[0])") == 9_999


def test_withheld_write_that_was_cancelled_leaves_room(monkeypatch: pytest.MonkeyPatch) -> None:
    with lazy(monkeypatch) as (writer, reader):
        writer.run(
            "src = grp.device.allocate(1 << 20)\n"
            "for n in range(100):\n"
            "    s.wait(grp.device.create_notify(), timeout=0.001)\n"
            "    ch[1].write(src, notify=0, stream=s)\n"
            "    try: s.sync()\n"
            "    except pl.WaitTimeout: pass\n"
            "src.fill(3)"
        )
        began = time.monotonic()
        writer.run("ch[1].write(src, notify=0, stream=s); s.sync()")
        assert _arrived(reader) == 0 or _rested(began)
        reader.run("ch[0].wait(0, timeout=20)")
        assert _arrived(reader) == 3


_TABLE_OF_NONSENSE = """
words = ch[1]._late._entries._words
for n, entry in enumerate({table}):
    words[8 * n : 8 * n + 8] = memoryview(np.array(entry, np.uint64)).cast('B').cast('Q')
ch[1]._outgoing[0]._record()
"""


def test_withheld_hostile_entries_change_no_other_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    near = [0, 1, 8, 1 << 20, (1 << 20) + 1, (64 << 20) - 8, 64 << 20, 1 << 32, 1 << 63, (1 << 64) - 1]
    with lazy(monkeypatch) as (hostile, lives):
        lives.run("other = grp.device.allocate(1 << 20); other.fill(9)")
        for _ in range(6):
            table = []
            for n in range(1000):
                what = dice.randrange(6) | dice.randrange(60) << 8 | dice.randrange(3) << 32
                offsets = [
                    dice.choice(near) if dice.random() < 0.7 else dice.randrange(1 << 21) for _ in range(4)
                ]
                table.append([dice.choice((4, 5)), n, what, dice.choice((0, 0, 1, 1 << 40)), *offsets])
            hostile.run(_TABLE_OF_NONSENSE.format(table=table))
            lives.run("ch[0].wait(0, timeout=20)")
            assert lives.run("result = bool((other.view() == 9).all())")
        hostile.send("os._exit(0)")
        with pytest.raises(PeerError) as refused:
            lives.run("while True: ch[0].wait(3)")
        assert refused.value.kind == "PeerLost"
        assert lives.run("result = bool((other.view() == 9).all())")


def test_withheld_writer_stopped_while_it_brings_does_not_hang_the_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with lazy(monkeypatch) as (writer, reader):
        writer.run("ch[1].write(b'\\1', notify=0, stream=s); s.sync()")
        # The lock that a stopped process holds: the first word behind the entries.
        writer.run(
            "ch[1]._late._entries._view[4096 * 64 : 4096 * 64 + 8] = (os.getpid() | 1 << 32).to_bytes(8, 'little')"
        )
        writer.send("os.kill(os.getpid(), signal.SIGSTOP)")
        os.waitid(os.P_PID, writer.pid, os.WSTOPPED | os.WNOWAIT)
        reader.run("ch[0].wait(0, timeout=20)")
        assert _arrived(reader) == 1
        os.kill(writer.pid, signal.SIGCONT)
        writer.receive()
