"""The promises of docs/errors.md on lent tensors and on element types."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from helpers.dlpack_producers import COPIED, READ_ONLY, OldProducer, Producer, memory
from helpers.promises import Node, filled, untouched
from peerlane.errors import Fault

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(60)]


@pytest.mark.parametrize(
    ("kind", "name"),
    [(2, "kDLCUDA"), (8, "kDLMetal"), (10, "kDLROCM"), (12, "kDLExtDev"), (13, "kDLCUDAManaged")],
)
def test_as_buffer_of_device_tensor_raises_type_error(kind: int, name: str) -> None:
    claimed_pointer = Producer(memory(bytes(4)), (4,), device=(kind, 3))
    unclaimed_pointer = Producer(memory(bytes(4)), (4,), device=(kind, 3), claimed=(1, 0))
    for lender in (claimed_pointer, unclaimed_pointer):
        with pytest.raises(
            TypeError, match=rf"Producer lives on DLPack device \({kind}, 3\), {name}, not in host"
        ):
            pl.as_buffer(lender)
    gc.collect()
    assert (claimed_pointer.returned, unclaimed_pointer.returned) == (0, 1)
    for number in (0, -1, 5, 99):
        with pytest.raises(TypeError, match=rf"DLPack device \({number}, 0\), not in host memory"):
            pl.as_buffer(Producer(memory(bytes(4)), (4,), device=(number, 0)))


FALSE: dict[str, tuple[dict[str, Any], str]] = {
    "version": ({"version": (2, 0)}, r"is lent as DLPack 2\.0, and peerlane reads 1\.x"),
    "version 0": ({"version": (0, 9)}, r"lent as DLPack 0\.9"),
    "no version": ({"version": (0xFFFFFFFF, 0xFFFFFFFF)}, r"lent as DLPack 4294967295\.4294967295"),
    "negative length": ({"shape": (4, -1)}, r"describes no array: shape \(4, -1\)"),
    "negative beside empty": ({"shape": (0, -1)}, "describes no array"),
    "negative axes": ({"axes": -1}, r"describes no array: shape \(\)"),
    "many axes": ({"axes": 1 << 30}, "describes no array"),
    "axes without shape": ({"shape": None, "axes": 2}, "describes no array"),
    "no bits": ({"element": (2, 0, 1)}, "describes no array: .* DLPack type 2 with 0 bits and 1 lanes"),
    "no lanes": ({"element": (2, 8, 0)}, "describes no array"),
    "too many": ({"shape": (1 << 32, 1 << 32)}, "has more bytes than there are addresses"),
    "wraps to little": ({"shape": (1 << 62, 4, 4)}, "has more bytes"),
    "too many bytes": ({"shape": (1 << 61,), "element": (2, 64, 1)}, "has more bytes"),
    "too many bits": ({"shape": (1 << 61,), "element": (17, 4, 1)}, "has more bytes"),
    "offset wraps": ({"byte_offset": (1 << 64) - 1}, "has more bytes"),
    "end wraps": ({"data": (1 << 64) - 4, "shape": (5,)}, "has more bytes"),
    "null": ({"data": None}, r"has no memory: a null pointer for shape \(4,\)"),
    "null with an offset": ({"data": None, "byte_offset": 64}, "has no memory"),
    "part of a byte": (
        {"shape": (3,), "element": (17, 4, 1)},
        r"ends inside a byte: shape \(3,\) of elements of 4 bits",
    ),
    "one bit": ({"shape": (), "element": (6, 1, 1)}, "ends inside a byte"),
    "copied": ({"flags": COPIED}, "lends a copy of its bytes, though none was asked for"),
    "strided": (
        {"shape": (2, 2), "strides": (1, 2)},
        r"not contiguous in C order \(shape \(2, 2\), strides \(1, 2\) in el",
    ),
    "backwards": ({"shape": (4,), "strides": (-1,)}, "not contiguous .* numpy.ascontiguousarray"),
    "repeated": ({"shape": (4,), "strides": (0,)}, "not contiguous"),
    "strides that wrap": ({"shape": (2, 2), "strides": (-(1 << 63), 1)}, "not contiguous"),
}


@pytest.mark.parametrize("name", FALSE)
def test_as_buffer_of_false_tensor_raises_and_gives_back(node: Node, name: str) -> None:
    d0, _ = node()
    buffer = filled(d0, 4, 7)
    changed, text = FALSE[name]
    for version in ((1, 0), None):
        if version is None and {"version", "flags"} & set(changed):
            continue
        lender = Producer(**{"data": memory(bytes(4)), "shape": (4,), "version": version, **changed})
        for copy in (buffer.copy_from, buffer.copy_to):
            with pytest.raises(pl.InvalidValue, match=f"as_buffer: the Producer .*{text}") as refused:
                copy(lender)
            assert refused.value.call == "as_buffer"
        del refused
        gc.collect()
        assert lender.returned == 2
    assert untouched(buffer, 7)


def test_copy_with_tensor_at_wild_address_raises_host_fault(node: Node) -> None:
    d0, _ = node()
    buffer = filled(d0, 4, 7)
    for copy in (buffer.copy_from, buffer.copy_to):
        with pytest.raises(pl.BadAddress) as refused:
            copy(Producer(0x1000, (4,)))
        assert refused.value.fault is Fault.HOST_FAULT


def test_as_buffer_of_opaque_tensor_raises_type_error() -> None:
    with pytest.raises(TypeError, match="Producer holds opaque handles"):
        pl.as_buffer(Producer(memory(bytes(8)), (1,), element=(3, 64, 1)))


class _Capsules:
    def __init__(self, *answers: object) -> None:
        self.answers = iter(answers)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: object) -> object:
        answer = next(self.answers)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def test_as_buffer_without_untaken_capsule_raises() -> None:
    lender = Producer(memory(b"abcd"), (4,))
    capsule = lender.__dlpack__()
    answers: Iterator[object] = iter((None, 5, b"dltensor"))
    for each in answers:
        with pytest.raises(
            pl.InvalidValue, match=r"_Capsules gave .* where an untaken DLPack capsule is due"
        ):
            pl.as_buffer(_Capsules(each))
    assert bytes(pl.as_buffer(_Capsules(capsule)).view()) == b"abcd"
    assert "used_dltensor_versioned" in repr(capsule)
    with pytest.raises(pl.InvalidValue, match="used_dltensor_versioned"):
        pl.as_buffer(_Capsules(capsule))
    del capsule
    gc.collect()
    assert lender.returned == 1
    old = OldProducer(memory(b"abcd"), (4,), version=None)
    capsule = old.__dlpack__()
    pl.as_buffer(_Capsules(capsule))
    assert '"used_dltensor"' in repr(capsule)
    assert old.returned == 1


def test_as_buffer_of_unlent_tensor_raises_with_its_cause() -> None:
    for error in (BufferError("not now"), RuntimeError("not now"), ValueError("not now")):
        with pytest.raises(
            pl.InvalidValue, match="_Capsules does not lend its bytes by DLPack: not now"
        ) as refused:
            pl.as_buffer(_Capsules(error))
        assert refused.value.__cause__ is error
    for passed in (pl.Closed("closed"), KeyboardInterrupt(), MemoryError("not now")):
        with pytest.raises(type(passed)) as same:
            pl.as_buffer(_Capsules(passed))
        assert same.value is passed
    twice = _Capsules(TypeError("no such keyword"), TypeError("never"))
    with pytest.raises(TypeError, match="never"):
        pl.as_buffer(twice)


def test_as_buffer_of_tensor_with_grad_advises_detach() -> None:
    class Parameter(_Capsules):
        requires_grad = True

    parameter = Parameter(BufferError("Can't export tensors that require gradient"))
    with pytest.raises(
        pl.InvalidValue, match=r"the Parameter requires grad, .*write parameter.detach\(\) instead"
    ):
        pl.as_buffer(parameter)


def test_as_buffer_of_negated_tensor_advises_resolve_neg() -> None:
    lender = Producer(memory(bytes(8)), (2,), element=(2, 32, 1))
    lender.is_neg = lambda: True  # type: ignore[attr-defined]
    with pytest.raises(pl.InvalidValue, match=r"negative bit set.*write producer.resolve_neg\(\) instead"):
        pl.as_buffer(lender)
    gc.collect()
    assert lender.returned == 1


def test_as_buffer_of_strided_tensor_advises_contiguous() -> None:
    lender = Producer(memory(bytes(8)), (2, 2), strides=(1, 2))
    lender.contiguous = lambda: None  # type: ignore[attr-defined]
    with pytest.raises(pl.InvalidValue, match=r"for instance with \.contiguous\(\)"):
        pl.as_buffer(lender)


def test_copy_to_read_only_tensor_raises_access_denied(node: Node) -> None:
    d0, _ = node()
    held = memory(b"abcd")
    for copy in (filled(d0, 4, 7).copy_to, lambda lender: pl.fill(lender, 0)):
        with pytest.raises(pl.AccessDenied, match="read-only") as refused:
            copy(Producer(held, (4,), flags=READ_ONLY))
        assert refused.value.fault is Fault.READ_ONLY
    assert bytes(held) == b"abcd"


_WITHOUT = """
import sys
sys.modules["ml_dtypes"] = None
import peerlane as pl
buffer = pl.Host().allocate(16)
for dtype in ("bfloat16", "float8_e4m3fn", "int4"):
    try:
        buffer.view(dtype)
    except pl.Unsupported as error:
        print(error)
