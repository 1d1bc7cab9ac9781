"""Processes that a test started, and those whose start was under way when the test began."""

from __future__ import annotations

import multiprocessing
import multiprocessing.popen_spawn_posix
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from peerlane.testing.started import StartedProcesses

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(60)]


def _wait_for(end: Any) -> None:
    end.wait(60)


@dataclass
class Started:
    """A process that another thread was starting when the test began, and what notes the test's processes."""

    process: Any
    end: Any
    processes: StartedProcesses


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """Begin to note processes while another thread is inside ``Process.start``."""
    is_inside, may_go_on = threading.Event(), threading.Event()
    launch = multiprocessing.popen_spawn_posix.Popen._launch

    def late(*args: object) -> None:
        is_inside.set()
        assert may_go_on.wait(30)
        launch(*args)

    monkeypatch.setattr(multiprocessing.popen_spawn_posix.Popen, "_launch", late)
    context = multiprocessing.get_context("spawn")
    end = context.Event()
    process = context.Process(target=_wait_for, args=(end,))
    starter = threading.Thread(target=process.start)
    starter.start()
    assert is_inside.wait(30)
    processes = StartedProcesses()
    processes.begin()
    may_go_on.set()
    starter.join(30)
    assert not starter.is_alive()
    yield Started(process, end, processes)
    processes.end()
    end.set()
    process.join(30)


def test_process_that_was_being_started_keeps_its_exit_status(started: Started) -> None:
    started.end.set()
    os.waitid(
        os.P_PID, started.process.pid, os.WEXITED | os.WNOWAIT
    )  # it has ended, and nothing has waited for it
    started.processes.end()
    started.process.join(30)
    assert started.process.exitcode == 0


def test_process_that_was_being_started_is_not_charged_to_the_test(started: Started) -> None:
    assert started.processes.left() == []
    assert started.process.is_alive()
