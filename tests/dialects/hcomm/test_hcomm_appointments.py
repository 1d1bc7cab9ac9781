"""Appointments of ranks: what a rank offers, and takes back when it gives up."""

from __future__ import annotations

import threading
from types import ModuleType

import pytest

import peerlane
from peerlane.dialects.hcomm import _appointments
from peerlane.dialects.hcomm._appointments import Appointment
from peerlane.dialects.hcomm._rendezvous import board
from peerlane.dialects.hcomm._settings import settings_of
from peerlane.errors import PeerLost

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(60)]
WAIT = 30.0


def test_offer_of_an_abandoned_appointment_is_gone_when_give_up_returns(
    hcomm: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the thread that made the offer does not run: another rank would wait for a server that has ended."""
    offered, let_go = threading.Event(), threading.Event()
    lost: list[PeerLost] = []

    def met(*_: object) -> None:
        offered.set()
        assert let_go.wait(WAIT)
        raise PeerLost("given up")

    monkeypatch.setattr(Appointment, "_met", met)
    appointment = Appointment("taken-back", 0, spans=False)

    def host() -> None:
        try:
            appointment.meet("test", 2, peerlane.devices()[0], settings_of(None))
        except PeerLost as error:
            lost.append(error)

    thread = threading.Thread(target=host)
    thread.start()
    try:
        assert offered.wait(WAIT)
        shared = board("test", "taken-back", WAIT, spans=False)
        assert shared.look() is not None
        appointment.cancel()
        assert shared.look() is None
    finally:
        let_go.set()
        thread.join(WAIT)
    assert len(lost) == 1
    assert not _appointments._queues
