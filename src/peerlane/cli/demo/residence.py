"""The part of a block that is in a process's memory, as the system counts it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_KIB = 1024


@dataclass(frozen=True, slots=True)
class Residence:
    """The memory of a process, with regard to a block.

    Attributes
    ----------
    resident : int
        Bytes of the block that the process has in memory.
    share : int
        The process's share of them: a page that n processes have counts 1/n (PSS).  The sum over all processes is
        the memory that the block takes.
    private : int
        Bytes of the whole process, the block or not, that no other process has.
    """

    resident: int
    share: int
    private: int


def residence(address: int, nbytes: int) -> Residence | None:
    """Return the residence of ``nbytes`` at a host address in this process; None if the system does not tell."""
    block = _totals(_sections(address, address + nbytes), ("Rss", "Pss"))
    whole = _totals(_lines("smaps_rollup"), ("Private_Clean", "Private_Dirty"))
    return None if block is None or whole is None else Residence(block[0], block[1], sum(whole))


def _totals(lines: Iterable[str], names: tuple[str, ...]) -> list[int] | None:
    found: dict[str, int] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name in names:
            found[name] = found.get(name, 0) + int(value.split()[0]) * _KIB
    return [found[name] for name in names] if len(found) == len(names) else None


def _sections(first: int, last: int) -> Iterable[str]:
    """Return the lines of the mappings inside a range."""
    inside = False
    for line in _lines("smaps"):
        head = line.split(" ", 1)[0]
        if not head.endswith(":"):
            start, _, end = head.partition("-")
            inside = first <= int(start, 16) and int(end, 16) <= last
        elif inside:
            yield line


def _lines(name: str) -> list[str]:
    try:
        return Path("/proc/self", name).read_text(errors="replace").splitlines()
    except OSError:
        return []
