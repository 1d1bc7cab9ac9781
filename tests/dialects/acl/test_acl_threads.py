"""``acl.util``: threads that run a function of the program, as the vendor's binding starts and joins them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from helpers.acl_calls import ok
from peerlane.dialects.acl import _thread

pytestmark = pytest.mark.timeout(60)
RAISED = [ValueError("no such frame"), SystemExit(3), KeyboardInterrupt(), StopIteration()]


def test_acl_start_thread_calls_function_and_stop_thread_joins_it(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    arguments: list[Any] = []
    go = threading.Event()

    def work(args: list[Any]) -> None:
        arguments.append((args, threading.get_ident(), acl.util.stop_thread(threading.get_ident())))
        go.wait(20)

    thread, ret = acl.util.start_thread(work, [1, "two"])
    assert ret == 0 and type(thread) is int
    go.set()
    ok(acl.util.stop_thread(thread))
    assert arguments == [([1, "two"], thread, 100000)]
    assert acl.util.stop_thread(thread) == 100000
    assert "not a thread of acl.util.start_thread" in message()


def test_acl_stop_thread_of_itself_with_number_of_ended_thread_is_refused(
    acl: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = ok(acl.util.start_thread(lambda: None, None))  # nobody stops it, and the next one gets its number
    _thread._threads[ended].join(20)
    codes, is_asked = list[int](), threading.Event()

    def work() -> None:
        codes.append(acl.util.stop_thread(threading.get_ident()))
        is_asked.set()

    def start(self: threading.Thread) -> None:
        threading.Thread.start(self)
        assert is_asked.wait(20)

    monkeypatch.setattr(_thread._Started, "start", start)
    ok(acl.util.stop_thread(ok(acl.util.start_thread(work, None))))
    assert codes == [100000]


@pytest.mark.parametrize("arguments", [[], [1, [2]], (1,), {"a": 1}, "text", 7, 0, False, object])
def test_acl_start_thread_any_object_is_passed_as_argument(arguments: Any, acl: ModuleType) -> None:
    seen: list[tuple[Any, ...]] = []
    ok(acl.util.stop_thread(ok(acl.util.start_thread(lambda *args: seen.append(args), arguments))))
    assert len(seen) == 1 and len(seen[0]) == 1 and seen[0][0] is arguments


def test_acl_start_thread_none_calls_function_without_argument(acl: ModuleType) -> None:
    seen: list[tuple[Any, ...]] = []
    ok(acl.util.stop_thread(ok(acl.util.start_thread(lambda *args: seen.append(args), None))))
    assert seen == [()]


@pytest.mark.parametrize("error", RAISED, ids=[type(each).__name__ for each in RAISED])
def test_acl_stop_thread_function_raised_raises_runtime_error(
    error: BaseException, acl: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(_: object) -> None:
        raise error

    thread = ok(acl.util.start_thread(work, []))
    with pytest.raises(RuntimeError) as raised:
        acl.util.stop_thread(thread)
    assert str(raised.value) == f"exception={type(error).__name__},msg=thread call failed;"
    errors = capsys.readouterr().err
    assert "in work" in errors and type(error).__name__ in errors
    assert acl.util.stop_thread(thread) == 100000  # the failure is reported once


def test_acl_stop_thread_function_of_wrong_arity_raises_runtime_error(
    acl: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    for function, arguments in ((lambda: None, [1]), (lambda _: None, None)):
        with pytest.raises(RuntimeError, match=r"^exception=TypeError,msg=thread call failed;$"):
            acl.util.stop_thread(ok(acl.util.start_thread(function, arguments)))
        assert "positional argument" in capsys.readouterr().err


@pytest.mark.parametrize("args", [(), (print,), (print, [], 1), (print, [], 1, 2)])
def test_acl_start_thread_not_two_arguments_raises_type_error(args: tuple[Any, ...], acl: ModuleType) -> None:
    with pytest.raises(TypeError) as raised:
        acl.util.start_thread(*args)
    assert str(raised.value) == f"function takes exactly 2 arguments ({len(args)} given)"
    with pytest.raises(TypeError, match="keyword"):
        acl.util.start_thread(thr_func=print, args_list=[])


@pytest.mark.parametrize("function", [None, 1, "print", []])
def test_acl_start_thread_function_not_callable_raises_type_error(function: Any, acl: ModuleType) -> None:
    with pytest.raises(TypeError) as raised:
        acl.util.start_thread(function, [])
    assert str(raised.value) == "parameter must be callable"


def test_acl_stop_thread_not_a_number_raises_type_error(acl: ModuleType) -> None:
    for args in ((), ("1",), (None,), (1.0,), (1, 2)):
        with pytest.raises(TypeError, match=r"^acl\.util\.stop_thread args parse failed$"):
            acl.util.stop_thread(*args)
