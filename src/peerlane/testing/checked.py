"""The event log of a test, and what the checker says of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from peerlane.checker import Checker, texts
from peerlane.diagnostics.hooks import threads
from peerlane.diagnostics.log import event_log

_HEAD = "peerlane check: "


class TestLog:
    """Logs what this process does from now on, and all that it starts, until :meth:`report` is asked for.

    If the process has a log already, it goes on, and this one has the processes only that start from now on.
    """

    __test__ = False  # no test class of pytest's

    def __init__(self) -> None:
        self._kept = ExitStack()
        self._folder = self._kept.enter_context(event_log.folder())
        self._before = os.environ.get(event_log.VARIABLE)
        self._has_begun = event_log.begin(self._folder)
        os.environ[event_log.VARIABLE] = str(self._folder)
        threads.install()

    def report(self) -> dict[str, Any]:
        """End the log; return the findings as ``docs/design/checker.md`` has them."""
        self.close()
        try:
            return Checker(self._folder, give_back=False).finish()
        finally:
            self._kept.close()

    def close(self) -> None:
        """End the log; idempotent."""
        if self._has_begun:
            event_log.end()
            self._has_begun = False
        if os.environ.get(event_log.VARIABLE) == str(self._folder):
            del os.environ[event_log.VARIABLE]
            if self._before is not None:
                os.environ[event_log.VARIABLE] = self._before


def certain_text(report: Mapping[str, Any]) -> str:
    """Return the certain findings as text, empty if there are none."""
    return _text(report, certain=True)


def findings_text(report: Mapping[str, Any]) -> str:
    """Return all findings as text, empty if there are none."""
    return _text(report)


def uncertain_text(report: Mapping[str, Any]) -> str:
    """Return the other findings as text, empty if there are none."""
    return _text(report, certain=False)


def unseen_text(report: Mapping[str, Any]) -> str:
    """Return what is not seen of other processes, a line each, empty if there are none."""
    return "\n".join(_HEAD + texts.unseen_text(each) for each in report.get("unseen", ()))


def _text(report: Mapping[str, Any], *, certain: bool | None = None) -> str:
    wanted = [each for each in report["findings"] if certain is None or each["certain"] is certain]
    chosen = {**report, "findings": wanted, "unseen": []}
    if not chosen["findings"]:
        return ""
    sources = texts.Sources()
    blocks = [texts.finding_text(each, sources) for each in chosen["findings"]]
    return "\n\n".join([_HEAD + texts.summary_text(chosen), *blocks])
