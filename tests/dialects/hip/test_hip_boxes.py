"""Copies of rows, boxes and batches of HIP (facts/hip 1.3, 1.4)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.hip_client import code, done, held, on, read, write
from peerlane.dialects.hip.streams.stream import create

Enter = Callable[..., ModuleType]
pytestmark = pytest.mark.timeout(60)
WIDTH, HEIGHT, DEPTH = 100, 5, 3
NONE_FAILED = (1 << 64) - 1
rng = np.random.default_rng(1)


def kind(hip: ModuleType, name: str = "Default") -> Any:
    return hip.hipMemcpyKind[f"hipMemcpy{name}"]


def pitched(hip: ModuleType, device: int = 0, height: int = HEIGHT) -> tuple[Any, int]:
    done(hip.hipSetDevice(device))
    memory, pitch = done(hip.hipMallocPitch(WIDTH, height))
    done(hip.hipMemset(memory, 0xEE, pitch * height))
    done(hip.hipDeviceSynchronize())
    return memory, pitch


def rows(hip: ModuleType, memory: Any, pitch: int, height: int = HEIGHT) -> Any:
    return read(hip, memory, pitch * height).reshape(height, pitch)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("far", [0, 1])
def test_hip_memcpy_2d_there_and_back_copies_rows_a_pitch_apart(
    hip: ModuleType, far: int, asynchronous: bool
) -> None:
    sent, came = rng.integers(0, 256, (2, HEIGHT, 128), dtype=np.uint8)
    near, pitch = pitched(hip)
    other, _ = pitched(hip, far)
    stream = done(hip.hipStreamCreate())

    def copy(dst: Any, dpitch: int, src: Any, spitch: int, name: str) -> None:
        words = (dst, dpitch, src, spitch, WIDTH, HEIGHT, kind(hip, name))
        done(hip.hipMemcpy2DAsync(*words, stream) if asynchronous else hip.hipMemcpy2D(*words))

    copy(near, pitch, sent, 128, "HostToDevice")
    copy(other, pitch, near, pitch, "DeviceToDevice")
    before = came.copy()
    copy(came, 128, other, pitch, "DeviceToHost")
    assert (came[:, :WIDTH] == sent[:, :WIDTH]).all()
    assert (came[:, WIDTH:] == before[:, WIDTH:]).all()
    assert (rows(hip, other, pitch)[:, WIDTH:] == 0xEE).all()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_hip_memcpy_2d_bad_arguments_return_documented_codes(hip: ModuleType, asynchronous: bool) -> None:
    memory, pitch = pitched(hip)
    host = np.zeros((HEIGHT, 128), np.uint8)

    def copy(*words: Any) -> str:
        return code(hip.hipMemcpy2DAsync(*words, None) if asynchronous else hip.hipMemcpy2D(*words))

    up = kind(hip, "HostToDevice")
    assert copy(memory, WIDTH - 1, host, 128, WIDTH, HEIGHT, up) == "hipErrorInvalidPitchValue"
    assert copy(memory, pitch, host, WIDTH - 1, WIDTH, HEIGHT, up) == "hipErrorInvalidPitchValue"
    assert copy(None, pitch, host, 128, WIDTH, HEIGHT, up) == "hipErrorInvalidValue"
    assert copy(memory, pitch, None, 128, WIDTH, HEIGHT, up) == "hipErrorInvalidValue"
    assert copy(memory, pitch, host, 128, WIDTH, HEIGHT + 1, up) == "hipErrorInvalidValue"
    assert copy(int(memory) + pitch, pitch, host, 128, 128, HEIGHT, up) == "hipErrorInvalidValue"
    assert copy(host, 128, memory, pitch, WIDTH, HEIGHT, up) == "hipErrorInvalidValue"  # host to device only
    assert copy(None, 0, None, 0, 0, HEIGHT, up) == "hipSuccess"
    assert copy(None, 0, None, 0, WIDTH, 0, up) == "hipSuccess"
    assert (rows(hip, memory, pitch) == 0xEE).all()
    if asynchronous:
        words = (memory, pitch, host, 128, WIDTH, HEIGHT, up, 77)
        assert code(hip.hipMemcpy2DAsync(*words)) == "hipErrorContextIsDestroyed"


def test_hip_memcpy_2d_to_pinned_memory_any_kind_copies(hip: ModuleType) -> None:
    memory, pitch = pitched(hip)
    pinned = done(hip.hipHostMalloc(WIDTH * HEIGHT, 0))
    for name in ("DeviceToHost", "DeviceToDevice", "HostToHost", "Default"):
        write(hip, pinned, bytes(WIDTH * HEIGHT))
        done(hip.hipMemcpy2D(pinned, WIDTH, memory, pitch, WIDTH, HEIGHT, kind(hip, name)))
        assert (read(hip, pinned, WIDTH * HEIGHT) == 0xEE).all()


def test_hip_memcpy_2d_async_waits_for_its_stream(hip: ModuleType) -> None:
    (a, pitch), (b, _) = pitched(hip), pitched(hip)
    done(hip.hipMemset2D(a, pitch, 1, WIDTH, HEIGHT))
    stream = create(1)
    done(hip.hipDeviceSynchronize())
    with held(stream):
        done(hip.hipMemcpy2DAsync(b, pitch, a, pitch, WIDTH, HEIGHT, kind(hip), stream))
        assert (rows(hip, b, pitch) == 0xEE).all()
    assert (rows(hip, b, pitch)[:, :WIDTH] == 1).all()


@pytest.mark.parametrize("call", ["hipMemcpyParam2D", "hipMemcpyParam2DAsync", "hipDrvMemcpy2DUnaligned"])
def test_hip_memcpy_param_2d_copies_described_rows_and_refuses_bad_ones(hip: ModuleType, call: str) -> None:
    types = hip.hipMemoryType
    memory, pitch = pitched(hip)
    sent = rng.integers(0, 256, (8, 64), dtype=np.uint8)

    def run(copy: Any) -> str:
        rest = [None] if call.endswith("Async") else []
        return code(getattr(hip, call)(copy, *rest))

    copy = hip.hip_Memcpy2D(
        srcXInBytes=4, srcY=2, srcMemoryType=types.hipMemoryTypeHost, srcHost=sent, srcPitch=64,
        dstXInBytes=10, dstY=1, dstMemoryType=types.hipMemoryTypeDevice, dstDevice=memory, dstPitch=pitch,
        WidthInBytes=20, Height=3,
    )  # fmt: skip
    assert run(copy) == "hipSuccess"
    done(hip.hipDeviceSynchronize())
    content = rows(hip, memory, pitch)
    assert (content[1:4, 10:30] == sent[2:5, 4:24]).all()
    content[1:4, 10:30] = 0xEE
    assert (content == 0xEE).all()
    copy.dstMemoryType = types.hipMemoryTypeUnified
    assert run(copy) == "hipSuccess"
    copy.dstY = HEIGHT - 2
    assert run(copy) == "hipErrorInvalidValue"  # beyond
    copy.dstY, copy.dstPitch = 0, 19
    assert run(copy) == "hipErrorInvalidValue"
    copy.dstPitch, copy.dstMemoryType = pitch, types.hipMemoryTypeUnregistered
    assert run(copy) == "hipErrorInvalidValue"
    copy.dstMemoryType, copy.dstDevice = types.hipMemoryTypeDevice, sent
    assert run(copy) == "hipErrorInvalidValue"
    copy.dstMemoryType = types.hipMemoryTypeArray
    assert run(copy) == "hipErrorInvalidValue"  # NULL
    copy.dstArray = 64
    assert run(copy) == "hipErrorNotSupported"
    copy.Height = 0
    assert run(copy) == "hipSuccess"
    assert run(None) == "hipErrorInvalidValue"


def box(hip: ModuleType, device: int, fill: int) -> Any:
    done(hip.hipSetDevice(device))
    allocation = done(hip.hipMalloc3D(hip.hipExtent(WIDTH, HEIGHT, DEPTH)))
    done(hip.hipMemset(allocation.ptr, fill, allocation.pitch * HEIGHT * DEPTH))
    done(hip.hipDeviceSynchronize())
    return allocation


def contents(hip: ModuleType, allocation: Any) -> Any:
    return read(hip, allocation.ptr, allocation.pitch * HEIGHT * DEPTH).reshape(
        DEPTH, HEIGHT, allocation.pitch
    )


def set_pitched(target: Any, source: Any) -> None:
    ctypes.memmove(int(target), int(source), source.c_sizeof())


def parameters(hip: ModuleType, name: str, dst: Any, src: Any, extent: tuple[int, int, int]) -> Any:
    allocation = getattr(hip, name)()
    set_pitched(allocation.dstPtr, dst)
    set_pitched(allocation.srcPtr, src)
    allocation.extent.width, allocation.extent.height, allocation.extent.depth = extent
    return allocation


CALLS = {
    "hipMemcpy3D": ("hipMemcpy3DParms", 0),
    "hipMemcpy3DAsync": ("hipMemcpy3DParms", 1),
    "hipMemcpy3DPeer": ("hipMemcpy3DPeerParms", 0),
    "hipMemcpy3DPeerAsync": ("hipMemcpy3DPeerParms", 1),
}


@pytest.mark.parametrize("call", CALLS)
def test_hip_memcpy_3d_copies_box_at_its_offsets(hip: ModuleType, call: str) -> None:
    src, dst = box(hip, 0, 1), box(hip, 1, 0xEE)
    sent = rng.integers(0, 256, (DEPTH, HEIGHT, src.pitch), dtype=np.uint8)
    write(hip, src.ptr, sent.tobytes())
    name, streams = CALLS[call]
    allocation = parameters(hip, name, dst, src, (50, 2, 2))
    allocation.srcPos.x, allocation.srcPos.y, allocation.srcPos.z = 5, 1, 1
    allocation.dstPos.x, allocation.dstPos.y, allocation.dstPos.z = 7, 3, 0
    if "Peer" in call:
        allocation.srcDevice, allocation.dstDevice = 0, 1
    else:
        allocation.kind = kind(hip, "DeviceToDevice")
    done(getattr(hip, call)(allocation, *[None] * streams))
    done(hip.hipDeviceSynchronize())
    content = contents(hip, dst)
    assert (content[0:2, 3:5, 7:57] == sent[1:3, 1:3, 5:55]).all()
    content[0:2, 3:5, 7:57] = 0xEE
    assert (content == 0xEE).all()


@pytest.mark.parametrize("call", CALLS)
def test_hip_memcpy_3d_bad_parameters_return_documented_codes(hip: ModuleType, call: str) -> None:
    src, dst = box(hip, 0, 1), box(hip, 1, 0xEE)
    name, streams = CALLS[call]

    def run(change: Callable[[Any], object], extent: tuple[int, int, int] = (WIDTH, HEIGHT, DEPTH)) -> str:
        allocation = parameters(hip, name, dst, src, extent)
        if "Peer" not in call:
            allocation.kind = kind(hip)
        change(allocation)
        return code(getattr(hip, call)(allocation, *[None] * streams))

    def field_of(end: str, **values: int) -> Callable[[Any], None]:
        def change(allocation: Any) -> None:
            for field, value in values.items():
                setattr(getattr(allocation, end), field, value)

        return change

    assert run(field_of("dstPtr", ptr=0)) == "hipErrorInvalidValue"
    assert run(field_of("srcPtr", ptr=0)) == "hipErrorInvalidValue"
    assert (
        run(lambda allocation: setattr(allocation, "srcArray", 64)) == "hipErrorInvalidValue"
    )  # two sources

    def array(allocation: Any) -> None:
        allocation.srcArray, allocation.srcPtr.ptr = 64, 0

    assert run(array) == "hipErrorNotSupported"
    assert run(field_of("dstPtr", pitch=WIDTH - 1)) == "hipErrorInvalidPitchValue"
    assert run(field_of("dstPtr", pitch=(1 << 31) - 1)) == "hipErrorInvalidValue"
    assert run(field_of("srcPos", x=200)) == "hipErrorInvalidValue"
    assert run(field_of("srcPos", z=1)) == "hipErrorInvalidValue"  # beyond
    assert run(field_of("dstPos", y=1)) == "hipErrorInvalidValue"
    assert run(field_of("dstPtr", ysize=HEIGHT - 1)) == "hipErrorInvalidValue"
    assert run(lambda allocation: None, (WIDTH, HEIGHT, 0)) == "hipSuccess"
    assert code(getattr(hip, call)(None, *[None] * streams)) == "hipErrorInvalidValue"
    if "Peer" in call:
        for field in ("srcDevice", "dstDevice"):
            for bad in (-1, 2):
                assert (
                    run(lambda allocation, f=field, n=bad: setattr(allocation, f, n))
                    == "hipErrorInvalidDevice"
                )
    else:

        def host(allocation: Any) -> None:
            allocation.kind, allocation.srcPtr.ptr = kind(hip, "DeviceToHost"), np.zeros(1 << 14)

        assert run(host) == "hipErrorInvalidValue"
    assert (contents(hip, dst) == 0xEE).all()


def test_hip_memcpy_3d_from_pageable_memory_copies_whole_box(hip: ModuleType) -> None:
    dst = box(hip, 0, 0xEE)
    sent = rng.integers(0, 256, (DEPTH, HEIGHT, WIDTH), dtype=np.uint8)
    src = hip.hipPitchedPtr(sent, WIDTH, WIDTH, HEIGHT)
    allocation = parameters(hip, "hipMemcpy3DParms", dst, src, (WIDTH, HEIGHT, DEPTH))
    allocation.kind = kind(hip, "HostToDevice")
    done(hip.hipMemcpy3D(allocation))
    content = contents(hip, dst)
    assert (content[:, :, :WIDTH] == sent).all()
    assert (content[:, :, WIDTH:] == 0xEE).all()


def test_hip_memcpy_3d_peer_follows_work_of_both_devices_and_does_not_wait(hip: ModuleType) -> None:
    src, dst = box(hip, 0, 1), box(hip, 1, 0xEE)
    stream = done(hip.hipStreamCreate())
    allocation = parameters(hip, "hipMemcpy3DPeerParms", dst, src, (WIDTH, HEIGHT, DEPTH))
    allocation.srcDevice, allocation.dstDevice = 0, 1
    done(hip.hipSetDevice(0))
    with held(stream):
        done(hip.hipMemset2DAsync(dst.ptr, dst.pitch, 7, dst.pitch, HEIGHT * DEPTH, stream))
        done(hip.hipMemcpy3DPeer(allocation))
    done(hip.hipSetDevice(1))
    content = contents(hip, dst)
    assert (content[:, :, :WIDTH] == 1).all()
    assert (content[:, :, WIDTH:] == 7).all()


@pytest.mark.parametrize("call", ["hipDrvMemcpy3D", "hipDrvMemcpy3DAsync"])
def test_hip_drv_memcpy_3d_copies_described_box_and_refuses_bad_ones(hip: ModuleType, call: str) -> None:
    types = hip.hipMemoryType
    dst = box(hip, 1, 0xEE)
    sent = rng.integers(0, 256, (4, 6, 64), dtype=np.uint8)

    def run(copy: Any) -> str:
        return code(getattr(hip, call)(copy, *[None] * call.endswith("Async")))

    copy = hip.HIP_MEMCPY3D(
        srcXInBytes=4, srcY=2, srcZ=1, srcMemoryType=types.hipMemoryTypeHost, srcHost=sent, srcPitch=64,
        srcHeight=6, dstXInBytes=10, dstY=1, dstMemoryType=types.hipMemoryTypeDevice, dstDevice=dst.ptr,
        dstPitch=dst.pitch, dstHeight=HEIGHT, WidthInBytes=20, Height=3, Depth=2,
    )  # fmt: skip
    assert run(copy) == "hipSuccess"
    done(hip.hipDeviceSynchronize())
    content = contents(hip, dst)
    assert (content[0:2, 1:4, 10:30] == sent[1:3, 2:5, 4:24]).all()
    content[0:2, 1:4, 10:30] = 0xEE
    assert (content == 0xEE).all()
    copy.dstHeight = 2
    assert run(copy) == "hipErrorInvalidValue"
    copy.Depth = 0
    assert run(copy) == "hipSuccess"
    assert run(None) == "hipErrorInvalidValue"


def batch(hip: ModuleType) -> tuple[list[Any], list[Any], list[int]]:
    srcs = [on(hip, number % 2, 64, number + 1) for number in range(4)]
    dsts = [on(hip, (number + 1) % 2, 64) for number in range(4)]
    return dsts, srcs, [64, 1, 33, 64]


@pytest.mark.parametrize("on_stream", [False, True])
def test_hip_memcpy_batch_async_copies_every_pair(hip: ModuleType, on_stream: bool) -> None:
    dsts, srcs, sizes = batch(hip)
    failed = ctypes.c_uint64(5)
    stream = done(hip.hipStreamCreate()) if on_stream else None
    words = (dsts, srcs, sizes, 4, None, None, 0, ctypes.addressof(failed), stream)
    assert hip.hipMemcpyBatchAsync(*words) == (hip.hipError_t.hipSuccess, NONE_FAILED)
    assert failed.value == NONE_FAILED
    done(hip.hipStreamSynchronize(stream))
    for number, (dst, nbytes) in enumerate(zip(dsts, sizes, strict=True)):
        assert read(hip, dst, 64).tolist() == [number + 1] * nbytes + [0] * (64 - nbytes)


def test_hip_memcpy_batch_async_failing_copy_ends_batch_and_returns_its_index(hip: ModuleType) -> None:
    dsts, srcs, sizes = batch(hip)
    failed = ctypes.c_uint64(5)

    def run(sizes: list[int], dsts: list[Any] = dsts) -> tuple[str, int]:
        words = (dsts, srcs, sizes, 4, None, None, 0, ctypes.addressof(failed), None)
        error, index = hip.hipMemcpyBatchAsync(*words)
        assert failed.value == index
        return error.name, index

    assert run([64, 64, 0, 64]) == ("hipErrorInvalidValue", 2)
    assert run([64, 65, 64, 64]) == ("hipErrorInvalidValue", 1)
    assert run(sizes, [*dsts[:3], None]) == ("hipErrorInvalidValue", 3)
    done(hip.hipDeviceSynchronize())
    assert (read(hip, dsts[1], 64)[:1] == 2).all()


def test_hip_memcpy_batch_async_bad_arguments_return_documented_codes(hip: ModuleType) -> None:
    dsts, srcs, sizes = batch(hip)
    attributes = hip.hipMemcpyAttributes()

    def run(*words: Any) -> str:
        return code(hip.hipMemcpyBatchAsync(*words))

    assert run(None, srcs, sizes, 4, None, None, 0, None, None) == "hipErrorInvalidValue"
    assert run(dsts, None, sizes, 4, None, None, 0, None, None) == "hipErrorInvalidValue"
    assert run(dsts, srcs, None, 4, None, None, 0, None, None) == "hipErrorInvalidValue"
    assert run(dsts, srcs, sizes, 0, None, None, 0, None, None) == "hipErrorInvalidValue"
    assert run(dsts, srcs, sizes, 4, attributes, [0], 1, None, None) == "hipErrorInvalidValue"  # no order
    assert run(dsts, srcs, sizes, 4, None, None, 0, None, 77) == "hipErrorInvalidHandle"


def attributes(hip: ModuleType, *orders: str, flags: int = 0) -> Any:
    allocation = hip.hipMemcpyAttributes.allocate(len(orders))
    for at, order in enumerate(orders):
        allocation.set_srcAccessOrder(at, hip.hipMemcpySrcAccessOrder[f"hipMemcpySrcAccessOrder{order}"])
        allocation.set_flags(at, flags)
    return allocation


def test_hip_memcpy_batch_async_takes_attributes_from_their_first_copy_on(hip: ModuleType) -> None:
    dsts, srcs, sizes = batch(hip)
    orders = attributes(hip, "Stream", "Any", "DuringApiCall", flags=1)

    def run(starts: list[int] | None, attribute: Any = orders, count: int = 4) -> str:
        number = 3 if starts is None else len(starts)
        return code(hip.hipMemcpyBatchAsync(dsts, srcs, sizes, count, attribute, starts, number, None, None))

    assert run([0, 1, 3]) == "hipSuccess"
    done(hip.hipDeviceSynchronize())
    assert [int(read(hip, each, 1)[0]) for each in dsts] == [1, 2, 3, 4]
    for wrong in (None, [1, 2, 3], [0, 2, 2], [0, 3, 1], [0, 1, 4]):
        assert run(wrong) == "hipErrorInvalidValue"
    assert run([0], None) == "hipErrorInvalidValue"
    assert run([0, 1, 2], count=2) == "hipErrorInvalidValue"
    assert run([0], attributes(hip, "Max")) == "hipErrorInvalidValue"
    assert run([0, 1], attributes(hip, "Any")) == "hipErrorInvalidValue"  # there is one
    assert run([0], attributes(hip, "Any", flags=512)) == "hipErrorNotSupported"


def test_hip_memcpy_batch_async_has_read_its_source_when_attributes_require_it(hip: ModuleType) -> None:
    source, target = done(hip.hipHostMalloc(64, 0)), on(hip, 0, 64)
    done(hip.hipMemset(source, 7, 64))
    attribute = attributes(hip, "DuringApiCall")
    assert (
        code(hip.hipMemcpyBatchAsync([target], [source], [64], 1, attribute, [0], 1, None, None))
        == "hipSuccess"
    )
    ctypes.memset(int(source), 1, 64)
    assert (read(hip, target, 64) == 7).all()


def test_hip_memcpy_batch_async_without_sizes_returns_invalid_value(hip: ModuleType) -> None:
    from peerlane.dialects.hip import explain

    dsts, srcs, _ = batch(hip)
    invalid = hip.hipError_t.hipErrorInvalidValue
    assert hip.hipMemcpyBatchAsync(srcs, 4, None, 0, None) == (invalid, None, 0, 0, 0)
    assert "makes an output of `sizes`" in explain()
    assert hip.hipMemcpyBatchAsync(dsts, srcs, 4, None, 0, None) == (invalid, 0, 0, 0)
    with pytest.raises(TypeError):
        hip.hipMemcpyBatchAsync(dsts, srcs)


def operations(hip: ModuleType, *pairs: tuple[Any, Any], extent: tuple[int, int, int]) -> Any:
    allocation = hip.hipMemcpy3DBatchOp.allocate(len(pairs))
    for at, pair in enumerate(pairs):
        for operand, memory in zip((allocation.get_dst(at), allocation.get_src(at)), pair, strict=True):
            operand.type = hip.hipMemcpy3DOperandType.hipMemcpyOperandTypePointer
            operand.op.ptr.ptr, operand.op.ptr.rowLength = memory.ptr, memory.pitch
            operand.op.ptr.layerHeight = HEIGHT
        inner = allocation.get_extent(at)
        inner.width, inner.height, inner.depth = extent
    return allocation


def test_hip_memcpy_3d_batch_async_copies_every_box(hip: ModuleType) -> None:
    a, b, c, d = (box(hip, number % 2, number + 1) for number in range(4))
    allocation = operations(hip, (b, a), (d, c), extent=(WIDTH, HEIGHT, DEPTH))
    assert hip.hipMemcpy3DBatchAsync(2, allocation, 0, None) == (hip.hipError_t.hipSuccess, NONE_FAILED)
    done(hip.hipDeviceSynchronize())
    for target, before, value in ((b, 2, 1), (d, 4, 3)):
        content = contents(hip, target)
        assert (content[:, :, :WIDTH] == value).all()
        assert (content[:, :, WIDTH:] == before).all()


def test_hip_memcpy_3d_batch_async_bad_arguments_return_code_and_index(hip: ModuleType) -> None:
    a, b = box(hip, 0, 1), box(hip, 1, 2)
    allocation = operations(hip, (b, a), (b, a), extent=(WIDTH, HEIGHT, DEPTH))
    assert code(hip.hipMemcpy3DBatchAsync(0, allocation, 0, None)) == "hipErrorInvalidValue"
    assert code(hip.hipMemcpy3DBatchAsync(2, None, 0, None)) == "hipErrorInvalidValue"
    assert code(hip.hipMemcpy3DBatchAsync(2, allocation, 1, None)) == "hipErrorInvalidValue"
    assert code(hip.hipMemcpy3DBatchAsync(2, allocation, 0, 77)) == "hipErrorInvalidHandle"
    allocation.get_extent(1).depth = DEPTH + 1
    assert hip.hipMemcpy3DBatchAsync(2, allocation, 0, None) == (hip.hipError_t.hipErrorInvalidValue, 1)
    allocation.get_src(0).type = hip.hipMemcpy3DOperandType.hipMemcpyOperandTypeArray
    allocation.get_src(0).op.array.array = 64
    assert hip.hipMemcpy3DBatchAsync(2, allocation, 0, None) == (hip.hipError_t.hipErrorNotSupported, 0)
