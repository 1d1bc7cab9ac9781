"""Events of HIP: the rows of facts/hip 3.7."""

from __future__ import annotations

import struct
from types import ModuleType
from typing import Any

import pytest

from helpers.hip_calls import Gate, code, content, done, holding

INVENTED = 1 << 20
NON_BLOCKING, DISABLE_TIMING, INTERPROCESS = 1, 2, 4
TO_DEVICE, TO_SYSTEM, NO_FENCE = 0x40000000, 0x80000000, 0x20000000

pytestmark = pytest.mark.timeout(60)


def destroyed(hip: ModuleType) -> int:
    event = done(hip.hipEventCreate())
    done(hip.hipEventDestroy(event))
    return int(event)


def recorded(hip: ModuleType, stream: Any = None, flags: int = 0) -> Any:
    event = done(hip.hipEventCreateWithFlags(flags))
    done(hip.hipEventRecord(event, stream))
    return event


@pytest.mark.parametrize(
    "flags", [0, 1, DISABLE_TIMING, INTERPROCESS | DISABLE_TIMING, TO_DEVICE, TO_SYSTEM | 3, NO_FENCE]
)
def test_hip_event_create_with_valid_flags_records_and_synchronizes(hip: ModuleType, flags: int) -> None:
    event = done(hip.hipEventCreateWithFlags(flags))
    done(hip.hipEventRecord(event, None))
    done(hip.hipEventSynchronize(event))
    done(hip.hipEventDestroy(event))


@pytest.mark.parametrize("flags", [INTERPROCESS, TO_DEVICE | TO_SYSTEM, TO_DEVICE | NO_FENCE, 8, 0x08000000])
def test_hip_event_create_with_invalid_flags_returns_invalid_value(hip: ModuleType, flags: int) -> None:
    assert hip.hipEventCreateWithFlags(flags) == (hip.hipError_t.hipErrorInvalidValue, None)


def test_hip_event_never_recorded_is_complete(hip: ModuleType) -> None:
    event = done(hip.hipEventCreate())
    done(hip.hipEventQuery(event))
    done(hip.hipEventSynchronize(event))
    stream = done(hip.hipStreamCreate())
    done(hip.hipStreamWaitEvent(stream, event, 0))
    done(hip.hipStreamSynchronize(stream))


def test_hip_event_query_before_completion_returns_not_ready(hip: ModuleType) -> None:
    stream, gate = done(hip.hipStreamCreate()), Gate(hip)
    gate.close(stream)
    event = recorded(hip, stream)
    assert hip.hipEventQuery(event) == (hip.hipError_t.hipErrorNotReady,)
    gate.open()
    done(hip.hipEventSynchronize(event))
    done(hip.hipEventQuery(event))


def test_hip_event_record_again_query_reports_new_record(hip: ModuleType) -> None:
    stream, gate = done(hip.hipStreamCreate()), Gate(hip)
    event = recorded(hip, stream)
    done(hip.hipEventSynchronize(event))
    gate.close(stream)
    done(hip.hipEventRecord(event, stream))
    assert code(hip.hipEventQuery(event)) == "hipErrorNotReady"
    gate.open()
    done(hip.hipEventSynchronize(event))


@pytest.mark.parametrize("call", ["hipEventQuery", "hipEventSynchronize"])
def test_hip_event_query_and_synchronize_invalid_event_return_invalid_handle(
    hip: ModuleType, call: str
) -> None:
    for event in (None, INVENTED, destroyed(hip), done(hip.hipStreamCreate())):
        result = getattr(hip, call)(event)
        assert code(result) == "hipErrorInvalidHandle"
        assert int(result[0]) == 400


def test_hip_event_destroy_null_or_ended_event_returns_documented_code(hip: ModuleType) -> None:
    assert code(hip.hipEventDestroy(None)) == "hipErrorInvalidHandle"
    assert code(hip.hipEventDestroy(destroyed(hip))) == "hipErrorContextIsDestroyed"
    assert code(hip.hipEventDestroy(INVENTED)) == "hipErrorContextIsDestroyed"


def test_hip_device_reset_ends_events(hip: ModuleType) -> None:
    event = recorded(hip)
    done(hip.hipDeviceReset())
    assert code(hip.hipEventQuery(event)) == "hipErrorInvalidHandle"
    assert code(hip.hipEventDestroy(event)) == "hipErrorContextIsDestroyed"


def test_hip_event_destroy_while_stream_waits_keeps_order(hip: ModuleType) -> None:
    one, two = (done(hip.hipStreamCreateWithFlags(NON_BLOCKING)) for _ in range(2))
    gate, word = Gate(hip), holding(hip, bytes(4))
    gate.close(one)
    event = recorded(hip, one)
    done(hip.hipStreamWaitEvent(two, event, 0))
    done(hip.hipStreamWriteValue32(two, word, 1, 0))
    done(hip.hipEventDestroy(event))
    assert code(hip.hipStreamQuery(two)) == "hipErrorNotReady"
    gate.open()
    done(hip.hipStreamSynchronize(two))
    assert content(hip, word, 4) == b"\1\0\0\0"


def test_hip_event_record_invalid_event_or_stream_returns_documented_code(hip: ModuleType) -> None:
    event = done(hip.hipEventCreate())
    for record in (hip.hipEventRecord, lambda *words: hip.hipEventRecordWithFlags(*words, 0)):
        assert code(record(None, None)) == "hipErrorInvalidHandle"
        assert code(record(destroyed(hip), None)) == "hipErrorInvalidHandle"
        assert code(record(event, INVENTED)) == "hipErrorContextIsDestroyed"


