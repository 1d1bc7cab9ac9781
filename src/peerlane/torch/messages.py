"""Sends and receives with tags.

A message is a head, with its tag and size, and its bytes, which may fit into the head.  The messages of a rank to
another one travel in one order.  A receiver takes them in that order, and keeps those that nobody has asked for yet.

A send that need not wait, and a receive whose message comes soon, run in the caller's thread.
"""

from __future__ import annotations

import contextlib
import functools
import struct
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from peerlane.collectives.duplicate import Duplicate
from peerlane.collectives.readiness import mails_of
from peerlane.diagnostics.call_site import call_site
from peerlane.diagnostics.log import event_log
from peerlane.errors import Error, PeerLost, Refused
from peerlane.torch.failures import converted, refused
from peerlane.torch.lane import Lane
from peerlane.torch.receives import Receive, Unattended
from peerlane.torch.tensor_bytes import bytes_of, flat, put_back

if TYPE_CHECKING:
    from peerlane.backend.ranks import Mails

_IN_HEAD = 24
_HEAD = struct.Struct(f"=qqq{_IN_HEAD}s")  # kind, tag, bytes, and the bytes of a message that has no more
_MESSAGE, _GOODBYE = 0, 1
_GOODBYE_SECONDS = 0.5


class _QueuedSend(Future[None]):
    """Ends with a send that waits for its receiver.

    A thread that waits for it reads no messages.  The other rank may wait for a send, too: so other threads begin
    to read then, not some milliseconds later.
    """

    def __init__(self, read_in_threads: Callable[[], None]) -> None:
        super().__init__()
        self._read_in_threads = read_in_threads

    def result(self, timeout: float | None = None) -> None:
        if not self.done():
            self._read_in_threads()
        return super().result(timeout)


