"""Asks the server of a rendezvous whether the waits of this process are in vain."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from peerlane.diagnostics.waits import progress, store_waits
from peerlane.errors import Error
from peerlane.ranks.deadlock.board_records import decode, encode
from peerlane.ranks.deadlock.known import MOST_SHOWN, Graph, end, head, lines, state
from peerlane.rendezvous import client
from peerlane.rendezvous.frames import Operation
from peerlane.rendezvous.hangs import interval_ns
from peerlane.rendezvous.wait_reports import MAX_TEXT, MAX_WAITS, Party, Report, Wait

if TYPE_CHECKING:
    from peerlane.ranks.deadlock.wait_state import Waits
    from peerlane.rendezvous import Rendezvous

_OPERATIONS = {"key": Operation.GET, "barrier": Operation.BARRIER, "gather": Operation.GATHER}


def ask(waits: Waits, since: int) -> bool:
    """Report the waits of this process to the server at which this thread waits; return whether they have ended."""
    mine = store_waits.waiting.get(threading.get_ident())
    now = time.monotonic_ns()
    if mine is None or now < mine.next_ns:
        return False
    rendezvous = mine.rendezvous
    asked, pids = waits.at(rendezvous)[:MAX_WAITS], waits.pids_besides(rendezvous)
    is_new = pids is None or any(each.standing is None for each in asked)
    report = Report(
        0 if is_new else since,
        waits.before_ns,
        waits.has_children,
        tuple(Wait(_OPERATIONS[each.kind], each.key, each.peer) for each in asked),
        tuple(pids or ()),
        encode(waits.of_rendezvous(rendezvous), MAX_TEXT).decode(),
    )
    mine.next_ns = now + interval_ns(rendezvous.size)
    try:
        reply = client.report_waits(rendezvous, report)
    except Error:  # the server is busy, stopped, or gone; the wait itself notices its end
        return False
    for each, standing in zip(asked, reply.standings, strict=False):
        each.standing = standing
        if standing is not None:
            each.sure_ns = waits.before_ns
    if not reply.in_vain:
        return False
    mine.next_ns = 0
    known = _graph(rendezvous, reply.in_vain, waits).report(now)
    progress.put_off_losses()
    waits.warn(known.text, known.state)
    if reply.all_know:
        end(known, waits)
    return reply.all_know


def _graph(rendezvous: Rendezvous, parties: Sequence[Party], waits: Waits) -> Graph:
    """Return the deadlock of a server's reply."""
    ranks = sorted({each.rank for each in parties})
    reports = [(each.rank, each.pid, decode(each.text.encode(), each.rank, each.pid)) for each in parties]
    return Graph(
        ranks,
        head(ranks, ""),
        "\n".join(text for each in reports[:MOST_SHOWN] for text in lines(*each)),
        state([record for _, _, records in reports for record in records]),
        "\n".join(lines(rendezvous.rank, os.getpid(), waits.of_rendezvous(rendezvous))),
        f"{parties[0].pid}.{parties[0].since_ns}",
    )
