"""``peerlane completion``: a script that completes commands and options in a shell."""

from __future__ import annotations

import argparse

from peerlane.cli import build_parser
from peerlane.errors import Unsupported

HELP = "print what completes commands in bash, zsh or fish"
DESCRIPTION = """\
Prints a script that completes commands, options and files in a shell. shtab
makes it, which `pip install 'peerlane[completion]'` brings. To use it:

bash  peerlane completion bash \\
        > ~/.local/share/bash-completion/completions/peerlane
zsh   peerlane completion zsh > _peerlane    (in a folder of $fpath)
fish  peerlane completion fish > ~/.config/fish/completions/peerlane.fish"""
EXAMPLES = (
    ("peerlane completion bash", "the script; eval it to try it in this shell"),
    ("peerlane completion fish", "for fish"),
)

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to ``parser``."""
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    try:
        import shtab
    except ImportError:
        raise Unsupported(
            "shtab makes the script, and is not installed; install the extra: pip install 'peerlane[completion]'"
        ) from None
    parser = build_parser()
    _describe(parser, shtab.FILE)
    print(shtab.complete(parser, args.shell))
    return 0


def _describe(parser: argparse.ArgumentParser, files: object) -> None:
    """Tell shtab what words an option takes."""
    from peerlane.backends.virtual.node import PROFILES

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                _describe(each, files)
        elif action.dest == "profile":
            action.choices = list(PROFILES)
        elif any(word in str(action.metavar) for word in ("FILE", "SCRIPT", "PATH", "PYTHON")):
            action.complete = files  # type: ignore[attr-defined]
