"""Unmodified programs of PyTorch for Ascend, which say ``npu`` and ``torch_npu``, under ``--torch-npu``."""

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
_TAIL = """
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
"""


def _run(words: list[str], schedule: str = "eager") -> Completed:
    settings = {"PEERLANE_SCHEDULE": schedule, "OMP_NUM_THREADS": "1"}
    # The first one compiles the device.
    return run_python(["-m", "peerlane", *words], timeout=280, env={**os.environ, **settings})


def _find(folder: Path, text: str, schedule: str = "eager") -> Any:
    program, result = folder / "program.py", folder / "found.json"
    program.write_text("import json, sys\nimport torch\nfound = {}\n" + textwrap.dedent(text) + _TAIL)
    done = _run(["run", "--torch-npu", "--devices", "2", str(program), str(result)], schedule)
    assert done.returncode == 0, done.stderr
    return json.loads(result.read_text())


_NAMES = """
    import io
    import torch_npu
    from torch_npu.npu import mem_get_info

    x = torch.arange(3.0, device="npu:1")
    found["device"] = [str(x.device), x.is_npu, str(x.npu(0).device), repr(x)]
    found["counts"] = [torch.npu.is_available(), torch.npu.device_count(), torch_npu.npu.device_count()]
    found["accelerator"] = str(torch.accelerator.current_accelerator())
    torch.npu.set_device("npu:1")
    found["current"] = [torch.npu.current_device(), str(torch.ones(1, device="npu").device)]
    torch.npu.set_device(0)
    side, compute = torch.npu.Stream(), torch.npu.current_stream()
    first, last = (torch.npu.Event(enable_timing=True) for _ in range(2))
    y = torch.ones(300, 300, device="npu")
    side.wait_stream(compute)
    with torch.npu.stream(side):
        now = torch.npu.current_stream()
        found["stream"] = [now == side, now.npu_stream == side.npu_stream]
        first.record()
        z = y @ y
        last.record()
    compute.wait_event(last)
    z.record_stream(compute)
    found["sum"] = z.sum().item()
    last.synchronize()
    found["timed"] = first.elapsed_time(last) > 0
    found["default"] = compute == torch.npu.default_stream()
    torch.npu.synchronize()
    free, total = mem_get_info()
    torch.npu.reset_peak_memory_stats()
    found["memory"] = [0 < free < total, torch.npu.max_memory_allocated() >= y.nbytes]
    with torch.autocast("npu", dtype=torch.bfloat16):
        found["autocast"] = str((y @ y).dtype)
    with torch.npu.amp.autocast(dtype=torch.float16):
        found["amp"] = str((y @ y).dtype)
    found["pinned"] = torch.ones(3).pin_memory().npu(non_blocking=True).sum().item()
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    found["loaded"] = str(torch.load(file).device)
    layer = torch.nn.Linear(3, 2).npu()
    layer(torch.randn(4, 3, device="npu")).sum().backward()
    found["gradient"] = str(layer.weight.grad.device)
    found["generator"] = str(torch.Generator(device="npu").device)
    torch.npu.manual_seed_all(3)
    for name, call in (("graph", lambda: torch.npu.NPUGraph), ("kernel", lambda: torch_npu.npu_rms_norm)):
        try:
            call()
        except AttributeError as error:
            found[name] = str(error)
    found["has"] = [hasattr(torch.npu, "NPUGraph"), torch.npu.is_current_stream_capturing()]
"""


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:7"])
def test_names_of_npu_mean_virtual_devices(tmp_path: Path, schedule: str) -> None:
    results = _find(tmp_path, _NAMES, schedule)
    assert "torch.npu.NPUGraph is part of the library torch_npu" in results.pop("graph")
    assert "torch_npu.npu_rms_norm is not served" in results.pop("kernel")
    assert results == {
        "device": ["npu:1", True, "npu:0", "tensor([0., 1., 2.], device='npu:1')"],
        "counts": [True, 2, 2],
        "accelerator": "npu",
        "current": [1, "npu:1"],
        "stream": [True, True],
        "sum": 300.0**3,
        "timed": True,
        "default": True,
        "memory": [True, True],
        "autocast": "torch.bfloat16",
        "amp": "torch.float16",
        "pinned": 3.0,
        "loaded": "npu:1",
        "gradient": "npu:0",
        "generator": "npu:0",
        "has": [False, False],
    }


