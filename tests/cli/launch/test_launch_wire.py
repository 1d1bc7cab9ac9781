"""The wire between the launcher and its part on another machine."""

from __future__ import annotations

import os
import selectors
from collections.abc import Iterator

import pytest

from peerlane.cli.launch.wire import LONGEST, MAGIC, Frame, Kind, Wire

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(60)]


class Ends:
    """A wire, and the descriptors of its other end."""

    def __init__(self, *, is_part: bool) -> None:
        self.selector = selectors.DefaultSelector()
        incoming, self.write_end = os.pipe()
        self.read_end, outgoing = os.pipe()
        os.set_blocking(self.read_end, False)
        self.heard: list[Frame] = []
        self.lost: list[str] = []
        self.wire = Wire(
            self.selector, incoming, outgoing, self.heard.append, self.lost.append, is_part=is_part
        )

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            for key, _ in self.selector.select(0):
                key.data()

    def write_all(self, content: bytes) -> None:
        os.write(self.write_end, content)
        self.turn()


@pytest.fixture
def ends() -> Iterator[Ends]:
    it = Ends(is_part=True)
    yield it
    it.wire.close()
    for descriptor in (it.read_end, it.write_end):
        os.close(descriptor)


def sent(kind: Kind, number: int, body: bytes) -> bytes:
    there = Ends(is_part=False)
    there.wire.send(kind, number, body)
    there.turn()
    content = os.read(there.read_end, 1 << 16)
    there.wire.close()
    for descriptor in (there.read_end, there.write_end):
        os.close(descriptor)
    return content


def test_wire_frames_come_whole_however_they_are_cut(ends: Ends) -> None:
    frames = [(Kind.READY, 0, b"{}"), (Kind.OUTPUT, 7, b"\1\n" * 100), (Kind.GONE, -3, b"")]
    content = b"Welcome" + MAGIC + b"".join(sent(*each) for each in frames)
    for byte in content:
        ends.write_all(bytes([byte]))
    assert [tuple(each) for each in ends.heard] == frames
    assert bytes(ends.wire.noise) == b"Welcome"
    assert ends.lost == []


@pytest.mark.parametrize(
    ("content", "frames"),
    [
        (b"x" * 70_000, "it does not begin as a part"),
        (MAGIC + b"\0\0\0\0\xff\0\0\0\0", "kind 255 with 0 bytes"),
        (MAGIC + (LONGEST + 1).to_bytes(4, "little") + b"\x21\0\0\0\0", "kind 33 with 16,777,217 bytes"),
    ],
)
def test_wire_that_is_none_is_lost_once(content: bytes, frames: str, ends: Ends) -> None:
    for at in range(0, len(content), 40_000):
        ends.write_all(content[at : at + 40_000])
    ends.turn()
    assert len(ends.lost) == 1 and frames in ends.lost[0]
    assert ends.heard == [] and ends.wire.is_closed


def test_wire_closed_by_a_frame_hears_and_writes_nothing_more(ends: Ends) -> None:
    ends.wire._hear = lambda frame: (ends.heard.append(frame), ends.wire.close())
    ends.wire.send(Kind.PAUSE)
    ends.write_all(MAGIC + sent(Kind.READY, 0, b"") * 2)  # readable and writable at once
    ends.turn()
    ends.wire.send(Kind.RESUME)
    assert len(ends.heard) == 1 and ends.lost == []


def test_wire_to_a_reader_that_does_not_read_keeps_what_is_sent_in_order(ends: Ends) -> None:
    body = bytes(range(256)) * 1000
    for number in range(4):
        ends.wire.send(Kind.OUTPUT, number, body)
    ends.turn()
    assert ends.wire.unsent > 0
    there = Ends(is_part=False)
    while len(there.heard) < 4:
        ends.turn()
        there.write_all(os.read(ends.read_end, 1 << 15))
    assert [(each.number, each.body) for each in there.heard] == [(number, body) for number in range(4)]
    assert ends.wire.unsent == 0
    there.wire.close()
    for descriptor in (there.read_end, there.write_end):
        os.close(descriptor)
