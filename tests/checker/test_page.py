"""The page of a report in a browser: without network, findings lead to both lines, and lanes and arrows are drawn."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers import timelines
from helpers.browser import NEEDS_BROWSER, running
from peerlane.checker import texts
from peerlane.checker.page import page_data, write_page

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

COLOURS = """() => {
  const it = document.getElementById("canvas"), found = new Set();
  const bytes = it.getContext("2d").getImageData(0, 0, it.width, it.height).data;
  for (let i = 0; i < bytes.length; i += 4) found.add(bytes.slice(i, i + 3).join());
  return [...found];
}"""
MIDDLE = """async () => {
  const times = [];
  for (let i = 0; i < 40; i++) {
    const wide = to - from;
    if (i === 20) look(...extent());
    else if (i % 2) zoom(.8);
    else look(from + wide * .1, to + wide * .1);
    await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    times.push(parseFloat(canvas.dataset.ms));
  }
  return times.sort((one, other) => one - other)[20];
}"""


class Opened:
    """A page in the browser, with what it said and asked for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.printed: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.printed.append(message.text))
        page.on("pageerror", lambda error: self.printed.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def open(self, path: Path) -> Any:
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready=yes]", state="attached")
        self.drawn()
        assert self.printed == []
        assert self.asked == [path.as_uri()]
        return self.page

    def drawn(self) -> dict[str, float]:
        """Return what the last frame drew."""
        self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return {
            name: float(text)
            for name, text in self.page.evaluate("({...document.getElementById('canvas').dataset})").items()
        }


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with running() as started:
        yield started


@pytest.fixture
def opened(browser: Any) -> Iterator[Opened]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, offline=True)
    yield Opened(context.new_page())
    context.close()


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    program, page = tmp_path / "ring.py", tmp_path / "report.html"
    timeline = timelines.ring(program)
    findings = timelines.finding(program, step=0), timelines.finding(program, step=2, certain=False)
    command = "peerlane check -n 4 ring.py"
    write_page(page, timelines.report(*findings), timeline, texts.Sources(), command=command)
    return page


@NEEDS_BROWSER
def test_page_opens_without_network_and_draws_lanes_and_arrows(ring: Path, opened: Opened) -> None:
    page = opened.open(ring)
    page.click("#all")
    drawn = opened.drawn()
    assert (drawn["lanes"], drawn["drawn"], drawn["arrows"]) == (8, 60, 24)
    assert page.locator("#names div").all_inner_texts()[:3] == [
        "rank 0 main thread",
        "stream 1",
        "rank 1 main thread",
    ]
    assert page.inner_text("#command") == "peerlane check -n 4 ring.py"
    assert "1 certain finding and 1 uncertain finding" in page.inner_text("#summary")
    painted = page.evaluate(COLOURS)
    assert {"63,127,214", "142,91,208", "224,138,30"} <= set(painted)  # writes, notifies, waits


@NEEDS_BROWSER
def test_each_finding_leads_to_both_lines_and_both_events(ring: Path, opened: Opened) -> None:
    page = opened.open(ring)
    for number, lines in ((0, ("2", "5")), (1, ("12", "15"))):
        page.click(f"#findings button:nth-child({number + 1})")
        assert page.locator(".side").count() == 2
        marked = page.locator(".side pre .here").all_inner_texts()
        assert [text.split("step")[0] for text in marked] == list(lines)
        assert [f"line {line} of the ring" in text for line, text in zip(lines, marked, strict=True)] == [
            True,
            True,
        ]
        assert "a wait of rank 1 for a notify" in page.inner_text("#detail")
    assert "rank 0 has a socket" in page.inner_text("#detail")
    before = page.evaluate("[from, to]")
    page.click(".side header >> nth=0")
    assert page.evaluate("chosen") == page.evaluate("data.findings[1].events[0]") >= 0
    assert page.evaluate("[from, to]") != before


@NEEDS_BROWSER
def test_event_that_is_clicked_shows_its_line_and_its_arrows(ring: Path, opened: Opened) -> None:
    page = opened.open(ring)
    page.click("#all")
    opened.drawn()
    wait = page.evaluate("E.label.findIndex(each => data.labels[each][0] === 'wait')")
    x, y = page.evaluate(f"[x(starts[{wait}]) + 2, E.lane[{wait}] * LANE + LANE / 2 - view.scrollTop]")
    page.hover("#canvas", position={"x": x, "y": y})
    assert "wait rank 0, stream 1" in page.inner_text("#tip")
    page.click("#canvas", position={"x": x, "y": y})
    details = page.inner_text("#detail")
    assert "comes from" in details and "record to wait" in details and "write to arrival" in details
    assert "line 4 of the ring" in page.inner_text(".side pre .here")


@NEEDS_BROWSER
def test_zoom_pan_and_time_change_what_is_shown(ring: Path, opened: Opened) -> None:
    page = opened.open(ring)
    page.click("#all")
    whole = opened.drawn()["drawn"]
    page.mouse.move(800, 700)
    page.keyboard.down("Control")
    for _ in range(6):
        page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    zoomed = opened.drawn()["drawn"]
    assert 0 < zoomed < whole
    before = page.evaluate("from")
    page.mouse.down()
    page.mouse.move(900, 700, steps=4)
    page.mouse.up()
    assert page.evaluate("from") < before
    page.click("#time")
    assert page.get_attribute("#time", "aria-pressed") == "true"
    page.focus("#view")
    page.keyboard.press("0")
    assert opened.drawn()["drawn"] == whole
    assert opened.printed == []


