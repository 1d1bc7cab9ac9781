"""Appointments: ranks that share a key, from a rank table or two endpoints, meet again and again under it."""

from __future__ import annotations

import contextlib
import threading
import time

from peerlane import Device
from peerlane.dialects.hcomm import _meeting
from peerlane.dialects.hcomm._codes import PARA
from peerlane.dialects.hcomm._rendezvous import Board, JobBoard, RendezvousAddress, board
from peerlane.dialects.hcomm._settings import Settings
from peerlane.errors import Error, PeerLost, Refused, WaitTimeout
from peerlane.rendezvous import RendezvousServer

_STEP = 0.01

#: By key and rank: this process's appointments in their order, and the offer that the last one took.
_queues: dict[tuple[str, int], list[Appointment]] = {}
_last: dict[tuple[str, int], bytes] = {}
_changed = threading.Condition()


class Appointment:
    """A rank's appointment with the others under a key that later appointments use again.

    Meetings have no numbers, because a restarted process would count from 0.  Rank 0 offers one meeting at a time.
    It takes the offer back when all ranks have come, or when its appointment is cancelled.  Each other rank takes an
    offer once.

    ``key``: the same in all ranks.
    ``spans``: whether the ranks may be on several machines.
    """

    def __init__(self, key: str, rank: int, *, spans: bool) -> None:
        self.key, self.rank, self._spans = key, rank, spans
        self._where = key, rank
        self._is_cancelled = False
        self._server: RendezvousServer | None = None
        self._offer: Board | None = None
        self._offering = threading.Lock()
        with _changed:
            _queues.setdefault(self._where, []).append(self)

    def meet(self, call: str, size: int, device: Device, settings: Settings) -> _meeting.Meeting:
        """Meet the others, once this rank's earlier appointments under the key are over.

        Raises WaitTimeout, PeerLost: the others did not come in time; one died, or this appointment was cancelled.
        """
        deadline = time.monotonic() + settings.connect_timeout
        try:
            offers = board(call, self.key, settings.connect_timeout, spans=self._spans)
            self._await_earlier(call, deadline)
            if self.rank == 0:
                return self._host(offers, call, size, device, settings)
            message = self._read(offers, call, deadline)
        finally:
            self._leave()
        address = RendezvousAddress.decode(message)
        if address is None:
            raise PARA.refusal(
                f"rank 0 left {message[:40]!r} as its address", "use one version of peerlane in all ranks"
            )
        return self._met(call, address, size, device, settings)

    def cancel(self) -> None:
        """Cancel the appointment: :meth:`meet` fails soon, and no rank finds its offer any more."""
        with _changed:
            self._is_cancelled = True
            server = self._server
            _changed.notify_all()
        with contextlib.suppress(Error):  # the launcher has ended, and its offers with it
            self._take_back()  # before the server ends: a rank that finds an offer waits for its server
        if server is not None:
            server.close()

    def _host(
        self, offers: Board, call: str, size: int, device: Device, settings: Settings
    ) -> _meeting.Meeting:
        server, address, end = _meeting.serve(call, size, spans=isinstance(offers, JobBoard))
        try:
            with _changed:
                self._server = server
                self._check_wanted(call)
            with self._offering:
                self._check_wanted(call)
                self._offer = offers
                offers.write(address.encode())
            return self._met(call, address, size, device, settings, end)
        except BaseException:
            server.close()
            raise
        finally:
            self._server = None
            self._take_back()

    def _take_back(self) -> None:
        with self._offering:
            offer, self._offer = self._offer, None
            if offer is not None:
                offer.close()

    def _met(
        self,
        call: str,
        address: RendezvousAddress,
        size: int,
        device: Device,
        settings: Settings,
        end: _meeting.End = _meeting.nothing,
    ) -> _meeting.Meeting:
        key = f"{self.key}.{_meeting.digest_of(address.encode())[:12]}"
        return _meeting.meet(call, address, self.rank, size, key, device, settings, end)

    def _await_earlier(self, call: str, deadline: float) -> None:
        with _changed:
            queue = _queues[self._where]
            while queue[0] is not self:
                self._check_wanted(call)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise WaitTimeout(
                        f"{call}: an earlier call that meets the same ranks is not over",
                        call=call,
                        detail=Refused(reason="wait_timeout", rank=self.rank),
                    )
                _changed.wait(left)

    def _read(self, offers: Board, call: str, deadline: float) -> bytes:
        while True:
            self._check_wanted(call)
            message = offers.look()
            if message is not None and message != _last.get(self._where):
                _last[self._where] = message
                return message
            if time.monotonic() >= deadline:
                raise WaitTimeout(
                    f"{call}: the rank at which the others meet did not come in time",
                    call=call,
                    detail=Refused(reason="wait_timeout", ranks=(0,)),
                )
            time.sleep(_STEP)

    def _check_wanted(self, call: str) -> None:
        if self._is_cancelled:
            raise PeerLost(f"{call}: it was given up", call=call, detail=Refused(reason="given_up"))

    def _leave(self) -> None:
        with _changed:
            queue = _queues[self._where]
            queue.remove(self)
            if not queue:
                del _queues[self._where]
            _changed.notify_all()
