"""What transfers of several dialects do in common."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator

import pytest

import peerlane as pl
from helpers.promises import Node
from peerlane.dialects._shared.moves import MemoryMoves


class _Failing:
    """A call that fails."""

    is_brief = True

    def __call__(self) -> None:
        raise ValueError("it is gone")

    @contextlib.contextmanager
    def logged(self, stream: pl.Stream | None) -> Iterator[None]:
        yield

    def is_over(self) -> None:
        pytest.fail("the call has failed")


class _Kept:
    """What a frame of the program has."""


def test_moves_of_a_failed_call_raise_it_and_keep_no_frame_of_the_program(node: Node) -> None:
    node("devices=1")

    def transfer() -> tuple[weakref.ref[_Kept], str]:
        kept, text = _Kept(), ""
        with pl.devices()[0].create_stream() as stream:
            moves = MemoryMoves((), _Failing())
            moves.queue(stream)
            try:
                moves.finish(stream)
            except ValueError as error:
                text = str(error)
        return weakref.ref(kept), text

    kept, text = transfer()
    assert (kept(), text) == (None, "it is gone")
