"""Words that streams of HIP write and wait for: the rows of facts/hip 3.7, and batches of them."""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.hip_calls import AND, EQ, GTE, NOR, code, content, done, holding
from peerlane.dialects.hip import explain

INVENTED = 1 << 20
Enter = Callable[..., ModuleType]
WIDTHS = [32, 64]
WAIT32, WRITE32, FLUSH, WAIT64, WRITE64, BARRIER = range(1, 7)

pytestmark = pytest.mark.timeout(60)


class Operation(ctypes.Structure):
    """hipStreamBatchMemOpParams as the C header has it, for waits and writes."""

    _fields_ = (
        ("operation", ctypes.c_uint),
        ("address", ctypes.c_void_p),
        ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint),
        ("alias", ctypes.c_void_p),
        ("pad", ctypes.c_uint64),
    )


def operations(*rows: tuple[int, int, int, int]) -> Any:
    return (Operation * len(rows))(*((*row, None, 0) for row in rows))


def wait(hip: ModuleType, width: int) -> Callable[..., Any]:
    return getattr(hip, f"hipStreamWaitValue{width}")  # type: ignore[no-any-return]


def write(hip: ModuleType, width: int) -> Callable[..., Any]:
    return getattr(hip, f"hipStreamWriteValue{width}")  # type: ignore[no-any-return]


def pinned(hip: ModuleType) -> Any:
    signal = ctypes.c_uint64.from_address(int(done(hip.hipHostMalloc(8, 0))))
    signal.value = 0
    return signal


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", ["device", "other device", "pinned"])
@pytest.mark.parametrize("offset", [0, 1, 31, 1023])
def test_hip_stream_write_value_changes_only_that_word(
    hip: ModuleType, width: int, kind: str, offset: int
) -> None:
    nbytes, value = width // 8, 0x1122334455667788 % (1 << width)
    if kind == "other device":
        done(hip.hipSetDevice(1))
    memory = int(done(hip.hipHostMalloc(8192, 0) if kind == "pinned" else hip.hipMalloc(8192)))
    done(hip.hipMemcpy(memory, bytes(8192), 8192, hip.hipMemcpyKind.hipMemcpyDefault))
    done(hip.hipSetDevice(0))
    stream = done(hip.hipStreamCreate())
    done(write(hip, width)(stream, memory + offset * nbytes, value, 0))
    done(hip.hipStreamSynchronize(stream))
    before = bytes(offset * nbytes)
    assert content(hip, memory, 8192) == (before + value.to_bytes(nbytes, "little")).ljust(8192, b"\0")


# comparison, mask, value, a word that holds the stream, a word that releases it
COMPARED = [
    (GTE, None, 0x7FFF0001, 0x7FFF0000, 0x7FFF0010),
    (GTE, 0xF, 0x4, 0x3, 0x6),
    (GTE, None, 1 << 31, (1 << 31) - 1, 1 << 31),  # unsigned
    (EQ, None, 0x7FFFFFFF, 0x7FFF0000, 0x7FFFFFFF),
    (EQ, 0xFFFF, 0x1, 0x0FFF0000, 0x0FFF0001),
    (EQ, 0xFF, 0x11, 0x25, 0x11),
    (AND, None, 0x70F0F0F0, 0x0F0F0F0F, 0x1F0F0F0F),
    (AND, 0xFF, 0xF4A, 0xF35, 0x02),
    (NOR, None, 0x7AAAAAAA, 0x85555555, 0x9AAAAAAA),
    (NOR, 0xF, 0xA, 0xFFFFFFF5, 0xFFFFFFF1),  # bits outside the mask do not count
]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("compare", "mask", "value", "held", "passing"), COMPARED)
def test_hip_stream_wait_value_holds_stream_until_condition_is_met(
    hip: ModuleType, width: int, compare: int, mask: int | None, value: int, held: int, passing: int
) -> None:
    if compare == NOR and mask is None and width == 64:
        high = 0xFFFFFFFF << 32
        value, held, passing = value | high, held | high, passing | high
    everything = (1 << width) - 1
    word, target = pinned(hip), holding(hip, bytes(8))
    word.value = held
    stream = done(hip.hipStreamCreate())
    before, behind = done(hip.hipEventCreate()), done(hip.hipEventCreate())
    done(write(hip, width)(stream, target, 1, 0))
    done(hip.hipEventRecord(before, stream))
    done(
        wait(hip, width)(stream, ctypes.addressof(word), value, compare, everything if mask is None else mask)
    )
    done(write(hip, width)(stream, target, 2, 0))
    done(hip.hipEventRecord(behind, stream))
    done(hip.hipEventSynchronize(before))
    assert code(hip.hipEventQuery(behind)) == "hipErrorNotReady"
    assert code(hip.hipStreamQuery(stream)) == "hipErrorNotReady"
    word.value = passing
    done(hip.hipStreamSynchronize(stream))
    done(hip.hipEventQuery(behind))
    assert content(hip, target, 8) == b"\2" + bytes(7)


