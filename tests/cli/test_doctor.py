"""``peerlane doctor``: a real run, absences that tests inject, and what its text must not have."""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import resource
import select
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from helpers.peers import Peer, peer
from helpers.prepared import run_python
from peerlane import cli
from peerlane.cli import doctor
from peerlane.cli.doctor import surroundings, system
from peerlane.cli.doctor.finding import ABSENT, FINE, LIMITED, MISSING, Finding, about
from peerlane.cli.doctor.redaction import Redaction
from peerlane.testing.procs import Completed

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]

SECONDS = 120.0


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("PEERLANE_NODE", "PEERLANE_SCHEDULE", "PEERLANE_UCX", "PEERLANE_SECRET"):
        monkeypatch.delenv(name, raising=False)
    directory = tmp_path / "runtime"
    monkeypatch.setenv("PEERLANE_RUNTIME_DIR", str(directory))
    return directory


def _doctor(*words: str, env: dict[str, str] | None = None, code: int = 0) -> str:
    done = run_python(
        ["-m", "peerlane", "doctor", *words], timeout=SECONDS, env={**os.environ, **(env or {})}
    )
    assert (done.returncode, done.stderr) == (code, "")
    return done.stdout


def _by_name(text: str) -> dict[str, dict[str, str]]:
    return {each["what"]: each for outcome in json.loads(text)["sections"].values() for each in outcome}


def _refuse(*_: object, **__: object) -> NoReturn:
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def test_doctor_finds_all_that_is_needed_in_80_columns(directory: Path) -> None:
    text = _doctor()
    assert "ok  memfd_create, sealed    works" in text
    assert "every byte is right, in two processes" in text
    assert text.endswith("All that peerlane needs is there.\n")
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert list(directory.iterdir()) == []  # neither the self-test nor the tries leave a file


def test_doctor_json_has_what_the_text_has(directory: Path) -> None:
    report = json.loads(_doctor("--json"))
    assert report["is_usable"] is True
    for name, outcome in report["sections"].items():
        assert outcome, name
        for each in outcome:
            assert set(each) == {"what", "found", "state", "lost", "remedy"}
            assert each["found"] and each["state"] in (FINE, ABSENT, LIMITED, MISSING)
            assert each["state"] == FINE or each["lost"]


