"""Late delivery: under ``seeded`` a rank's writes and records reach the peer late, even after its end."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.peers import Peer, PeerError
from helpers.rank_peers import ask_all, ranks

SEEDS = 6

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(240)]


@contextlib.contextmanager
def late(monkeypatch: pytest.MonkeyPatch, seed: int, size: int = 2) -> Iterator[list[Peer]]:
    monkeypatch.setenv("PEERLANE_SCHEDULE", f"seeded:{seed}")
    with ranks(size, options="window=1 << 20") as peers:
        ask_all(peers, "import numpy as np; s = grp.device.create_stream(); t = grp.device.create_stream()")
        yield peers


_GIVE = """
import os, signal
grp.window  # of this rank
src = grp.device.allocate(70_000); src.copy_from(np.arange(70_000, dtype=np.uint8))
ch[1].write(src, at=8, notify=0, stream=s)
table = [[100_000 + 1000 * n, 500 * n, 500] for n in range(100)]
more[0].write_blocks(src, table, notify=0, stream=s)
more[1].write_reduce(np.full(1000, 3, np.int32), dtype="int32", at=300_000, notify=0, stream=t)
more[1].write_reduce(np.full(1000, 5, np.int32), dtype="int32", op="prod", at=300_000, notify=1, stream=t)
src.fill(0, stream=s)  # the bytes were given before
t.sync(); s.sync()
"""

_TAKE = """
me = grp.window
ch[0].wait(0, timeout=20)
assert (me[8:70_008].view() == np.arange(70_000, dtype=np.uint8)).all()
more[0].wait(0, timeout=20)
for n in range(100):
    at = 100_000 + 1000 * n
    assert (me[at : at + 500].view() == np.arange(500 * n, 500 * n + 500).astype(np.uint8)).all(), n
    assert not me[at + 500 : at + 1000].view().any()
more[1].wait(0, timeout=20); more[1].wait(1, timeout=20)
assert (me[300_000:304_000].view("int32") == (7 + 3) * 5).all()
result = [ch[0]._incoming[n].recorded for n in range(2)] + [more[1]._incoming[n].recorded for n in range(3)]
"""

_PREPARE = """
more = [grp.channel(1 - grp.rank) for _ in range(2)]
if grp.rank == 1:
    grp.window.fill(0)
    grp.window[300_000:304_000].copy_from(np.full(1000, 7, np.int32))
