"""Functions of the host in the order of a stream."""

from __future__ import annotations

from collections.abc import Callable

from peerlane import Device
from peerlane.diagnostics.memory.addresses import is_code
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.streams import AnyStream, Streams
from peerlane.streams.callbacks import CFunction


class HostCall:
    """A call of a function of the host, as an operation of a graph."""

    __slots__ = ("function", "kept", "words")

    kind = "HOST"

    def __init__(self, function: Callable[..., object], words: tuple[int, ...], kept: object = None) -> None:
        #: ``words``: its arguments.
        #: ``kept``: what must live as long as the operation; None if that is the program.
        self.function, self.words, self.kept = function, words, kept

    def prepared(self, _: Device) -> Callable[[AnyStream], None]:
        """Return what queues the call."""
        return self._queue

    def _queue(self, stream: AnyStream) -> None:
        if self.kept is None:
            stream.neutral.launch_callback(self.function, *self.words)
        else:
            stream.neutral.launch_callback(_call, self.kept, self.function, *self.words)


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
        self.submit(self._streams.of(stream), HostCall(CFunction(code), words, kept))

    @staticmethod
    def submit(stream: AnyStream, call: HostCall) -> None:
        """Queue a call on a stream, or capture it."""
        if stream.capture is not None:
            stream.capture.add(stream, call)
        else:
            call.prepared(stream.context.device)(stream)


def _call(_kept: object, function: Callable[..., object], *words: int) -> None:
    function(*words)
