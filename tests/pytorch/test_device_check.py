"""`peerlane check` on programs of the device: it names both lines of a missing wait, and accuses no right program."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path
from typing import Any

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
    "values of a sparse tensor": (
        """
        x = torch.eye(300, device=device).to_sparse()
        main.synchronize()
        with side:
            x._values().mul_(2)  # first
        y = x.to_dense()  # second
        """,
        1,
    ),
    "numbers of a quantized tensor": (
        """
        x = torch.quantize_per_tensor(torch.ones(300, 300, device=device), 0.1, 0, torch.qint8)
        main.synchronize()
        numbers = torch.ones(300, 300, device=device)  # first
        with side:
            x.copy_(numbers)  # second
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
    sparse = torch.eye(300, device=device).to_sparse()
    side.wait_stream(main)
    with side:
        sparse._values().mul_(2)
        count = sparse._nnz()
    size = sparse.shape, sparse._nnz()  # reads no bytes
    main.wait_stream(side)
    sparse.add_(sparse.to("peerlane:1").to(device))
    other = sparse.to("peerlane:1").copy_(sparse)
    sparse.copy_(other)
    quantized = torch.quantize_per_tensor(torch.ones(300, 300, device=device), 0.1, 0, torch.qint8)
    quantized.copy_(torch.ones(300, 300, device="peerlane:1"))
    embedding = torch.nn.Embedding(30, 4, sparse=True, device=device)
    embedding(torch.arange(3, device=device)).sum().backward()
    torch.optim.SparseAdam(embedding.parameters()).step()
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


_MANY_ROWS = """
    other = torch.Stream(device=device)
    halves = torch.zeros(100, 50, 20, 8, device=device)
    cells = torch.zeros(90, 90, 6, 6, device=device)[1:-1, ::3]
    for a, b in (
        (halves[..., :4], halves[..., 4:]),
        (halves[..., :4].permute(2, 0, 3, 1), halves[..., 4:]),
        (cells[:, :, ::2, ::2], cells[:, :, 1::2, 1::2]),
        (cells[:, :, ::2, 1::2], cells[:, :, ::2, ::2]),
    ):
        with side:
            side.wait_stream(main)
            a.fill_(1)
        with other:
            other.wait_stream(main)
            b.fill_(2)
        main.wait_stream(side)
        main.wait_stream(other)
    cells[:, 1].sum()
    torch.accelerator.synchronize()
"""


def test_tensors_of_many_rows_are_exact(tmp_path: Path) -> None:
    done = checked(tmp_path, _MANY_ROWS)
    assert done.returncode == 0, done.stdout
    overlapping = _MANY_ROWS.replace("cells[:, :, 1::2, 1::2]", "cells[-1:, :, 2::2, 2::2]")
    assert checked(tmp_path, overlapping).returncode == 3


_RANKS = """\
import sys
import torch
import torch.distributed as dist
import peerlane.torch

dist.init_process_group("peerlane")
rank = dist.get_rank()
device = torch.device("peerlane", rank)
torch.accelerator.set_device_index(rank)
x = torch.ones(50_000, device=device)
work = dist.all_reduce(x, async_op=True)
if "waits" in sys.argv:
    work.wait()
side = torch.Stream(device=device)
if "waits" in sys.argv:
    side.wait_stream(torch.accelerator.current_stream())
with side:
    y = x + 1
side.synchronize()
work.wait()
dist.barrier()
objects = [None, None]
dist.all_gather_object(objects, {"rank": rank})
(dist.send if rank == 0 else dist.recv)(x, 1 - rank)
if "destroys" in sys.argv:
    dist.destroy_process_group()
"""


def _checked_ranks(folder: Path, *words: str) -> tuple[Completed, dict[str, Any]]:
    source, report = folder / "ranks.py", folder / "report.json"
    source.write_text(_RANKS)
    command = [
        "-m",
        "peerlane",
        "check",
        "-n",
        "2",
        "--devices",
        "2",
        "--json",
        str(report),
        str(source),
        *words,
    ]
    done = run_python(
        command, timeout=280, env={**os.environ, "OMP_NUM_THREADS": "1", "PEERLANE_SCHEDULE": "eager"}
    )
    return done, json.loads(report.read_text())


@pytest.mark.parametrize("words", [("waits",), ("waits", "destroys")], ids=["left open", "destroyed"])
def test_ranks_that_wait_have_no_finding_and_nothing_unseen(tmp_path: Path, words: tuple[str, ...]) -> None:
    done, report = _checked_ranks(tmp_path, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert report["findings"] == []
    assert "not seen" not in done.stdout + done.stderr


def test_rank_that_reads_before_its_collective_is_over_is_named(tmp_path: Path) -> None:
    done, report = _checked_ranks(tmp_path, "destroys")
    assert done.returncode == 3, done.stdout + done.stderr
    text = done.stdout + done.stderr
    assert any(each["certain"] for each in report["findings"]), text
    lines = {
        _RANKS.splitlines().index(each) + 1
        for each in ("work = dist.all_reduce(x, async_op=True)", "    y = x + 1")
    }
    races = [each for each in report["findings"] if {site["line"] for site in each["sites"]} == lines]
    assert races, text
    for each in races:
        assert {Path(site["file"]).name for site in each["sites"]} == {"ranks.py"}, each
        assert "torch.distributed.Work.wait" in each["missing"], each
