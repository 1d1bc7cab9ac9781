"""What each setting of a node may be; every refusal names the key, the value and what is valid."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence

from peerlane.errors import Fault, InvalidValue
from peerlane.support.sizes import UNITS, format_size, meant_size, parse_size

from .profiles import PROFILES, Profile
from .schedule import parse as parse_schedule
from .topology import LinkKind

LINK_KINDS = tuple(kind.value for kind in LinkKind if kind is not LinkKind.SELF)

_LONGEST_SHOWN = 60


def bad_config(source: str, problem: str) -> InvalidValue:
    """Return the error for a node written at ``source`` (a path, a variable, a flag)."""
    return InvalidValue(f"{source}: {problem}", fault=Fault.BAD_CONFIG)


def shown(value: object) -> str:
    """Return ``value`` for a message: bounded in length, and total (a huge integer has no ``repr``)."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return f"an array of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    return _cut(value if isinstance(value, str) else repr(value), quote=isinstance(value, str))


def keys_known(source: str, table: Iterable[str], known: Sequence[str], where: str) -> None:
    """Refuse a table with a key that is not ``known``; ``where`` is the table's dotted key and a dot."""
    for key in table:
        if key not in known:
            name = _cut(key) if key.isidentifier() else shown(key)
            raise bad_config(
                source, f"{where}{name} is not a setting{_suggestion(key, known)}; valid: {', '.join(known)}"
            )


class Checks:
    """Checks for the settings written at one source."""

    def __init__(self, source: str) -> None:
        self.source = source

    def refusal(self, key: str, value: object, valid: str) -> InvalidValue:
        """Return the error for a ``value`` that ``node.key`` cannot have."""
        return bad_config(self.source, f"node.{key} is {shown(value)}; valid: {valid}")

    def integer(self, key: str, value: object, low: int, high: int) -> int:
        """Return a whole number of ``low..high``."""
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.refusal(key, value, f"a whole number from {low} to {high}")
        return value

    def flag(self, key: str, value: object) -> bool:
        """Return true or false."""
        if not isinstance(value, bool):
            raise self.refusal(key, value, "true or false")
        return value

    def choice(self, key: str, value: object, options: Sequence[str]) -> str:
        """Return one of ``options``."""
        if not isinstance(value, str) or value not in options:
            raise self.refusal(key, value, ", ".join(options) + _suggestion(value, options))
        return value

    def schedule(self, value: object) -> str:
        """Return a schedule as it was written."""
        if not isinstance(value, str):
            raise self.refusal("schedule", value, "eager, lazy, seeded, seeded:SEED")
        parse_schedule(value, f"{self.source}: node")
        return value

    def profile(self, value: object) -> Profile:
        """Return the profile of that name."""
        return PROFILES[self.choice("profile", value, tuple(PROFILES))]

    def name(self, value: object) -> str:
        """Return a name that is fit to be part of a file name."""
        text = value if isinstance(value, str) else ""
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", text) or not text.strip("."):
            raise self.refusal(
                "name", value, "1 to 64 of the characters A-Z a-z 0-9 . _ - and not dots alone"
            )
        return text

    def size(self, key: str, value: object, low: int, high: int, step: int) -> int:
        """Return bytes of ``low..high`` in multiples of ``step``, given as an integer or as ``"16GiB"``."""
        nbytes = parse_size(value) if isinstance(value, str) else value
        if isinstance(nbytes, bool) or not isinstance(nbytes, int):
            meant = meant_size(value) if isinstance(value, str) else None
            hint = f"; did you mean {meant!r}?" if meant else ""
            raise self.refusal(key, value, f"bytes, or a number with one of {', '.join(UNITS)}{hint}")
        if low <= nbytes <= high and nbytes % step == 0:
            return nbytes
        below = min(max(nbytes // step * step, low), high)
        above = min(max(below + step, low), high) if nbytes > below else below
        nearest = " or ".join(dict.fromkeys((format_size(below), format_size(above))))
        multiple = f"a multiple of {format_size(step)} " if step > 1 else ""
        valid = f"{multiple}from {format_size(low)} to {format_size(high)}; nearest: {nearest}"
        raise self.refusal(key, value, valid)

    def memory(self, value: object, devices: int, granularity: int) -> tuple[int, ...]:
        """Return the bytes of each device, given once for all or as an array of one per device."""
        limits = granularity, UNITS["PiB"], granularity
        if not isinstance(value, list | tuple):
            return (self.size("memory", value, *limits),) * devices
        self._length("memory", value, devices, "one size for all, or an array of one per device")
        return tuple(self.size(f"memory[{i}]", each, *limits) for i, each in enumerate(value))

    def p2p(self, value: object, devices: int) -> tuple[bytes, ...]:
        """Return the rows of a square 0/1 matrix; the diagonal means nothing and comes back as 0."""
        rows: list[bytes] = []
        for a, row in enumerate(self._length("p2p", value, devices, "an array of one row per device")):
            cells = self._length(f"p2p[{a}]", row, devices, "an array of one 0 or 1 per device")
            bits = bytearray(devices)
            for b, cell in enumerate(cells):
                if isinstance(cell, bool) or cell not in (0, 1):
                    raise self.refusal(f"p2p[{a}][{b}]", cell, "0 or 1")
                bits[b] = cell == 1 and a != b
            rows.append(bytes(bits))
        return tuple(rows)

    def links(self, value: object, devices: int) -> dict[tuple[int, int], LinkKind]:
        """Return the links that differ from what the profile and the switches give."""
        if not isinstance(value, list | tuple):
            raise self.refusal(
                "link", value, "tables [[node.link]] with a, b and kind (inline: 0-1:PIX/0-2:SYS)"
            )
        links: dict[tuple[int, int], LinkKind] = {}
        for i, table in enumerate(value):
            key = f"link[{i}]"
            if not isinstance(table, dict):
                raise self.refusal(key, table, "a table with a, b and kind (inline: 0-1:PIX)")
            keys_known(self.source, table, ("a", "b", "kind"), f"node.{key}.")
            a, b = (self.integer(f"{key}.{end}", table.get(end, "missing"), 0, devices - 1) for end in "ab")
            if a == b:
                raise self.refusal(f"{key}.b", b, "another device than a")
            kind = LinkKind(self.choice(f"{key}.kind", table.get("kind", "missing"), LINK_KINDS))
            pair = min(a, b), max(a, b)
            if pair in links:
                raise bad_config(
                    self.source,
                    f"node.{key} joins {pair[0]} and {pair[1]} a second time; give each pair once",
                )
            links[pair] = kind
        return links

    def _length(self, key: str, value: object, length: int, valid: str) -> Sequence[object]:
        if not isinstance(value, list | tuple) or len(value) != length:
            raise self.refusal(key, value, f"{valid} (node.devices is {length})")
        return value


def _suggestion(word: object, options: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, options, n=1) if isinstance(word, str) and len(word) < 100 else []
    return f"; did you mean {close[0]!r}?" if close else ""


def _cut(text: str, *, quote: bool = False) -> str:
    cut = text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
    return repr(cut) if quote else cut
