"""Logs of machines whose clocks differ get one clock, by what their events say came before what."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.test_orders import INTO_0, INTO_1, THERE, A, World
from helpers.event_logs import KIND, EventLog
from peerlane.checker import Checker
from peerlane.checker.clocks import align
from peerlane.diagnostics.log.log_files import logs_in

pytestmark = pytest.mark.any_schedule

DAY = 86_400_000_000_000
AHEAD = 3 * DAY  # so much later is the second machine's clock
ROUND = 2_000_000


class Apart(World):
    """Two machines whose clocks differ by days; the time of day says so but for a second."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        zero, one = self.logs
        zero.set_clock(1, 11, since_epoch_ns=100 * DAY)
        one.set_clock(2, 22, since_epoch_ns=97 * DAY + 1_000_000_000)
        self.ahead = 0
        self.elapsed = self.clock.now

    def order(self) -> None:
        """Leave the ranks without an order of the beginning: only records order them."""

    def at(self, log: EventLog, after_ns: int) -> None:
        """Let the next event of a log be so much later than the beginning, on its own clock."""
        self.clock.now = self.elapsed + after_ns + (AHEAD if log is self.logs[1] else 0)

    def send(self, source: int, bank: int, at_ns: int, travel_ns: int, number: int) -> None:
        sender, target = self.logs[source], self.logs[1 - source]
        self.at(sender, at_ns)
        sequence = sender.notify_far(bank, 0, line=11)
        self.at(target, at_ns + travel_ns)
        target.come(bank, 0, sequence, number)
        target.wait(bank, 0, number, line=12)


def rewritten(folder: Path) -> Apart:
    """Return a world in which all that the second rank did before was days later, on its clock."""
    world = Apart(folder)
    zero, one = world.logs
    again = EventLog(one.path, world.clock, pid=501, rank=1)
    again.set_clock(2, 22, since_epoch_ns=97 * DAY + 1_000_000_000)
    world.logs = [zero, again]
    world.at(again, 0)
    again.channel(7, incoming=INTO_1, outgoing=INTO_0, peer=0)
    again.allocate(1, THERE)
    again.fill(THERE, line=2)
    return world


def test_clocks_are_aligned_by_records_of_both_directions_and_the_error_is_reported(tmp_path: Path) -> None:
    world = rewritten(tmp_path)
    world.send(0, INTO_1, 10 * ROUND, 300_000, 1)
    world.send(1, INTO_0, 11 * ROUND, 100_000, 1)
    logs = logs_in(tmp_path)
    (aligned,) = align(logs)
    assert logs[0].shift_ns == 0
    assert abs(logs[1].shift_ns + AHEAD) < 200_000
    assert "rank 1 are shifted by -259200.0" in aligned
    assert "right to 20" in aligned
    assert "by what came before what" in aligned


def test_clocks_of_which_one_side_is_known_are_aligned_by_the_time_of_day_as_far_as_it_can_be(
    tmp_path: Path,
) -> None:
    world = rewritten(tmp_path)
    world.send(0, INTO_1, 10 * ROUND, 300_000, 1)
    logs = logs_in(tmp_path)
    (aligned,) = align(logs)
    assert "by the times of day alone" in aligned
    assert logs[1].shift_ns == pytest.approx(-AHEAD + 1_000_000_000, abs=1_000_000)


def test_checker_of_two_clocks_finds_what_it_finds_with_one(tmp_path: Path) -> None:
    for is_waited in (True, False):
        (folder := tmp_path / str(is_waited)).mkdir()
        world = rewritten(folder)
        zero, one = world.logs
        world.send(0, INTO_1, ROUND, 300_000, 1)
        world.send(1, INTO_0, 2 * ROUND, 100_000, 1)
        world.at(zero, 3 * ROUND)
        zero.copy(THERE, A, line=10, channel=7)
        sequence = zero.notify_far(INTO_1, 1, line=11)
        world.at(one, 3 * ROUND + 200_000)
        one.come(INTO_1, 0, sequence, 1)
        if is_waited:
            one.wait(INTO_1, 1, 1, line=12)
        one.host_reads(THERE, line=20)
        checker = Checker(folder, give_back=False)
        races = [each for each in checker.finish()["findings"] if each["kind"] == "race"]
        assert len(races) == (0 if is_waited else 1)
        assert checker.stats["unexplained"] == 0


def test_pid_of_another_machine_is_another_process(tmp_path: Path) -> None:
    world = World(tmp_path)
    zero, one = world.logs
    zero.set_clock(1, 11)
    one.set_clock(2, 11)
    zero.host_writes(A, line=10)
    one.write(KIND.take, 3, zero.pid, 0)
    one.host_reads(A, line=20)
    assert [each[0] for each in world.pairs()] == ["race"]
