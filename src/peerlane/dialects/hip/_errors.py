"""``hip``: error codes, their names, and the last one (facts/hip 0.10, 2)."""

from __future__ import annotations

from typing import Any

from peerlane.dialects.hip._arguments import shape_of
from peerlane.dialects.hip._convention import SUCCESS, hipError_t
from peerlane.dialects.hip._results import text
from peerlane.dialects.hip._state import calls

# The words of the vendor's runtime for a code; the text of other codes is their name in words.
_WORDS = {
    "hipSuccess": "no error",
    "hipErrorInvalidValue": "invalid argument",
    "hipErrorOutOfMemory": "out of memory",
    "hipErrorNotInitialized": "initialization error",
    "hipErrorDeinitialized": "driver shutting down",
    "hipErrorNoDevice": "no ROCm-capable device is detected",
    "hipErrorInvalidDevice": "invalid device ordinal",
    "hipErrorInvalidContext": "invalid device context",
    "hipErrorMapFailed": "mapping of buffer object failed",
    "hipErrorInvalidHandle": "invalid resource handle",
    "hipErrorNotFound": "named symbol not found",
    "hipErrorNotReady": "device not ready",
    "hipErrorIllegalAddress": "an illegal memory access was encountered",
    "hipErrorLaunchFailure": "unspecified launch failure",
    "hipErrorPeerAccessAlreadyEnabled": "peer access is already enabled",
    "hipErrorPeerAccessNotEnabled": "peer access has not been enabled",
    "hipErrorContextIsDestroyed": "context is destroyed",
    "hipErrorHostMemoryAlreadyRegistered": "part or all of the requested memory range is already mapped",
    "hipErrorHostMemoryNotRegistered": "pointer does not correspond to a registered memory region",
    "hipErrorNotSupported": "operation not supported",
    "hipErrorInvalidDevicePointer": "invalid device pointer",
    "hipErrorUnknown": "unknown error",
}


def _name(error: Any) -> object:
    return text(hipError_t(int(error)).name)


def _words(error: Any) -> object:
    name = hipError_t(int(error)).name
    return text(_WORDS.get(name) or _in_words(name))


def _in_words(name: str) -> str:
    spaced = "".join(f" {each.lower()}" if each.isupper() else each for each in name.removeprefix("hipError"))
    return spaced.strip()


@calls.call("hipGetErrorName", keeps_last=True, needs_device=False)
def hipGetErrorName(hip_error: Any) -> object:
    """Return the name of a code; the first element is hipSuccess (facts/hip 1.3).

    Basis: S
    """
    return _name(hip_error)


@calls.call("hipGetErrorString", keeps_last=True, needs_device=False)
def hipGetErrorString(hipError: Any) -> object:
    """Return the meaning of a code, in words; ``peerlane.dialects.hip.explain()`` explains failed calls.

    Basis: S; C for the words
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

    Basis: S; C for the words
    """
    return _words(hipError)


def _serve_last(name: str, doc: str, attribute: str, *, take: bool) -> None:
    bind = shape_of(name).bind

    # The code is the answer itself, not an output behind a success.
    def last(*args: Any, **given: Any) -> Any:
        bind(args, given)
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
