"""The text of what a test left behind: kind, size, and the line that made each object."""

from __future__ import annotations

from peerlane.diagnostics.leak_report import SiteFormat, leak_text
from peerlane.testing.fresh_node import Left


def describe(left: Left, *, head: str, test_file: str, root: str, killed: bool) -> str:
    """Return the list; its first line is a summary.

    Parameters
    ----------
    left : Left
        Not empty.
    head : str
        The first words; the number of objects and processes and their bytes follow.
    test_file : str
        If an object was made in another file, the line of this file that led there is shown too.
    root : str
        Paths are shown relative to this folder.
    killed : bool
        Whether processes will be killed.
    """
    sites = SiteFormat(test_file, root)
    fate = "; it was killed" if killed else ""
    processes = (
        f"process {each.pid} ({each.command}), {sites.of('started', each.site)}{fate}"
        for each in left.processes
    )
    return leak_text(head, left.objects, sites, *processes)
