"""Runs PyTorch's distributed tests for NCCL on virtual devices, and writes a page of those that do not pass.

``python -m torch_suite.as_nccl PAGE``: the exit code is 1 if a test fails for which no reason stands here.
"""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from torch_suite.of_backend import MORE_RANKS, RANKS, Outcome

_MOST_SECONDS = 3600.0

#: Why tests do not pass.
REASONS: dict[str, tuple[str, ...]] = {
    "the test expects profiler events that are asynchronous, with the shapes of tensors": (
        "test_all_gather_cuda",
        "test_all_gather_cuda_complex",
        "test_all_reduce_sum_cuda",
        "test_all_reduce_sum_cuda_async",
        "test_all_reduce_sum_cuda_complex",
        "test_all_to_all_single_equal_split_cuda",
        "test_all_to_all_single_equal_split_cuda_complex",
        "test_all_to_all_single_equal_split_group_cuda",
        "test_all_to_all_single_equal_split_full_group_cuda",
        "test_broadcast_cuda",
        "test_nccl_high_priority_stream",
        "test_ddp_profiling_torch_profiler",
        "test_reduce_sum_cuda",
        "test_reduce_sum_cuda_twice",
        "test_send_recv_nccl_autograd_profiler",
        "test_send_recv_nccl_torch_profiler",
    ),
    "the test expects NCCL's words": (
        "test_monitored_barrier_allreduce_hang",
        "test_monitored_barrier_allreduce_hang_wait_all_ranks",
    ),
    "some 10^15 operations for images of 1,000 x 1,000, which take the processor hours; with 40 x 40 it passes": (
        "test_ddp_uneven_inputs",
    ),
}

_PAGE = """\
# PyTorch's distributed tests for NCCL

`make test-torch` runs `torch.testing._internal.distributed.distributed_test`, which is in PyTorch's wheel, under
`peerlane run --torch-cuda` with the back-end `nccl`, and writes this page. The processes of a test are forks of one
that has imported PyTorch. torch {version}, {ranks} ranks, {more_ranks} where a test is skipped with fewer, {date}.

| of {all} tests | |
|---|---|
| pass | {passed} |
| fail | {failed} |
| are skipped, most because they are for another back-end | {skipped} |

## Those that fail

| why | tests |
|---|---|
{failures}

## Those that pass

{passing}
"""


def outcomes() -> dict[str, Outcome]:
    """Run all tests."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outcomes.json"
        served = [sys.executable, "-m", "peerlane", "run", "--torch-cuda", "--devices", str(MORE_RANKS)]
        command = [*served, "-m", "torch_suite.of_backend", "nccl", str(file)]
        subprocess.run(command, check=True, timeout=_MOST_SECONDS)
        return {name: (kind, why) for name, (kind, why) in json.loads(file.read_text()).items()}


def write(page: Path, outcomes_by_case: dict[str, Outcome]) -> list[str]:
    """Write the page; return the tests that fail without a reason."""
    import torch

    failed = [name for name, (kind, _) in outcomes_by_case.items() if kind == "failed"]
    rows = []
    for reason, names in REASONS.items():
        shown = [f"`{name}`" for name in names if name in failed]
        if shown:
            rows.append(f"| {reason} | {', '.join(shown)} |")
    explained = {name for names in REASONS.values() for name in names}
    rest = [name for name in failed if name not in explained]
    rows += [f"| not explained yet | `{name}` |" for name in rest]
    counts = Counter(kind for kind, _ in outcomes_by_case.values())
    page.write_text(
        _PAGE.format(
            version=torch.__version__,
            ranks=RANKS,
            more_ranks=MORE_RANKS,
            date=datetime.date.today(),
            all=len(outcomes_by_case),
            **{kind: counts[kind] for kind in ("passed", "failed", "skipped")},
            failures="\n".join(rows),
            passing=", ".join(f"`{name}`" for name, (kind, _) in outcomes_by_case.items() if kind == "passed")
            + ".",
        )
    )
    return rest


def main(page: Path) -> int:
    """Run, write."""
    outcomes_by_case = outcomes()
    rest = write(page, outcomes_by_case)
    for name in rest:
        print(f"{name}:\n{outcomes_by_case[name][1]}")
    return int(bool(rest))


if __name__ == "__main__":
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    sys.exit(main(Path(sys.argv[1])))