@pytest.mark.parametrize("is_coloured", [True, False])
def test_doctor_on_terminal_has_colours_unless_no_color(
    is_coloured: bool, directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(
        doctor, "examine", lambda: {"Kernel": [Finding("a thing", "gone", MISSING, "x", "y")]}
    )
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not is_coloured:
        monkeypatch.setenv("NO_COLOR", "1")
    assert cli.main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert ("\x1b[1;31m" in text) is is_coloured
    assert "Missing: a thing." in text


def _libc_that_refuses() -> Any:
    def call(*_: object) -> int:
        ctypes.set_errno(errno.EPERM)
        return -1

    class Refusing:
        def __getattr__(self, _: str) -> Callable[..., int]:
            return call

    return Refusing()


class _SocketWithoutOptions(socket.socket):
    getsockopt = _refuse  # type: ignore[assignment]


def _pair_without_options(*words: Any) -> tuple[socket.socket, socket.socket]:
    return tuple(_SocketWithoutOptions(fileno=each.detach()) for each in _PAIR(*words))  # type: ignore[return-value]


_PAIR = socket.socketpair

ABSENCES = {
    "memfd_create, sealed": (os, "memfd_create", _refuse, MISSING),
    "/proc/self/fd": (os, "open", _refuse, MISSING),
    "pidfd_open": (os, "pidfd_open", _refuse, MISSING),
    "eventfd, epoll": (select, "epoll", _refuse, MISSING),
    "futex, shared": (system, "_libc", _libc_that_refuses(), MISSING),
    "descriptors by socket": (socket, "send_fds", _refuse, MISSING),
    "SO_PEERPIDFD": (socket, "socketpair", _pair_without_options, ABSENT),
    "process_vm_readv": (system, "run_python", lambda *_, **__: Completed(0, "1\n", "", 0.1), LIMITED),
    "fallocate, punching": (system, "_libc", _libc_that_refuses(), LIMITED),
    "child subreaper": (system, "_libc", _libc_that_refuses(), LIMITED),
    "/proc/self/task": (Path, "read_bytes", _refuse, LIMITED),
    "/proc children": (Path, "read_bytes", _refuse, ABSENT),
}


@pytest.mark.parametrize("what", ABSENCES)
def test_kernel_call_that_is_refused_is_named_with_what_is_lost(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, name, instead, state = ABSENCES[what]
    (call,) = (each for each in system._calls() if each.what == what)
    assert system._tried(call).state == FINE
    monkeypatch.setattr(owner, name, instead)
    outcome = system._tried(call)
    monkeypatch.undo()
    assert (outcome.state, outcome.found) == (state, "refused: Operation not permitted")
    assert outcome.lost and (outcome.remedy or state == ABSENT)


def test_kernel_calls_each_have_a_test_of_their_absence() -> None:
    assert {call.what for call in system._calls()} == set(ABSENCES)


@pytest.mark.parametrize(("most", "state"), [(1 << 45, FINE), (32 << 30, LIMITED), (1 << 20, MISSING)])
def test_limited_address_space_is_reported_with_its_size(
    most: int, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limited(fd: int, size: int, *words: int) -> Any:
        return mapped(fd, mmap.PAGESIZE, *words) if size <= most else _refuse()

    mapped = mmap.mmap
    monkeypatch.setattr(mmap, "mmap", limited)
    outcome = system._address_space()
    assert outcome.state == state and bool(outcome.lost) is (state != FINE)
    assert ("refused" if state == MISSING else f"twice {about(most)} can be reserved") in outcome.found


def test_read_of_other_process_that_hangs_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object, **__: object) -> NoReturn:
        raise AssertionError("did not end")

    monkeypatch.setattr(system, "run_python", hang)
    monkeypatch.setattr(surroundings, "run_python", hang)
    outcome = {each.what: each for each in system.kernel()}
    assert outcome["process_vm_readv"].found == "refused: Connection timed out"
    (test,) = surroundings.self_test()
    assert (test.state, test.found) == (MISSING, "did not end within 30 s, and was killed")
    (engine,) = surroundings.other_machines()
    assert (engine.state, engine.found) == (LIMITED, "did not end within 30 s, and was killed")


def test_limit_of_descriptors_of_this_process_is_read(directory: Path) -> None:
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (200, 300)); "
        "from peerlane.cli import main; sys.exit(main(['doctor', '--json']))"
    )
    done = run_python(["-c", program], timeout=SECONDS)
    outcome = _by_name(done.stdout)["open files"]
    assert (done.returncode, outcome["state"]) == (0, LIMITED)
    assert outcome["found"] == "200; peerlane raises it to 300 when it needs more"
    assert "more than about 300 allocations" in outcome["lost"]


TEXTS = {
    "/proc/sys/vm/max_map_count": "1000",
    "/proc/sys/vm/overcommit_memory": "2",
    "/proc/meminfo": "MemTotal: 1000000 kB\nMemAvailable: 1000 kB",
    "/proc/self/cgroup": "",
    "/sys/fs/cgroup/cpu.max": "50000 100000",
}


def test_limits_that_are_low_are_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "text_of", lambda path: TEXTS[str(path)])
    monkeypatch.setattr(os, "statvfs", _refuse)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    outcome = {each.what: each for each in system.limits()}
    assert {name for name, each in outcome.items() if each.state == LIMITED} == {
        "max_map_count",
        "memory",
        "overcommit_memory",
        "/dev/shm",
    }
    assert outcome["memory"].found == "1000 KiB of 976.6 MiB available"
    assert outcome["open files"].found == "unlimited"
    assert outcome["processors"].found.endswith("the control group has the time of 0.5")
    assert all(each.lost and each.remedy for each in outcome.values() if each.state == LIMITED)


