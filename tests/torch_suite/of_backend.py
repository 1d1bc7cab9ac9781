"""Runs PyTorch's ``distributed_test`` on one back-end.

``python -m torch_suite.of_backend BACKEND FILE [TEST ...]`` writes the outcome of each test to a file as JSON.  The
processes of a test are forks of this one: PyTorch itself would start each anew, and import itself in each.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import tempfile
import time
import types
import unittest
from pathlib import Path
from typing import Any

OURS = "peerlane"
RANKS = 4
MORE_RANKS = 8  # for the tests that are skipped with fewer
SECONDS = 90  # for a test

# Wherever PyTorch's file names gloo as a back-end that a test can run on, ours is named beside it.
NAMED = (
    ('BACKEND != "gloo"', f'BACKEND not in ("gloo", "{OURS}")'),
    ('BACKEND == "gloo"', f'BACKEND in ("gloo", "{OURS}")'),
    ('is_available({"gloo"})', f'is_available({{"gloo", "{OURS}"}})'),
)

Outcome = tuple[str, str]  # "passed", "skipped" or "failed", and why


def loaded(backend: str) -> Any:
    """Return PyTorch's file as a module, with our name in its tables."""
    from torch.testing._internal import common_distributed

    tables = common_distributed.DistTestCases.backend_feature
    for name in ("gpu", "cuda", "ddp", "subgroup", "plugin"):
        tables[name].add(OURS)
    common_distributed.TIMEOUT_OVERRIDE.clear()
    name = "torch.testing._internal.distributed.distributed_test"
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    source = Path(spec.origin).read_text()
    for theirs, ours in NAMED:
        assert theirs in source, f"{name} no longer has {theirs!r}"
        source = source.replace(theirs, ours)
    module = types.ModuleType(name)
    module.__file__ = spec.origin
    sys.modules[name] = module
    exec(compile(source, spec.origin, "exec", dont_inherit=True), vars(module))
    return module


def case_of(module: Any) -> type[unittest.TestCase]:
    """Return the test case, whose processes are forks."""
    import torch

    class OnBackend(module.TestDistBackend, module.DistributedTest._DistTestBase):  # type: ignore[misc, name-defined]
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return OnBackend


def outcome(case: type[unittest.TestCase], name: str) -> Outcome:
    """Run a test."""
    result = unittest.TestResult()
    case(name).run(result)
    if result.skipped:
        return "skipped", result.skipped[0][1]
    bad = [*result.failures, *result.errors]
    return ("failed", bad[0][1]) if bad else ("passed", "")


def main(backend: str, file: Path, only: list[str]) -> None:
    """Run all tests, or some, and write their outcomes as they come."""
    os.environ.update(BACKEND=backend, WORLD_SIZE=str(RANKS), DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(SECONDS))
    os.environ.update(OMP_NUM_THREADS="1", TEMP_DIR=tempfile.mkdtemp())
    os.environ["INIT_METHOD"] = f"file://{os.environ['TEMP_DIR']}/init"
    import peerlane.torch  # noqa: F401 - it registers the back-end

    case = case_of(loaded(backend))
    names = only or unittest.TestLoader().getTestCaseNames(case)
    outcomes_by_case: dict[str, Outcome] = {}
    began = time.monotonic()
    for number, name in enumerate(names, 1):
        outcomes_by_case[name] = outcome(case, name)
        if outcomes_by_case[name][1].startswith("Skipped due to small world size"):
            os.environ["WORLD_SIZE"] = str(MORE_RANKS)
            outcomes_by_case[name] = outcome(case, name)
            os.environ["WORLD_SIZE"] = str(RANKS)
        kind, why = outcomes_by_case[name]
        last = re.sub(r"\s+", " ", why.strip().rpartition("\n")[2])[:100]
        print(
            f"{backend} {number}/{len(names)} {time.monotonic() - began:.0f} s {name}: {kind} {last}",
            flush=True,
        )
        file.write_text(json.dumps(outcomes_by_case, indent=1))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
