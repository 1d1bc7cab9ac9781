"""From logs to a prediction: those of a block of :func:`peerlane.predict`, and those of the ranks of a launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

from peerlane.backend import registry
from peerlane.diagnostics.log import event_log, log_files
from peerlane.errors import Busy, Refused
from peerlane.prediction import collectives, fluid, result
from peerlane.prediction.machines import Machine, machine_of
from peerlane.prediction.operations import Lane, Run


class Recording(AbstractContextManager[result.Prediction]):
    """A block in which this process writes a log, and the prediction that comes of it.

    Raises Unsupported: the profile's machine is not known.
    """

    def __init__(self, profile: str, compute: float) -> None:
        self._machine, self._compute = machine_of(profile, "predict"), compute
        self._open = ExitStack()
        self._folder = Path()
        self._blocks: dict[int, int] = {}  # those of before the block, with their devices

    def __repr__(self) -> str:
        return f"<pl.predict({self._machine.profile!r}): write `with` before it, and a block whose time it predicts>"

    def __enter__(self) -> result.Prediction:
        """Begin the log.

        Raises Busy: there is one already, which goes on.
        """
        if event_log.active:
            raise Busy(
                "predict: this process writes an event log already, for `peerlane check` or for another prediction; "
                "end that first",
                call="predict",
                detail=Refused(reason="recording"),
            )
        self.prediction = result.Prediction(self._machine.profile)
        self._folder = self._open.enter_context(event_log.folder())
        try:
            event_log.begin(self._folder)
            self._blocks = event_log.live_blocks()
        except BaseException:
            self._discard()
            raise
        return self.prediction

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        """End the log, and enter what it has into the prediction if the block did not fail."""
        if kind is not None:
            self._discard()
            return
        event_log.end()
        run = _run_on(self._machine, self._device_of, self._compute)
        with self._open:
            logs = log_files.logs_in(self._folder)
            run.note_devices(self._blocks)
            run.add(logs)
        _fill(self.prediction, self._machine, run, logs)

    def _device_of(self, number: int) -> int | None:
        node = registry.entered_as("virtual")
        return _within(self._machine, node.ordinal(number) if node else None)

    def _discard(self) -> None:
        """End the log without a prediction."""
        event_log.end()
        self._open.close()


def of_logs(profile: str, logs: Sequence[log_files.ProcessLog]) -> result.Prediction:
    """Return the prediction for the processes of a run, each of which used one node of its machine.

    All machines are of the profile's kind.

    Raises Unsupported: the profile's machine is not known.
    """
    machine = machine_of(profile, "--predict")
    # A process numbers the devices of its first node from 1 on, behind the host.
    run = _run_on(machine, lambda number: _within(machine, number - 1), 0.0)
    run.add(logs)
    prediction = result.Prediction(profile)
    _fill(prediction, machine, run, logs)
    return prediction


def _run_on(machine: Machine, device_of: Callable[[int], int | None], compute: float) -> Run:
    """Return an empty run whose collectives are those of the machine's vendor."""
    return Run(machine, device_of, compute, partial(collectives.seconds_of, machine))


def _within(machine: Machine, device: int | None) -> int | None:
    """Return a device if the machine has it, else None."""
    return device if device is not None and device < machine.devices else None


def _fill(
    prediction: result.Prediction, machine: Machine, run: Run, logs: Sequence[log_files.ProcessLog]
) -> None:
    links = {link for task in run.tasks for flow in task.flows for link in flow.route}
    times = fluid.simulate(run.tasks, {link: machine.rate(link) for link in links})
    names = {each.lane: _name(each.lane, logs) for each in run.operations}
    result.fill(prediction, machine, run, times, names)


def _name(lane: Lane, logs: Sequence[log_files.ProcessLog]) -> str:
    log = logs[lane.process]
    if lane.is_stream:
        name = f"stream {lane.number}"
    else:
        name = "main thread" if lane.number == log.pid else f"thread {lane.number}"
    return f"{log.name}, {name}" if len(logs) > 1 else name
