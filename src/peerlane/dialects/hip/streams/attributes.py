"""``hip``: properties of streams (facts/hip 1.4, 3.7)."""

from __future__ import annotations

from typing import Annotated, Any

from peerlane.dialects.gpu.streams import HIGHEST, LOWEST, POLICY_AUTO
from peerlane.dialects.hip.binding.checks import required
from peerlane.dialects.hip.binding.convention import invalid
from peerlane.dialects.hip.binding.pointers import read, write
from peerlane.dialects.hip.devices.properties import attribute
from peerlane.dialects.hip.state import calls, machine
from peerlane.dialects.hip.streams.stream import OnStream, ValidStream, create, stream_of, streams

_POLICIES = range(POLICY_AUTO, 5)  # hipSynchronizationPolicy
_INT = 4
_BITS = 32
_Value = Annotated[Any, required("hipLaunchAttributeValue")]


@calls.call("hipDeviceGetStreamPriorityRange")
def hipDeviceGetStreamPriorityRange() -> tuple[int, int]:
    """Return the least and the greatest priority of streams: smaller numbers are more urgent.

    Gives: 1, -1
    Basis: D
    """
    return LOWEST, HIGHEST


@calls.call("hipStreamGetFlags")
def hipStreamGetFlags(stream: int) -> int:
    """Return the flags that a stream was created with.

    Gives: flags
    Refuses: hipErrorInvalidValue NULL; hipErrorContextIsDestroyed not a stream
    Basis: D
    """
    if not streams.meaning(stream):
        raise invalid("the stream is NULL", "pass what created the stream")
    return stream_of(stream).flags


@calls.call("hipStreamGetPriority")
def hipStreamGetPriority(stream: OnStream) -> int:
    """Return the priority of a stream; 0 for the null stream.

    Gives: priority
    Refuses: hipErrorContextIsDestroyed not a stream
    Basis: D
    """
    return stream.priority


@calls.call("hipStreamGetDevice")
def hipStreamGetDevice(stream: OnStream) -> int:
    """Return the device of a stream; the current one for the null stream.

    Gives: its id
    Refuses: hipErrorContextIsDestroyed not a stream
    Basis: S
    """
    return machine.id_of(stream.context.device.ordinal)


@calls.call("hipGetStreamDeviceId")
def hipGetStreamDeviceId(stream: OnStream) -> int:
    """Return what hipStreamGetDevice does.

    Gives: its id; 0 with the error
    Refuses: hipErrorContextIsDestroyed not a stream
    Basis: C
    """
    return machine.id_of(stream.context.device.ordinal)


@calls.call("hipStreamGetId")
def hipStreamGetId(stream: ValidStream) -> int:
    """Return a small number, unique in the process.

    Gives: number
    Refuses: hipErrorInvalidHandle not a stream
    Basis: D
    """
    return stream.queue.id


@calls.call("hipStreamSetAttribute", first=("value",))
def hipStreamSetAttribute(stream: ValidStream, attr: Any, value: _Value) -> None:
    """Set how a thread should wait for a stream, the one attribute that can be set; it changes nothing.

    Refuses: hipErrorInvalidValue NULL, another attribute, a policy that there is not; hipErrorInvalidHandle not
        a stream
    Basis: D
    """
    wanted = int.from_bytes(read(int(value), _INT), "little", signed=True)
    if attr.name != "hipLaunchAttributeSynchronizationPolicy" or wanted not in _POLICIES:
        raise invalid(
            f"{attr.name} of a stream cannot be set to {wanted}",
            "set hipLaunchAttributeSynchronizationPolicy, to a member of hipSynchronizationPolicy",
        )
    stream.policy = wanted


@calls.call("hipStreamGetAttribute", first=("value_out",))
def hipStreamGetAttribute(stream: ValidStream, attr: Any, value_out: _Value) -> None:
    """Write an attribute of a stream to ``value_out``: how a thread should wait for it, or its priority.

    Refuses: hipErrorInvalidValue NULL, another attribute; hipErrorInvalidHandle not a stream
    Basis: D
    """
    attributes = {
        "hipLaunchAttributeSynchronizationPolicy": stream.policy,
        "hipLaunchAttributePriority": stream.priority,
    }
    if attr.name not in attributes:
        raise invalid(f"streams have no {attr.name}", f"ask for {' or '.join(attributes)}")
    write(int(value_out), attributes[attr.name].to_bytes(_INT, "little", signed=True))


@calls.call("hipStreamCopyAttributes", first=("src",))
def hipStreamCopyAttributes(dst: ValidStream, src: ValidStream) -> None:
    """Copy what hipStreamSetAttribute sets from one stream to another.

    Refuses: hipErrorInvalidHandle not a stream
    Basis: D
    """
    dst.policy = src.policy


@calls.call("hipExtStreamCreateWithCUMask")
def hipExtStreamCreateWithCUMask(cuMaskSize: int, cuMask: Any) -> Any:
    """Create a stream with a mask of compute units, which is kept and changes nothing.

    Gives: stream
    Refuses: hipErrorInvalidValue no mask, a list of fewer words; hipErrorIllegalAddress an address of nothing
    Basis: D; C for arguments that are too short
    """
    _refuse_no_mask(cuMaskSize, cuMaskSize, cuMask)
    return create(0, units=_words(read(int(cuMask), _INT * cuMaskSize)))


@calls.call("hipExtStreamGetCUMask")
def hipExtStreamGetCUMask(stream: int, cuMaskSize: int, cuMask: Any) -> None:
    """Write the mask of compute units of a stream to ``cuMask``: of the units asked for, those of the device.

    Refuses: hipErrorInvalidValue NULL, less room than one bit for each unit; hipErrorContextIsDestroyed not
        a stream; hipErrorIllegalAddress an address of nothing
    Basis: D; C for lists that are too short
    """
    _refuse_no_mask(cuMaskSize, 0, cuMask)
    count = attribute(machine.context().device, "hipDeviceAttributeMultiprocessorCount") or 1
    needed = -(-count // _BITS)
    if cuMaskSize < needed:
        raise invalid(
            f"the {count} units need {needed} words of {_BITS} bits, and there is room for {cuMaskSize}",
            f"pass {needed} words",
        )
    _refuse_no_mask(cuMaskSize, needed, cuMask)
    everything = (1 << count) - 1
    wanted = 0
    for at, word in enumerate(stream_of(stream).units):
        wanted |= word << _BITS * at
    write(int(cuMask), (wanted & everything or everything).to_bytes(_INT * needed, "little"))


def _words(data: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(data[at : at + _INT], "little") for at in range(0, len(data), _INT))


def _refuse_no_mask(count: int, needed: int, mask: Any) -> None:
    """Refuse a mask of 0 words, NULL, and a list with fewer words than are needed: hipErrorInvalidValue."""
    cause = "the mask is NULL" if count else "the mask has 0 words"
    if count and int(mask):
        if mask._length is None or needed <= mask._length:  # the length behind a bare address is not known
            return
        cause = f"the list has {mask._length} words, and {needed} are needed"
    raise invalid(cause, "pass a list of words of 32 bits, and how many there are")
