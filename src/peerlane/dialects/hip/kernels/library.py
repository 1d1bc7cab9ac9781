"""``hip``: libraries of code, which is read when a kernel is asked for; virtual devices have no kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from peerlane.dialects._shared.machine import Context, Resource
from peerlane.dialects.gpu.vendor import Reason
from peerlane.dialects.hip.binding.convention import invalid, refusal
from peerlane.dialects.hip.binding.enums import enumeration
from peerlane.dialects.hip.binding.results import handle
from peerlane.dialects.hip.kernels.refused import refuse_file, refuse_image
from peerlane.dialects.hip.state import calls, machine


class _Library(Resource):
    """Code at an address, or in a file."""

    __slots__ = ("code",)

    name = "library"
    is_counted = False

    def __init__(self, context: Context, code: int | str) -> None:
        super().__init__(context)
        self.code = code


def _give(code: int | str, options: int) -> tuple[Any, ...]:
    if options:
        raise invalid(f"numJitOptions is {options}", "pass 0")
    number = machine.issue(_Library(machine.context(), code))
    # The binding has outputs for the options, which are inputs of the vendor's call.
    return (
        handle("ihipLibrary_t", number),
        enumeration("hipJitOption")(0),
        enumeration("hipLibraryOption_e")(0),
    )


@calls.call("hipLibraryLoadData")
def hipLibraryLoadData(
    code: int, jitOptionsValues: Any, numJitOptions: int, libraryOptionValues: Any, numLibraryOptions: int
) -> tuple[Any, ...]:
    """Make a library of the code at an address, which is not read yet.

    Gives: library, hipJitOption(0), hipLibraryOption_e(0)
    Refuses: hipErrorInvalidValue NULL, options of the compiler
    Basis: D
    """
    if not code:
        raise invalid("code is NULL", "pass a code object")
    return _give(code, numJitOptions)


@calls.call("hipLibraryLoadFromFile")
def hipLibraryLoadFromFile(
    fileName: str | None,
    jitOptionsValues: Any,
    numJitOptions: int,
    libraryOptionValues: Any,
    numLibraryOptions: int,
) -> tuple[Any, ...]:
    """Make a library of the code in a file, which is not read yet.

    Gives: library, hipJitOption(0), hipLibraryOption_e(0)
    Refuses: hipErrorInvalidValue NULL, no file of that name, options of the compiler
    Basis: D
    """
    if not fileName or not Path(fileName).exists():
        raise invalid(f"there is no file {fileName!r}", "pass the name of a file")
    return _give(fileName, numJitOptions)


@calls.call("hipLibraryUnload")
def hipLibraryUnload(library: int) -> None:
    """End a library.

    Refuses: hipErrorInvalidHandle NULL, not a library
    Basis: D
    """
    machine.remove(library, _Library, Reason.INVALID_HANDLE, "hipLibraryUnload")


def _refuse_code(library: int) -> NoReturn:
    code = machine.resource(library, _Library, Reason.INVALID_VALUE).code
    if isinstance(code, str):
        refuse_file(code)
    else:
        refuse_image("code", code)
    raise refusal("hipErrorNotSupported", "virtual devices run no kernels", "work on the memory with NumPy")


@calls.call("hipLibraryGetKernel")
def hipLibraryGetKernel(library: int, name: str | None) -> Any:
    """Refuse: a library of a virtual device has no kernels.

    Gives: kernel
    Refuses: hipErrorInvalidValue NULL, not a library; hipErrorInvalidImage, hipErrorFileNotFound its code;
        hipErrorNotSupported code that could be some
    Basis: D
    """
    if name is None:
        raise invalid("name is NULL", "pass the name of a kernel")
    _refuse_code(library)


@calls.call("hipLibraryGetKernelCount")
def hipLibraryGetKernelCount(library: int) -> int:
    """Refuse, as hipLibraryGetKernel does.

    Gives: count
    Refuses: as `hipLibraryGetKernel`
    Basis: D
    """
    _refuse_code(library)
