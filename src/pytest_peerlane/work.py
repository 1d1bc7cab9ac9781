"""The plugin's work once a test uses it: fresh nodes, and the failure of tests that leave objects behind."""

from __future__ import annotations

import importlib
import os
import random
import shlex
from collections.abc import Generator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from peerlane import Device, dialects
from peerlane.backends.virtual.node import schedule
from peerlane.backends.virtual.node.config import KEYS, NodeConfig
from peerlane.c_abi import directory
from peerlane.cli.native import load_libraries, set_library_path
from peerlane.diagnostics.leak_report import SiteFormat, leak_text
from peerlane.dialects import vendor_is_there
from peerlane.errors import Error, VendorModule
from peerlane.support.spelling import did_you_mean
from peerlane.testing import checked
from peerlane.testing.fresh_node import FreshNode, Left
from pytest_peerlane import facts

_FATES = ("fail", "warn", "ignore")
_SETTINGS = (*KEYS, "leaks", "check", "strict")
_OVERRIDES = ("devices", "profile", "schedule")
_REPEATED = ("node", "devices", "profile", "leaks")
_PLUGIN = "peerlane-work"
_REMEDY = "Close each object, leave its `with` block, or drop the last reference to it."
_PROCESS_REMEDY = "Wait for each process, or end it; leave the `with` block of a pool, or shut it down."


def check_options(config: pytest.Config) -> None:
    """Refuse invalid options before the first test runs."""
    try:
        base_node(config)
        _fate(config, None)
    except Error as error:
        raise pytest.UsageError(str(error)) from None


def base_node(config: pytest.Config) -> NodeConfig:
    """Return the node of a test without a marker.

    It is that of ``--peerlane-node``, else of the ini settings, else of ``PEERLANE_NODE``; other options change it.
    """
    text: str | None = config.getoption("peerlane_node")
    if text is not None:
        base = NodeConfig.resolve(text, source="--peerlane-node")
    else:
        text = config.getini("peerlane_node")
        base = (
            NodeConfig.resolve(_beside_ini(config, text), source="peerlane_node")
            if text
            else NodeConfig.from_environment()
        ).replace(
            source="ini-file",
            **{key: _number(key, config.getini(f"peerlane_{key}") or None) for key in _OVERRIDES},
        )
    return base.replace(
        source="command line",
        **{key: _number(key, config.getoption(f"peerlane_{key}")) for key in _OVERRIDES},
    )


def _beside_ini(config: pytest.Config, text: str) -> str:
    folder = config.inipath.parent if config.inipath else config.rootpath
    return str(folder / text) if text.endswith(".toml") else text


def _number(key: str, text: str | None) -> object:
    return int(text) if key == "devices" and text is not None and text.isdecimal() else text


def _fate(config: pytest.Config, marked: object) -> str:
    fate = marked or config.getoption("peerlane_leaks") or config.getini("peerlane_leaks") or "fail"
    if fate not in _FATES:
        raise pytest.UsageError(
            f"peerlane: leaks is {fate!r}{did_you_mean(fate, _FATES)}; valid are {', '.join(_FATES)}"
        )
    return str(fate)


def install(config: pytest.Config, name: str) -> None:
    """Serve a dialect until pytest ends."""
    before = dialects.installed()
    try:
        dialects.install(name, shadow_real=config.getoption("peerlane_shadow_real"))
    except Error as error:
        raise pytest.UsageError(f"peerlane_dialects: {error}") from None
    if name not in before:
        config.add_cleanup(lambda: dialects.uninstall(name))
    if not dialects.manifest_of(name).modules:
        set_library_path()
        load_libraries()


def serve(config: pytest.Config, name: str) -> Iterator[ModuleType | Path]:
    """Serve a dialect while a test runs, and longer if it was served before.

    The test gets the dialect's module; of one that has libraries of C alone, the folder of these.
    """
    is_new = name not in dialects.installed()
    problem = ""
    try:
        dialects.install(name, shadow_real=config.getoption("peerlane_shadow_real"))
    except Error as error:
        is_shadowed = isinstance(error.detail, VendorModule)
        problem = vendor_is_there(error.detail, "--peerlane-shadow-real") if is_shadowed else str(error)
    if problem:
        pytest.fail(problem, pytrace=False)
    _work(config).serves(name)
    if dialects.manifest_of(name).modules:
        yield importlib.import_module(dialects.entry(name))
    else:
        yield from _serve_libraries()
    if is_new:
        dialects.uninstall(name)


def _serve_libraries() -> Iterator[Path]:
    """Let this process, and children of a test, find the libraries of C by name; return their folder."""
    before = dict(os.environ)
    set_library_path()
    changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
    load_libraries()
    yield directory()
    for name, value in changed.items():
        if os.environ.get(name) == value:
            os.environ.pop(name)
            os.environ.update({name: before[name]} if name in before else {})


