"""The runtime directory: where it lies, and that no other user can enter it."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from peerlane.errors import AccessDenied, Fault, InvalidValue
from peerlane.support.runtime_directory import runtime_directory

pytestmark = pytest.mark.any_schedule


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the temporary directory one of the test's own."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def denied(path: Path, *parts: str) -> None:
    with pytest.raises(AccessDenied) as caught:
        runtime_directory({"PEERLANE_RUNTIME_DIR": str(path)})
    assert caught.value.fault is Fault.BAD_CONFIG
    for part in (str(path), "PEERLANE_RUNTIME_DIR", *parts):
        assert part in str(caught.value)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_runtime_directory_takes_own_variable_first(tmp_path: Path) -> None:
    own = tmp_path / "deep" / "own"
    environ = {"PEERLANE_RUNTIME_DIR": str(own), "XDG_RUNTIME_DIR": str(tmp_path)}
    assert runtime_directory(environ) == own
    assert runtime_directory(environ) == own, "a second time it exists"
    assert mode(own) == 0o700


def test_runtime_directory_without_own_variable_is_in_session_directory(tmp_path: Path) -> None:
    path = runtime_directory({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert path == tmp_path / "peerlane"
    assert mode(path) == 0o700


@pytest.mark.parametrize("session", ["", "relative", "/nonexistent/session", "/dev/null", "/nul\0"])
def test_runtime_directory_without_usable_session_is_temporary(temporary: Path, session: str) -> None:
    path = runtime_directory({"XDG_RUNTIME_DIR": session})
    assert path == temporary / f"peerlane-{os.geteuid()}"
    assert mode(path) == 0o700


def test_runtime_directory_ignores_session_of_other_user(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(AccessDenied, match=f"peerlane-{other} belongs to uid"):
        runtime_directory({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert not (tmp_path / "peerlane").exists()
    assert (temporary / f"peerlane-{other}").exists()


def test_runtime_directory_reads_environment_when_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_RUNTIME_DIR", str(tmp_path / "own"))
    assert runtime_directory() == tmp_path / "own"


def test_runtime_directory_under_umask_zero_is_private(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        assert mode(runtime_directory({"PEERLANE_RUNTIME_DIR": str(tmp_path / "own")})) == 0o700
    finally:
        os.umask(old)


def test_runtime_directory_that_is_symlink_raises(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    denied(tmp_path / "link", "symbolic link", "remove")
    denied(tmp_path / "dangling", "symbolic link")
    assert not (tmp_path / "none").exists()


def test_runtime_directory_that_is_file_raises(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    denied(tmp_path / "file", "not a directory")


def test_runtime_directory_of_other_owner_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir(mode=0o700)
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    denied(tmp_path / "own", f"belongs to uid {uid}", f"this is uid {uid + 1}")


@pytest.mark.parametrize("bits", [0o710, 0o701, 0o750, 0o777])
def test_runtime_directory_open_to_others_raises_and_keeps_mode(tmp_path: Path, bits: int) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(bits)
    denied(tmp_path / "open", f"mode 0{bits:o}", f"chmod 700 {tmp_path / 'open'}")
    assert mode(tmp_path / "open") == bits


def test_runtime_directory_that_cannot_be_created_raises(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    denied(tmp_path / "file" / "below", "cannot be made (Not a directory)", "0700")
    denied(Path("/nul\0"), "cannot be made")


def test_runtime_directory_of_relative_path_raises() -> None:
    with pytest.raises(InvalidValue, match=r"'here' is relative.*absolute path") as caught:
        runtime_directory({"PEERLANE_RUNTIME_DIR": "here"})
    assert caught.value.fault is Fault.BAD_CONFIG
