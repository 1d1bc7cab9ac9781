"""Reports of stuck processes: `Hangs` finds those that wait for one another, and no others."""

from __future__ import annotations

import contextlib
import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerlane.diagnostics.waits import progress
from peerlane.rendezvous import hangs
from peerlane.rendezvous.frames import BadFrame, Operation, Status
from peerlane.rendezvous.hangs import Hangs, interval_ns
from peerlane.rendezvous.meeting import Meeting, Waiter
from peerlane.rendezvous.wait_reports import (
    MAX_TEXT,
    Party,
    Reply,
    Report,
    Wait,
    decode_reply,
    decode_report,
    encode_reply,
    encode_report,
)

pytestmark = pytest.mark.any_schedule

MS = 1_000_000
OWN = os.getpid()
ALIVE = [OWN, os.getppid(), 1]  # processes that live as long as the test


class Asked(Waiter):
    """A request that waits."""

    def __init__(self, operation: Operation, rank: int, key: str) -> None:
        self.operation, self.rank, self.key, self.value = operation, rank, key, b""

    def answer(self, status: Status, values: object) -> None:
        """Drop the answer: no process waits for it."""


class Ranks:
    """Ranks of a meeting, one process each, and what each waits for."""

    def __init__(self, size: int) -> None:
        self.meeting = Meeting(size)
        self.hangs = Hangs(self.meeting, self.requests)
        self.asked: list[Asked] = []
        for rank in range(size):
            self.hangs.note(rank, ALIVE[rank])

    def wait(self, rank: int, operation: Operation, key: str) -> Wait:
        waiter = Asked(operation, rank, key)
        if operation is Operation.GET:
            self.meeting.get(waiter)
        else:
            self.meeting.meet(waiter)
        self.asked.append(waiter)
        return Wait(operation, key)

    def requests(self, pid: int) -> list[Asked]:
        return [each for each in self.asked if ALIVE[each.rank] == pid]

    def report_waits(
        self,
        rank: int,
        waits: list[Wait],
        since: int,
        now: int,
        *,
        children: bool = False,
        pids: tuple[int, ...] = (),
    ) -> Reply:
        report = Report(since * MS, now * MS, children, tuple(waits), pids, f"rank {rank}")
        return self.hangs.hear(rank, ALIVE[rank], report, now * MS)


def pair_in_deadlock() -> tuple[Ranks, list[list[Wait]]]:
    """Return two ranks at barriers of different names."""
    ranks = Ranks(2)
    return ranks, [[ranks.wait(rank, Operation.BARRIER, f"b{rank}")] for rank in range(2)]


def test_hear_two_ranks_in_deadlock_at_once_returns_verdict_and_waits_until_both_know() -> None:
    ranks, waits = pair_in_deadlock()
    assert ranks.report_waits(0, waits[0], 100, 100) == Reply((((1, ALIVE[1]),),))
    assert not ranks.report_waits(1, waits[1], 200, 300).in_vain
    assert not ranks.report_waits(
        0, waits[0], 100, 690
    ).in_vain  # rank 1 was stuck until 300, as far as is known
    verdict = ranks.report_waits(1, waits[1], 200, 1000)
    assert not verdict.in_vain  # 200 to 690
    verdict = ranks.report_waits(0, waits[0], 100, 1001)
    assert [each.rank for each in verdict.in_vain] == [0, 1] and not verdict.all_know
    assert [each.text for each in verdict.in_vain] == ["rank 0", "rank 1"]
    assert ranks.report_waits(1, waits[1], 200, 1100).all_know
    assert ranks.report_waits(0, waits[0], 100, 1200).all_know


def test_hear_other_rank_never_asks_reports_all_know_after_patience() -> None:
    ranks, waits = pair_in_deadlock()
    for now in (100, 700):
        for rank in range(2):
            verdict = ranks.report_waits(rank, waits[rank], 100, now)
    assert verdict.in_vain and not verdict.all_know
    assert not ranks.report_waits(1, waits[1], 100, 5600).all_know
    assert ranks.report_waits(1, waits[1], 100, 5800).all_know


