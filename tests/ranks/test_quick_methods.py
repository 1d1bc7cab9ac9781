"""The methods of a channel that native code serves do what the checked Python methods do, refusals included."""

from __future__ import annotations

import contextlib
import gc
import inspect
import pydoc
import random
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import peerlane as pl
from helpers.promises import Node
from peerlane import _core

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]
_LEFT_OUT = object()
_SEED = 20261122


def _outcome(channel: pl.Channel, call: Callable[..., object], stream: pl.Stream) -> tuple[object, ...]:
    channel.window.fill(0)
    before = [(line.recorded, line.consumed) for line in channel._outgoing]
    try:
        outcome: object = call()
        stream.sync()
        channel.fence()
    except (pl.Error, TypeError, ValueError, OverflowError) as error:
        outcome = type(error), re.sub(r"stream \d+", "a stream", str(error))
    after = [(line.recorded, line.consumed) for line in channel._outgoing]
    counted = [(r - s, d - c) for (s, c), (r, d) in zip(before, after, strict=True)]
    for index, line in enumerate(channel._outgoing):
        while line.recorded != line.consumed:
            with contextlib.suppress(pl.Busy):  # the next record is of another notify
                channel.wait(index)
    return outcome, bytes(channel.window.view()), counted


@pytest.mark.parametrize("kind", ["binary", "strict", "fifo"])
def test_quick_write_random_arguments_does_what_checked_write_does(node: Node, kind: str) -> None:
    print(f"seed {_SEED}")
    draw = random.Random(_SEED)
    node("devices=2")
    other = pl.devices()[1]
    with (
        pl.Group(0, 1, rendezvous=lambda outcome: [outcome], window=256, notifies=kind) as group,
        group.channel(0, notifies=2) as channel,
        group.device.create_stream() as stream,
    ):
        closed, gone = group.device.create_stream(), group.device.allocate(8)
        closed.close()
        gone.close()
        own = group.device.allocate(64)
        own.fill(7)
        sources = [own[:8], own[:0], own, other.allocate(8), b"12345678", gone, None, 3]
        options: dict[str, list[Any]] = {
            "at": [0, 64, 248, 249, 256, 257, -1, True, 2**64, 1.0, None],
            "notify": [None, 0, 1, 2, -1, True, 2**70, "x"],
            "stream": [None, stream, closed, 3],
            "memory": [None, "window", "none", own, 3],
            "nonblocking": [False, True],
        }
        for _ in range(1500):
            arguments = {
                name: each
                for name, values in options.items()
                if (each := draw.choice([_LEFT_OUT] * 3 + values[:2] * 2 + values)) is not _LEFT_OUT
            }
            source = draw.choice(sources)
            methods = (type(channel).write, pl.Channel.write)
            quick, checked = (
                _outcome(channel, partial(served_method, channel, source, **arguments), stream)
                for served_method in methods
            )
            assert quick == checked, (source, arguments)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("notify", [((0,), {}), ((1,), {"stream": None}), ((2,), {}), ((-1,), {}), (("0",), {}), ((), {})]),
        ("wait", [((0,), {"timeout": 0.0}), ((2,), {}), ((2**80,), {}), ((0,), {"timeout": "x"}), ((), {})]),
        ("write", [((), {}), ((b"", b""), {}), ((b"",), {"till": 3}), ((b"",), {"at": "0"})]),
    ],
)
def test_quick_method_wrong_call_raises_what_checked_method_raises(
    node: Node, name: str, arguments: list[tuple[tuple[Any, ...], dict[str, Any]]]
) -> None:
    node()
    with (
        pl.Group(0, 1, rendezvous=lambda outcome: [outcome]) as group,
        group.channel(0, notifies=2) as channel,
        group.device.create_stream() as stream,
    ):
        methods = getattr(type(channel), name), getattr(pl.Channel, name)
        for positional, named in arguments:
            quick, checked = (
                _outcome(channel, partial(served_method, channel, *positional, **named), stream)
                for served_method in methods
            )
            assert quick == checked, (positional, named)
            if named.get("timeout") == 0.0:
                assert "within 0 s" in str(quick[0]) and "called at test_quick_methods.py" in str(quick[0])


def test_quick_wait_bad_timeout_is_refused_and_consumes_no_record(node: Node) -> None:
    node()
    wrong = ["x", -1, -0.5, float("nan"), True, [], object()]
    right = [None, 0, 3, 0.0, 2.5, float("inf"), 10**30]
    with (
        pl.Group(0, 1, rendezvous=lambda outcome: [outcome]) as group,
        group.channel(0, notifies=2) as channel,
    ):
        line = channel._incoming[1]
        for timeout in wrong:
            channel.notify(1)
            with pytest.raises((TypeError, pl.InvalidValue), match="timeout"):
                channel.wait(1, timeout=timeout)  # type: ignore[arg-type]
            assert line.recorded != line.consumed, timeout
            channel.wait(1)
        for timeout in right:
            channel.notify(1)
            channel.wait(1, timeout=timeout)
            assert line.recorded == line.consumed, timeout


@pytest.mark.parametrize("name", ["write", "notify", "wait"])
def test_quick_method_inspected_shows_checked_signature_and_docs(node: Node, name: str) -> None:
    node()
    with pl.Group(0, 1, rendezvous=lambda outcome: [outcome]) as group, group.channel(0) as channel:
        served = type(channel)
    method, checked = getattr(served, name), getattr(pl.Channel, name)
    assert type(method) is _core.QuickMethod
    assert inspect.signature(method) == inspect.signature(checked)
    assert (method.__name__, method.__qualname__, method.__doc__) == (
        name,
        checked.__qualname__,
        checked.__doc__,
    )
    assert inspect.isroutine(method)
    assert checked.__doc__.strip().splitlines()[0] in pydoc.plain(pydoc.render_doc(served))
    with pytest.raises(TypeError, match="unexpected keyword argument 'x'"):
        method(object(), x=1)


def test_quick_method_closed_channel_raises_closed(node: Node) -> None:
    node()
    with pl.Group(0, 1, rendezvous=lambda outcome: [outcome]) as group:
        channel = group.channel(0, notifies=1)
        write, notify, wait = channel.write, channel.notify, channel.wait
        buffer = group.device.allocate(8)
        notify(0)
        channel.close()
        for call in (lambda: write(buffer), lambda: notify(0), lambda: wait(0)):
            with pytest.raises(pl.Closed, match="was closed"):
                call()


def test_channel_method_before_init_raises_attribute_error() -> None:
    for call in (pl.Channel.write, pl.Channel.notify, pl.Channel.wait):
        with pytest.raises(AttributeError):
            call(pl.Channel.__new__(pl.Channel), 0)


def test_quick_method_unknown_kind_raises_value_error() -> None:
    with pytest.raises(ValueError, match="no way of this name: swim"):
        _core.QuickMethod("swim", print)


def test_quick_method_in_a_cycle_is_garbage_collected() -> None:
    def count() -> int:
        gc.collect()
        return sum(type(each) is _core.QuickMethod for each in gc.get_objects())

    before = count()
    for _ in range(10):
        quick_method: Any = _core.QuickMethod("wait", print)
        quick_method.itself = quick_method
    del quick_method
    assert count() == before
