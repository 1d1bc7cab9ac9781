"""Structs, unions and opaque handles of hip-python, each created at its first use."""

from __future__ import annotations

import ctypes
import operator
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

from peerlane.dialects.hip.binding import facts, real_name, types
from peerlane.dialects.hip.binding.enums import SERVED_IN, base_of, enumeration
from peerlane.dialects.hip.binding.pointers import Pointer, read, write

_C_TYPES: dict[str, Any] = {
    "char": ctypes.c_byte,
    "unsigned char": ctypes.c_ubyte,
    "short": ctypes.c_short,
    "unsigned short": ctypes.c_ushort,
    "int": ctypes.c_int,
    "unsigned int": ctypes.c_uint,
    "long": ctypes.c_long,
    "unsigned long": ctypes.c_ulong,
    "long long": ctypes.c_longlong,
    "unsigned long long": ctypes.c_ulonglong,
    "size_t": ctypes.c_size_t,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}
_lock = threading.RLock()

_Get = Callable[["_Struct", int], Any]
_Set = Callable[["_Struct", int, Any], None]


class TooShort(IndexError):
    """A field lies outside the bytes that a struct was made of."""


class _Handle(Pointer):
    """A handle that a function returned, an address that means nothing to the program; see :class:`Pointer`."""

    __slots__ = ()

    _names: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def PROPERTIES(cls) -> list[str]:
        """Return the names of the fields, in order."""
        return list(cls._names)

    def __contains__(self, item: object) -> bool:
        return item in self._names

    def __getitem__(self, item: Any) -> Any:
        """Return the field at an index."""
        if not isinstance(item, int):
            raise ValueError(f"a {type(self).__name__} is indexed by an int, not by {type(item).__name__}")
        if not 0 <= item < len(self._names):
            raise IndexError(f"field {item} of the {len(self._names)} of {type(self).__name__}")
        return getattr(self, self._names[item])

    def __repr__(self) -> str:
        return f"<{self._name()} object, ptr: {int(self)}>"

    @classmethod
    def _name(cls) -> str:
        return next(each.__name__ for each in cls.__mro__ if each.__module__ == SERVED_IN)


