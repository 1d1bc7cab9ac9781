"""Host functions of HIP: ctypes functions in stream order."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from types import ModuleType
from typing import Any

import pytest

from helpers.hip_calls import Gate, code, content, done, holding

INVENTED = 1 << 20
HOST = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
ADDED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("which", ["created", "null", "legacy", "per thread"])
def test_hip_launch_host_func_runs_in_stream_order_and_holds_stream(hip: ModuleType, which: str) -> None:
    stream = {"created": done(hip.hipStreamCreate()), "null": None, "legacy": 1, "per thread": 2}[which]
    pinned, target = int(done(hip.hipHostMalloc(8, 0))), holding(hip, bytes(8))
    word = ctypes.c_uint64.from_address(pinned)
    threads: list[int] = []

    @HOST
    def write(data: Any) -> None:
        threads.append(threading.get_ident())
        word.value = data

    done(hip.hipLaunchHostFunc(stream, write, 0x1122334455667788))
    done(hip.hipMemcpyAsync(target, pinned, 8, hip.hipMemcpyKind.hipMemcpyDefault, stream))
    done(hip.hipLaunchHostFunc(stream, write, 1))
    done(hip.hipStreamSynchronize(stream))
    assert content(hip, target, 8) == bytes.fromhex("8877665544332211")
    assert word.value == 1
    assert threading.get_ident() not in threads


def test_hip_launch_host_func_user_data_is_passed_as_address(hip: ModuleType) -> None:
    data = ctypes.c_int(5)

    @HOST
    def double(address: Any) -> None:
        ctypes.c_int.from_address(address).value *= 2

    for passed in (data, ctypes.c_void_p(ctypes.addressof(data)), ctypes.addressof(data)):
        done(hip.hipLaunchHostFunc(None, double, passed))
    done(hip.hipStreamSynchronize(None))
    assert data.value == 40


def test_hip_launch_host_func_null_user_data_is_passed_as_none(hip: ModuleType) -> None:
    passed: list[Any] = []
    function = HOST(passed.append)
    done(hip.hipLaunchHostFunc(None, function, None))
    done(hip.hipStreamSynchronize(None))
    assert passed == [None]


def test_hip_stream_add_callback_passes_stream_status_and_user_data(hip: ModuleType) -> None:
    passed: list[Any] = []
    function = ADDED(lambda *words: passed.append(words))
    stream = done(hip.hipStreamCreate())
    for each in (stream, None, 2):
        done(hip.hipStreamAddCallback(each, function, 3, 0))
        done(hip.hipStreamSynchronize(each))
    assert passed == [(int(stream), 0, 3), (None, 0, 3), (2, 0, 3)]


def test_hip_launch_host_func_every_form_of_function_is_called(hip: ModuleType) -> None:
    passed: list[Any] = []
    function = HOST(passed.append)
    address = ctypes.cast(function, ctypes.c_void_p)
    for number, each in enumerate(
        (
            function,
            address,
            address.value,
            hip.hipHostFn_t.fromObj(function),
            hip.hipHostFn_t.fromObj(address),
        )
    ):
        done(hip.hipLaunchHostFunc(None, each, number + 1))
    done(hip.hipStreamSynchronize(None))
    assert passed == [1, 2, 3, 4, 5]


def test_hip_launch_host_func_function_of_c_library_is_called(hip: ModuleType) -> None:
    pinned = int(done(hip.hipHostMalloc(8, 0)))
    ctypes.c_uint64.from_address(pinned).value = 0xFF
    done(hip.hipLaunchHostFunc(None, ctypes.CDLL(None).free, None))
    done(hip.hipStreamSynchronize(None))


def test_hip_launch_host_func_keeps_function_alive_until_called(hip: ModuleType) -> None:
    called = threading.Event()
    function = HOST(lambda _: called.set())
    alive = weakref.ref(function)
    gate = Gate(hip)
    gate.close(None)
    done(hip.hipLaunchHostFunc(None, function, None))
    del function
    gc.collect()
    assert alive() is not None
    gate.open()
    done(hip.hipStreamSynchronize(None))
    assert called.is_set()
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("bad", [None, 0, 12345, HOST(), ctypes.c_void_p()])
def test_hip_launch_host_func_null_or_bad_function_returns_invalid_value(hip: ModuleType, bad: Any) -> None:
    assert code(hip.hipLaunchHostFunc(None, bad, None)) == "hipErrorInvalidValue"
    assert code(hip.hipStreamAddCallback(None, bad, None, 0)) == "hipErrorInvalidValue"


def test_hip_launch_host_func_address_of_data_returns_invalid_value(hip: ModuleType) -> None:
    data = ctypes.create_string_buffer(64)
    assert code(hip.hipLaunchHostFunc(None, ctypes.addressof(data), None)) == "hipErrorInvalidValue"
    with pytest.raises(TypeError):
        hip.hipLaunchHostFunc(None, print, None)


def test_hip_host_function_calls_bad_flag_or_stream_return_documented_codes(hip: ModuleType) -> None:
    function, added = HOST(lambda _: None), ADDED(lambda *_: None)
    assert code(hip.hipStreamAddCallback(None, added, None, 1)) == "hipErrorInvalidValue"
    assert code(hip.hipStreamAddCallback(INVENTED, added, None, 0)) == "hipErrorContextIsDestroyed"
    assert code(hip.hipLaunchHostFunc(INVENTED, function, None)) == "hipErrorContextIsDestroyed"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_hip_launch_host_func_function_that_raises_does_not_fail_stream(hip: ModuleType) -> None:
    called: list[int] = []

    @HOST
    def broken(_: Any) -> None:
        called.append(1)
        raise RuntimeError("broken")

    stream = done(hip.hipStreamCreate())
    done(hip.hipLaunchHostFunc(stream, broken, None))
    done(hip.hipLaunchHostFunc(stream, broken, None))
    done(hip.hipStreamSynchronize(stream))
    assert called == [1, 1]


def test_hip_launch_host_func_function_may_submit_to_other_stream(hip: ModuleType) -> None:
    first, second = done(hip.hipStreamCreateWithFlags(1)), done(hip.hipStreamCreateWithFlags(1))
    word = holding(hip, bytes(4))
    codes: list[str] = []
    function = HOST(lambda _: codes.append(code(hip.hipStreamWriteValue32(second, word, 3, 0))))
    done(hip.hipLaunchHostFunc(first, function, None))
    done(hip.hipStreamSynchronize(first))
    done(hip.hipStreamSynchronize(second))
    assert codes == ["hipSuccess"]
    assert content(hip, word, 4) == b"\3\0\0\0"


@pytest.mark.parametrize("call", ["hipStreamSynchronize", "hipEventSynchronize", "hipDeviceSynchronize"])
def test_hip_launch_host_func_function_that_waits_for_its_stream_gets_time_out(
    hip: ModuleType, call: str
) -> None:
    stream, event = done(hip.hipStreamCreate()), done(hip.hipEventCreate())
    words = {"hipStreamSynchronize": [stream], "hipEventSynchronize": [event]}.get(call, [])
    codes: list[str] = []
    entered = Gate(hip)
    function = HOST(lambda _: codes.append(code(getattr(hip, call)(*words))))
    entered.close(stream)
    done(hip.hipLaunchHostFunc(stream, function, None))
    done(hip.hipEventRecord(event, stream))
    entered.open()
    done(hip.hipStreamSynchronize(stream))
    assert codes == ["hipErrorLaunchTimeOut"]


def test_hip_launch_host_func_function_may_destroy_its_stream(hip: ModuleType) -> None:
    stream, finished = done(hip.hipStreamCreateWithFlags(1)), done(hip.hipEventCreate())
    codes: list[str] = []
    function = HOST(lambda _: codes.append(code(hip.hipStreamDestroy(stream))))
    gate = Gate(hip)
    gate.close(stream)
    done(hip.hipLaunchHostFunc(stream, function, None))
    done(hip.hipEventRecord(finished, stream))
    gate.open()
    done(hip.hipEventSynchronize(finished))
    assert codes == ["hipSuccess"]
    assert code(hip.hipStreamQuery(stream)) == "hipErrorContextIsDestroyed"
