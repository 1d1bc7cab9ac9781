"""What a program lacked that an error ended: a wheel of a vendor, or an option of `peerlane run`."""

from __future__ import annotations

import os
import sys

from peerlane.dialects._shared.hook import TORCH_DEVICE

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from types import TracebackType


def text_for(error: BaseException, trace: TracebackType | None) -> str:
    """Return the line below the traceback of an error; empty if the program lacked nothing that is known."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        if wheels := _wheels_of(error.name):
            return (
                f"peerlane: {error.name!r} is the vendor's own module, and peerlane serves the libraries "
                f"that it loads; pip install {' '.join(wheels)}"
            )
        if left_out := _left_out(error.name):
            return f"peerlane: {error.name!r} is a module of the dialect {left_out}; add --dialect {left_out}"
    if _is_of_torch_without_cuda(trace):
        return "peerlane: this build of torch has no CUDA; with --torch-cuda, virtual devices are its device cuda"
    return ""


def _is_of_torch_without_cuda(trace: TracebackType | None) -> bool:
    """Return whether code of ``torch.cuda`` raised in a build of torch for the processor without a device."""
    if trace is None or TORCH_DEVICE in os.environ:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    module = f"{trace.tb_frame.f_globals.get('__name__', '')}."
    return module.startswith("torch.cuda.") and sys.modules["torch"].version.cuda is None


def _left_out(name: str) -> str:
    """Return the dialect that serves a module and is not installed, if there is one."""
    from peerlane.dialects import installed, manifest_of, registered

    left_out = (dialect for dialect in registered() if dialect not in installed())
    return next((dialect for dialect in left_out if name in manifest_of(dialect).modules), "")


def _wheels_of(name: str) -> list[str]:
    """Return the vendors' wheels that bring a module, or modules in it, which no dialect serves."""
    from peerlane.dialects import manifest_of, registered

    return [
        wheel
        for dialect in map(manifest_of, registered())
        for module, wheel in dialect.packages.items()
        if wheel and not dialect.modules and f"{module}.".startswith(f"{name}.")
    ]
