"""A rank's own records on its board: each is decoded as it was encoded, and no bytes are trusted."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerlane.errors import FailedBefore, RankWait, ThreadWait
from peerlane.ranks.deadlock.board_records import decode, encode

pytestmark = pytest.mark.any_schedule

WAIT = RankWait(
    3, 77, "notify 2 from rank 1 to rank 3", 1, "", (ThreadWait("MainThread", "a.py:7", 6),), 5, 2, "a.py:6"
)
COLLECTIVE = RankWait(
    1,
    79,
    "notify 28 from rank 0 to rank 1",
    0,
    threads=(ThreadWait("MainThread", "a.py:7", 6, "Group.barrier", ("a.py:9", "b.py:2")),),
    kind="collective",
)
BARRIER = RankWait(
    0,
    78,
    "here",
    threads=(ThreadWait("MainThread", "a.py:7"),),
    call="Rendezvous.barrier",
    kind="barrier",
    awaited=(1, 2),
)
WORD = RankWait(2, 80, "a word of memory", stream=3, operation=1, submitted_at="a.py:5", kind="word")
FAILED = FailedBefore(4, 2, "notify", "notify 9 is strict", "a.py:3", was_reported=True)


def test_board_records_encoded_are_decoded() -> None:
    assert decode(encode([WAIT, FAILED], 1700), 3, 77) == [WAIT, FAILED]
    assert decode(encode([BARRIER], 1700), 0, 78) == [BARRIER]
    assert decode(encode([COLLECTIVE], 1700), 1, 79) == [COLLECTIVE]
    assert decode(encode([WORD], 1700), 2, 80) == [WORD]


def test_board_records_without_room_are_left_out_whole() -> None:
    content = encode([WAIT] * 50, 400)
    assert len(content) <= 400
    decoded = decode(content, 3, 77)
    assert decoded and all(each == WAIT for each in decoded)


def test_board_record_cut_in_the_middle_is_decoded_to_text() -> None:
    content = encode([WAIT, WAIT], 1700)[:-10]
    first, second = decode(content, 3, 77)
    assert first == WAIT and isinstance(second, str)


def test_board_record_of_unknown_kind_is_decoded_to_text() -> None:
    (decoded,) = decode(json.dumps(["waits", "k", "n", "", "", "", 1, 1, 1, [], []]).encode(), 0, 1)
    assert isinstance(decoded, str)


def test_board_record_with_impossible_number_is_decoded_to_text() -> None:
    for number in (-2, 1 << 70, True, "1", None, 1.5):
        line = json.dumps(["waits", "notify", "n", "", "", "", 1, number, 1, [], []]).encode()
        (decoded,) = decode(line, 0, 1)
        assert isinstance(decoded, str) or number is True


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=1856)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps).map(str.encode)
)
def test_board_random_bytes_are_decoded_to_short_printable_text(content: bytes) -> None:
    decoded = decode(content, 0, 1)
    assert len(decoded) <= 12
    for each in decoded:
        words = (
            [each]
            if isinstance(each, str)
            else [str(getattr(each, "what", "")), str(getattr(each, "why", ""))]
        )
        assert all(word.isprintable() and len(word) <= 500 for word in words)
