"""The calls of the runtime: their bodies by name, the device of each thread, and the last error."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from peerlane import Device
from peerlane.backend import host
from peerlane.dialects._shared.c_names import declarations_of
from peerlane.dialects._shared.call import Failure
from peerlane.dialects.cuda.state import bodies, code_names, driver, gpu, kinds, machine, report, resets
from peerlane.dialects.gpu.calls import HeaderCalls
from peerlane.dialects.gpu.vendor import Reason
from peerlane.support.libraries import binding

_ILLEGAL_ADDRESS = gpu.vendor.code(Reason.ILLEGAL_ADDRESS)
_DEVICES = ("device", "peerDevice", "srcDevice", "dstDevice")

#: The body of each call; those of ``of_version_12`` are for the version 12 alone.
own: dict[str, Callable[..., Any]] = {}
of_version_12: dict[str, Callable[..., Any]] = {}


def call(body: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the body of the runtime's call of its name, in both versions."""
    own[body.__name__] = body
    return body


def same_as_driver(**names: str) -> None:
    """Declare calls of the runtime that do what the driver's of another name do."""
    own.update({name: bodies[of] for name, of in names.items()})


def same_as_driver_in_12(**names: str) -> None:
    """Do what :func:`same_as_driver` does, for the version 12 alone."""
    of_version_12.update({name: bodies[of] for name, of in names.items()})


class _Thread(threading.local):
    """The device that this thread chose with cudaSetDevice, on one node."""

    node: object = None
    ordinal: int | None = None


class _Retained(set[int]):
    """The devices whose primary context the runtime retains, by number."""


class Current:
    """The device of each thread: that of the current context, or the one that the thread chose, 0 at first."""

    def __init__(self) -> None:
        self._thread = _Thread()

    def device(self) -> Device:
        """Return the device; no context is made."""
        context = machine.current()
        if context is not None:
            return context.device
        node, thread = machine.devices(), self._thread
        if thread.node is node and thread.ordinal is not None:
            return machine.device(thread.ordinal)
        return machine.shown()[0]

    def choose(self, device: Device) -> None:
        """Make a device this thread's, and its primary context current."""
        self._thread.node, self._thread.ordinal = machine.devices(), device.ordinal
        self.retain(device)
        gpu.contexts.replace(machine.context_of(device.ordinal))

    def retain(self, device: Device) -> None:
        """Retain the primary context of a device, once."""
        retained = machine.table(_Retained)
        if device.ordinal not in retained or not machine.has_primary(device.ordinal):
            gpu.contexts.retain(device)
            retained.add(device.ordinal)

    def enter(self) -> None:
        """Begin, and make the context current that a call needs."""
        driver.begin()
        if machine.current() is None:
            device = self.device()
            self.retain(device)
            gpu.contexts.replace(machine.context_of(device.ordinal))
        gpu.unusable.refuse()


current = Current()
resets.append(host.forget_last_errors)


class Runtime:
    """The calls of one version: they have an own last error.

    Attributes
    ----------
    header : str
        ``"cudart"`` or ``"cudart12"``.
    calls : HeaderCalls
    """

    def __init__(self, header: str) -> None:
        self.header = header
        self.calls = HeaderCalls(
            gpu.vendor,
            declarations_of("cuda", header),
            {
                **{f"int {name}": machine.device_of for name in _DEVICES},
                "cudaStream_t": kinds["CUstream"],
                "cudaEvent_t": kinds["CUevent"],
                "cudaMemPool_t": kinds["CUmemoryPool"],
                "cudaGraph_t": kinds["CUgraph"],
                "cudaGraphNode_t": kinds["CUgraphNode"],
                "cudaGraphExec_t": kinds["CUgraphExec"],
                "cudaUserObject_t": kinds["CUuserObject"],
            },
            self._report,
            gpu.unusable.reported,
        )
        mine = {**own, **of_version_12} if header == "cudart12" else own
        for name, body in mine.items():
            if name in self.calls.declarations.functions:
                self.calls.define(name, body)
        code_names["cuda"] = {value: name for name, value in binding(header)["enums"]["cudaError_t"].items()}

    def _report(self, failure: Failure) -> None:
        host.set_last_error(self.header, failure.code)
        report(failure)

    def last_error(self) -> int:
        """Return the code of this thread's last failure, 0 if there is none.

        That of a context which no call can use any more stays (facts/cuda 1.2).
        """
        is_unusable = not driver.is_lost and machine.current() in machine.unusable
        return _ILLEGAL_ADDRESS if is_unusable else host.last_error(self.header)

    def take_last_error(self) -> int:
        """Return what :meth:`last_error` does, and forget it."""
        code = self.last_error()
        host.set_last_error(self.header, 0)
        return code
