"""Contexts that failed work has made unusable: all their later calls have its code, until they end."""

from __future__ import annotations

from peerlane.backend import host
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.streams import AnyStream, EndingStream, Streams
from peerlane.dialects.gpu.vendor import Reason
from peerlane.errors import Error


class Unusable:
    """The contexts of a vendor's program that cannot be used any more.

    The vendor says which failures of queued work do that: ``Vendor.sticky``.
    """

    def __init__(self, machine: GpuMachine, streams: Streams) -> None:
        self._machine, self._streams = machine, streams
        self._seen = 0

    def refuse(self) -> None:
        """Refuse a call of the current context if its work has failed, whether or not the program waited for it."""
        machine = self._machine
        if host.failures() != self._seen:
            with machine.lock:
                now = host.failures()
                for error, number, *_ in host.untold():
                    stream = self._note(error, number)
                    if stream is not None:
                        host.take_failure(stream.queue)
                self._seen = now
        if machine.unusable:
            machine.refuse_unusable(machine.current())

    def refuse_news(self) -> None:
        """Do what :meth:`refuse` does if work has failed since: a call that waited for it notices that."""
        if host.failures() != self._seen:
            self.refuse()

    def reported(self, error: Error) -> Error | Refusal:
        """Return the refusal for an error of queued work that makes its context unusable; else the error."""
        failed, sticky = error.failed_operation, self._machine.vendor.sticky
        if failed is None or error.fault not in sticky:
            return error
        self._note(error, failed.stream)
        cause, remedy = self._machine.vendor.explain(error)
        return Refusal(self._machine.vendor.code(Reason.ILLEGAL_ADDRESS), cause, remedy)

    def _note(self, error: Error, number: int) -> AnyStream | EndingStream | None:
        """Note what an error of a stream, by its number of the core, made unusable; return the stream."""
        machine = self._machine
        stream = self._streams.with_queue(number) if error.fault in machine.vendor.sticky else None
        if stream is not None and stream.context.is_live:
            machine.unusable.setdefault(stream.context, str(error))
            host.forget_c_threads()
        return stream