class _Struct(_Handle):
    """Memory with fields; a struct owns memory that it allocated, and keeps the object alive whose memory it uses.

    Parameters
    ----------
    *values, **named : object
        Of the fields, in order or by name; of a union at most one, by name.

    Raises
    ------
    ValueError
        More values than fields, or than one of a union; a field that is read or written through NULL.
    KeyError
        No such field, or one that was given twice.
    AttributeError
        The field cannot be set.
    TypeError, OverflowError
        A value that the field cannot hold.

    Notes
    -----
    ``fromObj`` makes one of an address, a buffer or whatever else a pointer argument may be, without a copy.  What
    a pointer field is set to is kept alive.
    """

    # _nbytes: how many bytes there are, None behind a bare address.
    __slots__ = ("_held", "_nbytes")

    _nbytes: int | None
    _held: dict[tuple[str, int], object]
    _size: ClassVar[int]
    _is_union: ClassVar[bool]
    _initial: ClassVar[bytes]

    def __init__(self, *values: object, **named: object) -> None:
        self._own(1)
        ctypes.memmove(int(self), self._initial, self._size)  # no call of the machine: a fork may follow
        if self._is_union and values:
            raise TypeError(
                f"{type(self).__name__} is a union and takes one field by name, nothing by position"
            )
        if self._is_union and len(named) > 1:
            raise ValueError(f"{type(self).__name__} is a union: give one field, not {len(named)}")
        if len(values) > len(self._names):
            raise ValueError(f"{type(self).__name__} has {len(self._names)} fields, not {len(values)}")
        positional = dict(zip(self._names, values, strict=False))
        for name, value in positional.items():
            setattr(self, name, value)
        for name, value in named.items():
            if name in positional:
                raise KeyError(f"{name!r} was given by position already")
            if name not in self._names:
                valid = ", ".join(repr(each) for each in self._names)
                raise KeyError(f"{name!r} is not a field of {type(self).__name__}; valid are: {valid}")
            setattr(self, name, value)

    @classmethod
    def allocate(cls, count: int = 1) -> Any:
        """Return ``count`` of them side by side, all bytes 0; ValueError when it is not positive."""
        count = operator.index(count)
        if count < 1:
            raise ValueError(f"count is {count}; it must be positive")
        array = cls.__new__(cls)
        array._own(count)
        return array

    def _own(self, count: int) -> None:
        block = ctypes.create_string_buffer(self._size * count)
        self._address, self._kept = ctypes.addressof(block), block
        self._nbytes, self._held = self._size * count, {}

    def _take(self, pyobj: object) -> None:
        super()._take(pyobj)
        self._nbytes, self._held = None, {}
        if isinstance(self._kept, memoryview):
            self._nbytes = self._kept.nbytes
        elif isinstance(self._kept, _Struct):
            self._nbytes, self._held = self._kept._nbytes, self._kept._held

    def c_sizeof(self) -> int:
        """Return the bytes of one."""
        return self._size

    def _address_of(self, at: int, offset: int, nbytes: int) -> int:
        """Return the address of a field of the struct at index ``at``."""
        at = operator.index(at)
        address, start = int(self), int(at) * self._size + offset
        if not address:
            raise ValueError(f"the {type(self).__name__} is NULL and has no fields")
        if at < 0 or (self._nbytes is not None and start + nbytes > self._nbytes):
            raise TooShort(
                f"{type(self).__name__} number {at} does not lie in the {self._nbytes} bytes that it was made of"
            )
        return address + start

    def _read(self, at: int, offset: int, nbytes: int) -> bytes:
        address = self._address_of(at, offset, nbytes)
        return read(address, nbytes) if self._nbytes is None else ctypes.string_at(address, nbytes)

    def _write(self, at: int, offset: int, data: bytes) -> None:
        address = self._address_of(at, offset, len(data))
        if self._nbytes is None:
            write(address, data)
        else:
            ctypes.memmove(address, data, len(data))


def _number(value: Any, element: Any) -> Any:
    if element in (ctypes.c_float, ctypes.c_double):
        if not hasattr(type(value), "__float__"):
            raise TypeError(f"must be a real number, not {type(value).__name__}")
        return element(value)
    if not isinstance(value, float) and not hasattr(type(value), "__index__"):
        raise TypeError(f"an integer is required, not {type(value).__name__}")
    number = int(value)
    stored = element(number)
    if stored.value != number:
        raise OverflowError(f"{number} does not fit the {ctypes.sizeof(element)} bytes of the field")
    return stored


def _numbers(kind: str, offset: int) -> tuple[_Get, _Set | None]:
    base, is_array, count = kind.partition("[")
    element = _C_TYPES[base]
    nbytes = ctypes.sizeof(element)
    if is_array:
        many = element * int(count.rstrip("]"))
        return lambda self, at: list(many.from_buffer_copy(self._read(at, offset, ctypes.sizeof(many)))), None

    def put(self: _Struct, at: int, value: Any) -> None:
        self._write(at, offset, bytes(_number(value, element)))

    return lambda self, at: element.from_buffer_copy(self._read(at, offset, nbytes)).value, put


def _bit(number: int, offset: int) -> tuple[_Get, _Set]:
    def put(self: _Struct, at: int, value: Any) -> None:
        byte = self._read(at, offset, 1)[0] & ~(1 << number)
        self._write(at, offset, bytes([byte | (_number(value, ctypes.c_uint).value & 1) << number]))

    return lambda self, at: self._read(at, offset, 1)[0] >> number & 1, put


