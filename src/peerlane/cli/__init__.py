"""The command line: one module per command, imported when that command is called.

A command module has ``HELP`` (one line), ``DESCRIPTION`` and ``EXAMPLES`` for its help, ``add_arguments(parser)`` and
``run(args) -> int`` (the exit code).
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys

import peerlane
from peerlane.cli.parser import Help, Parser, shown
from peerlane.cli.stdout import BrokenOutput, collected_output
from peerlane.errors import Error
from peerlane.support.variables import misspelt

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

COMMANDS = ("run", "launch", "check", "topo", "ps", "doctor", "bench", "c-abi", "completion")

_ABOUT = """\
Moves and shares device memory on virtual devices, which need no hardware.
`peerlane help COMMAND` shows the options of a command, with examples."""
_EXAMPLES = (
    ("peerlane run prog.py", "run a program for CUDA, HIP, pyACL, HCOMM, NIXL or Mooncake"),
    ("peerlane launch -n 4 ranks.py", "run four processes of a program, which meet and share memory"),
    ("peerlane check prog.py", "name the accesses to memory that nothing orders"),
)


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


def module_of(command: str) -> ModuleType:
    """Return the module of a command."""
    return importlib.import_module(f"{__name__}.{command.replace('-', '_')}")


def build_parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser of ``peerlane``, with a sub-parser per command in ``names``."""
    parser = Parser(prog="peerlane", description=_ABOUT, epilog=shown(_EXAMPLES), formatter_class=Help)
    parser.commands_with = _commands_with
    parser.add_argument("--version", action=_Version, help="show the version of peerlane and of Python")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    for name in names:
        module = module_of(name)
        sub = commands.add_parser(
            name,
            help=module.HELP,
            description=module.DESCRIPTION,
            epilog=shown(module.EXAMPLES),
            formatter_class=Help,
        )
        sub.commands_with = _commands_with
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return parser


def _commands_with(option: str) -> list[str]:
    """Return the commands that have an option."""
    having = []
    for name in COMMANDS:
        parser = Parser(add_help=False)
        module_of(name).add_arguments(parser)
        having += [name] * (option in parser._option_string_actions)
    return having


def _warn_of_variables(called: str) -> None:
    """Warn of variables that look like misspelt ones of peerlane, which would have no effect."""
    for name, meant in misspelt(os.environ):
        print(
            f"{called}: the variable {name} means nothing to peerlane; did you mean {meant}?", file=sys.stderr
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a peerlane error is printed without a traceback."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    if not words:
        build_parser().print_help(sys.stderr)
        return 2
    if words[0] == "--version":
        chosen: Sequence[str] = ()  # the modules of the commands take half a second
    else:
        chosen = words[:1] if words[0] in COMMANDS else COMMANDS
    called = " ".join(["peerlane", *chosen]) if len(chosen) == 1 else "peerlane"
    _warn_of_variables(called)
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
