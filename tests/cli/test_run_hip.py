"""Under ``peerlane run`` programs import HIP by both names of hip-python: ``hip`` and ``rocm.bindings``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.prepared import run_python
from peerlane import dialects
from peerlane.testing.procs import Completed

pytestmark = pytest.mark.any_schedule

TIMEOUT = 60.0
Run = Callable[..., Completed]

IMPORTS = """\
from hip import hip
from hip import hiprtc, _util
from rocm.bindings import hip as other
import hip as package, rocm.version
from rocm.bindings.util.types import DeviceArray
assert hip is other is package.hip
assert _util.types.DeviceArray is DeviceArray is type(hip.hipMalloc(64)[1])
assert hiprtc.hiprtcResult.HIPRTC_SUCCESS == 0
from hip import hiprtc_pyext
from hip.hiprtc_pyext import HiprtcLinkCreateOpts
from rocm.bindings.hiprtc_pyext import hiprtcLinkCreate2
assert hiprtc.ext is hiprtc_pyext and hiprtc_pyext.hiprtcLinkCreate2 is hiprtcLinkCreate2
print(hip.hipGetDeviceCount()[1], package.__version__, rocm.version.ROCM_VERSION_NAME)
"""
OLDER = """\
import hip.hip
from hip.hip import hipMalloc
from hip._util.types import Pointer
import rocm.bindings.hip
assert rocm.bindings.hip is hip.hip and hip.hip.hipMalloc is hipMalloc
"""
COUNTED = "3 10.0.0.0.1.2 10.0.0\n"
WORKERS = """\
import multiprocessing, sys
def work(error):
    from hip import hip
    return hip.hipGetDeviceCount()[1], error is hip.hipError_t.hipErrorNotReady
if __name__ == "__main__":
    from hip import hip
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
        print(*pool.apply(work, (hip.hipError_t.hipErrorNotReady,)))
        pool.close()
        pool.join()
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    clean = {name: value for name, value in os.environ.items() if "PEERLANE" not in name}
    env = {**clean, "PEERLANE_RUNTIME_DIR": str(tmp_path / "runtime")}

    def call(*words: str, **variables: str) -> Completed:
        command = ["-m", "peerlane", "run", *words]
        return run_python(command, timeout=TIMEOUT, env={**env, **variables}, cwd=tmp_path)

    return call


def test_run_program_imports_hip_under_each_name(run: Run) -> None:
    done = run("--devices", "3", "-c", IMPORTS)
    assert (done.returncode, done.stdout) == (0, COUNTED), done.stderr
    assert run("-c", OLDER).returncode == 0


def test_run_python_children_have_hip(run: Run) -> None:
    program = (
        f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {IMPORTS!r}]).returncode)"
    )
    done = run("--devices", "3", "-c", program)
    assert (done.returncode, done.stdout) == (0, COUNTED), done.stderr


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_run_multiprocessing_workers_have_hip_and_pickle_its_members(
    method: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "workers.py").write_text(WORKERS)
    done = run("--devices", "4", "workers.py", method)
    assert (done.returncode, done.stdout) == (0, "4 True\n"), done.stderr


def test_import_of_hip_without_run_finds_no_module() -> None:
    for name in ("hip", "rocm"):
        done = run_python(["-c", f"import peerlane, peerlane.dialects; import {name}"], timeout=TIMEOUT)
        assert f"No module named '{name}'" in done.stderr


def test_install_hip_serves_both_names_until_uninstall(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dialects.installed()
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    dialects.install("hip")
    try:
        import rocm.bindings.hip as bindings
        from hip import hip

        from peerlane.dialects.hip import hip as serving

        assert bindings is hip is serving
    finally:
        dialects.uninstall("hip")
    assert dialects.installed() == before
    with pytest.raises(ModuleNotFoundError):
        import rocm  # noqa: F401


REAL = """\
class hip:
    @staticmethod
    def hipGetDeviceCount():
        {body}
"""


@pytest.mark.parametrize(
    ("body", "is_shadowed"),
    [
        ("return 0, 1", False),
        ("return 0, 0", True),
        ("return 100, 0", True),
        ("raise RuntimeError('dlopen')", True),
    ],
)
def test_run_real_hip_with_device_is_not_shadowed(
    body: str, is_shadowed: bool, run: Run, tmp_path: Path
) -> None:
    vendor = tmp_path / "vendor"
    vendor.mkdir()
    (vendor / "hip.py").write_text(REAL.format(body=body))
    done = run("--devices", "3", "-c", IMPORTS, PYTHONPATH=str(vendor))
    if is_shadowed:
        assert (done.returncode, done.stdout) == (0, COUNTED), done.stderr
    else:
        assert done.returncode != 0
        assert "cannot install dialect 'hip'" in done.stderr
        assert "--shadow-real" in done.stderr
        assert run("--devices", "3", "--shadow-real", "-c", IMPORTS, PYTHONPATH=str(vendor)).stdout == COUNTED
