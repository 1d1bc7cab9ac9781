"""What the runtime answers without a device: versions, names of codes, the last error, and the driver's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peerlane.dialects.cuda.devices import VERSION, look_up
from peerlane.dialects.cuda.runtime.table import Runtime, call
from peerlane.dialects.cuda.state import gpu
from peerlane.dialects.gpu.vendor import Reason
from peerlane.support.libraries import binding

_UNKNOWN = "unrecognized error code"


@call
def cudaGetDriverEntryPoint(symbol: Any, flags: int) -> tuple[int, int]:
    return look_up(symbol, VERSION, flags)


@call
def cudaGetDriverEntryPointByVersion(symbol: Any, cudaVersion: int, flags: int) -> tuple[int, int]:
    return look_up(symbol, cudaVersion, flags)


@call
def cudaGetExportTable(ppExportTable: int, pExportTableId: Any) -> None:
    raise gpu.vendor.refusal(
        Reason.UNSUPPORTED, "the tables are private to the vendor's libraries", "do without them"
    )


def plain(runtime: Runtime) -> dict[str, Callable[..., Any]]:
    """Return the functions whose result is not a code, or is one that no failure made."""
    numbers = binding(runtime.header)
    names = {number: name for name, number in numbers["enums"]["cudaError_t"].items()}
    major, minor, *_ = numbers["version"]

    def text(error: int) -> str:
        """Return words of our own: the name of the code, in small letters."""
        name = names.get(error, "").removeprefix("cudaError").removeprefix("cuda")
        return "".join(f" {each.lower()}" if each.isupper() else each for each in name).strip() or _UNKNOWN

    return {
        "cudaGetLastError": runtime.take_last_error,
        "cudaPeekAtLastError": runtime.last_error,
        "cudaGetErrorName": lambda error: names.get(error, _UNKNOWN),
        "cudaGetErrorString": text,
        "cudaRuntimeGetVersion": lambda: (1000 * major + 10 * minor, 0),
    }
