"""The text of what a test left behind: kind, size, and the line that made each object."""

from __future__ import annotations

import os
from collections.abc import Sequence

from peerlane.diagnostics.call_site import Site
from peerlane.diagnostics.live_objects import Living, in_bytes
from peerlane.testing.fresh_node import WITHOUT_BYTES, Left

_MOST_SHOWN = 20


def describe(left: Left, *, head: str, test_file: str, root: str, killed: bool) -> str:
    """Return the list; its first line is a summary.

    Parameters
    ----------
    left : Left
        Not empty.
    head : str
        The first words; the number of things and their bytes follow.
    test_file : str
        If an object was made in another file, the line of this file that led there is shown too.
    root : str
        Paths are shown relative to this folder.
    killed : bool
        Whether processes will be killed.
    """
    total = len(left.things) + len(left.processes)
    nbytes = sum(each.nbytes for each in left.things if each.kind not in WITHOUT_BYTES)
    size = f", {in_bytes(nbytes)} in all" if nbytes else ""
    places = _Places(test_file, root)
    lines = _things(left.things, places)
    for each in left.processes:
        fate = "; it was killed" if killed else ""
        lines.append(f"process {each.pid} ({each.command}), {places.of('started', each.site)}{fate}")
    hidden = len(lines) - _MOST_SHOWN
    if hidden > 0:
        lines[_MOST_SHOWN:] = [f"and {hidden:,} more lines"]
    return "\n".join([f"{head} {total:,} thing{'s' * (total != 1)}{size}:", *(f"  {line}" for line in lines)])


def _things(things: Sequence[Living], places: _Places) -> list[str]:
    """Return the lines; objects of one kind, device and line of the program share one."""
    groups: dict[tuple[str, str, str], list[Living]] = {}
    for each in things:
        groups.setdefault((each.kind, each.where, places.of("made", each.site)), []).append(each)
    lines = []
    for (kind, where, place), group in groups.items():
        what = group[0].text
        if len(group) > 1:
            nbytes = sum(each.nbytes for each in group)
            size = f", {in_bytes(nbytes)}" if nbytes else ""
            what = f"{len(group):,} times {kind}{size}" + (f" on {where}" if where else "")
        lines.append(f"{what}, {place}")
    return lines


class _Places:
    def __init__(self, test_file: str, root: str) -> None:
        self._test_file, self._root = test_file, root

    def of(self, verb: str, site: Site | None) -> str:
        if site is None:
            return f"{verb} at an unknown place"
        text = f"{verb} at {self._shown(site)}"
        if site.path != self._test_file:
            caller = next((each for each in site.callers if each.path == self._test_file), None)
            if caller is not None:
                text += f", called at {self._shown(caller)}"
        return text

    def _shown(self, site: Site) -> str:
        inside = os.path.relpath(site.path, self._root) if os.path.isabs(site.path) else site.path  # noqa: PTH117
        return f"{site.path if inside.startswith('..') else inside}:{site.line}"
