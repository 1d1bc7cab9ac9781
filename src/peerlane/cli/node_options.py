"""The arguments that name and change a virtual node, shared by the commands that use one."""

from __future__ import annotations

import argparse

from peerlane.backends.virtual.node import PROFILES, NodeConfig


def add_node_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--node``, ``--devices``, ``--switch`` and ``--profile`` to ``parser``."""
    group = parser.add_argument_group("virtual node")
    group.add_argument(
        "--node",
        metavar="SPEC_OR_FILE",
        help="a TOML file, or inline such as 'devices=8,switch=4,memory=16GiB' (default: $PEERLANE_NODE)",
    )
    group.add_argument("--devices", type=int, metavar="N", help="number of devices")
    group.add_argument("--switch", type=int, metavar="M", help="devices per switch")
    group.add_argument("--profile", metavar="P", help=f"what machine to be: {', '.join(PROFILES)}")


def node_from(args: argparse.Namespace) -> NodeConfig:
    """Return the node that the arguments ask for: ``--node`` or the environment, then the other flags.

    Raises
    ------
    InvalidValue
        The node, or what a flag makes of it, is not valid; ``fault`` is ``BAD_CONFIG``.
    """
    base = (
        NodeConfig.from_environment() if args.node is None else NodeConfig.resolve(args.node, source="--node")
    )
    return base.replace(source="command line", devices=args.devices, switch=args.switch, profile=args.profile)
