"""Ranks wait for values that others put between their calls, and gather."""

from showing import show

import peerlane as pl
from peerlane.rendezvous import Rendezvous

with Rendezvous.from_environment() as line, pl.Group(rendezvous=line, window=4096) as group:
    for turn in range(5):
        if turn % group.size == group.rank:
            group.window.fill(turn)
            line.put(f"turn {turn}", bytes(group.window.view()[:4]))
        show(line.get(f"turn {turn}", timeout=20))
        show(b"".join(line.gather("all", b"%d" % (group.rank + turn))))
