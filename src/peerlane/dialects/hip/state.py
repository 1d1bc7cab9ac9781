"""HIP's machine, its table of calls, and the texts of failures."""

from __future__ import annotations

import sys

from peerlane.dialects._shared.call import Arguments, Failure
from peerlane.dialects.gpu.gpu import Gpu
from peerlane.dialects.gpu.vendor import Vendor
from peerlane.dialects.hip.binding.convention import Calls, answers, codes
from peerlane.dialects.hip.codes import NAMES
from peerlane.dialects.hip.log import log
from peerlane.dialects.hip.policy import policy
from peerlane.dialects.hip.visible import visible
from peerlane.node.device import at_end


def _report(failure: Failure) -> None:
    message = messages.record(failure)
    if log.has_errors:
        sys.stderr.write(f"peerlane: {message}\n")


def warn(text: str) -> None:
    """Report a call that works and may not do what the program means."""
    messages.add(text)
    if log.has_warnings:
        sys.stderr.write(f"peerlane: {text}.\n")


def _trace(call: str, code: int, arguments: Arguments) -> None:
    sys.stderr.write(f"peerlane: {messages.line(call, code, arguments)}.\n")


def explain() -> str:
    """Explain the failed calls of this thread, newest first, and forget them.

    Each text has the call with its arguments, the cause with the numbers, and what to do.  It is what
    ``AMD_LOG_LEVEL=1`` writes to stderr at each failure.  A call that works, and may not do what the program means,
    has a text too, which is written from ``AMD_LOG_LEVEL=2`` on.
    """
    return messages.take()


def begin_anew() -> None:
    """Reset the dialect to the state of a new process."""
    policy.reload()
    log.forget()
    gpu.begin_anew()
    calls.forget()


gpu = Gpu(
    Vendor(
        "HIP",
        codes,
        NAMES,
        policy,
        visible=visible,
        hidden_by="HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES",
        code_name=lambda call, code: answers(call)(code).name,
    )
)
machine = gpu.machine
messages = gpu.failures
calls = Calls(explain=gpu.vendor.explain, report=_report, trace=_trace, machine=machine)
at_end.append(calls.end)
