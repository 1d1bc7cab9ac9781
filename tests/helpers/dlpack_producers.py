"""Objects that lend memory by DLPack, with any element type and any false claim."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

READ_ONLY, COPIED, PADDED = 1, 2, 4


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("axes", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", _DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


_NAMES = {Managed: b"dltensor", ManagedVersioned: b"dltensor_versioned"}
_DESTRUCTOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)


class Producer:
    """Lends ``data``.

    Parameters
    ----------
    data : ctypes array, int or None
        The memory, an address, or a null pointer.
    shape, strides : sequence of int, optional
        As the tensor says; None: a null pointer.
    axes : int, optional
        By default those of the shape.
    element : tuple of int
        Code, bits and lanes.
    device : tuple of int
        As the tensor says; ``claimed`` is what ``__dlpack_device__`` says.
    version : tuple of int, optional
        None: the structure from before version 1.
    returned : int
        How often the deleter was called.
    """

    def __init__(
        self,
        data: Any,
        shape: Sequence[int] | None,
        *,
        strides: Sequence[int] | None = None,
        axes: int | None = None,
        element: tuple[int, int, int] = (1, 8, 1),
        device: tuple[int, int] = (1, 0),
        claimed: tuple[int, int] | None = None,
        byte_offset: int = 0,
        version: tuple[int, int] | None = (1, 1),
        flags: int = 0,
        deletes: bool = True,
    ) -> None:
        self.returned = 0
        self.options: dict[str, Any] = {}
        self._device = device if claimed is None else claimed
        self._kept = (
            data,
            *(None if each is None else (ctypes.c_int64 * len(each))(*each) for each in (shape, strides)),
        )
        managed: Any = Managed() if version is None else ManagedVersioned()
        if version is not None:
            managed.version, managed.flags = version, flags
        managed.deleter = _DELETER(self._delete) if deletes else _DELETER()
        tensor = managed.tensor
        tensor.data = data if data is None or isinstance(data, int) else ctypes.addressof(data)
        tensor.device, tensor.byte_offset = device, byte_offset
        tensor.axes = axes if axes is not None else len(shape or ())
        tensor.code, tensor.bits, tensor.lanes = element
        for name, entries in zip(("shape", "strides"), self._kept[1:], strict=True):
            if entries is not None:
                setattr(tensor, name, ctypes.cast(entries, ctypes.POINTER(ctypes.c_int64)))
        self.managed = managed
        self._destructor = _DESTRUCTOR(self._destroy)

    def _delete(self, _: int) -> None:
        self.returned += 1

    def _destroy(self, capsule: int) -> None:
        if _is_valid(capsule, _NAMES[type(self.managed)]):  # the capsule was not taken
            self.returned += 1

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, **options: Any) -> Any:
        self.options = options
        return _new_capsule(
            ctypes.addressof(self.managed),
            _NAMES[type(self.managed)],
            ctypes.cast(self._destructor, ctypes.c_void_p),
        )


class OldProducer(Producer):
    """A producer whose ``__dlpack__`` takes no keyword."""

    def __dlpack__(self) -> Any:  # type: ignore[override]
        return super().__dlpack__()


def memory(content: bytes) -> Any:
    """Return memory that holds these bytes."""
    return (ctypes.c_uint8 * len(content)).from_buffer_copy(content)