@NEEDS_BROWSER
def test_page_with_10_000_events_is_drawn_and_moved_in_time(tmp_path: Path, opened: Opened) -> None:
    program, path = tmp_path / "ring.py", tmp_path / "report.html"
    timeline = timelines.ring(program, ranks=8, steps=250)
    assert len(timeline.marks) == 10_000
    findings = [timelines.finding(program, step=step) for step in range(0, 250, 5)]
    write_page(path, timelines.report(*findings), timeline, texts.Sources(), command="peerlane check")

    page = opened.open(path)
    page.click("#all")
    middle = page.evaluate(MIDDLE)  # a busy machine stops some frames for longer than they take
    print(f"a frame of 10,000 events: {middle} ms")
    assert middle < 250  # on a busy machine; some 15 ms on a free one
    assert path.stat().st_size < 2 << 20
    page.click("#findings button:nth-child(50)")
    assert opened.drawn()["drawn"] > 0
    assert page.locator("#findings button").count() == 50


@NEEDS_BROWSER
def test_page_of_hostile_names_runs_no_script_of_theirs(tmp_path: Path, opened: Opened) -> None:
    program, path = tmp_path / "</script><script>window.evil=1<.py", tmp_path / "report.html"
    program = tmp_path / "evil.py"
    timeline = timelines.ring(program)
    program.write_text("x = '</script><script>window.evil = 1</script><img src=x onerror=evil=1>'\n" * 40)
    evil = timelines.finding(program, step=0) | {"message": "<img src=x onerror=window.evil=1></script>"}
    write_page(path, timelines.report(evil), timeline, texts.Sources(), command="<b>")

    page = opened.open(path)
    assert page.evaluate("window.evil") is None
    assert "onerror" in page.inner_text("#detail")


@NEEDS_BROWSER
def test_page_without_findings_or_events_has_a_sentence_for_each(tmp_path: Path, opened: Opened) -> None:
    path = tmp_path / "report.html"
    timeline = timelines.ring(tmp_path / "ring.py", ranks=1, steps=0)
    write_page(path, timelines.report(), timeline, texts.Sources(), command="peerlane check")
    page = opened.open(path)
    assert page.inner_text("#findings") == "No findings."


def test_page_data_names_the_events_of_findings(tmp_path: Path) -> None:
    program = tmp_path / "ring.py"
    timeline = timelines.ring(program)
    data = page_data(
        timelines.report(timelines.finding(program, step=1)), timeline, texts.Sources(), "peerlane check"
    )
    write, read = (timeline.marks[event] for event in data["findings"][0]["events"])
    assert (write.label, write.number, read.label, read.number) == ("channel write", 6, "host reads", 9)
    assert timeline.lanes[read.lane].process == 1


def test_page_text_and_json_have_the_same_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # paths are shown from there
    program = Path(__file__).parent / "programs" / "broken" / "u1_deregistered_early.py"
    words = [sys.executable, "-m", "peerlane", "check", "-n", "2", "--devices", "2"]
    done = subprocess.run(
        [*words, "--json", "found.json", "--html", "page.html", str(program), "written"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    (data,) = json.loads((tmp_path / "found.json").read_text())["findings"]
    page = (tmp_path / "page.html").read_text()
    details = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert details is not None
    (shown,) = json.loads(details[1])["findings"]
    printed = " ".join(done.stderr.split())
    consequences = texts.consequence_lines(data)
    assert len(data["consequences"]) == len(consequences) - 1 >= 1
    assert shown["consequences"] == consequences
    assert consequences[0] in printed and data["message"] in printed and data["missing"] in printed
    assert (shown["message"], shown["certain"], shown["count"]) == (
        *(data[name] for name in ("message", "certain", "count")),
    )
    assert dict(shown["facts"])["missing"] == data["missing"]
    assert [site["place"].rpartition(":")[2] for site in shown["sites"]] == [
        str(texts.named_line(site)[1]) for site in data["sites"]
    ]
    assert f"{len(data['consequences'])} consequences" in printed


def test_page_shows_the_line_that_uses_a_helper(tmp_path: Path) -> None:
    program = tmp_path / "ring.py"
    timeline = timelines.ring(program)
    finding = timelines.finding(program, step=1)
    wrapped = {**finding["sites"][0], "file": "calls.py", "line": 4, "helpers": 1}
    wrapped["callers"] = [[str(program), 7, "work"], [str(program), 9, "main"]]
    finding["sites"] = [wrapped, finding["sites"][1]]
    data = page_data(timelines.report(finding), timeline, texts.Sources(), "peerlane check")
    site, other = data["findings"][0]["sites"]
    assert (site["line"], site["place"].endswith("ring.py:7"), site["helpers"]) == (7, True, ["calls.py:4"])
    assert [each.rpartition(":")[2] for each in site["callers"]] == ["9"]
    assert any(line == 7 for line, _ in site["source"]) and other["helpers"] == []
