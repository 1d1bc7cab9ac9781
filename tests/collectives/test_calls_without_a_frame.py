"""Collectives that native code serves: they take and refuse the same arguments as the methods in Python."""

from __future__ import annotations

import ctypes
import functools
import inspect
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import peerlane as pl
from helpers.threads_as_ranks import run_ranks

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(60)]

NAMES = (
    *("barrier", "broadcast", "all_gather", "all_to_all"),
    *("scatter", "all_reduce", "reduce", "reduce_scatter"),
)


def served(group: pl.Group) -> pl.Group:
    """Return the group after its first collective, from which on native code serves it."""
    assert type(group.barrier).__name__ == "method"
    group.barrier()
    assert {type(getattr(group, name)).__name__ for name in NAMES} == {"GroupCall"}
    return group


def test_positional_and_keyword_arguments_give_the_same_bytes() -> None:
    def work(group: pl.Group) -> None:
        served(group)
        rank, size = group.rank, group.size
        whole = np.arange(size * 3, dtype=np.int32)
        mine = whole[rank * 3 : rank * 3 + 3].copy()
        got = np.zeros(size * 3, np.int32)
        group.all_gather(got, mine)
        assert np.array_equal(got, whole)
        in_place = np.zeros(size * 3, np.int32)
        in_place[rank * 3 : rank * 3 + 3] = mine
        group.all_gather(dst=in_place, stream=None)
        assert np.array_equal(in_place, whole)

        word = np.full(1, rank, np.int64)
        group.broadcast(word, 1)
        assert word[0] == 1
        word[0] = rank
        group.broadcast(root=np.int64(0), buffer=word)
        assert word[0] == 0

        sums = np.full(5, rank + 1, np.float64)
        group.all_reduce(sums, dtype=np.float64, op="sum", algorithm=None)
        assert np.array_equal(sums, np.full(5, size * (size + 1) / 2))
        into = np.zeros(5, np.float32)
        group.all_reduce(into, np.full(5, rank, np.float32), dtype="float32", op="max")
        assert np.array_equal(into, np.full(5, size - 1))
        into[:] = 0
        group.reduce(into, np.full(5, 2, np.float32), 1, dtype=np.dtype("float32"), op="prod")
        assert np.array_equal(into, np.full(5, 2**size if rank == 1 else 0))
        part = np.zeros(2, np.int16)
        group.reduce_scatter(part, np.arange(size * 2, dtype=np.int16), dtype="int16")
        assert np.array_equal(part, size * np.arange(rank * 2, rank * 2 + 2))
        out = np.zeros(size, np.uint8)
        group.all_to_all(out, src=np.arange(size, dtype=np.uint8) + 10 * rank)
        assert np.array_equal(out, [10 * each + rank for each in range(size)])
        share = np.zeros(1, np.uint8)
        group.scatter(share, np.arange(size, dtype=np.uint8) if rank == 2 else None, root=2)
        assert share[0] == rank

    run_ranks(3, work)


def test_messages_of_positional_and_keyword_arguments_have_the_same_bytes() -> None:
    sizes = (0, 1, 47, 48, 49, 5_000, 400_000, 3_000_000)

    def work(group: pl.Group) -> None:
        for turn in range(3):  # native code serves all but the first
            for size in sizes:
                sent = (np.arange(size) + turn).astype(np.uint8)
                got = np.zeros(size, np.uint8)
                with group.device.allocate(size + 8) as memory:
                    memory[8:].copy_from(sent)
                    if group.rank == 0:
                        group.send(memory[8:], 1)
                        group.recv(dst=got, peer=1, stream=None)
                    else:
                        group.recv(got, np.int64(0) if turn == 1 else 0)
                        group.send(src=sent, peer=0)
                assert np.array_equal(got, sent), (turn, size)
        assert type(group.send).__name__ == type(group.recv).__name__ == "GroupCall"

    run_ranks(2, work)


