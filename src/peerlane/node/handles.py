"""Shareable handles as numbers and as text.

A handle says whom to ask and for what; it holds no rights.  It has two forms:

* an int of 63 bits: node tag (8) | slot (10) | index (17) | the low bits of the nonce (28), never 0;
* 64 ASCII characters (URL-safe base64 of 48 bytes, so never a NUL): magic ``PH``, version, kind, the hash of the
  node (8), slot and index (8), the nonce (8), bytes (8), the maker's pid (4) and the low half of its start time (4),
  and a CRC-32 (4); numbers little-endian.

The decoders are total: whatever they are given, they return fields or raise ``BadHandle``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import struct
from dataclasses import dataclass

from peerlane.errors import BadHandle, Fault

TEXT_BYTES = 64
SHORT_NONCE_BITS = 28
_VERSION = 1
_MAGIC = b"PH"
_TEXT = struct.Struct("<2sBB8sIIQQII")
_CRC = struct.Struct("<I")
_SLOT_BITS, _INDEX_BITS = 10, 17
_ALPHABET = re.compile(rb"[A-Za-z0-9_-]{64}")


@dataclass(frozen=True, slots=True)
class HandleFields:
    """What a handle says.

    Attributes
    ----------
    node : bytes
        Hash of the node (8 bytes); of the int form its first byte only.
    slot, index : int
        The maker's place in the node, and the handle's place there.
    nonce : int
        64 bits; of the int form the lowest 28.
    nonce_bits : int
        How many of them are known: 64 or 28.
    kind, size : int or None
        What it stands for and its bytes; None: the int form does not say.
    pid, start : int or None
        The maker and the low 32 bits of its start time; None: the int form does not say.
    """

    node: bytes
    slot: int
    index: int
    nonce: int
    nonce_bits: int = 64
    kind: int | None = None
    size: int | None = None
    pid: int | None = None
    start: int | None = None


def node_hash(name: str, digest: str) -> bytes:
    """Return the 8 bytes by which handles know a node: of its name and its shape."""
    return hashlib.sha256(f"{name}\0{digest}".encode()).digest()[:8]


def encode_int(fields: HandleFields) -> int:
    """Return the form of 63 bits."""
    value = fields.node[0]
    for part, bits in ((fields.slot, _SLOT_BITS), (fields.index, _INDEX_BITS)):
        value = value << bits | part
    return value << SHORT_NONCE_BITS | fields.nonce & ((1 << SHORT_NONCE_BITS) - 1)


def encode_text(fields: HandleFields) -> bytes:
    """Return the form of 64 ASCII characters; every field must be known."""
    raw = _TEXT.pack(
        _MAGIC,
        _VERSION,
        fields.kind,
        fields.node,
        fields.slot,
        fields.index,
        fields.nonce,
        fields.size,
        fields.pid,
        fields.start,
    )
    return base64.urlsafe_b64encode(raw + _CRC.pack(binascii.crc32(raw)))


def decode(handle: int | bytes | str) -> HandleFields:
    """Return what a handle says; ``BadHandle`` for what is none."""
    return _decode_int(handle) if isinstance(handle, int) else _decode_text(handle)


def _decode_int(value: int) -> HandleFields:
    if not 0 < value < 1 << 63:
        raise _bad(f"{value:#x} is not a handle: it is not a positive number of 63 bits")
    nonce = value & ((1 << SHORT_NONCE_BITS) - 1)
    value >>= SHORT_NONCE_BITS
    index = value & ((1 << _INDEX_BITS) - 1)
    value >>= _INDEX_BITS
    if nonce == 0:
        raise _bad("the number is not a handle: its nonce is 0")
    return HandleFields(
        bytes([value >> _SLOT_BITS]), value & ((1 << _SLOT_BITS) - 1), index, nonce, SHORT_NONCE_BITS
    )


def _decode_text(handle: bytes | str) -> HandleFields:
    text = handle.encode(errors="replace") if isinstance(handle, str) else bytes(handle)
    text = text[:TEXT_BYTES] if text[TEXT_BYTES:].strip(b"\0") == b"" else text  # a C string's padding
    if len(text) != TEXT_BYTES:
        raise _bad(f"{len(text):,} characters are not a handle, which has {TEXT_BYTES}; was it cut, or padded?")
    if not _ALPHABET.fullmatch(text):
        raise _bad("the text is not a handle: it has characters other than A-Z, a-z, 0-9, - and _")
    raw = base64.urlsafe_b64decode(text)
    magic, version, kind, node, slot, index, nonce, size, pid, start = _TEXT.unpack(raw[: _TEXT.size])
    if magic != _MAGIC:
        raise _bad("the text is not a handle: it does not begin as one")
    if version != _VERSION:
        age = "a newer" if version > _VERSION else "an older"
        raise BadHandle(
            f"the handle is of {age} version ({version}; this one is {_VERSION}); use one version of peerlane in all "
            "processes",
            fault=Fault.HANDLE_VERSION,
        )
    if _CRC.unpack(raw[_TEXT.size :])[0] != binascii.crc32(raw[: _TEXT.size]):
        raise _bad("the handle was changed on its way: its checksum is wrong")
    if slot >> _SLOT_BITS or index >> _INDEX_BITS:
        raise _bad("the handle names a place that no node has")
    return HandleFields(node, slot, index, nonce, 64, kind, size, pid, start)


def _bad(text: str) -> BadHandle:
    return BadHandle(f"{text}; pass on int(handle) or bytes(handle) unchanged")
