"""``acl.rt``: copies that a descriptor in device memory describes (facts/acl 2.7).

A descriptor is a list of one copy, as :class:`peerlane.CopyDescriptor` lays it out.
"""

from __future__ import annotations

from peerlane import CopyDescriptor, Kind, as_buffer
from peerlane.dialects._shared.call import Address, Int32, Refusal, Word
from peerlane.dialects._shared.checks import check
from peerlane.dialects.acl._checks import null, reserved, zero
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl, machine
from peerlane.dialects.acl._stream import stream_of
from peerlane.memory import raw

_KINDS = range(8)
_INNER_DEVICE_TO_DEVICE = 6
_SIZE = CopyDescriptor.size_for(1)
_ALIGNMENT = 64


def _refuse_kind(name: str, kind: int) -> int:
    if kind != _INNER_DEVICE_TO_DEVICE:
        raise Refusal(
            Code.RT_FEATURE_NOT_SUPPORT if kind in _KINDS else Code.INVALID_PARAM,
            f"{name} is {kind}",
            "pass 6, INNER_DEVICE_TO_DEVICE: the only one that descriptors copy",
        )
    return kind


_KIND = check(_refuse_kind, names=("kind",))


@acl.call("acl.rt.get_memcpy_desc_size", out=1, checks=[_KIND])
def get_memcpy_desc_size(kind: Int32) -> int:
    """Return the bytes of device memory that a descriptor takes (facts/acl 2.7).

    Gives: 64
    Refuses: 207000 kind not 6; 100000 no kind
    Basis: S; C for the size
    """
    return _SIZE


@acl.call(
    "acl.rt.set_memcpy_desc",
    out=1,
    checks=[null("desc", "src", "dst"), _KIND, reserved("config"), zero("count")],
)
def set_memcpy_desc(
    desc: Address, kind: Int32, src: Address, dst: Address, count: Word, config: Address
) -> int:
    """Write a descriptor, complete on return, and return its address (facts/acl 2.7).  ``src`` before ``dst``.

    Gives: the descriptor
    Refuses: 100000 NULL, `config`, count 0, no kind; 207000 kind not 6; 107002; 107000 alignment, addresses, devices
        (all three are memory of one)
    Basis: S; C for alignment
    """
    machine.context()
    own = _descriptor_device(desc)
    source, target = _device_of("src", src, count), _device_of("dst", dst, count)
    if source != target:
        raise Code.RT_PARAM_INVALID.refusal(
            f"src is memory of device {source}, dst of device {target}; a descriptor copies within one",
            "copy between devices with acl.rt.memcpy_async",
        )
    if source != own:
        raise Code.RT_PARAM_INVALID.refusal(
            f"src and dst are memory of device {source}, the descriptor of device {own}",
            "keep a descriptor on the device that uses it",
        )
    content = as_buffer(CopyDescriptor.encode_addresses([(dst, src, count)]))
    raw.copy(desc, content.address, content.size)
    return desc


@acl.call("acl.rt.memcpy_async_with_desc", checks=[null("desc"), _KIND])
def memcpy_async_with_desc(desc: Address, kind: Int32, stream: Address) -> None:
    """Queue the copy that a descriptor describes when it starts (facts/acl 2.7).

    A copy that is queued before may rewrite it.  A wrong field is then 107000, at the next
    synchronization.  The default stream 0 is refused.

    Refuses: 100000 NULL, stream 0, no kind; 207000 kind not 6; 107002; 107000 alignment, address, the stream; 107003
    Basis: S; C for alignment
    """
    if not stream:
        raise Code.INVALID_PARAM.refusal(
            "the stream is 0, and the default stream takes no descriptors",
            "pass a stream of acl.rt.create_stream",
        )
    acl_stream = stream_of(stream)
    device = acl_stream.context.device
    own = _descriptor_device(desc)
    if own != device.ordinal:
        raise Code.RT_PARAM_INVALID.refusal(
            f"the descriptor is memory of device {machine.number_at(own)}, and the stream belongs to device "
            f"{acl_stream.context.number}",
            "keep a descriptor on the device that uses it",
        )
    raw.launch_descriptor(desc, _SIZE, stream=acl_stream.neutral, direct=True, device=device)


def _descriptor_device(desc: int) -> int:
    """Return the device of a descriptor; 107000 for an address where none can lie."""
    if desc % _ALIGNMENT:
        raise Code.RT_PARAM_INVALID.refusal(
            f"the descriptor {desc:#x} is not a multiple of {_ALIGNMENT}",
            "pass what acl.rt.malloc returned, or a multiple of 64 bytes behind it",
        )
    return _device_of("desc", desc, _SIZE)


def _device_of(name: str, address: int, nbytes: int) -> int:
    """Return the device of ``nbytes`` bytes at an address; 107000 if they are not all memory of one device."""
    allocation = machine.allocations.get(address)
    if allocation is not None and allocation.device is not None and nbytes <= allocation.buffer.size:
        return allocation.device.ordinal
    location = raw.locate(address)
    if location.kind is not Kind.DEVICE:
        raise Code.RT_PARAM_INVALID.refusal(
            f"{name} is {machine.describe(address)}, not device memory", "use acl.rt.malloc"
        )
    room = location.base + location.size - address
    if nbytes > room:
        raise Code.RT_PARAM_INVALID.refusal(
            f"{name} is {machine.describe(address)} and has {room:,} bytes from there on, not {nbytes:,}",
            machine.remedy_beyond(address + room),
        )
    return location.ordinal
