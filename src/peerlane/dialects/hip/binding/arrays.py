"""Arrays without strides: what hipMalloc returns, and their views."""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any, ClassVar

from peerlane.dialects.hip.binding.pointers import Pointer, address_of, plain_kinds, view_of
from peerlane.memory import raw

_SETTINGS = ("shape", "typestr", "stream", "itemsize", "read_only", "_force")


#: NumPy's names of a type, its code, and the bytes of an element; 0 where the code leaves them open.
_ELEMENTS = (
    ("", "?", 4),
    ("bool bool_ bool8", "", 4),
    *((f"{kind}{8 * size}", f"{kind[0]}{size}", size) for kind in ("uint", "int") for size in (1, 2, 4, 8)),
    *((f"float{8 * size}", f"f{size}", size) for size in (2, 4, 8)),
    *((f"complex{8 * size}", f"c{size}", size) for size in (8, 16)),
    ("byte", "b", 1),
    ("short", "h", 2),
    ("intc", "i", 4),
    ("intp int0", "p", 8),
    ("long int int_", "l", 8),
    ("longlong", "q", 8),
    ("ubyte", "B", 1),
    ("ushort", "H", 2),
    ("uintc", "I", 4),
    ("uintp uint0", "P", 8),
    ("ulong uint", "L", 8),
    ("ulonglong", "Q", 8),
    ("half", "e", 2),
    ("single", "f", 4),
    ("double float float_", "d", 8),
    ("longdouble longfloat", "g", 16),
    ("csingle singlecomplex", "F", 8),
    ("cdouble complex complex_ cfloat", "D", 16),
    ("clongdouble clongfloat longcomplex", "G", 32),
    ("str str_ str0 unicode unicode_", "U", 0),
    ("bytes bytes_ bytes0", "S", 0),
    ("void void0", "V", 0),
    ("object object_", "O", 0),
)
_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
_ORDERS = ("", "=", "<", ">")


@functools.cache
def _codes() -> dict[str, int]:
    """Return the bytes of an element for each type code that an array takes."""
    sizes: dict[str, int] = {}
    for names, code, size in _ELEMENTS:
        sizes |= dict.fromkeys(names.split(), size)
        sizes |= {order + code: size for order in _ORDERS if code}
    times = (
        ("datetime64", True),
        ("M", False),
        ("M8", True),
        ("timedelta64", True),
        ("m", False),
        ("m8", True),
    )
    for code, has_units in times:
        for each in (code, *(f"{code}[{unit}]" for unit in _UNITS if has_units)):
            sizes |= {order + each: 0 for order in _ORDERS}
    return sizes


class _Codes:
    """The type codes that an array takes, collected at the first use."""

    def __get__(self, instance: object, owner: type) -> tuple[str, ...]:
        return tuple(_codes())


