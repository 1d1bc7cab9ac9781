"""How arguments are read: a wrong type is a TypeError, as in pyACL; a number that does not fit is HCCL_E_PARA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, TypeVar

from peerlane.dialects._shared import checks
from peerlane.dialects._shared.call import Check, Parse, as_index, type_name
from peerlane.dialects._shared.machine import Resource, with_article
from peerlane.dialects.hcomm import _header as header
from peerlane.dialects.hcomm._codes import PARA, PTR
from peerlane.dialects.hcomm._state import object_of

_Struct = TypeVar("_Struct")


def _number(bits: int, *, signed: bool = False) -> Callable[[object], int]:
    least, end = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)

    def read(value: object) -> int:
        number = value if type(value) is int else as_index(value)
        if not least <= number < end:
            raise PARA.refusal(
                f"an argument is {number}; valid are {least} to {end - 1:,}", "pass a number that fits"
            )
        return number

    return read


_word = _number(64)


def _pointer(value: object) -> int:
    return 0 if value is None else _word(value)


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.partition(b"\0")[0].decode(errors="surrogateescape")
    raise TypeError(f"must be a str or None, not {type_name(value)}")


def _bytes(value: object) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    raise TypeError(f"must be bytes or None, not {type_name(value)}")


def _float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, float | int):
        raise TypeError(f"must be a float, not {type_name(value)}")
    return float("inf") if abs(value) >= 1e300 else float(value)


def _struct(kind: type) -> Parse:
    def read(value: object) -> Any:
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"must be a {kind.__name__} or None, not {type_name(value)}")
        return value

    return Parse(read, shown=kind | None)


def _structs(kind: type) -> Parse:
    def read(value: object) -> Any:
        if isinstance(value, kind):
            return [value]
        if value is None:
            return None
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise TypeError(f"must be a list of {kind.__name__} or None, not {type_name(value)}")
        for each in value:
            if not isinstance(each, kind):
                raise TypeError(f"must be a list of {kind.__name__}, not of {type_name(each)}")
        return value

    return Parse(read)


def _numbers(bits: int, *, signed: bool = False) -> Callable[[object], Any]:
    one = _number(bits, signed=signed)

    def read(value: object) -> Any:
        if value is None:
            return None
        if isinstance(value, str | bytes) or not hasattr(type(value), "__iter__"):
            raise TypeError(f"must be a list of ints or None, not {type_name(value)}")
        return [one(each) for each in value]  # type: ignore[attr-defined]

    return read


def _matrix(value: object) -> Any:
    """Return a matrix row by row, of rows or of numbers as C has them."""
    if value is None or isinstance(value, str | bytes) or not hasattr(type(value), "__iter__"):
        return _counts(value)
    rows = [each.tolist() if hasattr(each, "tolist") else each for each in value]  # type: ignore[attr-defined]
    flat = [one for each in rows for one in (each if isinstance(each, list | tuple) else [each])]
    return _counts(flat)


def required(name: str, value: Any, count: int | None = None) -> Any:
    """Return the value, or its first elements as announced.

    HCCL_E_PTR for NULL, HCCL_E_PARA for fewer elements than announced.
    """
    if value is None or (isinstance(value, int) and not value):
        raise PTR.refusal(f"{name} is NULL", f"pass {name}")
    if count is None:
        return value
    if len(value) < count:
        raise PARA.refusal(
            f"{count:,} are announced, and {name} has {len(value):,}", f"pass as many in {name} as announced"
        )
    return value[:count]


def meaning(kind: type[Resource]) -> Check:
    """Return a check that replaces a handle by its object."""
    return Check(lambda _name: partial(object_of, kind))


_counts = _numbers(64)
#: Reads a handle; the check that follows replaces it by its object.
HANDLE = Parse(_pointer, is_address=True, shown=int)
Handle = Annotated[int, Parse(_pointer, is_address=True)]
Pointer = Annotated[int, Parse(_pointer, is_address=True)]
UInt32 = Annotated[int, Parse(_number(32))]
UInt64 = Annotated[int, Parse(_word)]
Enum = Annotated[int, Parse(_number(32, signed=True))]
AnyInt = Annotated[int, Parse(as_index)]
Float = Annotated[float, Parse(_float)]
CText = Annotated[str | None, Parse(_text)]
CBytes = Annotated[bytes | None, Parse(_bytes)]
Config = Annotated[header.HcclCommConfig | None, _struct(header.HcclCommConfig)]
Mem = Annotated[header.CommMem | None, _struct(header.CommMem)]
Endpoint = Annotated[header.EndpointDesc | None, _struct(header.EndpointDesc)]
ChannelDescs = Annotated[list[header.HcclChannelDesc] | None, _structs(header.HcclChannelDesc)]
HcommChannelDescs = Annotated[list[header.HcommChannelDesc] | None, _structs(header.HcommChannelDesc)]
TransferDescs = Annotated[list[header.HcommBatchTransferDesc] | None, _structs(header.HcommBatchTransferDesc)]
Endpoints = Annotated[list[header.EndpointDesc] | None, _structs(header.EndpointDesc)]
Links = Annotated[list[header.CommLink] | None, _structs(header.CommLink)]
ThreadConfigs = Annotated[list[header.ThreadConfig] | None, _structs(header.ThreadConfig)]
TeamChannelsDesc = Annotated[
    header.HcclTeamCreateChannelsDesc | None, _struct(header.HcclTeamCreateChannelsDesc)
]
SendRecvItems = Annotated[list[header.HcclSendRecvItem] | None, _structs(header.HcclSendRecvItem)]
Handles = Annotated[list[int] | None, Parse(_numbers(64))]
UInt64s = Annotated[list[int] | None, Parse(_numbers(64))]
Matrix = Annotated[list[list[int]] | None, Parse(_matrix)]
UInt32s = Annotated[list[int] | None, Parse(_numbers(32))]
Int32s = Annotated[list[int] | None, Parse(_numbers(32, signed=True))]

# As above, but NULL is refused with HCCL_E_PTR.
REQUIRED = Check(lambda name: partial(required, name))
RequiredText = Annotated[str, Parse(_text, shown=str | None), REQUIRED]
RequiredBytes = Annotated[bytes, Parse(_bytes, shown=bytes | None), REQUIRED]
RequiredConfig = Annotated[header.HcclCommConfig, _struct(header.HcclCommConfig), REQUIRED]
RequiredMem = Annotated[header.CommMem, _struct(header.CommMem), REQUIRED]
RequiredEndpoint = Annotated[header.EndpointDesc, _struct(header.EndpointDesc), REQUIRED]
RequiredTeamDesc = Annotated[header.HcclTeamCreateDesc, _struct(header.HcclTeamCreateDesc), REQUIRED]
RequiredTeamChannelsDesc = Annotated[
    header.HcclTeamCreateChannelsDesc, _struct(header.HcclTeamCreateChannelsDesc), REQUIRED
]
NotNull = Annotated[
    int,
    Parse(_pointer, is_address=True),
    checks.null(PTR, cause="{name} is NULL", remedy="pass an address as {name}"),
]
zero = partial(checks.zero, PARA)
within = partial(checks.within, PARA)


def part(struct: Any, name: str, kind: type[_Struct]) -> _Struct:
    """Return a struct in a struct, which a program may have set to anything: HCCL_E_PARA."""
    value = getattr(struct, name)
    if not isinstance(value, kind):
        raise PARA.refusal(
            f"{name} of {type(struct).__name__} is {value!r:.60}, not {with_article(kind.__name__)}",
            f"set its fields, or {name} to {with_article(kind.__name__)}",
        )
    return value


def listed(struct: Any, name: str, count: int) -> list[int]:
    """Return the numbers that a struct announces in a list: HCCL_E_PTR, HCCL_E_PARA."""
    value = getattr(struct, name)
    try:
        numbers: list[int] = required(name, _numbers(32)(value), count)
    except TypeError:
        raise PARA.refusal(
            f"{name} of {type(struct).__name__} is {value!r}, not a list of integers",
            f"set {name} to a list of integers",
        ) from None
    return numbers


def field(struct: Any, name: str, *, bits: int = 32, signed: bool = False) -> int:
    """Return a number in a struct, which a program may have set to anything: HCCL_E_PARA."""
    value = getattr(struct, name)
    try:
        return _number(bits, signed=signed)(0 if value is None else value)
    except TypeError:
        raise PARA.refusal(
            f"{name} of {type(struct).__name__} is {value!r}, not an integer", f"set {name} to an integer"
        ) from None
