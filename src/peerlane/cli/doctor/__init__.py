"""``peerlane doctor``: what this machine has of what peerlane uses, as a text to paste into an issue.

``system`` tries the kernel and reads the limits, ``surroundings`` looks for other software and settings, and
``programs`` are run in processes of their own: the self-test, and UCX.
"""

from __future__ import annotations

import argparse
import sys
import textwrap

from rich.console import Console
from rich.text import Text

from peerlane.cli.doctor import surroundings, system
from peerlane.cli.doctor.finding import ABSENT, FINE, LIMITED, MISSING, Finding
from peerlane.cli.doctor.redaction import Redaction
from peerlane.cli.outputs import add_json_argument, check_json, show_progress, show_result

HELP = "say what this machine has of what peerlane uses"
DESCRIPTION = """\
Says what this machine has of what peerlane uses, what does not work without the
rest, and what to do. The text is to paste into an issue: it names no user, home
folder or secret. Exits with 1 if something that peerlane needs is not there."""
EXAMPLES = (("peerlane doctor", "the text"), ("peerlane doctor --json", "for programs"))

_WIDTH = 80
_WHAT = 22
_INDENT = 9
_SIGNS = {FINE: "ok", ABSENT: "--", LIMITED: "!!", MISSING: "XX"}
_COLOURS = {FINE: "green", ABSENT: "dim", LIMITED: "yellow", MISSING: "bold red"}
_MEANINGS = {
    FINE: "there, or works",
    ABSENT: "not there, and needed only for what is said",
    LIMITED: "not as it should be: something does not work",
    MISSING: "not there, and peerlane needs it",
}
_SECTIONS = {
    "Versions": surroundings.versions,
    "Kernel, each call made": system.kernel,
    "Limits": system.limits,
    "Meeting of processes": surroundings.meeting,
    "Other machines": surroundings.other_machines,
    "Other software": surroundings.software,
    "Self-test": surroundings.self_test,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to ``parser``."""
    add_json_argument(parser, then="not at all")


def run(args: argparse.Namespace) -> int:
    """Print what is there; return 1 if something that peerlane needs is not."""
    check_json(args)
    sections = examine()
    missing = [each for findings in sections.values() for each in findings if each.state == MISSING]
    result = {
        "is_usable": not missing,
        "sections": {name: [each.as_json() for each in findings] for name, findings in sections.items()},
    }
    show_result(args, lambda: result, lambda: _draw(sections, missing))
    return 1 if missing else 0


def examine() -> dict[str, list[Finding]]:
    """Return what was found, by section; it names no user, home folder or secret."""
    redaction = Redaction()
    sections = {}
    with show_progress() as progress:
        task = progress.add_task("", total=len(_SECTIONS))
        for name, look in _SECTIONS.items():
            progress.update(task, description=name)
            try:
                findings = look()
            except Exception as error:  # noqa: BLE001 - the other sections are shown
                failure = f"the look failed: {type(error).__name__}: {error}"
                findings = [
                    Finding(
                        name, failure, MISSING, "what this section would tell", "report it, with this text"
                    )
                ]
            sections[name] = [redaction.of(each) for each in findings]
            progress.advance(task)
    return sections


def _draw(sections: dict[str, list[Finding]], missing: list[Finding]) -> None:
    console = Console(file=sys.stdout, highlight=False)
    used = set()
    for name, findings in sections.items():
        console.print(Text(name, style="bold"), soft_wrap=True)
        for each in findings:
            used.add(each.state)
            _draw_finding(each, console)
        console.print()
    for state in (each for each in _SIGNS if each in used):
        console.print(Text(f"  {_SIGNS[state]}  {_MEANINGS[state]}", style="dim"), soft_wrap=True)
    verdict = (
        f"Missing: {', '.join(each.what for each in missing)}. peerlane does not work here before that is mended."
        if missing
        else "All that peerlane needs is there."
    )
    for line in textwrap.wrap(verdict, _WIDTH):
        console.print(Text(line, style=_COLOURS[MISSING if missing else FINE]), soft_wrap=True)


def _draw_finding(finding: Finding, console: Console) -> None:
    start = f"  {_SIGNS[finding.state]}  {finding.what.ljust(_WHAT)}  "
    first, *more = _wrapped(finding.found, start, " " * len(start))
    line = Text(first)
    line.stylize(_COLOURS[finding.state], 2, 4)
    console.print(line, soft_wrap=True)
    for label, text in (("does not work: ", finding.lost), ("to do: ", finding.remedy)):
        if text:
            more += _wrapped(text, " " * _INDENT + label, " " * (_INDENT + 2))
    for each in more:
        console.print(Text(each), soft_wrap=True)


def _wrapped(text: str, first: str, following: str) -> list[str]:
    """Break a text into lines; a path is broken too, so that no line is longer than the width."""
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=following, break_on_hyphens=False
    ) or [first.rstrip()]
