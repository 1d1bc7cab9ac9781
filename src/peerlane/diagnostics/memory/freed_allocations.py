"""The last freed allocations by number and by address, for errors about addresses in freed memory."""

from __future__ import annotations

import contextlib
import itertools
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

_STEP, _SMALLEST = 4, 12  # bits: pages of 4 KiB, and of 16 times the size for each further order


class Freed(Protocol):
    """The facts of an allocation that ended."""

    id: int
    offset: int
    size: int
    ended: int


_G = TypeVar("_G", bound=Freed)


class FreedAllocations(Generic[_G]):
    """The last ``most`` freed allocations by number; finds the newest at an address in constant time.

    Each is listed in the pages that its first and last byte lie in.  The pages are at least as large as the
    allocation, so that two pages cover it.  Programs free often and read seldom: a reader lists what was freed
    since the last one.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = itertools.count(1)
        self._unlisted: deque[_G] = deque(maxlen=most)
        self._by_id: OrderedDict[int, _G] = (
            OrderedDict()
        )  # a dict finds its first entry slowly after many removals
        self._pages: dict[tuple[int, int], deque[_G]] = {}
        self._orders: dict[int, None] = {}

    def add(self, ended: _G) -> None:
        """Add an allocation; beyond ``most``, forget the oldest."""
        ended.ended = next(self._count)
        self._unlisted.append(ended)

    def get(self, number: int) -> _G | None:
        """Return the allocation of a number."""
        self._list()
        return self._by_id.get(number)

    def _list(self) -> None:
        while self._unlisted:
            try:
                ended = self._unlisted.popleft()
            except IndexError:  # another reader was faster
                return
            for page in _pages_of(ended):
                self._orders.setdefault(page[0])
                self._pages.setdefault(page, deque()).append(ended)
            self._by_id[ended.id] = ended
            while len(self._by_id) > self._most:
                self._forget_oldest()

    def at(self, offset: int, wanted: Callable[[_G], bool] = lambda _: True) -> _G | None:
        """Return the newest allocation that was at an offset and for which ``wanted`` is true."""
        self._list()
        newest: _G | None = None
        for order in tuple(self._orders):
            while True:
                try:
                    each = self._newest(self._pages.get((order, offset >> order), ()), offset, wanted)
                except RuntimeError:  # another thread, or the garbage collector, added one meanwhile
                    continue
                break
            if each is not None and (newest is None or each.ended > newest.ended):
                newest = each
        return newest

    @staticmethod
    def _newest(page: deque[_G] | tuple[()], offset: int, wanted: Callable[[_G], bool]) -> _G | None:
        there = (each for each in reversed(page) if each.offset <= offset < each.offset + each.size)
        return next(filter(wanted, there), None)

    def _forget_oldest(self) -> None:
        try:
            _, oldest = self._by_id.popitem(last=False)
        except KeyError:  # as above, it was forgotten meanwhile
            return
        for page in _pages_of(oldest):
            held = self._pages.get(page)
            with contextlib.suppress(ValueError, IndexError):
                if held is not None:
                    held.remove(oldest)
            if not held:
                self._pages.pop(page, None)


def _pages_of(ended: Freed) -> set[tuple[int, int]]:
    last = max(ended.size, 1) - 1
    order = max(_SMALLEST, -(-last.bit_length() // _STEP) * _STEP)
    return {(order, ended.offset >> order), (order, ended.offset + last >> order)}
