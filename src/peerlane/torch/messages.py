"""Sends and receives with tags.

A message is a head, with its tag and size, and its bytes.  The messages of a rank to another one travel in one order.
A receiver takes them in that order, and keeps those that nobody has asked for yet.
"""

from __future__ import annotations

import contextlib
import functools
import struct
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch

from peerlane.collectives.group import Group
from peerlane.errors import Error, PeerLost, Refused
from peerlane.torch.failures import converted, refused
from peerlane.torch.host_tensors import bytes_of, flat, put_back
from peerlane.torch.lane import Lane

_HEAD = struct.Struct("=qqq")  # kind, tag, bytes
_MESSAGE, _GOODBYE = 0, 1
_GOODBYE_SECONDS = 0.5


@dataclass(eq=False)
class _Receive:
    """A receive that waits for a message."""

    tensor: torch.Tensor
    peers: set[int]
    tag: int
    future: Future[int | None] = field(default_factory=Future)


class Messages:
    """The messages of a process group.

    Parameters
    ----------
    group : Group
        One that has no other use.

    Attributes
    ----------
    is_sound : bool
        Whether no message has failed.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        group.barrier()  # from now on a short message waits for nobody
        self._out = {peer: Lane() for peer in self._others()}
        self._in = {peer: Lane() for peer in self._others()}
        self._lock = threading.Lock()
        self._receives: list[_Receive] = []
        self._kept: dict[int, list[tuple[int, bytearray]]] = {peer: [] for peer in self._others()}
        self._reading: set[int] = set()
        self._lost: dict[int, Exception] = {}
        self.is_sound = True

    def _others(self) -> list[int]:
        return [rank for rank in range(self._group.size) if rank != self._group.rank]

    def send(self, tensor: torch.Tensor, peer: int, tag: int) -> Future[int | None]:
        """Queue a message."""
        lane = self._lane(self._out, "send", peer)

        def call() -> None:
            contiguous = flat(tensor)
            try:
                self._group.send(_HEAD.pack(_MESSAGE, tag, contiguous.nbytes), peer)
                self._group.send(bytes_of(contiguous), peer)
            except Error as error:
                self.is_sound = False
                raise converted("send", error) from error

        return lane.submit("send", call)

    def receive(self, tensor: torch.Tensor, peers: Collection[int], tag: int) -> Future[int | None]:
        """Ask for the next message with a tag from one of several ranks; the result is its rank."""
        for peer in peers:
            self._lane(self._in, "recv", peer)
        receive = _Receive(tensor, set(peers), tag)
        with self._lock:
            kept = next(((peer, each) for peer in peers for each in self._kept[peer] if each[0] == tag), None)
            starting = set()
            if kept is not None:
                self._kept[kept[0]].remove(kept[1])
            else:
                self._receives.append(receive)
                starting = receive.peers - self._reading - self._lost.keys()
                self._reading |= starting
        if kept is not None:
            _deliver(receive, *kept)
        for peer in starting:
            self._in[peer].submit("recv", functools.partial(self._read, peer))
        self._fail_unservable()
        return receive.future

    def send_goodbye(self) -> None:
        """Send a last message to the other ranks, except those to which a send of this rank is still under way."""
        head = _HEAD.pack(_GOODBYE, 0, 0)
        for peer, lane in self._out.items():
            if lane.is_idle:
                with contextlib.suppress(Error), self._group.device.create_stream() as stream:
                    self._group.send(head, peer, stream=stream)
                    stream.sync(_GOODBYE_SECONDS)

    def close(self, why: Exception) -> None:
        """End all calls that are under way."""
        self._lose(dict.fromkeys(self._others(), why))
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
            unservable = [each for each in self._receives if each.peers <= self._lost.keys()]
            self._receives = [each for each in self._receives if each not in unservable]
        for each in unservable:  # without the lock: a callback of the future may ask for the next message
            each.future.set_exception(self._lost[min(each.peers)])

    def _read(self, peer: int) -> None:
        """Take messages of a rank as long as receives may want them."""
        try:
            while True:
                with self._lock:
                    if peer in self._lost or not any(peer in each.peers for each in self._receives):
                        self._reading.discard(peer)
                        return
                if not self._take(peer):
                    raise PeerLost(
                        f"Group.recv: rank {peer} has left the group; no message of it will come",
                        call="Group.recv",
                        detail=Refused(reason="peer_left", rank=peer),
                    )
        except Error as error:
            self._lose({peer: converted("recv", error)})

    def _take(self, peer: int) -> bool:
        """Give a rank's next message to the first receive that wants it, or keep it; False for the last one."""
        head = bytearray(_HEAD.size)
        self._receive(head, peer)
        kind, tag, nbytes = _HEAD.unpack(head)
        if kind == _GOODBYE:
            return False
        with self._lock:
            receive = self._taken(peer, tag)
        if receive is not None and receive.tensor.nbytes == nbytes:
            _complete(receive, peer, lambda into: self._receive(into, peer))
            return True
        payload = bytearray(nbytes)
        self._receive(payload, peer)
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

    def _taken(self, peer: int, tag: int) -> _Receive | None:
        """Take the first receive that wants a message out of the list; the caller has the lock."""
        wanted = (each for each in self._receives if peer in each.peers and each.tag == tag)
        receive = next(wanted, None)
        if receive is not None:
            self._receives.remove(receive)
        return receive


def _deliver(receive: _Receive, peer: int, message: tuple[int, bytearray]) -> None:
    """Give a message that has come to a receive."""
    tag, payload = message
    if receive.tensor.nbytes != len(payload):
        receive.future.set_exception(
            refused(
                f"peerlane:recv : rank {peer} has sent {len(payload):,} bytes with tag {tag}, and the receive has "
                f"a tensor of {receive.tensor.nbytes:,}; both must have the same"
            )
        )
        return

    def fill(into: Any) -> None:
        memoryview(into).cast("B")[:] = payload

    _complete(receive, peer, fill)


def _complete(receive: _Receive, peer: int, fill: Callable[[Any], None]) -> None:
    """Fill the tensor of a receive, and end it."""
    try:
        contiguous = flat(receive.tensor)
        fill(bytes_of(contiguous))
        put_back(receive.tensor, contiguous)
    except Error as error:
        receive.future.set_exception(converted("recv", error))
        raise
    except BaseException as error:  # noqa: BLE001 - who waits for the message gets it
        receive.future.set_exception(error)
    else:
        receive.future.set_result(peer)
