"""What the programs of this folder have in common: their names of devices, and how they are run.

The name of torch's device is that of the accelerator, so the programs run as they are on a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

if torch.accelerator.current_accelerator() is None:
    import peerlane.torch  # noqa: F401 - it registers the device

KIND = torch.accelerator.current_accelerator().type
FIRST, OTHER = f"{KIND}:0", f"{KIND}:1"
PROGRAMS: dict[str, Callable[[bool], None]] = {}


def program(function: Callable[[bool], None]) -> Callable[[bool], None]:
    PROGRAMS[function.__name__] = function
    return function


def current(device: str = FIRST) -> torch.Stream:
    return torch.accelerator.current_stream(torch.device(device))


def side(device: str = FIRST) -> torch.Stream:
    return torch.Stream(device=device)


def pinned(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).pin_memory()


def run_chosen() -> None:
    """Run the programs that the command line names, or all of them."""
    torch.manual_seed(1)
    for name in sys.argv[2:] or PROGRAMS:
        PROGRAMS[name](sys.argv[1] == "racy")
        for device in (FIRST, OTHER):
            torch.accelerator.synchronize(torch.device(device))