@pytest.mark.parametrize("width", WIDTHS)
def test_hip_stream_write_value_on_other_device_releases_waiting_stream(hip: ModuleType, width: int) -> None:
    word, target = holding(hip, bytes(8)), holding(hip, bytes(8))
    own_stream = done(hip.hipStreamCreate())
    done(wait(hip, width)(own_stream, word, 1, EQ, (1 << width) - 1))
    done(write(hip, width)(own_stream, target, 7, 0))
    done(hip.hipSetDevice(1))
    there = done(hip.hipStreamCreate())
    done(write(hip, width)(there, word, 1, 0))
    done(hip.hipStreamSynchronize(there))
    done(hip.hipStreamSynchronize(own_stream))
    assert content(hip, target, 8) == b"\7" + bytes(7)


@pytest.mark.parametrize("width", WIDTHS)
def test_hip_stream_value_calls_unusable_memory_return_invalid_value(hip: ModuleType, width: int) -> None:
    stream, device = done(hip.hipStreamCreate()), int(done(hip.hipMalloc(8)))
    freed = int(done(hip.hipMalloc(8)))
    done(hip.hipFree(freed))
    plain = ctypes.c_uint64()
    for bad in (None, plain, ctypes.addressof(plain), freed, device + 1, device + 8):
        assert code(write(hip, width)(stream, bad, 0, 0)) == "hipErrorInvalidValue"
        assert code(wait(hip, width)(stream, bad, 0, GTE, 1)) == "hipErrorInvalidValue"
    done(hip.hipStreamQuery(stream))


@pytest.mark.parametrize("width", WIDTHS)
def test_hip_stream_value_calls_bad_stream_or_flags_return_documented_codes(
    hip: ModuleType, width: int
) -> None:
    word, stream = holding(hip, bytes(8)), done(hip.hipStreamCreate())
    for bad in (0xFFFF, INVENTED):
        assert code(write(hip, width)(bad, word, 0, 0)) == "hipErrorContextIsDestroyed"
        assert code(wait(hip, width)(bad, word, 0, GTE, 1)) == "hipErrorContextIsDestroyed"
        assert code(write(hip, width)(bad, None, 0, 0)) == "hipErrorInvalidValue"  # NULL is checked first
    for flags in (4, 0xFFFFFFFF):
        assert code(wait(hip, width)(stream, word, 0, flags, 1)) == "hipErrorInvalidValue"
    assert code(write(hip, width)(stream, word, 0, 1)) == "hipErrorInvalidValue"
    with pytest.raises(OverflowError):
        write(hip, width)(stream, word, 1 << width, 0)


def test_hip_stream_batch_mem_op_runs_operations_in_order(hip: ModuleType) -> None:
    stream, word = done(hip.hipStreamCreate()), int(holding(hip, bytes(16)))
    batch = operations(
        (WRITE32, word, 1, 0),
        (WAIT32, word, 1, EQ),
        (WRITE32, word, 0x55, 0),
        (WRITE64, word + 8, 0x1122334455667788, 0),
        (WAIT64, word + 8, 0x1122334455667788, EQ),
        (WRITE32, word + 4, 0xFFFFFFFF00000003, 0),  # a write of 32 bits uses the lower half
    )
    done(hip.hipStreamBatchMemOp(stream, len(batch), batch, 0))
    done(hip.hipStreamSynchronize(stream))
    assert content(hip, word, 16).hex() == "5500000003000000" + "8877665544332211"


def test_hip_stream_batch_mem_op_array_of_the_wheel_runs(hip: ModuleType) -> None:
    stream, word = done(hip.hipStreamCreate()), int(holding(hip, bytes(8)))
    array = hip.hipStreamBatchMemOpParams.allocate(2)
    batch = operations((WRITE32, word, 1, 0), (WRITE32, word + 4, 2, 0))
    ctypes.memmove(int(array), batch, ctypes.sizeof(batch))
    done(hip.hipStreamBatchMemOp(stream, 2, array, 0))
    done(hip.hipStreamSynchronize(stream))
    assert content(hip, word, 8) == b"\1\0\0\0\2\0\0\0"
    assert code(hip.hipStreamBatchMemOp(stream, 3, array, 0)) == "hipErrorInvalidValue"  # it has 2


