"""``hip``: host functions in stream order (facts/hip 1.3).

They run on one thread of their own, one after the other.
"""

from __future__ import annotations

import ctypes
from typing import Any

from peerlane.dialects.hip.binding.checks import refuse_bits
from peerlane.dialects.hip.binding.convention import SUCCESS, invalid
from peerlane.dialects.hip.binding.pointers import Pointer, address_of
from peerlane.dialects.hip.state import calls, gpu
from peerlane.dialects.hip.streams.stream import streams

_REMEDY = "pass a function of a ctypes type: ctypes.CFUNCTYPE(None, ...)(function)"
_Function: Any = ctypes.CFUNCTYPE(None).__mro__[1]  # of every ctypes function


@calls.call("hipLaunchHostFunc")
def hipLaunchHostFunc(stream: int, fn: Any, userData: int) -> None:
    """Call ``fn(userData)`` when all earlier operations are over; later ones wait for its return.

    ``fn`` is a ctypes function, which is kept, or the address of code.  The program keeps what ``userData`` points
    to.  ctypes prints an error that a Python function raises; it is not a failure of the stream.  A function
    must not wait for its own stream: hipErrorLaunchTimeOut.

    Refuses: hipErrorInvalidValue NULL, no code; hipErrorContextIsDestroyed not a stream
    Basis: D; C for the last two sentences
    """
    address, kept = code_of("fn", fn)
    gpu.callbacks.launch(stream, address, userData, kept=kept)


@calls.call("hipStreamAddCallback")
def hipStreamAddCallback(stream: int, callback: Any, userData: int, flags: int) -> None:
    """Call ``callback(stream, status, userData)`` as hipLaunchHostFunc does, with the handle that was passed.

    The status is hipSuccess: failures are reported where the program waits.

    Refuses: as `hipLaunchHostFunc`; hipErrorInvalidValue flags
    Basis: D
    """
    address, kept = code_of("callback", callback)
    refuse_bits(0, "flags", flags)
    words = streams.meaning(stream), int(SUCCESS), userData
    gpu.callbacks.launch(stream, address, *words, kept=kept)


def code_of(name: str, argument: Any) -> tuple[int, object | None]:
    """Return the address of a function's code, and the object that keeps it there; None if that is the program."""
    function = argument
    if isinstance(argument, Pointer) and isinstance(argument._kept, memoryview):
        function = argument._kept.obj  # hipHostFn_t of a ctypes function: the word that has the address
    if isinstance(function, _Function):
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
        if address:
            return address, function
        raise invalid(f"{name} is NULL", _REMEDY)
    address = address_of(argument)
    gpu.callbacks.refuse_no_code(name, address, _REMEDY)
    return address, None
