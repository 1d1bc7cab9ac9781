"""The import hook in one process: a toy dialect, and toy vendors with and without devices."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from peerlane import dialects, errors
from peerlane.dialects import Dialect
from peerlane.dialects._shared import hook

pytestmark = pytest.mark.any_schedule

TOY = {"toy": "served_toy", "toy.rt": "served_toy.rt"}
PROBE = "import sys, toy; sys.exit(0 if toy.DEVICES else 1)"
VARIABLES = ("PEERLANE_DIALECTS", "PEERLANE_PROBED", "PYTHONPATH")


@pytest.fixture(autouse=True)
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Register a dialect ``toy``; return a folder on ``sys.path`` where a test puts the vendor's module."""
    served = tmp_path / "served" / "served_toy"
    served.mkdir(parents=True)
    (served / "__init__.py").write_text("from . import rt\n")
    (served / "rt.py").write_text("COPIED = 7\n\ndef memcpy(): return COPIED\n")
    (served / "_codes.py").write_text("")
    vendor = tmp_path / "vendor"
    vendor.mkdir()
    for variable in VARIABLES:
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    monkeypatch.setattr(sys, "path", [str(vendor), str(served.parent), *sys.path])
    monkeypatch.setattr(dialects, "_DIALECTS", dict(dialects._DIALECTS))
    dialects.register(Dialect("toy", TOY, PROBE))
    yield vendor
    for name in dialects.installed():
        dialects.uninstall(name)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("toy", "served_toy")]:
        del sys.modules[name]


def finders() -> int:
    return sum(isinstance(finder, hook.DialectFinder) for finder in sys.meta_path)


@pytest.mark.parametrize(
    "statement",
    ["import toy; rt = toy.rt", "import toy.rt as rt", "from toy import rt", "import toy.rt; rt = toy.rt"],
)
def test_install_every_import_form_gives_serving_module(statement: str) -> None:
    dialects.install("toy")
    names: dict[str, ModuleType] = {}
    exec(statement, names)
    assert names["rt"] is importlib.import_module("served_toy.rt")


def test_install_from_import_of_submodule_name_works() -> None:
    dialects.install("toy")
    names: dict[str, ModuleType] = {}
    exec("from toy.rt import memcpy", names)
    assert names["memcpy"] is importlib.import_module("served_toy.rt").memcpy


def test_install_serving_module_keeps_its_name_and_reloads() -> None:
    dialects.install("toy")
    module = importlib.import_module("toy.rt")
    assert module.__spec__ is not None
    assert (module.__name__, module.__spec__.name) == ("served_toy.rt", "served_toy.rt")
    module.COPIED = 0
    assert importlib.reload(module) is module
    assert sys.modules["toy.rt"] is sys.modules["served_toy.rt"] is module
    assert module.memcpy() == 7


def test_install_imports_nothing_before_the_program_does() -> None:
    dialects.install("toy")
    spec = importlib.util.find_spec("toy")
    assert spec is not None and spec.origin == "served_toy"
    assert not {"toy", "served_toy"} & sys.modules.keys()


def test_install_unknown_submodule_raises_module_not_found() -> None:
    dialects.install("toy")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'toy\.nonsense'"):
        importlib.import_module("toy.nonsense")
    assert importlib.util.find_spec("toy.nonsense") is None


def test_install_private_file_of_dialect_is_not_a_submodule() -> None:
    dialects.install("toy")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'toy\._codes'"):
        importlib.import_module("toy._codes")


def test_install_several_times_keeps_one_finder_in_first_place() -> None:
    dialects.install("toy")
    dialects.install("toy")
    dialects.install("acl")
    assert isinstance(sys.meta_path[0], hook.DialectFinder)
    assert finders() == 1
    assert dialects.installed() == ("toy", "acl")


def test_install_sets_environment_of_children_and_uninstall_restores_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "here::there:")
    dialects.install("toy")
    dialects.install("acl")
    site, _, rest = os.environ["PYTHONPATH"].partition(os.pathsep)
    assert (Path(site) / "sitecustomize.py").is_file()
    assert rest == "here::there:"
    assert os.environ["PEERLANE_DIALECTS"] == "toy,acl"
    dialects.uninstall("toy")
    assert os.environ["PEERLANE_DIALECTS"] == "acl"
    dialects.uninstall("acl")
    assert os.environ["PYTHONPATH"] == "here::there:"
    assert "PEERLANE_DIALECTS" not in os.environ