def test_hip_stream_batch_mem_op_one_bad_operation_writes_nothing(hip: ModuleType) -> None:
    stream, word = done(hip.hipStreamCreate()), int(holding(hip, bytes(8)))
    good = (WRITE32, word, 1, 0)
    for bad in (
        (BARRIER, word, 0, 0),
        (FLUSH, word, 0, 0),
        (0, word, 0, 0),
        (99, word, 0, 0),
        (WRITE32, 0, 0, 0),
        (WRITE32, word + 1, 0, 0),
        (WRITE32, word, 0, 1),
        (WAIT32, word, 0, 4),
        (WRITE64, INVENTED, 0, 0),
    ):
        assert code(hip.hipStreamBatchMemOp(stream, 2, operations(good, bad), 0)) == "hipErrorInvalidValue"
    done(hip.hipStreamSynchronize(stream))
    assert content(hip, word, 8) == bytes(8)


def test_hip_stream_batch_mem_op_bad_arguments_return_documented_codes(hip: ModuleType) -> None:
    stream, word = done(hip.hipStreamCreate()), int(holding(hip, bytes(8)))
    batch = operations((WRITE32, word, 1, 0))
    call = hip.hipStreamBatchMemOp
    for words in (
        (stream, 1, None, 0),
        (stream, 0, batch, 0),
        (stream, 257, batch, 0),
        (stream, 1, batch, 6),
    ):
        assert code(call(*words)) == "hipErrorInvalidValue"
    assert code(call(INVENTED, 1, batch, 0)) == "hipErrorContextIsDestroyed"


def test_hip_stream_batch_mem_op_256_operations_run(hip: ModuleType) -> None:
    stream, word = done(hip.hipStreamCreate()), int(holding(hip, bytes(4)))
    batch = operations(*((WRITE32, word, number, 0) for number in range(1, 257)))
    done(hip.hipStreamBatchMemOp(stream, 256, batch, 0))
    done(hip.hipStreamSynchronize(stream))
    assert content(hip, word, 4) == (256).to_bytes(4, "little")


@pytest.mark.parametrize("stream", [None, 2])
def test_hip_stream_attach_mem_async_checks_length_and_flags(hip: ModuleType, stream: int | None) -> None:
    memory = done(hip.hipMalloc(64))
    for length in (0, 64):
        done(hip.hipStreamAttachMemAsync(stream, memory, length, 2))
    plain = ctypes.c_uint64()
    for words in ((None, 0, 1), (memory, 63, 1), (memory, 0, 7), (memory, 0, 0), (plain, 8, 1)):
        assert code(hip.hipStreamAttachMemAsync(stream, *words)) == "hipErrorInvalidValue"
    single = code(hip.hipStreamAttachMemAsync(stream, memory, 0, 4))
    assert single == ("hipSuccess" if stream else "hipErrorInvalidValue")
    assert code(hip.hipStreamAttachMemAsync(INVENTED, memory, 0, 1)) == "hipErrorContextIsDestroyed"


class Registered:
    """Two pages of ordinary memory that are registered with HIP, and their words."""

    def __init__(self, hip: ModuleType) -> None:
        self.memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
        self.words = np.frombuffer(self.memory, np.uint64)
        self.address = self.words.ctypes.data
        done(hip.hipHostRegister(self.address, self.words.nbytes, 0))

    def at(self, hip: ModuleType, form: str) -> Any:
        return self.address if form == "host" else done(hip.hipHostGetDevicePointer(self.address, 0))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("form", ["host", "device"])
def test_hip_stream_value_calls_registered_word_write_and_wait(
    hip: ModuleType, width: int, form: str
) -> None:
    known, stream = Registered(hip), done(hip.hipStreamCreate())
    word = int(known.at(hip, form)) + 16
    value = 0xF1F2F3F4F5F6F7F8 % (1 << width)
    done(write(hip, width)(stream, word, value, 0))
    done(hip.hipStreamSynchronize(stream))
    assert known.words[:4].tolist() == [0, 0, value, 0]
    done(wait(hip, width)(stream, word, value - 1, EQ, (1 << width) - 1))
    done(write(hip, width)(stream, word + 8, 7, 0))
    assert code(hip.hipStreamQuery(stream)) == "hipErrorNotReady"
    known.words[2] = value - 1
    done(hip.hipStreamSynchronize(stream))
    assert known.words[3] == 7
    done(hip.hipHostUnregister(known.address))


