"""A second machine's network: a namespace that a virtual cable, or a line that loses frames, joins to this one."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from helpers.absent import absent

_SECONDS = 60.0
_numbers = itertools.count()


class OtherNetwork:
    """A namespace.

    Attributes
    ----------
    here, there : str
        The addresses of the two ends.
    interfaces : tuple of str
        The network interfaces here and there.
    prefix : list of str
        The words before a command that is to run there.
    """

    def __init__(self, name: str, near: str, far: str) -> None:
        self._name, self.near, self.far = name, near, far
        self.interfaces = name, "far"
        self.prefix = ["ip", "netns", "exec", name]

    # At this end the route would go too, and what is sent there would leave the machine by another interface.
    def cut(self) -> None:
        """Let nothing pass any more; neither end is told."""
        _ip("-n", self._name, "link", "set", "far", "down")

    def mend(self) -> None:
        """Let all pass again."""
        _ip("-n", self._name, "link", "set", "far", "up")


@contextlib.contextmanager
def other_network() -> Iterator[OtherNetwork]:
    """Make a network for a test, and remove it at the end; skip the test by name where there cannot be one.

    It needs root, the program ``ip`` of iproute2, and a kernel that makes namespaces.
    """
    if os.geteuid() or not shutil.which("ip"):
        absent("network namespaces need root and iproute2")
    name, (near, far) = f"pl{os.getpid()}", new_addresses()
    commands: Sequence[Sequence[str]] = (
        ("netns", "add", name),
        ("link", "add", name, "type", "veth", "peer", "name", "far", "netns", name),
        ("address", "add", f"{near}/30", "dev", name),
        ("link", "set", name, "up"),
        ("-n", name, "address", "add", f"{far}/30", "dev", "far"),
        ("-n", name, "link", "set", "far", "up"),
        ("-n", name, "link", "set", "lo", "up"),
    )
    try:
        try:
            for words in commands:
                _ip(*words)
        except subprocess.CalledProcessError as error:
            absent(f"this machine makes no network namespaces: {error.stderr.decode().strip()}")
        yield OtherNetwork(name, near, far)
    finally:
        # The kernel removes the cable of a deleted namespace some time later, and the next one's has the same name.
        for words in (("link", "delete", name), ("netns", "delete", name)):
            subprocess.run(["ip", *words], check=False, capture_output=True, timeout=_SECONDS)


@contextlib.contextmanager
def lossy_network(seed: int, lost: float) -> Iterator[OtherNetwork]:
    """Make a network whose line loses a share of its frames, drawn by ``seed``; skip where there cannot be one.

    It is a second line to the namespace of `other_network`, with interfaces and addresses of its own.
    """
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        absent("a line that loses frames needs /dev/net/tun")
    tap, (near, far) = f"tap{os.getpid()}", new_addresses()
    with other_network() as network:
        namespace = network.prefix[-1]
        words = [sys.executable, str(Path(__file__).parent / "lossy_line.py"), namespace, tap]
        with subprocess.Popen([*words, str(seed), str(lost)], stdout=subprocess.PIPE, text=True) as line:
            try:
                assert line.stdout is not None
                assert line.stdout.readline() == "ready\n"
                for command in (
                    ("address", "add", f"{near}/30", "dev", tap),
                    ("link", "set", tap, "up"),
                    ("-n", namespace, "address", "add", f"{far}/30", "dev", "lossy"),
                    ("-n", namespace, "link", "set", "lossy", "up"),
                ):
                    subprocess.run(["ip", *command], check=True, capture_output=True, timeout=60)
                network.near, network.far = near, far
                network.interfaces = tap, "lossy"
                yield network
            finally:
                line.kill()


def new_addresses() -> tuple[str, str]:
    """Return two addresses of 10.64.0.0/10, new ones at each call: the system remembers routes to old ones."""
    number = (os.getpid() << 6 | next(_numbers) % 64) % (1 << 20)
    first = ipaddress.ip_address("10.64.0.0") + 4 * number
    return str(first + 1), str(first + 2)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=_SECONDS)
