"""The log of a block of :func:`peerlane.predict`, from its beginning to the prediction."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from peerlane.backend import registry
from peerlane.diagnostics.log import event_log, log_files
from peerlane.prediction import collectives, fluid, result
from peerlane.prediction.machines import machine_of
from peerlane.prediction.operations import Lane, Run


class Recording:
    """A log that this process writes, and the prediction that comes of it.

    Raises
    ------
    Unsupported
        The profile's machine is not known.
    """

    def __init__(self, profile: str, compute: float) -> None:
        self._machine, self._compute = machine_of(profile, "predict"), compute
        self.prediction = result.Prediction(profile)
        self._open = ExitStack()
        self._folder = Path()
        self._blocks: dict[int, int] = {}  # those of before the block, with their devices

    def begin(self) -> bool:
        """Begin the log; False if there is one already, which goes on."""
        if event_log.active:
            return False
        self._folder = self._open.enter_context(event_log.folder())
        try:
            event_log.begin(self._folder)
            self._blocks = event_log.live_blocks()
        except BaseException:
            self.discard()
            raise
        return True

    def end(self) -> None:
        """End the log, and enter what it has into the prediction."""
        event_log.end()
        run = Run(self._machine, self._device_of, self._compute, self._collective)
        with self._open:
            logs = log_files.logs_in(self._folder)
            run.note_devices(self._blocks)
            run.add(logs)
        links = {link for task in run.tasks for flow in task.flows for link in flow.route}
        times = fluid.simulate(run.tasks, {link: self._machine.rate(link) for link in links})
        names = {each.lane: _name(each.lane, logs) for each in run.operations}
        result.fill(self.prediction, self._machine, run, times, names)

    def _device_of(self, number: int) -> int | None:
        """Return the device of the machine that stands for one of the log; None if the machine has too few."""
        node = registry.entered_as("virtual")
        ordinal = node.ordinal(number) if node else None
        return ordinal if ordinal is not None and ordinal < self._machine.devices else None

    def _collective(self, name: str, ranks: int, nbytes: int) -> float | None:
        return collectives.seconds_of(self._machine, name, ranks, nbytes)

    def discard(self) -> None:
        """End the log without a prediction."""
        event_log.end()
        self._open.close()


def _name(lane: Lane, logs: list[log_files.ProcessLog]) -> str:
    log = logs[lane.process]
    if lane.is_stream:
        name = f"stream {lane.number}"
    else:
        name = "main thread" if lane.number == log.pid else f"thread {lane.number}"
    return f"{log.name}, {name}" if len(logs) > 1 else name
