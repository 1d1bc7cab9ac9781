"""The messages by which ranks create a group and its channels: plain texts and numbers, checked completely."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from peerlane.errors import BadHandle, Fault, Refused
from peerlane.ranks.lending import LONGEST_HANDLE, Terms
from peerlane.support.machine_identity import LONGEST_MACHINE, is_machine
from peerlane.support.records import dataclass

PROTOCOL = 5
MOST_NOTIFIES = 1024
MAX_TAG = 255
_LONGEST_ADDRESS = 45


@dataclass(frozen=True, slots=True)
class Hello:
    """A rank's first message to all others."""

    protocol: int  #: the version of the messages
    node: str  #: its node's hash, in hexadecimal
    #: ``pid``, ``start``, ``device``: its process and that one's start time in clock ticks, and the ordinal of its
    #: device.
    pid: int
    start: int
    device: int
    mode: str  #: the kind of the group's notifies
    machine: str  #: the identity of its machine
    address: str  #: the IPv4 address at which other machines reach it; empty if it does not know one

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, call: str, rank: int, content: bytes) -> Hello:
        """Return the message of a rank.

        Raises BadHandle: ``HANDLE_VERSION``: it has another version.  ``FALSE_CLAIM``: it is not such a message.
        """
        message = object_in(call, rank, content)
        protocol = message.get("protocol")
        if protocol != PROTOCOL:
            raise BadHandle(
                f"{call}: rank {rank} speaks version {protocol!r} of the protocol, this one {PROTOCOL}; use one "
                "version of peerlane in all ranks",
                fault=Fault.HANDLE_VERSION,
                call=call,
                detail=Refused(reason="other_version", rank=rank, version=protocol, own_version=PROTOCOL),
            )
        machine = text_in(call, rank, message, "machine", LONGEST_MACHINE)
        if not is_machine(machine):
            raise bad_message(call, rank, "machine")
        return cls(
            PROTOCOL,
            text_in(call, rank, message, "node", 64),
            number_in(call, rank, message, "pid", 1, 1 << 31),
            number_in(call, rank, message, "start", 0, 1 << 63),
            number_in(call, rank, message, "device", 0, 1 << 20),
            text_in(call, rank, message, "mode", 16),
            machine,
            _address_in(call, rank, message),
        )


@dataclass(frozen=True, slots=True)
class Shared:
    """Memory that a rank offers its peer: the text of its handle, its size in bytes, and the terms of its lease."""

    handle: str
    size: int
    terms: Terms | None


@dataclass(frozen=True, slots=True)
class Invitation:
    """A rank's message to the peer at the other end of a channel."""

    notifies: int  #: how many notifies it can wait for
    #: The text of the handle of their bank; empty if there are none, or both ends are in one process.
    bank: str
    memories: Mapping[str, Shared]  #: its memories, by tag
    token: int = 0  #: with both ends in one process: the key of the objects themselves
    held: str = ""  #: the text of the handle of its area of late writes; empty if it has none

    def encode(self) -> bytes:
        memories = {
            tag: [each.handle, each.size, each.terms and each.terms.encode()]
            for tag, each in self.memories.items()
        }
        fields = {each: getattr(self, each) for each in ("notifies", "bank", "token", "held")}
        return json.dumps({**fields, "memories": memories}).encode()

    @classmethod
    def decode(cls, call: str, rank: int, content: bytes) -> Invitation:
        """Return the message of a rank.

        Raises BadHandle: ``FALSE_CLAIM``: it is not such a message.
        """
        message = object_in(call, rank, content)
        listed = message.get("memories")
        if not isinstance(listed, dict) or not all(len(tag) <= MAX_TAG for tag in listed):
            raise bad_message(call, rank, "memories")
        memories = {}
        for tag, each in listed.items():
            if not isinstance(each, list) or len(each) != 3:
                raise bad_message(call, rank, "memories")
            entry = {"handle": each[0], "size": each[1]}
            terms = Terms.decode(each[2])
            if terms is None and each[2] is not None:
                raise bad_message(call, rank, "memories")
            memories[tag] = Shared(
                text_in(call, rank, entry, "handle", LONGEST_HANDLE),
                number_in(call, rank, entry, "size", 0, 1 << 62),
                terms,
            )
        return cls(
            number_in(call, rank, message, "notifies", 0, MOST_NOTIFIES + 1),
            text_in(call, rank, message, "bank", LONGEST_HANDLE),
            memories,
            number_in(call, rank, message, "token", 0, 1 << 62),
            text_in(call, rank, message, "held", LONGEST_HANDLE),
        )


def object_in(call: str, rank: int, content: bytes) -> dict[str, Any]:
    try:
        message = json.loads(content.decode())
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise bad_message(call, rank, "all of it")
    return message


def _address_in(call: str, rank: int, message: Mapping[str, Any]) -> str:
    address = text_in(call, rank, message, "address", _LONGEST_ADDRESS)
    with contextlib.suppress(OSError):
        if not address or socket.inet_ntoa(socket.inet_pton(socket.AF_INET, address)) == address:
            return address
    raise bad_message(call, rank, "address")


def number_in(call: str, rank: int, message: Mapping[str, Any], name: str, least: int, end: int) -> int:
    value = message.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < end:
        raise bad_message(call, rank, name)
    return value


def text_in(call: str, rank: int, message: Mapping[str, Any], name: str, longest: int) -> str:
    value = message.get(name)
    if not isinstance(value, str) or len(value) > longest or not value.isascii():
        raise bad_message(call, rank, name)
    return value


def bad_message(call: str, rank: int, name: str) -> BadHandle:
    return BadHandle(
        f"{call}: the message of rank {rank} is not one of this protocol ({name}); the rank may be broken, hostile, "
        "or of another version of peerlane",
        fault=Fault.FALSE_CLAIM,
        call=call,
        detail=Refused(reason="false_claim", rank=rank, name=name),
    )
