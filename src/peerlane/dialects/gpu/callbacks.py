"""Functions of the host in the order of a stream."""

from __future__ import annotations

from peerlane.diagnostics.memory.addresses import is_code
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.streams import Streams
from peerlane.streams.callbacks import CFunction


class Callbacks:
    """The host functions of a vendor's program; they run on one thread of their own, one after the other."""

    def __init__(self, machine: GpuMachine, streams: Streams) -> None:
        self._machine, self._streams = machine, streams

    def refuse_no_code(self, name: str, address: int, remedy: str = "pass a function") -> None:
        """Refuse NULL and an address where no code is."""
        if not is_code(address):
            cause = f"{name} is {address:#x}, where no code is" if address else f"{name} is NULL"
            raise self._machine.vendor.invalid(cause, remedy)

    def launch(self, stream: int, code: int, *words: int, kept: object = None) -> None:
        """Call code at an address with words when all earlier operations are over; later ones wait for its return.

        The stream is a handle.  ``kept`` is what must live until then; None if that is the program.
        """
        neutral = self._streams.of(stream).neutral
        if kept is None:
            neutral.launch_callback(CFunction(code), *words)
        else:
            neutral.launch_callback(_call, kept, CFunction(code), *words)


def _call(_kept: object, function: CFunction, *words: int) -> None:
    function(*words)
