"""Copies: of bytes and of boxes, at once, on a stream, and between two named devices."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeAlias

from peerlane import Device
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.peers import Peers
from peerlane.dialects.gpu.regions import Region, Regions
from peerlane.dialects.gpu.streams import AnyStream, Streams
from peerlane.errors import AccessDenied, Closed, Fault
from peerlane.memory import raw
from peerlane.support.records import dataclass

#: The regions of destination and source; None for ordinary memory of the host.
Ends: TypeAlias = "tuple[Region | None, Region | None]"


@dataclass(frozen=True, slots=True)
class Side:
    """One end of the copy of a box, in pitched memory."""

    address: int  #: of the pitched memory
    pitch: int = 0  #: bytes from one row to the next; 0 where they lie side by side
    rows: int = 0  #: from one slice to the next; 0 where they lie side by side
    x: int = 0  #: ``x``, ``y``, ``z``: where the box begins: bytes, rows and slices
    y: int = 0
    z: int = 0
    must_be_known: bool = False  #: whether ordinary memory of the host is refused


@dataclass(frozen=True, slots=True)
class _BoxLayout:
    start: int
    pitch: int
    slice: int


class Copy:
    """The copy of a box: called, it copies on a stream, or at once if that is None."""

    __slots__ = ("_copies", "_move", "dst", "ends", "extent", "is_peer", "src")

    kind = "MEMCPY"

    def __init__(
        self,
        copies: Copies,
        dst: Side,
        src: Side,
        extent: tuple[int, int, int],
        ends: Ends,
        move: Callable[[AnyStream | None], None],
    ) -> None:
        #: ``is_peer``: whether the call names both devices: none of them needs access to the other's memory.
        self._copies, self._move, self.is_peer = copies, move, False
        #: ``extent``: bytes of a row, rows of a slice, and slices.
        self.dst, self.src, self.extent, self.ends = dst, src, extent, ends

    def __call__(self, stream: AnyStream | None) -> None:
        self._move(stream)

    @property
    def is_plain(self) -> bool:
        """Whether the bytes of each end lie side by side."""
        return self.extent[1:] == (1, 1)

    def prepared(self, device: Device) -> Copy:
        """Check the ends anew, for a copy by a device; return what copies them now."""
        copy = self._copies.box(self.dst, self.src, self.extent)
        if not self.is_peer:
            self._copies.refuse_out_of_reach(device, copy.ends)
        return copy


class Copies:
    """The copies of a vendor's program."""

    def __init__(self, machine: GpuMachine, streams: Streams, regions: Regions, peers: Peers) -> None:
        self._machine, self._streams, self._regions, self._peers = machine, streams, regions, peers
        self._policy = machine.vendor.policy

    def copy(self, dst: int, src: int, nbytes: int, kind: str = "") -> None:
        """Copy in the order of the null stream, complete on return but for a copy within one device.

        ``kind``: the vendor's name of a direction with a device at one end: refused for two ends in ordinary host
            memory.
        """
        if nbytes:
            ends = self._checked(dst, src, nbytes, kind)
            self.move_now(self._mover(dst, src, nbytes), ends)

    def copy_async(self, stream: AnyStream, dst: int, src: int, nbytes: int, kind: str = "") -> None:
        """Queue a copy; one with an end in ordinary host memory, which cannot wait, is complete on return."""
        if nbytes:
            ends = self._checked(dst, src, nbytes, kind)
            self.refuse_out_of_reach(stream, ends)
            self._copy_on(stream, dst, src, nbytes, self._is_asynchronous(ends))

    def copy_with_stream(self, stream: AnyStream, dst: int, src: int, nbytes: int, kind: str = "") -> None:
        """Copy in the order of a stream; complete on return."""
        if nbytes:
            ends = self._checked(dst, src, nbytes, kind)
            self.refuse_out_of_reach(stream, ends)
            stream.catch_up()
            raw.copy(dst, src, nbytes)

    def copy_peer(self, to: Device, source: Device, dst: int, src: int, nbytes: int) -> None:
        """Queue a copy behind the earlier work of two devices, by the policy, wherever the memory lies."""
        if nbytes:
            can_wait = self._can_wait(dst, src, nbytes)
            self._submit_peer(
                to, source, lambda stream: self._copy_on(stream, dst, src, nbytes, can_wait, is_peer=True)
            )

    def copy_peer_async(self, stream: int, dst: int, src: int, nbytes: int) -> None:
        """Queue a copy between two devices on a stream of any device, by its handle: the ends are checked first."""
        if nbytes:
            can_wait = self._can_wait(dst, src, nbytes)
            self._copy_on(self._streams.of(stream), dst, src, nbytes, can_wait, is_peer=True)

    def box(self, dst: Side, src: Side, extent: tuple[int, int, int], kind: str = "") -> Copy:
        """Return the copy of a box of (bytes, rows, slices), none of them 0.

        Raises Refusal: ``INVALID_VALUE``: NULL, rows or slices that overlap, a box that ends beyond its memory;
            ``UNKNOWN_MEMORY``: ordinary memory of the host where the vendor must know it; as :meth:`copy`.
        """
        ends = self._checked(dst.address, src.address, 0, kind)
        to = self._layout_of("dst", dst, ends[0], extent)
        source = self._layout_of("src", src, ends[1], extent)
        return Copy(self, dst, src, extent, ends, _box_mover(to, source, extent))

    def line(self, dst: int, src: int, nbytes: int, kind: str = "") -> Copy:
        """Return the copy of bytes: ``INVALID_VALUE`` without bytes; refused as :meth:`box`."""
        if not nbytes:
            raise self.empty()
        copy = self.box(Side(dst), Side(src), (nbytes, 1, 1), kind)
        self._can_wait(dst, src, nbytes)
        return copy

    def empty(self) -> Refusal:
        """Return the refusal of a copy without bytes, where the vendor refuses that."""
        return self._machine.vendor.invalid("the copy has no bytes", "copy one byte or more")

    def move_now(self, move: Callable[[AnyStream | None], None], ends: Ends) -> None:
        """Move bytes in the order of the null stream, and of that of the one device that both ends lie on.

        What moves within a device is queued: the call returns while earlier work runs.  Between two devices the
        policy decides whose earlier work counts.
        """
        self._streams.captures.refuse_unsafe()
        current = self._streams.of(0)
        self.refuse_out_of_reach(current, ends)
        others = self._others(current, ends)
        if self._is_queued(ends):
            if others:
                self._streams.submit_behind(others[0], current, move)
            else:
                move(current)
            return
        current.catch_up()
        for other in others:
            other.catch_up()
        if len(self._devices(ends)) > 1 and self._policy.peer_streams == "all":
            for each in self._streams.non_blocking([current, *others]):
                with contextlib.suppress(Closed):  # another thread may end it now
                    self._streams.await_stream(each)
        try:
            move(None)
        except AccessDenied as error:
            if error.fault is not Fault.NO_ACCESS:
                raise
            move(current)  # the device of mapped memory may have the right that neither end has
            current.wait()

    def move_async(self, stream: AnyStream, copy: Copy) -> None:
        """Copy on a stream; with an end in ordinary host memory the bytes are there on return."""
        self.refuse_out_of_reach(stream, copy.ends)
        self._move_on(stream, copy)

    def _move_on(self, stream: AnyStream, copy: Copy) -> None:
        if stream.capture is not None:
            stream.capture.add(stream, copy)
        elif self._is_asynchronous(copy.ends):
            copy(stream)
        else:
            stream.catch_up()
            copy(None)

    def _is_asynchronous(self, ends: Ends) -> bool:
        """Return whether a copy on a stream is queued: ordinary memory of the host cannot wait."""
        if self._policy.host_copies == "queued":
            return None not in ends
        return None not in ends and any(end is not None and (end.is_device or end.is_managed) for end in ends)

    def move_peer(self, to: Device, source: Device, copy: Copy) -> None:
        """Copy behind the earlier work of two devices, by the policy."""
        copy.is_peer = True
        self._submit_peer(to, source, lambda stream: self._move_on(stream, copy))

    def move_peer_async(self, stream: AnyStream, copy: Copy) -> None:
        """Copy between two devices on a stream of any device."""
        copy.is_peer = True
        self._move_on(stream, copy)

    def refuse_out_of_reach(self, by: AnyStream | Device, ends: Ends) -> None:
        """Refuse ends that the device which copies was not given access to; see `Peers`."""
        self._peers.refuse_out_of_reach(by, ("dst", ends[0], "rw"), ("src", ends[1], "r"))

    def _copy_on(
        self, stream: AnyStream, dst: int, src: int, nbytes: int, can_wait: bool, *, is_peer: bool = False
    ) -> None:
        """Copy on a stream, or when its earlier work is over, as ordinary memory of the host cannot wait."""
        if stream.capture is not None:
            copy = self.box(Side(dst), Side(src), (nbytes, 1, 1))
            copy.is_peer = is_peer
            stream.capture.add(stream, copy)
        elif can_wait:
            raw.copy(dst, src, nbytes, stream=stream.neutral)
        else:
            stream.catch_up()
            raw.copy(dst, src, nbytes)

    def _submit_peer(self, to: Device, source: Device, submit: Callable[[AnyStream], None]) -> None:
        streams = self._streams
        streams.captures.refuse_unsafe()
        if self._policy.memcpy_peer == "current":
            submit(streams.null(self._machine.context()))
            return
        first, second = streams.null_of(to.ordinal), streams.null_of(source.ordinal)
        current = streams.null(self._machine.context()) if self._policy.peer_current else first
        others = [] if current in (first, second) else [current.neutral]
        if self._policy.peer_streams == "all":
            others += [each.queue for each in streams.non_blocking([first, second, current])]
        for each in others:
            with contextlib.suppress(Closed):  # another thread may end it now
                first.neutral.wait(each.record())
        streams.submit_behind(first, second, submit)
        if not others and self._policy.peer_streams != "all":
            return
        end = first.neutral.record()
        for each in others:
            with contextlib.suppress(Closed):
                each.wait(end)
        for null in (first, second, current):
            null.last_peer_copy = end

    @staticmethod
    def _mover(dst: int, src: int, nbytes: int) -> Callable[[AnyStream | None], None]:
        return lambda stream: raw.copy(dst, src, nbytes, stream=None if stream is None else stream.neutral)

    def _others(self, current: AnyStream, ends: Ends) -> list[AnyStream]:
        """Return the null streams besides ``current`` whose earlier work a copy at once follows."""
        ordinals = self._devices(ends)
        if len(ordinals) > 1 and self._policy.cross_device == "current":
            return []
        return [self._streams.null_of(each) for each in sorted(ordinals - {current.context.device.ordinal})]

    @staticmethod
    def _devices(ends: Ends) -> set[int]:
        return {end.ordinal for end in ends if end is not None and end.is_device}

    def _is_queued(self, ends: Ends) -> bool:
        dst, src = ends
        synchronous = self._machine.synchronous
        return (
            dst is not None
            and src is not None
            and dst.is_device
            and src.is_device
            and dst.ordinal == src.ordinal
            and not (dst.allocation in synchronous and src.allocation in synchronous)
        )

    def _checked(self, dst: int, src: int, nbytes: int, kind: str) -> Ends:
        """Return the regions of both ends."""
        ends = self._regions.checked_end("dst", dst, nbytes), self._regions.checked_end("src", src, nbytes)
        if kind and ends == (None, None):
            raise self._machine.vendor.invalid(
                f"kind is {kind}, and both ends are ordinary memory of the host, which devices do not reach",
                "pass {host_to_host} or {any_direction}",
            )
        if self._policy.peer_copies == "strict":
            self._peers.refuse_without_access(dst, src, nbytes)
        return ends

    def _can_wait(self, dst: int, src: int, nbytes: int) -> bool:
        """Return whether a stream may copy them later: both ends are in regions; refuse more bytes than there are."""
        is_dst, is_src = self._regions.has("dst", dst, nbytes), self._regions.has("src", src, nbytes)
        if self._policy.peer_copies == "strict":
            self._peers.refuse_without_access(dst, src, nbytes)
        return is_dst and is_src

    def _layout_of(
        self, name: str, side: Side, region: Region | None, extent: tuple[int, int, int]
    ) -> _BoxLayout:
        width, height, depth = extent
        if side.must_be_known and region is None:
            raise self._regions.unknown(name, side.address)
        invalid = self._machine.vendor.invalid
        pitch = side.pitch or width
        if pitch < width and height * depth > 1:
            raise invalid(
                f"the rows of {name} lie {pitch:,} bytes apart and have {width:,}",
                "pass a pitch of at least the width",
            )
        per_slice = pitch * (side.rows or height)
        if per_slice < pitch * height and depth > 1:
            raise invalid(
                f"the slices of {name} lie {side.rows:,} rows apart and have {height:,}",
                "pass a height of at least that of the box",
            )
        layout = _BoxLayout(side.address + side.z * per_slice + side.y * pitch + side.x, pitch, per_slice)
        nbytes = layout.start + (depth - 1) * per_slice + (height - 1) * pitch + width - side.address
        self._regions.refuse_beyond(name, side.address, nbytes)
        if region is not None:
            self._regions.refuse_outside(name, side.address, nbytes, region)
        return layout


def _box_mover(
    to: _BoxLayout, source: _BoxLayout, extent: tuple[int, int, int]
) -> Callable[[AnyStream | None], None]:
    width, height, depth = extent
    if depth == 1 or (to.slice == to.pitch * height and source.slice == source.pitch * height):
        slices, rows = 1, height * depth
    else:
        slices, rows = depth, height

    def move(stream: AnyStream | None) -> None:
        neutral = None if stream is None else stream.neutral
        for at in range(slices):
            raw.copy_2d(
                to.start + at * to.slice,
                max(to.pitch, width),
                source.start + at * source.slice,
                max(source.pitch, width),
                width,
                rows,
                stream=neutral,
            )

    return move
