"""What the runtime answers without a device: versions, names of codes, the last error, and the driver's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peerlane.dialects.cuda.devices import look_up
from peerlane.dialects.cuda.runtime.table import Runtime, call
from peerlane.dialects.cuda.state import gpu
from peerlane.dialects.gpu.vendor import Reason
from peerlane.support.libraries import binding

_PER_THREAD = 2  # cudaEnablePerThreadDefaultStream
_UNKNOWN = "unrecognized error code"


@call
def cudaGetDriverEntryPointByVersion(symbol: Any, cudaVersion: int, flags: int) -> tuple[int, int]:
    return look_up(symbol, cudaVersion, flags or _flags_of_caller())


def entry_point_of(version: int) -> Callable[[Any, int], tuple[int, int]]:
    """Return the body of the lookup that takes the version of the runtime."""

    def look_up_own(symbol: Any, flags: int) -> tuple[int, int]:
        return look_up(symbol, version, flags or _flags_of_caller())

    return look_up_own


def _flags_of_caller() -> int:
    """Return what 0 means: in the variant for threads the functions for their default streams."""
    return _PER_THREAD if gpu.streams.meaning(0) else 0


@call
def cudaGetExportTable(ppExportTable: int, pExportTableId: Any) -> None:
    raise gpu.vendor.refusal(
        Reason.UNSUPPORTED, "the tables are private to the vendor's libraries", "do without them"
    )


def version_of(header: str) -> int:
    """Return the version of a runtime as it tells it."""
    major, minor, *_ = binding(header)["version"]
    return int(1000 * major + 10 * minor)


def plain(runtime: Runtime) -> dict[str, Callable[..., Any]]:
    """Return the functions whose result is not a code, or is one that no failure made."""
    numbers = binding(runtime.header)
    names = {number: name for name, number in numbers["enums"]["cudaError_t"].items()}

    def text(error: int) -> str:
        """Return words of our own: the name of the code, in small letters."""
        name = names.get(error, "").removeprefix("cudaError").removeprefix("cuda")
        return "".join(f" {each.lower()}" if each.isupper() else each for each in name).strip() or _UNKNOWN

    return {
        "cudaGetLastError": runtime.take_last_error,
        "cudaPeekAtLastError": runtime.last_error,
        "cudaGetErrorName": lambda error: names.get(error, _UNKNOWN),
        "cudaGetErrorString": text,
        "cudaRuntimeGetVersion": lambda: (version_of(runtime.header), 0),
    }
