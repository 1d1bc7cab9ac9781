"""Sizes in bytes as text, such as ``16GiB``: read and written."""

from __future__ import annotations

import re

UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50}

_NUMBER = r"([0-9]{1,20}(?:\.[0-9]{1,20})?) ?"
_SIZE = re.compile(_NUMBER + r"([KMGTP]iB|B)?")
_NEARLY = re.compile(_NUMBER + r"([kmgtp])i?b?", re.IGNORECASE)


def parse_size(text: str) -> int | None:
    """Return the bytes that ``text`` states (``"16GiB"``, ``"1.5 GiB"``, ``"4096"``), or None if it is not a size.

    Units are binary and must be spelled exactly so; a fraction must come to whole bytes.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    whole, _, part = match[1].partition(".")
    size, rest = divmod(int(whole + part) * UNITS[match[2] or "B"], 10 ** len(part))
    return None if rest else size


def meant_size(text: str) -> str | None:
    """Return the spelling that the writer of ``text`` (``"16GB"``, ``"16g"``) probably meant, or None."""
    match = _NEARLY.fullmatch(text)
    return f"{match[1]}{match[2].upper()}iB" if match else None


def format_size(nbytes: int) -> str:
    """Return ``nbytes`` exactly, in the largest unit that divides it; :func:`parse_size` reads it back."""
    fitting = [unit for unit, size in UNITS.items() if nbytes >= size and nbytes % size == 0]
    unit = fitting[-1] if fitting else "B"
    return f"{nbytes // UNITS[unit]} {unit}"