def begin(request: pytest.FixtureRequest) -> tuple[Device, ...]:
    """Enter a fresh node for a test."""
    return _work(request.config).begin(request)


def _work(config: pytest.Config) -> Work:
    work = config.pluginmanager.get_plugin(_PLUGIN)
    if work is None:
        work = Work(config)
        config.pluginmanager.register(work, _PLUGIN)
    assert isinstance(work, Work)
    return work


class Work:
    """The node of the running test, if it has one, and the outcome of the test.

    Attributes
    ----------
    remedy : str
        The advice for a test that left objects behind.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._node: FreshNode | None = None
        self._log: checked.TestLog | None = None
        self._findings = ""
        self._is_strict = False
        self._item: Any = None
        self._fate = "fail"
        self._failed = False
        self._note = ""
        self._described = ""
        self.remedy = _REMEDY

    def begin(self, request: pytest.FixtureRequest) -> tuple[Device, ...]:
        """Enter a fresh node that the test's markers and the options describe."""
        item, problem = request.node, ""
        self.pytest_unconfigure()  # leaves the node of a test that had no teardown
        try:
            config, named, self._fate, is_checked, self._is_strict = self._wanted(item)
            self._log = checked.TestLog() if is_checked else None
            node = FreshNode(config, keep_name=named)
        except (Error, OSError, pytest.UsageError) as error:
            problem = str(error)
        if problem:
            self._end_log()
            pytest.fail(problem, pytrace=False)
        self._node, self._item, self._failed, self._note, self.remedy = node, item, False, "", _REMEDY
        self._findings = ""
        for name in dialects.registered():
            dialects.explanations(name)  # those of earlier tests, which this one's report must not show
        self._described = f"{node.config.describe()}; schedule {node.schedule}"
        if node.schedule.startswith("seeded"):
            self._described += f" (repeat it with --peerlane-schedule={node.schedule})"
        facts.begin(item)
        facts.add(item, facts.NODE, node.config.describe())
        facts.add(item, facts.SCHEDULE, node.schedule)
        facts.add(item, facts.REPEAT, self._command(item, node.schedule, is_checked))
        if node.lost:
            item.warn(pytest.PytestWarning(self._text("the fresh node for this test ended", Left(node.lost))))
        return node.devices

    def serves(self, name: str) -> None:
        """Note that the test uses a dialect."""
        self.remedy = dialects.manifest_of(name).remedy or _REMEDY

    def _command(self, item: pytest.Item, schedule: str, is_checked: bool) -> str:
        """Return the command that runs the test again on such a node, with the same seed."""
        options = {name: self._config.getoption(f"peerlane_{name}") for name in _REPEATED}
        words = ["pytest", item.nodeid, f"--peerlane-schedule={schedule}"]
        words += [f"--peerlane-{name}={text}" for name, text in options.items() if text is not None]
        words += ["--peerlane-check"] * is_checked + ["--peerlane-strict"] * (is_checked and self._is_strict)
        words += ["--peerlane-shadow-real"] * bool(self._config.getoption("peerlane_shadow_real"))
        return shlex.join(words)

    def _wanted(self, item: pytest.Item) -> tuple[NodeConfig, bool, str, bool, bool]:
        """Return the node, whether the test named it, the fate of leaks, and whether it is checked, and strictly."""
        settings: dict[str, Any] = {}
        for marker in reversed(list(item.iter_markers("peerlane"))):
            unknown = [f"{key}=" for key in marker.kwargs if key not in _SETTINGS]
            if unknown or marker.args:
                wrong = (*unknown, *map(repr, marker.args))[0]
                close = did_you_mean(unknown[0].removesuffix("="), _SETTINGS) if unknown else ""
                raise pytest.UsageError(
                    f"@pytest.mark.peerlane: {wrong} is not a setting{close}; write settings as devices=4, switch=2; "
                    f"valid: {', '.join(_SETTINGS)}"
                )
            settings.update(marker.kwargs)
        fate = _fate(self._config, settings.pop("leaks", None))
        is_strict = self._switch("strict", settings)
        is_checked = self._switch("check", settings, is_strict)
        base = base_node(self._config)
        config = base.replace(source="@pytest.mark.peerlane", **settings)
        return _with_seed(config, base), "name" in settings, fate, is_checked, is_strict

    def _switch(self, name: str, marked: dict[str, Any], other: bool = False) -> bool:
        """Return the marker's switch, or else whether the command line, the ini file or another switch sets it."""
        switch = marked.pop(name, None)
        if switch is None:
            option = f"peerlane_{name}"
            return bool(self._config.getoption(option) or self._config.getini(option) or other)
        if not isinstance(switch, bool):
            raise pytest.UsageError(f"@pytest.mark.peerlane: {name} is {switch!r}; valid are True and False")
        return switch

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        """Look for leaks when all of the test has been torn down."""
        try:
            result = yield
        except BaseException:
            self._failed = True
            self._end(item)
            raise
        self._end(item)
        return result

    def _end(self, item: pytest.Item) -> None:
        node = self._node
        if node is None or item is not self._item:
            return
        self._node = None
        left = Left()
        try:
            # pytest would drop the values of fixtures right after this hook.
            if self._fate != "ignore":
                left = node.left(getattr(item, "funcargs", {}).clear)
        finally:
            node.leave(left, kill=self._fate == "fail")
            report = self._end_log()
        problems = []
        if report is not None:
            problems += self._failing_findings(item, report)
        if left:
            remedies = [self.remedy] * bool(left.objects) + [_PROCESS_REMEDY] * bool(left.processes)
            problems += self._failing_leaks(
                item, "\n".join([self._text("the test left behind", left), *remedies])
            )
        if problems:
            pytest.fail("\n\n".join(problems), pytrace=False)

    def _end_log(self) -> dict[str, Any] | None:
        """Return the checker's report on the test's log, if it has one."""
        log, self._log = self._log, None
        return None if log is None else log.report()

    def _failing_findings(self, item: pytest.Item, report: dict[str, Any]) -> list[str]:
        """Return the texts that fail the test."""
        if (text := checked.uncertain_text(report)) and not self._is_strict:
            facts.add(item, facts.UNCERTAIN, text)
            item.warn(pytest.PytestWarning(text))
        if unseen := checked.unseen_text(report):
            item.warn(pytest.PytestWarning(unseen))
        text = checked.findings_text(report) if self._is_strict else checked.certain_text(report)
        if text:
            facts.add(item, facts.FINDINGS, text)
        if text and self._failed:
            self._findings = text
            return []
        return [text] if text else []

    def _text(self, head: str, left: Left) -> str:
        # Of an object that another file made, the test's own line that led there is shown too.
        sites = SiteFormat(str(self._item.path), str(self._config.rootpath))
        fate = "; it was killed" if self._fate == "fail" else ""
        processes = (
            f"process {each.pid} ({each.command}), {sites.of('started', each.site)}{fate}"
            for each in left.processes
        )
        return leak_text(head, left.objects, sites, *processes)

    def _failing_leaks(self, item: pytest.Item, text: str) -> list[str]:
        """Return the texts that fail the test."""
        facts.add(item, facts.LEFT_BEHIND, text)
        if self._failed:
            self._note = f"{text}\nThe test did not run to its end, where it might have closed some of these."
        elif self._fate == "warn":
            item.warn(pytest.PytestWarning(text))
        else:
            return [text]
        return []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """Do not charge the test with what a fixture of a wider scope starts, even if the test is its first user."""
        node = self._node
        if node is None or fixturedef.scope == "function":
            return (yield)
        with node.for_others():
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add to a failed test's report its node, with the seed of the schedule, and the objects that it left."""
        report = yield
        if item is self._item:
            only_leaks = report.when == "teardown" and not self._failed
            if report.outcome != "passed" or hasattr(report, "wasxfail"):
                self._failed = True
            if report.failed and not only_leaks:
                report.sections.append(("peerlane: the node of this test", self._described))
                for name in dialects.registered():
                    if explanations := dialects.explanations(name):
                        report.sections.append(
                            (f"peerlane: calls of {name} that failed, newest first", explanations)
                        )
            if report.when == "teardown" and self._note:
                report.sections.append(("peerlane: left behind, seen at teardown", self._note))
            if report.when == "teardown" and self._findings:
                report.sections.append(
                    ("peerlane: findings of the checker, seen at teardown", self._findings)
                )
        return report

    def pytest_unconfigure(self) -> None:
        """Leave the node of a test that was interrupted."""
        node, self._node = self._node, None
        if node is not None:
            node.leave()
        log, self._log = self._log, None
        if log is not None:
            log.close()


def _with_seed(config: NodeConfig, base: NodeConfig) -> NodeConfig:
    """Draw the seed before the test, so that a failure can show it; a seed that is set for all tests is kept."""
    wanted = config.schedule or os.environ.get(schedule.VARIABLE, "")
    if wanted != "seeded":
        return config
    repeatable = base.schedule or os.environ.get(schedule.VARIABLE, "")
    if not repeatable.startswith("seeded:"):
        repeatable = f"seeded:{random.SystemRandom().randrange(1 << 32)}"
    return config.replace(schedule=repeatable)
