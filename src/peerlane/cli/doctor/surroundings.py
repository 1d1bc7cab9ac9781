"""What is around peerlane: versions, the directory where processes meet, UCX, other software, settings."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib.metadata
import importlib.util
import json
import mmap
import os
import platform
import socket
from collections.abc import Mapping
from pathlib import Path

import peerlane
from peerlane.backends.virtual.node import schedule
from peerlane.backends.virtual.node.census import node_names, take_census
from peerlane.backends.virtual.node.node_file import SUFFIX
from peerlane.cli.doctor.finding import ABSENT, LIMITED, MISSING, Finding, about
from peerlane.cli.doctor.system import text_of
from peerlane.cli.node_options import node_spec_from
from peerlane.dialects import manifest_of, registered
from peerlane.errors import Error
from peerlane.support.runtime_directory import runtime_directory
from peerlane.testing.procs import Completed, run_python

_PREFIX = "PEERLANE_"
#: Beside those of dialects: the module, and the package that has its version.
_PACKAGES = {"torch": "torch", "torch_npu": "torch-npu", "cupy": "cupy"}
_DEVICES = ("kfd", "davinci*", "nvidia[0-9]*", "infiniband/uverbs*")
_EXTRAS = (
    ("ml_dtypes", 'names of types such as Buffer.view("bfloat16")', "pip install ml_dtypes"),
    ("matplotlib", "`--plot`", "pip install 'peerlane[bench]'"),
    ("pytest", "the pytest plugin", "pip install pytest"),
)
_SHOWN = ("UCX_TLS", "UCX_NET_DEVICES")
_NAMED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "PYTHONPATH", "LD_PRELOAD")
_WITHHELD = ("SECRET", "TOKEN", "PASSWORD", "RENDEZVOUS")
_SECONDS = 30.0
_FAILS = "every command and program, until it is mended"


def versions() -> list[Finding]:
    """Return the versions of peerlane and of what it runs on."""
    return [
        Finding("peerlane", peerlane.__version__),
        Finding("Python", f"{platform.python_implementation()} {platform.python_version()}"),
        _installed("numpy", "arrays, and with them most of peerlane"),
        _installed("rich", "the tables of commands"),
        Finding("C library", " ".join(platform.libc_ver()) or "not glibc"),
        Finding("kernel", f"{platform.system()} {platform.release()}, {platform.machine()}"),
        Finding("runs in", _inside()),
    ]


def _installed(package: str, lost: str) -> Finding:
    version = _version(package)
    if version:
        return Finding(package, version)
    return Finding(package, "not installed", MISSING, lost, f"pip install {package}")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _inside(root: Path = Path("/"), environ: Mapping[str, str] = os.environ) -> str:
    """Return whether this is WSL or a container, as far as it can be seen."""
    kinds = []
    if "microsoft" in text_of(root / "proc/sys/kernel/osrelease").lower():
        kinds.append("WSL")
    groups = text_of(root / "proc/1/cgroup") + text_of(root / "proc/self/cgroup")
    marks = ("docker", "kubepods", "containerd", "libpod", "lxc")
    if (
        environ.get("container")
        or any((root / name).exists() for name in (".dockerenv", "run/.containerenv"))
        or any(mark in groups for mark in marks)
    ):
        kinds.append("a container")
    return " and ".join(kinds) or "no container that can be seen, and not WSL"


def meeting() -> list[Finding]:
    """Return what there is of the directory where processes meet, of settings, and of nodes."""
    try:
        directory = runtime_directory()
    except Error as error:
        # The texts of these errors end with what to do.
        return [Finding("runtime directory", str(error), MISSING, _FAILS), *_settings()]
    return [_directory(directory), *_settings(), _leftovers(directory)]


def _directory(directory: Path) -> Finding:
    what, text = "runtime directory", f"{directory} ({_file_system(directory)})"
    try:
        _try_files(directory)
    except OSError as error:
        remedy = "set PEERLANE_RUNTIME_DIR to a directory of a local file system with room"
        return Finding(what, f"{text}: refused: {error.strerror or error}", MISSING, _FAILS, remedy)
    free = os.statvfs(directory)
    return Finding(what, f"{text}, {about(free.f_bavail * free.f_frsize)} free; locks, maps, serves")


def _try_files(directory: Path) -> None:
    """Do what nodes do in their directory: reserve room in a file, lock it, map it shared, and bind a socket."""
    path = directory / f"doctor-{os.getpid()}"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, mmap.PAGESIZE)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mmap.mmap(fd, mmap.PAGESIZE).close()
        finally:
            os.close(fd)
            path.unlink()
        opened = os.open(directory, os.O_PATH | os.O_CLOEXEC)  # a path may be too long for a socket
        try:
            with socket.socket(socket.AF_UNIX) as served:
                served.bind(f"/proc/self/fd/{opened}/{path.name}")
        finally:
            os.close(opened)
    finally:
        path.unlink(missing_ok=True)


def _file_system(directory: Path) -> str:
    """Return the type of the file system that a directory is on."""
    best, kind = -1, "unknown file system"
    for line in text_of(Path("/proc/self/mountinfo")).splitlines():
        before, _, after = line.partition(" - ")
        mounted = Path(before.split()[4].encode().decode("unicode_escape"))
        if directory.is_relative_to(mounted) and len(mounted.parts) >= best:
            best, kind = len(mounted.parts), after.split()[0]
    return kind


def _settings() -> list[Finding]:
    """Return the variables that are set, and those that are refused."""
    findings = []
    for name, check in (("PEERLANE_NODE", _check_node), ("PEERLANE_SCHEDULE", _check_schedule)):
        try:
            check()
        except Error as error:
            findings.append(Finding(name, str(error), MISSING, _FAILS, f"unset {name}, or mend it"))
    vendors = {name for each in registered() for name in manifest_of(each).variables}
    ours = {name for name in os.environ if name in vendors or _is_ours(name)}
    shown = [_setting(name, os.environ[name]) for name in sorted(ours)]
    return [*findings, Finding("variables set", ", ".join(shown) or "none of peerlane's")]


def _check_node() -> None:
    node_spec_from(argparse.Namespace(node=None, devices=None, switch=None, profile=None))


def _check_schedule() -> None:
    if os.environ.get(schedule.VARIABLE):
        schedule.parse(os.environ[schedule.VARIABLE], schedule.VARIABLE)


def _is_ours(name: str) -> bool:
    return name.startswith(_PREFIX) or name in _SHOWN or name in _NAMED


def _setting(name: str, value: str) -> str:
    if name in _NAMED or any(word in name for word in _WITHHELD):
        return f"{name} (not shown)"
    return f"{name}={value}"


def _leftovers(directory: Path) -> Finding:
    censuses = [take_census(directory, name) for name in node_names(directory)]
    used = [census for census in censuses if census.is_used]
    dead = [census for census in censuses if census not in used and census.holders]
    problems = [f"{census.name}{SUFFIX} {census.problem}" for census in censuses if census.problem]
    idle = len(censuses) - len(used) - len(dead) - len(problems)
    words = f"{len(used)} in use, {idle} idle"
    if dead:
        words += f", {len(dead)} with places of ended processes, which the next process clears"
    if problems:
        remedy = "`peerlane ps` says more; delete the files of nodes in which no process is"
        lost = "the nodes of these files"
        return Finding("nodes", f"{words}; {'; '.join(problems)}", LIMITED, lost, remedy)
    return Finding("nodes", words)


def other_machines() -> list[Finding]:
    """Start the engine for channels to other machines in a process of its own."""
    done = _run("ucx")
    if isinstance(done, str) or done.returncode or not done.stdout.startswith("{"):
        why = done if isinstance(done, str) else f"the process that loaded it ended with {done.returncode}"
        remedy = "another UCX, by PEERLANE_UCX=/path/to/libucp.so.0"
        return [Finding("UCX", why, LIMITED, "channels to other machines", remedy)]
    report = json.loads(done.stdout)
    rdma = Finding("RDMA devices", ", ".join(report["rdma"]) or "none")
    if report["engine"]:
        text = f"{report['engine']['version']} starts: {report['engine']['library']}"
        return [Finding("UCX", text), rdma]
    # The text says what was tried and what to install.
    state = ABSENT if report["reason"] == "no_engine" and not os.environ.get("PEERLANE_UCX") else LIMITED
    return [Finding("UCX", report["why"], state, "channels to other machines"), rdma]


def software() -> list[Finding]:
    """Return vendors' packages, real devices, and what optional parts of peerlane need."""
    there, absent = [], []
    packages = {
        module: package for each in registered() for module, package in manifest_of(each).packages.items()
    }
    for module, package in {**packages, **_PACKAGES}.items():
        if not _has(module):
            absent.append(module)
        else:
            there.append(f"{module} {_version(package) if package else ''}".strip())
    devices = sorted(str(path) for each in _DEVICES for path in Path("/dev").glob(each))
    findings = [
        Finding(
            "vendors' packages", f"{', '.join(there) or 'none'} (not there: {', '.join(absent) or 'none'})"
        ),
        Finding("real devices", f"{', '.join(devices)}; peerlane does not use them" if devices else "none"),
    ]
    for module, lost, remedy in _EXTRAS:
        if _has(module):
            findings.append(Finding(module, _version(module)))
        else:
            findings.append(Finding(module, "not installed", ABSENT, lost, remedy))
    return findings


