"""The facts about this machine that belong to every measurement."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path

from peerlane.backends.virtual.backend import VirtualBackend

_RESERVE = 256 << 20


def room() -> int:
    """Return how many bytes a command may use before the system runs short of memory."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return max(0, int(value.split()[0]) * 1024 - _RESERVE)
    return 0


def shortage(nbytes: int) -> str:
    """Return why a command cannot use so many bytes of memory; empty if it can."""
    available = room()
    return f"needs {nbytes:,} bytes of memory, {available:,} are available" if nbytes > available else ""


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def physical_cores() -> int:
    """Return the number of cores that this process may use, where two threads of a core count once."""
    siblings = set()
    for number in os.sched_getaffinity(0):
        file = Path(f"/sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list")
        siblings.add(file.read_text() if file.exists() else str(number))
    return len(siblings)


def has_stream_copy() -> bool:
    """Return whether this processor has copies that bypass the caches."""
    return VirtualBackend.has_stream_copy()


def environment() -> dict[str, object]:
    """Return facts about the machine, the interpreter and the time; no host or user is named."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "processor": _processor(),
        "cores": cores(),
        "has_stream_copy": has_stream_copy(),
        "available_bytes": room(),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
