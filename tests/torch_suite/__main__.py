"""Runs PyTorch's distributed tests on gloo and on peerlane, and writes a page that compares them.

``python -m torch_suite PAGE``: the exit code is 1 if fewer than 95 % of the tests that pass on gloo pass on peerlane,
or if one that does not has no reason here.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from torch_suite.of_backend import MORE_RANKS, OURS, RANKS, Outcome

GOAL = 0.95
_MOST_SECONDS = 3600.0

#: Why a test that passes on gloo does not pass on peerlane.
REASONS: dict[str, str] = {}

_PAGE = """\
# PyTorch's own distributed tests

`make test-torch` runs `torch.testing._internal.distributed.distributed_test`, which is in PyTorch's wheel, on gloo
and on peerlane, one test after the other, and writes this page. The name peerlane is added wherever the file lets a
test run on gloo (`NAMED` in `tests/torch_suite/of_backend.py`). It is not added to the lists of back-ends whose calls
PyTorch's profiler shows as asynchronous, with the shapes of their tensors: only C++ can make such events
([profiles](guides/torch.md#profiles)). The processes of a test are forks of one that has imported PyTorch.

{date}, torch {version}, Python {python}, {ranks} ranks, {more_ranks} where a test is skipped with fewer,
no accelerator:

| of {all} tests | gloo | peerlane |
|---|---|---|
| pass | {gloo_passed} | {our_passed} |
| fail | {gloo_failed} | {our_failed} |
| are skipped | {gloo_skipped} | {our_skipped} |

**Of the {gloo_passed} tests that pass on gloo, {both} pass on peerlane ({percent:.1f} %).**

## Those that pass on gloo and not on peerlane

{missing}

## Those that pass on both

{passing}
"""


def outcomes(backend: str) -> dict[str, Outcome]:
    """Run all tests on a back-end."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outcomes.json"
        command = [sys.executable, "-m", "torch_suite.of_backend", backend, str(file)]
        subprocess.run(command, check=True, timeout=_MOST_SECONDS)
        outcomes_by_case: dict[str, Outcome] = {
            name: (kind, why) for name, (kind, why) in json.loads(file.read_text()).items()
        }
    return outcomes_by_case


def main(page: Path) -> int:
    """Run, compare, write."""
    import torch

    theirs, ours = outcomes("gloo"), outcomes(OURS)
    on_gloo = [name for name, (kind, _) in theirs.items() if kind == "passed"]
    passing = [name for name in on_gloo if ours[name][0] == "passed"]
    missing = [name for name in on_gloo if ours[name][0] != "passed"]
    counts = {
        "gloo": Counter(kind for kind, _ in theirs.values()),
        "our": Counter(kind for kind, _ in ours.values()),
    }
    page.write_text(
        _PAGE.format(
            date=datetime.date.today(),
            version=torch.__version__,
            python=platform.python_version(),
            ranks=RANKS,
            more_ranks=MORE_RANKS,
            all=len(theirs),
            **{
                f"{who}_{kind}": each[kind]
                for who, each in counts.items()
                for kind in ("passed", "failed", "skipped")
            },
            both=len(passing),
            percent=100 * len(passing) / len(on_gloo),
            missing="\n".join(f"* `{name}`: {REASONS.get(name, 'not explained yet')}" for name in missing)
            or "None.",
            passing=", ".join(f"`{name}`" for name in passing) + ".",
        )
    )
    for name in missing:
        print(f"{name} {ours[name][0]} on {OURS}:\n{ours[name][1]}")
    print(f"{len(passing)} of {len(on_gloo)} tests that pass on gloo pass on {OURS}; {page} has them")
    return int(len(passing) < GOAL * len(on_gloo) or not REASONS.keys() >= set(missing))


if __name__ == "__main__":
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    sys.exit(main(Path(sys.argv[1])))
