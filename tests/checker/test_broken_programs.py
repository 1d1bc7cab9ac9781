"""Programs with one mistake each: one certain finding, which names the lines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from checker.checking import checked_program

FOLDER = Path(__file__).parent / "programs" / "broken"

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]


@dataclass(frozen=True)
class Broken:
    """A program, its ranks, the kinds that may name its mistake, a line that is named, and what is missing."""

    name: str
    ranks: int
    kinds: tuple[str, ...]
    line: int
    missing: str


BROKEN = (
    Broken("s1_ring_of_slots", 2, ("race", "lost-notify"), 15, "The wait at line 15 did not run before"),
    Broken("s2_first_round", 3, ("race", "lost-notify"), 48, "The wait at line 48 did not run before"),
    Broken("s3_shared_notify", 4, ("race", "lost-notify"), 47, "The wait at line 47 did not run before"),
    Broken("w1_two_streams", 4, ("race",), 20, "The one at line 21, for which rank"),
    Broken("w2_two_threads", 2, ("race",), 40, "is made on stream 2, and no bytes of line 40 come with it"),
    Broken("o3_nixl_pages", 3, ("unwritten-read",), 36, "look at the offset of the write at"),
    Broken(
        "o4_all_gather",
        4,
        ("race",),
        44,
        "if the two are to write different bytes, another offset at line 44",
    ),
    Broken("n1_no_word_to_rank_2", 4, ("race",), 15, "of rank 2 for a notify that rank 0 records"),
    Broken("n2_event_is_not_waited_for", 2, ("race",), 27, "hipStreamWaitEvent"),
    Broken("o1_gather", 4, ("unwritten-read",), 20, "bytes 786,432 to 1,048,575"),
    Broken("o2_pages", 8, ("unwritten-read",), 15, "look at the offset of the write at"),
    Broken("r1_staging_buffer", 2, ("race",), 24, "the acl.rt.synchronize_stream at line 25 comes too late"),
    Broken(
        "r2_next_step",
        2,
        ("race",),
        15,
        "before line 14 runs again; the synchronization at line 17 comes too late",
    ),
    Broken(
        "u1_deregistered_early", 2, ("use-after-free",), 35, "for notify 1, which rank 0 records at line 36"
    ),
    Broken("n3_before_the_notification", 2, ("race",), 34, "nixl_agent.check_remote_xfer_done"),
    Broken(
        "r3_source_before_done",
        2,
        ("race",),
        35,
        "which must say DONE of the transfer that begins at line 35, before line 32 runs again",
    ),
    Broken("u2_freed_early", 2, ("use-after-free",), 25, "acl.rt.synchronize_stream"),
)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda each: each.name)
def test_one_mistake_is_one_certain_finding(broken: Broken, tmp_path: Path) -> None:
    program = FOLDER / f"{broken.name}.py"
    done = checked_program(program, str(tmp_path / "written"), ranks=broken.ranks, devices=8)
    certain = [each for each in done.findings if each["certain"]]
    assert [each["kind"] in broken.kinds for each in certain] == [True], done.output
    [finding] = certain
    assert broken.missing in finding["missing"], done.output
    named = {site["line"] for site in finding["sites"]} | {site["line"] for site in finding["elsewhere"]}
    named |= {finding["skipped"]["wait"][1]} if finding["skipped"] else set()
    assert broken.line in named, done.output
    # The report of a deadlock, if the mistake ended in one, comes once and behind the finding.
    before, *reports = done.stderr.split("peerlane launch: a deadlock: ")
    assert not reports or (len(reports) == 1 and finding["message"][:20] in before), done.output


TWO_MISTAKES = """
import peerlane as pl

SIZE = 1 << 12
with pl.Group(window=2 * SIZE) as group:
    one, other = (group.channel(1 - group.rank, notifies=2) for _ in range(2))
    if group.rank == 0:
        with group.device.allocate(SIZE) as block, group.device.create_stream() as stream:
            block.fill(1, stream=stream)
            one.write(block, at=0, stream=stream)
            one.notify(0, stream=stream)
            other.write(block, at=SIZE, stream=stream)
            other.notify(0, stream=stream)
            stream.sync(20)
    else:
        first = group.window[:SIZE].view().sum()
        second = group.window[SIZE:].view().sum()
    group.barrier()
"""


def test_two_waits_that_two_channels_lack_are_two_findings(tmp_path: Path) -> None:
    program = tmp_path / "two.py"
    program.write_text(TWO_MISTAKES)
    done = checked_program(program, ranks=2)
    certain = [each for each in done.findings if each["certain"]]
    assert [each["kind"] for each in certain] == ["race", "race"], done.output
    assert {max(site["line"] for site in each["sites"]) for each in certain} == {16, 17}, done.output


WRONG_NUMBER = """
import peerlane as pl
with pl.Group(window=64) as group:
    channel = group.channel(1 - group.rank, notifies=2)
    if group.rank == 0:
        channel.notify(1)
    else:
        channel.wait(0)
    group.barrier()
