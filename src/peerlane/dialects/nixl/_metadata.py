"""An agent's metadata as checked bytes: how other agents reach it, and what it has registered."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from peerlane.dialects._shared.boards import SLOTS, Origin
from peerlane.dialects._shared.lent_memory import Offer, Offers, Part, decode_offers, part_of
from peerlane.dialects.nixl._status import nixl_mem_t, nixlMismatchError

_MAGIC = b"peerlane nixl 2\n"
_HEAD = struct.Struct("<16s16sIQIBHHI")
_REGION = struct.Struct("<BQQQIQIQ")
_CHECK = struct.Struct("<I")
_MEMS = {
    each.value: each for each in nixl_mem_t
}  # a look-up by the enumeration costs more than the rest of a row
_BACKENDS = ("UCX",)  # those that reach other agents


class Row(NamedTuple):
    """One registration: its memory, its word on the board, and for device memory what others open it by."""

    mem: nixl_mem_t
    device: int
    start: int
    size: int
    slot: int
    number: int
    part: Part | None


class Metadata(NamedTuple):
    """What metadata say of an agent; ``connects``: whether they suffice to reach it."""

    name: str
    origin: Origin
    connects: bool
    backends: tuple[str, ...]


def encode(metadata: Metadata, registrations: Iterable[Row]) -> bytes:
    """Return the bytes of metadata."""
    name = metadata.name.encode()
    backends = sum(1 << at for at, each in enumerate(_BACKENDS) if each in metadata.backends)
    offers = Offers()
    rows = [_REGION.pack(*row[:6], *offers.number(row.part)) for row in registrations]
    head = (*metadata.origin, metadata.connects, backends, len(name), len(rows))
    body = b"".join([_HEAD.pack(_MAGIC, *head), name, offers.encode(), *rows])
    return body + _CHECK.pack(zlib.crc32(body))


def decode(content: bytes) -> tuple[Metadata, list[Row]]:
    """Return the metadata in bytes, and the registrations.

    Raises nixlMismatchError: the bytes are not metadata of an agent, or some are missing.
    """
    try:
        return _decode(content)
    except (struct.error, ValueError) as error:
        why = "some are missing" if isinstance(error, struct.error) else error
        raise nixlMismatchError(
            f"these {len(content):,} bytes are not the metadata of an agent: {why}",
            "pass what get_agent_metadata of an agent on peerlane returned, whole and unchanged",
        ) from None


def _decode(content: bytes) -> tuple[Metadata, list[Row]]:
    magic, ident, pid, started, fd, connects, backends, named, count = _HEAD.unpack_from(content)
    if magic != _MAGIC:
        raise ValueError("they begin otherwise")
    body, (check,) = content[: -_CHECK.size], _CHECK.unpack(content[-_CHECK.size :])
    if zlib.crc32(body) != check:
        raise ValueError("some were changed or are missing")
    at = _HEAD.size + named
    name = body[_HEAD.size : at].decode()
    if not name or not 0 < pid < 1 << 31 or fd >= 1 << 31 or connects > 1:
        raise ValueError("the name or the process is impossible")
    offers, at = decode_offers(memoryview(body), at)
    rows = memoryview(body)[at:]
    if len(rows) != count * _REGION.size:
        raise ValueError(f"{count:,} registrations are not {len(rows):,} bytes")
    names = tuple(each for bit, each in enumerate(_BACKENDS) if backends >> bit & 1)
    metadata = Metadata(name, Origin(ident, pid, started, fd), bool(connects), names)
    return metadata, [*_rows(rows, offers)]


def _rows(rows: memoryview, offers: Sequence[Offer]) -> Iterator[Row]:
    for mem, device, start, size, slot, number, offer, offset in _REGION.iter_unpack(rows):
        if mem not in _MEMS or slot >= SLOTS or not number or start + size > 1 << 64:
            raise ValueError("a registration is impossible")
        yield Row(_MEMS[mem], device, start, size, slot, number, part_of(offers, offer, offset))
