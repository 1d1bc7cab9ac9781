"""The allocations that ended last, found by number or by address: for who asks why an address means nothing."""

from __future__ import annotations

import contextlib
import itertools
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Protocol, TypeVar

_STEP, _SMALLEST = 4, 12  # bits: sizes are sorted into orders 16 times as large as one another


class Grave(Protocol):
    """What has to be known of an allocation."""

    id: int
    offset: int
    size: int
    ended: int


_G = TypeVar("_G", bound=Grave)


class Graves(OrderedDict[int, _G]):  # a dict finds its first entry slowly once many were taken out before it
    """The last ``most`` that ended, by number, oldest first; the newest at an address in constant time.

    Each is listed where it begins and ends, in pages at least as large as itself, so in two pages at most.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._count = itertools.count(1)
        self._pages: dict[tuple[int, int], deque[_G]] = {}
        self._orders: dict[int, None] = {}

    def add(self, grave: _G) -> None:
        """Add one; beyond ``most`` the oldest is forgotten."""
        grave.ended = next(self._count)
        for page in _pages_of(grave):
            self._orders.setdefault(page[0])
            self._pages.setdefault(page, deque()).append(grave)
        self[grave.id] = grave
        while len(self) > self._most:
            self._forget_oldest()

    def at(self, offset: int, wanted: Callable[[_G], bool] = lambda _: True) -> _G | None:
        """Return the newest of those ``wanted`` that was at an offset."""
        found: _G | None = None
        for order in tuple(self._orders):
            while True:
                try:
                    each = self._newest(self._pages.get((order, offset >> order), ()), offset, wanted)
                except RuntimeError:  # another thread, or the garbage collector, ended something meanwhile
                    continue
                break
            if each is not None and (found is None or each.ended > found.ended):
                found = each
        return found

    @staticmethod
    def _newest(page: deque[_G] | tuple[()], offset: int, wanted: Callable[[_G], bool]) -> _G | None:
        there = (each for each in reversed(page) if each.offset <= offset < each.offset + each.size)
        return next(filter(wanted, there), None)

    def _forget_oldest(self) -> None:
        try:
            _, oldest = self.popitem(last=False)
        except KeyError:  # as above: it has forgotten it
            return
        for page in _pages_of(oldest):
            held = self._pages.get(page)
            with contextlib.suppress(ValueError, IndexError):
                if held is not None:
                    held.remove(oldest)
            if not held:
                self._pages.pop(page, None)


def _pages_of(grave: Grave) -> set[tuple[int, int]]:
    last = max(grave.size, 1) - 1
    order = max(_SMALLEST, -(-last.bit_length() // _STEP) * _STEP)
    return {(order, grave.offset >> order), (order, grave.offset + last >> order)}
