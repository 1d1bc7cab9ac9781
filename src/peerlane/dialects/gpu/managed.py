"""Advice on managed and registered memory, which is kept and changes nothing: the memory stays on the host."""

from __future__ import annotations

import enum
import mmap
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from peerlane import Kind
from peerlane.dialects.gpu.machine import INVALID_DEVICE, GpuMachine
from peerlane.dialects.gpu.regions import CPU, Region, Regions
from peerlane.dialects.gpu.streams import Streams
from peerlane.dialects.gpu.vendor import Reason
from peerlane.errors import Error
from peerlane.memory import raw

# Both vendors' numbers of the streams that managed memory is attached to.
_ATTACH_GLOBAL, _ATTACH_HOST, _ATTACH_SINGLE = 1, 2, 4


class Advice(enum.Enum):
    """The advice that a program can give on memory, and take back."""

    READ_MOSTLY = enum.auto()
    PREFERRED_LOCATION = enum.auto()
    ACCESSED_BY = enum.auto()
    COARSE_GRAIN = enum.auto()


class Span(NamedTuple):
    """Some bytes of memory."""

    address: int
    nbytes: int
    region: Region | None  #: that they lie in; None for ordinary memory of the host

    @property
    def takes_advice(self) -> bool:
        """Whether the memory is managed or registered."""
        return self.region is not None and (self.region.is_managed or self.region.is_registered)


class Piece(NamedTuple):
    """What holds of some bytes of an allocation.

    ``preferred``, ``prefetched``: a device by the node's number, `CPU`, or `INVALID_DEVICE` for none.
    """

    start: int
    end: int
    is_read_mostly: bool = False
    preferred: int = INVALID_DEVICE
    accessed_by: tuple[int, ...] = ()
    prefetched: int = INVALID_DEVICE
    is_coarse: bool = False


class Pieces(list[Piece]):
    """What holds of some bytes, piece by piece, at least one."""

    def common(self, of: Callable[[Piece], int]) -> int:
        """Return the number that all pieces have, `INVALID_DEVICE` if they differ."""
        numbers = {of(piece) for piece in self}
        return numbers.pop() if len(numbers) == 1 else INVALID_DEVICE

    @property
    def is_read_mostly(self) -> bool:
        """Whether all are mostly read."""
        return all(piece.is_read_mostly for piece in self)

    @property
    def accessed_by(self) -> list[int]:
        """The devices that access all of the pieces, by the node's number, then the host."""
        shared = set(self[0].accessed_by).intersection(*(piece.accessed_by for piece in self))
        return sorted(shared, key=lambda each: (each == CPU, each))


