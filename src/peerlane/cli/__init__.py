"""The command line: one module per command, imported when that command is called.

A command module has ``HELP`` (one line), ``add_arguments(parser)`` and ``run(args) -> int`` (the exit code).
"""

from __future__ import annotations

import argparse
import importlib
import sys

import peerlane
from peerlane.cli.stdout import BrokenOutput, collected_output
from peerlane.errors import Error

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = ("run", "launch", "check", "demo", "topo", "ps", "doctor", "bench")


class _Version(argparse.Action):
    """Prints the version; looking it up takes time, so no other command does."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(
            option_strings, dest=argparse.SUPPRESS, default=argparse.SUPPRESS, nargs=0, help=help
        )

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        import platform

        with collected_output():
            print(f"peerlane {peerlane.__version__} (Python {platform.python_version()})")
        parser.exit()


class _Command(argparse.ArgumentParser):
    """Refuses unknown words itself, so that the usage shown is the command's and not that of ``peerlane``."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def build_parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser of ``peerlane``, with a sub-parser per command in ``names``."""
    parser = argparse.ArgumentParser(prog="peerlane", description="Virtual devices that move real bytes.")
    parser.add_argument("--version", action=_Version, help="show the version of peerlane and of Python")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Command)
    for name in names:
        module = importlib.import_module(f"{__name__}.{name}")
        sub = commands.add_parser(name, help=module.HELP, description=module.HELP)
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a peerlane error is printed without a traceback."""
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = words[:1] if words and words[0] in COMMANDS else COMMANDS
    called = " ".join(["peerlane", *chosen]) if len(chosen) == 1 else "peerlane"
    try:
        args = build_parser(chosen).parse_args(words)
        if args.command in ("run", "launch", "check"):  # standard output belongs to the program
            code: int = args.run(args)
            return code
        with collected_output():
            return int(args.run(args))
    except BrokenOutput as error:
        if error.is_quiet:
            return error.exit_code
        print(f"{called}: {error}", file=sys.stderr)
        return error.exit_code
    except Error as error:
        print(f"{called}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{called}: interrupted", file=sys.stderr)
        return 130
