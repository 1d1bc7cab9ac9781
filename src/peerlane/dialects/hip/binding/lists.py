"""Strings and arrays of numbers in the memory of the host."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Iterator
from typing import Any, ClassVar

from peerlane.dialects.hip.binding.pointers import Pointer, pinned, read, write
from peerlane.memory import raw

_PAGE = 4096


def _text_at(address: int) -> bytes:
    """Return the bytes before the first NUL; BadAddress where the memory ends before."""
    content = b""
    while address:
        part = read(address + len(content), min(256, _PAGE - (address + len(content)) % _PAGE))
        text, nul, _ = part.partition(b"\0")
        content += text
        if nul:
            break
    return content


class CStr(Pointer, raw.Exporter):  # type: ignore[misc]  # native code's
    """A C string; most functions that return text return this one.

    Parameters
    ----------
    pyobj : object
        A str or bytes, kept for as long as the program runs; else as for :class:`Pointer`, and the text ends at
        the first NUL where no buffer says its length.
    """

    __slots__ = ("_is_owner", "_length")

    _retained_inputs: ClassVar[dict[bytes, bytes]] = {}
    _length: int | None
    _is_owner: bool

    def __init__(self, pyobj: object) -> None:
        self._take(pyobj)

    def _take(self, pyobj: object) -> None:
        if isinstance(pyobj, str):
            pyobj = pyobj.encode()
        if isinstance(pyobj, bytes):
            pyobj = self._retained_inputs.setdefault(pyobj, pyobj)
        self._address, self._kept = pinned(pyobj)
        self._is_owner = False
        self._length = self._kept.nbytes if isinstance(self._kept, memoryview) else None

    def malloc(self, content_len: int) -> None:
        """Allocate memory for a text of so many bytes, and its NUL; RuntimeError when there is an address already."""
        if int(self):
            raise RuntimeError("the CStr has an address already; only one that is NULL can allocate")
        if operator.index(content_len) < 0:
            raise ValueError(f"content_len is {content_len}; it must not be negative")
        self._kept = ctypes.create_string_buffer(content_len + 1)
        self._address, self._length, self._is_owner = ctypes.addressof(self._kept), None, True

    def free(self) -> None:
        """Give the memory of :meth:`malloc` back; RuntimeError when there is none."""
        if not self._is_owner:
            raise RuntimeError("the CStr does not own the memory that it points to")
        self._address, self._kept, self._is_owner = 0, None, False

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the text."""
        return self._exported().decode(encoding, errors)

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """Return the text's bytes, read in the given encoding, as UTF-8."""
        return self.decode(encoding, errors).encode()

    def _exported(self) -> bytes:
        address = int(self)
        if self._length is None:
            return _text_at(address)
        return ctypes.string_at(address, self._length)

    def __len__(self) -> int:
        """Return the number of bytes."""
        return len(self._exported())

    def __getitem__(self, index: Any) -> str:
        """Return characters of the text."""
        if not int(self):
            raise RuntimeError("the CStr is NULL")
        return self.decode()[index]

    def __str__(self) -> str:
        return self.decode()

    __repr__ = __str__


class _Numbers(Pointer):
    """Numbers of one C type, side by side.

    Parameters
    ----------
    pyobj : object
        A list or tuple, which is copied; else as for :class:`Pointer`, and the length is not known.
    """

    __slots__ = ("_length",)

    _length: int | None
    _element: ClassVar[Any]
    _shown: ClassVar[str]

    def __init__(self, pyobj: object) -> None:
        self._take(pyobj)

    @classmethod
    def allocate(cls, count: int) -> Any:
        """Return zeros; NULL for a count of 0.  ValueError when it is negative."""
        count = operator.index(count)
        if count < 0:
            raise ValueError(f"count is {count}; it must not be negative")
        numbers = cls.__new__(cls)
        numbers._fill([0] * count)
        if not count:
            numbers._address = 0
        return numbers

    def _take(self, pyobj: object) -> None:
        if isinstance(pyobj, (list, tuple)):
            self._fill([self._to_c(at, each) for at, each in enumerate(pyobj)], pyobj)
        else:
            self._address, self._kept = pinned(pyobj)
            self._length = None

    def _fill(self, numbers: list[Any], source: object = None) -> None:
        block = (self._element * max(len(numbers), 1))(*numbers)
        self._address, self._kept, self._length = ctypes.addressof(block), (block, source), len(numbers)

    def _to_c(self, at: int, value: Any) -> Any:
        number = getattr(value, "value", value) if isinstance(value, ctypes._SimpleCData) else value
        if not isinstance(number, int):
            raise ValueError(f"element {at} is a {type(value).__name__} and no integer")
        if self._element(-1).value > 0 and number < 0:
            raise OverflowError(f"element {at} is {number}; the elements are not negative")
        if not -(1 << 63) <= number < (1 << (63 if self._element(-1).value < 0 else 64)):
            raise OverflowError(f"element {at} is {number}, which has more than 64 bits")
        return number

    def _to_python(self, value: Any) -> Any:
        return value

    def to_list(self) -> list[Any]:
        """Return the elements; TypeError when the length is not known."""
        count = len(self)
        if not count:
            return []
        return [self._to_python(each) for each in (self._element * count).from_address(int(self))]

    def to_tuple(self) -> tuple[Any, ...]:
        """Return the elements; TypeError when the length is not known."""
        return tuple(self.to_list())

    def __len__(self) -> int:
        if self._length is None:
            raise TypeError(
                f"this {type(self).__name__} is an address and knows no length; make it of a list or with allocate()"
            )
        return self._length

    def __getitem__(self, index: Any) -> Any:
        """Return an element, or a list of those in a slice."""
        return self.to_list()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_list())

    def __repr__(self) -> str:
        return f"<{self._shown} object, _ptr={int(self)}>"


