"""What a finding proposes is an order that the program can make, and that makes the finding go away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.event_logs import COLLECTIVE, FLAG, KIND, Clock, EventLog
from peerlane.checker import Checker, texts

pytestmark = pytest.mark.any_schedule

WINDOW, MINE = (9, 0, 64), (5, 0, 64)
CHANNELS = {(0, 1): 1, (0, 2): 2, (1, 0): 3, (1, 2): 4, (2, 0): 5, (2, 1): 6}


def bank(sender: int, receiver: int) -> int:
    return 100 + 10 * sender + receiver


class Ranks:
    """Ranks whose channels have the numbers of ``CHANNELS``; the last one owns ``WINDOW``.

    The frames of a line are those of ``p.py``, in a function that the thread of a library calls.
    """

    def __init__(self, folder: Path, size: int, *, channels: Any = CHANNELS, dialect: str = "") -> None:
        self.folder, clock = folder, Clock()
        self.logs = [
            EventLog(folder / f"{rank + 1}-7.log", clock, pid=2**30 + rank, rank=rank) for rank in range(size)
        ]
        fields = {"dialect": dialect} if dialect else {}
        lines = [
            json.dumps({"site": line, "frames": [["p.py", line, "work"]]} | fields) for line in range(1, 100)
        ]
        for log in self.logs:
            log.path.with_suffix(".names").write_text("\n".join(lines))
        for (rank, peer), number in channels.items():
            if max(rank, peer) < size:
                self.logs[rank].channel(
                    number, incoming=bank(peer, rank), outgoing=bank(rank, peer), peer=peer
                )
        self.logs[-1].allocate(3, WINDOW)
        self._groups = 0

    def barrier(self, *ranks: int, line: int = 0) -> None:
        self._groups += 1
        for kind in (KIND.collective, KIND.collected):
            for rank in ranks:
                words = (
                    40 + self._groups,
                    1 << 16 | COLLECTIVE.barrier << 8,
                    0,
                    len(ranks) << 32 | ranks.index(rank),
                )
                self.logs[rank].write(kind, *words, line=line)

    def findings(self) -> list[dict[str, Any]]:
        reported: list[dict[str, Any]] = Checker(self.folder).finish()["findings"]
        return [each for each in reported if each["kind"] == "race"]


@pytest.mark.parametrize("order", ["none", "own channel", "relay", "barrier"])
def test_two_ranks_that_write_the_window_of_a_third_need_its_answer(tmp_path: Path, order: str) -> None:
    ranks = Ranks(tmp_path, 3)
    zero, one, two = ranks.logs
    zero.copy(WINDOW, MINE, line=10, stream=4, channel=2)
    zero.notify(bank(0, 2), 1, 1, line=11, stream=4)
    if order == "own channel":  # it brings no bytes that went to another rank
        zero.notify(bank(0, 1), 1, 1, line=12, stream=4)
        one.wait(bank(0, 1), 1, 1, line=19)
    if order in ("relay", "barrier"):
        two.wait(bank(0, 2), 1, 1, line=30)
    if order == "relay":
        two.notify(bank(2, 1), 1, 1, line=31)
        one.wait(bank(2, 1), 1, 1, line=19)
    if order == "barrier":
        ranks.barrier(1, 2)
    one.copy(WINDOW, MINE, line=20, stream=5, channel=4)
    reported = ranks.findings()
    if order in ("relay", "barrier"):
        assert reported == []
        return
    assert [each["missing"] for each in reported] == [
        "if the two are to write different bytes, another offset at line 10 or line 20. If they are to write the "
        "same: rank 0's bytes come to rank 2, which must tell rank 1: after line 10 rank 0 records a "
        "notify on this channel "
        "and on stream 4 (Channel.notify), rank 2 waits for it (Channel.wait) and then records one for rank 1, and "
        "rank 1 waits for that before line 20; or rank 2 and rank 1 meet in a barrier "
        "(Group.barrier) in place of the "
        "second notify. If rank 1 is to come first: the same the other way round"
    ]


def test_ranks_without_a_channel_need_a_barrier(tmp_path: Path) -> None:
    for ordered in (False, True):
        (folder := tmp_path / str(ordered)).mkdir()
        ranks = Ranks(folder, 3, channels={(0, 2): 2, (1, 2): 4, (2, 0): 5, (2, 1): 6})
        zero, one, two = ranks.logs
        two.fill(WINDOW, line=5)  # else rank 0 would read before the first write
        ranks.barrier(0, 2)
        ranks.barrier(1, 2)
        read = zero.copy(MINE, WINDOW, line=10, stream=4, channel=2, flags=FLAG.fetch)
        if ordered:
            zero.sync(4, read)
            ranks.barrier(0, 1)
        one.copy(WINDOW, (6, 0, 64), line=20, stream=5, channel=4)
        assert [each["missing"] for each in ranks.findings()] == (
            []
            if ordered
            else [
                "a barrier (Group.barrier) of rank 0 and rank 1, after line 10 and a synchronization "
                "(Stream.sync) with "
                "stream 4, before line 20"
            ]
        )


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("waits_first", [False, True])
def test_nonblocking_writes_that_a_notify_is_to_bring_need_a_fence(
    tmp_path: Path, fenced: bool, waits_first: bool
) -> None:
    ranks = Ranks(tmp_path, 2)
    zero, one = ranks.logs
    zero.copy(WINDOW, MINE, line=10, channel=1, flags=FLAG.loose)
    if fenced:
        zero.write(KIND.fence, 1)
    zero.notify(bank(0, 1), 3, 1, line=12)
    if waits_first:
        one.wait(bank(0, 1), 3, 1, line=19)
    one.host_reads(WINDOW, line=20)
    reported = [each["missing"] for each in ranks.findings()]
    if fenced:
        wait = (
            "a wait (Channel.wait) of rank 1 for notify 3, which rank 0 records at line 12 and no wait takes; a "
            "wait for it must come before line 20"
        )
        assert reported == ([] if waits_first else [wait])
        return
    assert reported == [
        "a fence (Channel.fence) of the channel by rank 0, after line 10, before the record of "
        "notify 3 at line 12: no "
        "notify brings nonblocking operations without one. rank 1 must wait for that record before line 20"
    ]


@pytest.mark.parametrize("brought", [True, False])
def test_nonblocking_write_with_its_own_notify_needs_no_fence(tmp_path: Path, brought: bool) -> None:
    ranks = Ranks(tmp_path, 2)
    zero, one = ranks.logs
    zero.copy(WINDOW, MINE, line=10, stream=4, channel=1, flags=FLAG.loose)
    sequence = zero.submit(4, KIND.notify, bank(0, 1), 3, 0, 1 if brought else 0, line=10)
    zero.write(KIND.notified, bank(0, 1), 3, 1, stream=4, sequence=sequence)
    one.host_reads(WINDOW, line=20)
    (reported,) = ranks.findings()
    assert ("fence" in reported["missing"]) is not brought
    assert ("for notify 3, which rank 0 records at line 10" in reported["missing"]) is brought


def test_writes_of_two_streams_to_one_address_need_a_fence(tmp_path: Path) -> None:
    for fenced in (False, True):
        (folder := tmp_path / str(fenced)).mkdir()
        ranks = Ranks(folder, 2)
        zero = ranks.logs[0]
        zero.copy(WINDOW, MINE, line=10, stream=4, channel=1)
        if fenced:
            zero.write(KIND.fence, 1)
        zero.copy(WINDOW, MINE, line=20, stream=5, channel=1)
        assert [each["missing"] for each in ranks.findings()] == (
            []
            if fenced
            else ["a fence (Channel.fence) of the channel by rank 0, after line 10, before line 20"]
        )


@pytest.mark.parametrize(
    ("dialect", "wait", "sync"),
    [
        ("", "Channel.wait", "Stream.sync"),
        ("hcomm", "HcommChannelNotifyWaitOnThread", "acl.rt.synchronize_stream"),
        ("acl", "acl.rt.wait_and_reset_notify", "acl.rt.synchronize_stream"),
        ("hip", "hipStreamWaitEvent", "hipStreamSynchronize"),
    ],
)
def test_missing_names_the_calls_of_the_dialect_that_the_program_uses(
    tmp_path: Path, dialect: str, wait: str, sync: str
) -> None:
    ranks = Ranks(tmp_path, 2, dialect=dialect)
    zero, one = ranks.logs
    zero.fill(MINE, line=10, stream=4)
    zero.host_reads(MINE, line=11)
    one.fill(WINDOW, line=20, stream=4)
    zero.fill(WINDOW, line=21, stream=5)
    reported = {each["sites"][0]["line"]: each["missing"] for each in ranks.findings()}
    assert f"a synchronization ({sync}) of rank 0" in reported[10]
    assert f"a wait ({wait}) of rank 0" in reported[20]


@pytest.mark.parametrize("write_comes_first", [True, False])
def test_earlier_wait_is_named_whichever_access_comes_first(
    tmp_path: Path, *, write_comes_first: bool
) -> None:
    ranks = Ranks(tmp_path, 2)
    zero, one = ranks.logs
    zero.notify(bank(0, 1), 1, 1, line=9, stream=4)
    if write_comes_first:
        zero.copy(WINDOW, MINE, line=10, stream=4, channel=1)
    one.wait(bank(0, 1), 1, 1, line=13)
    one.host_reads(WINDOW, line=15)
    if not write_comes_first:
        zero.copy(WINDOW, MINE, line=10, stream=4, channel=1)
    (reported,) = ranks.findings()
    assert [each["line"] for each in reported["sites"]] == [10, 15]
    assert reported["missing"].startswith("rank 1's wait at line 13 was for an earlier record at line 9. ")
    assert reported["last_order"] == {
        "from": "notify of rank 0 at p.py:9",
        "to": "wait for a notify of rank 1 at p.py:13",
    }


def test_last_order_is_one_that_the_program_asked_for(tmp_path: Path) -> None:
    for order in ("set-up", "lock", "barrier"):
        (folder := tmp_path / order).mkdir()
        ranks = Ranks(folder, 2)
        zero, one = ranks.logs
        zero.fill(MINE, line=9)
        if order == "set-up":
            for log in (zero, one):
                log.write(KIND.lent, 1, reads=[WINDOW], line=30)
        if order == "lock":
            zero.post(70)
            one.take(70, 1)
        else:
            ranks.barrier(0, 1, line=30)
        zero.host_writes(MINE, line=10)
        one.host_reads(MINE, line=20)
        (reported,) = ranks.findings()
        assert reported["last_order"] == (
            {"from": "collective of rank 0 at p.py:30", "to": "end of a collective of rank 1 at p.py:30"}
            if order == "barrier"
            else None
        )


def test_ranks_that_are_threads_of_one_process_are_named_by_rank(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "1-7.log", Clock(), pid=2**30, rank=-1)
    for rank in (0, 1):
        log.thread, log.rank = 800 + rank, rank
        log.channel(7 + rank, incoming=0, outgoing=0, peer=1 - rank)
        log.write(KIND.notify_made, 0, 50 + rank, 0, 1 + 3)
    log.allocate(3, WINDOW)
    log.thread = 800
    log.copy(WINDOW, MINE, line=10, stream=4, channel=7)
    sequence = log.submit(4, KIND.notify, 0, 51, 0, 7, line=11)
    log.write(KIND.notified, 0, 51, 1, stream=4, sequence=sequence)
    log.thread = 801
    log.host_reads(WINDOW, line=20)
    reported = next(each for each in Checker(tmp_path).finish()["findings"] if each["kind"] == "race")
    assert [site["rank"] for site in reported["sites"]] == [0, 1]
    assert reported["memory"]["rank"] == 1
    assert reported["missing"] == (
        "a wait (Channel.wait) of rank 1 for notify 3, which rank 0 records at event 6 and no wait takes; a "
        "wait for it must come before event 8"
    )


def test_frames_of_the_standard_library_are_left_out(tmp_path: Path) -> None:
    import threading

    ranks = Ranks(tmp_path, 1)
    library = [threading.__file__, 982, "Thread.run"]
    frames = {
        10: [["p.py", 10, "work"], library, ["q.py", 5, "main"]],
        20: [library, library],
    }
    lines = [json.dumps({"site": site, "frames": each}) for site, each in frames.items()]
    (zero,) = ranks.logs
    zero.path.with_suffix(".names").write_text("\n".join(lines))
    zero.fill(MINE, line=10, stream=4)
    zero.host_reads(MINE, line=20)
    (reported,) = ranks.findings()
    first, second = reported["sites"]
    assert (first["file"], first["callers"]) == ("p.py", [["q.py", 5, "main"]])
    assert (second["file"], second["callers"]) == (threading.__file__, [])


@pytest.mark.parametrize("writes", [True, False])
@pytest.mark.parametrize("recorded", [True, False])
def test_write_that_came_too_late_is_offered_to_come_first(
    tmp_path: Path, *, recorded: bool, writes: bool
) -> None:
    ranks = Ranks(tmp_path, 2)
    zero, one = ranks.logs
    zero.copy(WINDOW, MINE, line=10, stream=4, channel=1)
    if recorded:
        zero.notify(bank(0, 1), 0, 1, line=11, stream=4)
    if writes:
        one.fill(WINDOW, line=20, stream=5)
    else:
        one.host_reads(WINDOW, line=20)
    (reported,) = ranks.findings()
    assert reported["missing"].startswith("a wait (Channel.wait) of rank 1 for ")
    answer = (
        ". If line 20 is to come first: an answer: a notify that rank 1 records on stream 5 after line 20, and for "
        "which rank 0 waits before line 10"
    )
    assert reported["missing"].endswith(answer) is writes


@pytest.mark.parametrize("first", ["callback", "thread"])
def test_callback_and_thread_of_its_process_need_a_synchronization(tmp_path: Path, first: str) -> None:
    ranks = Ranks(tmp_path, 1)
    (zero,) = ranks.logs
    sequence = zero.submit(4, KIND.op_submitted, line=9)

    def body() -> None:
        zero.write(KIND.callback_begin, stream=4, sequence=sequence)
        zero.host_writes(WINDOW, line=10)
        zero.write(KIND.callback_end, stream=4, sequence=sequence)

    def access() -> None:
        zero.thread += 1
        zero.host_reads(WINDOW, line=20)
        zero.thread -= 1

    for each in (body, access) if first == "callback" else (access, body):
        each()
    assert [each["missing"] for each in ranks.findings()] == [
        "a synchronization (Stream.sync) of rank 0 with stream 4, after the callback that runs line 10, before line "
        "20; with an event that stream 4 records after the callback, the thread can wait for that alone. If line 20 "
        "is to come first: submit the callback after it"
    ]


@pytest.mark.parametrize("threads", [1, 2])
def test_either_order_is_offered_where_chance_chose_the_first_of_two_streams(
    tmp_path: Path, threads: int
) -> None:
    ranks = Ranks(tmp_path, 1)
    (zero,) = ranks.logs
    zero.fill(WINDOW, line=10, stream=4)
    zero.thread += threads - 1
    zero.fill(WINDOW, line=20, stream=5)
    (reported,) = ranks.findings()
    assert reported["missing"].startswith(
        "a wait (Stream.wait) of stream 5 for an event that stream 4 records"
    )
    reversed_order = ". If line 20 is to come first: the same the other way round"
    assert reported["missing"].endswith(reversed_order) is (threads == 2)


@pytest.mark.parametrize(
    ("dialect", "record", "wait", "fifo"),
    [
        ("", "Stream.notify", "Stream.wait", "; or a notify of the kind fifo"),
        ("acl", "acl.rt.record_notify", "acl.rt.wait_and_reset_notify", ""),
        (
            "hcomm",
            "HcommThreadNotifyRecordOnThread",
            "HcommThreadNotifyWaitOnThread",
            "; or PEERLANE_HCOMM_NOTIFIES=fifo",
        ),
    ],
)
def test_notifies_without_a_channel_are_of_streams(
    tmp_path: Path, dialect: str, record: str, wait: str, fifo: str
) -> None:
    ranks = Ranks(tmp_path, 1, dialect=dialect)
    (zero,) = ranks.logs
    zero.notify(0, 7, 1, line=10, stream=4)
    zero.wait(0, 7, 1, line=15, stream=5)
    zero.notify(0, 7, 2, line=20, stream=4)
    zero.wait(0, 7, 2, line=16, stream=5)
    (reported,) = Checker(ranks.folder).finish()["findings"]
    assert reported["missing"] == (
        f"an answer: stream 5 records a notify ({record}) after its wait at line 15 for notify 7, and stream 4 waits "
        f"for it ({wait}) before line 20{fifo}"
    )


@pytest.mark.parametrize(
    ("verb", "one", "other"),
    [
        ("copy", "the copy at line 10", "the host access at line 10"),
        ("host access", "the first host access at line 10", "the second host access at line 10"),
    ],
)
def test_two_accesses_of_one_line_are_distinguished_by_their_calls(
    tmp_path: Path, verb: str, one: str, other: str
) -> None:
    ranks = Ranks(tmp_path, 1)
    (zero,) = ranks.logs
    if verb == "copy":
        zero.copy(WINDOW, MINE, line=10, stream=4)
    else:
        zero.host_writes(WINDOW, line=10)
    zero.thread += 1
    zero.host_writes(WINDOW, line=10)
    (reported,) = ranks.findings()
    assert f"after {one}, before {other}" in reported["missing"]


def test_accesses_of_two_ranks_at_one_line_are_distinguished_by_rank(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    zero, one = ranks.logs
    zero.copy(WINDOW, MINE, line=10, channel=1)
    zero.notify(bank(0, 1), 3, 1, line=10)
    one.host_reads(WINDOW, line=10)
    (reported,) = ranks.findings()
    assert reported["missing"] == (
        "a wait (Channel.wait) of rank 1 for notify 3, which rank 0 records at line 10 and no wait takes; a wait "
        "for it must come before rank 1's host access at line 10"
    )


@pytest.mark.parametrize("named", [True, False])
def test_last_order_has_lines_at_both_ends(tmp_path: Path, *, named: bool) -> None:
    ranks = Ranks(tmp_path, 2)
    zero, one = ranks.logs
    zero.fill(MINE, line=9)
    ranks.barrier(0, 1, line=30 if named else 0)
    zero.host_writes(MINE, line=10)
    one.host_reads(MINE, line=20)
    (reported,) = ranks.findings()
    assert (reported["last_order"] is not None) is named


def test_hint_has_the_fate_of_the_record_that_the_reader_should_have_waited_for(tmp_path: Path) -> None:
    for wait in ("none", "too late", "of another thread"):
        (folder := tmp_path / wait).mkdir()
        ranks = Ranks(folder, 2)
        zero, one = ranks.logs
        zero.copy(WINDOW, MINE, line=10, stream=4, channel=1)
        zero.notify(bank(0, 1), 3, 1, line=11, stream=4)
        if wait == "of another thread":
            one.thread += 1
            one.wait(bank(0, 1), 3, 1, line=18)
            one.thread -= 1
        one.host_reads(WINDOW, line=20)
        if wait == "too late":
            one.wait(bank(0, 1), 3, 1, line=21)
        (reported,) = ranks.findings()
        assert reported["missing"] == (
            "a wait (Channel.wait) of rank 1 for notify 3, which rank 0 records at line 11"
            + {
                "none": " and no wait takes; a wait for it",
                "too late": "; the wait at line 21 comes too late: it",
                "of another thread": "; the wait",
            }[wait]
            + " must come before line 20"
        )


@pytest.mark.parametrize("is_late", [True, False])
def test_answer_names_the_record_that_the_writer_should_have_waited_for(
    tmp_path: Path, is_late: bool
) -> None:
    ranks = Ranks(tmp_path, 2)
    zero, one = ranks.logs
    zero.fill(WINDOW, line=5, stream=4)
    zero.notify(bank(0, 1), 3, 1, line=6, stream=4)
    one.wait(bank(0, 1), 3, 1, line=19)
    one.host_reads(WINDOW, line=20)
    one.notify(bank(1, 0), 2, 1, line=21)
    zero.copy(WINDOW, MINE, line=10, stream=4, channel=1)
    if is_late:
        zero.wait(bank(1, 0), 2, 1, line=12)
    (reported,) = ranks.findings()
    became = "; the wait at line 12 comes too late: it" if is_late else " and no wait takes; a wait for it"
    assert reported["missing"].startswith(
        f"a wait (Channel.wait) of rank 0 for notify 2, which rank 1 records at line 21{became} must come before "
        "line 10"
    )


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("is_late", [True, False])
def test_hint_distinguishes_the_next_pass_of_a_loop_from_this_one(
    tmp_path: Path, rounds: int, is_late: bool
) -> None:
    ranks = Ranks(tmp_path, 1)
    (zero,) = ranks.logs
    for _ in range(rounds):
        if rounds == 2:
            zero.host_writes(MINE, line=9)
        read = zero.copy(WINDOW, MINE, line=10, stream=4)
    if rounds == 1:
        zero.host_writes(MINE, line=11)
    if is_late:
        zero.sync(4, read, line=12)
    (reported,) = ranks.findings()
    where = "line 9 runs again" if rounds == 2 else "line 11"
    assert reported["missing"] == (
        f"a synchronization (Stream.sync) of rank 0 with stream 4, after line 10, before {where}"
        + ("; the synchronization at line 12 comes too late" if is_late else "")
    )


def test_line_that_races_with_itself_has_a_first_and_a_second_run(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 1)
    (zero,) = ranks.logs
    zero.copy(WINDOW, MINE, line=10, stream=4)
    zero.copy(WINDOW, MINE, line=10, stream=5)
    (reported,) = ranks.findings()
    assert "after the first copy at line 10" in reported["missing"]
    assert "before line 10 runs again" in reported["missing"]


def test_end_of_a_with_block_is_named_as_that(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path, 2)
    zero, one = ranks.logs
    names = [
        {"site": 7, "frames": [["p.py", 7, "work"]], "with_end": True},
        {"site": 10, "frames": [["p.py", 10, "work"]]},
    ]
    for log in ranks.logs:
        log.path.with_suffix(".names").write_text("\n".join(map(json.dumps, names)))
    zero.copy(WINDOW, MINE, line=10, stream=4, channel=1)
    one.write(KIND.taken_back, 1, writes=[WINDOW], line=7)
    reported = Checker(tmp_path).finish()["findings"]
    (ended,) = (each for each in reported if each["kind"] == "use-after-free")
    assert "before the `with` of line 7 ends" in ended["missing"]
    assert [site["with_end"] for site in ended["sites"]] == [False, True]
    assert "deregister at p.py:7, as its `with` ends, in work" in texts.finding_text(ended, texts.Sources())


@pytest.mark.parametrize("of_channel", ["", "hcomm"])
def test_hint_names_the_calls_of_the_channel_and_not_those_of_a_copy_elsewhere(
    tmp_path: Path, of_channel: str
) -> None:
    ranks = Ranks(tmp_path, 2)
    zero, one = ranks.logs
    for log, dialect, line in ((zero, of_channel, 10), (one, "acl", 20)):
        name = {"dialect": dialect, "call": "f"} if dialect else {}
        log.path.with_suffix(".names").write_text(
            json.dumps({"site": line, "frames": [["p.py", line, "work"]]} | name)
        )
    zero.copy(WINDOW, MINE, line=10, stream=4, channel=1)
    one.copy((6, 0, 64), WINDOW, line=20, stream=5)
    (reported,) = ranks.findings()
    wait = {"": "Channel.wait", "hcomm": "HcommChannelNotifyWaitOnThread"}[of_channel]
    assert f"a wait ({wait}) of rank 1" in reported["missing"]


def test_record_that_another_one_may_replace_is_waited_for_by_the_calls_of_its_channel(
    tmp_path: Path,
) -> None:
    ranks = Ranks(tmp_path, 2)
    zero, one = ranks.logs
    zero.fill(MINE, line=9, stream=4)
    for number in (1, 2):  # the first record may be lost, so the wait promises the first one alone
        if number == 2:
            zero.copy(WINDOW, MINE, line=10, stream=4, channel=1)
        zero.notify(bank(0, 1), 3, number, line=11, stream=4)
    one.wait(bank(0, 1), 3, 2, line=19)
    one.host_reads(WINDOW, line=20)
    reported = Checker(tmp_path).finish()["findings"]
    relied = [
        each
        for top in reported
        for each in (top, *top["consequences"])
        if each["kind"] == "relied-on-schedule"
    ]
    assert [("Channel.wait" in each["missing"], "Stream.wait" in each["missing"]) for each in relied] == [
        (True, False)
    ]
