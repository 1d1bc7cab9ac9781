"""The shape of a call: a reader of each argument, by its C type, and its outputs (facts/hip 1.3)."""

from __future__ import annotations

import enum
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from peerlane.dialects.gpu.regions import HostAddress
from peerlane.dialects.hip.binding import facts, results, types
from peerlane.dialects.hip.binding.enums import base_of, enumeration
from peerlane.errors import Error

_RANGES = {
    "int": (-(1 << 31), 1 << 31),
    "unsigned int": (0, 1 << 32),
    "uint32_t": (0, 1 << 32),
    "size_t": (0, 1 << 64),
    "uint64_t": (0, 1 << 64),
    "unsigned long long": (0, 1 << 64),
    "unsigned long": (0, 1 << 64),
    "unsigned short": (0, 1 << 16),
    "unsigned char": (0, 1 << 8),
}
_FUNCTIONS = ("hipStreamCallback_t", "hipHostFn_t")
_Reader = Callable[[Any], Any]


def _pointer(value: Any) -> int:
    address, nbytes = types.extent_of(value)
    if nbytes is None:
        return address
    host_address = HostAddress(address)
    host_address.nbytes = nbytes
    return host_address


def _integer(kind: str) -> _Reader:
    lowest, beyond = _RANGES[kind]

    def read(value: Any) -> int:
        if type(value) is int and lowest <= value < beyond:
            return value
        if isinstance(value, str) or not hasattr(type(value), "__int__"):
            raise TypeError("an integer is required")
        number = int(value)  # a float too, as in C
        if lowest <= number < beyond:
            return number
        if number < lowest == 0:
            raise OverflowError(f"can't convert negative value to {kind}")
        raise OverflowError(f"value too large to convert to {kind}")

    return read


def _member(kind: str, name: str) -> _Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, base()):
            raise TypeError(f"argument '{name}' must be of type '_{kind}__Base'")
        return value

    @functools.cache
    def base() -> type[enum.IntEnum]:
        return base_of(enumeration(kind))

    return read


def _struct(kind: str) -> _Reader:
    def read(value: Any) -> Any:
        struct = results.struct(kind).fromObj(value)
        return struct if int(struct) else None

    return read


def _list(kind: str) -> _Reader:
    def read(value: Any) -> Any:
        return getattr(types, kind).fromObj(value)

    return read


def _c_string(value: Any) -> str | None:
    string = types.CStr.fromObj(value)
    return string.decode() if int(string) else None


def _reader(kind: str, name: str) -> _Reader:
    if kind in _RANGES:
        return _integer(kind)
    if kind == "float":
        return float
    if kind in facts()["enums"]:
        return _member(kind, name)
    if kind in facts()["structs"] and facts()["structs"][kind]["size"]:
        return _struct(kind)
    if kind.startswith("ListOf"):
        return _list(kind)
    if kind == "CStr":
        return _c_string
    if kind == "object" or kind in _FUNCTIONS:
        return lambda value: value
    return _pointer if kind == "Pointer" else types.address_of


def _blank(kind: str, maybe: bool) -> Callable[[], Any]:
    if maybe:
        return lambda: None
    if kind in ("float", "double"):
        return lambda: 0.0
    if kind in facts()["enums"]:
        return lambda: next(iter(enumeration(kind)))
    if kind in facts()["structs"]:
        return lambda: results.struct(kind)()
    return lambda: 0


