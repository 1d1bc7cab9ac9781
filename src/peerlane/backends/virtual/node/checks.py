"""Checks of each setting of a virtual node; a refusal names the key, the value and the valid values."""

from __future__ import annotations

import re

from peerlane.backend.settings import Checks, bad_config, keys_known

from .profiles import PROFILES, Profile
from .schedule import parse as parse_schedule
from .topology import LinkKind

LINK_KINDS = tuple(kind.value for kind in LinkKind if kind is not LinkKind.SELF)


class NodeChecks(Checks):
    """Checks for the settings of a virtual node."""

    def schedule(self, value: object) -> str:
        """Return the text of a schedule, if it is valid."""
        if not isinstance(value, str):
            raise self.refusal("schedule", value, "eager, lazy, seeded, seeded:SEED, seeded:SEED:STEP,...")
        parse_schedule(value, f"{self.source}: node")
        return value

    def profile(self, value: object) -> Profile:
        """Return the profile with this name."""
        return PROFILES[self.choice("profile", value, tuple(PROFILES))]

    def name(self, value: object) -> str:
        """Return a name, if it can be part of a file name."""
        text = value if isinstance(value, str) else ""
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", text) or not text.strip("."):
            raise self.refusal(
                "name", value, "1 to 64 of the characters A-Z a-z 0-9 . _ - and not dots alone"
            )
        return text

    def p2p(self, value: object, devices: int) -> tuple[bytes, ...]:
        """Return the rows of a square 0/1 matrix; the diagonal has no meaning and is set to 0."""
        rows: list[bytes] = []
        for a, row in enumerate(self.sequence("p2p", value, devices, "an array of one row per device")):
            cells = self.sequence(f"p2p[{a}]", row, devices, "an array of one 0 or 1 per device")
            bits = bytearray(devices)
            for b, cell in enumerate(cells):
                if isinstance(cell, bool) or cell not in (0, 1):
                    raise self.refusal(f"p2p[{a}][{b}]", cell, "0 or 1")
                bits[b] = cell == 1 and a != b
            rows.append(bytes(bits))
        return tuple(rows)

    def links(self, value: object, devices: int) -> dict[tuple[int, int], LinkKind]:
        """Return the links that differ from those of the profile and the switches."""
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
