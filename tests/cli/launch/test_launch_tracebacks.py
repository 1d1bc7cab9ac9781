"""``peerlane launch`` shows one traceback for all ranks that end with the same error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.launched import Run
from helpers.launching import also_far
from peerlane.cli.launch.output import prefix

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

START = """\
import os, signal, sys
import peerlane as pl
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # so that each rank gets as far as its error
rank = int(os.environ["RANK"])
with pl.Group() as group:
    group.barrier()
"""
ALIKE = START + 'raise ValueError("all of us\\nin two lines")\n'


def tracebacks(stderr: str) -> dict[str, list[str]]:
    """Return the lines by the ranks in their prefix."""
    lines: dict[str, list[str]] = {}
    for ranks, line in re.findall(r"^\[([\d,-]+)\] (.*)$", stderr, re.MULTILINE):
        lines.setdefault(ranks, []).append(line)
    return lines


def numbers(ranks: str) -> list[int]:
    """Return the ranks that a prefix lists."""
    listed: list[int] = []
    for run in ranks.split(","):
        first, _, last = run.partition("-")
        listed += range(int(first), int(last or first) + 1)
    return sorted(listed)


def test_prefix_lists_ranks_by_their_runs() -> None:
    assert prefix(3, coloured=False) == b"[3] "
    assert prefix(7, 0, 2, 1, 5, 4, coloured=False) == b"[0-2,4-5,7] "
    assert b"[0-1]" in prefix(0, 1, coloured=True)


@also_far
def test_alike_ranks_end_with_one_traceback(run: Run) -> None:
    done = run("-n", "8", "-c", ALIKE)
    assert done.returncode == 1
    by_ranks = tracebacks(done.stderr)
    # A loaded machine may run a rank so late that the others' traceback is shown before.
    assert len(by_ranks) < 8 and numbers(",".join(by_ranks)) == list(range(8)), done.stderr
    for lines in by_ranks.values():
        assert lines[0] == "Traceback (most recent call last):"
        assert lines[-2:] == ["ValueError: all of us", "in two lines"]
    assert "last words:\n  Traceback (most recent call last):" in done.stderr


def test_different_errors_are_all_shown(run: Run) -> None:
    done = run("-n", "3", "-c", START + 'raise ValueError(f"rank {rank} alone")\n')
    by_ranks = tracebacks(done.stderr)
    assert sorted(by_ranks) == ["0", "1", "2"]
    assert [by_ranks[each][-1] for each in sorted(by_ranks)] == [
        f"ValueError: rank {each} alone" for each in range(3)
    ]


def test_rank_that_writes_its_errors_to_a_file_has_its_traceback_there(run: Run, tmp_path: Path) -> None:
    redirected = f"os.dup2(os.open({str(tmp_path)!r} + f'/{{rank}}', os.O_CREAT | os.O_WRONLY), 2)\n"
    done = run("-n", "2", "-c", START + redirected + 'raise ValueError("in the file")\n')
    assert done.returncode == 1 and not tracebacks(done.stderr)
    for rank in range(2):
        assert (tmp_path / str(rank)).read_text().splitlines()[-1] == "ValueError: in the file"


def test_hook_of_the_program_shows_its_errors(run: Run) -> None:
    before = (
        "import sys\nsys.excepthook = lambda kind, *_: print('own hook', kind.__name__, file=sys.stderr)\n"
    )
    done = run("-n", "2", "-c", before + ALIKE)
    assert tracebacks(done.stderr) == {"0": ["own hook ValueError"], "1": ["own hook ValueError"]}
