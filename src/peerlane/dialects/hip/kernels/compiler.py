"""``hiprtc``: the run-time compiler takes programs and compiles none, as virtual devices run no kernels."""

from __future__ import annotations

import ctypes
import itertools
from typing import Annotated, Any

from peerlane.diagnostics.memory.addresses import is_mapped
from peerlane.dialects._shared import checks
from peerlane.dialects._shared.call import Check, Refusal
from peerlane.dialects.hip.binding.convention import hiprtcResult
from peerlane.dialects.hip.binding.results import handle, text
from peerlane.dialects.hip.state import calls

_VERSION = 9, 0  # constants of the vendor's code
_INVALID_INPUT = hiprtcResult["HIPRTC_ERROR_INVALID_INPUT"]
_numbers = itertools.count(1 << 12, 8)  # handles of programs
_programs: set[int] = set()


@calls.call("hiprtcGetErrorString", keeps_last=True, needs_device=False)
def hiprtcGetErrorString(result: Any) -> object:
    """Return the name of a result.

    Gives: CStr
    Basis: D
    """
    return text(result.name)


@calls.call("hiprtcVersion", keeps_last=True, needs_device=False)
def hiprtcVersion() -> tuple[int, int]:
    """Return the version of the compiler's interface, as the vendor's code has it.

    Gives: 9, 0
    Basis: D
    """
    return _VERSION


def _program(number: int) -> int:
    if number not in _programs:
        raise Refusal(
            hiprtcResult["HIPRTC_ERROR_INVALID_PROGRAM"],
            f"{number:#x} is not a program, or it was destroyed",
            "pass what hiprtcCreateProgram returned",
        )
    return number


_Program = Annotated[int, Check(lambda name: _program)]


def _refuse_null(name: str, value: Any) -> Any:
    if value is None or value == 0:
        raise Refusal(_INVALID_INPUT, f"{name} is NULL", f"pass what the call needs for {name}")
    return value


_NotNull = Annotated[Any, checks.check(_refuse_null)]


@calls.call("hiprtcCreateProgram", keeps_last=True, needs_device=False)
def hiprtcCreateProgram(src: _NotNull, name: Any, numHeaders: int, headers: Any, includeNames: Any) -> Any:
    """Take a program, which hiprtcCompileProgram refuses to compile.

    Gives: program
    Refuses: HIPRTC_ERROR_INVALID_INPUT NULL, a negative number of headers
    Basis: D; C for a source that is NULL
    """
    if numHeaders < 0 or (numHeaders and not (int(headers) and int(includeNames))):
        raise Refusal(
            _INVALID_INPUT,
            f"numHeaders is {numHeaders}, and headers or includeNames may be NULL",
            "pass as many headers, with their names, or 0",
        )
    number = next(_numbers)
    _programs.add(number)
    return handle("_hiprtcProgram", number)


@calls.call("hiprtcAddNameExpression", keeps_last=True, needs_device=False)
def hiprtcAddNameExpression(prog: _Program, name_expression: _NotNull) -> None:
    """Take a name whose lowered form the program would have.

    Refuses: HIPRTC_ERROR_INVALID_INPUT NULL; HIPRTC_ERROR_INVALID_PROGRAM no program
    Basis: D; C for no program
    """


@calls.call("hiprtcDestroyProgram", keeps_last=True, needs_device=False)
def hiprtcDestroyProgram(prog: _NotNull) -> None:
    """Destroy the program whose handle lies at an address.

    Refuses: as `hiprtcAddNameExpression`
    Basis: D; C for no program
    """
    number = ctypes.c_uint64.from_address(prog).value if is_mapped(prog) else 0
    _programs.remove(_program(number))
