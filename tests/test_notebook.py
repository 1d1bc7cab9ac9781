"""What notebooks show, and the magics that run peerlane's commands."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

import peerlane as pl
from helpers.promises import Node
from peerlane.diagnostics.pictures import MOST_DEVICES, drawn_timeline
from peerlane.errors import BadArgument
from peerlane.notebook import Page, load_ipython_extension, peerlane

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebook.ipynb"
SVG = "{http://www.w3.org/2000/svg}"
RACE = """
import peerlane as pl
device = pl.device(0)
with device.allocate(64) as block, device.create_stream() as one, device.create_stream() as other:
    block.fill(1, stream=one)
    block.fill(2, stream=other)
    one.sync()
    other.sync()
"""
#: Stands for a kernel: it runs a cell of two ranks that wait, and says how that ended.
KERNEL = """
import sys
from peerlane.notebook import peerlane
try:
    peerlane("launch -n 2", "import os, time; print('rank', os.getpid(), flush=True); time.sleep(100)")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_devices_are_a_table_of_memory_and_links(node: Node) -> None:
    one, other, *_ = node("devices=3")
    one.peers.add(other)
    table = ElementTree.fromstring(pl.devices()._repr_html_())
    heads = [each.text for each in table.iter("th")]
    assert heads[:7] == ["device", "kind", "memory", "free", "virtual:0", "virtual:1", "virtual:2"]
    rows = [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")][1:]
    assert [row[0] for row in rows] == ["virtual:0", "virtual:1", "virtual:2"]
    assert [rows[at][4 + at] for at in range(3)] == ["X"] * 3
    links = [cell for cell in table.iter("td") if cell.get("title")]
    assert len(links) == 6
    assert [cell.find("b") is not None for cell in links] == [True, False, False, False, False, False]
    assert links[0].get("title") == "peer access is enabled"


def test_many_devices_are_a_table_without_links(node: Node) -> None:
    node(f"devices={MOST_DEVICES + 1}")
    table = ElementTree.fromstring(pl.devices()._repr_html_())
    rows = list(table.iter("tr"))
    assert len(rows) == MOST_DEVICES + 2 and {len(row) for row in rows} == {4}


def test_cell_for_a_command_that_takes_no_program_is_refused() -> None:
    with pytest.raises(pl.InvalidValue, match=r"write %peerlane topo --devices 2 in a line") as failed:
        peerlane("topo --devices 2", "print(1)")
    assert failed.value.detail == BadArgument("command", "topo", choices=("run", "launch", "check"))


def test_recording_is_a_row_for_each_stream_and_a_bar_for_each_operation(node: Node) -> None:
    device, *_ = node("devices=1")
    with device.allocate(1 << 22) as block, device.create_stream() as one, device.create_stream() as other:
        with pl.trace.recording() as timeline:
            for stream in (one, other):
                block.fill(0, stream=stream)
                stream.sync()
            timeline.label(other, "second <stream>")
        picture = ElementTree.fromstring(timeline._repr_svg_())
    texts = [each.text for each in picture.iter(f"{SVG}text")]
    assert f"virtual:0, stream {one.id}" in texts and "virtual:0, second <stream>" in texts
    bars = [each for each in picture.iter(f"{SVG}rect") if len(each)]
    titles = [each.findtext(f"{SVG}title") or "" for each in bars]
    assert [title.startswith("fill, 4 MiB, ") for title in titles] == [True, True]
    (_, first_y), (second_x, second_y) = [(float(bar.attrib["x"]), bar.attrib["y"]) for bar in bars]
    assert first_y != second_y and second_x > 170
    [meaning] = [each for each in picture.iter(f"{SVG}rect") if not len(each)]
    assert texts[-1] == "fill" and meaning.attrib["fill"] == bars[0].attrib["fill"]


def test_ticks_of_a_timeline_are_round_and_end_within_the_picture() -> None:
    def texts(end_ns: int) -> list[str]:
        operation = pl.trace.TracedOperation("virtual:0", 1, 0, "copy", 0, 5, 5 + end_ns)
        picture = ElementTree.fromstring(drawn_timeline([operation], {}, 480))
        return [each.text or "" for each in picture.iter(f"{SVG}text")][:-2]

    assert texts(26_000_000) == ["0 ms", "10 ms", "20 ms"]
    assert texts(2_300) == ["0 us", "0.5 us", "1 us", "1.5 us", "2 us"]
    assert texts(1) == ["0 ns"]


def test_recording_without_operations_has_a_sentence_for_it() -> None:
    assert "no operation is over" in drawn_timeline((), {})


def test_cell_is_the_program_of_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert peerlane("launch -n 2", "import os; print('rank', os.environ['RANK'])") is None
    assert sorted(capfd.readouterr().out.splitlines()) == ["[0] rank 0", "[1] rank 1"]


def test_check_shows_its_page_if_there_is_a_finding(capfd: pytest.CaptureFixture[str]) -> None:
    page = peerlane("check", RACE)
    assert isinstance(page, Page) and page._repr_html_().startswith("<iframe srcdoc=")
    text = capfd.readouterr().out
    assert "race (certain)" in text and "cell.py:6" in text
    assert peerlane("check", "import peerlane as pl; pl.device(0).allocate(8).close()") is None


def test_bench_shows_its_plots(capfd: pytest.CaptureFixture[str]) -> None:
    page = peerlane("bench copy --sizes 64 --rounds 1")
    assert isinstance(page, Page) and "<svg" in page.html
    assert "64 B" in capfd.readouterr().out


def test_extension_registers_the_magic() -> None:
    class Shell:
        def register_magic_function(self, function: object, kind: str, name: str) -> None:
            self.registered = (function, kind, name)

    shell = Shell()
    load_ipython_extension(shell)
    assert shell.registered == (peerlane, "line_cell", "peerlane")


@contextlib.contextmanager
def kernel() -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """Start a stand-in for a kernel, and wait until the ranks of its cell run; yield it with their pids."""
    with subprocess.Popen(
        [sys.executable, "-c", KERNEL], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline().split() for _ in range(2)]
            yield process, [int(line[-1]) for line in lines]
        finally:
            process.kill()


def await_end(pids: list[int]) -> None:
    """Wait until none of the processes runs."""
    until = time.monotonic() + 60
    while [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < until, pids
        time.sleep(0.05)


def test_interrupt_of_the_kernel_ends_the_ranks_of_a_cell() -> None:
    with kernel() as (process, pids):
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        assert out.splitlines()[-1] == "interrupted" and process.returncode == 0
        await_end(pids)


def test_end_of_the_kernel_ends_the_ranks_of_a_cell() -> None:
    with kernel() as (process, pids):
        process.kill()
        await_end(pids)


def test_example_runs_cell_by_cell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cells = [each for each in json.loads(NOTEBOOK.read_text())["cells"] if each["cell_type"] == "code"]
    assert not [each for each in cells if each["outputs"] or each["execution_count"]]
    names: dict[str, object] = {}
    shown: list[object] = []
    for cell in cells:
        first, _, rest = "".join(cell["source"]).partition("\n")
        if first.startswith("%%peerlane "):
            shown.append(peerlane(first.removeprefix("%%peerlane "), rest))
        elif first.startswith("%peerlane "):
            shown.append(peerlane(first.removeprefix("%peerlane ")))
        elif not first.startswith("%load_ext"):
            *lines, last = "".join(cell["source"]).splitlines()
            exec("\n".join(lines), names)
            shown.append(eval(last, names))
    assert [type(each).__name__ for each in shown] == ["Devices", "Trace", "NoneType", "Page", "NoneType"]
    text = capfd.readouterr().out
    assert "[1] 28" in text and "race (certain)" in text
