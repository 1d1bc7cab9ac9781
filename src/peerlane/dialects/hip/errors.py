"""``hip``: error codes, their names, and the last one (facts/hip 0.10, 2)."""

from __future__ import annotations

from typing import Any

from peerlane.dialects.hip.binding.arguments import shape_of
from peerlane.dialects.hip.binding.convention import SUCCESS, hipError_t
from peerlane.dialects.hip.binding.enums import enumeration
from peerlane.dialects.hip.binding.results import text
from peerlane.dialects.hip.code_texts import texts_of
from peerlane.dialects.hip.log import log
from peerlane.dialects.hip.state import calls

_TEXTS = texts_of(
    {name: dict(enumeration(name).__members__.items()) for name in ("hipError_t", "hiprtcResult")}
)


def _name(error: Any) -> object:
    return text(hipError_t(int(error)).name)


def _words(error: Any) -> object:
    return text(_TEXTS["hipGetErrorString"](hipError_t(int(error))))


@calls.call("hipGetErrorName", keeps_last=True, needs_device=False)
def hipGetErrorName(hip_error: Any) -> object:
    """Return the name of a code; the first element is hipSuccess (facts/hip 1.3).

    Basis: S
    """
    return _name(hip_error)


@calls.call("hipGetErrorString", keeps_last=True, needs_device=False)
def hipGetErrorString(hipError: Any) -> object:
    """Return the meaning of a code, in words; ``peerlane.dialects.hip.explain()`` explains failed calls.

    Basis: S
    """
    return _words(hipError)


@calls.call("hipDrvGetErrorName", keeps_last=True, needs_device=False)
def hipDrvGetErrorName(hipError: Any) -> object:
    """Return the name of a code.

    Basis: S
    """
    return _name(hipError)


@calls.call("hipDrvGetErrorString", keeps_last=True, needs_device=False)
def hipDrvGetErrorString(hipError: Any) -> object:
    """Return the meaning of a code, in words.

    Basis: S
    """
    return _words(hipError)


def _serve_last(name: str, doc: str, attribute: str, *, take: bool) -> None:
    bind = shape_of(name).bind

    # The code is the answer itself, not an output behind a success.
    def last(*args: Any, **keywords: Any) -> Any:
        bind(args, keywords)
        code = getattr(calls.last, attribute)
        if take:
            setattr(calls.last, attribute, SUCCESS)
        return (code,)

    def body() -> None:
        pass

    body.__doc__ = doc
    body.__module__ = __name__
    calls.serve(name, last, calls.document(name, body), signature=shape_of(name).signature)


_serve_last(
    "hipGetLastError",
    """Return the last real error of this thread and forget it; success and hipErrorNotReady do not change it.

    Before HIP 7.0 (``PEERLANE_HIP_VERSION=6.4``) it is the code of the newest call (facts/hip 0.10).

    Basis: S
    """,
    "code",
    take=True,
)
_serve_last(
    "hipPeekAtLastError",
    """Return what hipGetLastError would, and keep it.

    Basis: S
    """,
    "code",
    take=False,
)
_serve_last(
    "hipExtGetLastError",
    """Return the code of this thread's newest call, and forget it (facts/hip 0.10).

    Basis: S
    """,
    "newest",
    take=True,
)


@calls.call("hipExtSetLoggingParams")
def hipExtSetLoggingParams(log_level: int, log_size: int, log_mask: int) -> None:
    """Set what hipExtEnableLogging writes: failures from level 1 on, each call from level 3 on if the mask has bit 0.

    ``log_size`` changes nothing, as the log goes to stderr.

    Basis: S; C for what the log says
    """
    log.choose(log_level, log_mask)


@calls.call("hipExtEnableLogging")
def hipExtEnableLogging() -> None:
    """Write to stderr from now on, in all threads, what hipExtSetLoggingParams set; nothing before that call.

    Basis: S
    """
    log.begin()


@calls.call("hipExtDisableLogging")
def hipExtDisableLogging() -> None:
    """Write nothing to stderr from now on, whatever ``AMD_LOG_LEVEL`` says.

    Basis: S
    """
    log.end()