class NDBuffer(Pointer, raw.Exporter):  # type: ignore[misc]  # native code's
    """An array without strides at an address; it owns nothing.

    Parameters
    ----------
    pyobj : object
        As for :class:`Pointer`; a buffer and a ``__cuda_array_interface__`` have the shape too, else it is one byte.

    Notes
    -----
    It exports its bytes to the host (``memoryview``, NumPy): a view never waits for queued work, and keeps device
    memory alive.  Slices are views; there are no negative indices.
    """

    __slots__ = ("_itemsize", "_read_only", "_shape", "_stream", "_typestr")

    NUMPY_CHAR_CODES: ClassVar[Any] = _Codes()

    _shape: tuple[int, ...]
    _typestr: str
    _itemsize: int
    _read_only: bool
    _stream: int | None

    def __init__(self, pyobj: object) -> None:
        self._take(pyobj)

    @classmethod
    def _of_bytes(cls, address: int, nbytes: int) -> Any:
        """Return an array of bytes at an address, as hipMalloc returns it."""
        array = cls.__new__(cls)
        array._address, array._kept, array._shape = address, None, (nbytes,)
        array._typestr, array._itemsize, array._read_only, array._stream = "B", 1, False, None
        return array

    def _take(self, pyobj: Any) -> None:
        super()._take(pyobj)
        shape: tuple[int, ...] = (1,)
        typestr, itemsize, read_only, stream = "B", 1, False, None
        if isinstance(pyobj, NDBuffer):
            shape, typestr, itemsize = pyobj._shape, pyobj._typestr, pyobj._itemsize
            read_only, stream = pyobj._read_only, pyobj._stream
        elif isinstance(pyobj, (Pointer, ctypes.c_void_p)):
            pass
        elif isinstance(self._kept, memoryview):
            shape, itemsize = tuple(self._kept.shape or ()), self._kept.itemsize
            read_only = self._kept.readonly
        elif hasattr(pyobj, "__cuda_array_interface__"):
            described = pyobj.__cuda_array_interface__
            shape, typestr = tuple(described["shape"]), described["typestr"]
            itemsize, read_only = _itemsize(typestr, None), bool(described["data"][1])
            _check_contiguous(described.get("strides"), shape, itemsize)
            stream = described.get("stream")
        _check_shape(shape)
        self._shape, self._typestr, self._itemsize, self._read_only = shape, typestr, itemsize, read_only
        self._stream = stream

    def configure(self, **settings: Any) -> NDBuffer:
        """Change the shape, type or settings of the array; return the array itself.

        Parameters
        ----------
        shape : tuple of int
        typestr : str
            One of ``NUMPY_CHAR_CODES``.
        itemsize : int
            Bytes of an element, by default those of the type.
        stream : object
            What ``__cuda_array_interface__`` names; a pointer argument or None.
        read_only : bool
        _force : bool
            Let the number of bytes change.

        Raises
        ------
        KeyError
            For any other keyword.
        TypeError, ValueError
            A setting that is not valid; the number of bytes would change.  Nothing was changed.
        """
        for name in settings:
            if name not in _SETTINGS:
                allowed = ", ".join(repr(each) for each in _SETTINGS)
                raise KeyError(f"{name!r} is not a setting of an array; allowed are: {allowed}")
        shape, typestr, itemsize = self._shape, self._typestr, self._itemsize
        if "shape" in settings:
            shape = settings["shape"]
            if not isinstance(shape, tuple):
                raise TypeError(f"the shape must be a tuple, not {type(shape).__name__}")
            _check_shape(shape)
            shape = tuple(int(extent) for extent in shape)
        if "typestr" in settings:
            typestr = settings["typestr"]
            itemsize = _itemsize(typestr, settings.get("itemsize"))
        elif "itemsize" in settings:
            itemsize = settings["itemsize"]
        before, after = self.size * self._itemsize, math.prod(shape) * itemsize
        if before != after and not settings.get("_force"):
            raise ValueError(
                f"the array has {before:,} bytes and would have {after:,}; pass _force=True if this is intended"
            )
        stream = self._stream
        if "stream" in settings:
            stream = None if settings["stream"] is None else address_of(settings["stream"])
            if stream == 0:
                raise ValueError("stream 0 may mean none or the default stream; pass None or another handle")
        self._stream, self._shape, self._typestr, self._itemsize = stream, shape, typestr, itemsize
        self._read_only = bool(settings.get("read_only", self._read_only))
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return self._shape

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self._shape)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self._itemsize

    @property
    def typestr(self) -> str:
        """The type code."""
        return self._typestr

    @property
    def rank(self) -> int:
        """Axes."""
        return len(self._shape)

    @property
    def is_read_only(self) -> bool:
        """Whether the array is marked as one that must not be written."""
        return self._read_only

    @property
    def stream_as_int(self) -> int | None:
        """The stream that ``__cuda_array_interface__`` names."""
        return self._stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self._shape,
            "typestr": self._typestr,
            "data": (int(self), self._read_only),
            "strides": None,
            "offset": 0,
            "mask": None,
            "version": 3,
            "stream": self._stream,
        }

    def _exported(self) -> object:
        import numpy as np

        nbytes = self.size * self._itemsize
        kept = self._kept if self._kept is None else (self, self._kept)
        flat = np.frombuffer(view_of(int(self), nbytes, kept), np.uint8)
        if self._read_only:
            flat.flags.writeable = False
        try:
            element = np.dtype(self._typestr)
        except TypeError:  # a code of older NumPy
            return flat
        fits = element.itemsize == self._itemsize and not element.hasobject
        return flat.view(element).reshape(self._shape) if fits else flat

    def __getitem__(self, subscript: Any) -> Any:
        """Return a contiguous part as an array of the same rank."""
        if not isinstance(subscript, (int, slice, tuple)):
            raise TypeError(f"an array is indexed by int, slice or tuple, not by {type(subscript).__name__}")
        indices = subscript if isinstance(subscript, tuple) else (subscript,)
        if len(indices) > len(self._shape):
            raise IndexError(f"{len(indices)} indices for an array of {len(self._shape)} axes")
        ranges = [_part(each, extent) for each, extent in zip(indices, self._shape, strict=False)]
        ranges += [(0, extent) for extent in self._shape[len(indices) :]]
        leading = next((at for at, each in enumerate(indices) if not isinstance(each, int)), len(indices))
        for (first, last), extent in list(zip(ranges, self._shape, strict=True))[leading + 1 :]:
            if (first, last) != (0, extent):
                raise ValueError(f"{subscript!r} of shape {self._shape} is not contiguous")
        start, step = 0, self._itemsize
        for (first, _), extent in zip(reversed(ranges), reversed(self._shape), strict=True):
            start, step = start + first * step, step * extent
        lengths = [last - first for first, last in ranges]
        while len(lengths) > 1 and lengths[0] == 1:
            lengths.pop(0)
        array = type(self)._at(int(self) + start, (self, self._kept) if self._kept is not None else None)
        array._shape = (*lengths, *(1,) * (len(self._shape) - len(lengths)))
        array._typestr, array._itemsize = self._typestr, self._itemsize
        array._read_only, array._stream = self._read_only, self._stream
        return array

    def __repr__(self) -> str:
        return (
            f"<NDBuffer object, _ptr={int(self)}, typestr={self._typestr}, itemsize={self._itemsize}, "
            f"shape={self._shape}, is_read_only={self._read_only}, stream={self._stream}>"
        )


