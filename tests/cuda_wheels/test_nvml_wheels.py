"""Programs on NVML, unmodified: ``nvidia-ml-py``, ``cuda.core.system``, gpustat and nvitop show the virtual node."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from peerlane.testing.procs import Completed, run_python

pytest.importorskip("pynvml", reason="the wheel nvidia-ml-py is not installed")

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "cuda.md"
(DEVICES,) = re.findall(r"```python\n(# devices\.py.*?)```", GUIDE.read_text(), re.DOTALL)
MIB = 1 << 20
SECONDS = 120
#: Holds 64 MiB of device 1, and runs the words behind it.
HOLDER = f"""
import subprocess, sys
import peerlane as pl

with pl.devices()[1].allocate({64 * MIB}):
    done = subprocess.run(sys.argv[1:], capture_output=True, text=True)
print(done.stdout)
print(done.stderr, file=sys.stderr)
sys.exit(done.returncode)
"""


def run(folder: Path, program: str, *words: str, node: str = "profile=h100-8,devices=2") -> Completed:
    path = folder / "prog.py"
    path.write_text(program)
    return run_python(
        ["-m", "peerlane", "run", "--dialect", "cuda", "--node", node, str(path), *words], timeout=SECONDS
    )


def beside_holder(folder: Path, *words: str) -> Completed:
    """Run a program of this environment while another process holds memory of device 1."""
    done = run(folder, HOLDER, *words)
    assert done.returncode == 0, done.stderr
    return done


def test_program_of_the_guide_shows_devices_memory_and_processes(tmp_path: Path) -> None:
    shown = tmp_path / "devices.py"
    shown.write_text(DEVICES)
    lines = beside_holder(tmp_path, sys.executable, str(shown)).stdout.strip().splitlines()
    assert lines[0] == "0 NVIDIA H100 80GB HBM3 00000000:01:00.0 0 of 81558 MiB"
    assert lines[1] == "1 NVIDIA H100 80GB HBM3 00000000:02:00.0 64 of 81558 MiB"
    assert re.fullmatch(r"  process \d+ 64 MiB", lines[2])


def test_gpustat_shows_memory_and_processes(tmp_path: Path) -> None:
    pytest.importorskip("gpustat", reason="the wheel gpustat is not installed")
    shown = json.loads(
        beside_holder(tmp_path, str(Path(sys.executable).with_name("gpustat")), "--json").stdout
    )
    assert [each["name"] for each in shown["gpus"]] == ["NVIDIA H100 80GB HBM3"] * 2
    assert [each["memory.used"] for each in shown["gpus"]] == [0, 64]
    assert [each["temperature.gpu"] for each in shown["gpus"]] == [None, None]
    assert [each["gpu_memory_usage"] for each in shown["gpus"][1]["processes"]] == [64]


def test_nvitop_shows_memory_and_processes(tmp_path: Path) -> None:
    pytest.importorskip("nvitop", reason="the wheel nvitop is not installed")
    text = beside_holder(tmp_path, sys.executable, "-m", "nvitop", "--once").stdout
    assert "CUDA Driver Version: 13.5" in text
    assert "64.00MiB / 79.65GiB" in text
    assert re.search(r"1\s+\d+ C\s+\w+\s+64\.00MiB", text)


def test_cuda_core_shows_the_system(tmp_path: Path) -> None:
    pytest.importorskip("cuda.core", reason="the wheel cuda-core is not installed")
    done = run(
        tmp_path,
        "from cuda.core import system\n"
        "from cuda.core.system import Device\n"
        "a, b, c = Device.get_all_devices()\n"
        "print(a.name, a.arch.name, a.memory_info.total >> 20, a.pci_bus_id)\n"
        "print(sum(each.state for each in a.get_nvlinks()), a.get_nvlink(0).version)\n"
        "print(system.get_topology_common_ancestor(a, b), system.get_p2p_status(a, b, 'nvlink'))\n"
        "print([each.index for each in b.get_topology_nearest_gpus('node')])\n"
        "print(b.to_cuda_device().uuid == b.uuid_without_prefix, b.to_cuda_device().device_id)\n"
        "try:\n"
        "    a.register_events('xid_critical_error').wait(10)\n"
        "except system.TimeoutError:\n"
        "    print('no event')\n",
        node="profile=h200-8,devices=3",
    )
    assert done.stdout.splitlines() == [
        "NVIDIA H200 HOPPER 143770 00000000:01:00.0",
        "18 (4, 0)",
        "node ok",
        "[0, 2]",
        "True 1",
        "no event",
    ], done.stderr


def test_nvml_of_cuda_bindings_counts_devices(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings", reason="the wheel cuda-bindings is not installed")
    done = run(
        tmp_path,
        "from cuda.bindings import nvml\n"
        "nvml.init_v2()\n"
        "print(nvml.device_get_count_v2(), nvml.system_get_nvml_version())\n"
        "device = nvml.device_get_handle_by_index_v2(0)\n"
        "print(nvml.device_get_memory_info_v2(device).total >> 20, nvml.device_get_serial(device).isdigit())\n"
        "nvml.shutdown()\n",
        node="profile=rtx4090-2",
    )
    assert done.stdout.splitlines() == ["2 13.615.71", "24564 True"], done.stderr