def _member(name: str, offset: int) -> tuple[_Get, _Set]:
    def get(self: _Struct, at: int) -> Any:
        return enumeration(name)(int.from_bytes(self._read(at, offset, 4), "little", signed=True))

    def put(self: _Struct, at: int, value: Any) -> None:
        if not isinstance(value, base_of(enumeration(name))):
            raise TypeError(f"the value must be of type {name!r}, not {type(value).__name__}")
        self._write(at, offset, (int(value) % (1 << 32)).to_bytes(4, "little"))

    return get, put


def _address(field: str, name: str, offset: int, as_text: bool) -> tuple[_Get, _Set]:
    def kind() -> Any:
        return getattr(types, name) if hasattr(types, name) else struct(name, as_text=as_text)

    def get(self: _Struct, at: int) -> Any:
        pointer = kind().fromObj(int.from_bytes(self._read(at, offset, 8), "little"))
        held = self._held.get((field, at))
        if isinstance(held, Pointer) and int(held) == int(pointer):
            pointer._kept = held
        return pointer

    def put(self: _Struct, at: int, value: Any) -> None:
        pointer = kind().fromObj(value)
        self._write(at, offset, int(pointer).to_bytes(8, "little"))
        self._held[field, at] = pointer

    return get, put


def _nested(name: str, offset: int, as_text: bool) -> tuple[_Get, None]:
    def get(self: _Struct, at: int) -> Any:
        kind = struct(name, as_text=as_text)
        inner = kind._at(self._address_of(at, offset, kind._size), self)
        inner._nbytes, inner._held = (None if self._nbytes is None else kind._size), {}
        return inner

    return get, None


def _characters(kind: str, nbytes: int, offset: int, as_text: bool) -> tuple[_Get, None]:
    def get(self: _Struct, at: int) -> Any:
        characters = self._read(at, offset, nbytes)
        text = characters.partition(b"\0")[0]
        if not as_text:
            return text
        return text.decode() if kind == "str" else characters

    return get, None


def _access(field: list[Any], as_text: bool) -> tuple[_Get, _Set | None]:
    name, kind, _, offset, nbytes = field
    word, _, rest = kind.partition(" ")
    if word == "bit":
        return _bit(int(rest), offset)
    if word == "enum":
        return _member(rest, offset)
    if word == "pointer":
        return _address(name, rest, offset, as_text)
    if word == "struct":
        return _nested(rest, offset, as_text)
    if word in ("str", "bytes"):
        return _characters(word, nbytes, offset, as_text)
    return _numbers(kind, offset)


def struct(name: str, *, as_text: bool = True) -> Any:
    """Return the class of a struct, a union or an opaque handle; the same object at each call.

    ``name``: also an alias (``hipStream_t``).
    ``as_text``: as in hip-python 10.0: texts are str, and bytes are all there; else as in 7.2: both are bytes up to
        the first NUL.  Classes of the two are different classes.
    Raises KeyError: there is none of the name.
    """
    with _lock:
        return _class_of(real_name(name), as_text)


@cache
def _class_of(name: str, as_text: bool) -> type[_Handle]:
    described = facts()["structs"][name]
    body: dict[str, Any] = {"__slots__": (), "__module__": SERVED_IN, "__qualname__": name}
    if not described["fields"]:
        return type(name, (_Handle,), {**body, "__doc__": _Handle.__doc__})
    size = described["size"]
    body |= {
        "__doc__": _Struct.__doc__,
        "_names": tuple(field[0] for field in described["fields"]),
        "_size": size,
        "_is_union": described["union"],
        "_initial": bytes.fromhex(described.get("initial", "00" * size)),
    }
    for field in described["fields"]:
        get, put = _access(field, as_text)
        body[field[0]] = _property(get, put if field[2] else None)
        body[f"get_{field[0]}"] = get
        if field[2] and put is not None:
            body[f"set_{field[0]}"] = put
    return type(name, (_Struct,), body)


def _property(get: _Get, put: _Set | None) -> property:
    if put is None:
        return property(lambda self: get(self, 0))
    return property(lambda self: get(self, 0), lambda self, value: put(self, 0, value))
