"""The parser of the command line: help with examples, and close names for what is misspelt."""

from __future__ import annotations

import argparse

from peerlane.support.spelling import did_you_mean

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Sequence

    Examples = Sequence[tuple[str, str]]


class Help(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of descriptions and examples, and uses at most 100 columns."""

    def __init__(self, prog: str, **more: object) -> None:
        super().__init__(prog, max_help_position=26, **more)  # type: ignore[arg-type]
        self._width = min(self._width, 98)


class Parser(argparse.ArgumentParser):
    """Refuses unknown words itself, so that the usage shown is the command's and not that of ``peerlane``."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            first = unknown[0].partition("=")[0]
            close = did_you_mean(first, self._option_string_actions) if first.startswith("-") else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{close}")
        return parsed, unknown

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            valid = [*map(str, action.choices)]
            raise argparse.ArgumentError(
                action, f"{value!r} is not valid{did_you_mean(value, valid)}; valid: {', '.join(valid)}"
            )


def shown(examples: Examples) -> str:
    """Return examples as the end of a help text: each command, and below it what it does."""
    return "\n".join(["examples:", *(f"  {command}\n      {does}" for command, does in examples)])
