"""The programs of a documentation page; the first comment of each gives its name and its command."""

from __future__ import annotations

import importlib.machinery
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from helpers.prepared import run_python
from peerlane.testing.procs import Completed

_FIRST = re.compile(r"# (?P<name>[\w.]+\.py)(?: - run it with:  (?P<command>\S.*))?\n")
_PRINTS = re.compile(r"^\s*print\(.*\)  # (.+)$")
_RAISES = re.compile(r"^.*\S  # ([A-Z]\w+: .+)$")


@dataclass(frozen=True)
class Program:
    """A program of a page.

    Attributes
    ----------
    name, code : str
    words : list of str
        The words behind ``python`` that run it.
    """

    name: str
    code: str
    words: list[str]

    @property
    def prints(self) -> list[str]:
        """The lines that it prints, as its comments say."""
        return [matched[1] for line in self.code.splitlines() if (matched := _PRINTS.match(line))]

    @property
    def raises(self) -> str:
        """The error that it ends with, as a comment says, which may go on in the next lines."""
        lines = self.code.splitlines()
        for number, line in enumerate(lines):
            if (matched := _RAISES.match(line)) and not _PRINTS.match(line):
                text = [matched[1]]
                for following in lines[number + 1 :]:
                    if not following.startswith("#  "):
                        break
                    text.append(following.lstrip("# "))
                return " ".join(text)
        return ""

    def run(self, folder: Path, environment: Mapping[str, str]) -> Completed:
        """Run it from its folder."""
        return run_python(self.words, timeout=90, cwd=folder, env=environment)


def programs(page: str) -> list[Program]:
    """Return the programs of a page that have a name."""
    matched = []
    for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        first = _FIRST.match(code)
        if first is not None:
            command = (first["command"] or f"python {first['name']}").split()
            words = command[1:] if command[0] == "python" else ["-m", *command]
            matched.append(Program(first["name"], code, words))
    return matched


def has_promised_words(text: str, promised: str) -> bool:
    """Tell whether a text has the promised words; ``...`` stands for anything."""
    flat, parts = (
        " ".join(text.split()),
        (re.escape(" ".join(part.split())) for part in promised.split("...")),
    )
    return re.search(r"\s?.*\s?".join(parts), flat) is not None


def check(
    done: Completed | subprocess.CompletedProcess[str], program: Program, prints: list[str], raises: str
) -> None:
    """Check that a program printed and raised what its comments say."""
    assert done.returncode == (1 if raises else 0), done.stderr
    lines = re.sub(r"^\[\d+\] ", "", done.stdout, flags=re.MULTILINE).splitlines()
    assert program.prints or program.raises
    for number, promised in enumerate(prints):
        rest = lines[number] if number < len(prints) - 1 else "\n".join(lines[number:])
        assert has_promised_words(rest, promised), (promised, done.stdout)
    assert has_promised_words(done.stderr, raises), (raises, done.stderr)


def shadowed(names: Iterable[str]) -> set[str]:
    """Return the programs whose names are modules of the standard library or of installed packages."""
    stems = {name.removesuffix(".py") for name in names}
    paths = [sysconfig.get_path(kind) for kind in ("purelib", "platlib")]
    installed = {stem for stem in stems if importlib.machinery.PathFinder.find_spec(stem, paths)}
    return (stems & set(sys.stdlib_module_names)) | installed


def repaired(page: str, program: str) -> str:
    """Return a program with the changes of the page's diffs."""
    for diff in re.findall(r"```diff\n(.*?)```", page, re.DOTALL):
        lines = diff.splitlines(keepends=True)
        before, behind = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
        assert program.count(before) == 1, before
        program = program.replace(before, behind)
    return program


def follow(page: str, folder: Path) -> list[str]:
    """Do what a page says, in its order: write its programs, change them by its diffs, run its ``peerlane`` commands.

    A command must print each line that the page shows, and exit with 3 where the page shows a certain finding.  Of a
    finding the places and the lines of source are compared: which rank's is shown, and its process, is chance.

    Returns
    -------
    list of str
        The commands.
    """
    followed, program = [], folder / "none"
    for kind, text in re.findall(r"```(python|diff|console)\n(.*?)```", page, re.DOTALL):
        if kind == "python":
            [named] = programs(f"```python\n{text}```")
            program = folder / named.name
            program.write_text(text)
        elif kind == "diff":
            program.write_text(repaired(f"```diff\n{text}```", program.read_text()))
        else:
            for command, shown in re.findall(r"^\$ (peerlane .*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
                done = run_python(["-m", *command.split()], timeout=150, cwd=folder)
                output = done.stdout + done.stderr
                assert done.returncode == (3 if "certain finding" in shown else 0), output
                if "certain finding" in shown:
                    assert len(seen(shown)) >= 2
                    assert seen(shown) <= seen(output), output
                else:
                    lines = output.splitlines()
                    assert [
                        each for each in shown.splitlines() if each != "..." and each not in lines
                    ] == [], output
                followed.append(command)
    return followed


def seen(text: str) -> set[str]:
    """Return the places and the lines of source in a text."""
    return {
        *re.findall(r"\w+\.py:\d+", text),
        *re.findall(r"^(?: +\d+ \||[>E] ) +(\S.*)$", text, re.MULTILINE),
    }
