"""The vendor's header in Python: enumerations, constants, and structs as classes (facts/hcomm 1.5, 2.6, 2.7).

Fields of structs have C's names.  A new struct has zeros, or what the vendor's Init sets.  The members of a union are
fields side by side: a call reads the member that it needs, and ignores the others.
"""

from __future__ import annotations

import enum
from dataclasses import field, fields, make_dataclass
from typing import TYPE_CHECKING, Any

from peerlane.support.libraries import binding

_int_enum: Any = (
    enum.IntEnum
)  # Any: no type checker follows the members of an enumeration that is built by a call

ENUMS: tuple[type[enum.IntEnum], ...] = tuple(
    _int_enum(name, members, module=__name__) for name, members in binding("hcomm")["enums"].items()
)
CONSTANTS: dict[str, int] = binding("hcomm")["constants"]

_ENUM_OF = {kind.__name__: kind for kind in ENUMS}
globals().update(_ENUM_OF)

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


_RESERVED = -1
_TYPES: dict[str, Any] = {
    "int": int,
    "bool": bool,
    "bytes": bytes,
    "str": str,
    "text": str | None,
    "list": list[int] | None,
    "object": object,
}
_TABLE: dict[str, Any] = binding("hcomm")["structs"]


class _Struct:
    """The methods of all structs.  Methods built for each struct would take most of the import's time."""

    __slots__ = ()
    __match_args__: tuple[str, ...] = ()

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__qualname__}({values})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__match_args__)


def _classes() -> dict[str, type]:
    """Return the class of each struct by name, nested structs included."""
    classes: dict[str, type] = {}
    for name, described in _TABLE.items():
        rows = [
            (each, classes[kind], field(default_factory=classes[kind]))
            if kind in classes
            else (each, _TYPES[kind], field(default=first, metadata={"bytes": width}))
            for each, kind, first, width in described["fields"]
        ]
        space = {"__doc__": f"The vendor's struct {name}.", "__module__": __name__}
        classes[name] = make_dataclass(
            name, rows, bases=(_Struct,), namespace=space, slots=True, repr=False, eq=False
        )
    return classes


CLASSES = _classes()
globals().update(CLASSES)

#: By the class of a struct with a header: what its constants begin with.
_HEADERS = {
    CLASSES["HcclChannelDesc"]: "HCCL_CHANNEL",
    CLASSES["HcommChannelDesc"]: "HCOMM_CHANNEL",
    CLASSES["CommLink"]: "COMM_LINK",
    CLASSES["HcclTeamCreateDesc"]: "HCCL_TEAM_CREATE_DESC",
    CLASSES["HcclTeamCreateChannelsDesc"]: "HCCL_TEAM_CREATE_CHANNELS_DESC",
}


def fill(struct: Any) -> None:
    """Set every bit of every field, as ``memset(…, 0xFF, …)`` does."""
    fresh = type(struct)()  # a program may have set a field to anything
    for each in fields(struct):
        value = getattr(fresh, each.name)
        if isinstance(value, bytes):
            setattr(struct, each.name, b"\xff" * len(value))
        elif isinstance(value, bool | int):
            setattr(struct, each.name, (1 << 8 * each.metadata["bytes"]) - 1)
        elif hasattr(value, "__dataclass_fields__"):
            if type(getattr(struct, each.name)) is not type(value):
                setattr(struct, each.name, value)
            fill(getattr(struct, each.name))
        else:
            setattr(struct, each.name, value)  # a pointer that no program may follow


def reset(struct: Any) -> None:
    """Set every field of a struct to that of a new one."""
    fresh = type(struct)()
    for each in fields(fresh):
        setattr(struct, each.name, getattr(fresh, each.name))


def reset_endpoint(endpoint: Any) -> None:
    """Set an endpoint to one without protocol, address and location."""
    fresh: Any = CLASSES["EndpointDesc"]()
    fill(fresh)
    fresh.protocol = _ENUM_OF["CommProtocol"]["COMM_PROTOCOL_RESERVED"]
    fresh.commAddr.type = fresh.loc.locType = _RESERVED
    for each in fields(fresh):
        setattr(endpoint, each.name, getattr(fresh, each.name))


def abi_header(kind: type) -> Any:
    """Return the header of structs of a class, as the vendor's Init sets it."""
    prefix, size = _HEADERS[kind], _TABLE[kind.__name__]["size"]
    return CLASSES["CommAbiHeader"](
        CONSTANTS[f"{prefix}_VERSION"], CONSTANTS[f"{prefix}_MAGIC_WORD"], size, 0
    )


def is_initialised(struct: Any, kind: type) -> bool:
    """Tell whether a struct of a class has the header that the vendor's Init sets."""
    return bool(getattr(struct.header, "magicWord", None) == abi_header(kind).magicWord)
