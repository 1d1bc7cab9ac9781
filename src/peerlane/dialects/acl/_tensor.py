"""``acl``: descriptions of tensors, types of data, and the log."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from peerlane.dialects._shared.call import (
    Address,
    Int32,
    Object,
    Parse,
    Text,
    UInt32,
    Word,
    as_index,
    int_list,
    type_name,
)
from peerlane.dialects._shared.machine import Resource
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl, machine

_SIZES = {
    **dict.fromkeys([2, 4, 12, 34, 35, 36, 37], 1),  # INT8, UINT8, BOOL, and floats of 8 bits
    **dict.fromkeys([1, 6, 7, 27], 2),  # FLOAT16, INT16, UINT16, BF16
    **dict.fromkeys([0, 3, 8, 33], 4),  # FLOAT, INT32, UINT32, COMPLEX32
    **dict.fromkeys([9, 10, 11, 16], 8),  # INT64, UINT64, DOUBLE, COMPLEX64
    17: 16,  # COMPLEX128
}
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
_LONGEST = 1024
_THIS_PROGRAM = Path("/proc/self/exe")
_CREATE = "acl.create_tensor_desc"


def _half(value: object) -> int:
    return as_index(value) & 0xFFFF


def _float(value: object) -> float:
    if isinstance(value, (str, bytes, bytearray)):
        raise TypeError(f"must be a number, not {type_name(value)}")
    try:
        return float(value)  # type: ignore[arg-type]  # TypeError is the answer
    except OverflowError as error:
        raise TypeError(str(error)) from None


Half = Annotated[int, Parse(_half)]
Float = Annotated[float, Parse(_float)]


@acl.value("acl.data_type_size")
def data_type_size(data_type: Int32) -> int:
    """Return the bytes of one element: 4 for 0 (FLOAT), 2 for 1 (FLOAT16), 8 for 9 (INT64).

    Gives: bare int, 0 for a type without whole bytes, and for no type
    Basis: S; C for elements of less than a byte
    """
    return _SIZES.get(data_type, 0)


@acl.value("acl.float16_to_float")
def float16_to_float(value: Half) -> float:
    """Return the number that 16 bits mean.

    Gives: bare float
    Basis: S
    """
    import numpy as np

    return float(np.uint16(value).view(np.float16))


@acl.value("acl.float_to_float16")
def float_to_float16(value: Float) -> int:
    """Return the 16 bits of a number, rounded to the nearest; one that is too large is infinite.

    Gives: bare int
    Basis: S; C for what does not fit
    """
    import numpy as np

    with np.errstate(over="ignore", under="ignore"):
        return int(np.float32(value).astype(np.float16).view(np.uint16))


@acl.value("acl.app_log")
def app_log(log_level: Int32, message: Text) -> None:
    """Log a text: 0 DEBUG, 1 INFO, 2 WARNING, 3 ERROR.

    What ASCEND_GLOBAL_LOG_LEVEL lets through (3 by default, 4 is nothing) is a line on stderr, and on stdout where
    ASCEND_SLOG_PRINT_TO_STDOUT is 1; the vendor's log files are not written.  A text is cut at 1,024 bytes.

    Gives: bare None
    Basis: S, D; C for stderr
    """
    _log(log_level, message)


@acl.value("aclAppLog")
def log_of_c(log_level: Int32, func: Object, file: Object, line: UInt32, fmt: Object) -> None:
    """Log a text as ``app_log``, with the thread and the place that C says; nothing if one is NULL (facts/acl 6).

    Gives: bare None
    Basis: S; C for stderr
    """
    if not any(each is None for each in (func, file, fmt)):
        _log(log_level, f'{threading.get_native_id()} {func}:{file}:{line}: "{fmt}"')


def _log(log_level: int, message: str) -> None:
    if log_level not in range(_lowest_level(), len(_LEVELS)):
        return
    text = message.encode(errors="replace")[:_LONGEST].decode(errors="ignore")
    out = sys.stdout if os.environ.get("ASCEND_SLOG_PRINT_TO_STDOUT") == "1" else sys.stderr
    at = time.strftime("%Y-%m-%d-%H:%M:%S")
    program = Path(sys.argv[0] if sys.argv and sys.argv[0] else _THIS_PROGRAM.resolve()).name
    print(f"[{_LEVELS[log_level]}] APP({os.getpid()},{program}):{at} {text}", file=out, flush=True)


def _lowest_level() -> int:
    level = os.environ.get("ASCEND_GLOBAL_LOG_LEVEL", "")
    return int(level) if level in ("0", "1", "2", "3", "4") else 3


class AclTensorDesc(Resource):
    """A type, a shape and a format, which no call computes with."""

    __slots__ = ("data_type", "dims", "format", "label")

    name = "tensor description"
    needs_device = False

    def __init__(self, data_type: int, dims: tuple[int, ...], format_: int) -> None:
        super().__init__(machine.process())
        self.data_type, self.dims, self.format = data_type, dims, format_
        self.label = ""

    @property
    def count(self) -> int:
        """How many elements it has: 1 without dimensions, 0 if a dimension is not known."""
        return math.prod(self.dims) if all(each >= 0 for each in self.dims) else 0

    @property
    def size(self) -> int:
        """Its bytes: 0 also for a type without whole bytes."""
        return self.count * _SIZES.get(self.data_type, 0)


@acl.value(_CREATE, failed=lambda _: 0)
def create_tensor_desc(data_type: Int32, dims: Object, format: Int32) -> int:
    """Return the handle of a new description; it needs no device, and outlives resets.

    Gives: bare int, 0 in a forked child
    Refuses: `ValueError` no list of ints
    Basis: S
    """
    shape = tuple(int_list(_CREATE, dims))
    machine.devices()
    return machine.issue(AclTensorDesc(data_type, shape, format))


@acl.value("acl.destroy_tensor_desc", failed=lambda _: None)
def destroy_tensor_desc(tensor_desc: Address) -> None:
    """Destroy a description; 0 is nothing to do, and another number leaves a message.

    Gives: bare None
    Basis: S; C for the message
    """
    if tensor_desc:
        machine.end_deviceless(tensor_desc, AclTensorDesc, _CREATE, "acl.destroy_tensor_desc")


def _getter(name: str, summary: str, of: Callable[[AclTensorDesc], Any], nothing: Any) -> None:
    def get(tensor_desc: Address) -> Any:
        return of(_of(tensor_desc))

    kind = type(nothing)
    get.__doc__ = f"""Return {summary}.

    Gives: bare {kind.__name__}, {repr(nothing) if nothing != "" else "empty"} for other numbers
    Basis: S
    """
    get.__annotations__["return"] = kind
    acl.value(f"acl.get_tensor_desc_{name}", failed=lambda _: nothing)(get)


_getter("type", "the type of data", lambda desc: desc.data_type, -1)
_getter("format", "the format", lambda desc: desc.format, -1)
_getter("size", "the bytes of a tensor of this type and shape", lambda desc: desc.size, 0)
_getter("element_count", "how many elements a tensor of this shape has", lambda desc: desc.count, 0)
_getter("num_dims", "how many dimensions there are", lambda desc: len(desc.dims), 0)


@acl.value("acl.get_tensor_desc_dim", failed=lambda _: -1)
def get_tensor_desc_dim(tensor_desc: Address, index: Word) -> int:
    """Return the size of a dimension: the vendor's older call.

    Gives: bare int, -1 for other numbers
    Basis: S
    """
    return _dim(tensor_desc, index)


@acl.call("acl.get_tensor_desc_dim_v2", out=1)
def get_tensor_desc_dim_v2(tensor_desc: Address, index: Word) -> int:
    """Return the size of a dimension.

    Gives: size
    Refuses: 100000 no description, no dimension
    Basis: S
    """
    return _dim(tensor_desc, index)


_getter("name", "the name, empty before it is set", lambda desc: desc.label, "")


@acl.value("acl.set_tensor_desc_name", failed=lambda _: None)
def set_tensor_desc_name(tensor_desc: Address, name: Text) -> None:
    """Set the name.

    Gives: bare None
    Basis: S
    """
    _of(tensor_desc).label = name


def _dim(tensor_desc: int, index: int) -> int:
    dims = _of(tensor_desc).dims
    if index >= len(dims):
        raise Code.INVALID_PARAM.refusal(
            f"there is no dimension {index}: the tensor description has {len(dims)}",
            "pass an index below acl.get_tensor_desc_num_dims",
        )
    return dims[index]


def _of(number: int) -> AclTensorDesc:
    return machine.deviceless(number, AclTensorDesc, _CREATE)
