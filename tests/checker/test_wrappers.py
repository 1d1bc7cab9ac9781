"""Findings of programs that make their calls by wrappers of their own name the lines that use the wrappers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checker.checking import Checked, checked_program
from peerlane.checker import texts

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

CALLS = """\
import functools

def call(function, *arguments, **named):
    return function(*arguments, **named)  # innermost

def logged(function):
    @functools.wraps(function)
    def inner(*arguments, **named):
        return call(function, *arguments, **named)
    return inner
"""
PROGRAM = """\
import peerlane as pl
from calls import call, logged

class Memory:
    def __init__(self, device, size):
        self.buffer = call(device.allocate, size)

    @logged
    def do(self, verb, *arguments, **named):
        return getattr(self.buffer, verb)(*arguments, **named)

    @logged
    def first(self):
        return int(self.buffer.view()[0])  # read

device = pl.devices()[0]
one, other = (call(device.create_stream) for _ in range(2))
memory, copy = Memory(device, 4096), Memory(device, 4096)
memory.do("fill", 1, stream=one)  # fill
copy.do("copy_from", memory.buffer, stream=other)  # copy
MORE
call(one.sync, 20)
call(other.sync, 20)
"""


def checked_wrappers(folder: Path, more: str = "") -> Checked:
    (folder / "calls.py").write_text(CALLS)
    program = folder / "program.py"
    program.write_text(PROGRAM.replace("MORE", more))
    return checked_program(program, devices=2)


def line_of(text: str, mark: str) -> int:
    return next(at for at, line in enumerate(text.splitlines(), 1) if line.endswith(f"# {mark}"))


def named(finding: dict[str, Any]) -> set[tuple[str, int]]:
    return {(Path(file).name, line) for file, line in map(texts.named_line, finding["sites"])}


def test_nested_wrappers_and_decorated_methods_are_named_by_the_lines_that_use_them(tmp_path: Path) -> None:
    done = checked_wrappers(tmp_path)
    (race,) = done.findings
    fill, copy = line_of(PROGRAM, "fill"), line_of(PROGRAM, "copy")
    assert named(race) == {("program.py", fill), ("program.py", copy)}, done.output
    assert f"line {fill}" in race["missing"] and f"line {copy}" in race["missing"], done.output
    for site in race["sites"]:  # the wrappers are shown, too
        frames = [
            (Path(site["file"]).name, site["line"]),
            *((Path(f).name, n) for f, n, _ in site["callers"]),
        ]
        assert len(frames) > site["helpers"] > 0
    source = f"{fill} | " + PROGRAM.splitlines()[fill - 1]
    assert source in done.stderr, done.output


def test_line_of_a_method_with_one_operation_is_named_itself(tmp_path: Path) -> None:
    done = checked_wrappers(tmp_path, "print(memory.first())")
    read = line_of(PROGRAM, "read")
    races = [each for each in done.findings if ("program.py", read) in named(each)]
    assert len(races) == 1, done.output
    assert f"before line {read}" in races[0]["missing"], done.output
    (site,) = (each for each in races[0]["sites"] if each["line"] == read)
    assert site["helpers"] == 0
    # Who called the method by the decorator stands below it.
    assert ["program.py", line_of(PROGRAM, "copy") + 1] in [
        [Path(file).name, line] for file, line, _ in site["callers"]
    ], done.output


def test_two_uses_of_one_wrapper_are_two_findings(tmp_path: Path) -> None:
    done = checked_wrappers(tmp_path, 'copy.do("fill", 3, stream=one)  # second')
    pairs = sorted(sorted(line for _, line in named(each)) for each in done.findings)
    fill, copy = line_of(PROGRAM, "fill"), line_of(PROGRAM, "copy")
    assert [fill, copy] in pairs and [copy, copy + 1] in pairs, done.output


LIBRARY = """\
def outermost(verb, *arguments, **named):
    return outer(verb, *arguments, **named)

def outer(verb, *arguments, **named):
    return middle(verb, *arguments, **named)

def middle(verb, *arguments, **named):
    return inner(verb, *arguments, **named)

def inner(verb, *arguments, **named):
    return innermost(verb, *arguments, **named)

def innermost(verb, *arguments, **named):
    return verb(*arguments, **named)
"""
USER = """\
import peerlane as pl
from deep import outermost

device = pl.devices()[0]
one, other = device.create_stream(), device.create_stream()
memory = device.allocate(4096)
outermost(memory.fill, 1, stream=one)  # first
outermost(memory.fill, 2, stream=other)  # second
outermost(one.sync, 20)
outermost(other.sync, 20)
"""


def test_lines_that_call_a_deep_library_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "deep.py").write_text(LIBRARY)
    program = tmp_path / "program.py"
    program.write_text(USER)
    monkeypatch.setenv("PYTHONPATH", str(library))
    done = checked_program(program, devices=1)
    (race,) = done.findings
    first, second = line_of(USER, "first"), line_of(USER, "second")
    assert {(Path(site["callers"][-1][0]).name, site["callers"][-1][1]) for site in race["sites"]} == {
        ("program.py", first),
        ("program.py", second),
    }
    assert f"{first} | outermost(memory.fill, 1, stream=one)" in done.output
    assert f"{second} | outermost(memory.fill, 2, stream=other)" in done.output


def test_memory_that_a_library_allocates_is_named_by_the_line_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "site-packages"
    library.mkdir()
    (library / "deep.py").write_text(LIBRARY)
    program = tmp_path / "program.py"
    program.write_text(USER.replace("device.allocate(4096)", "outermost(device.allocate, 4096)  # allocated"))
    monkeypatch.setenv("PYTHONPATH", str(library))
    (race,) = checked_program(program, devices=1).findings
    assert race["memory"]["made"] == [str(program), line_of(program.read_text(), "allocated")]