def test_uninstall_removes_finder_modules_and_variables() -> None:
    dialects.install("toy")
    module = importlib.import_module("toy.rt")
    dialects.uninstall("toy")
    dialects.uninstall("toy")
    assert finders() == 0
    assert not {"toy", "toy.rt", *VARIABLES} & {*sys.modules, *os.environ}
    assert module.memcpy() == 7
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("toy")


def test_begin_anew_resets_only_imported_dialect_with_state() -> None:
    dialects.register(
        Dialect("tidy", {"tidy": "served_toy.rt"}, PROBE, "served_toy.rt:memcpy.__globals__.clear")
    )
    dialects.begin_anew("toy")  # has no state
    dialects.begin_anew("tidy")  # was not imported
    assert "served_toy" not in sys.modules
    memcpy = importlib.import_module("served_toy.rt").memcpy
    dialects.begin_anew("tidy")
    with pytest.raises(NameError):
        memcpy()


def test_install_other_module_of_that_name_imported_raises_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "toy.rt", ModuleType("mock"))
    with pytest.raises(errors.Busy, match=r"'toy\.rt' is imported already"):
        dialects.install("toy")
    assert dialects.installed() == () and finders() == 0


@pytest.mark.parametrize("call", [dialects.install, dialects.uninstall, dialects.begin_anew])
def test_dialect_calls_unknown_name_raise_and_list_known_names(call: object) -> None:
    with pytest.raises(errors.InvalidValue, match=r"no dialect 'cuda'; valid are .*toy"):
        call("cuda")  # type: ignore[operator]


def test_register_name_of_other_dialect_raises_invalid_value() -> None:
    dialects.register(Dialect("toy", dict(TOY), PROBE))
    with pytest.raises(errors.InvalidValue, match="'toy' is registered already"):
        dialects.register(Dialect("toy", TOY, "another probe"))


def test_hook_modules_list_every_shipped_dialect() -> None:
    shipped = {name: dialect.modules for name, dialect in dialects._DIALECTS.items() if name != "toy"}
    assert shipped == hook.MODULES


def test_inherit_unknown_dialect_prints_valid_names(capfd: pytest.CaptureFixture[str]) -> None:
    hook.inherit(["toy"], None)
    assert "names 'toy', valid here are acl" in capfd.readouterr().err
    assert dialects.installed() == ()


def test_install_vendor_without_device_is_shadowed(toy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (toy / "toy.py").write_text("DEVICES = 0\n")
    dialects.install("toy")
    assert importlib.import_module("toy.rt").memcpy() == 7
    assert capfd.readouterr().err == ""


def test_install_vendor_with_device_raises_unless_shadow_real(toy: Path) -> None:
    (toy / "toy.py").write_text("DEVICES = 1\n")
    with pytest.raises(errors.Unsupported, match=r"toy\.py\) is there and finds a device.*--shadow-real"):
        dialects.install("toy")
    assert dialects.installed() == () and finders() == 0
    dialects.install("toy", shadow_real=True)
    assert dialects.installed() == ("toy",)


@pytest.mark.parametrize(
    ("vendor", "seconds", "fate"),
    [
        ("import signal; signal.pause()", 1.0, "gave no answer in 1 s"),
        ("import os; os.abort()", 50.0, "was killed by signal 6"),
    ],
)
def test_install_vendor_hangs_or_crashes_counts_as_no_device(
    toy: Path,
    vendor: str,
    seconds: float,
    fate: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(dialects, "PROBE_SECONDS", seconds)
    (toy / "toy.py").write_text(vendor)
    dialects.install("toy")
    assert dialects.installed() == ("toy",)
    assert f"the vendor's own 'toy' {fate}" in capfd.readouterr().err


def test_install_twice_probes_once_and_stores_answer(toy: Path) -> None:
    (toy / "toy.py").write_text(f"open({str(toy / 'runs')!r}, 'a').write('x'); DEVICES = 0\n")
    for _ in range(2):
        dialects.install("toy")
        dialects.uninstall("toy")
    assert (toy / "runs").read_text() == "x"
    assert os.environ["PEERLANE_PROBED"] == "toy=none"


def test_install_inherited_probe_answer_is_used(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (toy / "toy.py").write_text("DEVICES = 0\n")
    monkeypatch.setenv("PEERLANE_PROBED", "acl=none,toy=device")
    with pytest.raises(errors.Unsupported):
        dialects.install("toy")
