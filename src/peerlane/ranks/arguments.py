"""Checks of a group's arguments, which come before any object is created."""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Sequence
from typing import Any

from peerlane.errors import BadArgument, Fault, InvalidValue, Refused
from peerlane.memory.buffer import Buffer
from peerlane.node.device import Host
from peerlane.ranks.wire import MOST_NOTIFIES, Hello

LONGEST_NAME = 64


def of_each(call: str, what: str, value: Any, count: int) -> Sequence[Any]:
    """Return one value for each of ``count`` channels, from one value for all or a sequence of them."""
    if isinstance(value, (int, str)) or not isinstance(value, Sequence):
        return [value] * count
    if len(value) != count:
        raise InvalidValue(
            f"{call}: {what} has {len(value)} values for {count} channels",
            call=call,
            detail=Refused(reason="counts_differ", name=what, values=len(value), channels=count),
        )
    return value


def as_number(call: str, what: str, value: Any) -> int:
    """Return ``value`` if it is an integer and not a bool; else raise a TypeError that begins with ``what``."""
    if type(value) is int:
        return value
    if not isinstance(value, (bool, getattr(sys.modules.get("numpy"), "bool_", bool))):
        with contextlib.suppress(TypeError):
            return operator.index(value)
    raise TypeError(f"{call}: {what}, an int, not {type(value).__name__}")


def checked_rank(call: str, peer: object, size: int) -> int:
    """Return ``peer`` if it is a rank of the group."""
    rank = as_number(call, "a peer is a rank", peer)
    if not 0 <= rank < size:
        raise InvalidValue(
            f"{call}: {rank} is not a rank of {size}",
            call=call,
            detail=BadArgument("rank", rank, least=0, most=size - 1),
        )
    return rank


def checked_count(call: str, notifies: object) -> int:
    """Return ``notifies`` if a channel can have that many."""
    count = as_number(call, "notifies is a number", notifies)
    if not 0 <= count <= MOST_NOTIFIES:
        raise InvalidValue(
            f"{call}: notifies is {count}; valid are 0 to {MOST_NOTIFIES:,}",
            call=call,
            detail=BadArgument("notifies", count, least=0, most=MOST_NOTIFIES),
        )
    return count


def checked_name(call: str, name: object) -> str:
    """Return ``name`` if a channel can have it."""
    if not isinstance(name, str) or len(name) > LONGEST_NAME or not (name.isprintable() and name.isascii()):
        raise InvalidValue(
            f"{call}: name is {name!r}; valid are up to {LONGEST_NAME} printable ASCII characters",
            call=call,
            detail=BadArgument("name", name, most=LONGEST_NAME, rule="printable ASCII characters"),
        )
    return name


def check_texts(call: str, **texts: object) -> None:
    """Refuse values that are not a str."""
    for name, value in texts.items():
        if not isinstance(value, str):
            raise TypeError(f"{call}: {name} must be a str, not {type(value).__name__}")


def check_memory(call: str, buffer: object) -> None:
    """Refuse an object that is not device memory, or is closed."""
    if not isinstance(buffer, Buffer):
        raise TypeError(f"{call}: needs a Buffer, not {type(buffer).__name__}")
    if isinstance(buffer.device, Host):
        raise InvalidValue(
            f"{call}: {buffer!r} is host memory, and peers reach device memory only",
            call=call,
            detail=Refused(reason="host_memory", address=buffer.address, size=buffer.size),
        )
    buffer.address  # noqa: B018 - raises if it is closed


def check_agree(own_rank: int, own: Hello, rank: int, hello: Hello) -> None:
    """Refuse a rank whose settings differ from those of this process's rank."""
    node = (
        f"rank {rank} is in node {hello.node}, rank {own_rank} in node {own.node}; give all ranks the same "
        "PEERLANE_NODE"
    )
    mode = f"rank {rank} has notifies={hello.mode!r}, rank {own_rank} {own.mode!r}; they must be the same"
    for name, value, peer_value, fault, text in (
        ("node", own.node, hello.node, Fault.NODE_MISMATCH, node),
        ("notifies", own.mode, hello.mode, Fault.BAD_CONFIG, mode),
    ):
        if value != peer_value:
            raise InvalidValue(
                f"Group: {text}",
                fault=fault,
                call="Group",
                detail=Refused(
                    reason="ranks_differ",
                    name=name,
                    rank=own_rank,
                    value=value,
                    peer=rank,
                    peer_value=peer_value,
                ),
            )
