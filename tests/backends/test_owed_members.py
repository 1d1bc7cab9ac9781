"""What a back-end owes: a member of an interface that it leaves out is an error, and not None."""

from __future__ import annotations

import pytest

from peerlane.memory.address_range import AddressRange
from peerlane.memory.buffer import Buffer
from peerlane.memory.physical import Physical
from peerlane.streams.event import Event
from peerlane.streams.notify import Notify
from peerlane.streams.stream import Stream

pytestmark = pytest.mark.any_schedule


@pytest.mark.parametrize(
    ("interface", "owed"),
    [
        (Buffer, ("device", "size", "id", "close")),
        (AddressRange, ("device", "map", "unmap", "access", "close")),
        (Physical, ("device", "size", "id", "export", "close")),
        (Stream, ("device", "id", "submitted", "completed", "close")),
        (Event, ("device", "id", "export", "fileno", "close")),
        (Notify, ("device", "kind", "id", "export", "close")),
    ],
)
def test_owed_member_that_a_backend_leaves_out_raises(interface: type, owed: tuple[str, ...]) -> None:
    lacking = object.__new__(type("Lacking", (interface,), {}))
    for name in owed:
        with pytest.raises(NotImplementedError, match=name):
            getattr(lacking, name)()
