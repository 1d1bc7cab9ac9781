"""The options that describe a virtual node, shared by the commands that use one."""

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
    group.add_argument("--profile", metavar="P", help=f"the machine to imitate: {', '.join(PROFILES)}")


def node_from(args: argparse.Namespace) -> NodeConfig:
    """Return the node that the options describe: that of ``--node`` or the environment, changed by the other options.

    Raises
    ------
    InvalidValue
        The node is not valid, perhaps only after an option changed it; ``fault`` is ``BAD_CONFIG``.
    """
    base = (
        NodeConfig.from_environment() if args.node is None else NodeConfig.resolve(args.node, source="--node")
    )
    return base.replace(source="command line", devices=args.devices, switch=args.switch, profile=args.profile)
