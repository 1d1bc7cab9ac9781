"""The options that describe a virtual node, shared by the commands that use one."""

from __future__ import annotations

import argparse
import os

from .parser import whole_number

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from peerlane.backends.virtual.node import NodeConfig

# `peerlane run` would wait for the import of what describes a node; so it is imported where it is used.


class _ProfileNames:
    """The names of the profiles, looked up when a help text shows them."""

    def __str__(self) -> str:
        from peerlane.backends.virtual.node import PROFILES

        return ", ".join(PROFILES)


def add_node_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--node``, ``--devices``, ``--switch`` and ``--profile`` to ``parser``."""
    group = parser.add_argument_group("virtual node")
    group.add_argument(
        "--node",
        metavar="SPEC_OR_FILE",
        help="a TOML file, or inline such as 'devices=8,switch=4,memory=16GiB' (default: $PEERLANE_NODE)",
    )
    group.add_argument("--devices", type=whole_number, metavar="N", help="number of devices")
    group.add_argument("--switch", type=whole_number, metavar="M", help="devices per switch")
    profile = group.add_argument("--profile", metavar="P", help="the machine to imitate: %(names)s")
    vars(profile)["names"] = _ProfileNames()


def node_from(args: argparse.Namespace) -> NodeConfig:
    """Return the node that the options describe: that of ``--node`` or the environment, changed by the other options.

    Raises InvalidValue: the node is not valid, perhaps only after an option changed it; ``fault`` is ``BAD_CONFIG``.
    """
    from peerlane.backends.virtual.node import NodeConfig

    base = (
        NodeConfig.from_environment() if args.node is None else NodeConfig.resolve(args.node, source="--node")
    )
    return base.replace(source="command line", devices=args.devices, switch=args.switch, profile=args.profile)


def node_spec_from(args: argparse.Namespace) -> str:
    """Return what ``PEERLANE_NODE`` is to be for a program, on any back-end; errors as :func:`node_from`."""
    from pathlib import Path

    from peerlane.backend import registry
    from peerlane.backend.settings import bad_config, is_file

    text, source = (
        (os.environ.get(registry.VARIABLE, ""), registry.VARIABLE)
        if args.node is None
        else (args.node, "--node")
    )
    name, settings = registry.split(text, source)
    if name == registry.DEFAULT:
        return node_from(args).spec
    overrides = [f"--{flag}" for flag in ("devices", "switch", "profile") if getattr(args, flag) is not None]
    if overrides:
        raise bad_config(
            "command line",
            f"{' and '.join(overrides)} cannot change a node of back-end {name!r}; valid: the back-end's own "
            f"settings in --node or {registry.VARIABLE}, such as 'backend={name},devices=2'",
        )
    registry.factory_of(name, source).configure(settings, source)
    return str(Path(text).resolve()) if is_file(text) else text
