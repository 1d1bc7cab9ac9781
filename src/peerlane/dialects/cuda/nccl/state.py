"""NCCL's table of calls, the objects behind its handles, and the message of the last failed call."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from peerlane.dialects._shared.c_names import declarations_of
from peerlane.dialects._shared.call import Failure
from peerlane.dialects._shared.machine import Resource
from peerlane.dialects.cuda.nccl.codes import NAMES_OF_RESULTS, invalid, vendor
from peerlane.dialects.cuda.nccl.communicator import Communicator
from peerlane.dialects.cuda.nccl.window import Window
from peerlane.dialects.cuda.state import gpu, machine
from peerlane.dialects.gpu.calls import HeaderCalls
from peerlane.dialects.gpu.failures import Failures

_LOUD = ("WARN", "INFO", "ABORT", "TRACE")  # values of NCCL_DEBUG that show failures
_Kind = TypeVar("_Kind", bound=Resource)


class _Failures(Failures):
    def _code(self, call: str, code: int) -> str:
        return f"{NAMES_OF_RESULTS.get(code, 'unknown result')} ({code})"


class _Last:
    """The message of the last failure in this process; reading it does not clear it (facts/cuda 8.1)."""

    message: object = ""


last, failures = _Last(), _Failures(machine)


def report(failure: Failure) -> None:
    """Keep the message of a failed call; write it to stderr if NCCL_DEBUG asks for warnings."""
    last.message = message = failures.record(failure)
    gpu.failures.add(message)
    if os.environ.get("NCCL_DEBUG", "").upper() in _LOUD:
        print(f"peerlane: {message}", file=sys.stderr, flush=True)


def _object_of(handle: int, kind: type[_Kind]) -> _Kind:
    resource = machine.resources.get(handle)
    if type(resource) is kind and resource.context.is_live:
        return resource
    machine.devices()
    cause = machine.describe_unknown(handle, kind.name) if handle else f"the {kind.name} is NULL"
    raise invalid(cause, f"pass a {kind.name} that was made and not yet ended")


def communicator_of(handle: int) -> Communicator:
    """Return the communicator of a handle."""
    return _object_of(handle, Communicator)


def window_of(handle: int) -> Window:
    """Return the window of a handle."""
    return _object_of(handle, Window)


calls = HeaderCalls(
    vendor,
    declarations_of("cuda", "nccl"),
    {"ncclComm_t": communicator_of, "ncclWindow_t": window_of},
    report,
)


def call(body: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the body of the call of its name."""
    return calls.define(body.__name__, body)