class DeviceArray(NDBuffer):
    """The array that allocating functions return: bytes at a device address; see :class:`NDBuffer`."""

    __slots__ = ()

    @staticmethod
    def DeviceArray(pyobj: object) -> Any:
        """Return the object itself if it is of this class, else a new one made of it."""
        return _device_array(pyobj)


_device_array = DeviceArray.fromObj
plain_kinds.add(DeviceArray)


def _check_shape(shape: tuple[Any, ...]) -> None:
    if not shape:
        raise ValueError("a shape has one entry at least")
    for extent in shape:
        if not isinstance(extent, int):
            raise TypeError(f"the entries of a shape are int, not {type(extent).__name__}")
        if extent < 0:
            raise ValueError(f"the entries of a shape are not negative: {shape}")


def _check_contiguous(strides: Any, shape: tuple[int, ...], itemsize: int) -> None:
    wanted = itemsize
    for stride, extent in zip(reversed(strides or ()), reversed(shape), strict=False):
        if stride != wanted:
            raise RuntimeError(f"the array with strides {tuple(strides)} is not contiguous")
        wanted *= extent


def _itemsize(typestr: Any, itemsize: int | None) -> int:
    known = _codes()
    if typestr is not None and not isinstance(typestr, str):
        raise TypeError(f"the typestr must be a str, not {type(typestr).__name__}")
    if typestr not in known:
        raise ValueError(f"typestr {typestr!r} is none of NDBuffer.NUMPY_CHAR_CODES")
    if not (itemsize or known[typestr]):
        raise ValueError(f"typestr {typestr!r} does not say how many bytes an element has; pass itemsize too")
    return itemsize or known[typestr]


def _part(index: Any, extent: int) -> tuple[int, int]:
    """Return the first element and the one after the last; there are no negative indices."""
    if isinstance(index, int):
        if index < 0:
            raise OverflowError(f"index {index} is negative")
        if index >= extent:
            raise ValueError(f"index {index} is beyond the {extent} elements of its axis")
        return index, index + 1
    if not isinstance(index, slice):
        raise TypeError(f"an array is indexed by int, slice or tuple, not by {type(index).__name__}")
    first = 0 if index.start is None else index.start
    last = extent if index.stop is None else index.stop
    if index.step not in (None, 1):
        raise ValueError(f"the step of a slice is {index.step}; valid are None and 1")
    if first < 0 or last > extent or last <= first:
        raise ValueError(f"[{first}:{last}] is no part, with an element at least, of {extent} elements")
    return first, last
