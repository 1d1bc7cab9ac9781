"""Objects of the program that graphs keep alive."""

from __future__ import annotations

import threading
from collections.abc import Callable

from peerlane.dialects._shared.machine import Context, Resource
from peerlane.dialects.gpu.machine import GpuMachine


class UserObject(Resource):
    """An object of the program, with a count of references, and a function that ends it without any."""

    __slots__ = ("_destroy", "references")

    name = "user object"
    is_counted = False

    def __init__(self, context: Context, destroy: Callable[[], object], references: int) -> None:
        super().__init__(context)
        self._destroy, self.references = destroy, references

    @property
    def is_permanent(self) -> bool:
        """Whether a graph ends it, as the program has no reference."""
        return True

    def retain(self, count: int) -> None:
        """Add references."""
        self.references += count

    def release(self, machine: GpuMachine, count: int, when: Callable[[], object] | None = None) -> None:
        """Drop references; without any the function is called, on a thread of its own, after ``when`` returned."""
        self.references -= count
        if self.references <= 0:
            machine.drop(self, "its last release")
            threading.Thread(target=self._end, args=(when,), name="peerlane user object", daemon=True).start()

    def _end(self, when: Callable[[], object] | None) -> None:
        try:
            if when is not None:
                when()
        finally:
            self._destroy()
