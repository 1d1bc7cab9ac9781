"""Words of memory that streams write and wait for."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from peerlane import Device, Kind, Stream
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.machine import GpuMachine, HostMemory
from peerlane.dialects.gpu.peers import Peers
from peerlane.dialects.gpu.regions import Regions
from peerlane.dialects.gpu.streams import AnyStream, Streams
from peerlane.memory import raw

HALF_WORD, WORD = 4, 8  # bytes
MOST_OPERATIONS = 256  # of a batch, of both vendors
_COMPARISONS = ("geq", "eq", "and", "nor")  # by the number that both vendors use


class WordOperation(NamedTuple):
    """A wait for a word of memory, or a write of one."""

    is_wait: bool
    address: int
    value: int
    flags: int  #: of a wait, its comparison
    mask: int
    width: int  #: bytes of the word


class WordBatch:
    """Waits for words and writes of them, in their order."""

    __slots__ = ("_values", "words")

    kind = "BATCH_MEM_OP"

    def __init__(self, values: Values, words: tuple[WordOperation, ...]) -> None:
        self._values, self.words = values, words

    def prepared(self, device: Device) -> Callable[[AnyStream], None]:
        """Check all words, for a device; return what queues the operations."""
        steps = [self._values.step(device, each) for each in self.words]

        def queue(stream: AnyStream) -> None:
            for step in steps:
                step(stream)

        return queue


class Values:
    """The words that streams of a vendor's program write and wait for."""

    def __init__(self, machine: GpuMachine, streams: Streams, regions: Regions, peers: Peers) -> None:
        self._machine, self._streams, self._regions, self._peers = machine, streams, regions, peers

    def wait(self, stream: int, address: int, value: int, flags: int, mask: int, width: int) -> None:
        """Let later operations of a stream wait for a word; see :meth:`_waiting`.  NULL is refused first."""
        self._refuse_null(address)
        self.submit(self._streams.of(stream), WordOperation(True, address, value, flags, mask, width))

    def write(self, stream: int, address: int, value: int, flags: int, width: int) -> None:
        """Store a word when all earlier operations of a stream are over; see :meth:`_writing`."""
        self._refuse_null(address)
        self.submit(self._streams.of(stream), WordOperation(False, address, value, flags, 0, width))

    def submit(self, stream: AnyStream, *words: WordOperation) -> None:
        """Queue waits and writes on a stream, or capture them; if one is refused, none is queued."""
        if stream.capture is not None:
            stream.capture.add(stream, WordBatch(self, words))
            return
        for queue in [self.step(stream, each) for each in words]:
            queue(stream)

    def step(self, by: AnyStream | Device, word: WordOperation) -> Callable[[AnyStream], None]:
        """Check a wait or a write, as :meth:`wait` and :meth:`write` do; return what queues it.

        ``by`` is what uses the word, as of `Peers.refuse_out_of_reach`.
        """
        _, address, value, flags, mask, width = word
        if word.is_wait:
            return self._waiting(by, address, value, flags, mask, width)
        return self._writing(by, address, value, flags, width)

    def _waiting(
        self, by: AnyStream | Device, address: int, value: int, flags: int, mask: int, width: int
    ) -> Callable[[AnyStream], None]:
        """Return the operation by which a stream waits until a comparison of a masked word with a value holds.

        ``by``: what waits.
        ``flags``: the comparison: 0 at least, 1 equal, 2 a common bit, 3 a bit of the mask that neither has.
        ``width``: bytes of the word.
        Raises Refusal: ``INVALID_VALUE`` NULL, not aligned, memory that the vendor does not know or that the device
            has no access to, flags.
        """
        registered = self._checked(by, address, width, "r")
        if flags >= len(_COMPARISONS):
            raise self._machine.vendor.invalid(
                f"flags are {flags:#x}", "pass {wait_for_at_least} (0), Eq (1), And (2) or Nor (3)"
            )
        compare, is_pageable = _COMPARISONS[flags], registered is not None

        def wait(stream: AnyStream) -> None:
            neutral = _user(stream, registered)
            raw.wait_value(
                address, value, stream=neutral, compare=compare, mask=mask, width=width, pageable=is_pageable
            )

        return wait

    def _writing(
        self, by: AnyStream | Device, address: int, value: int, flags: int, width: int
    ) -> Callable[[AnyStream], None]:
        """Return the operation that stores a word on a stream; refused as :meth:`_waiting`, and for any flag."""
        registered = self._checked(by, address, width, "rw")
        if flags:
            raise self._machine.vendor.invalid(f"flags are {flags:#x}; they are reserved", "pass 0")
        return lambda stream: raw.write_value(address, value, stream=_user(stream, registered), width=width)

    def _checked(self, by: AnyStream | Device, address: int, width: int, right: str) -> HostMemory | None:
        """Refuse an unusable word, for a right; return the registration around it, None for allocated memory."""
        self._refuse_null(address)
        if address % width:
            raise self._unusable(f"{address:#x} is not a multiple of {width}")
        if raw.locate(address).kind is not Kind.PAGEABLE:
            self._peers.refuse_out_of_reach(by, ("addr", self._regions.at(address), right))
            return None
        registered = self._machine.registrations.around(address, width)
        if registered is None:
            name, described = self._machine.vendor.name, self._machine.describe(address)
            raise self._unusable(f"the address is {described}, which {name} does not know")
        return registered

    def _refuse_null(self, address: int) -> None:
        if not address:
            raise self._unusable("the address is NULL")

    def _unusable(self, cause: str) -> Refusal:
        return self._machine.vendor.invalid(
            cause, "pass an aligned word of {malloc}, {malloc_host} or {register}"
        )


def _user(stream: AnyStream, registered: HostMemory | None) -> Stream:
    """Return the neutral stream; the end of a registration waits for its device from now on."""
    if registered is not None:
        registered.users.add(stream.context.device.ordinal)
    return stream.neutral
