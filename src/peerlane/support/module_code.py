"""What runs before and after the code of a module, when a program imports it."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def spec_around(
    fullname: str,
    path: Sequence[str] | None,
    *,
    before: Callable[[], object] = lambda: None,
    after: Callable[[ModuleType], object],
) -> ModuleSpec | None:
    """Return Python's spec of a module, with calls before and after its code; None if there is no such module."""
    spec = PathFinder.find_spec(fullname, path)
    if spec is None or spec.loader is None:
        return None
    execute = spec.loader.exec_module

    def exec_module(module: ModuleType) -> None:
        before()
        execute(module)
        after(module)

    spec.loader.exec_module = exec_module  # type: ignore[method-assign]
    return spec


def call_after(fullname: str, then: Callable[[ModuleType], object]) -> None:
    """Call a function with a module once its code has run, at once if it has already."""
    if module := sys.modules.get(fullname):
        then(module)
    else:
        sys.meta_path.insert(0, _Finder(fullname, then))


class _Finder:
    """Finds one module as Python does."""

    def __init__(self, fullname: str, then: Callable[[ModuleType], object]) -> None:
        self._fullname = fullname
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the module; None for all others."""
        return spec_around(fullname, path, after=self._then) if fullname == self._fullname else None
