"""Tensors of other libraries, borrowed by DLPack, and the texts of the refusals."""

from __future__ import annotations

from typing import Any

from peerlane.backend import host
from peerlane.errors import Error, InvalidValue, Refused

_HOST = (1, 3, 11)  # CPU memory; pinned by CUDA, by ROCm
_DEVICES = {
    **dict(enumerate(("CUDA", "", "OpenCL", "", "", "Vulkan", "Metal", "VPI", "ROCM", "", "ExtDev"), 2)),
    **dict(enumerate(("CUDAManaged", "OneAPI", "WebGPU", "Hexagon", "MAIA", "Trn"), 13)),
}
_VERSION = (1, 3)


def is_producer(obj: object) -> bool:
    """Return whether an object exports its memory by DLPack."""
    return hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__")


def borrow(obj: Any) -> Any:
    """Borrow the bytes of a tensor in host memory; they are given back when the result is dropped.

    Raises TypeError: it does not export DLPack, lives on a device, or holds references.
    Raises InvalidValue: it refuses to export its bytes, they are not contiguous, or their description is impossible.
    """
    try:
        kind, number = obj.__dlpack_device__()
        if kind not in _HOST:
            raise _elsewhere(obj, int(kind), number)
        try:
            capsule = obj.__dlpack__(max_version=_VERSION, copy=False)
        except TypeError:  # older producers know neither keyword
            capsule = obj.__dlpack__()
    except Error:
        raise
    except (BufferError, RuntimeError, ValueError) as error:
        raise _unwilling(obj, error) from error
    lent = host.take_tensor(capsule)
    if lent is None:
        raise InvalidValue(
            f"as_buffer: the {type(obj).__name__} gave {capsule!r} where an untaken DLPack capsule is due",
            call="as_buffer",
            detail=Refused(reason="no_capsule", type=type(obj).__name__, given=type(capsule).__name__),
        )
    if lent.flaw:
        raise _explain(obj, lent)
    # torch exports the bytes of such a view without the negation.
    is_negated = getattr(obj, "is_neg", None)
    if is_negated is not None and is_negated() is True:
        raise _negated(obj)
    return lent


def _negated(obj: object) -> InvalidValue:
    return InvalidValue(
        f"as_buffer: the {type(obj).__name__} is a view with its negative bit set, so its bytes have the other sign; "
        f"write {type(obj).__name__.lower()}.resolve_neg() instead",
        call="as_buffer",
        detail=Refused(reason="negated", type=type(obj).__name__),
    )


def _unwilling(obj: object, error: Exception) -> InvalidValue:
    name = type(obj).__name__
    needs_detach = getattr(obj, "requires_grad", None) is True
    if needs_detach:
        text = (
            f"the {name} requires grad, and autograd would not see a copy; write {name.lower()}.detach() instead, a "
            "tensor on the same bytes"
        )
    else:
        text = f"the {name} does not lend its bytes by DLPack: {error}"
    reason = "requires_grad" if needs_detach else "not_lent"
    return InvalidValue(
        f"as_buffer: {text}", call="as_buffer", detail=Refused(reason=reason, type=name, cause=str(error))
    )


def _elsewhere(obj: object, kind: int, number: object) -> TypeError:
    known = f", kDL{_DEVICES[kind]}" if _DEVICES.get(kind) else ""
    return TypeError(
        f"as_buffer: the {type(obj).__name__} lives on DLPack device ({kind}, {number}){known}, not in host memory; "
        "copy it to the host first"
    )


def _explain(obj: Any, lent: Any) -> Exception:
    """Return the exception for a flaw that native code found."""
    name = type(obj).__name__
    match lent.flaw:
        case "device":
            return _elsewhere(obj, *lent.device)
        case "opaque":
            return TypeError(
                f"as_buffer: the {name} holds opaque handles, whose bytes mean nothing elsewhere; pass their "
                "contents instead"
            )
        case "version":
            text = (
                f"is lent as DLPack {'.'.join(map(str, lent.version))}, and peerlane reads 1.x and what came before; "
                "upgrade peerlane, or pass a NumPy array"
            )
        case "strided":
            remedy = "with .contiguous()" if hasattr(obj, "contiguous") else "with numpy.ascontiguousarray"
            text = (
                f"is not contiguous in C order (shape {lent.shape}, strides {lent.strides} in elements); copy it "
                f"first, for instance {remedy}"
            )
        case "copied":
            text = "lends a copy of its bytes, though none was asked for; pass an object that lends its own"
        case "no_data":
            text = f"has no memory: a null pointer for shape {lent.shape}; give it its values first"
        case "part_of_byte":
            code, bits, lanes = lent.element
            text = (
                f"ends inside a byte: shape {lent.shape} of elements of {bits * lanes} bits (DLPack type {code}); "
                "take a number of elements that fills whole bytes"
            )
        case "too_large":
            text = f"has more bytes than there are addresses: shape {lent.shape} of elements {_type(lent)}"
        case _:
            text = f"describes no array: shape {lent.shape} of elements {_type(lent)}"
    # A tensor of another version has no shape that can be read.
    facts = {"version": lent.version} if lent.flaw == "version" else {"shape": lent.shape}
    return InvalidValue(
        f"as_buffer: the {name} {text}",
        call="as_buffer",
        detail=Refused(reason=lent.flaw, type=name, **facts),
    )


def _type(lent: Any) -> str:
    code, bits, lanes = lent.element
    return f"of DLPack type {code} with {bits} bits and {lanes} lanes"
