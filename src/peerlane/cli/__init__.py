"""The command line: one module per command, loaded when asked for.

A command module has ``HELP`` (one line), ``add_arguments(parser)`` and ``run(args) -> int`` (the exit code).
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from ..errors import Error

COMMANDS = ("run", "demo", "topo", "bench")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``peerlane``, with a sub-parser per command."""
    parser = argparse.ArgumentParser(prog="peerlane", description="Virtual devices that move real bytes.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = importlib.import_module(f"{__name__}.{name}")
        sub = commands.add_parser(name, help=module.HELP, description=module.HELP)
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a peerlane error is printed without a traceback."""
    args = build_parser().parse_args(argv)
    try:
        code: int = args.run(args)
    except Error as error:
        print(f"peerlane {args.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"peerlane {args.command}: interrupted", file=sys.stderr)
        return 130
    return code