def test_hip_event_record_with_flags_accepts_0_and_1(hip: ModuleType) -> None:
    event = done(hip.hipEventCreate())
    for flags in (0, 1):
        done(hip.hipEventRecordWithFlags(event, None, flags))
    done(hip.hipEventSynchronize(event))
    assert code(hip.hipEventRecordWithFlags(event, None, 2)) == "hipErrorInvalidValue"


def test_hip_event_record_on_stream_of_other_device_returns_invalid_handle(hip: ModuleType) -> None:
    event, stream = done(hip.hipEventCreate()), done(hip.hipStreamCreate())
    done(hip.hipSetDevice(1))
    assert code(hip.hipEventRecord(event, None)) == "hipErrorInvalidHandle"
    done(hip.hipEventRecord(event, stream))
    done(hip.hipEventSynchronize(event))


def test_hip_stream_wait_event_bad_arguments_return_documented_codes(hip: ModuleType) -> None:
    stream, event = done(hip.hipStreamCreate()), recorded(hip)
    assert code(hip.hipStreamWaitEvent(stream, None, 0)) == "hipErrorInvalidHandle"
    assert code(hip.hipStreamWaitEvent(stream, destroyed(hip), 0)) == "hipErrorInvalidHandle"
    assert code(hip.hipStreamWaitEvent(stream, event, 2)) == "hipErrorInvalidValue"
    assert code(hip.hipStreamWaitEvent(stream, None, 2)) == "hipErrorInvalidValue"
    assert code(hip.hipStreamWaitEvent(stream, event, 1)) == "hipErrorInvalidHandle"  # outside a graph
    assert code(hip.hipStreamWaitEvent(INVENTED, event, 0)) == "hipErrorInvalidHandle"
    done(hip.hipStreamWaitEvent(stream, event, 0))
    done(hip.hipStreamSynchronize(stream))


@pytest.mark.parametrize("waiting", ["created", "null", "per thread"])
def test_hip_stream_wait_event_of_other_device_orders_copy(hip: ModuleType, waiting: str) -> None:
    gate, word = Gate(hip), holding(hip, bytes(4))
    first = done(hip.hipStreamCreate())
    gate.close(first)
    done(hip.hipStreamWriteValue32(first, word, 7, 0))
    event = recorded(hip, first)
    done(hip.hipSetDevice(1))
    stream = {"created": done(hip.hipStreamCreate()), "null": None, "per thread": 2}[waiting]
    copied = done(hip.hipMalloc(4))
    done(hip.hipStreamWaitEvent(stream, event, 0))
    done(hip.hipMemcpyPeerAsync(copied, 1, word, 0, 4, stream))
    assert code(hip.hipStreamQuery(stream)) == "hipErrorNotReady"
    gate.open()
    done(hip.hipStreamSynchronize(stream))
    assert content(hip, copied, 4) == b"\7\0\0\0"


def test_hip_event_elapsed_time_before_completion_returns_not_ready_then_time(hip: ModuleType) -> None:
    stream, gate = done(hip.hipStreamCreate()), Gate(hip)
    start = recorded(hip, stream)
    done(hip.hipEventSynchronize(start))
    gate.close(stream)
    stop = recorded(hip, stream)
    error, ms = hip.hipEventElapsedTime(start, stop)
    assert (error.name, ms) == ("hipErrorNotReady", 0.0)
    gate.open()
    done(hip.hipEventSynchronize(stop))
    ms = done(hip.hipEventElapsedTime(start, stop))
    assert isinstance(ms, float)
    assert 0 < ms < 60_000
    assert struct.unpack("f", struct.pack("f", ms)) == (ms,)
    assert done(hip.hipEventElapsedTime(stop, start)) == -ms
    assert done(hip.hipEventElapsedTime(stop, stop)) == 0


def test_hip_event_elapsed_time_unusable_event_returns_invalid_handle(hip: ModuleType) -> None:
    good = recorded(hip)
    done(hip.hipEventSynchronize(good))
    without_time, fresh = recorded(hip, flags=DISABLE_TIMING), done(hip.hipEventCreate())
    done(hip.hipSetDevice(1))
    elsewhere = recorded(hip)
    done(hip.hipDeviceSynchronize())
    for bad in (None, INVENTED, destroyed(hip), without_time, fresh, elsewhere):
        for pair in ((good, bad), (bad, good)):
            assert hip.hipEventElapsedTime(*pair) == (hip.hipError_t.hipErrorInvalidHandle, 0.0)


def test_hip_event_elapsed_time_around_8_mib_copy_is_above_50_us(hip: ModuleType) -> None:
    nbytes = 8 << 20
    source, target = done(hip.hipMalloc(nbytes)), done(hip.hipMalloc(nbytes))
    start = recorded(hip)
    done(hip.hipMemcpy(target, source, nbytes, hip.hipMemcpyKind.hipMemcpyDefault))
    stop = recorded(hip)
    done(hip.hipEventSynchronize(stop))
    assert done(hip.hipEventElapsedTime(start, stop)) > 0.05  # a copy at 160 GB/s


def test_hip_event_query_not_ready_does_not_set_last_error(hip: ModuleType) -> None:
    gate = Gate(hip)
    gate.close(None)
    assert code(hip.hipEventQuery(recorded(hip))) == "hipErrorNotReady"
    assert code(hip.hipGetLastError()) == "hipSuccess"
    gate.open()
    done(hip.hipDeviceSynchronize())
