"""The reference of the command line names each command, option, variable and key of JSON that there is."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest

from peerlane import cli
from peerlane.support import variables

pytestmark = pytest.mark.any_schedule

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "command-line.md").read_text()
SECTIONS = {
    part.partition("\n")[0].strip("`"): part.partition("\n")[2]
    for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)
}
SHARED = ("The node", "The program", "Ranks")


def options_of(text: str) -> set[str]:
    """Return the options in the first cells of a section's tables."""
    cells = re.findall(r"^\| (`-[^|]*`) \|", text, re.MULTILINE)
    return {word for cell in cells for word in re.findall(r"`(--?[a-z][a-z-]*)", cell)}


def parsers() -> dict[str, argparse.ArgumentParser]:
    action = next(
        each for each in cli.build_parser()._actions if isinstance(each, argparse._SubParsersAction)
    )
    return dict(action.choices)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_reference_has_each_option_of_a_command_and_no_other(command: str) -> None:
    section = SECTIONS[f"peerlane {command}"]
    named = options_of(section)
    for title in SHARED:
        if f"(#{title.lower().replace(' ', '-')})" in section:
            named |= options_of(SECTIONS[title])
    options = parsers()[command]._option_string_actions
    of_users = {name for name, action in options.items() if action.help != argparse.SUPPRESS}
    assert named == of_users - {"-h", "--help"}


def test_reference_lists_each_command() -> None:
    assert re.findall(r"^\| \[`peerlane ([\w-]+)`\]", PAGE, re.MULTILINE) == list(cli.COMMANDS)


def test_reference_lists_each_variable_and_no_other() -> None:
    named = re.findall(r"^\| `(PEERLANE_\w+)` \|", SECTIONS["Variables"], re.MULTILINE)
    assert sorted(named) == sorted(variables.OF_USERS)
