"""The pytest plugin of peerlane; ``docs/guides/ci-without-devices.md`` says how to use it.

It is a small package outside ``peerlane``, because pytest imports it at each start.
The first test that uses one of its fixtures imports the rest, ``pytest_peerlane.work``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from peerlane import Device

_OPTIONS = (
    ("node", "SPEC_OR_FILE", "the node of each test: a TOML file, or inline such as 'devices=8,switch=4'"),
    ("devices", "N", "number of devices of each test's node"),
    ("profile", "P", "the machine that each test's node imitates, such as ascend-a2"),
    ("schedule", "S", "when queued operations run: eager, lazy, seeded or seeded:SEED"),
    ("leaks", "WHAT", "the fate of a test that leaves objects behind: fail (the default), warn or ignore"),
)
_MARKER = (
    "peerlane(devices=..., switch=..., ...): give the test a fresh node with these settings (those of PEERLANE_NODE, "
    "leaks='fail', 'warn' or 'ignore', check=True or False, and strict=True or False)"
)
_CHECK = "fail tests that use a node if the checker is certain that nothing orders two accesses of theirs"
_STRICT = "check tests that use a node, and fail them for uncertain findings, too"


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the options, and an ini setting of the same name for each."""
    _offer_dialects(pluginmanager)  # before the fixtures of plugins that may replace them
    group = parser.getgroup("peerlane", "virtual devices")
    for name, metavar, text in _OPTIONS:
        group.addoption(f"--peerlane-{name}", metavar=metavar, help=text)
        parser.addini(f"peerlane_{name}", text, default="")
    text = "use virtual devices even where the vendor's own module finds real ones"
    group.addoption("--peerlane-check", action="store_true", default=None, help=_CHECK)
    parser.addini("peerlane_check", _CHECK, type="bool", default=False)
    group.addoption("--peerlane-strict", action="store_true", default=None, help=_STRICT)
    parser.addini("peerlane_strict", _STRICT, type="bool", default=False)
    group.addoption("--peerlane-shadow-real", action="store_true", help=text)
    text = "dialects whose modules can be imported at any time, not only by tests that use their fixture"
    parser.addini("peerlane_dialects", text, type="args", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and check the options at once."""
    config.addinivalue_line("markers", _MARKER)
    _offer_dialects(config.pluginmanager)  # a conftest may have registered some
    dialects = config.getini("peerlane_dialects")
    if dialects or any(config.getoption(f"peerlane_{name}") is not None for name, _, _ in _OPTIONS):
        from pytest_peerlane import work

        work.check_options(config)
        for name in dialects:
            work.install(config, name)
    if getattr(config.option, "htmlpath", None) and not hasattr(config, "workerinput"):
        from pytest_peerlane import html

        config.pluginmanager.register(html.Page(), "peerlane-html")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give a marked test the node; set the node up before, and tear it down after, all else of the test."""
    names = getattr(item, "fixturenames", None)
    if names is not None and ("peerlane_node" in names or item.get_closest_marker("peerlane") is not None):
        item.fixturenames = _node_first(item, names)  # type: ignore[attr-defined]  # a list of its own: it may be shared


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """Let a traceback show the program's frames, and what to write for a line that Python refused."""
    if call.excinfo is not None and "peerlane._public" in sys.modules:
        from peerlane.diagnostics import tracebacks

        tracebacks.prepare(call.excinfo.value)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Warn if an option had no effect because no test took devices."""
    options = [
        f"--peerlane-{name}"
        for name in ("schedule", "check", "strict", "leaks")
        if config.getoption(f"peerlane_{name}") is not None
    ]
    if not options or not (
        ran := [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    ):
        return
    from pytest_peerlane import facts

    if not any(map(facts.of, ran)):
        *names, last = _hook().folders()
        terminalreporter.write_line(
            f"peerlane: no test took devices of the plugin, so {', '.join(options)} had no effect; let tests take "
            f"the fixture peerlane_node, {', '.join(names)} or {last}, or mark them with @pytest.mark.peerlane",
            yellow=True,
        )


def _node_first(item: pytest.Item, names: list[str]) -> list[str]:
    """Put the plugin's fixtures before all others of function scope, ``setup_method`` included."""
    known = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    ours = ["peerlane_node"]
    for name in _hook().folders():
        if (
            name in names and name in known and known[name][-1].func.__module__ == __name__
        ):  # a fixture of the program may have the same name
            ours.append(name)
    others = [name for name in names if name not in ours]
    of_function = (
        at for at, name in enumerate(others) if name in known and known[name][-1].scope == "function"
    )
    at = next(of_function, len(others))
    return [*others[:at], *ours, *others[at:]]


@pytest.fixture
def peerlane_node(request: pytest.FixtureRequest) -> tuple[Device, ...]:
    """The devices of a fresh node, which the test and its children use; objects that the test leaves fail it."""
    from pytest_peerlane import work

    return work.begin(request)


def _offer_dialects(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register a fixture for each dialect that has none yet, under the dialect's name."""
    for name in _hook().folders():
        if not pluginmanager.has_plugin(f"peerlane-{name}"):
            plugin = ModuleType(f"{__name__}.{name}")
            setattr(plugin, name, _fixture_of(name))
            pluginmanager.register(plugin, f"peerlane-{name}")


@functools.cache
def _hook() -> ModuleType:
    """Return a copy of the import hook, which knows the dialects, without an import of peerlane."""
    path = Path(__file__).parents[1] / "peerlane" / "dialects" / "_shared" / "hook.py"
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    hook = module_from_spec(spec)
    spec.loader.exec_module(hook)
    return hook


def _fixture_of(name: str) -> Any:
    def serve(
        request: pytest.FixtureRequest, peerlane_node: tuple[Device, ...]
    ) -> Iterator[ModuleType | Path]:
        from pytest_peerlane import work

        yield from work.serve(request.config, name)

    serve.__doc__ = f"""The dialect {name} on the devices of ``peerlane_node``, in the state of a new process.

    The test can import it, and the vendor's other modules; of a vendor without such modules it gets the folder of the
    C libraries, which it and its children find by name.  If the test fails, the report explains its failed calls,
    unless the vendor has a call for that.
    """
    return pytest.fixture(name=name)(serve)
