"""Ctrl-C in every kind of wait of ``hip``: the wait raises, and the program ends although a stream never does."""

from __future__ import annotations

import pytest

from helpers.interrupts import JUST_BEFORE, WHILE
from helpers.prepared import run_python

pytestmark = pytest.mark.any_schedule

PROGRAM = """
import os, signal, threading
from peerlane.dialects.hip import hip

kind = hip.hipMemcpyKind.hipMemcpyDefault
word, stream, event = hip.hipHostMalloc(8, 0)[1], hip.hipStreamCreate()[1], hip.hipEventCreate()[1]
device = hip.hipMalloc(64)[1]
hip.hipStreamWaitValue32(stream, word, 1, 0, 0xFFFFFFFF)  # no call writes the word
hip.hipEventRecord(event, stream)
try:
    threading.Timer(0.3, lambda: {interrupt}).start()
    print("returned", {call})
except KeyboardInterrupt:
    print("interrupted")
"""
MET = [("lazy", WHILE), ("seeded:1", WHILE), ("eager", JUST_BEFORE)]
CALLS = [
    "hip.hipStreamSynchronize(stream)",
    "hip.hipDeviceSynchronize()",
    "hip.hipFree(device)",
    "hip.hipStreamSynchronize(None)",
    "hip.hipStreamDestroy(stream)",
    "hip.hipEventSynchronize(event)",
    "hip.hipMemcpy(bytearray(64), device, 64, kind)",
    "hip.hipMemcpyAsync(bytearray(64), device, 64, kind, stream)",
    "hip.hipMemset(int(device) + 8, 1, 8)",
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("call", "schedule", "interrupt"),
    [*((call, "eager", WHILE) for call in CALLS), *((call, *met) for call in CALLS[:3] for met in MET)],
)
def test_hip_waits_ctrl_c_raises_keyboard_interrupt_and_program_ends(
    call: str, schedule: str, interrupt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    done = run_python(["-c", PROGRAM.format(interrupt=interrupt, call=call)], timeout=40)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
    assert done.returncode == 0
