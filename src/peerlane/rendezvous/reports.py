"""What ranks tell the launcher that serves their rendezvous.  It is a put under a key of its own, and is not kept."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping

from peerlane.diagnostics import losses
from peerlane.errors import Error
from peerlane.rendezvous import client

LAUNCHED = "PEERLANE_LAUNCHED"  #: in the environment of ranks: the address of the launcher that hears them
SHOWN_KEY = "peerlane.report."  #: of a text that the launcher shows, with the text's name
LOST_KEY = "peerlane.lost"  #: of the sessions of two ranks: the first has lost the second

_PREFIX = "peerlane."
_SECONDS = 2.0
_MOST_NAMES = 1024  # of texts that were shown


class Reports:
    """Hears what ranks tell; all of it may be anybody's bytes.

    Attributes
    ----------
    show : callable, optional
        Called with each text, once whatever the number of ranks that tell it.
    lose : callable, optional
        Called with the sessions of a rank, and of the one that it has lost.
    """

    def __init__(self) -> None:
        self.show: Callable[[bytes], None] | None = None
        self.lose: Callable[[int, int], None] | None = None
        self._shown: dict[str, None] = {}

    def hear(self, key: str, value: bytes) -> bool:
        """Return whether this is a report, which is over then."""
        if not key.startswith(_PREFIX):
            return False
        if key == LOST_KEY and self.lose is not None:
            words = value.split(b" ")
            if len(words) == 2 and all(word.isdigit() and len(word) < 10 for word in words):
                self.lose(int(words[0]), int(words[1]))
            return True
        if key.startswith(SHOWN_KEY) and self.show is not None:
            if key not in self._shown:
                self._shown[key] = None
                if len(self._shown) > _MOST_NAMES:
                    del self._shown[next(iter(self._shown))]
                self.show(value)
            return True
        return False


def tell_of_loss(mine: int, other: int, environ: Mapping[str, str] = os.environ) -> None:
    """Tell the launcher, if there is one, that the rank of one session has lost that of another."""
    address, rank, size = (environ.get(name, "") for name in (LAUNCHED, "RANK", "WORLD_SIZE"))
    if address and all(word.isascii() and word.isdigit() and len(word) < 10 for word in (rank, size)):
        with contextlib.suppress(Error):  # it has ended, or the program has set other numbers
            client.put_once(address, int(rank), int(size), LOST_KEY, b"%d %d" % (mine, other), _SECONDS)


losses.tell_launcher = tell_of_loss
