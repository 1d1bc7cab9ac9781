"""Handles and descriptors of the equal node of another machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import peerlane as pl
from helpers.promises import Node
from peerlane.errors import Fault, Refused

pytestmark = pytest.mark.any_schedule

EXPORTS = """
import peerlane as pl
physical = pl.Physical(pl.devices()[0], 1 << 21, peer=True)
with physical.export(allow='user') as handle:
    print(bytes(handle).decode(), int(handle), physical.export_fd(), flush=True)
    input()
"""


@pytest.mark.parametrize("machine", ["", "another"])
def test_memory_of_another_machine_is_refused_by_name(machine: str, node: Node) -> None:
    spec = f"name=machines-{os.getpid()},devices=2"
    node(spec)
    environ = {**os.environ, "PEERLANE_NODE": spec, "PEERLANE_MACHINE": machine}
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", EXPORTS], env=environ, stdin=pipe, stdout=pipe, text=True)
    try:
        assert child.stdout is not None
        text, number, descriptor = child.stdout.readline().split()
        fd = os.open(Path(f"/proc/{child.pid}/fd/{descriptor}"), os.O_RDWR | os.O_CLOEXEC)
        opens: list[Callable[[], pl.Physical]] = [
            lambda: pl.Physical.open(text),
            lambda: pl.Physical.open_fd(fd),
        ]
        if not machine:
            for each in opens:
                each().close()
        else:
            for each in opens:
                with pytest.raises(pl.BadHandle) as refused:
                    each()
                message, detail = str(refused.value), refused.value.detail
                assert refused.value.fault is Fault.NODE_MISMATCH
                assert "of another machine (" in message and "channel of a peerlane.Group" in message, message
                assert isinstance(detail, Refused) and detail.reason == "other_machine"
            own = pl.Physical(pl.devices()[0], 1 << 21)
            with own.export() as handle:
                is_same = int(handle) >> 55 == int(number) >> 55  # 8 bits for node and machine
            if not is_same:
                with pytest.raises(pl.BadHandle, match="run them on one machine"):
                    pl.Physical.open(int(number))
            own.close()
        os.close(fd)
    finally:
        child.kill()
        child.communicate()
