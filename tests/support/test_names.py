"""Errors for names and options that do not exist, and the version."""

from __future__ import annotations

import copy
import importlib.metadata
import pickle
import pydoc

import pytest

import peerlane
from peerlane import cli
from peerlane.dialects.hip import hip
from peerlane.testing.procs import run_python

pytestmark = pytest.mark.any_schedule


def test_version_is_that_of_package_and_looked_up_late() -> None:
    assert peerlane.__version__ == importlib.metadata.version("peerlane")
    code = "import sys, peerlane; print('importlib.metadata' in sys.modules, peerlane.__version__)"
    slow, version = run_python(["-c", code], timeout=40).stdout.split()
    bare = run_python(["-c", "import sys, numpy; print('importlib.metadata' in sys.modules)"], timeout=40)
    assert (slow, version) == (
        bare.stdout.strip(),
        peerlane.__version__,
    )  # importing peerlane does not look it up


def test_command_line_version_prints_package_and_python(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"peerlane {peerlane.__version__} (Python 3.")


@pytest.mark.parametrize("command", ["topo", "ps", "bench", "run", "launch"])
def test_command_with_unknown_option_shows_its_usage(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {"bench": ["call"], "launch": ["-n", "1"]}.get(command, [])
    with pytest.raises(SystemExit) as ended:
        cli.main([command, *words, "--bogus"])
    errors = capsys.readouterr().err
    assert ended.value.code == 2
    assert errors.startswith(f"usage: peerlane {command} ")
    assert f"peerlane {command}: error: " in errors


@pytest.mark.parametrize("command", ["topo", "ps"])
def test_command_with_unknown_option_names_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main([command, "--bogus"])
    assert "error: unrecognized arguments: --bogus" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "name", "meant"),
    [
        (peerlane, "coppy", "copy"),
        (peerlane, "Devices", "devices"),
        (peerlane, "batch_copy", "copy_batch"),
        (peerlane, "buffer_", "Buffer"),
        (hip, "hipMemCpy", "hipMemcpy"),
        (hip, "hipmalloc", "hipMalloc"),
        (hip, "hipMemcpyPear", "hipMemcpyPeer"),
    ],
)
def test_missing_name_error_suggests_close_names(module: object, name: str, meant: str) -> None:
    assert not hasattr(module, name)
    with pytest.raises(AttributeError) as refused:
        getattr(module, name)
    assert f"has no attribute {name!r}; close names: " in str(refused.value)
    assert meant in str(refused.value).split(": ")[1].split(", ")
    assert refused.value.name == name


def test_missing_name_like_no_other_error_suggests_nothing() -> None:
    for name in ("xyzzy_plugh_0", "_private", "__path_of_nothing__", "x" * 1000):
        with pytest.raises(AttributeError) as refused:
            getattr(peerlane, name)
        assert str(refused.value) == f"module 'peerlane' has no attribute {name!r}"
    with pytest.raises(ImportError):
        exec("from peerlane import memcpy")
    assert getattr(peerlane, "memcpy", None) is None


def test_star_import_pickle_and_deepcopy_of_package_work() -> None:
    names: dict[str, object] = {}
    exec("from peerlane import *", names)
    assert set(peerlane.__all__) <= set(names) and "__version__" not in names
    assert pickle.loads(pickle.dumps(peerlane.Fault.BUSY)) is peerlane.Fault.BUSY
    assert copy.deepcopy(peerlane.InvalidValue) is peerlane.InvalidValue


def test_help_of_package_hides_pytest_marker() -> None:
    shown = pydoc.render_doc(peerlane)
    assert "PYTEST_DONT_REWRITE" not in shown
    assert "virtual devices that need no hardware" in shown
    assert "PYTEST_DONT_REWRITE" in (peerlane.__doc__ or "")  # pytest looks for it here
