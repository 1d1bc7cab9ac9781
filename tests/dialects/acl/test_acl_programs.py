"""Whole programs under ``peerlane run``: the sequence of facts/acl 5.1, and the examples."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.prepared import run_python
from peerlane.testing.procs import Completed

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule]

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "acl_peer_copy.py"
DESCRIPTORS = ROOT / "examples" / "acl_copy_with_desc.py"
SHAREABLE = ROOT / "examples" / "acl_shareable_handle.py"
SCHEDULES = ("eager", "lazy", "seeded:1")
SEED = Path(__file__).parent / "seed_0.py"
TIMEOUT = 60.0


def run(*args: str, schedule: str = "eager") -> Completed:
    env = {name: value for name, value in os.environ.items() if "PEERLANE" not in name}
    env["PEERLANE_SCHEDULE"] = schedule
    return run_python(["-m", "peerlane", "run", *args], timeout=TIMEOUT, env=env)


def test_acl_seed_program_every_call_returns_0() -> None:
    done = run(str(SEED))
    assert (done.returncode, done.stdout, done.stderr) == (0, "every step returned 0\n", "")


@pytest.mark.parametrize("options", [[], ["--devices", "4", "--switch", "2"], ["--profile", "ascend-310p"]])
def test_acl_example_peer_copy_verifies_bytes(options: list[str]) -> None:
    done = run(*options, str(EXAMPLE))
    assert done.returncode == 0, done.stderr
    assert "verified" in done.stdout and done.stderr == ""


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("options", [[], ["--profile", "ascend-a2"]])
def test_acl_example_copy_with_desc_verifies_bytes(options: list[str], schedule: str) -> None:
    done = run(*options, str(DESCRIPTORS), "--steps", "100", "--bytes", "513", schedule=schedule)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "100 blocks of 513 bytes gathered through one descriptor, every byte verified\n"
    assert done.stderr == ""


def test_acl_example_copy_with_desc_unknown_device_exits_1() -> None:
    done = run(str(DESCRIPTORS), "--device", "9")
    assert (done.returncode, done.stdout) == (1, "")
    assert "107001" in done.stderr


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("options", [[], ["--profile", "ascend-a2"]])
def test_acl_example_shareable_handle_verifies_bytes(options: list[str], schedule: str) -> None:
    done = run(*options, str(SHAREABLE), "--mib", "5", "--device", "1", schedule=schedule)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "6 MiB of device 1 shared by two processes, every byte verified in both\n"
    assert done.stderr == ""


def test_acl_example_shareable_handle_unsupported_request_exits_1() -> None:
    done = run(str(SHAREABLE), "--device", "9")
    assert (done.returncode, done.stdout) == (1, "")
    assert "107001" in done.stderr
    done = run("--profile", "ascend-310p", str(SHAREABLE))
    assert (done.returncode, done.stdout) == (1, "")
    assert "P2P attribute" in done.stderr


def test_acl_example_peer_copy_unsupported_request_exits_1() -> None:
    done = run("--devices", "4", "--switch", "2", str(EXAMPLE), "--devices", "0", "2")
    assert done.returncode == 1
    assert "no peer access between device 0 and device 2" in done.stderr
    done = run(str(EXAMPLE), "--devices", "0", "9")
    assert done.returncode == 1
    assert "107001" in done.stderr and "numbered 0 to 1" in done.stderr


@pytest.mark.parametrize(
    "source",
    [
        "import acl; print(acl.rt.get_device_count())",
        "import acl.rt; print(acl.rt.get_device_count())",
        "from acl.rt import get_device_count; print(get_device_count())",
        "from acl import rt as acl_rt; print(acl_rt.get_device_count())",
        "import acl, acl.util; from acl.rt import memcpy, create_stream; print(acl.rt.get_device_count())",
        "import sys, subprocess; subprocess.run([sys.executable, '-c', "
        "'import acl; print(acl.rt.get_device_count())'], check=True)",
    ],
)
def test_acl_run_every_import_form_serves_acl(source: str) -> None:
    done = run("--devices", "3", "-c", source)
    assert (done.stdout, done.stderr) == ("(3, 0)\n", "")


DESTRUCTORS = """
import acl, atexit

class Resource:
    def __init__(self):
        assert acl.init() == acl.rt.set_device(0) == 0
        self.context, self.stream = acl.rt.create_context(0)[0], acl.rt.create_stream()[0]
        self.pointer, self.host = acl.rt.malloc(1 << 20, 0)[0], acl.rt.malloc_host(64)[0]

    def __del__(self):
        print(acl.rt.set_context(self.context), acl.rt.synchronize_stream(self.stream),
              acl.rt.destroy_stream(self.stream), acl.rt.free(self.pointer), acl.rt.free_host(self.host),
              acl.rt.destroy_context(self.context),
              acl.rt.reset_device(0), acl.rt.malloc(8, 0), acl.rt.get_device_count(), acl.finalize(), flush=True)

kept = Resource()
"""


def test_acl_run_destructors_at_interpreter_exit_get_codes(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(DESTRUCTORS)
    done = run(str(program))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "0 0 0 0 0 0 0 (0, 507033) (0, 507033) 0\n"
