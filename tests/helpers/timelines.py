"""Timelines made by hand: ranks in a ring that write, notify and wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peerlane.checker.timeline import ARRIVAL, NOTIFY, Arrow, Lane, Mark, Timeline
from peerlane.diagnostics.log.log_files import ProcessLog

PROGRAM = "".join(f"step_{line}()  # line {line} of the ring\n" for line in range(1, 41))


def ring(program: Path, *, ranks: int = 4, steps: int = 3) -> Timeline:
    """Return the timeline of ranks that write to the next one; each step makes five marks of a rank."""
    program.write_text(PROGRAM)
    timeline = Timeline(
        sites=[[], *([(str(program), line, "main"), (str(program), 40, "run")] for line in range(1, 40))]
    )
    at = 1_000_000_000
    for rank in range(ranks):
        timeline.processes.append(ProcessLog(Path(f"{rank}.log"), pid=100 + rank, rank=rank))
        timeline.lanes += [Lane(rank, "main thread", False, 100 + rank), Lane(rank, "stream 1", True, 1)]
    for step in range(steps):
        of_step: dict[tuple[int, int], int] = {}
        for rank in range(ranks):
            begin = at + step * 100_000 + rank * 1_500
            for kind, (label, group, lane, start, end) in enumerate(
                (
                    ("host writes", "write", 0, 0, 0),
                    ("channel write", "write", 1, 2_000, 11_000),
                    ("notify", "notify", 1, 12_000, 12_000),
                    ("wait", "wait", 1, 14_000, 40_000),
                    ("host reads", "read", 0, 50_000, 50_000),
                )
            ):
                of_step[rank, kind] = len(timeline.marks)
                timeline.marks.append(
                    Mark(
                        *(2 * rank + lane, begin + start, begin + end, label, group),
                        *(f"step {step}", 5 * step + kind, 1 + (5 * step + kind) % 39, 0),
                    )
                )
        for rank in range(ranks):
            waits = of_step[(rank + 1) % ranks, 3]
            timeline.arrows += [
                Arrow(of_step[rank, 2], waits, NOTIFY),
                Arrow(of_step[rank, 1], waits, ARRIVAL),
            ]
    return timeline


def finding(program: Path, *, step: int, certain: bool = True) -> dict[str, Any]:
    """Return a race of rank 0's write in a step with rank 1's reading there."""

    def site(rank: int, kind: int, verb: str, access: str) -> dict[str, Any]:
        event = 5 * step + kind
        return {
            "file": str(program),
            "line": 1 + event % 39,
            "function": "main",
            "rank": rank,
            "pid": 100 + rank,
            "thread": 100 + rank,
            "stream": int(access == "write"),
            "verb": verb,
            "call": verb,
            "access": access,
            "callers": [[str(program), 40, "run"]],
            "event": event,
        }

    return {
        "kind": "race",
        "certain": certain,
        "count": 1 + step,
        "why": "" if certain else "rank 0 has a socket",
        "message": f"rank 0 writes in step {step} what rank 1 reads, and nothing orders the two",
        "sites": [site(0, 1, "Channel.write", "write"), site(1, 4, "Buffer.view", "read")],
        "memory": {"rank": 1, "allocation": 3, "size": 4096, "made": [str(program), 7]},
        "bytes": [0, 64],
        "missing": "a wait of rank 1 for a notify that rank 0 records on this channel and stream",
        "last_order": {"from": "rank 0 at ring.py:3", "to": "rank 1 at ring.py:4"},
    }


def report(*findings: dict[str, Any]) -> dict[str, Any]:
    """Return a report with these findings."""
    return {"version": 1, "complete": True, "dropped": 0, "findings": list(findings)}
