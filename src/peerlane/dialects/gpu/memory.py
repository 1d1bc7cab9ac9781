"""Memory of devices and of the host: allocated, pitched, managed, registered, filled and freed."""

from __future__ import annotations

import os
from collections.abc import Callable

from peerlane import Device, Kind
from peerlane.diagnostics.memory.addresses import is_mapped
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.machine import AllocationRecord, GpuMachine, HostMemory
from peerlane.dialects.gpu.peers import Peers
from peerlane.dialects.gpu.regions import Region, Regions
from peerlane.dialects.gpu.reuse import Reuse
from peerlane.dialects.gpu.streams import AnyStream, Streams
from peerlane.dialects.gpu.vendor import Reason
from peerlane.memory import raw

PITCH = 256  # bytes; rows of both vendors' devices begin at a multiple
_WORD = 1 << 64
_LARGEST_BITS = 62


def host_bytes() -> int:
    """Return how many bytes of memory the host has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Fill:
    """The fill of a box."""

    __slots__ = ("_memory", "dst", "extent", "layout", "value")

    kind = "MEMSET"

    def __init__(
        self, memory: Memory, dst: int, value: int, extent: tuple[int, int, int], layout: tuple[int, int, int]
    ) -> None:
        self._memory, self.dst, self.value = memory, dst, value
        #: ``extent``: bytes of a row, rows of a slice, and slices.
        #: ``layout``: bytes of an element, bytes from one row to the next, and rows from one slice to the next.
        self.extent, self.layout = extent, layout

    def prepared(self, device: Device) -> Callable[[AnyStream], None]:
        """Check the memory; return what fills it."""
        return self._memory.filling(device, self.dst, self.value, self.extent, self.layout)


class Memory:
    """The memory of a vendor's program."""

    def __init__(
        self, machine: GpuMachine, streams: Streams, regions: Regions, peers: Peers, reuse: Reuse
    ) -> None:
        self._machine, self._streams, self._regions = machine, streams, regions
        self._peers, self._reuse = peers, reuse

    def allocate(self, nbytes: int, flags: int = 0) -> int:
        """Allocate memory of this thread's device and return its address.

        Raises Refusal: ``OUT_OF_MEMORY`` more than any address space has; ``DEVICE_RESET``.
        Raises OutOfMemory: more than the device has left.
        """
        self._streams.captures.refuse_unsafe()
        self._refuse_too_large(nbytes)
        machine = self._machine
        context = machine.context()
        address = self._reuse.with_room(context.device, lambda: machine.allocate(context, nbytes, peer=True))
        if address is None:
            raise machine.reset_meanwhile(context.device.ordinal)
        if flags:
            self._note(address, AllocationRecord(flags, context.device.ordinal))
        return address

    def allocate_host(self, nbytes: int, flags: int, *, is_managed: bool = False) -> int:
        """Allocate pinned memory of the host, noting with what flags and which device is current.

        Managed memory is such memory, too: it never moves.
        """
        self._streams.captures.refuse_unsafe()
        self._refuse_too_large(nbytes)
        present = host_bytes()
        if nbytes > present:
            raise self._no_memory(
                f"{nbytes:,} bytes of pinned memory are asked for, and the host has {present:,} in all",
                "ask for less, or for memory of a device",
            )
        context = self._machine.context()
        record = AllocationRecord(flags, context.device.ordinal, is_managed)
        address = self._machine.allocate_pinned(context, nbytes)
        self._note(address, record)
        return address

    def allocate_rows(self, width: int, height: int, depth: int) -> tuple[int, int]:
        """Allocate rows of ``width`` bytes that begin at multiples of `PITCH`; return the address and the pitch."""
        if not (width and height and depth):
            return 0, 0
        pitch = -(-width // PITCH) * PITCH
        nbytes = pitch * height * depth
        if pitch >= _WORD:
            raise self._machine.vendor.invalid(
                f"a row of {width:,} bytes has no pitch", "ask for fewer bytes"
            )
        if nbytes >= _WORD:
            raise self._no_memory(
                f"{height:,} times {depth:,} rows of {pitch:,} bytes are {nbytes:,}", "ask for fewer"
            )
        return self.allocate(nbytes), pitch

    def free(self, address: int, call: str, *, is_for_host: bool = False) -> None:
        """Free the allocation at exactly this address, once its device is idle; memory of pools by the policy.

        NULL does nothing.  Failures of the streams are left for their own synchronization.

        Parameters
        ----------
        address : int
        call : str
            The vendor's name of the call.
        is_for_host : bool
            Whether the call is for pinned memory of the host; the policy decides whether it frees other memory.
        """
        if not address:
            return
        self._streams.captures.refuse_unsafe()
        machine = self._machine
        is_host = machine.owned(address, host=False) is None
        if is_host and machine.owned(address, host=True) is None:
            raise machine.vendor.invalid(
                f"nothing that {machine.vendor.name} allocated begins there: {machine.describe(address)}",
                "free what {malloc} or {malloc_host} returned, once",
            )
        region = self._regions.required_at("ptr", address)
        is_pinned = is_host and not region.is_managed and region.allocation not in machine.pooled
        if machine.vendor.policy.free_kind == "own" and is_pinned != is_for_host:
            raise machine.vendor.invalid(
                f"{call} does not free {'pinned memory of the host' if is_pinned else 'other memory'}: "
                f"{machine.describe(address)}",
                f"call {'{free_host}' if is_pinned else '{free}'}",
            )
        is_pooled = region.allocation in machine.pooled
        if not is_pooled or machine.vendor.policy.free_of_pools == "waits":
            self._streams.await_device(machine.context_of(region.ordinal))
        if address in machine.of_graphs:
            machine.of_graphs[address].free(None, call)
        elif machine.free(address, host=is_host, call=call):
            machine.forget_notes(region.allocation)

    def register(self, address: int, nbytes: int, flags: int) -> None:
        """Let devices use memory of the host; the policy decides about memory that is registered.

        Raises Refusal: ``INVALID_VALUE`` not all of it memory of the host; ``REGISTERED`` the vendor's calls
            allocated it, or it is registered.
        """
        machine = self._machine
        self._streams.captures.refuse_unsafe()
        record = AllocationRecord(flags, machine.context().device.ordinal)
        with machine.lock:
            before = machine.registrations.overlapping(address, nbytes)
            if before is not None and machine.vendor.policy.register_again == "refused":
                raise machine.vendor.refusal(
                    Reason.REGISTERED,
                    f"the {before.size:,} bytes at {before.start:#x} are registered",
                    "register memory once, or end its registration before",
                )
            self._refuse_unregistrable(address, nbytes)
            if not machine.registrations.begins(address):
                machine.registrations.add(HostMemory(address, nbytes, record))

    def _refuse_unregistrable(self, address: int, nbytes: int) -> None:
        vendor = self._machine.vendor
        self._regions.refuse_beyond("hostPtr", address, nbytes)
        last = address + nbytes - 1
        if last >= _WORD:
            raise vendor.invalid(
                f"{nbytes:,} bytes from {address:#x} on reach beyond the address space",
                "pass the size of the memory",
            )
        for end in (address, last):
            if raw.locate(end).kind is not Kind.PAGEABLE:
                raise vendor.refusal(
                    Reason.REGISTERED,
                    f"{vendor.name} allocated it: {self._machine.describe(end)}",
                    f"register memory that {vendor.name} did not allocate",
                )
            if not is_mapped(end):
                raise vendor.invalid(
                    f"{address:#x} to {last:#x} is not all memory of the host",
                    "pass memory that lives, and its size",
                )

    def unregister(self, address: int) -> None:
        """End a registration, once no stream uses it.

        It waits for the streams of the device that was current when it was registered, and of those whose streams
        use words of the memory.  ``NOT_REGISTERED``, or ``WITHIN_REGISTERED`` for an address that is not the first.
        """
        machine = self._machine
        self._streams.captures.refuse_unsafe()
        registered = machine.registrations.around(address)
        if registered is None or registered.start != address:
            around = f"; the {registered.size:,} bytes at {registered.start:#x} are" if registered else ""
            raise machine.vendor.refusal(
                Reason.NOT_REGISTERED if registered is None else Reason.WITHIN_REGISTERED,
                f"{address:#x} is not registered{around}",
                "pass what {register} was given, once",
            )
        self._await_users(registered)
        with machine.lock:
            machine.registrations.remove(address)
            machine.advised.pop(-address, None)
        self._await_users(registered)  # for work that another thread queued since

    def _await_users(self, registered: HostMemory) -> None:
        for ordinal in sorted({registered.record.ordinal, *registered.users}):
            self._streams.await_device(self._machine.context_of(ordinal))

    def fill(self, stream: AnyStream | None, dst: int, value: int, count: int, width: int = 1) -> None:
        """Fill ``count`` elements of ``width`` bytes on a stream, or in the order of the null stream if it is None.

        Without a stream, device memory is filled later if ``dst`` is its start; other memory is filled on return.
        """
        if not count:
            return
        region = self._regions.required_at("dst", dst)
        self._regions.refuse_beyond("dst", dst, count * width)
        if stream is not None and stream.capture is not None:
            row = count * width
            self.fill_box(stream, dst, value, (row, 1, 1), (width, row, 1))
            return
        on = stream or self._streams.of(0)
        self._peers.refuse_out_of_reach(on, ("dst", region, "rw"))
        raw.fill(dst, value % (1 << 8 * width), count=count, width=width, stream=on.neutral)
        if stream is None:
            self._settle(dst, region, on)

    def fill_box(
        self,
        stream: AnyStream | None,
        dst: int,
        value: int,
        extent: tuple[int, int, int],
        layout: tuple[int, int, int],
    ) -> None:
        """Fill a box as :meth:`fill` does.

        ``extent``: bytes of a row, rows of a slice, and slices.
        ``layout``: bytes of an element, bytes from one row to the next, and rows from one slice to the next.
        """
        if not all(extent):
            return
        on = stream or self._streams.of(0)
        queue = self.filling(on, dst, value, extent, layout)
        if stream is None:
            queue(on)
            self._settle(dst, self._regions.required_at("dst", dst), on)
        elif stream.capture is not None:
            stream.capture.add(stream, Fill(self, dst, value, extent, layout))
        else:
            queue(stream)

    def fill_of(self, dst: int, value: int, element: int, layout: tuple[int, int, int]) -> Fill:
        """Return the fill of rows of elements, as a node: ``INVALID_VALUE`` for other elements, and for none.

        ``element``: the bytes of an element: 1, 2 or 4.
        ``layout``: elements of a row, rows, and bytes from one row to the next.
        """
        width, height, pitch = layout
        if element not in (1, 2, 4) or not width or not height:
            raise self._machine.vendor.invalid(
                f"{height} rows of {width} elements have {element} bytes each",
                "pass one or more, with 1, 2 or 4 bytes",
            )
        row = element * width
        return Fill(self, dst, value, (row, height, 1), (element, pitch if height > 1 else row, height))

    def filling(
        self,
        by: AnyStream | Device,
        dst: int,
        value: int,
        extent: tuple[int, int, int],
        layout: tuple[int, int, int],
    ) -> Callable[[AnyStream], None]:
        """Check the fill of a box that has bytes, by a stream or a device; return what queues it."""
        (nbytes, height, depth), (element, pitch, rows) = extent, layout
        invalid = self._machine.vendor.invalid
        region = self._regions.required_at("dst", dst)
        if pitch < nbytes or nbytes % element:
            raise invalid(
                f"rows of {nbytes:,} bytes, of elements of {element}, lie {pitch:,} bytes apart",
                "pass a pitch of at least the width, and a width of whole elements",
            )
        per_slice = pitch * rows
        if height > rows:
            raise invalid(
                f"the slices lie {rows:,} rows apart and have {height:,}",
                "pass an extent of at most ysize rows",
            )
        self._peers.refuse_out_of_reach(by, ("dst", region, "rw"))
        most = (depth - 1) * per_slice + (height - 1) * pitch + nbytes
        self._regions.refuse_beyond("dst", dst, most)
        self._regions.refuse_outside("dst", dst, most, region)
        number = value % (1 << 8 * element)
        if pitch == nbytes and rows == height:
            starts, count = [dst], nbytes * height * depth // element
        else:
            starts = [dst + at * per_slice + row * pitch for at in range(depth) for row in range(height)]
            count = nbytes // element

        def queue(stream: AnyStream) -> None:
            for start in starts:
                raw.fill(start, number, count=count, width=element, stream=stream.neutral)

        return queue

    def _settle(self, dst: int, region: Region, stream: AnyStream) -> None:
        synchronous = self._machine.synchronous
        if not region.is_device or dst != region.base or region.allocation in synchronous:
            stream.catch_up()

    def _note(self, address: int, record: AllocationRecord) -> None:
        self._machine.records[raw.locate(address).allocation] = record

    def _refuse_too_large(self, nbytes: int) -> None:
        """Refuse a size that no machine has: ``OUT_OF_MEMORY``."""
        if nbytes >> _LARGEST_BITS:
            raise self._no_memory(
                f"{nbytes:,} bytes are asked for, more than any address space has",
                "look for a size that was negative",
            )

    def _no_memory(self, cause: str, remedy: str) -> Refusal:
        return self._machine.vendor.refusal(Reason.OUT_OF_MEMORY, cause, remedy)
