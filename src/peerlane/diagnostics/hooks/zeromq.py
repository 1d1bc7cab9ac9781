"""Order between threads and processes by messages of ZeroMQ, for the event log; they are seen in the calls of pyzmq.

The log has the contents of each message's last part.  A receiver that got as many messages of the same contents comes
behind the first so many that were sent.  What libzmq itself adds or sends does not count: identities, empty parts
between, the empty messages of PROBE_ROUTER, and the subscriptions that an XPUB receives.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import sys
import weakref
from collections import Counter
from types import ModuleType
from typing import Any

from peerlane.diagnostics.hooks.wrappers import frames_hidden
from peerlane.diagnostics.log import event_log
from peerlane.support.module_code import call_after

#: Bytes at each end of a message that its number depends on.
_END = 4096
#: Contents that a socket counts; if it forgets some, it comes behind fewer messages.
_MOST_COUNTED = 1 << 16

_numbers = itertools.count(1)
_sockets: weakref.WeakKeyDictionary[Any, _Socket] = weakref.WeakKeyDictionary()


class _Socket:
    """A socket's number and kind, and how many messages it has received, by their contents."""

    def __init__(self, kind: int) -> None:
        self.number = next(_numbers)
        self.kind = kind
        self.received: Counter[int] = Counter()


def _noted(socket: Any) -> _Socket:
    if (noted := _sockets.get(socket)) is None:
        noted = _sockets[socket] = _Socket(socket.get(sys.modules["zmq"].TYPE))
    return noted


def follow() -> None:
    """Install the hooks when the program imports pyzmq."""
    call_after("zmq.sugar.socket", _follow_sockets)


def _follow_sockets(module: ModuleType) -> None:
    """Follow the calls that all other calls of sockets make, those of asyncio too."""
    kind = module.Socket
    send, receive, receive_into = kind.send, kind.recv, getattr(kind, "recv_into", None)

    @functools.wraps(send)
    def sent(self: Any, data: Any, flags: int = 0, *args: Any, **kwargs: Any) -> Any:
        contents = None if flags & sys.modules["zmq"].SNDMORE else _contents(data)
        if contents is not None:
            event_log.sends_message(contents, _noted(self).number)
        try:
            with frames_hidden:
                return send(self, data, flags, *args, **kwargs)
        except BaseException:
            if contents is not None:
                event_log.sends_message(contents, _noted(self).number, is_undone=True)
            raise

    @functools.wraps(receive)
    def received(self: Any, *args: Any, **kwargs: Any) -> Any:
        with frames_hidden:
            message = receive(self, *args, **kwargs)
        _note_reception(self, message)
        return message

    kind.send, kind.recv = sent, received
    if receive_into is None:
        return

    @functools.wraps(receive_into)
    def received_into(self: Any, buffer: Any, *args: Any, **kwargs: Any) -> Any:
        with frames_hidden:
            size = receive_into(self, buffer, *args, **kwargs)
        _note_reception(self, buffer, size)
        return size

    kind.recv_into = received_into


def _note_reception(receiver: Any, message: Any, size: int | None = None) -> None:
    zmq = sys.modules["zmq"]
    contents = _contents(message, size)
    if contents is None or receiver.get(zmq.RCVMORE):
        return
    socket = _noted(receiver)
    if socket.kind in (zmq.XPUB, zmq.STREAM) or (socket.kind == zmq.ROUTER and contents == _EMPTY):
        return
    if len(socket.received) >= _MOST_COUNTED:
        socket.received.clear()
    socket.received[contents] += 1
    event_log.received_message(contents, socket.number, socket.received[contents])


def _contents(message: Any, size: int | None = None) -> int | None:
    """Return a number of a message's bytes; None without a log, and for what is no message."""
    if not event_log.active:
        return None
    try:
        data = memoryview(getattr(message, "buffer", message)).cast("B")[:size]
    except (TypeError, ValueError):  # the call raises, or no byte came
        return None
    return _number_of(data)


def _number_of(data: bytes | memoryview) -> int:
    digest = hashlib.blake2b(len(data).to_bytes(8, "little"), digest_size=8)
    digest.update(data[:_END])
    digest.update(data[-_END:])
    return int.from_bytes(digest.digest(), "little")


_EMPTY = _number_of(b"")
