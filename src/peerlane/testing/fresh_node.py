"""A fresh node for one test: entered before the test, left after it, with a list of what the test left behind."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from peerlane import dialects
from peerlane.backend import registry
from peerlane.backends.virtual.node import schedule
from peerlane.backends.virtual.node.config import NodeConfig
from peerlane.backends.virtual.node.node_file import SUFFIX
from peerlane.diagnostics import live_objects
from peerlane.diagnostics.leak_report import WITHOUT_BYTES
from peerlane.diagnostics.live_objects import LiveObject, in_bytes
from peerlane.diagnostics.memory import allocations
from peerlane.node.device import Device, before_counting, devices, enter_node, leave_node
from peerlane.support.runtime_directory import runtime_directory
from peerlane.testing.procs import SETTLE_SECONDS
from peerlane.testing.started import LeftProcess, StartedProcesses

_VARIABLE = "PEERLANE_NODE"
_PAUSE = 0.005

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Left:
    """The objects and processes that a test left behind."""

    objects: tuple[LiveObject, ...] = ()
    processes: tuple[LeftProcess, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.objects or self.processes)


class FreshNode:
    """A node that no other process is in, and dialects as a new process finds them.

    Children that are started meanwhile get the node as their ``PEERLANE_NODE``.

    Parameters
    ----------
    config : NodeConfig
        The description of the node.
    keep_name : bool
        Keep the name of ``config``; else the node gets a unique name.

    Attributes
    ----------
    config : NodeConfig
        The description, with the node's name.
    devices : tuple of Device
        The devices of the node, as `peerlane.devices` gives them.
    lost : tuple of LiveObject
        The objects in the node that this process was in before; they have ended with it.

    Raises
    ------
    Error
        As :func:`peerlane.enter_node`; afterwards this process is in no node.
    """

    def __init__(self, config: NodeConfig, *, keep_name: bool = False) -> None:
        self._unique = not keep_name
        if self._unique:
            config = config.replace(name=f"pytest-{os.getpid()}-{next(_numbers)}")
        self.config = config
        self.lost = live_objects.living() if registry.is_entered() else ()
        self._pid = os.getpid()
        self._directory = runtime_directory()
        self._before = os.environ.get(_VARIABLE)
        self._processes = StartedProcesses()
        _begin_dialects_anew()
        leave_node()
        self.devices: tuple[Device, ...] = enter_node(config.spec)
        os.environ[_VARIABLE] = config.spec
        live_objects.begin()
        self._processes.begin()

    @property
    def schedule(self) -> str:
        """The schedule in a form that repeats it: ``seeded:17``."""
        return schedule.present()

    def for_others(self) -> contextlib.AbstractContextManager[None]:
        """Do not charge the test with processes and pools that are started inside."""
        return self._processes.for_others()

    def left(self, release: Callable[[], object]) -> Left:
        """Return the objects that still live and the processes that still run.

        Queued operations that can run are run, and processes have five seconds to end.  If objects live, ``release``
        is called, which should drop references that nobody needs any more.
        """
        if self._pid != os.getpid():
            return Left()
        processes = tuple(self._processes.left())
        for give_back in before_counting:
            give_back()
        left = (*live_objects.left_behind(), *live_objects.living())
        if left or self._held():
            release()
            gc.collect()
            left = (*live_objects.left_behind(), *live_objects.living())
        return Left((*left, *self._held_by_nothing(left)), processes)

    def leave(self, left: Left = Left(), *, kill: bool = True) -> None:
        """Leave the node, whatever lives there; with ``kill``, kill the processes that were left."""
        live_objects.end()
        if kill and self._pid == os.getpid():
            self._processes.kill(left.processes)
        self._processes.end()
        if self._pid != os.getpid():
            return
        if not self.devices[0].is_closed:
            self.devices[0].free_bytes  # noqa: B018 - removes what ended processes left in the directory
        leave_node()
        _begin_dialects_anew()
        if self._before is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = self._before
        if self._unique:
            (self._directory / f"{self.config.name}{SUFFIX}").unlink(missing_ok=True)

    def _held(self) -> dict[Device, int]:
        """Return the bytes in use on each device."""
        held: dict[Device, int] = {}
        for device in devices() if registry.is_entered() else ():
            if not device.is_closed and device.backend.ledger.used(device.ordinal):
                nbytes = device.total_bytes - device.free_bytes  # releases memory of ended processes
                if nbytes:
                    held[device] = nbytes
        return held

    def _held_by_nothing(self, left: tuple[LiveObject, ...]) -> list[LiveObject]:
        """Return the memory in use that belongs to no listed object."""
        known = {each.where for each in left if each.nbytes and each.kind not in WITHOUT_BYTES}
        deadline = time.monotonic() + SETTLE_SECONDS  # an ending process may still hold shared memory
        held = {device: nbytes for device, nbytes in self._held().items() if device.name not in known}
        if held:
            allocations.settle()
        while held and time.monotonic() < deadline:
            time.sleep(_PAUSE)
            held = {device: nbytes for device, nbytes in self._held().items() if device in held}
        return [
            LiveObject(
                "held memory",
                f"{in_bytes(nbytes)} on {device.name}, freed and still held: by a memoryview or a DLPack "
                "capsule, by a queued operation that cannot run, or by another process",
                nbytes,
                device.name,
                None,
            )
            for device, nbytes in held.items()
        ]


def _begin_dialects_anew() -> None:
    for name in dialects.registered():
        dialects.begin_anew(name)
