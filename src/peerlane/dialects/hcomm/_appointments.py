"""How ranks meet repeatedly at a place that all of them know: by a rank table, or by two endpoints."""

from __future__ import annotations

import os
import threading
import time

from peerlane import Device
from peerlane.dialects.hcomm import _meeting
from peerlane.dialects.hcomm._settings import Settings
from peerlane.errors import PeerLost, Refused, WaitTimeout
from peerlane.rendezvous import RendezvousServer
from peerlane.rendezvous.by_file import MeetingFile

_STEP = 0.01

#: By (place, rank): the appointments in their order; the address of the last meeting.
_queues: dict[tuple[str, int], list[Appointment]] = {}
_last: dict[tuple[str, int], bytes] = {}
_changed = threading.Condition()


class Appointment:
    """A rank's appointment with the others, at a place that is used again and again.

    Meetings are not counted, because a process that was started anew would count from 0.  Rank 0 offers one meeting
    at a time, and takes the offer back once all have come or it has given up; another rank takes each offer once.

    Parameters
    ----------
    key : str
        Where, the same in all ranks.
    rank : int
    """

    def __init__(self, key: str, rank: int) -> None:
        self.key, self.rank = key, rank
        self._where = key, rank
        self._is_given_up = False
        self._server: RendezvousServer | None = None
        with _changed:
            _queues.setdefault(self._where, []).append(self)

    def meet(self, call: str, size: int, device: Device, settings: Settings) -> _meeting.Meeting:
        """Meet the others, once this rank's earlier appointments at the place are over.

        Raises
        ------
        WaitTimeout, PeerLost
            The others did not come in time; one died, or this appointment was given up.
        """
        deadline = time.monotonic() + settings.connect_timeout
        place = MeetingFile([self.key], "hccl")
        try:
            self._await_turn(call, deadline)
            if self.rank == 0:
                return self._host(place, call, size, device, settings)
            message = self._read(place, call, deadline)
        finally:
            self._leave()
        return self._met(os.fsdecode(message), size, device, settings)

    def give_up(self) -> None:
        """Cancel the appointment: :meth:`meet` fails soon."""
        with _changed:
            self._is_given_up = True
            server = self._server
            _changed.notify_all()
        if server is not None:
            server.close()

    def _host(
        self, place: MeetingFile, call: str, size: int, device: Device, settings: Settings
    ) -> _meeting.Meeting:
        server, end = _meeting.serve(size)
        try:
            with _changed:
                self._server = server
                self._check_wanted(call)
            place.write(os.fsencode(server.address))
            return self._met(server.address, size, device, settings, end)
        except BaseException:
            server.close()
            raise
        finally:
            self._server = None
            place.close()

    def _met(
        self,
        address: str,
        size: int,
        device: Device,
        settings: Settings,
        end: _meeting.End = _meeting.nothing,
    ) -> _meeting.Meeting:
        key = f"{self.key}.{_meeting.digest_of(address.encode(errors='surrogateescape'))[:12]}"
        return _meeting.meet(address, self.rank, size, key, device, settings, end)

    def _await_turn(self, call: str, deadline: float) -> None:
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

    def _read(self, place: MeetingFile, call: str, deadline: float) -> bytes:
        while True:
            self._check_wanted(call)
            message = place.look()
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
        if self._is_given_up:
            raise PeerLost(f"{call}: it was given up", call=call, detail=Refused(reason="given_up"))

    def _leave(self) -> None:
        with _changed:
            queue = _queues[self._where]
            queue.remove(self)
            if not queue:
                del _queues[self._where]
            _changed.notify_all()
