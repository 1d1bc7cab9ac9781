"""Functions of modules that stand above their caller and import it; the first call of one imports its module."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from peerlane.support.system_limits import out_of_resources


def imported(module: str) -> Any:
    """Return a module, imported at the first call.

    Raises OutOfMemory: ``OUT_OF_RESOURCES``: this process has no file descriptor left to read it.
    """
    with out_of_resources(f"{module} cannot be loaded"):
        return import_module(module)


class Late:
    """Stands for a module, named and not imported."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(imported(self._module), name)
        setattr(self, name, attribute)
        return attribute
