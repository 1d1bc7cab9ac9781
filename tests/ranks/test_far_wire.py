"""What the ends of a channel between machines tell each other is checked before it is used."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peerlane.errors import BadHandle, Fault
from peerlane.ranks.far_wire import FarInvitation

pytestmark = pytest.mark.any_schedule

RANGES = (((1 << 40, 0, 4096),), ((5, 64, 32), (6, 0, 32)))


def invitation(**changed: Any) -> FarInvitation:
    fields: dict[str, Any] = {"ranges": RANGES, **changed}
    return FarInvitation(2, "1.22.0", b"address", 3, 4, 5, (("window", 4096), ("table", 64)), **fields)


def decoded(fields: dict[str, Any]) -> FarInvitation:
    return FarInvitation.decode("Group.channel", 1, json.dumps(fields).encode())


@pytest.mark.parametrize("ranges", [(), RANGES])
def test_invitation_comes_as_it_was_sent(ranges: Any) -> None:
    sent = invitation(ranges=ranges)
    assert FarInvitation.decode("Group.channel", 1, sent.encode()) == sent


def test_memory_in_very_many_ranges_is_sent_without_them() -> None:
    many = (tuple((number, 0, 1) for number in range(5000)), ())
    assert FarInvitation.decode("Group.channel", 1, invitation(ranges=many).encode()).ranges == ()


@pytest.mark.parametrize(
    "addresses",
    [
        *(5, "x", {}, [[]], [[], [], []], [[], 5], [[], [[1, 2]]], [[], [[1, 2, 3, 4]]]),
        *([[], [[-1, 0, 1]]], [[], [[1 << 63, 0, 1]]], [[], [[1, 0.5, 1]]], [[], [[True, 0, 1]]]),
        [[[1, 0, 1]] * 3000, [[1, 0, 1]] * 3000],
    ],
)
def test_impossible_addresses_are_refused(addresses: object) -> None:
    fields = json.loads(invitation().encode())
    with pytest.raises(BadHandle) as refused:
        decoded({**fields, "places": addresses})
    assert refused.value.fault is Fault.FALSE_CLAIM