for dtype in ("nonsense", "float32x"):
    try:
        buffer.view(dtype)
    except TypeError as error:
        print(error)
pl.reduce(buffer, buffer, dtype="bfloat16", op="max")
print(buffer.view("float16").size)
"""


def test_view_of_unknown_type_raises(node: Node) -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    for line, name in zip(lines, ("bfloat16", "float8_e4m3fn", "int4"), strict=False):
        assert line == (
            f"Buffer.view: NumPy has {name} only with the package ml_dtypes, which is not installed; install it (pip "
            "install ml_dtypes), or take the bytes as uint8"
        )
    for line, name in zip(lines[3:], ("nonsense", "float32x (did you mean 'float32'?)"), strict=False):
        assert (
            line == f"Buffer.view: neither NumPy nor ml_dtypes has the type {name}; take the bytes as uint8"
        )
    assert lines[5:] == ["8"]
    buffer = node()[0].allocate(8)
    wrong: list[Any] = [5, object(), 1.5, [("a", "nothing")]]
    for dtype in wrong:
        with pytest.raises(
            TypeError, match=r"Buffer\.view: dtype must be what numpy\.dtype\(\) takes, the name of a type"
        ):
            buffer.view(dtype)
    for dtype in ("nonsense", "finfo", "iinfo", "__name__"):
        with pytest.raises(TypeError, match=f"neither NumPy nor ml_dtypes has the type {dtype}"):
            buffer.view(dtype)
    for dtype, meant in (("bf16", "bfloat16"), ("fp32", "float32"), ("torch.float16", "float16")):
        with pytest.raises(TypeError, match=rf"has the type {dtype} \(did you mean '{meant}'\?\)"):
            buffer.view(dtype)
    with pytest.raises(TypeError, match="a shape stands behind the type"):
        buffer.view((2, 4))


def test_dlpack_export_to_other_device_or_stream_raises(node: Node) -> None:
    d0, _ = node()
    buffer = filled(d0, 8, 5)
    wrong: list[dict[str, Any]] = [{"stream": 1}, {"dl_device": (2, 0)}, {"dl_device": (1, 1)}]
    for options in wrong:
        with pytest.raises(BufferError, match=r"valid are None, and None or \(1, 0\)"):
            buffer.__dlpack__(**options)
    with pytest.raises(TypeError):
        buffer.__dlpack__(nonsense=1)  # type: ignore[call-arg]
    for version in (None, (0, 8), (1, 0), (1, 3)):
        for device in (None, (1, 0), buffer.__dlpack_device__()):
            for copy in (None, False, True):
                capsule = buffer.__dlpack__(stream=None, max_version=version, dl_device=device, copy=copy)
                lent = pl.as_buffer(_Capsules(capsule)) if not copy else None
                assert lent is None or untouched(lent, 5)
    part: Any = buffer
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        copied = np.from_dlpack(part, copy=True)
        copied[:] = 1
        assert untouched(buffer, 5)
    frozen = pl.as_buffer(bytes(4))
    with pytest.raises(BufferError):
        frozen.__dlpack__()
