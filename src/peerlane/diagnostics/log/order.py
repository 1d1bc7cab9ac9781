"""Orders that a program makes and peerlane cannot see, declared for ``peerlane check``."""

from __future__ import annotations

from types import TracebackType
from typing import TypeAlias

from peerlane.diagnostics.log import event_log

Key: TypeAlias = "str | bytes | int | tuple[Key, ...]"


class Order:
    """An order between threads or processes that peerlane cannot see, declared for ``peerlane check``.

    What a thread does before :meth:`post` comes before what another thread does after the :meth:`take` of the same
    key, whichever process it is in.  Declare only an order that the program really makes, for example by a socket or
    by ``multiprocessing.Queue``: a false one hides races.  Without a log it does nothing.

    As a context it is for a lock: all blocks of a key come one after the other.

    Parameters
    ----------
    key : str, bytes, int or tuple of these
        For messages, have a key for each message.

    Examples
    --------
    >>> pl.order(("block", 7)).post()  # before the sender's send
    >>> pl.order(("block", 7)).take()  # behind the receiver's recv
    """

    __slots__ = ("_key",)

    def __init__(self, key: Key) -> None:
        self._key = _checked(key)

    def post(self) -> None:
        """Declare that what this thread has done comes before what others do after they take it."""
        if event_log.active:
            event_log.post(event_log.key_of("order", self._key))

    def take(self, posts: int = 1) -> None:
        """Declare that what others did before they posted comes before what this thread does from now on.

        Parameters
        ----------
        posts : int
            How many posts of the key have certainly been made; 0 for all that were made earlier by time.
        """
        if event_log.active:
            event_log.take(event_log.key_of("order", self._key), posts)

    def __enter__(self) -> Order:
        self.take(0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.post()


def _checked(key: Key) -> Key:
    if isinstance(key, tuple):
        return tuple(map(_checked, key))
    if isinstance(key, bool) or not isinstance(key, str | bytes | int):
        raise TypeError(f"order: a key is a str, bytes, an int or a tuple of these, not {type(key).__name__}")
    return key