@dataclass(frozen=True)
class Shape:
    """The arguments and outputs of a call."""

    call: str
    names: tuple[str, ...]  #: ``names``, ``types``: of the parameters
    types: tuple[str, ...]
    #: Each returns the value of an argument, or raises TypeError or OverflowError.
    readers: tuple[_Reader, ...]
    outputs: tuple[tuple[str, str], ...]  #: name and type of each output, in the order behind the code
    blanks: tuple[Callable[[], Any], ...]  #: each makes the output of a call that failed
    older: Shape | None  #: the arguments and outputs of hip-python 7.2, where the arguments are others
    #: The parameters that are taken instead, where the number of arguments fits.
    overloads: list[tuple[str, ...]]

    @property
    def signature(self) -> inspect.Signature:
        """What help() shows of the call: the names, as in the wheel."""
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature([inspect.Parameter(name, kind) for name in self.names])

    @property
    def is_filled_in_older(self) -> bool:
        """Whether hip-python 7.2 fills a struct that is passed, where this shape returns it."""
        return self.older is not None and self.older.names[1:] == self.names and len(self.outputs) == 1

    def meant(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> Shape:
        """Return the shape that arguments match: this one, or that of hip-python 7.2."""
        older = self.older
        if older is None or len(args) + len(keywords) != len(older.names):
            return self
        if len(older.names) == len(self.names) and set(self.names[len(args) :]) == set(keywords):
            return self
        return older if set(older.names[len(args) :]) == set(keywords) else self

    def bind(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return all arguments in the order of the parameters; TypeError if they do not match."""
        names = self.names
        count = len(names)
        unknown = [name for name in keywords if name not in names]
        if unknown and not count:
            raise TypeError(f"{self.call}() takes no keyword arguments")
        if unknown:
            raise TypeError(f"{self.call}() got an unexpected keyword argument '{unknown[0]}'")
        twice = [name for name in names[: len(args)] if name in keywords]
        if twice:
            raise TypeError(f"{self.call}() got multiple values for keyword argument '{twice[0]}'")
        if len(args) + len(keywords) != count:
            raise TypeError(self._wrong_number(len(args) + len(keywords)))
        return (*args, *(keywords[name] for name in names[len(args) :]))

    def _wrong_number(self, number: int) -> str:
        count = len(self.names)
        if not count:
            return f"{self.call}() takes no arguments ({number} given)"
        others = "".join(f", or ({', '.join(names)})" for names in dict.fromkeys(self.overloads))
        plural = "s" * (count != 1)
        return f"{self.call}() takes exactly {count} positional argument{plural} ({number} given){others}"

    def shown(self, args: Sequence[Any]) -> tuple[tuple[str, object, bool | None], ...]:
        """Return what arguments mean, as `pair` does; the arguments themselves if one cannot be read."""
        try:
            return self.pair([read(each) for read, each in zip(self.readers, args, strict=True)])
        except (Error, IndexError):
            return self.pair(args)

    def blank(self) -> tuple[Any, ...]:
        """Return the outputs of a call that failed."""
        return tuple(make() for make in self.blanks)

    def pair(self, values: Sequence[object]) -> tuple[tuple[str, object, bool | None], ...]:
        """Return each argument with its name, and whether it is an address."""
        return tuple(
            (name, value, kind == "Pointer")
            for name, kind, value in zip(self.names, self.types, values, strict=False)
        )


@functools.cache
def shape_of(call: str) -> Shape:
    """Return the shape of a call of the vendor's table."""
    table, older = facts()["functions"][call], facts()["older"]
    shape = shape_from(call, table["parameters"], table["outputs"])
    if call not in older["parameters"]:
        return shape
    before = shape_from(call, older["parameters"][call], older["outputs"][call])
    return replace(shape, older=before, overloads=[before.names])


def shape_in(call: str, which: str) -> Shape:
    """Return the shape of a call in ``"C"``, or in the ``"earlier"`` version; in both lists may stand for arrays."""
    in_c, described = facts()["in C"], facts()["in C" if which == "C" else "older"]
    lists = dict(in_c["parameters"].get(call, ()))
    parameters = [(name, lists.get(name, kind)) for name, kind in described["parameters"][call]]
    return shape_from(call, parameters, described["outputs"][call])


def shape_from(call: str, parameters: Sequence[Sequence[str]], outputs: Sequence[Sequence[str]]) -> Shape:
    """Return a shape of a call: its parameters, and its outputs with ``"maybe"`` behind those that may be None."""
    return Shape(
        call,
        tuple(name for name, _ in parameters),
        tuple(kind for _, kind in parameters),
        tuple(_reader(kind, name) for name, kind in parameters),
        tuple((each[0], each[1]) for each in outputs),
        tuple(_blank(each[1], len(each) > 2) for each in outputs),
        None,
        [],
    )
