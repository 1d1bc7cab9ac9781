"""What a stuck process asks the server of its rendezvous, and when."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from peerlane.diagnostics import store_waits
from peerlane.diagnostics.store_waits import StoreWait
from peerlane.ranks.deadlock import at_server
from peerlane.rendezvous import client
from peerlane.rendezvous.stuck import Reply

pytestmark = pytest.mark.any_schedule


@pytest.mark.parametrize(("standing", "least", "most"), [(None, 0.15, 0.2), (((1, 7),), 0.3, 0.35)])
def test_ask_request_between_two_slices_is_repeated_in_another_phase(
    standing: Any, least: float, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    line: Any = SimpleNamespace(rank=0, size=2, address="here")
    wait = StoreWait(line, "key", "k", "Rendezvous.get", time.monotonic() + 60)
    waits: Any = SimpleNamespace(
        before_ns=time.monotonic_ns(),
        has_children=False,
        at=lambda _: [wait],
        pids_besides=lambda _: [],
        of_line=lambda _: [],
    )
    monkeypatch.setitem(store_waits.waiting, threading.get_ident(), wait)
    monkeypatch.setattr(client, "tell_stuck", lambda *_: Reply((standing,)))
    before = time.monotonic_ns()
    assert not at_server.ask(waits, 1)
    after = time.monotonic_ns()
    # Requests wait in slices of 0.3 s. A report every 0.3 s could come between two of them each time.
    assert before + least * 1e9 <= wait.next_ns <= after + most * 1e9
    assert wait.standing == standing
