"""Streams that write words of memory and wait for them, with the promises of docs/errors.md on them."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

import peerlane as pl
from helpers.promised import overdue
from helpers.promises import Node
from peerlane.errors import Fault

pytestmark = pytest.mark.timeout(60)
PATIENCE = 20.0


def _wanted(word: int, compare: str, value: int, mask: int, sign: int) -> bool:
    """Tell whether a wait ends, by the rules of hipStreamWaitValue and acl's value_wait on the masked bits."""
    masked = word & mask
    return {
        "geq": masked >= value,
        "eq": masked == value,
        "and": masked & value != 0,
        "since": (masked - value) & sign == 0,
        "nor": any(not (masked | value) >> bit & 1 for bit in range(64) if mask >> bit & 1),
    }[compare]


@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("compare", ["geq", "eq", "and", "nor", "since"])
def test_wait_value_ends_only_when_comparison_holds(node: Node, compare: str, width: int) -> None:
    d0, _ = node()
    cases = [
        case
        for case in itertools.product((0, 1, 5, 6, 0xF0), (0, 1, 5, 0xFF), (0xFF, 0x0F))
        if case[1] <= case[2] or compare != "geq"
    ]
    words = d0.allocate(8 * len(cases))
    words.copy_from(np.array([word for word, _, _ in cases], np.uint64))
    streams = [d0.create_stream() for _ in cases]
    for number, (_, value, mask) in enumerate(cases):
        at = words.address + 8 * number
        pl.raw.wait_value(
            at, value, stream=streams[number], compare=compare, mask=mask, width=width, timeout=0.05
        )
    over = []
    for stream in streams:
        try:
            stream.sync(timeout=PATIENCE)
            over.append(True)
        except pl.WaitTimeout:
            over.append(False)
    assert over == [_wanted(word, compare, value, mask, 1 << 8 * width - 1) for word, value, mask in cases]


def test_wait_value_orders_copies_of_two_streams(node: Node) -> None:
    d0, d1 = node()
    word, a, b = d0.allocate(8), d1.allocate(5 << 20), d0.allocate(5 << 20)
    word.fill(0)
    with d0.create_stream() as s, d1.create_stream() as t:
        for turn in range(1, 6):
            pl.raw.wait_value(word.address, 2 * turn - 1, stream=s)
            b.copy_from(a, stream=s)
            pl.raw.write_value(word.address, 2 * turn, stream=s)
            a.fill(turn, stream=t)
            pl.raw.write_value(word.address, 2 * turn - 1, stream=t)
            pl.raw.wait_value(word.address, 2 * turn, stream=t)
            t.sync(timeout=PATIENCE)
            assert (b.view() == turn).all()


def test_wait_value_on_pinned_word_ends_when_host_writes_it(node: Node) -> None:
    d0, _ = node()
    word = pl.Host().allocate(8)
    word.fill(0)
    with d0.create_stream() as s:
        view = word.view(np.uint64)
        pl.raw.wait_value(word.address, 7, compare="eq", stream=s)
        assert not s.is_done
        view[0] = 7
        s.sync(timeout=PATIENCE)


def test_write_value_bad_arguments_raise(node: Node) -> None:
    d0, _ = node()
    word = d0.allocate(16)
    with d0.create_stream() as s:
        for change, text in (
            ({"width": 2}, "width is 2; valid are 4 and 8"),
            ({"width": 4, "value": 1 << 32}, "does not fit 4 bytes"),
            ({"address": word.address + 4}, "not a multiple of 8"),
            ({"value": -1}, "value is -1"),
        ):
            arguments = {"address": word.address, "value": 1, **change}
            with pytest.raises(pl.InvalidValue, match=text):
                pl.raw.write_value(arguments.pop("address"), arguments.pop("value"), stream=s, **arguments)
        with pytest.raises(pl.BadAddress) as refused:
            pl.raw.write_value(word.address + (1 << 40), 1, stream=s)
        assert refused.value.fault is Fault.UNKNOWN_ADDRESS
        with pytest.raises(TypeError, match="stream must be a Stream, not NoneType"):
            pl.raw.write_value(word.address, 1, stream=None)  # type: ignore[arg-type]
        assert s.submitted == 0


def test_wait_value_bad_arguments_raise(node: Node) -> None:
    d0, _ = node()
    word = d0.allocate(16)
    host = np.zeros(2, np.uint64)
    with d0.create_stream() as s:
        with pytest.raises(pl.InvalidValue, match="compare is 'gt'; valid are geq, eq, and, nor, since"):
            pl.raw.wait_value(word.address, 1, stream=s, compare="gt")
        with pytest.raises(pl.InvalidValue, match="width is 1"):
            pl.raw.wait_value(word.address, 1, stream=s, width=1)
        with pytest.raises(pl.InvalidValue, match="timeout is -1"):
            pl.raw.wait_value(word.address, 1, stream=s, timeout=-1)
        with pytest.raises(pl.BadAddress, match="pageable host memory"):
            pl.raw.wait_value(host.ctypes.data, 1, stream=s)
        with pytest.raises(pl.BadAddress, match=f"address {word.address + 4096:#x}"):
            pl.raw.wait_value(word.address + 4096, 1, stream=s)
        assert s.submitted == 0


def test_wait_value_past_timeout_raises_wait_timeout(node: Node) -> None:
    d0, _ = node()
    word, a = d0.allocate(8), d0.allocate(8)
    word.fill(0)
    a.fill(0)
    stream = d0.create_stream()
    pl.raw.wait_value(word.address, 1, stream=stream, timeout=0.1)
    a.fill(1, stream=stream)
    start = time.monotonic()
    with pytest.raises(
        pl.WaitTimeout, match=r"operation 1 \(wait for a value\) .* did not come within 0.1 s"
    ):
        stream.sync(timeout=PATIENCE)
    assert time.monotonic() - start < overdue(0.1)
    assert (a.view() == 0).all()
    stream.close()


@pytest.mark.parametrize("width", [4, 8])
def test_wait_value_on_pageable_word_ends_or_raises_host_fault(node: Node, width: int) -> None:
    d0, _ = node()
    host = np.zeros(2, np.uint64)
    with d0.create_stream() as s:
        pl.raw.wait_value(host.ctypes.data + 8, 7, stream=s, width=width, pageable=True)
        assert not s.is_done
        host[1] = 7
        s.sync(timeout=PATIENCE)
        pl.raw.wait_value(0x1000, 7, stream=s, width=width, pageable=True)
        with pytest.raises(pl.BadAddress, match="0x1000") as gone:
            s.sync(timeout=PATIENCE)
        assert gone.value.fault is Fault.HOST_FAULT
        for never in (0, d0.allocate(8).address + (1 << 40)):
            with pytest.raises(pl.BadAddress):
                pl.raw.wait_value(never, 7, stream=s, width=width, pageable=True)
