"""``hip``: which arguments of unsupported calls are refused with the vendor's codes: kernels, semaphores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.vendor import Reason
from peerlane.dialects.hip.binding.checks import refuse_null
from peerlane.dialects.hip.binding.convention import invalid, refusal
from peerlane.dialects.hip.binding.pointers import read
from peerlane.dialects.hip.state import calls
from peerlane.dialects.hip.streams.stream import stream_of

#: How code objects begin: an ELF, a bundle of several, a compressed bundle, and SPIR-V.
_MAGICS = (b"\x7fELF", b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB", b"\x03\x02#\x07")
_LONGEST = max(map(len, _MAGICS))


def _no_code(where: str) -> Refusal:
    return refusal("hipErrorInvalidImage", f"{where} does not begin as a code object", "pass a code object")


@calls.refuses("hipModuleLoad")
def refuse_file(fname: str | None) -> None:
    """Refuse a file that is not there, or whose code cannot be a code object."""
    if not fname:
        raise invalid("fname is NULL or empty", "pass the name of a file")
    try:
        with Path(fname).open("rb") as file:
            begins = file.read(_LONGEST)
    except OSError as error:
        raise refusal("hipErrorFileNotFound", f"{fname!r}: {error.strerror}", "correct the name") from None
    if not begins.startswith(_MAGICS):
        raise _no_code(repr(fname))


def refuse_image(name: str, address: int) -> None:
    """Refuse what cannot be a code object; ``name`` is that of the argument."""
    if not address:
        raise invalid(f"{name} is NULL", "pass a code object")
    # Byte by byte: what does not begin so may be shorter than that.
    if not any(all(read(address + at, 1)[0] == each for at, each in enumerate(magic)) for magic in _MAGICS):
        raise _no_code(name)


@calls.refuses("hipModuleLoadDataEx")
@calls.refuses("hipModuleLoadData")
def _refuse_data(image: int) -> None:
    refuse_image("image", image)


@calls.refuses("hipModuleLoadFatBinary")
def _refuse_fat_binary(fatbin: int) -> None:
    refuse_image("fatbin", fatbin)


def _refuse_module(module: int) -> None:
    if not module:
        raise refusal("hipErrorInvalidHandle", "the module is NULL", "pass a module")


def _refuse_name(name: str | None) -> None:
    if not name:
        raise invalid("the name is NULL or empty", "pass a name")


@calls.refuses("hipModuleUnload")
def _refuse_unload(module: int) -> None:
    _refuse_module(module)
    raise refusal("hipErrorNotFound", f"{module:#x} is not a module", "pass a module")


@calls.refuses("hipModuleGetFunctionCount")
def _refuse_count(mod: int) -> None:
    _refuse_unload(mod)


@calls.refuses("hipModuleGetFunction")
def _refuse_function_of_module(module: int, kname: str | None) -> None:
    _refuse_name(kname)
    _refuse_unload(module)


@calls.refuses("hipModuleGetTexRef")
@calls.refuses("hipModuleGetGlobal")
def _refuse_name_of_module(hmod: int, name: str | None) -> None:
    _refuse_name(name)
    _refuse_unload(hmod)


@calls.call("hipFuncSetSharedMemConfig")
def hipFuncSetSharedMemConfig(func: int, config: Any) -> None:
    """Do nothing, as the vendor's: the banks of shared memory cannot be set.

    Refuses: hipErrorInvalidDeviceFunction NULL
    Basis: D
    """
    if not func:
        raise refusal("hipErrorInvalidDeviceFunction", "func is NULL", "pass a kernel")


@calls.refuses("hipSignalExternalSemaphoresAsync")
@calls.refuses("hipWaitExternalSemaphoresAsync")
def _refuse_semaphores(extSemArray: Any, paramsArray: Any, stream: int) -> None:
    refuse_null("extSemArray", extSemArray)
    refuse_null("paramsArray", paramsArray)
    stream_of(stream, Reason.INVALID_VALUE)
