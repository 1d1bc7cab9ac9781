"""``hip``: link states take code for hipLinkComplete, which virtual devices refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peerlane.dialects._shared.machine import Resource
from peerlane.dialects.gpu.vendor import Reason
from peerlane.dialects.hip.binding.convention import invalid, refusal
from peerlane.dialects.hip.binding.enums import enumeration
from peerlane.dialects.hip.binding.results import handle
from peerlane.dialects.hip.state import calls, machine

_LINKED = "hipJitInputSpirv"


def _no_option() -> Any:
    """Return the binding's output for the options, which are an input of the vendor's call."""
    return enumeration("hipJitOption")(0)


class _LinkState(Resource):
    """The object that code is added to."""

    __slots__ = ()

    name = "link state"
    is_counted = False


@calls.call("hipLinkCreate")
def hipLinkCreate(numOptions: int, optionValues: Any) -> tuple[Any, Any]:
    """Make a link state.

    Gives: hipJitOption(0), link state
    Refuses: hipErrorInvalidValue options
    Basis: D; C that no option is taken
    """
    if numOptions:
        raise invalid(f"numOptions is {numOptions}", "pass 0")
    return _no_option(), handle("ihipLinkState_t", machine.issue(_LinkState(machine.context())))


@calls.call("hipLinkDestroy")
def hipLinkDestroy(state: int) -> None:
    """End a link state.

    Refuses: hipErrorInvalidHandle NULL, not a link state
    Basis: D
    """
    machine.remove(state, _LinkState, Reason.INVALID_HANDLE, "hipLinkDestroy")


def _refuse_addition(state: int, type: Any) -> None:
    if state and type.name != _LINKED:
        raise invalid(f"code of {type.name} is given; only {_LINKED} is linked", f"pass {_LINKED}")
    machine.resource(state, _LinkState, Reason.INVALID_HANDLE)


@calls.call("hipLinkAddFile")
def hipLinkAddFile(state: int, type: Any, path: str | None, numOptions: int, optionValues: Any) -> Any:
    """Add the code in a file.

    Gives: hipJitOption(0)
    Refuses: hipErrorInvalidHandle NULL, not a link state; hipErrorInvalidValue another type than SPIR-V;
        hipErrorInvalidConfiguration no file of that name
    Basis: D
    """
    _refuse_addition(state, type)
    if not path or not Path(path).is_file():
        raise refusal("hipErrorInvalidConfiguration", f"there is no file {path!r}", "correct the name")
    return _no_option()


@calls.call("hipLinkAddData")
def hipLinkAddData(
    state: int, type: Any, data: int, size: int, name: str | None, numOptions: int, optionValues: Any
) -> Any:
    """Add the code at an address, which is not read.

    Gives: hipJitOption(0)
    Refuses: hipErrorInvalidHandle NULL, not a link state; hipErrorInvalidValue another type than SPIR-V, no code
    Basis: D
    """
    _refuse_addition(state, type)
    if not data or not size:
        raise invalid(f"{size} bytes at {data or 0:#x} are given", "pass code")
    return _no_option()