@pytest.mark.parametrize(("compare", "mask", "value", "held", "passing"), COMPARED)
def test_hip_stream_wait_value_registered_word_holds_until_condition_is_met(
    hip: ModuleType, compare: int, mask: int | None, value: int, held: int, passing: int
) -> None:
    known, stream = Registered(hip), done(hip.hipStreamCreate())
    known.words[0] = held
    done(wait(hip, 32)(stream, known.address, value, compare, 0xFFFFFFFF if mask is None else mask))
    assert code(hip.hipStreamQuery(stream)) == "hipErrorNotReady"
    known.words[0] = passing
    done(hip.hipStreamSynchronize(stream))
    done(hip.hipHostUnregister(known.address))


def test_hip_stream_batch_mem_op_registered_words_run_in_order(hip: ModuleType) -> None:
    known, stream = Registered(hip), done(hip.hipStreamCreate())
    batch = operations(
        (WRITE64, known.address, (1 << 64) - 1, 0),
        (WAIT32, known.address + 4, 0xFFFFFFFF, EQ),
        (WRITE32, known.address + 8, 5, 0),
        (WAIT64, known.address + 8, 5, GTE),
    )
    done(hip.hipStreamBatchMemOp(stream, len(batch), batch, 0))
    done(hip.hipStreamSynchronize(stream))
    assert known.words[:2].tolist() == [(1 << 64) - 1, 5]
    bad = operations((WRITE32, known.address, 0, 0), (WRITE32, known.address + known.words.nbytes, 0, 0))
    assert code(hip.hipStreamBatchMemOp(stream, 2, bad, 0)) == "hipErrorInvalidValue"
    done(hip.hipStreamSynchronize(stream))
    assert known.words[0] == (1 << 64) - 1
    done(hip.hipHostUnregister(known.address))


def test_hip_stream_value_calls_word_not_all_registered_return_invalid_value(hip: ModuleType) -> None:
    numbers = np.zeros(4, np.uint64)
    address, stream = numbers.ctypes.data, done(hip.hipStreamCreate())
    done(hip.hipHostRegister(address + 8, 12, 0))
    for width, at in ((64, 0), (32, 4), (64, 16), (32, 20), (32, 10), (64, 12)):
        assert code(write(hip, width)(stream, address + at, 1, 0)) == "hipErrorInvalidValue"
        assert code(wait(hip, width)(stream, address + at, 0, GTE, 1)) == "hipErrorInvalidValue"
    for width, at in ((64, 8), (32, 16)):
        done(write(hip, width)(stream, address + at, 3, 0))
    done(hip.hipHostUnregister(address + 8))
    assert numbers.tolist() == [0, 3, 3, 0]
    for width in WIDTHS:
        assert code(write(hip, width)(stream, address + 8, 1, 0)) == "hipErrorInvalidValue"
        assert code(wait(hip, width)(stream, address + 8, 0, GTE, 1)) == "hipErrorInvalidValue"


@pytest.mark.parametrize("device", [0, 1])
def test_hip_host_unregister_waits_for_stream_that_waits_for_its_word(hip: ModuleType, device: int) -> None:
    known = Registered(hip)
    done(hip.hipSetDevice(device))
    stream = done(hip.hipStreamCreateWithFlags(1))
    done(wait(hip, 64)(stream, known.address, 1, EQ, (1 << 64) - 1))
    done(write(hip, 64)(stream, known.address + 8, 2, 0))
    ended: list[str] = []
    other = threading.Thread(target=lambda: ended.append(code(hip.hipHostUnregister(known.address))))
    other.start()
    other.join(0.3)
    assert not ended
    known.words[0] = 1
    other.join(20)
    assert ended == ["hipSuccess"]
    assert known.words[1] == 2
    assert code(hip.hipHostUnregister(known.address)) == "hipErrorHostMemoryNotRegistered"


def test_hip_stream_write_value_unaligned_message_names_registered_memory(hip: ModuleType) -> None:
    known, stream = Registered(hip), done(hip.hipStreamCreate())
    explain()
    assert code(write(hip, 64)(stream, known.address + 4, 1, 0)) == "hipErrorInvalidValue"
    assert f"{known.address + 4:#x} (registered host memory)" in explain()
    done(hip.hipHostUnregister(known.address))


def test_hip_stream_wait_value_unmapped_word_fails_with_illegal_address(hip: ModuleType) -> None:
    known, stream = Registered(hip), done(hip.hipStreamCreate())
    done(wait(hip, 64)(stream, known.address, 1, EQ, (1 << 64) - 1))
    assert code(hip.hipStreamQuery(stream)) == "hipErrorNotReady"
    del known.words
    known.memory.close()
    assert code(hip.hipStreamSynchronize(stream)) == "hipErrorIllegalAddress"
    done(hip.hipHostUnregister(known.address))
