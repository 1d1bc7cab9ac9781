"""Versions and builds of torch that peerlane serves, and the one sentence for all others."""

from __future__ import annotations

from pathlib import Path

import pytest

from peerlane.testing.procs import run_python

pytestmark = pytest.mark.any_schedule
AS_CUDA = ["-m", "peerlane", "run", "--torch-cuda", "-c", "import torch"]
AS_NPU = ["-m", "peerlane", "run", "--torch-npu", "-c", "import torch"]


def _import_torch(folder: Path, words: list[str], version: str, *, has_cuda: bool = False) -> str:
    """Run a program that imports torch, which is a package with a version, and return the last line of the error."""
    package = folder / "torch"
    for module in ("cuda", "distributed"):
        (package / module).mkdir(parents=True)
        (package / module / "__init__.py").touch()
    (package / "_C.py").write_text("_cuda_getDeviceCount = None\n" if has_cuda else "")
    (package / "version.py").write_text(f"__version__ = {version!r}\n")
    (package / "__init__.py").write_text("import torch.cuda\n")
    done = run_python(words, timeout=100)
    assert done.returncode != 0
    return done.stderr.splitlines()[-1]


@pytest.fixture(autouse=True)
def _finds_torch_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.parametrize("version", ["2.11.0+cpu", "2.16.0", "2.16.0.dev20261130+cu132", "3.0.1"])
@pytest.mark.parametrize(
    ("words", "device", "valid"),
    [
        (["-c", "import peerlane.torch"], "peerlane", "2.12 to 2.15"),
        (AS_CUDA, "cuda", "2.13"),
        (AS_NPU, "npu", "2.12 to 2.15"),
    ],
    ids=["peerlane", "cuda", "npu"],
)
def test_version_that_was_never_run_is_refused_in_one_sentence(
    tmp_path: Path, words: list[str], device: str, valid: str, version: str
) -> None:
    assert _import_torch(tmp_path, words, version) == (
        f"ImportError: peerlane has no device {device!r} and no back-end of torch.distributed for torch {version}: "
        f"with this device it was run with torch {valid} alone. Install torch {valid}, or a newer peerlane"
    )


@pytest.mark.parametrize("version", ["2.13.0+cu130", "2.15.0+cu132", "2.16.0"])
def test_build_with_cuda_inside_is_refused_under_the_name_cuda(tmp_path: Path, version: str) -> None:
    assert _import_torch(tmp_path, AS_CUDA, version, has_cuda=True) == (
        f"RuntimeError: --torch-cuda needs torch's build for the processor, and torch {version} has CUDA itself: "
        "install torch 2.13 with +cpu (PyTorch's page 'Get started' has the command), or write the device peerlane "
        "into the program, which works in this build, too (import peerlane.torch)"
    )
