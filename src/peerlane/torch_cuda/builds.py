"""Which builds of torch can have ``cuda`` on virtual devices: those without CUDA."""

from __future__ import annotations

from torch import _C
from torch.version import __version__ as _version  # torch is half imported


def refuse_cuda_inside() -> None:
    """Refuse a build whose native library has CUDA.

    Raises
    ------
    RuntimeError
        This build of torch has CUDA itself.
    """
    if hasattr(_C, "_cuda_getDeviceCount"):
        raise RuntimeError(
            f"--torch-cuda needs torch's build for the processor, and torch {_version} has CUDA itself: install "
            "torch 2.13 with +cpu (PyTorch's page 'Get started' has the command), or write the device peerlane into "
            "the program, which works in this build, too (import peerlane.torch)"
        )
