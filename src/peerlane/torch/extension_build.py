"""Compile the extension once for each version of torch, Python, peerlane and the compiler, and load it."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import ModuleType

import torch

_NAME = "_peerlane_device"
_SOURCES = Path(__file__).with_name("extension")
_FLAGS = ("-O2", "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden", "-w")


class Unbuilt(RuntimeError):
    """The extension cannot be compiled here; the text says why, and what to do."""


def load(*, as_cuda: bool = False) -> ModuleType:
    """Return the extension, compiled now if it has not been; its device is ``peerlane``, or ``cuda``.

    Raises
    ------
    Unbuilt
        There is no compiler, no folder to write to, or compiling failed.
    """
    compiler = _compiler(as_cuda=as_cuda)
    path = _folder() / f"{_key(compiler)}.so"
    if not path.exists():
        _build(_command(compiler), path)
    spec = importlib.util.spec_from_file_location(_NAME, path, loader=ExtensionFileLoader(_NAME, str(path)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compiler(*, as_cuda: bool) -> list[str]:
    compiler = shlex.split(os.environ.get("CXX", "c++"))
    if not compiler or shutil.which(compiler[0]) is None:
        raise Unbuilt(
            "the torch device of peerlane is compiled on first use, and there is no C++ compiler "
            f"{' '.join(compiler)!r}: install g++ 11 or newer (Debian: apt-get install g++), or name one in CXX"
        )
    named = ["-DPEERLANE_AS_CUDA"] if as_cuda else []
    return [*compiler, *_FLAGS, *named, *shlex.split(os.environ.get("PEERLANE_TORCH_CXXFLAGS", ""))]


def _command(compiler: list[str]) -> list[str]:
    # Not from torch.utils.cpp_extension: where CUDA's compiler is installed its import asks for torch.cuda's devices,
    # which need the extension.
    of_torch = Path(torch.__file__).parent
    headers = of_torch / "include"
    folders = [headers, headers / "torch/csrc/api/include", sysconfig.get_paths()["include"]]
    return [
        *compiler,
        f"-DTORCH_EXTENSION_NAME={_NAME}",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(f"-isystem{folder}" for folder in folders),
        str(_SOURCES / "module.cpp"),
        f"-L{of_torch / 'lib'}",
        *("-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"),
    ]


def _key(compiler: list[str]) -> str:
    version = subprocess.run([compiler[0], "--version"], capture_output=True, text=True, check=False).stdout
    digest = hashlib.sha256()
    for part in (torch.__version__, sys.version, version, *compiler):
        digest.update(part.encode() + b"\0")
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.read_bytes())
    return f"torch-{torch.__version__}-{digest.hexdigest()[:16]}"


def _folder() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = root / "peerlane"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unbuilt(
            f"the torch device of peerlane is compiled into {folder}, which cannot be written: {error.strerror}; "
            "set XDG_CACHE_HOME to another folder"
        ) from error
    return folder


def _build(command: list[str], path: Path) -> None:
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process compiles, and the others wait
        if path.exists():
            return
        print(
            f"peerlane: compiling the torch device for torch {torch.__version__}; this takes about a minute, once",
            file=sys.stderr,
            flush=True,
        )
        started = time.monotonic()
        unfinished = path.with_suffix(f".{os.getpid()}")
        done = subprocess.run([*command, "-o", str(unfinished)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            unfinished.unlink(missing_ok=True)
            errors = [line for line in done.stderr.splitlines() if "error" in line][:3]
            raise Unbuilt(
                f"the torch device of peerlane could not be compiled by {command[0]} for torch {torch.__version__}; "
                "it needs a compiler of C++20, as g++ 11. Its first errors: "
                f"{'; '.join(errors) or done.stderr[-500:]}"
            )
        unfinished.replace(path)
        print(f"peerlane: compiled in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
