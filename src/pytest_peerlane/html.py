"""The part of pytest-html's page that is ours: a column, and the facts of each test above its output."""

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
    """Adds the facts of tests to the page; with pytest-xdist it works where the reports of all workers arrive."""

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
        found = self._facts(report.nodeid)
        words = [found.get(facts.SCHEDULE, ""), *(mark for name, mark in _MARKS.items() if name in found)]
        if cells:
            cells.insert(-1, f'<td class="col-peerlane">{escape(", ".join(filter(None, words)))}</td>')

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_table_html(self, report: pytest.TestReport, data: list[str]) -> None:
        """Show the node, the command that repeats the test, and texts that the report has not."""
        found = self._facts(report.nodeid)
        if not found:
            return
        # pytest-html adds the sections of the teardown to those of the call.
        sections = [*report.sections, *self._last[report.nodeid].sections]
        said = [report.longreprtext, *(text for _, text in sections)]
        texts = [f"node: {found[facts.NODE]}", f"repeat: {found[facts.REPEAT]}"]
        texts += [
            found[name] for name in _MARKS if name in found and not any(found[name] in each for each in said)
        ]
        data.insert(0, f"{_HEAD:-^80}\n" + escape("\n\n".join(texts)) + "\n")
