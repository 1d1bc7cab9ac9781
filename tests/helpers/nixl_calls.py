"""Agents of the dialect nixl for tests, in this process and another one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

SECONDS = 30.0

#: For another process: an agent, device memory ``vram`` and host memory ``dram``, both registered.
OTHER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import numpy as np
from peerlane.dialects.nixl._api import nixl_agent, nixl_agent_config
from helpers.nixl_calls import finish, heard, rows
agent = nixl_agent("other")
vram = pl.devices()[1].allocate(1 << 20)
vram.fill(0)
dram = np.zeros(1 << 20, np.uint8)
registered = agent.register_memory([(vram.address, vram.size, 1, "")], "VRAM")
registered_dram = agent.register_memory([(dram.ctypes.data, dram.nbytes, 0, "")], "DRAM")
result = [agent.get_agent_metadata().hex(), vram.address, dram.ctypes.data]
"""


def rows(address: int, count: int, size: int, device: int = 0) -> list[tuple[int, int, int]]:
    """Return so many descriptors, one behind the other."""
    return [(address + i * size, size, device) for i in range(count)]


def address_of(array: np.ndarray) -> int:
    """Return where an array begins."""
    return int(array.ctypes.data)


def finish(agent: Any, handle: Any, *message: bytes) -> str:
    """Post a transfer, and ask for its state until it is over."""
    state = str(agent.transfer(handle, *message))
    return over(agent, handle) if state == "PROC" else state


def over(agent: Any, handle: Any) -> str:
    """Ask for the state of a transfer until it is over."""
    deadline = time.monotonic() + SECONDS
    while (state := str(agent.check_xfer_state(handle))) == "PROC":
        assert time.monotonic() < deadline, "the transfer is not over"
    return state


def heard(agent: Any, count: int = 1) -> dict[str, list[bytes]]:
    """Return the next notifications, so many in all."""
    received: dict[str, list[bytes]] = {}
    deadline = time.monotonic() + SECONDS
    while sum(map(len, received.values())) < count:
        assert time.monotonic() < deadline, f"only {received} came"
        for name, messages in agent.get_new_notifs().items():
            received.setdefault(name, []).extend(messages)
    return received
