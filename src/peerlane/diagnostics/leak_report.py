"""The text about leaked objects: kind, size, and the line that created each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from peerlane.diagnostics.call_site import Site
from peerlane.diagnostics.live_objects import LiveObject, in_bytes

WITHOUT_BYTES = ("address range", "exported handle")  # their size is that of another object, or nothing
_MOST_SHOWN = 20


class SiteFormat:
    """How lines of the program are shown.

    ``file``: if an object was created in another file, the line of this file that led to it is shown too; empty: no
        file.
    ``root``: paths are shown relative to this folder.
    """

    def __init__(self, file: str, root: str) -> None:
        self._file, self._root = file, root

    def of(self, verb: str, site: Site | None) -> str:
        """Return ``made at``, with ``verb`` for ``made``, and the line."""
        if site is None:
            return f"{verb} at an unknown place"
        text = f"{verb} at {self._shown(site)}"
        if site.path != self._file:
            caller = next((each for each in site.callers if each.path == self._file), None)
            if caller is not None:
                text += f", called at {self._shown(caller)}"
        return text

    def _shown(self, site: Site) -> str:
        inside = os.path.relpath(site.path, self._root) if os.path.isabs(site.path) else site.path  # noqa: PTH117
        return f"{site.path if inside.startswith('..') else inside}:{site.line}"


def leak_text(head: str, objects: Sequence[LiveObject], sites: SiteFormat, *others: str) -> str:
    """Return a list of objects, with further lines ``others``; its first line counts both behind ``head``."""
    total = len(objects) + len(others)
    nbytes = sum(each.nbytes for each in objects if each.kind not in WITHOUT_BYTES)
    size = f", {in_bytes(nbytes)} in all" if nbytes else ""
    lines = [*_lines_of(objects, sites), *others]
    hidden = len(lines) - _MOST_SHOWN
    if hidden > 0:
        lines[_MOST_SHOWN:] = [f"and {hidden:,} more lines"]
    return "\n".join([f"{head} {total:,} thing{'s' * (total != 1)}{size}:", *(f"  {line}" for line in lines)])


def _lines_of(objects: Sequence[LiveObject], sites: SiteFormat) -> Iterator[str]:
    """Yield the lines; objects of one kind, device and line of the program share one."""
    groups: dict[tuple[str, str, str], list[LiveObject]] = {}
    for each in objects:
        groups.setdefault((each.kind, each.where, sites.of("made", each.site)), []).append(each)
    for (kind, where, site), group in groups.items():
        what = group[0].text
        if len(group) > 1:
            nbytes = sum(each.nbytes for each in group)
            size = f", {in_bytes(nbytes)}" if nbytes else ""
            what = f"{len(group):,} times {kind}{size}" + (f" on {where}" if where else "")
        yield f"{what}, {site}"
