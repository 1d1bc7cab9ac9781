"""Ctrl-C in every kind of wait of ``acl``: the wait raises, and the program ends although a stream never does."""

from __future__ import annotations

import pytest

from helpers.interrupts import JUST_BEFORE, WHILE
from helpers.prepared import run_python

pytestmark = pytest.mark.any_schedule

PROGRAM = """
import os, signal, threading
import peerlane.dialects.acl as acl

rt, for_ever = acl.rt, threading.Event()
rt.set_device(0)
stream, notify, event = rt.create_stream()[0], rt.create_notify(0)[0], rt.create_event()[0]
device = rt.malloc(64, 0)[0]
if {is_held}:
    rt.wait_and_reset_notify(notify, stream, 0)
rt.record_event(event, stream)
other, _ = acl.util.start_thread(lambda _: for_ever.wait(), [])
rt.subscribe_report({thread}, stream)
rt.launch_callback(print, None, 1, stream)
try:
    threading.Timer(0.3, lambda: {interrupt}).start()
    print("returned", {call})
except KeyboardInterrupt:
    print("interrupted")
"""
ME = "threading.get_ident()"
OTHER = "other"
MET = [("lazy", WHILE), ("seeded:1", WHILE), ("eager", JUST_BEFORE)]
CALLS = [
    ("rt.synchronize_stream(stream)", OTHER),
    ("rt.reset_device(0)", OTHER),
    ("rt.process_report(-1)", ME),
    ("acl.util.stop_thread(other)", OTHER),
    ("rt.synchronize_event(event)", OTHER),
    ("rt.synchronize_device()", OTHER),
    ("rt.memcpy_async(device, 64, acl.util.bytes_to_ptr(bytes(64)), 64, 1, stream)", OTHER),
    ("rt.destroy_stream(stream)", OTHER),
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("call", "thread", "schedule", "interrupt"),
    [*((*call, "eager", WHILE) for call in CALLS), *((*call, *met) for call in CALLS[:4] for met in MET)],
)
def test_acl_waits_ctrl_c_raises_keyboard_interrupt_and_program_ends(
    call: str, thread: str, schedule: str, interrupt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    is_held = not call.startswith(
        ("rt.destroy_stream", "rt.reset_device")
    )  # both cancel the notify wait; the callback is left
    done = run_python(
        ["-c", PROGRAM.format(interrupt=interrupt, call=call, thread=thread, is_held=is_held)], timeout=40
    )
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
    assert done.returncode == 0
