"""Rank tables: which ranks there are, and on which devices of which servers (facts/hcomm 2.2)."""

from __future__ import annotations

import ipaddress
import json
from typing import Any

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.hcomm._codes import OPEN_FILE_FAILURE, PARA
from peerlane.dialects.hcomm._meeting import digest_of
from peerlane.dialects.hcomm._servers import Servers
from peerlane.support.records import dataclass

_LONGEST_PATH = 4096
_LARGEST_FILE = 1 << 24
_LONGEST_NAME = 64
_EXAMPLE = (
    'write {"version": "1.0", "status": "completed", "server_count": "1", "server_list": [{"server_id": "node_0", '
    '"device": [{"device_id": "0", "rank_id": "0"}, ...]}]}'
)


@dataclass(frozen=True, slots=True)
class RankTable:
    """The contents of a rank table."""

    devices: tuple[int, ...]  #: of each rank
    servers: Servers
    digest: str  #: a hash of the file


def read(path: str) -> RankTable:
    """Return the rank table in a file: HCCL_E_OPEN_FILE_FAILURE, HCCL_E_PARA."""
    if len(path.encode(errors="replace")) > _LONGEST_PATH or not path or "\0" in path:
        raise PARA.refusal(
            f"the path has {len(path):,} characters; valid are 1 to {_LONGEST_PATH:,}", "pass a path"
        )
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - a str from outside, opened under the name that the program passed
            content = file.read(_LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise OPEN_FILE_FAILURE.refusal(
            f"cannot read {path!r}: {error}", "pass the path of a rank table"
        ) from None
    if len(content) > _LARGEST_FILE:
        raise _wrong(f"it has more than {_LARGEST_FILE:,} bytes")
    return parse(content)


def parse(content: bytes) -> RankTable:
    """Return the rank table in the bytes of a file: HCCL_E_PARA."""
    try:
        table = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _wrong(f"it is not JSON: {str(error)[:200]}") from None
    if not isinstance(table, dict):
        raise _wrong("it is not an object")
    if table.get("status", "completed") != "completed":
        raise _wrong(f"status is {table['status']!r:.60}, not 'completed'")
    servers = _list(table, "server_list", "the table")
    if not servers:
        raise _wrong("server_list has no servers")
    ranks: dict[int, tuple[int, str, bytes]] = {}
    names: set[str] = set()
    for server in servers:
        name = _name_of(server, len(servers))
        if name in names:
            raise _wrong(f"server_id {name!r} is listed twice")
        names.add(name)
        _add(ranks, server, name, is_only=len(servers) == 1)
    if sorted(ranks) != list(range(len(ranks))) or not ranks:
        raise _wrong(f"the ranks are {sorted(ranks)[:16]}, and must be 0 to n - 1 without gaps")
    devices, ids, addresses = zip(*(ranks[rank] for rank in range(len(ranks))), strict=True)
    return RankTable(devices, Servers(ids, addresses), digest_of(content))


def _add(ranks: dict[int, tuple[int, str, bytes]], server: Any, name: str, *, is_only: bool) -> None:
    """Add the ranks of a server: the device, the server and the address of each."""
    devices: set[int] = set()
    for entry in _list(server, "device", "a server"):
        rank, device = _number(entry, "rank_id"), _number(entry, "device_id")
        if rank in ranks:
            raise _wrong(f"rank_id {rank} is listed twice")
        if device in devices:
            raise _wrong(f"device_id {device} is listed twice")
        devices.add(device)
        ranks[rank] = device, name, _address(entry, rank, is_only=is_only)


def _name_of(server: Any, servers: int) -> str:
    name = server.get("server_id") if isinstance(server, dict) else None
    if name is None and servers == 1:
        return "the server"
    if not isinstance(name, str) or not 1 <= len(name) <= _LONGEST_NAME:
        raise _wrong(f"server_id is {str(name)[:40]!r}; it must have 1 to {_LONGEST_NAME} characters")
    return name


def _address(entry: Any, rank: int, *, is_only: bool) -> bytes:
    """Return the bytes of a device's IP address; only ranks of one server need none."""
    address = entry.get("device_ip") if isinstance(entry, dict) else None
    try:
        return ipaddress.IPv4Address(str(address)).packed
    except ValueError:
        if is_only:
            return b""
    raise _wrong(
        f"device_ip of rank {rank} is {str(address)[:40]!r}; with several servers each device has an IPv4 address"
    )


def _list(of: Any, name: str, what: str) -> list[Any]:
    entries = of.get(name) if isinstance(of, dict) else None
    if not isinstance(entries, list):
        raise _wrong(f"{name} of {what} is missing, or not a list")
    return entries


def _number(entry: Any, name: str) -> int:
    value = entry.get(name) if isinstance(entry, dict) else None
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not (text.isascii() and text.isdigit() and len(text) < 8):
        raise _wrong(f"{name} of a device is {str(value)[:40]!r}; it must be a number, as a string")
    return int(text)


def _wrong(cause: str) -> Refusal:
    return PARA.refusal(f"the rank table cannot be used: {cause}", _EXAMPLE)