_TRANSFERRED = """
    import io
    import torch_npu
    from torch_npu.contrib import transfer_to_npu

    cuda = torch.device("cuda:1")
    x = torch.ones(4, device="cuda:1")
    found["devices"] = [str(each.device) for each in (
        x, torch.zeros(2).to("cuda"), torch.zeros_like(torch.ones(2), device=cuda), torch.zeros(2).cuda(),
        x.new_ones(3, device="cuda:0"), x.to(cuda), torch.tensor([1], device=cuda))]
    found["is"] = [x.is_cuda, x.cpu().is_cuda, torch.cuda.is_available(), torch.cuda.device_count()]
    layer = torch.nn.Linear(4, 2).to(cuda)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        y = layer(x)
    found["layer"] = [str(y.dtype), str(next(torch.nn.Linear(2, 2).cuda().parameters()).device)]
    from torch.cuda.amp import GradScaler
    scaler = GradScaler()
    scaler.scale(layer(x).sum()).backward()
    scaler.step(torch.optim.SGD(layer.parameters(), 0.1))
    generator = torch.Generator(device="cuda:1").manual_seed(3)
    found["generator"] = [str(generator.device), isinstance(generator, torch.Generator)]
    found["drawn"] = str(torch.rand(2, device="cuda:1", generator=generator).device)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        z = torch.ones(300, 300, device="cuda") @ torch.ones(300, 300, device="cuda")
    torch.cuda.current_stream().wait_stream(side)
    found["sum"] = z.sum().item()
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    found["loaded"] = str(torch.load(file, map_location="cuda:0").device)
"""


def test_transfer_to_npu_runs_a_program_of_cuda_on_npu(tmp_path: Path) -> None:
    assert _find(tmp_path, _TRANSFERRED) == {
        "devices": ["npu:1", "npu:0", "npu:1", "npu:0", "npu:0", "npu:1", "npu:1"],
        "is": [True, False, True, 2],
        "layer": ["torch.bfloat16", "npu:0"],
        "generator": ["npu:1", True],
        "drawn": "npu:1",
        "sum": 300.0**3,
        "loaded": "npu:0",
    }


_RANKS = """
import os
import torch
import {imported}
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.{device}.set_device(rank)
dist.init_process_group("{backend}")
total = torch.full((1000,), rank + 1.0, device="{device}")
dist.all_reduce(total)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 2).{device}(), device_ids=[rank])
model(torch.full((4, 8), float(rank), device="{device}")).sum().backward()
print("found", dist.get_backend(), total[0].item(), model.module.weight.grad[0, 0].item(), flush=True)
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    "launcher",
    [
        "launch --torch-npu -n 2 --devices 2",
        "run --torch-npu --devices 2 -m torch.distributed.run --nproc-per-node 2",
    ],
    ids=["launch", "torchrun"],
)
def test_backend_hccl_reduces_on_npu(tmp_path: Path, launcher: str) -> None:
    program = tmp_path / "ranks.py"
    program.write_text(_RANKS.format(imported="torch_npu", device="npu", backend="hccl"))
    done = _run([*launcher.split(), str(program)])
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.partition("found ")[2] for line in done.stdout.splitlines() if "found " in line]
    assert lines == ["hccl 3.0 2.0"] * 2


def test_transfer_to_npu_lets_ranks_of_nccl_reduce_by_hccl(tmp_path: Path) -> None:
    program = tmp_path / "ranks.py"
    program.write_text(
        _RANKS.format(imported="torch_npu.contrib.transfer_to_npu", device="cuda", backend="nccl")
    )
    done = _run(["launch", "--torch-npu", "-n", "2", "--devices", "2", str(program)])
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.partition("found ")[2] for line in done.stdout.splitlines() if "found " in line]
    assert lines == ["hccl 3.0 2.0"] * 2


def test_check_names_a_missing_wait_of_a_stream_of_npu(tmp_path: Path) -> None:
    program, report = tmp_path / "program.py", tmp_path / "report.json"
    program.write_text(
        "import torch\nimport torch_npu\nside = torch.npu.Stream()\nx = torch.ones(300, 300, device='npu')\n"
        "with torch.npu.stream(side):\n    y = x @ x\nprint((y + 1).sum().item())\n"
    )
    done = _run(["check", "--torch-npu", "--devices", "2", "--json", str(report), str(program)])
    assert done.returncode == 3, done.stdout + done.stderr
    findings = json.loads(report.read_text())["findings"]
    assert any(each["certain"] and {site["line"] for site in each["sites"]} == {4, 6} for each in findings)


def test_two_names_are_refused() -> None:
    done = _run(["run", "--torch-npu", "--torch-cuda", "-c", "pass"])
    assert done.returncode == 2
    assert "not allowed with argument --torch-npu" in done.stderr
