"""What the program of this process takes from other libraries if it is not Python's: the names its file imports."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

_SYMBOLS = 11  # SHT_DYNSYM
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


def names() -> list[str]:
    """Return them; none for a program of Python, or for a file that is not understood."""
    try:
        return [] if is_python(os.getpid()) else _imported(Path("/proc/self/exe").read_bytes())
    except (OSError, struct.error, IndexError, ValueError):
        return []


def is_python(process: int) -> bool:
    """Tell whether a process runs the program of this interpreter."""
    try:
        return Path(f"/proc/{process}/exe").samefile(sys.executable)
    except OSError:  # it has ended
        return False


def _imported(data: bytes) -> list[str]:
    (start,) = struct.unpack_from("<Q", data, 0x28)
    width, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [_SECTION.unpack_from(data, start + number * width) for number in range(count)]
    imported = []
    for _, kind, _, _, offset, size, link, _, _, _ in sections:
        if kind != _SYMBOLS:
            continue
        strings = sections[link][4]
        for at in range(offset, offset + size, _SYMBOL.size):
            name, _, _, section, _, _ = _SYMBOL.unpack_from(data, at)
            if section == 0 and name:
                imported.append(os.fsdecode(data[strings + name : data.index(0, strings + name)]))
    return imported