def test_hear_other_rank_has_died_reports_all_know_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks, waits = pair_in_deadlock()
    for now in (100, 700):
        for rank in range(2):
            ranks.report_waits(rank, waits[rank], 100, now)
    for module in (hangs, progress):
        monkeypatch.setattr(module, "lives", lambda pid: pid != ALIVE[0])
    assert not ranks.report_waits(1, waits[1], 100, 1400).all_know
    assert ranks.report_waits(1, waits[1], 100, 1600).all_know


def condemned_pair() -> tuple[Ranks, list[list[Wait]]]:
    """Return two ranks that wait in vain, of which only rank 1 has heard it, and went on after its patience."""
    ranks, waits = pair_in_deadlock()
    for now in (100, 700):
        for rank in range(2):
            ranks.report_waits(rank, waits[rank], 100, now)
    assert ranks.report_waits(1, waits[1], 100, 5800).all_know
    return ranks, waits


def test_hear_rank_that_was_silent_since_the_verdict_receives_it_later() -> None:
    ranks, waits = condemned_pair()
    assert not ranks.report_waits(1, waits[1], 6000, 8000).in_vain  # it waits anew
    verdict = ranks.report_waits(0, waits[0], 100, 8001)
    assert [each.text for each in verdict.in_vain] == ["rank 0", "rank 1"] and verdict.all_know
    assert not ranks.report_waits(0, waits[0], 8002, 8003).in_vain


def test_hear_rank_that_waits_anew_for_one_that_has_not_raised_yet_receives_no_verdict() -> None:
    ranks, waits = condemned_pair()
    assert ranks.report_waits(0, waits[0], 100, 8000).all_know  # it is about to raise
    assert not ranks.report_waits(1, waits[1], 6000, 8001).in_vain
    assert ranks.report_waits(0, waits[0], 100, 8600).all_know
    assert not ranks.report_waits(1, waits[1], 6000, 8601).in_vain


def test_hear_rank_whose_peer_ended_after_the_verdict_receives_it() -> None:
    ranks, waits = condemned_pair()
    ranks.hangs._pids.pop(1)
    verdict = ranks.report_waits(0, waits[0], 100, 5801)
    assert verdict.standings == (((1, ALIVE[1]),),) and verdict.in_vain and verdict.all_know


def test_hear_rank_whose_request_was_answered_after_the_verdict_receives_none() -> None:
    ranks, waits = condemned_pair()
    ranks.asked = [each for each in ranks.asked if each.rank != 0]
    assert ranks.report_waits(0, waits[0], 100, 5801) == Reply((None,))


def test_hear_request_that_does_not_wait_gives_no_verdict() -> None:
    ranks, waits = pair_in_deadlock()
    ranks.asked.pop()
    for now in range(100, 3000, 200):
        assert not ranks.report_waits(0, waits[0], 100, now).in_vain
        assert ranks.report_waits(1, waits[1], 100, now) == Reply((None,))


def test_hear_process_that_went_on_meanwhile_gives_no_verdict() -> None:
    ranks, waits = pair_in_deadlock()
    for now in range(100, 5000, 300):
        assert not ranks.report_waits(0, waits[0], 100, now).in_vain
        assert not ranks.report_waits(1, waits[1], now - 100, now).in_vain  # each time another spell


def test_hear_old_report_of_other_rank_gives_no_verdict() -> None:
    ranks, waits = pair_in_deadlock()
    ranks.report_waits(1, waits[1], 100, 800)
    late = 800 + 5 * interval_ns(2) // MS + 1
    assert not ranks.report_waits(0, waits[0], 100, late).in_vain


@pytest.mark.parametrize("who", [0, 1])
def test_hear_process_with_children_gives_no_verdict(who: int) -> None:
    ranks, waits = pair_in_deadlock()
    for now in range(100, 3000, 200):
        for rank in range(2):
            assert not ranks.report_waits(rank, waits[rank], 100, now, children=rank == who).in_vain