class Managed:
    """The advice of a vendor's program on managed and registered memory."""

    def __init__(self, machine: GpuMachine, streams: Streams, regions: Regions) -> None:
        self._machine, self._streams, self._regions = machine, streams, regions

    def span(self, name: str, address: int, count: int) -> Span:
        """Return so many bytes from an address on; ``INVALID_VALUE`` for NULL, no bytes, more than there are."""
        self._regions.refuse_null(name, address)
        invalid = self._machine.vendor.invalid
        if not count:
            raise invalid("count is 0", "name at least 1 byte")
        region = self._regions.at(address)
        if region is not None and count > region.bytes_from(address):
            raise invalid(
                f"{name} has {region.bytes_from(address):,} bytes from {address:#x} on, and {count:,} are named",
                "name fewer bytes",
            )
        return Span(address, count, region)

    def advisable(self, name: str, address: int, count: int) -> Span:
        """Return what :meth:`span` does; ``INVALID_VALUE`` also for memory that is neither managed nor registered."""
        span = self.span(name, address, count)
        if not span.takes_advice:
            raise self._machine.vendor.invalid(
                f"{name} is neither managed nor registered memory: {self._machine.describe(address)}",
                "pass what {malloc_managed} returned, or what {register} was given",
            )
        return span

    def ordinal_of(self, device: int) -> int:
        """Return the node's number of a device by the program's; `CPU` stays."""
        return CPU if device == CPU else self._machine.device_of(device).ordinal

    def prefetch(self, span: Span, device: int, stream: int) -> None:
        """Note on which device bytes are wanted, or `CPU`; nothing moves.

        Raises Refusal: ``INVALID_DEVICE``; ``UNSUPPORTED`` ordinary memory of the host for a device; the stream.
        """
        ordinal = self.ordinal_of(device)
        if span.region is None and ordinal != CPU:
            raise self._machine.vendor.refusal(
                Reason.UNSUPPORTED,
                f"devices do not reach {self._machine.describe(span.address)}",
                "allocate it with {malloc_managed}",
            )
        self._streams.of(stream)
        if span.takes_advice:
            self._prefetched(span, ordinal)

    def prefetch_each(
        self, ranges: Sequence[tuple[int, int]], ordinal_at: Callable[[int], int], name: str
    ) -> None:
        """Note for each range, an address and its bytes, where it is wanted: a device by the node's number, or `CPU`.

        Nothing is noted if one of them is not memory that was allocated on the host: ``INVALID_VALUE``.
        """
        spans = [self._on_host(f"{name}[{at}]", *each) for at, each in enumerate(ranges)]
        for at, span in enumerate(spans):
            if span.takes_advice:
                self._prefetched(span, ordinal_at(at))

    def discard_each(self, ranges: Sequence[tuple[int, int]], name: str) -> None:
        """Check ranges whose bytes a program needs no more, an address and its bytes each; the bytes stay.

        Raises Refusal: ``UNSUPPORTED`` memory that is not managed; else as :meth:`span`.
        """
        for at, each in enumerate(ranges):
            span = self.span(f"{name}[{at}]", *each)
            if span.region is None or not span.region.is_managed:
                raise self._machine.vendor.refusal(
                    Reason.UNSUPPORTED,
                    f"{name}[{at}] is not managed memory: {self._machine.describe(span.address)}",
                    "pass what {malloc_managed} returned",
                )

    def _on_host(self, name: str, address: int, count: int) -> Span:
        try:
            span = self.span(name, address, count)
        except Error:
            span = Span(address, count, None)
        if span.region is None or span.region.is_device or span.region.is_registered:
            raise self._machine.vendor.invalid(
                f"{name} is not managed memory: {self._machine.describe(address)}",
                "pass what {malloc_managed} returned",
            )
        return span

    def _prefetched(self, span: Span, ordinal: int) -> None:
        self._change(span, lambda piece: piece._replace(prefetched=ordinal))

    def advise(self, span: Span, advice: Advice, device: int, *, is_set: bool) -> None:
        """Note an advice, or take it back; nothing depends on it.  Of `READ_MOSTLY` the device is ignored.

        ``INVALID_DEVICE`` if there is no such device.
        """
        ordinal = CPU if advice is Advice.READ_MOSTLY else self.ordinal_of(device)

        def change(piece: Piece) -> Piece:
            if advice is Advice.READ_MOSTLY:
                return piece._replace(is_read_mostly=is_set)
            if advice is Advice.COARSE_GRAIN:
                return piece._replace(is_coarse=is_set)
            if advice is Advice.PREFERRED_LOCATION:
                return piece._replace(preferred=ordinal if is_set else INVALID_DEVICE)
            others = tuple(each for each in piece.accessed_by if each != ordinal)
            return piece._replace(accessed_by=(*others, ordinal) if is_set else others)

        self._change(span, change)

    def _change(self, span: Span, change: Callable[[Piece], Piece]) -> None:
        """Change what holds of all pages that have some of the bytes."""
        region = span.region
        assert region is not None
        start = span.address // mmap.PAGESIZE * mmap.PAGESIZE
        end = -(-(span.address + span.nbytes) // mmap.PAGESIZE) * mmap.PAGESIZE
        advised = self._machine.advised
        with self._machine.lock:
            pieces = advised.get(region.allocation) or [Piece(region.base, region.end)]
            advised[region.allocation] = [
                change(part) if start <= part.start and part.end <= end else part
                for piece in pieces
                for part in _cut(piece, start, end)
            ]

    def pieces(self, name: str, address: int, count: int) -> Pieces:
        """Return what holds of some bytes; refused as :meth:`advisable`."""
        region = self.advisable(name, address, count).region
        assert region is not None
        with self._machine.lock:
            pieces = self._machine.advised.get(region.allocation) or [Piece(region.base, region.end)]
        return Pieces(piece for piece in pieces if piece.start < address + count and address < piece.end)

    def attach(self, stream: int, address: int, nbytes: int, flags: int) -> None:
        """Check what is asked and do nothing: the host and every device reach all allocated memory.

        ``nbytes`` is 0 or that of the whole allocation.
        """
        invalid, describe = self._machine.vendor.invalid, self._machine.describe
        attachments = _ATTACH_GLOBAL, _ATTACH_HOST, _ATTACH_SINGLE
        if not address or flags not in attachments or (flags == _ATTACH_SINGLE and not stream):
            raise invalid(
                f"dev_ptr is {describe(address)}, flags are {flags}, the stream is {stream:#x}",
                "pass managed memory and {attach_global} (1), Host (2) or, with a stream, Single (4)",
            )
        self._streams.of(stream)
        located = raw.locate(address)
        if located.kind is Kind.PAGEABLE or nbytes not in (0, located.size):
            raise invalid(
                f"{nbytes:,} bytes at {describe(address)} are not an allocation",
                "pass what {malloc_managed} returned, and length 0",
            )


def _cut(piece: Piece, *addresses: int) -> list[Piece]:
    """Return the parts of a piece between addresses that lie in it."""
    ends = [piece.start, *(at for at in addresses if piece.start < at < piece.end), piece.end]
    return [piece._replace(start=start, end=end) for start, end in pairwise(ends)]
