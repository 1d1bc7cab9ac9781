"""Banks: lines of memory that the processes of several ranks share, and how they are exported and opened."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from peerlane.backend.facts import HandleKind
from peerlane.sharing.open import open_offer

if TYPE_CHECKING:
    from peerlane.backend.ranks import Bank
    from peerlane.devices.device import Device
    from peerlane.sharing.handle import Allow, Handle


def offer_bank(
    source: object, device: Device, bank: Bank, count: int, *, allow: Allow, told: Iterable[object] = ()
) -> Handle:
    """Return the handle of a bank.

    Parameters
    ----------
    source : object
        Kept alive by the handle.
    device : Device
    bank : Bank
    count : int
        How many notifies, ranks or leases its lines are for; the handle brings it to the processes that open it.
    allow : iterable of int, or "user"
        The pids of the processes that may open it.
    told : iterable of object
        The objects whose export is reported to observers.
    """

    def offer(everyone: bool) -> Any:
        return device.backend.offer_signal(HandleKind.NOTIFIES, bank, device.ordinal, everyone, count=count)

    made: Handle = device.backend.make_handle(source, allow, offer, told=told)
    return made


def open_bank(
    call: str,
    device: Device,
    handle: str,
    lines: int,
    seconds: float,
    check: Callable[[int], None] = lambda _count: None,
) -> Bank:
    """Open a bank by its handle; ``check`` raises if the number that came with it is impossible."""
    offer, _ = open_offer(call, handle, HandleKind.NOTIFIES, None, seconds, reaches=False)
    with contextlib.closing(offer):
        check(offer.count)
        opened: Bank = device.backend.ranks.open_bank(offer, lines)
        return opened