def test_hear_unknown_process_could_end_wait_gives_no_verdict() -> None:
    ranks, waits = pair_in_deadlock()
    for now in range(100, 3000, 200):
        assert not ranks.report_waits(0, waits[0], 100, now, pids=(ALIVE[2],)).in_vain
        assert not ranks.report_waits(1, waits[1], 100, now).in_vain


def test_hear_process_of_two_ranks_gives_verdict_once_both_reported() -> None:
    ranks, waits = pair_in_deadlock()
    ALIVE[1], before = ALIVE[0], ALIVE[1]
    try:
        ranks.hangs._pids[1] = {ALIVE[0]}
        for now in (100, 800, 1000):
            assert not ranks.report_waits(0, waits[0], 100, now).in_vain
        assert [each.rank for each in ranks.report_waits(1, waits[1], 100, 1000).in_vain] == [0, 1]
    finally:
        ALIVE[1] = before


def test_hear_rank_that_has_not_come_yet_gives_no_standing() -> None:
    ranks, waits = pair_in_deadlock()
    ranks.hangs._pids.pop(1)
    assert ranks.report_waits(0, waits[0], 100, 800).standings == (None,)


def test_hear_value_that_serving_program_may_put_gives_no_standing() -> None:
    ranks = Ranks(2)
    wait = ranks.wait(0, Operation.GET, "k")
    assert ranks.report_waits(0, [wait], 100, 800).standings == (((0, ALIVE[0]), (1, ALIVE[1])),)
    ranks.hangs._pids[0] = {ALIVE[2]}  # this process is not one of the ranks
    assert ranks.report_waits(0, [wait], 100, 800).standings == (None,)


def test_hear_rank_that_launcher_has_not_started_gives_no_standing() -> None:
    ranks, waits = pair_in_deadlock()
    ranks.hangs.is_launcher = True
    assert ranks.report_waits(0, waits[0], 100, 800).standings == (None,)


def test_hear_wait_for_one_rank_gives_standing_of_that_rank_only() -> None:
    ranks = Ranks(3)
    ranks.wait(0, Operation.GET, "k")
    asked = Wait(Operation.GET, "k", 2)
    assert ranks.report_waits(0, [asked], 100, 800, children=True).standings == (((2, ALIVE[2]),),)


REPORT = Report(
    5, 7, True, (Wait(Operation.GET, "\N{SNOWMAN}", 3), Wait(Operation.BARRIER, "")), (1, 77), "x" * MAX_TEXT
)
REPLY = Reply((None, ((0, 17), (1, 18)), ()), (Party(1, 18, 99, '"text"\n'),), True)


def test_report_and_reply_encoded_are_decoded_equal() -> None:
    assert decode_report(encode_report(REPORT)) == REPORT
    assert decode_reply(encode_reply(REPLY)) == REPLY


def test_decode_report_and_reply_impossible_number_raises_bad_frame() -> None:
    for number in (-2, 1 << 70, "1", None, 1.5):
        for at in (0, 1):
            fields = json.loads(encode_report(REPORT))
            fields[at] = number
            with pytest.raises(BadFrame):
                decode_report(json.dumps(fields).encode())
        fields = json.loads(encode_report(REPORT))
        fields[4] = [number]
        with pytest.raises(BadFrame):
            decode_report(json.dumps(fields).encode())
        fields = json.loads(encode_reply(REPLY))
        fields[0] = [[[number, 1]]]
        with pytest.raises(BadFrame):
            decode_reply(json.dumps(fields).encode())


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=2000)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=6),
    )
    .map(json.dumps)
    .map(str.encode)
)
def test_decode_report_and_reply_random_bytes_decode_or_raise_bad_frame(content: bytes) -> None:
    for decode in (decode_report, decode_reply):
        with contextlib.suppress(BadFrame):
            decode(content)
