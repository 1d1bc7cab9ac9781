"""Reports of ranks to the launcher that serves their rendezvous: puts under special keys, which are not stored."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from peerlane.diagnostics.ranks import losses
from peerlane.errors import Error
from peerlane.rendezvous import client

LAUNCHED = (
    "PEERLANE_LAUNCHED"  #: a variable of the ranks' environment: the address of the launcher's rendezvous
)
#: A variable of the ranks' environment: the launcher's pipe from their standard error, ``"device:inode"``.
LAUNCHED_STDERR = "PEERLANE_LAUNCHED_STDERR"
SHOWN_KEY = "peerlane.report."  #: key, before the text's name, of a text that the launcher shows
ENDED_KEY = "peerlane.ended."  #: key, before a rank, of the traceback of the error that ends it
LOST_KEY = "peerlane.lost"  #: key of the sessions of two ranks: the first has lost the second

_PREFIX = "peerlane."
_SECONDS = 2.0
_MOST_NAMES = 1024  # names of shown texts that are remembered


class Reports:
    """Receives the reports of ranks, which may be any bytes."""

    def __init__(self) -> None:
        #: Called with each text once, however many ranks report it.
        self.show: Callable[[bytes], None] | None = None
        #: Called with the name of a machine, empty for this one, the session of a rank there, and the session there
        #: of the rank that it has lost.
        self.lose: Callable[[str, int, int], None] | None = None
        #: Called with a rank and the traceback of the error that ends it.
        self.end: Callable[[int, bytes], None] | None = None
        self._shown: dict[str, None] = {}

    def hear(self, key: str, value: bytes, where: str) -> bool:
        """Handle a put if it is a report, and return whether it is; ``where`` is the machine that it comes from."""
        if not key.startswith(_PREFIX):
            return False
        if key == LOST_KEY and self.lose is not None:
            words = value.split(b" ")
            if len(words) == 2 and all(word.isdigit() and len(word) < 10 for word in words):
                self.lose(where, int(words[0]), int(words[1]))
            return True
        if key.startswith(ENDED_KEY) and self.end is not None:
            rank = key.removeprefix(ENDED_KEY)
            if rank.isascii() and rank.isdigit() and len(rank) < 10:
                self.end(int(rank), value)
            return True
        if key.startswith(SHOWN_KEY) and self.show is not None:
            if key not in self._shown:
                self._shown[key] = None
                if len(self._shown) > _MOST_NAMES:
                    del self._shown[next(iter(self._shown))]
                self.show(value)
            return True
        return False


def report_loss(mine: int, other: int, environ: Mapping[str, str] = os.environ) -> None:
    """Report to the launcher, if there is one, that the rank of one session has lost that of another."""
    _report(LOST_KEY, b"%d %d" % (mine, other), environ)


def show(name: str, text: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Let the launcher, if there is one, show a text, once for all ranks; return whether it has it."""
    return _report(SHOWN_KEY + name, text.encode(errors="replace"), environ)


def show_end(traceback: Callable[[], str], environ: Mapping[str, str] = os.environ) -> bool:
    """Let the launcher show the traceback of the error that ends this rank; return whether it has it.

    It shows one for all ranks that end with the same.  Where standard error is not the launcher's, it gets none.

    Parameters
    ----------
    traceback : callable
        Returns the text; not called if the launcher gets none.
    environ : mapping of str to str
    """
    try:
        own = identity(2)
    except OSError:  # it is closed
        return False
    if own != environ.get(LAUNCHED_STDERR):
        return False
    return _report(
        ENDED_KEY + environ.get("RANK", ""), traceback().encode(errors="backslashreplace"), environ
    )


def identity(descriptor: int) -> str:
    """Return a file's device and inode, as `LAUNCHED_STDERR` has them."""
    about = os.fstat(descriptor)
    return f"{about.st_dev}:{about.st_ino}"


def _report(key: str, value: bytes, environ: Mapping[str, str]) -> bool:
    address, rank, size = (environ.get(name, "") for name in (LAUNCHED, "RANK", "WORLD_SIZE"))
    if not address or not all(word.isascii() and word.isdigit() and len(word) < 10 for word in (rank, size)):
        return False
    try:
        client.put_once(address, int(rank), int(size), key, value, _SECONDS)
    except Error:  # the launcher has ended, or the program has changed the variables
        return False
    return True


losses.report_to_launcher = report_loss
