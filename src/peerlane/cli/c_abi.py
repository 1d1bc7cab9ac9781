"""``peerlane c-abi``: where the C libraries with the vendors' functions are."""

from __future__ import annotations

import argparse

from peerlane.c_abi import directory

HELP = "say where the C libraries with the vendors' functions are"
DESCRIPTION = """\
Programs in C and C++ link to the vendor's library by its name. This says in
which folder the libraries are that run on virtual devices. `peerlane run` and
`peerlane launch` let programs find them there; nothing is installed."""
EXAMPLES = (
    ("g++ prog.cpp -L$(peerlane c-abi --print-dir) -lascendcl -o prog", "link a program"),
    ("peerlane c-abi", "list the libraries"),
    ("LD_LIBRARY_PATH=$(peerlane c-abi --print-dir) ./prog", "run it without peerlane's own command"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--print-dir", action="store_true", help="print the folder alone")


def run(args: argparse.Namespace) -> int:
    """Print the folder, or the libraries in it."""
    folder = directory()
    if args.print_dir:
        print(folder)
        return 0
    for library in sorted(folder.glob("lib*.so*")):
        if library.name != "libpeerlane_c.so":  # what they have in common
            print(library)
    return 0
