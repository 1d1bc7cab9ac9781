"""The wheel and the sdist that `make wheel` makes hold everything, and the wheel works where no compiler is."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from helpers.documented import check, programs
from type_stubs import acl, hcomm, hip

pytestmark = [pytest.mark.any_schedule, pytest.mark.takes_long, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
MODULES = {f"peerlane/{name}{SUFFIX}" for name in ("_check", "_core")}
LIBRARIES = {
    *(f"lib{name}.so" for name in ("peerlane_c", "ascendcl", "acl_rt", "hcomm", "hccl")),
    *(f"lib{name}.so{number}" for name in ("amdhip64", "hiprtc") for number in ("", ".6", ".7")),
    *(f"lib{name}" for name in ("cuda.so", "cuda.so.1", "cudart.so", "cudart.so.12", "cudart.so.13")),
    *(f"libnvidia-ml.so{number}" for number in ("", ".1")),
    *(f"libnccl.so{number}" for number in ("", ".2")),
    *(f"pkgconfig/peerlane-{name}.pc" for name in ("acl", "hcomm", "hip")),
    *(f"preload/libpeerlane_{name}.so" for name in ("static_runtime", "threads")),
}
TABLES = {
    *(
        f"peerlane/tables/{header}.binding"
        for header in ("cuda", "cudart", "cudart12", "hcomm", "hip", "nccl", "nvml")
    ),
    *(
        f"peerlane/tables/{header}.declarations"
        for header in ("acl", "cuda", "cudart", "cudart12", "hcomm", "hip", "nccl", "nvml")
    ),
}
#: The pip of this environment, which installs into another one; so that one needs none.
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]


def run(words: Iterable[str], folder: Path = ROOT, **variables: str) -> str:
    done = subprocess.run(
        list(words),
        cwd=folder,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout + done.stderr


def tracked(*folders: str) -> set[str]:
    return set(run(["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders]).splitlines())


def files_of_wheel(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name and name[-1] != "/"}


def check_contents(wheel: Path, sdist: Path) -> None:
    sources = {name.removeprefix("src/") for name in tracked("src")}
    stubs = {**acl.stubs(), **hcomm.stubs(), **hip.stubs()}
    assert files_of_wheel(wheel) == sources | MODULES | TABLES | {*stubs} | {
        f"peerlane/lib/{name}" for name in LIBRARIES
    }
    with zipfile.ZipFile(wheel) as archive:
        assert [name for name, text in stubs.items() if archive.read(name).decode() != text] == []
        (named,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(named))
        assert {"numpy>=1.24", "rich>=13"} <= set(metadata.get_all("Requires-Dist", []))
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())
    with tarfile.open(sdist) as packed:
        top = sdist.name.removesuffix(".tar.gz")
        inside = {each.name.removeprefix(f"{top}/") for each in packed.getmembers() if each.isfile()}
    assert inside == tracked() | {"PKG-INFO"}
    assert wheel.stat().st_size < 4 << 20 and sdist.stat().st_size < 16 << 20


def environment_without_compiler(folder: Path, wheel: Path) -> dict[str, str]:
    """Install a wheel into a new environment; return the variables for programs there."""
    venv.create(folder, symlinks=True)
    run(
        [
            *PIP,
            "--python",
            str(folder / "bin" / "python"),
            "install",
            "--quiet",
            "--only-binary=:all:",
            str(wheel),
        ]
    )
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        "PATH": str(folder / "bin"),
    }


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="git does not say here which files there should be")
def test_wheel_is_audited_and_runs_the_readme_where_no_compiler_is(tmp_path: Path) -> None:
    dist = tmp_path / "dist"
    prefix = os.path.relpath(sys.prefix, ROOT)
    # Its own flags of make would be those of the make that runs the tests.
    run(["make", "wheel", f"VENV={prefix}", f"DIST={dist}"], MAKEFLAGS="")
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    check_contents(wheel, sdist)
    shown = " ".join(run([sys.executable, "-m", "auditwheel", "show", str(wheel)]).split())
    granted = re.search(r'consistent with the following platform tag: "(manylinux_\d+_\d+_\w+)"', shown)
    assert granted is not None and granted[1] in wheel.name, shown

    environment = environment_without_compiler(tmp_path / "venv", wheel)
    python = str(tmp_path / "venv" / "bin" / "python")
    folder = tmp_path / "empty"
    folder.mkdir()

    def run_in_folder(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(words),
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    lookup = "import shutil; print([shutil.which(name) for name in ('cc', 'c++', 'g++', 'clang++', 'cmake')])"
    assert run_in_folder(python, "-c", lookup).stdout == f"{[None] * 5}\n"
    where = run_in_folder(python, "-c", "import peerlane, peerlane._core; print(peerlane.__file__)").stdout
    assert Path(where).is_relative_to(tmp_path / "venv")
    version = wheel.name.split("-")[1]
    assert run_in_folder("peerlane", "--version").stdout.startswith(f"peerlane {version} (Python 3.")

    readme = programs((ROOT / "README.md").read_text())
    assert len(readme) >= 4
    for program in readme:
        (folder / program.name).write_text(program.code)
    for program in readme:
        check(run_in_folder(python, *program.words), program, program.prints, program.raises)