@pytest.mark.parametrize(
    ("own", "file", "limit"),
    [
        ("0::/a/b", "a/memory.max", 1000),
        ("0::/a/b", "a/b/memory.max", 500),
        ("4:cpu,memory:/a\n0::/", "memory/a/memory.limit_in_bytes", 700),
        ("0::/../elsewhere", "memory.max", 900),
    ],
)
def test_group_limit_is_the_least_of_its_groups(own: str, file: str, limit: int, tmp_path: Path) -> None:
    assert system.group_limit(tmp_path, own) is None
    for name in ("a/memory.max", "a/b/memory.max", "memory/a/memory.limit_in_bytes", "memory.max"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("9223372036854771712\n" if "limit_in_bytes" in name else "max\n")  # none
    (tmp_path / file).write_text(f"{limit}\n")
    assert system.group_limit(tmp_path, own) == limit


def test_runtime_directory_open_to_others_is_missing_and_exits_1(directory: Path) -> None:
    directory.mkdir(mode=0o755)
    directory.chmod(0o755)
    text = _doctor(code=1)
    flat = " ".join(text.split())
    assert "XX runtime directory the runtime directory" in flat and "run: chmod 700" in flat
    assert "Missing: runtime directory, copy and share. peerlane does not work here" in flat


def test_runtime_directory_without_locks_or_sockets_is_missing(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner, name in ((surroundings.fcntl, "flock"), (surroundings.socket, "socket")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, _refuse)
            outcome = surroundings.meeting()[0]
        assert outcome.state == MISSING and "refused: Operation not permitted" in outcome.found
        assert "PEERLANE_RUNTIME_DIR" in outcome.remedy
    assert list(directory.iterdir()) == []
    assert surroundings.meeting()[0].state == FINE


@pytest.mark.parametrize(
    ("name", "value"),
    [("PEERLANE_NODE", "devices=none"), ("PEERLANE_NODE", "backend=nothing"), ("PEERLANE_SCHEDULE", "lasy")],
)
def test_refused_setting_is_missing(
    name: str, value: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    outcome = {each.what: each for each in surroundings.meeting()}
    assert outcome[name].state == MISSING and value.rpartition("=")[2] in outcome[name].found
    assert f"{name}={value}" in outcome["variables set"].found


def test_secrets_home_user_and_host_are_not_shown(directory: Path, tmp_path: Path) -> None:
    home = tmp_path / "home" / "alice"
    secrets = {
        "PEERLANE_SECRET": "hunter2",
        "PEERLANE_RENDEZVOUS": "tcp://of-mine:1",
        "MASTER_ADDR": "of-mine",
    }
    environment = {"HOME": str(home), "USER": "alice", "PEERLANE_RUNTIME_DIR": str(home / "run" / "alice")}
    for words in ((), ("--json",)):
        text = _doctor(*words, env={**secrets, **environment})
        for hidden in ("hunter2", "of-mine", "alice", str(home), f" {socket.gethostname()} "):
            assert hidden not in text
        assert "~/run/<user>" in text
        for name in secrets:
            assert f"{name} (not shown)" in " ".join(text.split())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/alice/venv/lib and /home/alice", "~/venv/lib and ~"),
        ("/data/alice/venv, of alice", "/data/<user>/venv, of <user>"),
        ("/home/alicent and malice", "/home/alicent and malice"),
        ("'/home/alice' (ext4)", "'~' (ext4)"),
    ],
)
def test_redaction_replaces_whole_names_only(text: str, shown: str) -> None:
    redaction = Redaction({"HOME": "/home/alice", "USER": "alice"})
    finding = redaction.of(Finding("what", text, lost=text, remedy=text))
    assert (finding.found, finding.lost, finding.remedy) == (shown, shown, shown)


def test_person_who_runs_doctor_by_sudo_is_not_named() -> None:
    redaction = Redaction({"HOME": "/root", "USER": "root", "SUDO_USER": "alice"})
    outcome = redaction.of(Finding("what", "/home/alice/venv/libucp.so.0, of alice")).found
    assert outcome == "~/venv/libucp.so.0, of <user>"


def test_ucx_that_cannot_be_loaded_is_reported_with_the_cause(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_UCX", "/nowhere/libucp.so.0")
    outcome = surroundings.other_machines()[0]
    assert (outcome.what, outcome.state) == ("UCX", LIMITED)
    assert "/nowhere/libucp.so.0" in outcome.found and "pip install peerlane[ucx]" in outcome.found


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        (Completed(-11, "", "", 0.1), LIMITED, "ended with -11"),
        (
            Completed(0, '{"engine": null, "why": "needs UCX", "reason": "no_engine", "rdma": []}', "", 0.1),
            ABSENT,
            "needs UCX",
        ),
        (
            Completed(0, '{"engine": {"version": "1.22.0", "library": "/l"}, "rdma": ["mlx5_0:1"]}', "", 0.1),
            FINE,
            "1.22.0 starts: /l",
        ),
    ],
)
def test_ucx_that_crashes_is_absent_or_starts_is_reported(
    answer: Completed, state: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PEERLANE_UCX", raising=False)
    monkeypatch.setattr(surroundings, "run_python", lambda *_, **__: answer)
    outcome = surroundings.other_machines()[0]
    assert outcome.state == state and words in outcome.found


def test_extra_that_is_not_installed_is_reported_with_what_does_not_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(surroundings, "_has", lambda module: module == "acl")
    outcome = {each.what: each for each in surroundings.software()}
    assert outcome["vendors' packages"].found.startswith(
        "acl (not there: cuda.core, cuda.bindings, pynvml, cupy, numba_cuda, nccl, hccl, hcomm, hip"
    )
    for name in ("ml_dtypes", "matplotlib", "pytest"):
        assert outcome[name].state == ABSENT and outcome[name].lost and outcome[name].remedy


def test_needed_package_that_is_not_installed_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "_version", lambda package: "")
    outcome = {each.what: each for each in surroundings.versions()}
    assert outcome["numpy"].state == MISSING and outcome["numpy"].remedy == "pip install numpy"


