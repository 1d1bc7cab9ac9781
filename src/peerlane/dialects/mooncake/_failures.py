"""The engine's codes, and what a program reads of a failed call (facts/mooncake 3)."""

from __future__ import annotations

import logging
import reprlib
from typing import Any

from peerlane.dialects._shared.call import Failure, Refusal
from peerlane.dialects._shared.message import Message, Messages
from peerlane.errors import Error

INVALID_ARGUMENT, NOT_REGISTERED, OVERLAPPED = -1, -3, -7
FAILED, SOCKET, DNS = -1, -102, -101

#: What each method answers when it is refused, for the reference.
ANSWERS: dict[str, str] = {}

_log = logging.getLogger("mooncake.engine")
_LIKE_AN_ADDRESS = 1 << 32


def explain() -> str:
    """Explain the failed calls of this thread, newest first, and forget them.

    Returns for each its name, code and arguments, the cause, and what to do; empty if none failed.
    """
    return messages.take()


def refused(cause: str, remedy: str, code: int = FAILED) -> Refusal:
    """Return the refusal of a call."""
    return Refusal(code, cause, remedy)


def report(call: str, error: Refusal | Error, answer: int | None, arguments: dict[str, Any]) -> int:
    """Report a failed call; return ``answer``, or the error's code without one."""
    if isinstance(error, Refusal):
        code, cause, remedy = error.code, str(error), error.remedy
    else:
        code, cause, remedy = FAILED, str(error), "see the cause"
    code = code if answer is None else answer
    shown = tuple((name, value, None) for name, value in arguments.items())
    _log.error("%s", messages.record(Failure(call, code, cause, remedy, shown)))
    return code


def _layout(message: Message) -> str:
    return (
        f"TransferEngine.{message.call} returned {message.code}: {message.cause}; {message.remedy} "
        f"(called with {message.arguments})"
    )


def _argument_text(name: str, value: object, is_address: bool | None) -> object:
    if type(value) is int and value >= _LIKE_AN_ADDRESS:
        return hex(value)
    return reprlib.repr(value)


messages = Messages("mooncake", _argument_text, _layout)
