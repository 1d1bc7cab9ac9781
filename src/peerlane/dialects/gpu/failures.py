"""Messages of the failed calls of a vendor's program; their text is written when the program reads them."""

from __future__ import annotations

import enum
import reprlib

from peerlane.dialects._shared.call import Arguments
from peerlane.dialects._shared.message import Message, Messages
from peerlane.dialects.gpu.machine import GpuMachine


class Failures(Messages):
    """The messages of failed calls, for each thread its own."""

    def __init__(self, machine: GpuMachine) -> None:
        self._machine = machine
        super().__init__(machine.vendor.name.lower(), self._shown, self._layout_of)

    def line(self, call: str, code: int, arguments: Arguments) -> str:
        """Return a call in one line, with its arguments and its code."""
        shown = ", ".join(f"{name}={self._shown(name, value, kind)}" for name, value, kind in arguments)
        return f"{call}({shown}) returned {self._code(call, code)}"

    def _code(self, call: str, code: int) -> str:
        name = self._machine.vendor.code_name(call, code)
        return f"{name} ({code})" if name != str(code) else name

    def _layout_of(self, message: Message) -> str:
        return (
            f"{message.call} returned {self._code(message.call, message.code)}.\n"
            f"    Called with: {message.arguments}\n"
            f"    Cause: {message.cause}.\n"
            f"    Remedy: {message.remedy}."
        )

    def _shown(self, name: str, value: object, is_address: bool | None) -> object:
        if isinstance(value, enum.IntEnum):
            return f"{value.name} ({int(value)})"
        if not isinstance(value, int):
            return reprlib.repr(value)
        if is_address:
            return self._machine.look(value)
        if self._machine.was_issued(value):
            resource = self._machine.resources.get(value)
            return f"{value:#x} (ended)" if resource is None else str(resource)
        return int(value)