def _has(module: str) -> bool:
    """Return whether a module can be imported; a vendor's module is not imported for that."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def self_test() -> list[Finding]:
    """Copy between two devices and share memory with another process, within a deadline."""
    node = f"doctor-{os.getpid()}"
    what = "copy and share"
    lost = "what peerlane is for: copies between devices, and memory that processes share"
    remedy = "mend what is missing above; else please report this text"
    try:
        done = _run("copy_and_share", f"name={node},devices=2")
    finally:
        with contextlib.suppress(Error):  # meeting() reports it
            (runtime_directory() / f"{node}{SUFFIX}").unlink(missing_ok=True)
    if isinstance(done, str):
        return [Finding(what, done, MISSING, lost, remedy)]
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        return [Finding(what, words[-1], MISSING, lost, remedy)]
    return [Finding(what, f"every byte is right, in two processes; {done.seconds:.1f} s")]


def _run(program: str, *words: str) -> Completed | str:
    """Run one of ``programs``; return its end, or a text if it did not end in time."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith(_PREFIX)}
    kept = ("PEERLANE_RUNTIME_DIR", "PEERLANE_UCX", "PEERLANE_INTERFACE")
    settings.update({name: os.environ[name] for name in kept if name in os.environ})
    try:
        return run_python(
            ["-m", "peerlane.cli.doctor.programs", program, *words], timeout=_SECONDS, env=settings
        )
    except AssertionError:
        return f"did not end within {_SECONDS:g} s, and was killed"
