"""`peerlane check` on programs of the device: it names both lines of a missing wait, and accuses no right program."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from helpers.torch_ranks import needs_torch
from peerlane.testing.procs import Completed, run_python

needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

_HEAD = """\
import torch
import peerlane.torch

main = torch.accelerator.current_stream()
side = torch.Stream(device="peerlane:0")
device = "peerlane:0"
"""


def checked(folder: Path, program: str) -> Completed:
    source = folder / "program.py"
    source.write_text(_HEAD + textwrap.dedent(program))
    return run_python(
        ["-m", "peerlane", "check", str(source)],
        timeout=280,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PEERLANE_SCHEDULE": "eager"},
    )


_RACY = {
    "read on another stream": (
        """
        x = torch.zeros(300, 300, device=device)  # first
        with side:
            y = x @ x  # second
        """,
        1,
    ),
    "prefetch without a wait": (
        """
        batch = torch.empty(50_000, device=device)
        main.synchronize()
        with side:
            batch.copy_(torch.ones(50_000).pin_memory(), non_blocking=True)  # first
        loss = batch.sum()  # second
        """,
        1,
    ),
    "freed without record_stream": (
        """
        x = torch.ones(200_000, device=device)
        side.wait_stream(main)
        with side:
            y = x * 2  # first
        del x
        z = torch.zeros(200_000, device=device)  # second
        """,
        1,
    ),
    "two devices": (
        """
        x = torch.ones(100_000, device="peerlane:1")
        with side:
            y = x.to(device)
        x.add_(1)
        z = y + 1  # second
        """,
        1,
    ),
}


@pytest.mark.parametrize("name", _RACY)
def test_missing_wait_is_a_certain_finding_with_both_lines(tmp_path: Path, name: str) -> None:
    program, findings = _RACY[name]
    done = checked(tmp_path, program)
    assert done.returncode == 3, done.stdout + done.stderr
    report = done.stdout + done.stderr
    assert f"peerlane check: {findings} certain finding" in report, report
    lines = (tmp_path / "program.py").read_text().splitlines()
    for mark in ("# first", "# second"):
        for number, line in enumerate(lines, 1):
            if mark in line:
                assert f"program.py:{number}" in report, report


_RIGHT = """
    x = torch.zeros(300, 300, device=device)
    side.wait_stream(main)
    with side:
        y = x @ x
        odd = x[1::2, ::3].t() + 1
    main.wait_stream(side)
    y.record_stream(main)
    z = y + odd.sum()
    model = torch.nn.Sequential(torch.nn.Linear(300, 64), torch.nn.LayerNorm(64), torch.nn.GELU()).to("peerlane:1")
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(3):
        optimizer.zero_grad()
        model(z.to("peerlane:1")).pow(2).mean().backward()
        optimizer.step()
    freed = torch.ones(200_000, device=device)
    side.wait_stream(main)
    with side:
        used = freed * 2
    freed.record_stream(side)
    del freed
    side.synchronize()
    again = torch.zeros(200_000, device=device)
    torch.accelerator.synchronize(0)
    torch.accelerator.synchronize(1)
"""


def test_program_with_its_waits_has_no_finding(tmp_path: Path) -> None:
    done = checked(tmp_path, _RIGHT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no findings" in done.stdout + done.stderr


_ROWS = """
    x = torch.zeros(400, 400, device=device)
    main.synchronize()
    with side:
        x[1::2].add_(1)
    x[::2].add_(1)
    x[:, ::2].sum()
    torch.accelerator.synchronize()
"""


def test_strided_tensors_are_exact(tmp_path: Path) -> None:
    assert checked(tmp_path, _ROWS.replace("    x[:, ::2].sum()\n", "")).returncode == 0
    assert checked(tmp_path, _ROWS).returncode == 3
