"""The elements of collectives, and the memory that has them (facts/hcomm 4)."""

from __future__ import annotations

from peerlane import Buffer, Host
from peerlane.dialects.hcomm._codes import NOT_SUPPORT, PARA, PTR
from peerlane.dialects.hcomm._comm import Comm, comms
from peerlane.dialects.hcomm._header import HcclDataType as _Type
from peerlane.dialects.hcomm._header import HcclReduceOp as _Op
from peerlane.dialects.hcomm._regions import device_memory

_MOST = 0x7FFFFFFFF  # elements; the vendor's limit

#: By HcclDataType: the element types that can be combined.
_REDUCED = {
    int(_Type.HCCL_DATA_TYPE_INT8): "int8",
    int(_Type.HCCL_DATA_TYPE_INT16): "int16",
    int(_Type.HCCL_DATA_TYPE_INT32): "int32",
    int(_Type.HCCL_DATA_TYPE_INT64): "int64",
    int(_Type.HCCL_DATA_TYPE_UINT64): "uint64",
    int(_Type.HCCL_DATA_TYPE_FP16): "float16",
    int(_Type.HCCL_DATA_TYPE_FP32): "float32",
    int(_Type.HCCL_DATA_TYPE_FP64): "float64",
    int(_Type.HCCL_DATA_TYPE_BFP16): "bfloat16",
}
_NO_PROD = (_Type.HCCL_DATA_TYPE_INT16, _Type.HCCL_DATA_TYPE_BFP16)
_OPS = {
    int(_Op.HCCL_REDUCE_SUM): "sum",
    int(_Op.HCCL_REDUCE_PROD): "prod",
    int(_Op.HCCL_REDUCE_MAX): "max",
    int(_Op.HCCL_REDUCE_MIN): "min",
}
#: By HcclDataType: the bytes of an element that can be moved; INT128 cannot.
_WIDTHS = {
    **dict.fromkeys(
        (
            *(_Type.HCCL_DATA_TYPE_INT8, _Type.HCCL_DATA_TYPE_UINT8, _Type.HCCL_DATA_TYPE_HIF8),
            *(_Type.HCCL_DATA_TYPE_FP8E4M3, _Type.HCCL_DATA_TYPE_FP8E5M2, _Type.HCCL_DATA_TYPE_FP8E8M0),
        ),
        1,
    ),
    **dict.fromkeys(
        (
            *(_Type.HCCL_DATA_TYPE_INT16, _Type.HCCL_DATA_TYPE_UINT16),
            *(_Type.HCCL_DATA_TYPE_FP16, _Type.HCCL_DATA_TYPE_BFP16),
        ),
        2,
    ),
    **dict.fromkeys((_Type.HCCL_DATA_TYPE_INT32, _Type.HCCL_DATA_TYPE_UINT32, _Type.HCCL_DATA_TYPE_FP32), 4),
    **dict.fromkeys((_Type.HCCL_DATA_TYPE_INT64, _Type.HCCL_DATA_TYPE_UINT64, _Type.HCCL_DATA_TYPE_FP64), 8),
}


def width_of(dtype: int, *counts: int) -> int:
    """Return the bytes of an element that is moved: HCCL_E_NOT_SUPPORT, and HCCL_E_PARA for too many of them."""
    width = _WIDTHS.get(dtype)
    if width is None:
        raise NOT_SUPPORT.refusal(
            f"dataType is {_name(dtype)}, which collectives do not move",
            "move it as elements of another type, as HCCL_DATA_TYPE_UINT8",
        )
    most = max(counts, default=0)
    if most > _MOST:
        raise PARA.refusal(f"{most:,} elements are more than {_MOST:,}", "move them by several calls")
    return int(width)


def reduction(dtype: int, op: int, *counts: int) -> tuple[int, str, str]:
    """Return the bytes of an element, and the names of its type and of the operation: HCCL_E_NOT_SUPPORT."""
    if dtype not in _REDUCED:
        known = ", ".join(_REDUCED.values())
        raise NOT_SUPPORT.refusal(
            f"dataType is {_name(dtype)}; collectives combine {known}",
            "combine elements of one of these types",
        )
    if op not in _OPS:
        raise NOT_SUPPORT.refusal(f"op is {op}; valid are SUM 0, PROD 1, MAX 2, MIN 3", "pass one of these")
    if op == _Op.HCCL_REDUCE_PROD and dtype in _NO_PROD:
        raise NOT_SUPPORT.refusal(
            f"the product of {_REDUCED[dtype]} is not supported by the vendor",
            "multiply elements of a wider type",
        )
    return width_of(dtype, *counts), _REDUCED[dtype], _OPS[op]


def _name(dtype: int) -> str:
    return _Type(dtype).name if dtype in _Type.__members__.values() else f"{dtype}, not an HcclDataType"


def memory(comm: Comm, name: str, address: int, nbytes: int) -> Buffer:
    """Return memory of this rank: HCCL_E_PTR for NULL, HCCL_E_NOT_FOUND, HCCL_E_PARA for memory of another device.

    The address of 0 bytes may be anything.
    """
    if not nbytes:
        return comm.group.window[:0]
    if not address:
        raise PTR.refusal(f"{name} is NULL, and {nbytes:,} bytes of it are meant", f"pass {name}")
    buffers = (each.regions.part(address, nbytes) for each in (comm, *comms()))  # HcclBuffers are not acl's
    buffer = next(filter(None, buffers), None) or device_memory(name, address, nbytes)
    if not isinstance(buffer.device, Host) and buffer.device != comm.group.device:
        raise PARA.refusal(
            f"{name} {address:#x} is memory of {buffer.device.name}, and {comm} is on {comm.group.device.name}",
            "pass memory of the communicator's device",
        )
    return buffer


def refuse_same(one: int, other: int, nbytes: int) -> None:
    """Refuse one buffer for both ends of a call that does not work in place: HCCL_E_PARA."""
    if one == other and nbytes:
        raise PARA.refusal(
            f"sendBuf and recvBuf are both {one:#x}; this call does not work in place", "pass two buffers"
        )


def refuse_types(send: int, recv: int) -> None:
    """Refuse two types in one call: HCCL_E_PARA."""
    if send != recv:
        raise PARA.refusal(f"sendType is {_name(send)}, recvType {_name(recv)}", "pass one type twice")
