"""Versions of torch that peerlane serves, and the one sentence for all others."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.torch_ranks import has_cuda
from peerlane.testing.procs import run_python

pytestmark = pytest.mark.any_schedule


def _make_torch(folder: Path, version: str) -> None:
    """Write a package that has torch's name and a version, and nothing that peerlane uses."""
    package = folder / "torch"
    for module in ("cuda", "distributed"):
        (package / module).mkdir(parents=True)
        (package / module / "__init__.py").touch()
    (package / "_C.py").touch()
    (package / "version.py").write_text(f"__version__ = {version!r}\n")
    (package / "__init__.py").write_text("from torch.version import __version__\nimport torch.cuda\n")


@pytest.mark.parametrize("version", ["2.11.0+cpu", "2.16.0", "2.16.0.dev20261130+cu132", "3.0.1"])
@pytest.mark.parametrize(
    "words",
    [
        ["-c", "import peerlane.torch"],
        ["-m", "peerlane", "run", "--torch-cuda", "-c", "import torch"],
        ["-m", "peerlane", "run", "--torch-npu", "-c", "import torch"],
    ],
    ids=["peerlane", "cuda", "npu"],
)
def test_version_that_was_never_run_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], version: str
) -> None:
    _make_torch(tmp_path, version)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = run_python(words, timeout=100)
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    assert last == (
        f"ImportError: peerlane has no device and no back-end for torch {version}: this peerlane was run with torch "
        "2.12 to 2.15 alone. Install one of these (pip install 'torch>=2.12,<2.16'), or a newer peerlane"
    )


@pytest.mark.skipif(not has_cuda(), reason="PyTorch is not there in a build that has CUDA itself")
@pytest.mark.parametrize("dialect", [[], ["--dialect", "cuda"]], ids=["alone", "with the dialect"])
def test_build_with_cuda_inside_is_refused_under_the_name_cuda(dialect: list[str]) -> None:
    words = ["-m", "peerlane", "run", "--torch-cuda", *dialect, "-c", "import torch"]
    done = run_python(words, timeout=100)
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "RuntimeError: --torch-cuda needs torch's build for the processor, and torch 2."
    ), last
    assert "has CUDA itself: install torch with +cpu" in last
    assert "or write the device peerlane into the program" in last
