"""Host objects that copies accept: arrays, objects with the buffer protocol, tensors."""

from __future__ import annotations

import ctypes
import re
import sys
from typing import TYPE_CHECKING, Any

from peerlane.backend import host
from peerlane.errors import InvalidValue, Refused
from peerlane.memory import dlpack

if TYPE_CHECKING:
    import numpy.typing as npt

_FIELD_NAME = re.compile(":[^:]*:")


def bytes_of(obj: Any) -> tuple[object, int, int, bool]:
    """Return the object that keeps the bytes alive, their address, their number, and whether they are read-only.

    Raises TypeError, InvalidValue: as :func:`peerlane.as_buffer`.
    """
    # Where nobody imported it nothing is an array; another thread may be about to.
    array = getattr(sys.modules.get("numpy"), "ndarray", None)
    if array is not None and isinstance(obj, array):
        _check_plain(obj, obj, objects=obj.dtype.hasobject, contiguous=obj.flags.c_contiguous)
        return obj, *_exported(obj)
    try:
        view = memoryview(obj)
    except TypeError as error:
        if not dlpack.is_producer(obj):
            raise TypeError(
                f"as_buffer: {type(obj).__name__} has neither the buffer protocol nor DLPack; pass a Buffer, bytes, "
                "bytearray, memoryview, an array, a tensor, or raw addresses to peerlane.raw"
            ) from error
        return _lent(obj)
    except (ValueError, BufferError) as error:
        if dlpack.is_producer(obj):  # the buffer protocol has no format for its element type
            kept, address, size, read_only = _lent(obj)
            # JAX's arrays are immutable, and a capsule older than version 1 cannot say so.
            return kept, address, size, read_only or kept[1].version < (1, 0)
        raise InvalidValue(
            f"as_buffer: the {type(obj).__name__} does not export its bytes: {error}; if it was closed or "
            "released, open it again",
            call="as_buffer",
            detail=Refused(reason="not_exported", type=type(obj).__name__, cause=str(error)),
        ) from error
    if type(obj) is not bytearray and type(obj) is not bytes:
        _check_plain(obj, view, objects=_holds_objects(view), contiguous=view.c_contiguous)
    return view, *_exported(view)


def _exported(obj: memoryview | npt.NDArray[Any]) -> tuple[int, int, bool]:
    exported = host.buffer_of(obj)  # any element type: it asks for no format
    assert exported is not None
    return exported


def _lent(obj: object) -> tuple[tuple[object, Any], int, int, bool]:
    tensor = dlpack.borrow(obj)
    return (obj, tensor), tensor.address, tensor.size, tensor.is_read_only


def _check_plain(
    obj: Any, exporter: memoryview | npt.NDArray[Any], *, objects: bool, contiguous: bool
) -> None:
    if objects:
        raise TypeError(
            f"as_buffer: the {type(obj).__name__} holds Python objects: its bytes are references to them, which a "
            "copy would not count; pass their contents instead"
        )
    if not contiguous:
        raise InvalidValue(
            f"as_buffer: the {type(obj).__name__} is not contiguous in C order (shape {exporter.shape}, strides "
            f"{exporter.strides}); copy it first, for instance with numpy.ascontiguousarray",
            call="as_buffer",
            detail=Refused(
                reason="not_contiguous",
                type=type(obj).__name__,
                shape=exporter.shape,
                strides=exporter.strides,
            ),
        )


def _holds_objects(view: memoryview) -> bool:
    # The format of a ctypes union or packed structure is "B", whatever it holds.
    return "O" in _FIELD_NAME.sub("", view.format) or _has_object_fields(type(view.obj))


def _has_object_fields(kind: Any) -> bool:
    if issubclass(kind, ctypes.Array):
        return _has_object_fields(kind._type_)
    if issubclass(kind, (ctypes.Structure, ctypes.Union)):
        fields = (field for base in kind.__mro__ for field in vars(base).get("_fields_", ()))
        return any(_has_object_fields(field[1]) for field in fields)
    return issubclass(kind, ctypes.py_object)