def test_wsl_and_container_are_named(tmp_path: Path) -> None:
    assert surroundings._inside(tmp_path, {}) == "no container that can be seen, and not WSL"
    release = tmp_path / "proc/sys/kernel/osrelease"
    release.parent.mkdir(parents=True)
    release.write_text("6.6.0-microsoft-standard-WSL2")
    (tmp_path / ".dockerenv").touch()
    assert surroundings._inside(tmp_path, {}) == "WSL and a container"


@pytest.fixture
def other(directory: Path) -> Iterator[Peer]:
    with peer("name=left,devices=2") as outcome:
        yield outcome


def test_nodes_in_use_left_by_the_dead_and_broken_are_reported(other: Peer, directory: Path) -> None:
    def nodes() -> Finding:
        return {each.what: each for each in surroundings.meeting()}["nodes"]

    assert nodes().found == "1 in use, 0 idle"
    other.kill()
    assert (
        nodes().found == "0 in use, 0 idle, 1 with places of ended processes, which the next process clears"
    )
    assert nodes().state == FINE
    (directory / "broken.node").write_bytes(b"")
    assert nodes().state == LIMITED and "broken.node has no header" in nodes().found


def test_self_test_that_fails_shows_the_last_line_of_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Completed(1, "", "Traceback\n  line\nthe other process's bytes did not arrive\n", 0.1)
    monkeypatch.setattr(surroundings, "run_python", lambda *_, **__: failed)
    (outcome,) = surroundings.self_test()
    assert (outcome.state, outcome.found) == (MISSING, "the other process's bytes did not arrive")


def test_about_rounds_to_a_tenth_of_a_unit() -> None:
    assert [about(n) for n in (0, 5, 2048, 1500 << 20, 3 << 40)] == [
        "0 B",
        "5 B",
        "2 KiB",
        "1.5 GiB",
        "3 TiB",
    ]


def test_look_that_fails_leaves_the_other_sections(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> NoReturn:
        raise PermissionError("of a test")

    sections = dict(doctor._SECTIONS)
    name = next(iter(sections))
    monkeypatch.setattr(doctor, "_SECTIONS", sections | {name: fails})
    outcome = doctor.examine()
    assert [each.state for each in outcome[name]] == [MISSING]
    assert "the look failed: PermissionError: of a test" in outcome[name][0].found
    assert all(outcome[each] for each in sections)


def test_no_directory_for_temporary_files_is_reported_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> NoReturn:
        raise FileNotFoundError("no usable temporary directory")

    for name in ("PEERLANE_RUNTIME_DIR", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tempfile.gettempdir", none)
    first = surroundings.meeting()[0]
    assert (first.what, first.state) == ("runtime directory", MISSING)
    assert "name an absolute path in PEERLANE_RUNTIME_DIR" in first.found
