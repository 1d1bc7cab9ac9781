"""Pointers, and how an argument becomes one.

The rules are those measured on hip-python; where that would read a NULL or a wild address and end the interpreter,
these classes raise an exception.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

from peerlane import Kind
from peerlane.memory import raw

_WORD = 1 << 64
_WORD_HALF = 1 << 63


class Pointer:
    """An address, and what must live as long as it is used.

    Parameters
    ----------
    pyobj : object
        In this order: None (NULL); ``ctypes.c_void_p``; an object of this module; a contiguous buffer; an object with
        ``__cuda_array_interface__``; an int; an object with ``as_c_void_p()``.

    Raises
    ------
    TypeError
        It is none of these.
    BufferError, ValueError
        The buffer is not contiguous; which of the two is its maker's choice.
    OverflowError
        The int has more than 64 bits.

    Notes
    -----
    Two pointers are equal only if they are one object.  None can be pickled.
    """

    # _address is None once a reference to it was made: then the address lies in _cell, where others may change it.
    __slots__ = ("_address", "_cell", "_kept")

    _address: int | None
    _cell: Any
    _kept: object

    def __init__(self, pyobj: object = None) -> None:
        self._take(pyobj)

    def _take(self, pyobj: object) -> None:
        self._address, self._kept = pinned(pyobj)

    @classmethod
    def _at(cls, address: int, kept: object = None) -> Any:
        pointer = cls.__new__(cls)
        pointer._address, pointer._kept = address, kept
        return pointer

    @classmethod
    def fromObj(cls, pyobj: object) -> Any:
        """Return the object itself if it is of this class, else a new one made of it."""
        if isinstance(pyobj, cls):
            return pyobj
        pointer = cls.__new__(cls)
        pointer._take(pyobj)
        return pointer

    def createRef(self) -> Pointer:
        """Return a pointer to the word that holds this pointer's address; a write there changes the address."""
        if self._address is not None:
            self._cell, self._address = ctypes.c_void_p(self._address), None
        return Pointer._at(ctypes.addressof(self._cell), self)  # type: ignore[no-any-return]

    def as_c_void_p(self) -> ctypes.c_void_p:
        """Return the address as a ``ctypes.c_void_p``."""
        return ctypes.c_void_p(int(self))

    @property
    def is_ptr_null(self) -> bool:
        """Whether the address is 0."""
        return int(self) == 0

    def __int__(self) -> int:
        address = self._address
        if address is None:
            address = self._cell.value or 0
        return address

    def __bool__(self) -> bool:
        return int(self) != 0

    def __getitem__(self, offset: Any) -> Any:
        """Return a pointer that many bytes further on."""
        if not isinstance(offset, int):
            raise NotImplementedError(f"a Pointer is indexed by an int, not by {type(offset).__name__}")
        if offset < 0:
            raise ValueError(f"the offset of a Pointer is {offset}; it must not be negative")
        return Pointer._at((int(self) + offset) % _WORD, self._kept)

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot pickle a {type(self).__name__}: its address means nothing elsewhere")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object, _ptr={int(self)}>"


def _as_address(number: int) -> int:
    """Return an int as an unsigned word; a negative one is its two's complement."""
    if not -_WORD_HALF <= number < _WORD:
        raise OverflowError(f"{number:#x} is not an address: it has more than 64 bits")
    return number % _WORD


def _of_interface(interface: dict[str, Any]) -> int:
    if "data" not in interface:
        raise ValueError("the object's __cuda_array_interface__ has no 'data'")
    return _as_address(interface["data"][0])


def pinned(obj: object) -> tuple[int, object]:
    """Return an object's address, and the object that keeps it valid; rules and errors as for :class:`Pointer`."""
    if obj is None:
        return 0, None
    if isinstance(obj, ctypes.c_void_p):
        return obj.value or 0, None
    if isinstance(obj, Pointer):
        return int(obj), obj
    buffer = raw.buffer_of(obj)
    if buffer is not None:
        return buffer[0], _kept(obj)
    interface = getattr(obj, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_interface(interface), obj
    if isinstance(obj, int):
        return _as_address(obj), None
    if hasattr(obj, "as_c_void_p"):
        return obj.as_c_void_p().value or 0, obj
    raise TypeError(f"unsupported input type: '{type(obj)}'")


def _kept(obj: Any) -> memoryview:
    try:
        return memoryview(obj)
    except ValueError:
        import numpy as np

        if not isinstance(obj, np.ndarray):
            raise
        # NumPy has no letter for bfloat16 or dates; the elements keep their size and their order.
        plain: Any = obj.view(f"V{obj.itemsize}")
        return memoryview(plain)


#: Classes whose objects answer :func:`address_of` at once.
plain_kinds: set[type] = {Pointer}


def address_of(obj: Any) -> int:
    """Return the address that a pointer argument means; rules and errors as for :class:`Pointer`.

    The caller keeps ``obj`` while it uses the address.
    """
    kind = type(obj)
    if kind is int:
        return obj if 0 <= obj < _WORD else _as_address(obj)
    if kind in plain_kinds:
        address: int | None = obj._address
        if address is not None:
            return address
    elif not isinstance(obj, (Pointer, ctypes.c_void_p)):
        buffer = raw.buffer_of(obj)
        if buffer is not None:
            return buffer[0]
    return pinned(obj)[0]


def extent_of(obj: Any) -> tuple[int, int | None]:
    """Return the address that a pointer argument means and its number of bytes, None where that is not known.

    Known are buffers of the host and, from shape and type, what has a ``__cuda_array_interface__``; not known are
    addresses, pointers and arrays of this module, whose allocation is the bound.
    """
    if type(obj) is int or obj is None or isinstance(obj, (Pointer, ctypes.c_void_p)):
        return address_of(obj), None
    buffer = raw.buffer_of(obj)
    if buffer is not None:
        return buffer[0], buffer[1]
    interface = getattr(obj, "__cuda_array_interface__", None)
    if interface is None:
        return address_of(obj), None
    address = _of_interface(interface)
    digits = "".join(each for each in interface.get("typestr", "") if each.isdigit())
    if "shape" not in interface or not digits or interface.get("strides") is not None:
        return address, None
    return address, math.prod(interface["shape"]) * int(digits)


def view_of(address: int, nbytes: int, kept: object = None) -> memoryview:
    """Return the bytes at an address; ``kept`` lives as long as the view of host memory.

    Raises
    ------
    BadAddress, AccessDenied, Busy, Closed
        As :func:`peerlane.raw.view`; a host address where the first or the last byte cannot be read.
    """
    if not nbytes:
        return memoryview(bytearray())
    if raw.locate(address).kind is not Kind.PAGEABLE:
        return raw.view(address, nbytes)
    if kept is None:
        for end in (address, address + nbytes - 1):
            read(end, 1)
    block: Any = (ctypes.c_ubyte * nbytes).from_address(address)
    block.kept = kept
    return memoryview(block).cast("B")


def read(address: int, nbytes: int) -> bytes:
    """Return the bytes at any address; BadAddress instead of a crash."""
    block = (ctypes.c_ubyte * nbytes)()
    raw.copy(ctypes.addressof(block), address, nbytes)
    return bytes(block)


def write(address: int, data: bytes) -> None:
    """Write bytes to any address; BadAddress instead of a crash."""
    source = (ctypes.c_ubyte * len(data)).from_buffer_copy(data)
    raw.copy(address, ctypes.addressof(source), len(data))
