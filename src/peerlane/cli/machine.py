"""What a measurement must say about the machine it was made on."""

from __future__ import annotations

import datetime
import os
import platform
from pathlib import Path

from peerlane.backends.virtual.backend import VirtualBackend

_RESERVE = 256 << 20


def room() -> int:
    """Return the bytes that may be used without driving the system out of memory."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return max(0, int(value.split()[0]) * 1024 - _RESERVE)
    return 0


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def has_stream_copy() -> bool:
    """Return whether this processor has copies that bypass the caches."""
    return VirtualBackend.has_stream_copy()


def environment() -> dict[str, object]:
    """Return the machine, the interpreter and the time in words and numbers, without names of hosts or users."""
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
