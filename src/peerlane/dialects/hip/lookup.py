"""``hip``: functions of ``libamdhip64.so`` by their names, and names of calls by the numbers of profilers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peerlane.dialects.hip.binding import facts
from peerlane.dialects.hip.binding.convention import INVALID_VALUE, Stopped, invalid
from peerlane.dialects.hip.binding.enums import enumeration
from peerlane.dialects.hip.binding.pointers import write
from peerlane.dialects.hip.binding.results import pointer, text
from peerlane.dialects.hip.binding.types import Pointer
from peerlane.dialects.hip.state import calls
from peerlane.support.libraries import address_of

_DEFAULT, _LEGACY, _PER_THREAD = 0, 1, 2  # HIP_GET_PROC_ADDRESS_..., and of hipGetDriverEntryPoint
_PROC_STATUS, _ENTRY_STATUS = "hipDriverProcAddressQueryResult", "hipDriverEntryPointQueryResult"
_SUCCESS, _NO_SYMBOL = 0, 1  # in both
_LATER_STRUCTS = 600  # the version since which two functions have a struct of another layout
_OF_LATER = {
    "hipGetDeviceProperties": "hipGetDevicePropertiesR0600",
    "hipChooseDevice": "hipChooseDeviceR0600",
}


def _find(status: str, symbol: str | None, flags: int, *others: str) -> int:
    """Return the address of the first function that there is; ``others`` are other names of the same one."""
    if not symbol:
        cause = "the name is empty" if symbol is not None else "the name is NULL"
        raise Stopped(INVALID_VALUE, cause, "pass the name of a function, 'hipMalloc'", None, None)
    if flags not in (_DEFAULT, _LEGACY, _PER_THREAD):
        raise Stopped(INVALID_VALUE, f"flags are {flags:#x}; valid are 0, 1 and 2", "pass 0", None, None)
    names = others or ((f"{symbol}_spt",) if flags == _PER_THREAD else ())
    for each in (*names, symbol):
        if address := address_of("libamdhip64.so", each):
            return address
    cause = f"libamdhip64.so has no function {symbol}"
    raise Stopped(INVALID_VALUE, cause, "correct the name", None, enumeration(status)(_NO_SYMBOL))


def _of_version(symbol: str | None, version: int, flags: int) -> tuple[Pointer | None, Any]:
    later = _OF_LATER.get(symbol or "") if version >= _LATER_STRUCTS else None
    others = (later,) if later else ()
    return pointer(_find(_PROC_STATUS, symbol, flags, *others)), enumeration(_PROC_STATUS)(_SUCCESS)


def _entry_point(symbol: str | None, flags: int) -> tuple[Pointer | None, Any]:
    return pointer(_find(_ENTRY_STATUS, symbol, flags)), enumeration(_ENTRY_STATUS)(_SUCCESS)


def _put(target: int, find: Callable[..., tuple[Pointer | None, Any]], *arguments: Any) -> Any:
    """Write a function's address to memory, as calls of 7.2 do."""
    if not target:
        raise invalid("the place of the address is NULL", "pass where 8 bytes may be written")
    try:
        address, status = find(*arguments)
    except Stopped as stopped:
        raise Stopped(stopped.code, str(stopped), stopped.remedy, stopped.outputs[1]) from None
    write(target, int(address or 0).to_bytes(8, "little"))
    return status


@calls.call("hipGetProcAddress")
def hipGetProcAddress(symbol: str | None, hipVersion: int, flags: int) -> tuple[Pointer | None, Any]:
    """Return the address of a function by its name; flag 2 prefers the one of the per-thread stream.

    Of functions whose struct changed with HIP 6 ``hipVersion`` decides which is meant.

    Gives: Pointer, hipDriverProcAddressQueryResult
    Refuses: hipErrorInvalidValue NULL, other flags, a name that is not a function's
    Basis: D
    """
    return _of_version(symbol, hipVersion, flags)


@calls.call("hipGetProcAddress_spt")
def hipGetProcAddress_spt(symbol: str | None, hipVersion: int, flags: int) -> tuple[Pointer | None, Any]:
    """Do what hipGetProcAddress does; flag 0 is as 2.

    Gives: Pointer, hipDriverProcAddressQueryResult
    Refuses: as `hipGetProcAddress`
    Basis: D
    """
    return _of_version(symbol, hipVersion, flags or _PER_THREAD)


@calls.call("hipGetDriverEntryPoint")
def hipGetDriverEntryPoint(symbol: str | None, flags: int) -> tuple[Pointer | None, Any]:
    """Return the address of a function by its name; flags as of hipGetProcAddress.

    Gives: Pointer, hipDriverEntryPointQueryResult
    Refuses: hipErrorInvalidValue NULL, other flags, a name that is not a function's
    Basis: D
    """
    return _entry_point(symbol, flags)


@calls.call("hipGetDriverEntryPoint_spt")
def hipGetDriverEntryPoint_spt(symbol: str | None, flags: int) -> tuple[Pointer | None, Any]:
    """Do what hipGetDriverEntryPoint does; flag 0 is as 2.

    Gives: Pointer, hipDriverEntryPointQueryResult
    Refuses: as `hipGetDriverEntryPoint`
    Basis: D
    """
    return _entry_point(symbol, flags or _PER_THREAD)


@calls.declare_overload("hipGetProcAddress", "earlier")
def _put_proc_address(symbol: str | None, pfn: int, hipVersion: int, flags: int) -> Any:
    return _put(pfn, _of_version, symbol, hipVersion, flags)


@calls.declare_overload("hipGetDriverEntryPoint", "earlier")
def _put_entry_point(symbol: str | None, funcPtr: int, flags: int) -> Any:
    return _put(funcPtr, _entry_point, symbol, flags)


@calls.declare_overload("hipGetDriverEntryPoint_spt", "earlier")
def _put_entry_point_spt(symbol: str | None, funcPtr: int, flags: int) -> Any:
    return _put_entry_point(symbol, funcPtr, flags or _PER_THREAD)


@calls.call("hipApiName", keeps_last=True, needs_device=False)
def hipApiName(id: int) -> object:
    """Return the name of the call with a number of the vendor's profilers; "unknown" for a number that has none.

    Basis: S
    """
    return text(facts()["calls"].get(id, "unknown"))