"""


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(0)", "raise SystemExit"])
def test_late_delivery_writer_ends_after_sync_its_writes_arrive(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(SEEDS):
        with late(monkeypatch, seed) as (ends, lives):
            ask_all([ends, lives], _PREPARE)
            ends.send(_GIVE + end)
            assert lives.run(_TAKE) == [1, 0, 1, 1, 0]
            with pytest.raises(PeerError) as refused:
                lives.run("ch[0].wait(0)")
            assert refused.value.kind == "PeerLost"
            assert lives.run("result = bytes(grp.window[:8].view()).hex()") == "00" * 8


def test_late_delivery_short_wait_after_death_sees_last_write(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(SEEDS):
        with late(monkeypatch, seed) as (ends, lives):
            ends.send("import os; ch[1].write(b'last words', notify=2, stream=s); s.sync(); os._exit(0)")
            os.waitid(os.P_PID, ends.pid, os.WEXITED | os.WNOWAIT)
            lives.run("s.sync(); ch[0].wait(2, timeout=0.001)")
            assert lives.run("result = bytes(grp.window[:10].view()).decode()") == "last words"


def test_late_delivery_stream_closed_after_death_sees_last_write(monkeypatch: pytest.MonkeyPatch) -> None:
    with late(monkeypatch, 3) as (ends, lives):
        lives.run("ch[0].wait(2, stream=s)")
        ends.send("import os; ch[1].write(b'last words', notify=2, stream=s); s.sync(); os._exit(0)")
        os.waitid(os.P_PID, ends.pid, os.WEXITED | os.WNOWAIT)
        lives.run("s.close()")
        assert lives.run("result = bytes(grp.window[:10].view()).decode()") == "last words"


def test_late_delivery_notify_in_flight_when_other_rank_dies_satisfies_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in range(SEEDS):
        with late(monkeypatch, seed, 3) as (dies, gives, waits):
            gives.send(
                "import os, signal; ch[2].notify(1, stream=s); s.sync(); os.kill(os.getpid(), signal.SIGSTOP)"
            )
            os.waitid(os.P_PID, gives.pid, os.WSTOPPED | os.WNOWAIT)
            os.kill(dies.pid, signal.SIGKILL)
            waits.send("ch[1].wait(1)")
            threading.Event().wait(0.3)  # the waiting rank looks several times for dead ranks
            os.kill(gives.pid, signal.SIGCONT)
            waits.receive()
            with pytest.raises(PeerError) as refused:
                waits.run("ch[1].wait(1)")
            assert f"rank 0 (process {dies.pid}) has died" in str(refused.value)
            gives.receive()


def test_late_delivery_receiver_killed_writer_syncs_and_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(SEEDS):
        with late(monkeypatch, seed) as (lives, dies):
            lives.run("ch[1].write(b'one', notify=0, stream=s)")
            os.kill(dies.pid, signal.SIGKILL)
            lives.run(
                "for n in range(3): ch[1].write(bytes(5000), notify=0, stream=s)\n"
                "s.sync(); ch[1].fence(); grp.close()"
            )


_GIVE_TO_BOTH = """
import os, signal
src = grp.device.allocate(4096); src.fill(9)
link.write(src, memory="kv", stream=s)
link.write_reduce(np.full(10, 5, np.int32), dtype="int32", at=4096, memory="kv", stream=s)
link.write_blocks(src, [[5000, 0, 8], [6000, 8, 8]], memory="kv", stream=s)
link.write(src, notify=0, stream=s)
s.sync(); os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.parametrize(
    "end", ["grp.deregister('kv')", "mem.close(); mem = grp.device.allocate(8192, peer=True)"]
)
def test_late_delivery_memory_taken_back_gets_no_bytes_of_dead_rank(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(SEEDS):
        with late(monkeypatch, seed) as (ends, lives):
            ask_all(
                [ends, lives],
                "mem = grp.device.allocate(8192, peer=True); grp.register(mem, 'kv')\n"
                "link = grp.channel(1 - grp.rank)",
            )
            ends.send(_GIVE_TO_BOTH)
            os.waitid(os.P_PID, ends.pid, os.WSTOPPED | os.WNOWAIT)
            lives.run(f"{end}; mem.fill(1)")
            os.kill(ends.pid, signal.SIGKILL)
            lives.run("link.wait(0, timeout=20)")
            assert lives.run("result = bool((grp.window[:4096].view() == 9).all())")
            assert lives.run("result = bool((mem.view() == 1).all())")


_SENDS = """
import os
file = os.open(path, os.O_WRONLY)
block = grp.device.allocate(4096)
for n in range(1 << 30):
    use, slot = divmod(n, 4)
    if use:
        ch[1].wait(slot, timeout=30)
    block.fill(n % 251, stream=s)
    at = slot << 16
    ch[1].write(block, at=at, stream=s)
    ch[1].write_blocks(block, [[at + 8192 + 1000 * i, 64 * i, 64] for i in range(8)], stream=s)
    ch[1].write_reduce(np.ones(600, np.int64), dtype="int64", at=at + 32768, stream=s)
    ch[1].notify(slot, stream=s)
    s.sync()
    os.pwrite(file, (n + 1).to_bytes(8, "little"), 0)
"""

_RECEIVES = """
seen = 0
try:
    while True:
        use, slot = divmod(seen, 4)
        ch[0].wait(slot)
        at = slot << 16
        assert (grp.window[at : at + 4096].view() == seen % 251).all(), (seen, "write")
        for i in range(8):
            first = at + 8192 + 1000 * i
            assert (grp.window[first : first + 64].view() == seen % 251).all(), (seen, "blocks")
        sums = grp.window[at + 32768 : at + 32768 + 4800].view("int64")
        assert (sums == use + 1).all(), (seen, use, sums.min(), sums.max())
        seen += 1
        ch[0].notify(slot, stream=s)
except pl.PeerLost:
    pass
assert all(line.recorded - line.consumed == 0 for line in ch[0]._incoming)
result = seen
"""


@pytest.mark.parametrize(
    "rounds", [8, pytest.param(300, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
)
def test_late_delivery_writer_killed_at_random_its_synced_writes_arrive(
    rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    last_count = tmp_path / "said"
    for number in range(rounds):
        last_count.write_bytes(bytes(8))
        with late(monkeypatch, dice.randrange(1 << 30)) as (dies, lives):
            lives.run("grp.window.fill(0)")
            lives.send(_RECEIVES)
            dies.send(f"path = {str(last_count)!r}\n{_SENDS}")
            threading.Event().wait(dice.random() * 0.1)
            os.kill(dies.pid, signal.SIGKILL)
            seen = lives.receive()
            (count,) = struct.unpack("<Q", last_count.read_bytes())
            assert seen >= count, (number, seen, count)
            assert lives.run("import os; result = len(os.listdir('/proc/self/fd'))") < 64


def test_late_delivery_hostile_entries_change_no_other_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for number in range(SEEDS):
        with late(monkeypatch, number) as (hostile, lives):
            lives.run("other = grp.device.allocate(1 << 20); other.fill(9); grp.window.fill(9)")
            near = [
                0,
                1,
                7,
                8,
                1 << 20,
                (1 << 20) + 1,
                (64 << 20) - 8,
                64 << 20,
                1 << 32,
                1 << 63,
                (1 << 64) - 1,
            ]
            table = [
                [
                    dice.choice((2, 3)),
                    n,
                    dice.randrange(6) | dice.randrange(60) << 8 if dice.random() < 0.9 else 1 << 63,
                ]
                + [dice.choice(near) if dice.random() < 0.7 else dice.randrange(1 << 21) for _ in range(5)]
                for n in range(1024)
            ]
            for entry in table:
                entry[3] = dice.choice((0, 0, 0, 1, 2, 1 << 40, (1 << 64) - 1))
            hostile.send(
                f"import os\nwords = ch[1]._late._entries._words\nfor n, entry in enumerate({table}):\n"
                "    words[8 * n : 8 * n + 8] = memoryview(np.array(entry, np.uint64)).cast('B').cast('Q')\n"
                "os._exit(0)"
            )
            with pytest.raises(PeerError) as refused:
                lives.run("\nwhile True: ch[0].wait(3)")
            assert refused.value.kind == "PeerLost", str(refused.value)
            assert lives.run("result = bool((other.view() == 9).all())")


_AREAS = """
def pages():
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if "peerlane-signals" in os.readlink(f"/proc/self/fd/{name}"):
                found.append(os.stat(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            pass
    return max((each.st_blocks * 512 for each in found if each.st_size > 1 << 25), default=0)
"""


def test_late_delivery_large_writes_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with late(monkeypatch, 1) as (gives, takes):
        ask_all([gives, takes], "import os; big = grp.device.allocate(40 << 20); grp.register(big, 'big')")
        ask_all([gives, takes], "wide = grp.channel(1 - grp.rank)")
        code = (
            _AREAS
            + """
gate = grp.device.create_notify()
src = grp.device.allocate(12 << 20); src.fill(0)
most = 0
s.wait(gate)
for n in range(1, 13):
    src.fill(n, stream=s)
    wide.write(src, memory="big", stream=s)
    wide.write(src, memory="big", at=16 << 20, stream=s)
    t.is_done
gate.record()
large = grp.device.allocate(40 << 20); large.fill(77)
while not s.is_done: most = max(most, pages())
wide.write(large, memory="big", notify=0, stream=s)
s.sync(); wide.fence()
wide.write(b"x", memory="big", notify=1, stream=s)
s.sync(); wide.fence()
result = [max(most, pages()), pages()]
"""
        )
        most, left = gives.run(code)
        assert 1 << 20 < most <= 65 << 20
        assert left <= 2 << 20
        assert takes.run(
            "wide.wait(0, timeout=20); wide.wait(1, timeout=20); result = bool((big.view()[1:] == 77).all())"
        )


def test_late_delivery_stream_failed_its_later_write_still_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(SEEDS):
        with late(monkeypatch, seed) as (gives, takes):
            takes.run("grp.window.fill(0)")
            gives.run(
                "s.wait(grp.device.create_notify(), timeout=0.02); ch[1].write(b'lost', notify=0, stream=s)"
            )
            with pytest.raises(PeerError, match="WaitTimeout"):
                gives.run("s.sync()")
            gives.run("ch[1].write(b'found', at=8, notify=1, stream=s); s.sync()")
            assert (
                takes.run("ch[0].wait(1, timeout=20); result = bytes(grp.window[:13].view()).hex()")
                == (bytes(8) + b"found").hex()
            )
            assert takes.run("result = ch[0]._incoming[0].recorded") == 0
            gives.run("grp.close()")  # a failure that was reported is not reported again


@pytest.mark.parametrize("nbytes", [64, 1 << 20])
def test_late_delivery_read_without_wait_shows_old_bytes_under_some_seed(
    nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = 0
    for seed in range(12):
        with late(monkeypatch, seed) as (gives, reads):
            gives.run(
                f"src = grp.device.allocate({nbytes}); src.fill(7); ch[1].write(src, notify=0, stream=s); s.sync()"
            )
            shown += not reads.run(f"result = bool((grp.window[:{nbytes}].view() == 7).all())")
            reads.run(f"ch[0].wait(0, timeout=20); assert (grp.window[:{nbytes}].view() == 7).all()")
    assert shown
