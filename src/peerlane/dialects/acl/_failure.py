"""``acl.rt``: the last failure of a thread, and a callback for failures on streams (facts/acl 2.2, 2.10)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

from peerlane.dialects._shared.call import Address, Int32, Object, type_name
from peerlane.dialects.acl._checks import identity_of, one_of
from peerlane.dialects.acl._codes import FAULTS, Code
from peerlane.dialects.acl._state import acl, last_error, swallow
from peerlane.dialects.acl._stream import AclStream, failure_callbacks
from peerlane.errors import Error
from peerlane.support.records import dataclass

_LEVEL = one_of("level", (0,), "pass 0, the level of threads: there is no other", code=Code.INVALID_PARAM)
_FIRST_INFO = 1 << 61
_THE_ONE = "set_exception_info_callback"


@dataclass(frozen=True, slots=True)
class _Info:
    code: int
    task: int
    stream: int
    thread: int
    device: int


_numbers = itertools.count(_FIRST_INFO, 64)
_infos: dict[int, _Info] = {}


@acl.value("acl.rt.peek_at_last_error", failed=int, checks=[_LEVEL])
def peek_at_last_error(level: Int32) -> int:
    """Return the newest code of the runtime in this thread, and keep it (facts/acl 2.2).

    Codes of the layer that checks arguments (1000xx, 2000xx) are not the runtime's.

    Gives: bare int, 0 if there is none
    Refuses: 100000 level not 0
    Basis: S; X for which codes count
    """
    return last_error.code


@acl.value("acl.rt.get_last_error", failed=int, checks=[_LEVEL])
def get_last_error(level: Int32) -> int:
    """Return the newest code of the runtime in this thread, and forget it (facts/acl 2.2).

    Gives: bare int, 0 if there is none
    Refuses: 100000 level not 0
    Basis: S; X for which codes count
    """
    code, last_error.code = last_error.code, 0
    return code


@acl.call("acl.rt.set_exception_info_callback")
def set_exception_info_callback(fn: Object = None) -> None:
    """Have ``fn(info)`` called for each failure on a stream; None, or no argument, ends that (facts/acl 2.10).

    The thread that synchronizes calls it, before its call returns.  If ``fn`` raises, the error becomes a message and
    ``fn`` is not called again.  Until ``fn`` returns, the five calls below take ``info``.

    Refuses: `TypeError` not callable
    Basis: S, D; C for when it is called
    """
    if fn is not None and not callable(fn):
        why = TypeError(f"argument fn: must be callable or None, not {type_name(fn)}")
        raise TypeError("acl.rt.set_exception_info_callback args parse failed") from why
    _set(_THE_ONE, fn)


@acl.call("aclrtExceptionInfoCallbackRegister")
def register_exception_callback(fn: Object) -> None:
    """Have ``fn(info)`` called besides that of ``set_exception_info_callback``; again it changes nothing.

    Refuses: 107000 NULL
    Basis: S; C for when it is called
    """
    _set(identity_of(_not_null(fn)), fn)


@acl.call("aclrtExceptionInfoCallbackUnregister")
def unregister_exception_callback(fn: Object) -> None:
    """Have a function called no more; one that is not registered changes nothing.

    Refuses: 107000 NULL
    Basis: S
    """
    _set(identity_of(_not_null(fn)), None)


def _not_null(fn: Any) -> Any:
    if not callable(fn):
        raise Code.RT_PARAM_INVALID.refusal("the callback is NULL", "pass a function")
    return fn


def _set(key: object, fn: Any) -> None:
    if fn is None:
        failure_callbacks.callbacks.pop(key, None)
    else:
        failure_callbacks.callbacks[key] = lambda stream, error: _call_back(key, fn, stream, error)


def _getter(name: str, summary: str, of: Callable[[_Info], int], choice: str = "another `info`") -> None:
    def get(info: Address) -> int:
        return of(_of(info))

    get.__doc__ = f"""Return {summary} (facts/acl 2.10).

    Gives: bare int, 0 for another `info`
    Basis: S, D; C for {choice}
    """
    acl.value(f"acl.rt.get_{name}_from_exception_info", failed=lambda _: 0)(get)


_getter("task_id", "the number of the operation in its stream", lambda info: info.task)
_getter("stream_id", "what ``stream_get_id`` gives for the stream", lambda info: info.stream)
_getter(
    "thread_id",
    "the thread that synchronized, as the system numbers it",
    lambda info: info.thread,
    "which thread it is",
)
_getter("device_id", "the device of the stream", lambda info: info.device)
_getter(
    "error_code", "the code of the failure, which the synchronization returns too", lambda info: info.code
)


def _of(info: int) -> _Info:
    record = _infos.get(info)
    if record is None:
        raise Code.INVALID_PARAM.refusal(
            f"{info:#x} is not a failure that is being told",
            "pass what acl.rt.set_exception_info_callback's function was called with, before it returns",
        )
    return record


def _call_back(key: object, fn: Callable[[int], Any], stream: AclStream, error: Error) -> None:
    number = next(_numbers)
    _infos[number] = _Info(
        code=int(FAULTS[error.fault]),
        task=error.operation or 0,
        stream=stream.neutral.id,
        thread=threading.get_native_id(),
        device=stream.context.number,
    )
    try:
        fn(number)
    except BaseException as raised:  # noqa: BLE001 - the failure is returned, whatever the callback raises
        swallow(
            raised,
            "the exception callback",
            f"it was told of operation {error.operation} of {stream}, and raised",
            "catch in it what may be raised there, and set it again with acl.rt.set_exception_info_callback: it is "
            "called no more",
        )
        failure_callbacks.callbacks.pop(key, None)
    finally:
        del _infos[number]