@pytest.mark.parametrize("first", ["send", "recv"])
@pytest.mark.parametrize("size", [8, 3_000_000])
def test_messages_of_different_sizes_raise_invalid_value_in_who_comes_last(first: str, size: int) -> None:
    is_waiting = threading.Event()

    def work(group: pl.Group) -> pl.Error | None:
        mine = "send" if group.rank == 0 else "recv"
        buffer = np.zeros(size + (mine == "recv"), np.uint8)
        call = functools.partial(getattr(group, mine), buffer, 1 - group.rank)
        group.barrier()
        warm = np.zeros(1)
        group.send(warm, 1) if group.rank == 0 else group.recv(warm, 0)
        if mine == first:
            is_waiting.set()
            try:
                call()
            except pl.Error as error:
                return error
            return None  # a short message had left
        assert is_waiting.wait(30)
        try:
            call()
        except pl.Error as error:
            return error
        return None

    outcome = run_ranks(2, work, ends_together=False)
    kinds = {type(each) for each in outcome if each is not None}
    assert pl.InvalidValue in kinds and kinds <= {pl.InvalidValue, pl.PeerLost}, outcome
    for each in outcome:
        if isinstance(each, pl.InvalidValue):
            assert re.search(rf"as number 2 of its lane, .*sends {size:,} .*as a message", str(each))


WRONG: dict[str, tuple[type[Exception], Callable[[Any], Any]]] = {
    "a name that is not a parameter": (TypeError, lambda g: g.barrier(streams=None)),
    "too many": (TypeError, lambda g: g.barrier(None)),
    "one twice": (TypeError, lambda g: g.broadcast(np.zeros(1), buffer=np.zeros(1))),
    "none at all": (TypeError, lambda g: g.all_gather()),
    "no type": (TypeError, lambda g: g.all_reduce(np.zeros(2))),
    "no such type": (pl.InvalidValue, lambda g: g.all_reduce(np.zeros(2), dtype="float8")),
    "no such operation": (pl.InvalidValue, lambda g: g.all_reduce(np.zeros(2), dtype="float64", op="xor")),
    "no such root": (pl.InvalidValue, lambda g: g.broadcast(np.zeros(2), 7)),
    "a root below zero": (pl.InvalidValue, lambda g: g.broadcast(np.zeros(2), -1)),
    "no whole element": (pl.InvalidValue, lambda g: g.all_reduce(np.zeros(3, np.uint8), dtype="int16")),
    "an array of objects": (TypeError, lambda g: g.all_reduce(np.array([None]), dtype="int64")),
    "a read-only array": (pl.AccessDenied, lambda g: g.all_reduce(_read_only(), dtype="int64")),
    "every other element": (pl.InvalidValue, lambda g: g.all_reduce(np.zeros(4)[::2], dtype="float64")),
    "parts that are not equal": (pl.InvalidValue, lambda g: g.all_gather(np.zeros(3, np.uint8))),
    "sizes that differ": (pl.InvalidValue, lambda g: g.all_reduce(np.zeros(2), np.zeros(3), dtype="float64")),
    "a message to itself": (pl.InvalidValue, lambda g: g.send(np.zeros(2), g.rank)),
    "a message to nobody": (pl.InvalidValue, lambda g: g.send(np.zeros(2), 9)),
    "a message without a peer": (TypeError, lambda g: g.recv(np.zeros(2))),
    "a message into bytes": (pl.AccessDenied, lambda g: g.recv(b"12", 1 - g.rank)),
    "not a stream": (TypeError, lambda g: g.barrier(stream=1)),
}


def _without_addresses(error: BaseException) -> str:
    return re.sub("[0-9a-f]{8,}", "...", str(error))


def _read_only() -> np.ndarray[Any, Any]:
    array = np.zeros(2, np.int64)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("what", WRONG)
def test_wrong_arguments_are_refused_as_before_the_first_collective(what: str) -> None:
    kind, call = WRONG[what]

    def work(group: pl.Group) -> None:
        with pytest.raises(kind) as first:
            call(group)
        served(group)
        with pytest.raises(kind) as then:
            call(group)
        assert _without_addresses(then.value) == _without_addresses(first.value)
        group.barrier()  # nothing was begun

    run_ranks(2, work)


