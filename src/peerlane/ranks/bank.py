"""Banks: lines of memory that the processes of several ranks share, and how a process opens one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from peerlane.backend.facts import HandleKind
from peerlane.sharing.open import open_offer

if TYPE_CHECKING:
    from peerlane.backend.ranks import Bank
    from peerlane.node.device import Device


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
