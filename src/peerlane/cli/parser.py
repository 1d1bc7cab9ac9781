"""The parser of the command line: help with examples, and close names for what is misspelt."""

from __future__ import annotations

import argparse
import os

from peerlane.support.spelling import did_you_mean

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Examples = Sequence[tuple[str, str]]


class Help(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of descriptions and examples, and uses at most 100 columns."""

    def __init__(self, prog: str, **more: object) -> None:
        super().__init__(prog, max_help_position=26, **more)  # type: ignore[arg-type]
        self._width = min(self._width, 98)


class Parser(argparse.ArgumentParser):
    """Refuses unknown words itself, so that the usage shown is the command's and not that of ``peerlane``."""

    #: Returns the commands that have an option; who makes the parser knows them.
    commands_with: Callable[[str], Sequence[str]] = staticmethod(lambda option: ())

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            first = unknown[0].partition("=")[0]
            close = did_you_mean(first, self._option_string_actions) if first.startswith("-") else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{close or self._has(first)}")
        return parsed, unknown

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            valid = [*map(str, action.choices)]
            hint = did_you_mean(value, valid) or self._hint_for(action, str(value))
            raise argparse.ArgumentError(action, f"{value!r} is not valid{hint}; valid: {', '.join(valid)}")

    def _hint_for(self, action: argparse.Action, value: str) -> str:
        """Return what an error adds behind a word that is no choice but means something elsewhere."""
        if isinstance(action, argparse._SubParsersAction):
            if f"--{value}" in self._option_string_actions:
                return f" (write {self.prog} --{value})"
            return (
                f" (write {self.prog} run {value})" if os.access(value, os.R_OK) else self._has(f"--{value}")
            )
        several = value.split(",")
        if isinstance(action, argparse._AppendAction) and {*several} <= {*map(str, action.choices or ())}:
            option = action.option_strings[0]
            return f" (write {' '.join(f'{option} {each}' for each in several)})"
        return ""

    def _has(self, option: str) -> str:
        commands = self.commands_with(option) if option.startswith("--") else ()
        if commands:
            return f" ({option} is an option of {' and '.join(commands)})"
        if "--node" in self._option_string_actions:
            from peerlane.backends.virtual.node.config import KEYS

            if (setting := option[2:].replace("-", "_")) in KEYS:
                return f" (a setting of the node: write --node {setting}=...)"
        return ""


def whole_number(text: str) -> int:
    """Return the number that a word of the command line is."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def shown(examples: Examples) -> str:
    """Return examples as the end of a help text: each command, and below it what it does."""
    return "\n".join(["examples:", *(f"  {command}\n      {does}" for command, does in examples)])
