"""What the page of pytest-html and the file of ``--junitxml`` say of each test."""

from __future__ import annotations

import json
import re
import shlex
import sys
import xml.etree.ElementTree as ET
from html import unescape
from typing import Any

import pytest

from helpers.inner_pytest import HEAD, marked_line, run, run_in_process

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]

TESTS = (
    HEAD
    + """
def race(device):
    with device.allocate(64) as memory, device.create_stream() as stream:
        memory.fill(3, stream=stream)  # queued
        found = int(memory.view()[5])  # nobody has waited
        stream.sync()

@pytest.mark.peerlane(check=True)
def test_race(peerlane_node):
    race(peerlane_node[0])

@pytest.mark.peerlane(check=True)
def test_race_and_failure(peerlane_node):
    race(peerlane_node[0])
    assert not "its own reason"

def test_leak(peerlane_node):
    kept.append(peerlane_node[0].allocate(4096))  # here

@pytest.mark.peerlane(leaks="warn")
def test_leak_that_warns(peerlane_node):
    kept.append(peerlane_node[0].allocate(4096))

@pytest.mark.parametrize("text", ["two words"])
def test_right(peerlane_node, text):
    pass

def test_without_node():
    pass
"""
)
PAGE = ("--html=report.html", "--self-contained-html", "-p", "no:hypothesispytest")


def rows(pytester: pytest.Pytester) -> dict[str, dict[str, Any]]:
    """Return the rows of the page by result and test; each has the words of its column and its text."""
    page = (pytester.path / "report.html").read_text()
    (blob,) = re.findall(r'data-jsonblob="(.*?)"', page, re.DOTALL)
    shown = {}
    for tests in json.loads(unescape(blob))["tests"].values():
        for each in tests:
            cells = [re.sub(r"<.*?>", "", cell) for cell in each["resultsTableRow"]]
            name = unescape(cells[1]).partition("::")[2]
            shown[name] = {"result": cells[0], "column": cells[3], "text": unescape(each["log"])}
    return shown


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_page_shows_seed_repeat_leak_and_finding_of_each_test(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    run(pytester, TESTS, *PAGE, *workers, "--peerlane-schedule=seeded").assert_outcomes(
        passed=5, failed=1, errors=2
    )
    shown = rows(pytester)
    assert {name: row["result"] for name, row in shown.items()} == {
        "test_race": "Passed",
        "test_race::teardown": "Error",
        "test_race_and_failure": "Failed",
        "test_leak": "Passed",
        "test_leak::teardown": "Error",
        "test_leak_that_warns": "Passed",
        "test_right[two words]": "Passed",
        "test_without_node": "Passed",
    }
    for name, row in shown.items():
        if name == "test_without_node":
            assert row["column"] == "" and "peerlane" not in row["text"].replace(sys.executable, "")
            continue
        seed = re.match(r"seeded:\d+", row["column"])
        assert seed and f"--peerlane-schedule={seed[0]}" in row["text"], name
        assert "2 devices on 1 switch" in row["text"]
        marks = ["left behind"] * ("leak" in name) + ["finding"] * ("race" in name)
        assert row["column"].split(", ")[1:] == marks
        lines = [f"made at {marked_line(pytester)}"] * name.startswith("test_leak:")
        lines += ["| memory.fill(3, stream=stream)", "| found = int(memory.view()[5])"] * ("race" in name)
        for line in lines:
            assert row["text"].count(line) == 1, name


def test_command_on_page_repeats_the_test_with_its_seed(pytester: pytest.Pytester) -> None:
    run(pytester, TESTS, *PAGE, "-k", "right", "--peerlane-schedule=seeded", "--peerlane-devices=3")
    (row,) = rows(pytester).values()
    (command,) = re.findall(r"repeat: pytest (.*)", row["text"])
    run_in_process(pytester, *PAGE, *shlex.split(command)).assert_outcomes(passed=1)
    (again,) = rows(pytester).values()
    assert again["column"] == row["column"]
    assert "3 devices on" in again["text"] and command in again["text"]


def test_checked_test_is_repeated_checked(pytester: pytest.Pytester) -> None:
    run(pytester, TESTS, *PAGE, "-k", "leak", "--peerlane-check")
    for row in rows(pytester).values():
        assert "--peerlane-check" in row["text"]


def test_junit_file_has_the_facts_as_properties(pytester: pytest.Pytester) -> None:
    run(pytester, TESTS, "--junitxml=report.xml", "-p", "no:hypothesispytest", "--peerlane-schedule=seeded:5")
    shown = {
        case.attrib["name"]: {each.attrib["name"]: each.attrib["value"] for each in case.iter("property")}
        for case in ET.parse(pytester.path / "report.xml").iter("testcase")
    }
    assert shown["test_without_node"] == {}
    assert {each["peerlane_schedule"] for each in shown.values() if each} == {"seeded:5"}
    assert f"made at {marked_line(pytester)}" in shown["test_leak"]["peerlane_left_behind"]
    assert "memory.fill(3, stream=stream)" in shown["test_race"]["peerlane_findings"]
    assert "peerlane_findings" not in shown["test_leak"]


def test_run_without_page_or_without_pytest_html_passes(pytester: pytest.Pytester) -> None:
    for words in ((), ("-p", "no:html", "-p", "no:metadata")):
        run(pytester, TESTS, "-p", "no:hypothesispytest", "-k", "right", *words).assert_outcomes(passed=1)
    assert not (pytester.path / "report.html").exists()
