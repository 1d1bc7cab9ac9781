"""Functions of modules that stand above their caller and import it; the first call of one imports its module."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Late:
    """Stands for a module, named and not imported."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(import_module(self._module), name)
        setattr(self, name, found)
        return found