class ListOfPointer(_Numbers):
    """Addresses; elements as for :class:`Pointer`."""

    __slots__ = ()
    _element = ctypes.c_size_t
    _shown = "ListOfPointer"

    def _to_c(self, at: int, value: Any) -> int:
        return pinned(value)[0]

    def _to_python(self, value: int) -> Pointer:
        return Pointer._at(value, self)  # type: ignore[no-any-return]


class ListOfBytes(_Numbers):
    """C strings: bytes, str or :class:`CStr`, kept like those of a CStr."""

    __slots__ = ()
    _element = ctypes.c_size_t
    _shown = "ListOfBytes"

    def _to_c(self, at: int, value: Any) -> int:
        if not isinstance(value, (bytes, str, CStr)):
            raise TypeError(f"element {at} is a {type(value).__name__}; valid are bytes, str and CStr")
        return int(CStr.fromObj(value))

    def _to_python(self, value: int) -> bytes | None:
        return _text_at(value) if value else None


class _Scalar:
    """One number behind a pointer; a list must have exactly one element."""

    __slots__ = ()

    @classmethod
    def allocate(cls: Any, count: int = 1) -> Any:
        """Return zeros."""
        return super().allocate(count)  # type: ignore[misc]

    def _take(self: Any, pyobj: object) -> None:
        if isinstance(pyobj, (list, tuple)) and len(pyobj) != 1:
            raise ValueError(
                f"a {type(self).__name__} is one number; the {type(pyobj).__name__} has {len(pyobj)}"
            )
        super()._take(pyobj)  # type: ignore[misc]

    def _checked(self: Any) -> int:
        address = int(self)
        if not address:
            raise ValueError(f"the {type(self).__name__} is NULL")
        return address

    @property
    def value(self: Any) -> int:
        """The number; ValueError when the pointer is NULL."""
        number = self._element.from_buffer_copy(read(self._checked(), ctypes.sizeof(self._element)))
        return number.value  # type: ignore[no-any-return]

    @value.setter
    def value(self: Any, value: int) -> None:
        write(self._checked(), bytes(self._element(self._to_c(0, value))))


def _classes() -> dict[str, type]:
    """Return ListOf... and PointerTo... of each C type; the words of ``repr`` are hip-python's."""
    classes: dict[str, type] = {}
    for name, element, shown in (
        ("Int", ctypes.c_int, "ListOfDataInt"),
        ("Long", ctypes.c_long, "ListOfLong"),
        ("Unsigned", ctypes.c_uint, "ListOfUnsigned"),
        ("UnsignedLong", ctypes.c_ulong, "ListOfUnsigned"),
        ("Int64", ctypes.c_int64, "ListOfInt64"),
        ("UInt64", ctypes.c_uint64, "ListOfUInt64"),
    ):
        body = {"__slots__": (), "__module__": __name__, "__doc__": _Numbers.__doc__, "_element": element}
        many = type(f"ListOf{name}", (_Numbers,), {**body, "_shown": shown})
        body = {
            "__slots__": (),
            "__module__": __name__,
            "__doc__": _Scalar.__doc__,
            "_shown": f"PointerTo{name}",
        }
        classes[many.__name__] = many
        classes[f"PointerTo{name}"] = type(f"PointerTo{name}", (_Scalar, many), body)
    return classes


globals().update(_classes())
