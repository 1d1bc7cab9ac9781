"""What the extension asks of peerlane: devices, memory and streams, by torch's numbers of devices."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from peerlane.backend.facts import Kind
from peerlane.errors import BadAddress, Error, Fault, OutOfMemory, Refused
from peerlane.memory import raw
from peerlane.memory.buffer import Buffer
from peerlane.node.device import Device, Host, devices
from peerlane.streams.event import Event
from peerlane.streams.stream import Stream
from peerlane.support import torch_name


@functools.cache
def present() -> tuple[Device, ...]:
    """Return the devices by torch's numbers: those of the node, or as ``cuda`` those that CUDA_VISIBLE_DEVICES lists.

    The first call enters a node.
    """
    if torch_name.name != "cuda":
        return tuple(devices())
    from peerlane.dialects.cuda.state import visible  # other programs do not need the dialect

    return visible(devices())


os.register_at_fork(after_in_child=present.cache_clear)


@functools.cache
def count() -> int:
    """Return the number of devices, also in a forked child that cannot use them."""
    return len(present())


def memory_info(device: int) -> tuple[int, int]:
    """Return the device's free bytes, and all that it has."""
    at = present()[device]
    return at.free_bytes, at.total_bytes


def create_stream(device: int, is_default: bool) -> Stream:
    """Return a new stream of the device, or its default one."""
    return make_stream(present()[device], is_default)


#: Makes a stream of a device, or its default one; a vendor's driver shares its own.
make_stream: Callable[[Device, bool], Stream] = lambda device, is_default: device.create_stream()  # noqa: E731


def allocate(device: int, nbytes: int) -> Buffer | str:
    """Return memory of the device, which any device may reach; or, if there is no room, why."""
    try:
        return present()[device].allocate(nbytes, peer=True)
    except OutOfMemory as error:
        free_unused()
        return str(error)


#: Frees what other processes had, before an allocation is tried again.
free_unused: Callable[[], None] = lambda: None  # noqa: E731 - the module above sets it


def close_later(buffer: Any, streams: Sequence[Stream]) -> None:
    """Close memory of another process after what is queued on streams, whether that fails or not."""
    if not streams:
        buffer.close()
        return
    device = streams[0].device
    if device not in _closing:
        _closing[device] = device.create_stream(on_error="continue")
    for stream in streams:
        _closing[device].wait(stream)
    _ending[buffer] = range(buffer.address, buffer.address + buffer.nbytes)
    _closing[device].launch_callback(_close, buffer)


def _close(buffer: Any) -> None:
    buffer.close()
    del _ending[buffer]


_closing: dict[Any, Stream] = {}
_ending: dict[Any, range] = {}  #: the addresses of memory that closes behind what is queued


def check_borrowed(call: str, address: int, nbytes: int) -> None:
    """Refuse memory that has ended.  A tensor may lie there that does not keep it, such as one of ``get_buffer``.

    Raises
    ------
    BadAddress
    """
    end = address + nbytes
    try:
        if not any(each.start < end and address < each.stop for each in tuple(_ending.values())):
            raw.buffer(address, nbytes)
            return
        cause = None
    except BadAddress as error:
        cause = error
    raise BadAddress(
        f"{call}: a tensor has {nbytes:,} bytes at {address:#x}, and no memory is there now. The tensor does not "
        "keep its memory; keep what does: for get_buffer of symmetric memory the handle of rendezvous",
        fault=Fault.FREED_ADDRESS,
        call=call,
        detail=Refused(reason="borrowed_memory_ended", address=address, size=nbytes),
    ) from cause


def allocate_pinned(nbytes: int) -> Buffer:
    """Return pinned memory of the host."""
    return Host().allocate(nbytes)


def copy_between(dst: int, src: int, nbytes: int, source: Stream, target: Stream) -> None:
    """Copy bytes to another device on the source's stream, in the order of both streams."""
    source.wait(target)
    raw.copy(dst, src, nbytes, stream=source)
    target.wait(source)


def record(stream: Stream, event: Event | None = None) -> Event:
    """Record an event, or a new one."""
    return stream.record(event)


def synchronize(waited: Stream | Event) -> None:
    """Wait for a stream or an event.

    Raises
    ------
    torch.AcceleratorError
        An operation has failed; the text names it, and the line that called it.
    """
    try:
        waited.sync()
    except Error as error:
        raise torch.AcceleratorError(str(error)) from error


def milliseconds(first: Event, second: Event) -> float:
    """Return the time between two events, which are over."""
    return (second - first) * 1e3


def device_at(address: int) -> int:
    """Return the number of the device whose memory lies at an address."""
    location = raw.locate(address)
    if location.kind is not Kind.DEVICE:
        raise ValueError(f"{address:#x} is {location.kind.value} memory, and no memory of a peerlane device")
    return [device.ordinal for device in present()].index(location.ordinal)