class Messages:
    """The messages of a process group.

    Parameters
    ----------
    group : Duplicate
        One that has no other use.

    Attributes
    ----------
    is_sound : bool
        Whether no message has failed.
    """

    def __init__(self, group: Duplicate) -> None:
        self._group = group
        group.connect()  # from now on a short message waits for nobody, and its sender may end before it is read
        self._out = {peer: Lane() for peer in self._others()}
        self._in = {peer: Lane() for peer in self._others()}
        self._lock = threading.Lock()
        self._receives: list[Receive] = []
        self._unattended = Unattended(self._start)
        self._heads: dict[int, tuple[int, int, int, bytes]] = {}  # read, and their messages not
        self._kept: dict[int, list[tuple[int, bytearray]]] = {peer: [] for peer in self._others()}
        self._reading: set[int] = set()
        self._lost: dict[int, Exception] = {}
        self._mails: Mails | None = None
        self.is_sound = True

    def _others(self) -> list[int]:
        return [rank for rank in range(self._group.size) if rank != self._group.rank]

    def send(self, tensor: torch.Tensor, peer: int, tag: int) -> Future[int | None] | None:
        """Send a message in this thread if it need not wait, and return None; else queue it."""
        lane = self._lane(self._out, "send", peer)
        sizes = [_HEAD.size, tensor.nbytes] if tensor.nbytes > _IN_HEAD else [_HEAD.size]

        def call() -> None:
            contiguous = flat(tensor)
            nbytes, payload = contiguous.nbytes, bytes_of(contiguous)
            try:
                if nbytes > _IN_HEAD:
                    self._group.send(_HEAD.pack(_MESSAGE, tag, nbytes, b""), peer)
                    self._group.send(payload, peer)
                else:
                    self._group.send(_HEAD.pack(_MESSAGE, tag, nbytes, bytes(payload)), peer)
            except Error as error:
                self.is_sound = False
                raise converted("send", error) from error

        try:
            if lane.run_if(lambda: self._is_ready(peer, True, sizes, False), call):
                return None
        except dist.DistBackendError as error:  # whoever waits for the message gets it
            failed: Future[int | None] = Future()
            failed.set_exception(error)
            return failed
        return lane.submit(f"send of {call_site()}", call, _QueuedSend(self._start_all))

    def receive(self, tensor: torch.Tensor, peers: Sequence[int], tag: int) -> Receive:
        """Ask for the next message with a tag from one of several ranks; the result is its rank."""
        for peer in peers:
            self._lane(self._in, "recv", peer)
        receive = Receive(tensor, peers, tag, call_site(), read=self._read_at_once, start=self._start)
        with self._lock:
            kept = self._taken_of_kept(peers, tag)
            if kept is None:
                self._receives.append(receive)
        if kept is not None:
            _deliver(receive, *kept)
        else:
            self._unattended.watch(receive)
            if self._lost:
                self._fail_unservable()
        return receive

    def _taken_of_kept(self, peers: Sequence[int], tag: int) -> tuple[int, tuple[int, bytearray]] | None:
        """Take the first message with a tag of those that came before a receive wanted them, with its rank."""
        for peer in peers:
            for each in self._kept[peer]:
                if each[0] == tag:
                    self._kept[peer].remove(each)
                    return peer, each
        return None

    def _start(self, receive: Receive) -> None:
        """Let threads read for a receive."""
        with self._lock:
            receive.is_started = True
            starting = set() if receive.is_over else set(receive.peers) - self._reading - self._lost.keys()
            self._reading |= starting
        for peer in starting:
            self._read_in_thread(peer, receive)

    def _start_all(self) -> None:
        with self._lock:
            waiting = [each for each in self._receives if not each.is_started]
        for each in waiting:
            self._start(each)

    def _read_in_thread(self, peer: int, receive: Receive) -> None:
        self._in[peer].submit(f"recv of {receive.line}", functools.partial(self._read, peer))

    def _read_at_once(self, receive: Receive, looks_on: bool) -> None:
        """Take messages that have come, or that come soon, until a receive is over."""
        looks_on = looks_on and len(receive.peers) == 1
        for peer in receive.peers:
            with self._lock:
                if receive.is_over or receive.is_started:
                    return
                if peer in self._reading or peer in self._lost:
                    continue
                self._reading.add(peer)
            try:
                while not receive.is_over and self._take(peer, looks_on):
                    pass
            except Error as error:
                self._lose({peer: converted("recv", error)})
            finally:
                self._leave_to_others(peer)

    def _is_ready(self, peer: int, sends: bool, sizes: list[int], looks_on: bool) -> bool:
        if (mails := self._mails) is None:
            mails = self._mails = mails_of(self._group)
        return mails is not None and mails.is_ready(peer, sends, sizes, looks_on)

    def _leave_to_others(self, peer: int) -> None:
        """Read a rank's messages no more in this thread; other receives may want them."""
        with self._lock:
            other = None if peer in self._lost else self._started_receive(peer)
            if other is None:
                self._reading.discard(peer)
        if other is not None:
            self._read_in_thread(peer, other)

    def send_goodbye(self) -> None:
        """Send a last message to the other ranks, except those to which a send of this rank is still under way."""
        head = _HEAD.pack(_GOODBYE, 0, 0, b"")
        for peer, lane in self._out.items():
            if lane.is_idle:
                with (
                    contextlib.suppress(Error),
                    event_log.quiet(),
                    self._group.device.create_stream() as stream,
                ):
                    self._group.send(head, peer, stream=stream)
                    stream.sync(_GOODBYE_SECONDS)

    def close(self, why: Exception) -> None:
        """End all calls that are under way."""
        self._lose(dict.fromkeys(self._others(), why))
        self._unattended.close()
        for lane in (*self._out.values(), *self._in.values()):
            lane.close()
        with contextlib.suppress(Error):
            self._group.close()

    @staticmethod
    def _lane(lanes: dict[int, Lane], call: str, peer: int) -> Lane:
        if peer not in lanes:
            raise refused(
                f"peerlane:{call} : rank {peer} is not another rank of the group; valid are {sorted(lanes)}"
            )
        return lanes[peer]

    def _lose(self, lost: dict[int, Exception]) -> None:
        """Note that no message of some ranks will come; the first reason of a rank counts."""
        with self._lock:
            self._lost = lost | self._lost
            self._reading -= lost.keys()
        self._fail_unservable()

    def _fail_unservable(self) -> None:
        """Fail the receives that no rank can serve any more."""
        with self._lock:
            unservable = [each for each in self._receives if self._lost.keys() >= set(each.peers)]
            self._receives = [each for each in self._receives if each not in unservable]
        for each in unservable:  # without the lock: a callback of the future may ask for the next message
            each.end(None, self._lost[min(each.peers)])

    def _started_receive(self, peer: int) -> Receive | None:
        """Return the first receive for which threads read a rank's messages; the caller has the lock."""
        for each in self._receives:
            if each.is_started and peer in each.peers:
                return each
        return None

    def _read(self, peer: int) -> None:
        """Take messages of a rank as long as receives for which threads read may want them."""
        try:
            while True:
                with self._lock:
                    if peer in self._lost or not self._started_receive(peer):
                        self._reading.discard(peer)
                        return
                self._take(peer)
        except Error as error:
            self._lose({peer: converted("recv", error)})

    def _take(self, peer: int, looks_on: bool | None = None) -> bool:
        """Give a rank's next message to the first receive that wants it, or keep it.

        Unless ``looks_on`` is None it does not wait long for the message, and then returns False.
        """
        if peer not in self._heads:
            if looks_on is not None and not self._is_ready(peer, False, [_HEAD.size], looks_on):
                return False
            head = bytearray(_HEAD.size)
            self._receive(head, peer)
            self._heads[peer] = _HEAD.unpack(head)
        kind, tag, nbytes, short = self._heads[peer]
        if kind == _GOODBYE:
            raise PeerLost(
                f"Group.recv: rank {peer} has left the group; no message of it will come",
                call="Group.recv",
                detail=Refused(reason="peer_left", rank=peer),
            )
        if nbytes > _IN_HEAD and looks_on is not None and not self._is_ready(peer, False, [nbytes], looks_on):
            return False
        del self._heads[peer]
        with self._lock:
            receive = self._taken(peer, tag)
        if nbytes > _IN_HEAD and receive is not None and receive.tensor.nbytes == nbytes:
            _complete(receive, peer, lambda into: self._receive(into, peer))
            return True
        payload = bytearray(nbytes)
        if nbytes > _IN_HEAD:
            self._receive(payload, peer)
        else:
            payload[:] = short[:nbytes]
        with self._lock:
            receive = receive or self._taken(peer, tag)
            if receive is None:
                self._kept[peer].append((tag, payload))
        if receive is not None:
            _deliver(receive, peer, (tag, payload))
        return True

    def _receive(self, into: Any, peer: int) -> None:
        try:
            self._group.recv(into, peer)
        except Error:
            self.is_sound = False
            raise

    def _taken(self, peer: int, tag: int) -> Receive | None:
        """Take the first receive that wants a message out of the list; the caller has the lock."""
        for at, each in enumerate(self._receives):
            if peer in each.peers and each.tag == tag:
                return self._receives.pop(at)
        return None


def _deliver(receive: Receive, peer: int, message: tuple[int, bytearray]) -> None:
    """Give a message that has come to a receive."""
    tag, payload = message
    if receive.tensor.nbytes != len(payload):
        text = (
            f"peerlane:recv : rank {peer} has sent {len(payload):,} bytes with tag {tag}, and the receive has a "
            f"tensor of {receive.tensor.nbytes:,}; both must have the same"
        )
        receive.end(None, refused(text))
        return

    def fill(into: Any) -> None:
        memoryview(into).cast("B")[:] = payload

    _complete(receive, peer, fill)


def _complete(receive: Receive, peer: int, fill: Callable[[Any], None]) -> None:
    """Fill the tensor of a receive, and end it."""
    try:
        contiguous = flat(receive.tensor)
        fill(bytes_of(contiguous))
        put_back(receive.tensor, contiguous)
    except Error as error:
        receive.end(None, converted("recv", error))
        raise
    except BaseException as error:  # noqa: BLE001 - who waits for the message gets it
        receive.end(None, error)
    else:
        receive.end(peer)