"""


def test_report_of_a_deadlock_stands_behind_the_findings_once(tmp_path: Path) -> None:
    program = tmp_path / "wrong.py"
    program.write_text(WRONG_NUMBER)
    done = checked_program(program, ranks=2)
    assert done.code == 1 and done.output.count("a deadlock: ranks 0 and 1") == 1, done.output
    parts = (
        "unconsumed-notify (certain)",
        "peerlane launch: a deadlock: ranks 0 and 1",
        "waits for notify 0 from rank 0 to rank 1, which rank 0 should record",
        "peerlane check: 1 certain finding",
    )
    for part in parts:
        assert part in done.stderr, done.output
    at = [done.stderr.index(part) for part in parts]
    assert at == sorted(at), done.output
    assert "last words" not in done.stderr, done.output


def test_finding_of_a_deadlock_does_not_need_the_waiting_rank_to_end_its_wait(tmp_path: Path) -> None:
    program = tmp_path / "slow.py"
    slow = "if group.rank == 1: detect.end = lambda *_: time.sleep(60)"
    head = "import time\nfrom peerlane.ranks.deadlock import detect\n"
    text = WRONG_NUMBER.replace("    channel =", f"    {slow}\n    channel =")
    program.write_text(head + text)  # rank 0 raises, and rank 1 is killed
    done = checked_program(program, ranks=2)
    assert [(each["kind"], each["certain"]) for each in done.findings] == [("unconsumed-notify", True)], (
        done.output
    )


def test_last_words_of_a_rank_that_fails_otherwise_are_shown(tmp_path: Path) -> None:
    program = tmp_path / "fails.py"
    program.write_text("import peerlane as pl\nwith pl.Group(): raise SystemExit('its own reason')\n")
    done = checked_program(program, ranks=2)
    assert done.code == 1 and "last words:\n  its own reason" in done.stderr, done.output


RAISES = """
import posix, sys, time
import peerlane as pl

def wait_for_file():  # by a look that the checker does not see: it orders nothing
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            posix.stat(sys.argv[1])
            return
        except FileNotFoundError:
            time.sleep(0.001)

SIZE = 1 << 12
with pl.Group(window=SIZE) as group:
    peers = sorted({(group.rank + 1) % group.size, (group.rank - 1) % group.size})
    channels = dict(zip(peers, group.channels(peers, notifies=1)))
    after, before = channels[(group.rank + 1) % group.size], channels[(group.rank - 1) % group.size]
    with group.device.allocate(SIZE) as block, group.device.create_stream() as stream:
        block.fill(1, stream=stream)
        after.write(block, notify=0, stream=stream)
        stream.sync()
        if group.rank == 1:  # what it writes comes before the end, though no order says so: else it is refused
            open(sys.argv[1], "w").close()
        if group.rank == 2:
            wait_for_file()
            raise KeyError("a mistake of the program")
        before.wait(0, timeout=20)
    group.barrier()
"""


def test_memory_that_an_exception_ends_is_no_certain_finding(tmp_path: Path) -> None:
    program = tmp_path / "raises.py"
    program.write_text(RAISES)
    done = checked_program(program, str(tmp_path / "written"), ranks=4)
    assert done.code == 1 and not [each for each in done.findings if each["certain"]], done.output
    [ended] = [each for each in done.findings if each["kind"] == "use-after-free"]
    assert ended["of_failure"] and "cleans up after an exception" in ended["why"], done.output
    assert "KeyError: 'a mistake of the program'" in done.stderr, done.output


CLEANS_UP = """
import acl

SIZE = 1 << 16
acl.init(), acl.rt.set_device(0)
(memory, _), (stream, _) = acl.rt.malloc(SIZE, 0), acl.rt.create_stream()


def free():
    acl.rt.free(memory)


try:
    acl.rt.memset_async(memory, SIZE, 1, SIZE, stream)
    {last}
{clause}:
    free()
    {end}
"""
MISTAKE = "raise KeyError('a mistake of the program')"


@pytest.mark.parametrize(
    ("last", "clause", "end", "is_certain"),
    [
        (MISTAKE, "finally", "pass", False),
        (MISTAKE, "except KeyError", "raise", False),
        (MISTAKE, "except KeyError", "pass", True),
        ("pass", "finally", "pass", True),
    ],
)
def test_memory_that_is_freed_too_early_is_certain_but_for_a_clean_up_after_an_exception(
    tmp_path: Path, last: str, clause: str, end: str, is_certain: bool
) -> None:
    program = tmp_path / "cleans_up.py"
    program.write_text(CLEANS_UP.format(last=last, clause=clause, end=end))
    done = checked_program(program)
    assert done.code == (3 if is_certain else 1), done.output
    [ended] = done.findings
    assert (ended["kind"], ended["certain"]) == ("use-after-free", is_certain), done.output


def test_memory_that_a_wished_exit_ends_too_early_is_a_certain_finding(tmp_path: Path) -> None:
    program = tmp_path / "exits.py"
    program.write_text(RAISES.replace('KeyError("a mistake of the program")', "SystemExit(0)"))
    done = checked_program(program, str(tmp_path / "written"), ranks=4)
    certain = [each["kind"] for each in done.findings if each["certain"]]
    assert certain == ["use-after-free"], done.output


FREED_SOURCE = """
import peerlane as pl

SIZE = 1 << 12
with pl.Group(window=SIZE) as group:
    channel = group.channel(1 - group.rank, notifies=1)
    with group.device.create_stream() as stream:
        block = group.device.allocate(SIZE)
        block.fill(1, stream=stream)
        channel.write(block, notify=0, stream=stream)
        block.close()
        channel.wait(0, timeout=20)
    group.barrier()
"""


def test_own_source_that_is_freed_too_early_lacks_a_synchronization(tmp_path: Path) -> None:
    program = tmp_path / "freed.py"
    program.write_text(FREED_SOURCE)
    done = checked_program(program, ranks=2)
    assert [(each["kind"], each["certain"]) for each in done.findings] == [("use-after-free", True)], (
        done.output
    )
    [finding] = done.findings
    assert finding["missing"].startswith("a synchronization (Stream.sync) of rank"), done.output
    assert "before line 11" in finding["missing"], done.output
