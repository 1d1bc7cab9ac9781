"""Two networks on one machine: a namespace that a virtual cable joins to this one."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence

_SECONDS = 60.0


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

    def cut(self) -> None:
        """Let nothing pass any more; neither end is told."""
        _ip("link", "set", self._name, "down")

    def mend(self) -> None:
        """Let all pass again."""
        _ip("link", "set", self._name, "up")


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
    name, subnet = f"pl{os.getpid()}", f"10.{100 + os.getpid() // 250 % 100}.{os.getpid() % 250}"
    commands: Sequence[Sequence[str]] = (
        ("netns", "add", name),
        ("link", "add", name, "type", "veth", "peer", "name", "far", "netns", name),
        ("address", "add", f"{subnet}.1/30", "dev", name),
        ("link", "set", name, "up"),
        ("-n", name, "address", "add", f"{subnet}.2/30", "dev", "far"),
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
        yield OtherNetwork(name, f"{subnet}.1", f"{subnet}.2")
    finally:
        # The kernel removes the cable of a deleted namespace some time later, and the next one's has the same name.
        for words in (("link", "delete", name), ("netns", "delete", name)):
            subprocess.run(["ip", *words], check=False, capture_output=True, timeout=_SECONDS)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=_SECONDS)
