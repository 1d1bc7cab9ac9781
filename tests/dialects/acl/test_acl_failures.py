"""``acl.rt``: the last failure of a thread, and the callback for failures on streams."""

from __future__ import annotations

import threading
from types import ModuleType

import pytest

from helpers.acl_calls import Held, filled, in_thread, ok

pytestmark = pytest.mark.timeout(60)


def failing(acl: ModuleType) -> tuple[int, int]:
    """Return a stream on which the second operation will fail, and its id."""
    ok(acl.rt.set_device(1))
    far = filled(acl, 64, 2)
    ok(acl.rt.set_device(0))
    stream = ok(acl.rt.create_stream())
    held = Held(acl, stream)
    ok(acl.rt.memcpy_async(filled(acl, 64, 1), 64, far, 64, 3, stream))  # without peer access
    held.release()
    return stream, ok(acl.rt.stream_get_id(stream))


def test_acl_get_last_error_forgets_and_peek_at_last_error_keeps(acl: ModuleType) -> None:
    assert acl.rt.peek_at_last_error(0) == 0
    assert acl.rt.set_device(9) == 107001
    assert acl.rt.malloc(65 << 20, 0) == (0, 207001)
    assert [acl.rt.peek_at_last_error(0), acl.rt.peek_at_last_error(0)] == [207001, 207001]
    assert acl.rt.get_last_error(0) == 207001
    assert [acl.rt.get_last_error(0), acl.rt.peek_at_last_error(0)] == [0, 0]


def test_acl_get_last_error_after_successful_call_returns_earlier_failure(acl: ModuleType) -> None:
    assert acl.rt.set_device(9) == 107001
    pointer = filled(acl, 64, 1)
    ok(acl.rt.memcpy(pointer, 64, pointer, 64, 3))
    assert acl.rt.get_last_error(0) == 107001


def test_acl_get_last_error_argument_failures_are_not_counted(acl: ModuleType) -> None:
    ok(acl.init())
    assert acl.init() == 100002
    assert acl.rt.free(0) == 100000
    assert acl.mdl.load_from_file("x") == (0, 200001)
    assert acl.rt.get_last_error(1) == 100000
    assert acl.rt.get_last_error(0) == 0
    acl.finalize()


def test_acl_get_last_error_is_per_thread(acl: ModuleType) -> None:
    assert acl.rt.set_device(9) == 107001
    assert in_thread(lambda: (acl.rt.get_device(), acl.rt.get_last_error(0))) == ((0, 107002), 107002)
    assert in_thread(acl.rt.get_last_error, 0) == 0
    assert acl.rt.get_last_error(0) == 107001


def test_acl_get_last_error_stream_failure_counts_at_synchronize(acl: ModuleType) -> None:
    stream, _ = failing(acl)
    assert acl.rt.synchronize_stream(stream) == 507899
    assert acl.rt.get_last_error(0) == 507899


def info_of(acl: ModuleType, info: int) -> list[int]:
    return [
        getattr(acl.rt, f"get_{what}_from_exception_info")(info)
        for what in ("error_code", "task_id", "stream_id", "thread_id", "device_id")
    ]


@pytest.mark.parametrize("setter", ["synchronize_stream", "synchronize_device", "destroy_stream"])
def test_acl_exception_callback_receives_stream_failure_once_with_facts(acl: ModuleType, setter: str) -> None:
    received: list[list[int]] = []
    ok(acl.rt.set_exception_info_callback(lambda info: received.append([info, *info_of(acl, info)])))
    stream, number = failing(acl)
    assert received == []
    args = () if setter == "synchronize_device" else (stream,)
    assert getattr(acl.rt, setter)(*args) == 507899
    ((info, *facts),) = received
    assert facts == [507899, 2, number, threading.get_native_id(), 0]
    assert info_of(acl, info) == [0] * 5
    assert "is not a failure that is being told" in acl.get_recent_err_msg()
    ok(acl.rt.synchronize_device())
    assert len(received) == 1
    ok(acl.rt.set_exception_info_callback(None))


def test_acl_exception_callback_does_not_receive_timeout_and_abort(acl: ModuleType) -> None:
    received: list[int] = []
    ok(acl.rt.set_exception_info_callback(received.append))
    stream = ok(acl.rt.create_stream())
    held = Held(acl, stream)
    assert acl.rt.synchronize_stream_with_timeout(stream, 20) == 507046
    ok(acl.rt.stream_abort(stream))
    assert acl.rt.synchronize_stream(stream) == 107023
    held.release()
    assert received == []
    ok(acl.rt.set_exception_info_callback())


def test_acl_exception_callback_latest_is_called_and_removed_when_it_raises(acl: ModuleType) -> None:
    received: list[int] = []

    def bad(info: int) -> None:
        received.append(info)
        raise RuntimeError("no")

    ok(acl.rt.set_exception_info_callback(received.append))
    ok(acl.rt.set_exception_info_callback(bad))
    for expected in (1, 1):
        assert acl.rt.synchronize_stream(failing(acl)[0]) == 507899
        assert len(received) == expected
    assert "the exception callback raised RuntimeError: no" in acl.get_recent_err_msg()


def test_acl_synchronize_stream_exception_callback_exits_returns_code(acl: ModuleType) -> None:
    def ends(info: int) -> None:
        raise SystemExit(3)

    ok(acl.rt.set_exception_info_callback(ends))
    stream, _ = failing(acl)
    assert acl.rt.synchronize_stream(stream) == 507899
    assert "the exception callback raised SystemExit: 3" in acl.get_recent_err_msg()


def test_acl_set_exception_info_callback_bad_arguments_raise_type_error(acl: ModuleType) -> None:
    for args in ((5,), (print, print)):
        with pytest.raises(TypeError, match=r"^acl\.rt\.set_exception_info_callback args parse failed$"):
            acl.rt.set_exception_info_callback(*args)