def test_numpy_arrays_that_are_no_plain_numbers_go_by_the_methods_in_python() -> None:
    def work(group: pl.Group) -> None:
        served(group)
        when = np.full(3, group.rank, "datetime64[s]")
        group.broadcast(when, 1)
        assert np.array_equal(when, np.full(3, 1, "datetime64[s]"))
        record = np.zeros(2, [("a", np.int32), ("b", np.float64)])
        record["b"] = group.rank
        group.broadcast(record, 1)
        assert np.array_equal(record["b"], [1, 1])
        text = bytearray(b"ab" if group.rank == 0 else b"--")
        group.broadcast(text)
        assert text == b"ab"

    run_ranks(2, work)


@pytest.mark.any_schedule  # under seeded each call takes its turn in Python
def test_numpy_arrays_of_each_plain_type_and_shape_need_no_method_in_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    in_python = [0, 0]  # calls by rank
    make = pl.Group._make

    def counted(group: pl.Group, asked: Any, stream: Any) -> None:
        in_python[group.rank] += 1
        make(group, asked, stream)

    monkeypatch.setattr(pl.Group, "_make", counted)

    def work(group: pl.Group) -> None:
        served(group)
        group.broadcast(np.zeros(1))
        in_python[group.rank] = 0
        for code in "?bBhHiIlLqQefd":
            for shape in ((), (3,), (2, 3), (1, 4, 1)):
                expected = np.arange(int(np.prod(shape))).reshape(shape).astype(code)
                own = np.zeros_like(expected) if group.rank else expected.copy()
                group.broadcast(own)
                assert own.tobytes() == expected.tobytes(), (code, shape)
                whole = np.zeros((2, *shape), code)  # of which a part is changed
                whole[1] = 0 if group.rank else expected
                group.broadcast(whole[1:])
                assert whole.tobytes() == bytes(expected.nbytes) + expected.tobytes(), (code, shape)

    run_ranks(2, work)
    assert in_python == [0, 0]


def test_numpy_arrays_that_are_swapped_or_have_gaps_or_no_rights_keep_their_rules() -> None:
    def work(group: pl.Group) -> None:
        served(group)
        group.broadcast(np.zeros(1))
        swapped = np.full(3, group.rank + 1, ">i4")
        group.broadcast(swapped, 1)
        assert swapped.tolist() == [2, 2, 2]
        fixed = np.zeros(8, np.uint8)
        fixed.flags.writeable = False
        with pytest.raises(pl.AccessDenied):
            group.broadcast(fixed, 1 - group.rank)
        with pytest.raises((pl.InvalidValue, TypeError)):
            group.broadcast(np.zeros(8, np.uint8)[::2])
        with pytest.raises((pl.InvalidValue, TypeError)):
            group.broadcast(np.zeros((2, 3), np.uint8, order="F"))

    run_ranks(2, work)


@pytest.mark.any_schedule  # under seeded each call takes its turn in Python
def test_bytes_and_arrays_of_ctypes_need_no_method_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    class Word(ctypes.Union):
        _fields_ = (("number", ctypes.c_uint32), ("letters", ctypes.c_char * 4))

    in_python: list[list[str]] = [[], []]  # by rank
    make = pl.Group._make

    def counted(group: pl.Group, asked: Any, stream: Any) -> None:
        in_python[group.rank].append(asked.method)
        make(group, asked, stream)

    monkeypatch.setattr(pl.Group, "_make", counted)

    def work(group: pl.Group) -> None:
        served(group)
        group.barrier()
        in_python[group.rank].clear()
        near, there = group.rank, 1 - group.rank
        text = bytearray(b"ab" if near == 0 else b"--")
        group.broadcast(text)
        assert text == b"ab"
        got = (ctypes.c_int16 * 6)()
        group.all_gather(got, (ctypes.c_int16 * 3)(near, 2, 3))
        assert list(got) == [0, 2, 3, 1, 2, 3]
        assert in_python[near] == []
        words = (Word * 2)()
        words[0].number = near + 7
        group.broadcast(words, 1)
        assert words[0].number == 8
        with pytest.raises(pl.AccessDenied):
            group.broadcast(b"--", there)

    run_ranks(2, work)
    assert in_python == [["Group.broadcast"] * 2] * 2


