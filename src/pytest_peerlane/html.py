"""The plugin's part of pytest-html's page: a column, and the facts of each test above its output."""

from __future__ import annotations

from html import escape

import pytest

from pytest_peerlane import facts

_MARKS = {
    facts.LEFT_BEHIND: "left behind",
    facts.FINDINGS: "finding",
    facts.UNCERTAIN: "uncertain finding",
}
_HEAD = " peerlane "


class Page:
    """Adds the facts of tests to the page; with pytest-xdist it runs where all workers' reports arrive."""

    def __init__(self) -> None:
        self._last: dict[str, pytest.TestReport] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the last report of a test, which has all facts; pytest-html makes the test's rows when it has come."""
        self._last[report.nodeid] = report

    def _facts(self, nodeid: str) -> dict[str, str]:
        return facts.of(self._last[nodeid]) if nodeid in self._last else {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_table_header(self, cells: list[str]) -> None:
        """Add the column before that of the links."""
        cells.insert(-1, '<th class="sortable" data-column-type="peerlane">peerlane</th>')

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_table_row(self, report: pytest.TestReport, cells: list[str]) -> None:
        """Show the schedule with its seed, and whether something was left behind or found."""
        facts_of_test = self._facts(report.nodeid)
        words = [
            facts_of_test.get(facts.SCHEDULE, ""),
            *(mark for name, mark in _MARKS.items() if name in facts_of_test),
        ]
        if cells:
            cells.insert(-1, f'<td class="col-peerlane">{escape(", ".join(filter(None, words)))}</td>')

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_table_html(self, report: pytest.TestReport, data: list[str]) -> None:
        """Show the node, the command that repeats the test, and texts that the report has not."""
        facts_of_test = self._facts(report.nodeid)
        if not facts_of_test:
            return
        # pytest-html adds the sections of the teardown to those of the call.
        sections = [*report.sections, *self._last[report.nodeid].sections]
        shown = [report.longreprtext, *(text for _, text in sections)]
        texts = [f"node: {facts_of_test[facts.NODE]}", f"repeat: {facts_of_test[facts.REPEAT]}"]
        texts += [
            facts_of_test[name]
            for name in _MARKS
            if name in facts_of_test and not any(facts_of_test[name] in each for each in shown)
        ]
        data.insert(0, f"{_HEAD:-^80}\n" + escape("\n\n".join(texts)) + "\n")
