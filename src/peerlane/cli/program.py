"""The part that ``run`` and ``launch`` share: the program's words, its node and its dialects."""

from __future__ import annotations

import argparse
import os
import sys

from peerlane.dialects import install, registered, unasked
from peerlane.errors import InvalidValue

from .native import located, set_library_path
from .node_options import add_node_arguments, node_spec_from


def add_program_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that stand before the program; all words behind it are the program's."""
    parser.usage = "%(prog)s [options] (SCRIPT | -m MODULE | -c CODE) [ARGS ...]"
    parser.allow_abbrev = False  # else argparse takes a program's "--d" for an ambiguous option of peerlane
    add_node_arguments(parser)
    parser.add_argument(
        "--dialect",
        action="append",
        choices=registered(),
        help="serve this vendor's modules and libraries only; may be repeated (default: all, but no vendor's whose "
        "driver is on this machine)",
    )
    parser.add_argument(
        "--shadow-real",
        action="store_true",
        help="use virtual devices even where the vendor's own module or driver finds real ones",
    )
    parser.add_argument(
        "--fault",
        action="append",
        type=_fault,
        metavar="FAULT",
        help="kill:rank=R,op=N kills rank R at its N-th logged event, delay:rank=R,op=N,ms=M delays it, and seed:S "
        "draws one of these; may be repeated",
    )
    parser.add_argument(
        "--leaks",
        action="store_true",
        help="say at the end of each process what it did not free, and which line made it",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="say at the end of each process why the last call of each vendor failed, with the program's line",
    )
    names = parser.add_mutually_exclusive_group()
    for name, module in (
        ("cuda", "torch.cuda of PyTorch's build for the processor"),
        ("npu", "torch_npu of PyTorch"),
    ):
        names.add_argument(
            f"--torch-{name}",
            dest="torch_device",
            action="store_const",
            const=name,
            help=f"virtual devices are the device {name} and {module}; needs a C++ compiler once",
        )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("-m", dest="form", action="store_const", const="-m", help="run a module")
    form.add_argument("-c", dest="form", action="store_const", const="-c", help="run source text")
    # PARSER means "one word, then anything"; REMAINDER would take options before the word too, and stop at "--"
    parser.add_argument(
        "program",
        nargs=argparse.PARSER,
        metavar="SCRIPT | MODULE | CODE",
        help="the program, then its arguments",
    )


def _fault(text: str) -> str:
    from peerlane.backends.virtual.node import faults  # as every start would wait for it

    try:
        faults.parse(text, "", 1)
    except InvalidValue as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def set_up_node(args: argparse.Namespace) -> None:
    """Set the node, and with ``--explain`` and ``--leaks`` the reports at the end, for this process and its children.

    Raises InvalidValue: the node is not valid.
    """
    if any(flag is not None for flag in (args.node, args.devices, args.switch, args.profile)):
        os.environ["PEERLANE_NODE"] = node_spec_from(args)
    if args.explain:
        os.environ["PEERLANE_EXPLAIN"] = "1"
    if args.leaks:
        from peerlane.node import left_at_end  # as every start would wait for it

        os.environ[left_at_end.VARIABLE] = "1"
        left_at_end.begin()


def set_up_program(args: argparse.Namespace) -> None:
    """Set the node and the dialects, for this process and its children, and ``sys.argv``.

    Raises InvalidValue: the node is not valid.
    Raises Unsupported: the vendor's own module is there and finds a device.
    """
    set_up_node(args)
    sys.argv = args.program[1:] if args.program[0] == "--" else args.program
    if args.form is None:
        sys.argv[0] = located(sys.argv[0])
    for name in args.dialect or unasked(shadow_real=args.shadow_real):
        install(name, shadow_real=args.shadow_real)
    if args.torch_device:
        from peerlane.torch_names import hook  # as every start would wait for it

        hook.begin(args.torch_device)
    set_library_path()
