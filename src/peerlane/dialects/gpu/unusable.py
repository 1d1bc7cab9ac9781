"""Contexts that failed work has made unusable: all their later calls have its code, until they end."""

from __future__ import annotations

from peerlane.backend import host
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects._shared.machine import Context
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
                for error, number, *_ in host.unreported_failures():
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
        """Return the refusal for an error that makes a context unusable; else the error.

        It is an error of queued work, or of the work of the call itself; a call that is refused before its work has
        another code than ``ILLEGAL_ADDRESS``.
        """
        vendor, failed = self._machine.vendor, error.failed_operation
        code = vendor.code(Reason.ILLEGAL_ADDRESS)
        if error.fault not in vendor.sticky or (failed is None and vendor.code(error.fault) != code):
            return error
        if failed is not None:
            self._note(error, failed.stream)
        else:
            self._end_use(self._machine.current(), error)
        cause, remedy = vendor.explain(error)
        return Refusal(code, cause, remedy)

    def _note(self, error: Error, number: int) -> AnyStream | EndingStream | None:
        """Note what an error of a stream, by its number of the core, made unusable; return the stream."""
        machine = self._machine
        stream = self._streams.with_queue(number) if error.fault in machine.vendor.sticky else None
        if stream is not None:
            self._end_use(stream.context, error)
        return stream

    def _end_use(self, context: Context | None, error: Error) -> None:
        """Make a context unusable for an error, if it has not ended."""
        if context is not None and context.is_live:
            self._machine.unusable.setdefault(context, str(error))
            context.native.mark_unusable()
            host.forget_c_threads()
