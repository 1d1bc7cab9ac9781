"""Streams of HIP: the rows of facts/hip 3.7, queries of streams, and the calls that end in ``_spt``."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from helpers.hip_calls import Gate, code, content, done, holding

Enter = Callable[..., ModuleType]
INVENTED = 1 << 20
PER_THREAD, LEGACY, NON_BLOCKING = 2, 1, 1
PAGE = 4096

pytestmark = pytest.mark.timeout(60)


def destroyed(hip: ModuleType) -> int:
    stream = done(hip.hipStreamCreate())
    done(hip.hipStreamDestroy(stream))
    return int(stream)


def test_hip_stream_query_pending_work_returns_not_ready(hip: ModuleType) -> None:
    stream, gate = done(hip.hipStreamCreate()), Gate(hip)
    assert hip.hipStreamQuery(stream) == (hip.hipError_t.hipSuccess,)
    gate.close(stream)
    assert hip.hipStreamQuery(stream) == (hip.hipError_t.hipErrorNotReady,)
    assert int(hip.hipStreamQuery(stream)[0]) == 600
    gate.open()
    done(hip.hipStreamSynchronize(stream))
    done(hip.hipStreamQuery(stream))


@pytest.mark.parametrize("call", ["hipStreamQuery", "hipStreamSynchronize"])
def test_hip_stream_calls_unknown_stream_return_context_is_destroyed(hip: ModuleType, call: str) -> None:
    for stream in (destroyed(hip), INVENTED, done(hip.hipEventCreate())):
        result = getattr(hip, call)(stream)
        assert code(result) == "hipErrorContextIsDestroyed"
        assert int(result[0]) == 709


def test_hip_stream_destroy_twice_or_default_stream_returns_documented_code(hip: ModuleType) -> None:
    assert code(hip.hipStreamDestroy(destroyed(hip))) == "hipErrorContextIsDestroyed"
    assert code(hip.hipStreamDestroy(INVENTED)) == "hipErrorContextIsDestroyed"
    for stream in (None, 0, LEGACY, PER_THREAD):
        result = hip.hipStreamDestroy(stream)
        assert result == (hip.hipError_t.hipErrorInvalidHandle,)
        assert int(result[0]) == 400


def test_hip_message_ended_stream_names_call_that_ended_it(hip: ModuleType) -> None:
    from peerlane.dialects.hip import explain

    hip.hipStreamQuery(destroyed(hip))
    assert "a stream of device 0" in (text := explain())
    assert "ended by hipStreamDestroy at " in text
    stream = done(hip.hipStreamCreate())
    done(hip.hipDeviceReset())
    hip.hipStreamDestroy(stream)
    assert "ended by the last reset of device 0" in explain()
    hip.hipStreamQuery(INVENTED)
    assert "HIP gave out no stream with the number 0x100000" in explain()


def test_hip_stream_destroy_after_reset_returns_invalid_handle(hip: ModuleType) -> None:
    stream = done(hip.hipStreamCreate())
    other = done(hip.hipStreamCreate())
    done(hip.hipStreamDestroy(other))
    done(hip.hipDeviceReset())
    assert code(hip.hipStreamDestroy(stream)) == "hipErrorInvalidHandle"
    assert code(hip.hipStreamDestroy(other)) == "hipErrorContextIsDestroyed"
    assert code(hip.hipStreamQuery(stream)) == "hipErrorContextIsDestroyed"


@pytest.mark.parametrize("stream", [None, LEGACY, PER_THREAD])
def test_hip_default_streams_after_reset_are_new_and_usable(hip: ModuleType, stream: int | None) -> None:
    first = done(hip.hipStreamGetId(stream))
    done(hip.hipDeviceReset())
    assert done(hip.hipStreamGetId(stream)) != first
    source, target = holding(hip, b"anew" * 8), holding(hip, bytes(32))
    done(hip.hipMemcpyAsync(target, source, 32, hip.hipMemcpyKind.hipMemcpyDefault, stream))
    done(hip.hipStreamSynchronize(stream))
    assert content(hip, target, 32) == b"anew" * 8


def test_hip_device_reset_ends_only_streams_of_that_device(hip: ModuleType) -> None:
    near = done(hip.hipStreamCreate())
    done(hip.hipSetDevice(1))
    there = done(hip.hipStreamCreate())
    done(hip.hipDeviceReset())
    done(hip.hipStreamSynchronize(near))
    assert code(hip.hipStreamDestroy(there)) == "hipErrorInvalidHandle"
    done(hip.hipStreamDestroy(near))


def test_hip_null_stream_waits_for_blocking_streams(hip: ModuleType) -> None:
    stream, gate = done(hip.hipStreamCreate()), Gate(hip)
    done(hip.hipStreamQuery(None))
    gate.close(stream)
    assert code(hip.hipStreamQuery(None)) == "hipErrorNotReady"
    assert code(hip.hipStreamQuery(LEGACY)) == "hipErrorNotReady"
    gate.open()
    done(hip.hipStreamSynchronize(None))
    done(hip.hipStreamQuery(None))
    done(hip.hipStreamQuery(stream))


def test_hip_null_stream_does_not_wait_for_non_blocking_streams(hip: ModuleType) -> None:
    aside, gate = done(hip.hipStreamCreateWithFlags(NON_BLOCKING)), Gate(hip)
    gate.close(aside)
    done(hip.hipStreamSynchronize(None))
    done(hip.hipStreamQuery(None))
    assert code(hip.hipStreamQuery(aside)) == "hipErrorNotReady"
    gate.open()
    done(hip.hipStreamSynchronize(aside))


def test_hip_blocking_stream_waits_for_null_stream(hip: ModuleType) -> None:
    stream, aside = done(hip.hipStreamCreate()), done(hip.hipStreamCreateWithFlags(NON_BLOCKING))
    gate, word = Gate(hip), holding(hip, bytes(8))
    gate.close(None)
    done(hip.hipStreamWriteValue32(stream, word, 1, 0))
    done(hip.hipStreamWriteValue32(aside, int(word) + 4, 2, 0))
    done(hip.hipStreamSynchronize(aside))
    assert code(hip.hipStreamQuery(stream)) == "hipErrorNotReady"
    gate.open()
    done(hip.hipStreamSynchronize(stream))
    assert content(hip, word, 8) == b"\1\0\0\0\2\0\0\0"


@pytest.mark.parametrize("call", ["hipMemcpyWithStream", "hipMemcpyAsync", "hipMemcpy_spt"])
def test_hip_memcpy_on_blocking_stream_follows_null_stream(hip: ModuleType, call: str) -> None:
    stream, source = done(hip.hipStreamCreate()), holding(hip, b"old!")
    later = holding(hip, b"new!")
    kind = hip.hipMemcpyKind.hipMemcpyDefault
    done(hip.hipMemcpyAsync(source, later, 4, kind, None))
    received = bytearray(4)
    done(getattr(hip, call)(received, source, 4, kind, *([] if call.endswith("_spt") else [stream])))
    assert received == b"new!"


def test_hip_memcpy_waits_for_work_that_another_stream_has_queued(hip: ModuleType) -> None:
    stream, gate = done(hip.hipStreamCreate()), Gate(hip)
    source, later, received = holding(hip, b"old!"), holding(hip, b"new!"), holding(hip, b"none")
    kind = hip.hipMemcpyKind.hipMemcpyDefault
    gate.close(stream)
    done(hip.hipMemcpyAsync(source, later, 4, kind, stream))
    opener = threading.Timer(0.05, gate.open)
    opener.start()
    done(hip.hipMemcpy(received, source, 4, kind))
    opener.join()
    assert content(hip, received, 4) == b"new!"


def test_hip_device_synchronize_waits_for_all_streams(hip: ModuleType) -> None:
    word = holding(hip, bytes(12))
    streams = [done(hip.hipStreamCreateWithFlags(NON_BLOCKING)), done(hip.hipStreamCreate()), PER_THREAD]
    for at, stream in enumerate(streams):
        done(hip.hipStreamWriteValue32(stream, int(word) + 4 * at, 1, 0))
    done(hip.hipDeviceSynchronize())
    for stream in streams:
        done(hip.hipStreamQuery(stream))
    assert content(hip, word, 12) == b"\1\0\0\0" * 3


def test_hip_device_synchronize_waits_for_held_non_blocking_stream(hip: ModuleType) -> None:
    aside, gate = done(hip.hipStreamCreateWithFlags(NON_BLOCKING)), Gate(hip)
    gate.close(aside)
    opener = threading.Timer(0.05, gate.open)
    opener.start()
    done(hip.hipDeviceSynchronize())
    done(hip.hipStreamQuery(aside))
    opener.join()


def test_hip_stream_calls_stream_of_device_not_current_succeed(hip: ModuleType) -> None:
    stream = done(hip.hipStreamCreate())
    event = done(hip.hipEventCreate())
    target, source = holding(hip, bytes(PAGE)), holding(hip, b"\7" * PAGE)
    done(hip.hipSetDevice(1))
    done(hip.hipMemcpyAsync(target, source, PAGE, hip.hipMemcpyKind.hipMemcpyDefault, stream))
    done(hip.hipEventRecord(event, stream))
    done(hip.hipEventSynchronize(event))
    done(hip.hipStreamSynchronize(stream))
    assert done(hip.hipStreamGetDevice(stream)) == 0
    assert done(hip.hipGetStreamDeviceId(stream)) == 0
    assert content(hip, target, PAGE) == b"\7" * PAGE
    done(hip.hipStreamDestroy(stream))
    assert done(hip.hipGetDevice()) == 1


def test_hip_stream_destroy_waits_for_queued_work(hip: ModuleType) -> None:
    stream, word = done(hip.hipStreamCreateWithFlags(NON_BLOCKING)), holding(hip, bytes(4))
    done(hip.hipStreamWriteValue32(stream, word, 5, 0))
    done(hip.hipStreamDestroy(stream))
    assert content(hip, word, 4) == b"\5\0\0\0"


def test_hip_stream_destroy_waits_for_word_written_by_other_stream(hip: ModuleType) -> None:
    waiting, writing = (done(hip.hipStreamCreateWithFlags(NON_BLOCKING)) for _ in range(2))
    word, gate = int(holding(hip, bytes(8))), Gate(hip)
    done(hip.hipStreamWaitValue32(waiting, word, 1, 1, 0xFFFFFFFF))
    done(hip.hipStreamWriteValue32(waiting, word + 4, 9, 0))
    gate.close(writing)
    done(hip.hipStreamWriteValue32(writing, word, 1, 0))
    opener = threading.Timer(0.05, gate.open)
    opener.start()
    done(hip.hipStreamDestroy(waiting))
    opener.join()
    assert content(hip, word, 8) == b"\1\0\0\0\x09\0\0\0"


def test_hip_stream_destroy_failed_work_returns_its_error_and_ends_stream(hip: ModuleType) -> None:
    stream, gate = done(hip.hipStreamCreate()), Gate(hip)
    source, target = done(hip.hipMalloc(8)), done(hip.hipMalloc(8))
    gate.close(stream)
    done(hip.hipMemcpyAsync(target, source, 8, hip.hipMemcpyKind.hipMemcpyDefault, stream))
    machine_stream(stream).neutral.abort()
    assert code(hip.hipStreamDestroy(stream)) == "hipErrorLaunchFailure"
    assert code(hip.hipStreamDestroy(stream)) == "hipErrorContextIsDestroyed"


@pytest.mark.parametrize("call", ["hipStreamQuery", "hipEventQuery", "hipEventSynchronize"])
def test_hip_query_or_event_reports_failed_work_once(hip: ModuleType, call: str) -> None:
    stream, event, gate = done(hip.hipStreamCreate()), done(hip.hipEventCreate()), Gate(hip)
    source, target = done(hip.hipMalloc(8)), done(hip.hipMalloc(8))
    gate.close(stream)
    done(hip.hipMemcpyAsync(target, source, 8, hip.hipMemcpyKind.hipMemcpyDefault, stream))
    machine_stream(stream).neutral.abort()
    gate.open()
    done(hip.hipEventRecord(event, stream))

    def ask() -> str:
        return code(getattr(hip, call)(event if "Event" in call else stream))

    while (answer := ask()) == "hipErrorNotReady":
        pass
    assert answer == "hipErrorLaunchFailure"
    assert ask() == "hipSuccess"
    done(hip.hipStreamSynchronize(stream))


def machine_stream(stream: Any) -> Any:
    from peerlane.dialects.hip.state import machine

    return machine.resources[int(stream)]


@pytest.mark.parametrize("flags", [0, NON_BLOCKING])
def test_hip_stream_create_with_flags_are_read_back(hip: ModuleType, flags: int) -> None:
    assert done(hip.hipStreamGetFlags(done(hip.hipStreamCreateWithFlags(flags)))) == flags
    assert done(hip.hipStreamGetFlags(done(hip.hipStreamCreateWithPriority(flags, 0)))) == flags


@pytest.mark.parametrize("flags", [2, 3, 0xFFFFFFFF])
def test_hip_stream_create_with_invalid_flags_returns_invalid_value(hip: ModuleType, flags: int) -> None:
    assert hip.hipStreamCreateWithFlags(flags) == (hip.hipError_t.hipErrorInvalidValue, None)
    assert hip.hipStreamCreateWithPriority(flags, 0) == (hip.hipError_t.hipErrorInvalidValue, None)


def test_hip_stream_get_flags_null_or_unknown_stream_returns_documented_code(hip: ModuleType) -> None:
    assert code(hip.hipStreamGetFlags(None)) == "hipErrorInvalidValue"
    assert code(hip.hipStreamGetFlags(INVENTED)) == "hipErrorContextIsDestroyed"
    assert done(hip.hipStreamGetFlags_spt(None)) == 0


@pytest.mark.parametrize(("asked", "granted"), [(-5, -1), (-1, -1), (0, 0), (1, 1), (9, 1)])
def test_hip_stream_create_with_priority_out_of_range_is_clamped(
    hip: ModuleType, asked: int, granted: int
) -> None:
    assert done(hip.hipDeviceGetStreamPriorityRange()) == (1, -1)
    assert done(hip.hipStreamGetPriority(done(hip.hipStreamCreateWithPriority(0, asked)))) == granted


def test_hip_stream_get_calls_return_priority_device_and_id(hip: ModuleType) -> None:
    assert done(hip.hipStreamGetPriority(None)) == 0
    assert code(hip.hipStreamGetPriority(INVENTED)) == "hipErrorContextIsDestroyed"
    done(hip.hipSetDevice(1))
    stream = done(hip.hipStreamCreate())
    done(hip.hipSetDevice(0))
    for call in (hip.hipStreamGetDevice, hip.hipGetStreamDeviceId):
        assert [done(call(each)) for each in (None, stream, PER_THREAD)] == [0, 1, 0]
        assert code(call(INVENTED)) == "hipErrorContextIsDestroyed"
    ids = [done(hip.hipStreamGetId(each)) for each in (None, stream, PER_THREAD, done(hip.hipStreamCreate()))]
    assert len(set(ids)) == 4
    assert done(hip.hipStreamGetId(stream)) == ids[1]
    assert code(hip.hipStreamGetId(INVENTED)) == "hipErrorInvalidHandle"


def test_hip_stream_attributes_are_read_back_and_copied(hip: ModuleType) -> None:
    kinds, policies = hip.hipLaunchAttributeID, hip.hipSynchronizationPolicy
    policy = kinds.hipLaunchAttributeSynchronizationPolicy
    one, two = done(hip.hipStreamCreateWithPriority(0, -1)), done(hip.hipStreamCreate())
    value = hip.hipLaunchAttributeValue()
    done(hip.hipStreamGetAttribute(one, policy, value))
    assert value.syncPolicy is policies.hipSyncPolicyAuto
    value.syncPolicy = policies.hipSyncPolicyYield
    done(hip.hipStreamSetAttribute(one, policy, value))
    done(hip.hipStreamCopyAttributes(two, one))
    value.syncPolicy = policies.hipSyncPolicySpin
    done(hip.hipStreamGetAttribute(two, policy, value))
    assert value.syncPolicy is policies.hipSyncPolicyYield
    done(hip.hipStreamGetAttribute(one, kinds.hipLaunchAttributePriority, value))
    assert value.priority == -1


def test_hip_stream_attribute_calls_bad_arguments_return_documented_codes(hip: ModuleType) -> None:
    kinds, stream, value = (
        hip.hipLaunchAttributeID,
        done(hip.hipStreamCreate()),
        hip.hipLaunchAttributeValue(),
    )
    policy = kinds.hipLaunchAttributeSynchronizationPolicy
    for call in (hip.hipStreamSetAttribute, hip.hipStreamGetAttribute):
        assert code(call(stream, policy, None)) == "hipErrorInvalidValue"
        assert code(call(INVENTED, policy, value)) == "hipErrorInvalidHandle"
        assert code(call(stream, kinds.hipLaunchAttributeCooperative, value)) == "hipErrorInvalidValue"
    ctypes.c_int.from_address(int(value)).value = 77
    assert code(hip.hipStreamSetAttribute(stream, policy, value)) == "hipErrorInvalidValue"
    assert code(hip.hipStreamCopyAttributes(stream, INVENTED)) == "hipErrorInvalidHandle"
    assert code(hip.hipStreamCopyAttributes(INVENTED, stream)) == "hipErrorInvalidHandle"


def test_hip_ext_stream_cu_mask_is_read_back(hip: ModuleType) -> None:
    units = done(hip.hipDeviceGetAttribute(hip.hipDeviceAttribute_t.hipDeviceAttributeMultiprocessorCount, 0))
    words = -(-units // 32)
    stream = done(hip.hipExtStreamCreateWithCUMask(1, [0b1011]))
    assert done(hip.hipStreamGetFlags(stream)) == 0
    received = (ctypes.c_uint32 * words)()
    done(hip.hipExtStreamGetCUMask(stream, words, received))
    assert int.from_bytes(bytes(received), "little") == 0b1011 & (1 << units) - 1
    done(hip.hipExtStreamGetCUMask(None, words, received))
    assert int.from_bytes(bytes(received), "little") == (1 << units) - 1
    for bad in ((0, [1]), (1, None)):
        assert code(hip.hipExtStreamCreateWithCUMask(*bad)) == "hipErrorInvalidValue"
        assert code(hip.hipExtStreamGetCUMask(stream, *bad)) == "hipErrorInvalidValue"
    assert code(hip.hipExtStreamGetCUMask(INVENTED, words, received)) == "hipErrorContextIsDestroyed"


def test_hip_per_thread_stream_differs_per_thread(hip: ModuleType) -> None:
    received: list[int] = []
    threads = [
        threading.Thread(target=lambda: received.append(done(hip.hipStreamGetId(PER_THREAD))))
        for _ in range(2)
    ]
    for each in threads:
        each.start()
        each.join()
    assert len({*received, done(hip.hipStreamGetId(PER_THREAD))}) == 3


def test_hip_per_thread_stream_of_ended_thread_completes_its_work(hip: ModuleType) -> None:
    from peerlane.dialects.hip.state import machine

    word = holding(hip, bytes(4))
    before = len(machine.resources)
    thread = threading.Thread(
        target=lambda: done(hip.hipStreamWriteValue32(PER_THREAD, word, 9, 0)), daemon=True
    )
    thread.start()
    thread.join()
    assert len(machine.resources) == before
    done(hip.hipDeviceSynchronize())
    assert content(hip, word, 4) == b"\x09\0\0\0"


def test_hip_per_thread_stream_is_not_listed_as_living(hip: ModuleType) -> None:
    from peerlane.dialects.hip.state import machine

    done(hip.hipStreamSynchronize(PER_THREAD))
    assert machine.living() == []
    stream = done(hip.hipStreamCreate())
    assert [each.kind for each in machine.living()] == ["stream"]
    done(hip.hipStreamDestroy(stream))


def test_hip_spt_calls_null_stream_means_per_thread_stream(hip: ModuleType) -> None:
    source, target = holding(hip, b"mine" * 4), holding(hip, bytes(16))
    kind = hip.hipMemcpyKind.hipMemcpyDefault
    gate = Gate(hip)
    gate.close(PER_THREAD)
    done(hip.hipMemcpyAsync_spt(target, source, 16, kind, None))
    assert code(hip.hipStreamQuery_spt(None)) == "hipErrorNotReady"
    assert code(hip.hipStreamQuery_spt(PER_THREAD)) == "hipErrorNotReady"
    gate.open()
    done(hip.hipStreamSynchronize_spt(None))
    done(hip.hipStreamQuery_spt(None))
    assert content(hip, target, 16) == b"mine" * 4
    done(hip.hipMemcpy_spt(target, bytes(16), 16, kind))
    assert content(hip, target, 16) == bytes(16)
    assert done(hip.hipStreamGetPriority_spt(None)) == 0


def test_hip_memcpy_spt_does_not_wait_for_blocking_streams(hip: ModuleType) -> None:
    held, gate = done(hip.hipStreamCreate()), Gate(hip)
    gate.close(held)
    target = holding_beside(hip, b"xxxx")
    done(hip.hipMemcpy_spt(target, b"1234", 4, hip.hipMemcpyKind.hipMemcpyDefault))
    done(hip.hipStreamSynchronize_spt(None))
    done(hip.hipStreamQuery_spt(None))
    assert code(hip.hipStreamQuery(None)) == "hipErrorNotReady"
    gate.open()
    assert content(hip, target, 4) == b"1234"


def holding_beside(hip: ModuleType, data: bytes) -> Any:
    allocation = done(hip.hipMalloc(len(data)))
    done(hip.hipMemcpy_spt(allocation, data, len(data), hip.hipMemcpyKind.hipMemcpyDefault))
    return allocation


def test_hip_spt_events_and_host_functions_run_on_per_thread_stream(hip: ModuleType) -> None:
    gate, event = Gate(hip), done(hip.hipEventCreate())
    called: list[tuple[Any, ...]] = []
    host = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda *words: called.append(words))
    added = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(
        lambda *words: called.append(words)
    )
    gate.close(PER_THREAD)
    done(hip.hipLaunchHostFunc_spt(None, host, 3))
    done(hip.hipStreamAddCallback_spt(None, added, 4, 0))
    done(hip.hipEventRecord_spt(event, None))
    done(hip.hipStreamWaitEvent_spt(None, event, 0))
    assert code(hip.hipEventQuery(event)) == "hipErrorNotReady"
    gate.open()
    done(hip.hipStreamSynchronize_spt(None))
    assert called == [(3,), (PER_THREAD, 0, 4)]
    done(hip.hipEventQuery(event))


def test_hip_spt_calls_bad_arguments_return_codes_of_base_calls(hip: ModuleType) -> None:
    assert code(hip.hipStreamQuery_spt(INVENTED)) == "hipErrorContextIsDestroyed"
    assert code(hip.hipStreamWaitEvent_spt(None, None, 0)) == "hipErrorInvalidHandle"
    assert (
        code(hip.hipMemcpy_spt(None, b"x", 1, hip.hipMemcpyKind.hipMemcpyDefault)) == "hipErrorInvalidValue"
    )
    with pytest.raises(TypeError, match="hipStreamQuery_spt"):
        hip.hipStreamQuery_spt()


@pytest.mark.parametrize("call", ["hipStreamIsCapturing", "hipStreamIsCapturing_spt"])
def test_hip_stream_is_capturing_returns_none_of_any_stream(hip: ModuleType, call: str) -> None:
    none = hip.hipStreamCaptureStatus.hipStreamCaptureStatusNone
    for stream in (None, done(hip.hipStreamCreate())):
        assert getattr(hip, call)(stream) == (hip.hipError_t.hipSuccess, none)
    assert code(getattr(hip, call)(INVENTED)) == "hipErrorContextIsDestroyed"


@pytest.mark.parametrize("stream", [4096, (1 << 64) - 1])
def test_hip_malloc_async_unknown_stream_returns_invalid_handle(hip: ModuleType, stream: int) -> None:
    pool = hip.hipDeviceGetDefaultMemPool(0)[1]
    assert hip.hipMallocAsync(64, stream) == (hip.hipError_t.hipErrorInvalidHandle, None)
    assert hip.hipMallocFromPoolAsync(64, pool, stream) == (hip.hipError_t.hipErrorInvalidHandle, None)
    assert hip.hipFreeAsync(hip.hipMalloc(64)[1], stream) == (hip.hipError_t.hipErrorInvalidHandle,)
