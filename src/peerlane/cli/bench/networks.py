"""Two networks on one machine: a namespace that a virtual cable joins to this one."""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence

_SECONDS = 60.0
_numbers = itertools.count()


class NoNetwork(Exception):
    """This machine makes no network namespace; the text says why."""


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

    def __init__(self, name: str, here: str, there: str) -> None:
        self._name, self.here, self.there = name, here, there
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
    """Make a network, and remove it at the end of the block.

    Raises
    ------
    NoNetwork
        It needs root, the program ``ip`` of iproute2, and a kernel that makes namespaces.
    """
    if os.geteuid() or not shutil.which("ip"):
        raise NoNetwork("network namespaces need root and iproute2")
    name, (here, there) = f"pl{os.getpid()}", new_addresses()
    commands: Sequence[Sequence[str]] = (
        ("netns", "add", name),
        ("link", "add", name, "type", "veth", "peer", "name", "far", "netns", name),
        ("address", "add", f"{here}/30", "dev", name),
        ("link", "set", name, "up"),
        ("-n", name, "address", "add", f"{there}/30", "dev", "far"),
        ("-n", name, "link", "set", "far", "up"),
        ("-n", name, "link", "set", "lo", "up"),
    )
    try:
        try:
            for words in commands:
                _ip(*words)
        except subprocess.CalledProcessError as error:
            raise NoNetwork(
                f"this machine makes no network namespaces: {error.stderr.decode().strip()}"
            ) from None
        yield OtherNetwork(name, here, there)
    finally:
        # The kernel removes the cable of a deleted namespace some time later, and the next one's has the same name.
        for words in (("link", "delete", name), ("netns", "delete", name)):
            subprocess.run(["ip", *words], check=False, capture_output=True, timeout=_SECONDS)


def new_addresses() -> tuple[str, str]:
    """Return two addresses of 10.64.0.0/10, new ones at each call: the system remembers routes to old ones."""
    number = (os.getpid() << 6 | next(_numbers) % 64) % (1 << 20)
    first = ipaddress.ip_address("10.64.0.0") + 4 * number
    return str(first + 1), str(first + 2)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=_SECONDS)
