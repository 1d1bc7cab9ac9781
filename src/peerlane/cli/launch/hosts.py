"""``--hosts``: which machines have how many ranks, and how they are reached."""

from __future__ import annotations

import argparse
import ipaddress
import re
import secrets
import shlex
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from peerlane.errors import BadArgument, Fault, InvalidValue

DEFAULT_COMMAND = "ssh -o BatchMode=yes"
MOST_HOST = 64  # characters: a host's name is its machine's identity too
SECRET_BYTES = 32

_HOST = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.@:%+-]*")
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")  # a remote shell takes such a word as it is
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(=.*)?", re.DOTALL)


@dataclass(frozen=True)
class Hosts:
    """The machines of a launch."""

    counts: Mapping[str, int]  #: how many ranks each has, in the order of the ranks
    command: Sequence[str]  #: the words before a host's name, and the command that is to run there
    python: str  #: the interpreter there
    folder: str  #: the working directory, on all machines
    address: str | None  #: where the others reach this machine
    port: int  #: where its rendezvous listens; 0 takes a free port
    unreachable: float  #: seconds of silence after which a machine counts as lost
    environment: Mapping[str, str]  #: the variables for the ranks on other machines
    dialects: Sequence[str]
    shadow_real: bool  #: what `peerlane.dialects.install` does there
    logs: bool  #: whether the event logs of other machines are brought here
    #: What proves to the rendezvous that a machine belongs to this launch.
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(SECRET_BYTES), repr=False)

    @property
    def size(self) -> int:
        """The number of all ranks."""
        return sum(self.counts.values())

    @property
    def are_all_local(self) -> bool:
        """Whether there is no other machine."""
        return all(map(is_local, self.counts))

    def command_for(self, host: str) -> list[str]:
        """Return the command that starts a part on another machine."""
        return [*self.command, host, self.python, "-m", "peerlane.cli.launch"]

    def listens_at(self) -> str | None:
        """Return where the rendezvous is to listen; None if there is no other machine."""
        if self.are_all_local:
            return None
        every = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # the secret guards it
        return at(self.address or every, self.port)

    def address_for(self, ssh: str) -> str:
        """Return where a machine reaches this one; ``ssh`` is the ``SSH_CONNECTION`` of its part."""
        words = ssh.split()
        return self.address or (words[0] if len(words) == 4 else socket.gethostname())

    def address_of(self, host: str, ssh: str) -> str:
        """Return where other machines reach a machine."""
        words = ssh.split()
        return words[2] if len(words) == 4 else host.rpartition("@")[2]


def is_local(host: str) -> bool:
    """Return whether a host's name means this machine; the name is not resolved."""
    own = socket.gethostname()
    return host in ("localhost", "127.0.0.1", "::1", own, own.partition(".")[0])


def at(host: str, port: int) -> str:
    """Return ``host:port``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def counts_of(text: str, most: int) -> dict[str, int]:
    """Return the hosts that a word of the command line means, and how many ranks each has."""
    counts: dict[str, int] = {}
    for each in text.split(","):
        host, _, count = each.rpartition(":")
        host = host.strip("[]")
        if not (_HOST.fullmatch(host) and count.isascii() and count.isdigit() and 1 <= int(count) <= most):
            raise argparse.ArgumentTypeError(
                f"{each!r} is not a host and its number of processes; valid is HOST:N, or several with commas "
                f"between, such as a:2,b:2, with N from 1 to {most}"
            )
        if len(host) > MOST_HOST:
            raise argparse.ArgumentTypeError(
                f"the host's name {host!r} has {len(host)} characters; {MOST_HOST} are the most"
            )
        if ":" in host and not _is_address(host):
            raise argparse.ArgumentTypeError(f"{host!r} is not an IPv6 address; valid is HOST:N")
        if host in counts:
            raise argparse.ArgumentTypeError(
                f"{host!r} is there twice; name each host once, with all its processes"
            )
        counts[host] = int(count)
    if sum(counts.values()) > most:
        raise argparse.ArgumentTypeError(f"{sum(counts.values()):,} processes; {most} are the most")
    if sum(map(is_local, counts)) > 1:
        same = " and ".join(filter(is_local, counts))
        raise argparse.ArgumentTypeError(f"{same} are the same machine, this one; name it once")
    return counts


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def variable_of(text: str) -> str:
    """Return a word of the command line that names a variable, or names and sets it."""
    if not _VARIABLE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a variable; valid are NAME and NAME=VALUE")
    return text


def port_of(text: str) -> int:
    """Return the port that a word of the command line means."""
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 16):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; valid are 1 to 65535")
    return int(text)


def command_of(text: str) -> list[str]:
    """Return the words of ``--ssh``, the first of them as a path.

    Raises InvalidValue: there is no such command, or it is not closed by quotes.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        words, why = [], str(error)
    else:
        why = "it is empty"
    if not words:
        raise InvalidValue(
            f"--ssh is {text!r}: {why}; valid is a command that runs its further words on the host that comes first, "
            f"such as {DEFAULT_COMMAND!r}",
            fault=Fault.BAD_CONFIG,
            detail=BadArgument("--ssh", text, rule="a command"),
        )
    path = shutil.which(words[0])
    if path is None:
        raise InvalidValue(
            f"--ssh: there is no command {words[0]!r}; install it, or name another command",
            fault=Fault.BAD_CONFIG,
            detail=BadArgument("--ssh", text, rule="a command that is there"),
        )
    return [path, *words[1:]]


def check_python(path: str) -> None:
    """Raise InvalidValue if a shell would not take an interpreter's path as one word."""
    if not _PLAIN_WORD.fullmatch(path):
        raise InvalidValue(
            f"--python: a shell there would not take {path!r} as one word; valid are letters, digits and @%+=:,./-_; "
            "give it a link with such a name",
            fault=Fault.BAD_CONFIG,
            detail=BadArgument("--python", path, rule="a plain word"),
        )
