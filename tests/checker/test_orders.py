"""Each rule of the analysis, right and wrong, on logs that are written by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.event_logs import COLLECTIVE, FLAG, KIND, OP, Clock, EventLog
from peerlane._check import Analysis

WROTE = 1  #: a mapping is writable: kWrote in native/log/event.h

pytestmark = pytest.mark.any_schedule

A, B, OWN = (1, 0, 64), (2, 0, 64), (3, 0, 64)
THERE = (9, 0, 64)
INTO_1, INTO_0 = 101, 100  # banks: what rank 1 waits for, and rank 0


class World:
    """Two ranks with a channel (number 7 in both), and allocations on both."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.logs = [
            EventLog(folder / f"{rank}.log", self.clock, pid=500 + rank, rank=rank) for rank in (0, 1)
        ]
        zero, one = self.logs
        zero.channel(7, incoming=INTO_0, outgoing=INTO_1, peer=1)
        one.channel(7, incoming=INTO_1, outgoing=INTO_0, peer=0)
        for number, span in enumerate((A, B, OWN)):
            zero.allocate(number + 1, span)
        one.allocate(1, THERE)
        zero.fill(A, line=2)
        zero.fill(B, line=2)
        zero.fill(OWN, line=2)
        one.fill(THERE, line=2)
        self.order()

    def order(self) -> None:
        """Make all that was done come before all that follows, on both ranks."""
        for log in self.logs:
            log.post(self.clock.now // 1000 * 1000 + 1)
        key = max(1, self.clock.now)
        for log in self.logs:
            log.post(key)
        for log in self.logs:
            log.take(key, 2)

    def findings(self, *, end: bool = False) -> list[dict[str, Any]]:
        analysis = Analysis()
        for log in self.logs:
            if end:
                log.end()
            analysis.add(str(log.path))
        analysis.finish()
        self.stats = analysis.stats()
        for number in range(len(self.logs)):
            assert analysis.facts(number)[2] == ""
        return list(analysis.findings())

    def pairs(self, *, end: bool = False) -> list[tuple[str, int, int]]:
        """Return kind and lines of each finding."""
        return [
            (each["kind"], each["first"]["site"], each["second"]["site"]) for each in self.findings(end=end)
        ]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


RACE = [("race", 10, 20)]


def test_thread_after_stream_is_ordered_by_sync_only(tmp_path: Path) -> None:
    for number, synchronized in enumerate((True, False)):
        (folder := tmp_path / str(number)).mkdir()
        world = World(folder)
        zero = world.logs[0]
        last = zero.fill(A, line=10, stream=4)
        zero.fill(B, line=11, stream=4)
        if synchronized:
            zero.sync(4, last)
        zero.host_reads(A, line=20)
        assert world.pairs() == ([] if synchronized else RACE)


def test_sync_of_an_earlier_number_orders_no_later_operation(world: World) -> None:
    zero = world.logs[0]
    first = zero.fill(B, line=9, stream=4)
    zero.fill(A, line=10, stream=4)
    zero.sync(4, first)
    zero.host_reads(A, line=20)
    (reported,) = world.findings()
    assert (reported["first"]["site"], reported["second"]["site"], reported["missing"]) == (10, 20, "sync")
    assert reported["certain"] is True
    assert reported["bytes"] == (0, 64)
    assert reported["memory"] == {"log": 0, "site": 1, "rank": 0, "allocation": 1, "size": 64}


def test_two_reads_race_with_nothing(world: World) -> None:
    zero = world.logs[0]
    zero.copy(B, A, line=10, stream=4)
    zero.host_reads(A, line=20)
    assert world.pairs() == []


def test_reads_of_several_streams_all_race_with_a_write(world: World) -> None:
    zero = world.logs[0]
    for stream in (4, 5, 6):
        zero.copy((B[0], 8 * stream, 8), (A[0], 0, 8), line=10 + stream, stream=stream)
    zero.host_writes(A, line=20)
    assert world.pairs() == [("race", 14, 20), ("race", 15, 20), ("race", 16, 20)]


@pytest.mark.parametrize("waits", [True, False])
def test_stream_after_stream_is_ordered_by_event(world: World, waits: bool) -> None:
    zero = world.logs[0]
    zero.fill(A, line=10, stream=4)
    mark = zero.submit(4, KIND.event_record)
    if waits:
        zero.submit(5, KIND.event_wait, 4, mark, line=15)
    zero.copy(B, A, line=20, stream=5)
    findings = world.findings()
    assert bool(findings) is not waits
    if findings:
        assert findings[0]["missing"] == "event"


def test_event_recorded_before_the_write_orders_it_not(world: World) -> None:
    zero = world.logs[0]
    mark = zero.submit(4, KIND.event_record, line=9)
    zero.fill(A, line=10, stream=4)
    zero.submit(5, KIND.event_wait, 4, mark, line=15)
    zero.copy(B, A, line=20, stream=5)
    (reported,) = world.findings()
    assert reported["last_order"] == (0, 9, "event_record", 0, 15, "event_wait")


def test_shared_event_orders_streams_of_two_processes(world: World) -> None:
    zero, one = world.logs
    one.submit(4, KIND.event_wait, 77, 3, flags=FLAG.shared, line=15)
    waited = one.copy((9, 0, 8), (9, 32, 8), line=20, stream=4)
    zero.fill(THERE, line=10, stream=4)
    zero.submit(4, KIND.event_record, 77, 3, line=11)
    one.sync(4, waited)
    assert world.pairs() == []


def test_thread_that_took_what_another_posted_comes_after_it(world: World) -> None:
    zero = world.logs[0]
    zero.host_writes(A, line=10)
    zero.post(6)
    zero.host_writes(B, line=11)
    zero.thread += 1
    zero.take(6, 1)
    zero.host_reads(A, line=20)
    zero.host_reads(B, line=21)
    (reported,) = world.findings()
    assert (reported["first"]["site"], reported["second"]["site"], reported["missing"]) == (11, 21, "thread")
    assert reported["certain"] is False  # the two threads can agree by a variable


def lines_after_messages(world: World, *received: int) -> list[int]:
    """Return the lines of rank 0 that rank 1 does not come after, once it has received messages of contents 7."""
    one = world.logs[1]
    for count in received:
        one.take_message(7, count)
    for number, span in enumerate((A, B, OWN)):
        one.host_reads(span, line=20 + number)
    return sorted(each["first"]["site"] for each in world.findings() if each["second"]["site"] >= 20)


@pytest.mark.parametrize(("received", "after"), [((), 0), ((1,), 1), ((1, 2), 2), ((1, 2, 3), 3), ((4,), 0)])
def test_receiver_comes_after_as_many_sends_of_the_same_contents(
    world: World, received: tuple[int, ...], after: int
) -> None:
    zero = world.logs[0]
    for line, span in ((10, A), (11, B), (12, OWN)):
        zero.host_writes(span, line=line)
        zero.send_message(7)
    zero.send_message(8)
    assert lines_after_messages(world, *received) == [10, 11, 12][after:]


def test_message_that_was_not_sent_after_all_is_not_counted(world: World) -> None:
    zero = world.logs[0]
    zero.send_message(7)
    zero.send_message(7, is_undone=True)
    for line, span in ((10, A), (11, B), (12, OWN)):
        zero.host_writes(span, line=line)
        zero.send_message(7)
    assert lines_after_messages(world, 1) == [11, 12]


@pytest.mark.parametrize(("received", "left"), [((1,), [10, 11]), ((1, 2), [])])
def test_receiver_comes_after_two_senders_of_the_same_contents_once_it_has_both(
    world: World, received: tuple[int, ...], left: list[int]
) -> None:
    zero = world.logs[0]
    for socket, span in enumerate((A, B)):
        zero.thread += 1
        zero.host_writes(span, line=10 + socket)
        zero.send_message(7, socket)
    assert lines_after_messages(world, *received) == left


def test_receiver_comes_after_the_first_sender_of_a_message_that_was_passed_on(world: World) -> None:
    zero = world.logs[0]
    zero.host_writes(A, line=10)
    zero.send_message(7)
    zero.thread += 1
    zero.take_message(7, socket=2)
    zero.host_writes(B, line=11)
    zero.send_message(7, socket=3)
    assert lines_after_messages(world, 1) == [11]


def test_socket_does_not_receive_what_it_has_sent(world: World) -> None:
    zero, one = world.logs
    for round_ in range(100):  # more than the analysis keeps of each
        zero.host_writes(A, line=10)
        zero.send_message(7)
        one.take_message(7, round_ + 1)
        one.host_writes(A, line=20)
        one.send_message(7)
        zero.take_message(7, round_ + 1)
    assert world.pairs() == []


def test_callback_comes_after_its_stream_and_before_its_next_operation(world: World) -> None:
    zero = world.logs[0]
    main = zero.thread
    zero.fill(A, line=10, stream=4)
    called = zero.submit(4, KIND.callback, line=12)
    zero.fill(A, line=14, stream=4)
    zero.thread = 900
    zero.write(KIND.callback_begin, stream=4, sequence=called)
    zero.host_writes(A, line=13)
    zero.write(KIND.callback_end, stream=4, sequence=called)
    zero.thread = main
    zero.sync(4, called + 1)
    zero.host_reads(A, line=20)
    assert world.pairs() == []


def body(log: Any, stream: int, called: int, touch: Callable[[], None]) -> None:
    """Run a callback of a stream in the thread that runs all of them."""
    before, log.thread = log.thread, 900
    log.write(KIND.callback_begin, stream=stream, sequence=called)
    touch()
    log.write(KIND.callback_end, stream=stream, sequence=called)
    log.thread = before


@pytest.mark.parametrize("second", [4, 5])
def test_bodies_of_one_stream_are_ordered_and_those_of_two_are_not(world: World, second: int) -> None:
    zero = world.logs[0]
    one, other = zero.submit(4, KIND.callback), zero.submit(second, KIND.callback)
    body(zero, 4, one, lambda: zero.host_writes(A, line=10))
    body(zero, second, other, lambda: zero.host_reads(A, line=20))
    assert world.pairs() == ([] if second == 4 else RACE)


def test_body_does_not_come_after_what_another_body_took(world: World) -> None:
    zero = world.logs[0]
    main = zero.thread
    one, other = zero.submit(4, KIND.callback), zero.submit(5, KIND.callback)
    zero.thread = 800
    zero.host_writes(A, line=10)
    zero.post(70)
    zero.thread = main
    body(zero, 4, one, lambda: zero.take(70, 1))
    body(zero, 5, other, lambda: zero.host_reads(A, line=20))
    assert ("race", 10, 20) in world.pairs()


def test_body_comes_after_what_it_took_itself(world: World) -> None:
    zero = world.logs[0]
    one, other = zero.submit(4, KIND.callback), zero.submit(5, KIND.callback)

    def write() -> None:
        zero.host_writes(A, line=10)
        zero.post(70)

    def read() -> None:
        zero.take(70, 1)
        zero.host_reads(A, line=20)

    body(zero, 4, one, write)
    body(zero, 5, other, read)
    assert world.pairs() == []


@pytest.mark.parametrize(
    ("waits", "reads", "missing"),
    [(True, "body", []), (False, "body", ["event"]), (False, "stream", ["event"]), (False, "host", ["sync"])],
)
def test_what_is_missing_behind_a_body_is_an_order_with_its_stream(
    world: World, waits: bool, reads: str, missing: list[str]
) -> None:
    zero = world.logs[0]
    one = zero.submit(4, KIND.callback)
    body(zero, 4, one, lambda: zero.host_writes(A, line=10))
    if waits:
        zero.submit(5, KIND.event_wait, 4, zero.submit(4, KIND.event_record))
    if reads == "host":
        zero.host_reads(A, line=20)
    elif reads == "stream":
        zero.copy(B, A, line=20, stream=5)
    else:
        other = zero.submit(5, KIND.callback)
        body(zero, 5, other, lambda: zero.host_reads(A, line=20))
    reported = world.findings()
    assert [(each["missing"], each["first"]["body_of"]) for each in reported] == [
        (each, 4) for each in missing
    ]


def test_legacy_stream_is_ordered_with_its_group_in_both_directions(world: World) -> None:
    zero = world.logs[0]
    zero.write(KIND.stream_made, 8, 1, stream=1)
    zero.write(KIND.stream_made, 8, 0, stream=4)
    zero.write(KIND.stream_made, 0, 0, stream=5)
    zero.fill(A, line=10, stream=4)
    zero.copy(B, A, line=11, stream=1)
    zero.fill(B, line=12, stream=4)
    zero.fill(B, line=20, stream=5)
    assert world.pairs() == [("race", 12, 20)]


@pytest.mark.parametrize(
    ("name", "is_right"),
    [("same", True), ("other stream", False), ("before", False), ("sync and barrier", False)],
)
def test_channel_write_arrives_by_a_notify_of_its_channel_and_stream_only(
    world: World, name: str, is_right: bool
) -> None:
    zero, one = world.logs
    if name == "before":
        zero.notify(INTO_1, 0, 1, line=9, stream=4)
    zero.copy(THERE, A, line=10, stream=4, channel=7)
    if name == "same":
        zero.notify(INTO_1, 0, 1, line=11, stream=4)
    elif name == "other stream":
        zero.notify(INTO_1, 0, 1, line=11, stream=5)
    if name == "sync and barrier":
        zero.sync(4, 1)
        zero.write(KIND.outside)
        one.write(KIND.outside)
        world.order()
    else:
        one.wait(INTO_1, 0, 1, line=15)
    one.host_reads(THERE, line=20)
    findings = world.findings()
    assert bool(findings) is not is_right
    for reported in findings:
        assert (reported["kind"], reported["certain"], reported["missing"]) == ("race", True, "arrival")
        assert reported["first"]["channel"] == 7
        if name in ("before", "other stream"):
            assert (reported["help"]["site"], reported["help_is_enough"]) == (
                9 if name == "before" else 11,
                False,
            )


def test_channel_write_whose_notify_nobody_waits_for_names_the_record(world: World) -> None:
    zero, one = world.logs
    zero.copy(THERE, A, line=10, stream=4, channel=7)
    zero.notify(INTO_1, 3, 1, line=11, stream=4)
    one.host_reads(THERE, line=20)
    (reported,) = world.findings()
    assert (reported["help"]["site"], reported["help_is_enough"], reported["notify"]) == (11, True, 3)


def test_wait_is_not_taken_before_the_record_that_it_names(world: World) -> None:
    zero, one = world.logs
    zero.copy(THERE, A, line=10, channel=7)
    zero.clock.now += 500_000  # the recorder's event is dated after the wait's
    one.wait(INTO_1, 0, 1, line=15)
    one.host_reads(THERE, line=20)
    zero.notify(INTO_1, 0, 1, line=11)
    assert world.pairs() == []


def test_wait_on_a_stream_orders_what_follows_on_it(world: World) -> None:
    zero, one = world.logs
    one.submit(6, KIND.notify_wait, INTO_1, 0, line=15)
    one.copy((9, 32, 32), (9, 0, 32), line=16, stream=6)
    zero.copy(THERE, A, line=10, stream=4, channel=7)
    zero.notify(INTO_1, 0, 1, line=11, stream=4)
    one.write(KIND.notify_waited, INTO_1, 0, 1, stream=6, sequence=1)
    one.sync(6, 2)
    one.host_reads(THERE, line=17)
    assert world.pairs() == []


def test_receiver_that_answers_lets_the_sender_write_again(tmp_path: Path) -> None:
    for answers in (True, False):
        (folder := tmp_path / str(answers)).mkdir()
        world = World(folder)
        zero, one = world.logs
        zero.copy(THERE, A, line=10, stream=4, channel=7)
        zero.notify(INTO_1, 0, 1, line=11, stream=4)
        one.wait(INTO_1, 0, 1, line=15)
        one.host_reads(THERE, line=16)
        if answers:
            one.notify(INTO_0, 0, 1, line=17)
            zero.wait(INTO_0, 0, 1, line=18)
        zero.copy(THERE, A, line=19, stream=4, channel=7)
        expected = [] if answers else [("race", 16, 19)]
        assert world.pairs() == expected


def test_read_by_the_channel_comes_after_its_writes_on_that_stream(world: World) -> None:
    zero = world.logs[0]
    zero.copy(THERE, A, line=10, stream=4, channel=7)
    zero.copy(B, THERE, line=11, stream=4, channel=7, flags=FLAG.fetch)
    zero.copy(OWN, THERE, line=20, stream=5, channel=7, flags=FLAG.fetch)
    assert world.pairs() == RACE


@pytest.mark.parametrize("fenced", [True, False])
def test_loose_operations_are_ordered_by_a_fence_only(world: World, fenced: bool) -> None:
    zero, one = world.logs
    zero.copy(THERE, A, line=10, stream=90, channel=7, flags=FLAG.loose)
    if fenced:
        zero.write(KIND.fence, 7, line=12)
    zero.host_writes(A, line=14)
    zero.notify(INTO_1, 0, 1, line=13)
    one.wait(INTO_1, 0, 1, line=15)
    one.host_reads(THERE, line=20)
    assert world.pairs() == ([] if fenced else [("race", 10, 14), ("race", 10, 20)])


def _loose_write(log: EventLog, sequence: int, *, line: int) -> None:
    at = {"stream": 90, "sequence": sequence, "flags": FLAG.loose, "op": OP.copy}
    log.write(KIND.access, 7, reads=[A], writes=[THERE], line=line, **at)


def _its_notify(log: EventLog, sequence: int, index: int) -> None:
    at = {"stream": 90, "sequence": sequence, "line": 11}
    log.write(KIND.notify, INTO_1, index, 0, 7, **at)
    log.write(KIND.notified, INTO_1, index, 1, **at)


@pytest.mark.parametrize("sequence", [2, 6], ids=["next operation", "late delivery has more operations"])
def test_notify_of_a_loose_write_brings_it(world: World, sequence: int) -> None:
    zero, one = world.logs
    _loose_write(zero, 1, line=10)
    _its_notify(zero, sequence, 0)
    one.wait(INTO_1, 0, 1, line=15)
    one.host_reads(THERE, line=20)
    assert world.pairs() == []


def test_notify_of_a_loose_write_does_not_bring_that_of_another_thread(world: World) -> None:
    zero, one = world.logs
    zero.post(50)
    zero.thread += 1
    zero.take(50, 1)
    _loose_write(zero, 1, line=10)
    zero.thread -= 1
    _its_notify(zero, 2, 0)
    one.wait(INTO_1, 0, 1, line=15)
    one.host_reads(THERE, line=20)
    assert world.pairs() == RACE


def test_loose_operations_of_a_channel_race_with_one_another(world: World) -> None:
    zero = world.logs[0]
    zero.copy(THERE, A, line=10, stream=90, channel=7, flags=FLAG.loose)
    zero.copy(THERE, B, line=20, stream=91, channel=7, flags=FLAG.loose)
    (reported,) = world.findings()
    assert (reported["first"]["site"], reported["second"]["site"], reported["missing"]) == (10, 20, "fence")


def test_second_record_that_does_not_follow_the_first_wait_may_be_lost(world: World) -> None:
    zero, one = world.logs
    zero.notify(INTO_1, 0, 1, line=10)
    one.wait(INTO_1, 0, 1, line=15)
    zero.notify(INTO_1, 0, 2, line=20)
    one.wait(INTO_1, 0, 2, line=16)
    (reported,) = world.findings()
    assert (reported["kind"], reported["first"]["site"], reported["second"]["site"], reported["certain"]) == (
        "lost-notify",
        10,
        20,
        True,
    )
    assert reported["help"]["site"] == 15


def test_second_record_that_follows_an_answer_is_right(world: World) -> None:
    zero, one = world.logs
    zero.notify(INTO_1, 0, 1, line=10)
    one.wait(INTO_1, 0, 1, line=15)
    one.notify(INTO_0, 0, 1, line=16)
    zero.wait(INTO_0, 0, 1, line=17)
    zero.notify(INTO_1, 0, 2, line=20)
    one.wait(INTO_1, 0, 2, line=21)
    assert world.pairs() == []


def test_second_record_of_a_fifo_notify_is_right(world: World) -> None:
    zero, one = world.logs
    one.write(KIND.notify_made, INTO_1, 0, 1, 1)
    zero.copy(THERE, A, line=9, channel=7)
    zero.notify(INTO_1, 0, 1, line=10)
    zero.notify(INTO_1, 0, 2, line=11)
    one.wait(INTO_1, 0, 1, line=15)
    one.host_reads(THERE, line=16)
    one.wait(INTO_1, 0, 2, line=17)
    assert world.pairs() == []


def test_two_records_that_one_wait_consumed_order_by_the_first_only(world: World) -> None:
    zero, one = world.logs
    zero.notify(INTO_1, 0, 1, line=9)
    zero.copy(THERE, A, line=10, channel=7)
    zero.notify(INTO_1, 0, 2, line=11)
    one.wait(INTO_1, 0, 2, line=15)
    one.host_reads(THERE, line=20)
    assert world.pairs() == [("lost-notify", 9, 11), ("relied-on-schedule", 10, 20)]


def test_record_that_nobody_waited_for_is_reported_if_the_receiver_ended(tmp_path: Path) -> None:
    for ended in (True, False):
        (folder := tmp_path / str(ended)).mkdir()
        world = World(folder)
        world.logs[0].notify(INTO_1, 5, 1, line=10)
        findings = world.findings(end=ended)
        assert [(each["kind"], each["certain"], each["notify"]) for each in findings] == (
            [("unconsumed-notify", False, 5)] if ended else []
        )


def test_wait_whose_record_no_log_has_knows_all_of_the_recorder(world: World) -> None:
    zero, one = world.logs
    zero.copy(THERE, A, line=10, channel=7)
    one.wait(INTO_1, 0, 1, line=15)
    one.host_reads(THERE, line=20)
    assert world.pairs() == []
    assert world.stats["unexplained"] == 1


@pytest.mark.parametrize("ordered", [True, False])
def test_free_races_with_uses_that_do_not_come_before_it(world: World, ordered: bool) -> None:
    zero, one = world.logs
    zero.copy(THERE, A, line=10, channel=7)
    zero.notify(INTO_1, 0, 1, line=11)
    if ordered:
        one.wait(INTO_1, 0, 1, line=15)
    one.write(KIND.freed, 1, reads=[THERE], line=20)
    assert world.pairs() == ([] if ordered else [("use-after-free", 10, 20)])


def test_use_that_runs_after_a_free_is_reported(world: World) -> None:
    zero, one = world.logs
    one.write(KIND.freed, 1, reads=[THERE], line=20)
    world.order()
    zero.copy(A, THERE, line=10, channel=7, flags=FLAG.fetch)
    assert world.pairs() == [("use-after-free", 10, 20)]


def test_new_allocation_at_a_reused_address_begins_a_new_history(world: World) -> None:
    zero = world.logs[0]
    zero.copy(B, A, line=10, stream=4)
    zero.write(KIND.freed, 1, reads=[A], line=11)
    zero.allocate(8, A)
    zero.fill(A, line=12, stream=5)
    assert world.pairs() == []


def test_history_follows_bytes_that_move_to_another_block(world: World) -> None:
    zero = world.logs[0]
    zero.fill(A, line=10, stream=4)
    zero.write(KIND.moved, 1, reads=[A, (33, 128, 64)])
    zero.host_reads((33, 128, 64), line=20)
    (reported,) = world.findings()
    assert reported["memory"]["allocation"] == 1
    assert reported["bytes"] == (0, 64)


@pytest.mark.parametrize("ordered", [True, False])
def test_memory_taken_back_races_with_uses_of_peers_only(world: World, ordered: bool) -> None:
    zero, one = world.logs
    one.write(KIND.lent, 5, reads=[THERE])
    one.fill(THERE, line=8, stream=3)
    zero.copy(A, THERE, line=10, channel=7, flags=FLAG.fetch)
    if ordered:
        zero.notify(INTO_1, 0, 1, line=11)
        one.wait(INTO_1, 0, 1, line=12)
    one.write(KIND.taken_back, 5, reads=[THERE], line=20)
    assert [each for each in world.pairs() if each[0] == "use-after-free"] == (
        [] if ordered else [("use-after-free", 10, 20)]
    )


def test_unwritten_bytes_are_reported_when_the_host_reads_them_not_when_they_are_copied(world: World) -> None:
    zero = world.logs[0]
    zero.allocate(20, (40, 0, 64), line=5)
    zero.copy(A, (40, 0, 64), line=6)
    zero.copy(B, A, line=7)
    zero.host_reads((B[0], 8, 8), line=20)
    (reported,) = world.findings()
    assert (reported["kind"], reported["certain"], reported["first"]["site"], reported["second"]["site"]) == (
        "unwritten-read",
        True,
        7,
        20,
    )


def test_half_written_block_is_copied_without_a_finding_and_read_with_an_uncertain_one(world: World) -> None:
    zero = world.logs[0]
    zero.allocate(20, (40, 0, 64), line=5)
    zero.fill((40, 0, 32), line=6)
    zero.copy(A, (40, 0, 64), line=7)
    zero.host_reads((A[0], 0, 32), line=19)
    zero.host_reads(A, line=20)
    assert [(each["kind"], each["certain"], each["second"]["site"]) for each in world.findings()] == [
        ("unwritten-read", False, 20)
    ]


def test_read_of_much_names_the_bytes_that_nobody_wrote(world: World) -> None:
    zero = world.logs[0]
    zero.allocate(20, (40, 0, 64), line=5)
    zero.fill((40, 0, 8), line=6)
    zero.fill((40, 16, 40), line=7)
    zero.host_reads((40, 0, 64), line=20)
    (reported,) = world.findings()
    assert (reported["certain"], tuple(reported["bytes"])) == (False, (8, 64))


def test_reduction_of_unwritten_bytes_is_reported(world: World) -> None:
    zero = world.logs[0]
    zero.allocate(20, (40, 0, 64), line=5)
    zero.write(KIND.access, 0, reads=[(40, 0, 64), A], writes=[A], line=20, op=OP.reduce)
    assert world.pairs() == [("unwritten-read", 5, 20)]


def test_view_whose_access_is_unknown_races_with_nothing(world: World) -> None:
    zero = world.logs[0]
    zero.fill(A, line=10, stream=4)
    zero.write(KIND.host_access, reads=[A], flags=FLAG.unknown, line=20)
    assert world.pairs() == []


def _collective(
    log: EventLog, what: int, *, root: int = 0, stream: int = 0, number: int = 1, **more: Any
) -> None:
    log.on(stream, KIND.collective, 60, number << 16 | what << 8, root, 2 << 32 | log.rank, **more)
    if not stream:
        log.clock.now += 5000


def test_all_reduce_orders_each_rank_after_all_others(world: World) -> None:
    zero, one = world.logs
    zero.fill(THERE, line=10)
    _collective(zero, COLLECTIVE.all_reduce)
    _collective(one, COLLECTIVE.all_reduce, stream=4)
    one.copy((9, 0, 8), (9, 8, 8), line=20, stream=4)
    zero.write(KIND.collected)
    one.sync(4, 2)
    assert world.pairs() == []


@pytest.mark.parametrize(("root", "is_right"), [(0, True), (1, False)])
def test_broadcast_orders_after_its_root_only(world: World, root: int, is_right: bool) -> None:
    zero, one = world.logs
    zero.fill(THERE, line=10)
    for log in (zero, one):
        _collective(log, COLLECTIVE.broadcast, root=root)
        log.write(KIND.collected)
    one.host_reads(THERE, line=20)
    assert world.pairs() == ([] if is_right else RACE)


@pytest.mark.parametrize(("root", "is_right"), [(1, True), (0, False)])
def test_reduce_orders_its_root_after_all_only(world: World, root: int, is_right: bool) -> None:
    zero, one = world.logs
    zero.fill(THERE, line=10)
    for log in (zero, one):
        _collective(log, COLLECTIVE.reduce, root=root)
    for log in (zero, one):
        log.write(KIND.collected)
    one.host_reads(THERE, line=20)
    assert world.pairs() == ([] if is_right else RACE)


def _collective_over(log: EventLog, what: int, *, root: int = 0, took: int = 5000, **more: Any) -> None:
    """Write one event for a collective and its end, at its end."""
    log.clock.now += took
    words = 60, 1 << 16 | what << 8, root, 2 << 32 | log.rank
    log.write(KIND.collective, *words, flags=FLAG.end, sequence=took, **more)


def test_all_reduce_that_is_over_with_its_event_orders_each_rank_after_all_others(world: World) -> None:
    zero, one = world.logs
    zero.fill(THERE, line=10)
    one.fill((9, 64, 64), line=15)
    _collective_over(one, COLLECTIVE.all_reduce)
    one.host_reads(THERE, line=20)  # rank 0's event comes later: it was written when its rank returned
    _collective_over(zero, COLLECTIVE.all_reduce)
    zero.host_reads((9, 64, 64), line=30)
    assert world.pairs() == []


@pytest.mark.parametrize(("root", "is_right"), [(0, True), (1, False)])
def test_broadcast_that_is_over_with_its_event_orders_after_its_root_only(
    world: World, root: int, is_right: bool
) -> None:
    zero, one = world.logs
    zero.fill(THERE, line=10)
    for log in (zero, one):
        _collective_over(log, COLLECTIVE.broadcast, root=root)
    one.host_reads(THERE, line=20)
    assert world.pairs() == ([] if is_right else RACE)


def test_message_that_is_over_with_its_event_orders_the_receiver_after_the_sender(world: World) -> None:
    zero, one = world.logs
    zero.fill(THERE, line=10)
    _collective_over(one, COLLECTIVE.receive, root=0)
    one.host_reads(THERE, line=20)
    _collective_over(zero, COLLECTIVE.send, root=1)
    assert world.pairs() == []


def test_access_of_a_collective_that_is_over_with_its_event_races_with_another_thread(world: World) -> None:
    zero, one = world.logs
    _collective_over(zero, COLLECTIVE.all_reduce)
    _collective_over(one, COLLECTIVE.all_reduce, line=10, writes=[THERE])
    zero.host_reads(THERE, line=20)
    assert world.pairs() == RACE


def test_collective_that_took_longer_than_the_clock_counts_is_read(world: World) -> None:
    zero, one = world.logs
    for log in (zero, one):
        words = 60, 1 << 16 | COLLECTIVE.barrier << 8, 0, 2 << 32 | log.rank
        log.write(KIND.collective, *words, flags=FLAG.end, sequence=2**64 - 1)
    assert world.pairs() == []


def test_receive_comes_after_the_send_of_the_same_pair(world: World) -> None:
    zero, one = world.logs
    zero.fill(THERE, line=10)
    _collective(one, COLLECTIVE.receive, root=0, number=5)
    _collective(zero, COLLECTIVE.send, root=1, number=9)
    one.write(KIND.collected)
    one.host_reads(THERE, line=20)
    assert world.pairs() == []


@pytest.mark.parametrize("stream", [0, 4])
@pytest.mark.parametrize(("what", "spans"), [("all_reduce", "writes"), ("all_gather", "reads")])
def test_end_of_a_collective_does_not_prove_that_another_ranks_part_is_over(
    world: World, stream: int, what: str, spans: str
) -> None:
    zero, one = world.logs
    _collective(zero, getattr(COLLECTIVE, what))
    _collective(one, getattr(COLLECTIVE, what), stream=stream, line=10, **{spans: [THERE]})
    zero.write(KIND.collected)
    zero.fill(THERE, line=20)
    assert world.pairs() == RACE


@pytest.mark.parametrize("stream", [0, 4])
def test_end_of_a_collective_proves_to_its_own_rank_that_its_part_is_over(world: World, stream: int) -> None:
    zero, one = world.logs
    _collective(one, COLLECTIVE.all_reduce, stream=stream, line=10, writes=[THERE])
    _collective(zero, COLLECTIVE.all_reduce)
    if stream:
        one.sync(4, 1)
    else:
        one.write(KIND.collected)
    _collective(one, COLLECTIVE.barrier, number=2)
    zero.write(KIND.collected)
    _collective(zero, COLLECTIVE.barrier, number=2)
    zero.write(KIND.collected)
    zero.fill(THERE, line=20)
    assert world.pairs() == []


@pytest.mark.parametrize("second", ["all_gather", "receive"])
@pytest.mark.parametrize("stream", [0, 5])
def test_collective_or_message_runs_after_the_earlier_collectives_of_its_rank_on_other_streams(
    world: World, stream: int, second: str
) -> None:
    zero, one = world.logs
    _collective(one, COLLECTIVE.all_reduce, stream=4, line=10, writes=[THERE])
    _collective(zero, COLLECTIVE.all_reduce)
    zero.write(KIND.collected)
    _collective(one, getattr(COLLECTIVE, second), number=2, stream=stream, line=20, reads=[THERE])
    _collective(zero, COLLECTIVE.send if second == "receive" else COLLECTIVE.all_gather, root=1, number=2)
    if stream:
        one.sync(5, 1)
    else:
        one.write(KIND.collected)
    one.host_writes(THERE, line=30)
    assert world.pairs() == []


def test_collective_on_another_stream_does_not_prove_to_its_thread_that_the_earlier_one_is_over(
    world: World,
) -> None:
    zero, one = world.logs
    _collective(one, COLLECTIVE.all_reduce, stream=4, line=10, writes=[THERE])
    _collective(zero, COLLECTIVE.all_reduce)
    zero.write(KIND.collected)
    _collective(one, COLLECTIVE.barrier, number=2, stream=5)
    one.host_writes(THERE, line=30)
    assert world.pairs() == [("race", 10, 30)]


def test_messages_of_two_lanes_have_no_order(world: World) -> None:
    zero, one = world.logs
    _collective(one, COLLECTIVE.receive, stream=4, line=10, writes=[THERE])
    _collective(one, COLLECTIVE.send, stream=5, line=20, reads=[THERE])
    _collective(zero, COLLECTIVE.send, root=1)
    assert world.pairs() == [("race", 10, 20)]


@pytest.mark.parametrize("stream", [0, 4])
def test_message_that_has_come_was_read_from_its_source(world: World, stream: int) -> None:
    zero, one = world.logs
    _collective(zero, COLLECTIVE.send, root=1, stream=stream, line=10, reads=[THERE])
    _collective(one, COLLECTIVE.receive, root=0)
    one.write(KIND.collected)
    one.fill(THERE, line=20)
    assert world.pairs() == []


def test_cancelled_operations_race_with_nothing_that_comes_after(world: World) -> None:
    zero = world.logs[0]
    zero.fill(B, line=9, stream=4)
    cancelled = zero.fill(A, line=10, stream=4)
    zero.write(KIND.cancelled, cancelled, stream=4, sequence=cancelled)
    zero.host_reads(A, line=21)
    assert world.pairs() == []


def test_aborted_operation_is_an_access_until_its_stream_is_synchronized(world: World) -> None:
    zero = world.logs[0]
    for span, reads in ((A, 21), (B, 22)):
        aborted = zero.fill(span, line=10, stream=4)
        zero.write(KIND.aborted, stream=4, sequence=aborted)
        zero.write(KIND.cancelled, aborted, stream=4, sequence=aborted)
        if span is B:
            zero.sync(4, aborted)
        zero.host_reads(span, line=reads)
    assert world.pairs() == [("race", 10, 21)]


def test_operation_behind_a_wait_that_is_not_over_never_began(world: World) -> None:
    zero = world.logs[0]
    waited = zero.submit(4, KIND.notify_wait, 100, 0, line=14)
    aborted = zero.fill(A, line=10, stream=4)
    zero.write(KIND.aborted, stream=4, sequence=aborted)
    for sequence in (waited, aborted):
        zero.write(KIND.cancelled, sequence, stream=4, sequence=sequence)
    zero.host_reads(A, line=21)
    assert world.pairs() == []


def test_operation_that_failed_is_an_access(world: World) -> None:
    zero = world.logs[0]
    failed = zero.fill(A, line=10, stream=4)
    zero.write(KIND.cancelled, failed, 1, stream=4, sequence=failed)
    zero.host_reads(A, line=21)
    assert world.pairs() == [("race", 10, 21)]


def test_queued_use_of_memory_that_a_vendors_free_ends_is_reported(world: World) -> None:
    zero = world.logs[0]
    for line, flags in ((30, FLAG.end), (31, 0)):
        zero.allocate(line, A)
        used = zero.fill(A, line=10, stream=4)
        zero.write(KIND.freed, line, writes=[A], line=line, flags=flags)
        zero.sync(4, used)
    assert world.pairs() == [("use-after-free", 10, 30)]
    assert world.findings()[0]["missing"] == "sync"


def test_free_behind_a_synchronization_ends_nothing_that_is_used(world: World) -> None:
    zero = world.logs[0]
    zero.allocate(3, A)
    zero.sync(4, zero.fill(A, line=10, stream=4))
    zero.write(KIND.freed, 3, writes=[A], line=30, flags=FLAG.end)
    assert world.pairs() == []


@pytest.mark.parametrize("described", [True, False])
def test_importer_may_use_memory_until_a_vendors_free(world: World, described: bool) -> None:
    zero, one = world.logs
    one.allocate(3, THERE)
    zero.host_writes(THERE, line=10)
    if described:
        zero.post(50)
        one.take(50, 1)
    one.write(KIND.freed, 3, writes=[THERE], line=30, flags=FLAG.end)
    zero.host_reads(THERE, line=20)
    assert world.pairs() == [*([] if described else [("use-after-free", 10, 30)]), ("use-after-free", 20, 30)]


def test_operation_behind_a_cancelled_wait_races_with_nothing_before_it_is_cancelled_too(
    world: World,
) -> None:
    zero, one = world.logs
    zero.fill(THERE, line=10)
    waited = one.submit(4, KIND.notify_wait, INTO_1, 0, line=14)
    read = one.copy(OWN, THERE, line=15, stream=4)
    one.write(KIND.cancelled, waited, stream=4, sequence=waited)
    one.write(KIND.cancelled, read, stream=4, sequence=read)
    assert world.pairs() == []


def test_unordered_operations_race_though_they_are_cancelled_later(world: World) -> None:
    zero = world.logs[0]
    zero.fill(A, line=10, stream=4)
    cancelled = zero.fill(A, line=11, stream=5)
    zero.write(KIND.cancelled, cancelled, stream=5, sequence=cancelled)
    assert world.pairs() == [("race", 10, 11)]


def test_gap_ends_all_histories(world: World) -> None:
    zero = world.logs[0]
    zero.fill(A, line=10, stream=4)
    zero.write(KIND.gap, 12, zero.clock.now)
    zero.host_reads(A, line=20)
    zero.fill(B, line=11, stream=4)
    zero.host_reads(B, line=21)
    assert world.pairs() == [("race", 11, 21)]


def test_two_processes_that_can_talk_unseen_make_the_race_uncertain(tmp_path: Path) -> None:
    for outside in (True, False):
        (folder := tmp_path / str(outside)).mkdir()
        world = World(folder)
        for log in world.logs if outside else ():
            log.write(KIND.outside)
        world.logs[0].host_writes(THERE, line=10)
        world.logs[1].host_reads(THERE, line=20)
        (reported,) = world.findings()
        assert (reported["missing"], reported["certain"]) == ("answer", not outside)


SENT, RECEIVED, MAPPED, UNMAPPED, RELAYED, OVERFLOWN = (
    4,
    8,
    16,
    32,
    64,
    128,
)  # kSent, ... in native/log/event.h
ANYONE, ANY = 1, 2  # kWorld, kAnyMedium


@pytest.mark.parametrize(
    ("one", "other", "is_certain"),
    [
        ([(70, SENT)], [(70, RECEIVED)], False),
        ([(70, SENT)], [(71, RECEIVED)], True),
        ([(70, RECEIVED)], [(70, SENT)], True),
        ([(70, SENT)], [], True),
        ([(70, MAPPED | WROTE)], [(70, MAPPED)], False),
        ([(70, MAPPED)], [(70, MAPPED | WROTE)], True),
        ([(70, MAPPED | WROTE)], [(70, MAPPED), (70, UNMAPPED)], False),
        ([(70, SENT | RELAYED)], [(ANYONE, RECEIVED)], False),
        ([(70, SENT)], [(ANYONE, RECEIVED)], True),
        ([(ANYONE, SENT)], [(71, RECEIVED | RELAYED)], False),
        ([(70, SENT), (ANYONE, OVERFLOWN)], [(71, RECEIVED)], False),
        ([(70, SENT)], [(ANYONE, OVERFLOWN), (ANYONE, RECEIVED)], False),
        ([(70, SENT)], [(ANY, RECEIVED)], False),
        ([(ANY, SENT)], [(70, RECEIVED)], False),
        ([(ANY, SENT)], [(ANYONE, RECEIVED)], False),
        ([(ANY, RECEIVED)], [(ANY, SENT)], True),
        ([(ANY, SENT)], [], True),
    ],
)
def test_race_is_uncertain_if_a_message_could_come_from_the_first_access_to_the_second(
    world: World, one: list[tuple[int, int]], other: list[tuple[int, int]], is_certain: bool
) -> None:
    zero, first = world.logs
    zero.host_writes(THERE, line=10)
    for use in one:
        zero.write(KIND.outside, *use)
    for use in other:
        first.write(KIND.outside, *use)
    first.host_reads(THERE, line=20)
    (reported,) = world.findings()
    assert reported["certain"] is is_certain


def test_message_of_before_the_first_access_does_not_excuse_the_race(world: World) -> None:
    zero, first = world.logs
    zero.write(KIND.outside, 70, SENT)
    zero.host_writes(THERE, line=10)
    first.write(KIND.outside, 70, RECEIVED)
    first.host_reads(THERE, line=20)
    (reported,) = world.findings()
    assert reported["certain"]


def test_message_that_stands_for_those_of_a_time_after_it_excuses_the_race(world: World) -> None:
    zero, first = world.logs
    zero.write(KIND.outside, 70, SENT, 0, 1_000_000_000)
    zero.host_writes(THERE, line=10)
    first.write(KIND.outside, 70, RECEIVED)
    first.host_reads(THERE, line=20)
    (reported,) = world.findings()
    assert not reported["certain"]


def test_race_that_repeats_is_counted(world: World) -> None:
    zero = world.logs[0]
    for offset in range(0, 64, 8):
        zero.fill((A[0], offset, 8), line=10, stream=4)
        zero.host_reads((A[0], offset, 8), line=20)
    (reported,) = world.findings()
    assert reported["count"] == 8


def test_rows_touch_only_their_columns(world: World) -> None:
    zero = world.logs[0]
    zero.write(
        KIND.access,
        0,
        writes=[(1, 0, 56)],
        rows=[(16, 8, 4)],
        line=10,
        op=OP.copy_2d,
        stream=4,
        sequence=zero.next(4),
    )
    zero.host_reads((1, 8, 8), line=19)
    zero.host_reads((1, 16, 8), line=20)
    assert world.pairs() == RACE


def test_wait_for_a_word_comes_after_what_wrote_it(world: World) -> None:
    zero = world.logs[0]
    zero.fill(A, line=10, stream=4)
    zero.on(4, KIND.access, 0, writes=[(B[0], 0, 8)], op=OP.write_value, line=11)
    waited = zero.submit(5, KIND.value_wait, reads=[(B[0], 0, 8)], line=12)
    zero.copy(OWN, A, line=20, stream=5)
    zero.write(KIND.pieces, stream=5, sequence=waited, reads=[(B[0], 0, 8)])
    zero.sync(5, waited + 1)
    assert world.pairs() == []


def test_descriptor_touches_what_it_named_when_it_ran(world: World) -> None:
    zero = world.logs[0]
    launched = zero.submit(4, KIND.access, 0, line=10, op=OP.descriptor, reads=[(B[0], 64, 8)])
    zero.write(KIND.pieces, stream=4, sequence=launched, reads=[B], writes=[A])
    zero.host_reads(A, line=20)
    assert world.pairs() == RACE


def test_log_that_grows_is_read_as_it_grows(world: World) -> None:
    zero, one = world.logs
    analysis = Analysis()
    for log in world.logs:
        analysis.add(str(log.path), True)
    analysis.poll(world.clock.now)
    for round in range(1, 400):
        zero.copy(THERE, A, line=10, channel=7)
        zero.notify(INTO_1, 0, round, line=11)
        one.wait(INTO_1, 0, round, line=15)
        one.host_reads(THERE, line=20)
        one.notify(INTO_0, 0, round, line=16)
        zero.wait(INTO_0, 0, round, line=17)
        analysis.poll(world.clock.now - 3000)
    zero.copy(THERE, A, line=10, channel=7)
    one.host_reads(THERE, line=20)
    analysis.poll(world.clock.now)
    assert [(each["first"]["site"], each["second"]["site"]) for each in analysis.findings()] == [(10, 20)]


def test_process_that_died_unblocks_those_that_wait_for_its_record(world: World) -> None:
    one = world.logs[1]
    one.wait(INTO_1, 0, 1, line=15)
    one.host_reads(THERE, line=16)
    analysis = Analysis()
    for log in world.logs:
        analysis.add(str(log.path))
    analysis.poll(world.clock.now + 100)
    assert analysis.stats()["unexplained"] == 0
    analysis.close(0)
    analysis.poll(world.clock.now + 200)
    assert analysis.stats()["unexplained"] == 1


def test_log_that_is_no_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(b"nothing" * 1000)
    with pytest.raises(ValueError, match="not a log"):
        Analysis().add(str(tmp_path / "x.log"))


LOOSE = {"channel": 7, "flags": FLAG.loose}


@pytest.mark.parametrize("fenced", [True, False])
def test_loose_write_behind_a_fence_comes_after_those_before_it(world: World, fenced: bool) -> None:
    zero = world.logs[0]
    zero.copy(THERE, A, line=10, **LOOSE)
    if fenced:
        zero.write(KIND.fence, 7)
    zero.copy(THERE, B, line=20, **LOOSE)
    assert world.pairs() == ([] if fenced else RACE)


def test_write_of_a_channel_behind_a_fence_comes_after_loose_ones(world: World) -> None:
    zero = world.logs[0]
    zero.copy(THERE, A, line=10, **LOOSE)
    zero.write(KIND.fence, 7)
    zero.copy(THERE, B, line=20, stream=4, channel=7)
    assert world.pairs() == []


NEXT = 2**64 - 1


@pytest.mark.parametrize("messages", [1, 2])
def test_take_of_the_next_post_knows_those_that_were_taken_before_it(world: World, messages: int) -> None:
    zero, one = world.logs
    zero.post(99)
    zero.host_writes(A, line=10)
    zero.post(99)
    for _ in range(messages):
        one.take(99, NEXT)
    one.host_reads(A, line=20)
    assert world.pairs() == ([] if messages == 2 else RACE)


def test_take_that_needs_no_post_orders_nothing(world: World) -> None:
    zero, one = world.logs
    zero.write(KIND.post, 99, 99, 1)
    zero.host_writes(A, line=10)
    zero.post(99)
    one.take(99, NEXT)
    one.host_reads(A, line=20)
    assert world.pairs() == RACE


def test_take_of_a_process_comes_after_all_that_it_did(world: World) -> None:
    zero, one = world.logs
    zero.fill(A, line=10, stream=4)
    one.write(KIND.take, 3, zero.pid, 0)
    one.host_writes(A, line=20)
    assert world.pairs() == []


@pytest.mark.parametrize("awaited", [True, False])
def test_wait_in_vain_names_the_record_that_nobody_awaits(world: World, awaited: bool) -> None:
    zero, one = world.logs
    zero.notify(INTO_1, 1, 1, line=10)
    waited = one.submit(4, KIND.notify_wait, INTO_1, 0, line=20)
    if awaited:
        one.submit(4, KIND.notify_wait, INTO_1, 1, line=21)
    one.write(KIND.cancelled, waited, stream=4, sequence=waited, flags=FLAG.end)
    one.write(KIND.cancelled, waited, stream=4, sequence=waited)
    reported = world.findings()
    described = [
        (each["kind"], each["certain"], each["first"]["site"], each["second"]["site"]) for each in reported
    ]
    assert described == ([] if awaited else [("unconsumed-notify", True, 10, 20)])


def test_use_of_memory_that_went_with_its_process_is_no_finding(world: World) -> None:
    zero, one = world.logs
    zero.copy(THERE, A, line=10, stream=4, channel=7)
    one.write(KIND.freed, 1, writes=[THERE])
    assert world.pairs() == []


@pytest.mark.parametrize("is_ready", [False, True])
def test_access_is_excused_only_once_the_descriptor_of_an_event_is_readable(
    tmp_path: Path, is_ready: bool
) -> None:
    world = World(tmp_path)
    log = world.logs[0]
    sequence = log.fill(A, line=10, stream=3)
    log.write(KIND.event_record, stream=3, sequence=log.next(3), line=11)
    if is_ready:
        log.write(KIND.evident, stream=3, sequence=sequence + 1)
    log.host_reads(A, line=12)
    if not is_ready:
        log.write(KIND.evident, stream=3, sequence=sequence + 1)
    assert [(each["kind"], each["certain"]) for each in world.findings()] == [("race", not is_ready)]
