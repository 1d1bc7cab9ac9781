"""A second machine's network: a namespace that a virtual cable, or a line that loses frames, joins to this one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from helpers.absent import absent
from peerlane.cli.bench import networks
from peerlane.cli.bench.networks import NoNetwork, OtherNetwork

__all__ = ["OtherNetwork", "lossy_network", "other_network"]


@contextlib.contextmanager
def other_network() -> Iterator[OtherNetwork]:
    """Make a network for a test; skip the test by name where there cannot be one."""
    with contextlib.ExitStack() as stack:
        try:
            network = stack.enter_context(networks.other_network())
        except NoNetwork as none:
            absent(str(none))
        yield network


@contextlib.contextmanager
def lossy_network(seed: int, lost: float) -> Iterator[OtherNetwork]:
    """Make a network whose line loses a share of its frames, drawn by ``seed``; skip where there cannot be one.

    It is a second line to the namespace of `other_network`, with interfaces and addresses of its own.
    """
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        absent("a line that loses frames needs /dev/net/tun")
    tap, (here, there) = f"tap{os.getpid()}", networks.new_addresses()
    with other_network() as network:
        namespace = network.prefix[-1]
        words = [sys.executable, str(Path(__file__).parent / "lossy_line.py"), namespace, tap]
        with subprocess.Popen([*words, str(seed), str(lost)], stdout=subprocess.PIPE, text=True) as line:
            try:
                assert line.stdout is not None
                assert line.stdout.readline() == "ready\n"
                for command in (
                    ("address", "add", f"{here}/30", "dev", tap),
                    ("link", "set", tap, "up"),
                    ("-n", namespace, "address", "add", f"{there}/30", "dev", "lossy"),
                    ("-n", namespace, "link", "set", "lossy", "up"),
                ):
                    subprocess.run(["ip", *command], check=True, capture_output=True, timeout=60)
                network.here, network.there = here, there
                network.interfaces = tap, "lossy"
                yield network
            finally:
                line.kill()
