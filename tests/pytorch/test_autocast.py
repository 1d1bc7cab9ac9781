"""``torch.autocast`` on a device: what torch refuses on CUDA it refuses here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.torch_ranks import BOTH_NAMES, needs_torch
from peerlane.testing.procs import run_python

needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

_PROGRAM = """
import json, sys, torch
kind = sys.argv[1]
if kind == "peerlane":
    import peerlane.torch
share, target = torch.rand(4, device=kind), torch.rand(4, device=kind)
cross_entropy = torch.nn.functional.binary_cross_entropy

def refusal():
    try:
        cross_entropy(share, target)
    except RuntimeError as error:
        return str(error)

with torch.autocast(kind, dtype=torch.bfloat16):
    found = [refusal(), torch.nn.functional.binary_cross_entropy_with_logits(share, target).isfinite().item()]
    with torch.autocast(kind, enabled=False):
        found.append(refusal())
print(json.dumps([*found, refusal()]))
"""


@BOTH_NAMES
def test_binary_cross_entropy_under_autocast_is_refused_as_on_cuda(
    tmp_path: Path, options: list[str]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    kind = "cuda" if options else "peerlane"
    done = run_python(["-m", "peerlane", "run", *options, str(program), kind], timeout=280)
    assert done.returncode == 0, done.stderr
    refused, *others = json.loads(done.stdout)
    assert "binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast" in refused
    assert others == [True, None, None]