def test_a_method_of_a_subclass_stays_in_charge() -> None:
    class Counting(pl.Group):
        calls = 0

        def all_reduce(self, *args: Any, **options: Any) -> None:
            self.calls += 1
            super().all_reduce(*args, **options)

    def work(group: pl.Group) -> None:
        group.__class__ = Counting
        assert isinstance(group, Counting)
        group.barrier()
        assert type(group.barrier).__name__ == "GroupCall"
        word = np.ones(1)
        group.all_reduce(word, dtype="float64")
        assert (group.calls, word[0]) == (1, 2)

    run_ranks(2, work)


def test_names_and_signatures_are_those_of_the_methods() -> None:
    def work(group: pl.Group) -> None:
        before = {name: inspect.signature(getattr(group, name)) for name in NAMES}
        served(group)
        for name in NAMES:
            call = getattr(group, name)
            assert (call.__name__, call.__doc__) == (name, getattr(pl.Group, name).__doc__)
            assert inspect.signature(call) == before[name]

    run_ranks(2, work)


def test_methods_of_a_closed_group_raise_closed() -> None:
    def work(group: pl.Group) -> None:
        kept = served(group).barrier
        group.barrier()
        group.close()
        assert type(group.barrier).__name__ == "method"
        for call in (kept, group.barrier):
            with pytest.raises(pl.Closed):
                call()

    run_ranks(2, work, ends_together=False)


def test_all_to_all_v_does_not_touch_its_source_between_the_parts(tmp_path: Path) -> None:
    part = 1 << 20
    (tmp_path / "file").write_bytes(bytes(range(256)) * (8 * part // 256))

    def work(group: pl.Group) -> None:
        mine, into = np.memmap(tmp_path / "file", np.uint8, "r"), np.zeros(2 * part, np.uint8)
        for turn in range(4):  # after the first the others read it where it lies
            group.all_to_all_v(into, mine, receives=[part] * 2, sends=[part] * 2)
            assert np.array_equal(into, mine[: 2 * part]), turn
            group.barrier()
            if turn == 1 and group.rank:
                os.truncate(tmp_path / "file", 2 * part)
            group.barrier()

    run_ranks(2, work)


@pytest.mark.parametrize("call", ["all_gather", "send", "broadcast"])
@pytest.mark.parametrize("times", [0, 2])  # from then on the others read it where it lies
def test_host_memory_that_is_gone_is_reported_to_the_rank_that_passed_it(
    tmp_path: Path, call: str, times: int
) -> None:
    part = 1 << 20
    (tmp_path / "file").write_bytes(bytes(part))

    def work(group: pl.Group) -> pl.Error:
        mine = np.memmap(tmp_path / "file", np.uint8, "r") if group.rank else np.ones(part, np.uint8)
        into = np.zeros(2 * part, np.uint8)

        def once() -> None:
            if call == "all_gather":
                group.all_gather(into, mine)
            elif call == "broadcast":
                group.broadcast(mine, 1)
            elif group.rank:
                group.send(mine, 0)
            else:
                group.recv(into[:part], 1)

        for _ in range(times):
            once()
        group.barrier()
        if group.rank:
            os.truncate(tmp_path / "file", part // 2)
        group.barrier()
        with pytest.raises(pl.Error) as outcome:
            once()
        return outcome.value

    lost, gone = run_ranks(2, work, ends_together=False)
    assert isinstance(lost, pl.PeerLost)
    assert isinstance(gone, pl.BadAddress) and gone.fault is pl.Fault.HOST_FAULT
