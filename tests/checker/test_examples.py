"""Each example is right, so the checker finds nothing in it, and it prints what it prints without the checker."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from checker.checking import TESTS, checked_program, described
from helpers.prepared import run_python
from helpers.small_weights import small_weights

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

EXAMPLES = TESTS.parent / "examples"
RANKS = {
    "channel_ring": 4,
    "collective_check": 4,
    "hcomm_all_reduce": 4,
    "hcomm_write_on_thread": 3,
    "kv_transfer": 2,
}
SMALLER = {"acl_kv_cache": ["--blocks", "1000"], "kv_cache": ["--blocks", "1000"]}
#: What other examples import.
PARTS = ("acl_checked", "hip_checked")


@pytest.mark.parametrize(
    "name", sorted(each.stem for each in EXAMPLES.glob("*.py") if each.stem not in PARTS)
)
def test_check_of_an_example_has_no_findings_and_changes_nothing(name: str, tmp_path: Path) -> None:
    if name.startswith("cuda_") and find_spec("cuda") is None:
        pytest.skip("the wheel cuda-core is not installed")
    words = [small_weights(tmp_path)] if name == "model_weights" else SMALLER.get(name, [])
    program, ranks = [str(EXAMPLES / f"{name}.py"), *words], RANKS.get(name)
    done = checked_program(EXAMPLES / f"{name}.py", *program[1:], ranks=ranks)
    assert (done.code, described(done.findings)) == (0, ""), done.output
    command = ["run"] if ranks is None else ["launch", "-n", str(ranks)]
    plain = run_python(["-m", "peerlane", *command, "--devices", "4", *program], timeout=100)
    assert plain.returncode == 0, plain.stderr
    assert lines_of(done.stdout) == lines_of(plain.stdout)
    of_program, report, _ = done.stderr.partition("peerlane check: no findings\n")
    assert report
    assert lines_of(of_program) == lines_of(plain.stderr)


def lines_of(output: str) -> list[str]:
    """Return what was printed, but not the order of ranks, times, and numbers of processes and operations."""
    same = re.sub(r"\d+\.\d+ GB/s|\d+ ms|\d+\.\d+ s\b|process \d+|operation \d+", "", output)
    return sorted(same.splitlines())
