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
from peerlane.dialects._shared import hook

pytestmark = pytest.mark.any_schedule

TOY = {"toy": "served_toy", "toy.rt": "served_toy.rt"}
PROBE = "import sys, toy; sys.exit(0 if toy.DEVICES else 1)"
VARIABLES = ("PEERLANE_DIALECTS", "PEERLANE_DIALECT_FOLDERS", "PEERLANE_PROBED", "PYTHONPATH")


def folder_of(parent: Path, name: str, **fields: object) -> Path:
    """Return a new folder with a manifest."""
    folder = parent / name
    folder.mkdir(parents=True)
    (folder / "manifest.py").write_text("".join(f"{each} = {value!r}\n" for each, value in fields.items()))
    return folder


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
    monkeypatch.setattr(dialects, "__path__", [*dialects.__path__])
    dialects.register(folder_of(tmp_path, "toy", MODULES=TOY, PROBE=PROBE))
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


def test_install_unknown_submodule_raises_import_error() -> None:
    dialects.install("toy")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'toy\.nonsense'"):
        importlib.import_module("toy.nonsense")
    assert importlib.util.find_spec("toy.nonsense") is None


def test_install_private_file_of_dialect_is_not_a_submodule() -> None:
    dialects.install("toy")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'toy\._codes'"):
        importlib.import_module("toy._codes")


def test_install_several_times_keeps_one_finder_at_index_0() -> None:
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
    assert not {"toy", "toy.rt", "PEERLANE_DIALECTS", "PYTHONPATH"} & {*sys.modules, *os.environ}
    assert module.memcpy() == 7
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("toy")


def test_begin_anew_resets_only_imported_dialect_with_state(tmp_path: Path) -> None:
    anew = "served_toy.rt:memcpy.__globals__.clear"
    dialects.register(folder_of(tmp_path, "tidy", MODULES={"tidy": "served_toy.rt"}, ANEW=anew))
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
    with pytest.raises(errors.InvalidValue, match=r"no dialect 'sycl'; valid are .*toy"):
        call("sycl")  # type: ignore[operator]


@pytest.mark.parametrize("name", ["toy", "acl"])
def test_register_name_of_other_dialect_raises_invalid_value(name: str, tmp_path: Path) -> None:
    dialects.register(tmp_path / "toy")
    before = os.environ["PEERLANE_DIALECT_FOLDERS"]
    with pytest.raises(errors.InvalidValue, match=f"'{name}' is registered already, of .*{name};"):
        dialects.register(folder_of(tmp_path / "other", name, MODULES={}))
    assert os.environ["PEERLANE_DIALECT_FOLDERS"] == before == str(tmp_path / "toy")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"MODULES": {}, "PROBES": ""}, r"assigns PROBES \(did you mean 'PROBE'\?\); valid are .*MODULES"),
        ({"PROBE": ""}, "assigns no MODULES"),
        (
            {"MODULES": {}, "ORDERS": {"recrod": ""}},
            r"has 'recrod' in ORDERS \(did you mean 'record'\?\); valid are wait, record, .*, processes$",
        ),
        (None, r"has no manifest\.py that can be read: No such file"),
    ],
)
def test_register_folder_without_valid_manifest_raises_and_changes_nothing(
    fields: dict[str, object] | None, text: str, tmp_path: Path
) -> None:
    folder = tmp_path / "none" if fields is None else folder_of(tmp_path, "wrong", **fields)
    before = os.environ["PEERLANE_DIALECT_FOLDERS"]
    with pytest.raises(errors.InvalidValue, match=text) as caught:
        dialects.register(folder)
    assert caught.value.fault is errors.Fault.BAD_CONFIG
    assert (before, "wrong" in dialects.registered()) == (os.environ["PEERLANE_DIALECT_FOLDERS"], False)


def test_dialects_of_the_variable_are_registered_and_whole_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [folder_of(tmp_path / each, "variable", MODULES={each: each}) for each in ("first", "second")]
    monkeypatch.setenv("PEERLANE_DIALECT_FOLDERS", ":".join(map(str, folders)))
    assert dialects.registered() == ("variable", "acl", "cuda", "hcomm", "hip", "mooncake", "nixl")
    assert dialects.manifest_of("variable").modules == {"first": "first"}
    monkeypatch.setenv("PEERLANE_DIALECT_FOLDERS", "here/variable")
    with pytest.raises(errors.InvalidValue, match="has 'here/variable'; give whole paths"):
        dialects.registered()


def test_inherit_unknown_dialect_prints_where_it_was_looked_for(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PEERLANE_DIALECT_FOLDERS")
    hook.inherit(["toy"], None)
    assert "names 'toy', and neither peerlane nor PEERLANE_DIALECT_FOLDERS" in capfd.readouterr().err
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
