"""The two forms of a handle: a 63-bit int, or 64 characters of text.

The int, from the top: node tag 8 bits (never 0), slot 10, index 17, low bits of the nonce 28 (never 0).

The text is ASCII without NUL; ``native/share/handle_text.h`` has its layout.

Decoding gives the claims of whoever wrote the handle.  Only the exporter can tell whether they are true.
"""

from __future__ import annotations

import hashlib
import string
from typing import NamedTuple

from peerlane import _core
from peerlane.backends.virtual.node.config import NodeConfig
from peerlane.errors import BadArgument, BadHandle, Fault, LostProcess, PeerLost, Refused
from peerlane.support.machine_identity import own_boot

TEXT_LENGTH = 64
VERSION: int = _core.HANDLE_VERSION
SLOT_BITS, INDEX_BITS, NONCE_BITS = 10, 17, 28
_MAGIC: bytes = _core.HANDLE_MAGIC
_ALPHABET = f"{string.ascii_letters}{string.digits}-_".encode()
_LOW_INDEX = NONCE_BITS
_LOW_SLOT = _LOW_INDEX + INDEX_BITS
_LOW_TAG = _LOW_SLOT + SLOT_BITS
_INT_BITS = _LOW_TAG + 8
_OF_NODE = 0x00FFFFFF << 32  # the bits of a home that only the node decides
_APART = "memory cannot be shared between machines; write to it over a channel of a peerlane.Group"


def node_hash(config: NodeConfig) -> int:
    """Return the 64-bit hash of a node's name and digest: the same for equal nodes on all machines."""
    digest = hashlib.sha256(f"{config.name}\0{config.digest}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


class Home(NamedTuple):
    """A node of this machine: its name, and the 64 bits by which handles name it."""

    name: str
    number: int


def home_of(config: NodeConfig) -> Home:
    """Return the home of a node here: its number is the node's hash, and the machine in some of the bits."""
    machine = hashlib.sha256(own_boot().encode()).digest()
    return Home(config.name, node_hash(config) ^ int.from_bytes(machine[:8], "big") & ~_OF_NODE)


def is_elsewhere(home: int, ours: int) -> bool:
    """Tell whether a node is the equal one of another machine."""
    return home != ours and not (home ^ ours) & _OF_NODE


def node_tag(home: int) -> int:
    """Return the 8 bits that the int form has of a node's home: never 0, so that no small number is a handle."""
    return home >> 56 or 1


class HandleFields(NamedTuple):
    """The fields of a handle.

    ``tag``: the node's tag, see `node_tag`.
    ``slot``: the exporter's slot in the node's file, 0 to 1023.
    ``entry``: the handle's index in the exporter's table, below 2**17.
    ``nonce``: a number that tells it from other handles of that entry; its lowest 28 bits are never all 0.
    ``nonce_bits``: how many bits of the nonce are known: 28 from the int form, else 64.
    ``node``, ``kind``, ``size``, ``pid``, ``start``: home of the node, number of the kind, bytes, pid of the exporter
        and the low half of its start time in clock ticks; None from the int form, which has no room for them.
    """

    tag: int
    slot: int
    entry: int
    nonce: int
    nonce_bits: int = 64
    node: int | None = None
    kind: int | None = None
    size: int | None = None
    pid: int | None = None
    start: int | None = None


def encode_int(fields: HandleFields) -> int:
    """Return the int form, between 1 and 2**63 - 1."""
    nonce = fields.nonce & ((1 << NONCE_BITS) - 1)
    return fields.tag << _LOW_TAG | fields.slot << _LOW_SLOT | fields.entry << _LOW_INDEX | nonce


def is_of(fields: HandleFields, node: int) -> bool:
    """Tell whether a handle belongs to the node with this home, as far as its form can tell."""
    return fields.node == node or (fields.node is None and fields.tag == node_tag(node))


def maker_lost(pid: int | None, reason: str = "") -> PeerLost:
    """Return the exception for a handle whose exporter does not serve it any more; None: the exporter is unknown."""
    who = f"process {pid}, which made the handle," if pid else "the process that made the handle"
    return PeerLost(
        f"{who} has ended or left the node{reason}; memory that was opened before stays, and no handle of it can "
        "be opened any more",
        detail=LostProcess(pid or 0),
    )


def decode(handle: int | bytes | str, home: Home | None = None) -> HandleFields:
    """Read a handle in either form; any value gives fields or ``BadHandle``.

    ``handle``: the result of ``int(handle)`` or ``bytes(handle)``, or the latter as text.
    ``home``: the node of this process; if given, a handle of another one is refused.
    Raises BadHandle: ``BAD_HANDLE``: a wrong length, alphabet, magic, checksum or nonce, which the text names;
        ``HANDLE_VERSION``: another release wrote it; ``NODE_MISMATCH``: it belongs to another node.
    Raises TypeError: it has none of the three types.
    """
    if isinstance(handle, bool) or not isinstance(handle, (int, bytes, bytearray, memoryview, str)):
        raise TypeError(
            f"a handle is an int, {TEXT_LENGTH} bytes or a str of them, not {type(handle).__name__}"
        )
    fields = _from_int(handle) if isinstance(handle, int) else _from_text(handle)
    if home is not None:
        _check_node(fields, *home)
    return fields


def _from_int(handle: int) -> HandleFields:
    if not 0 < handle < 1 << _INT_BITS:
        shown = hex(handle) if abs(handle) < 1 << 128 else f"a number of {handle.bit_length():,} bits"
        raise BadHandle(
            f"{shown} is not a handle: a handle as an int lies between 1 and 2**{_INT_BITS} - 1",
            detail=BadArgument("handle", shown, least=1, most=(1 << _INT_BITS) - 1),
        )
    nonce = handle & ((1 << NONCE_BITS) - 1)
    if nonce == 0:
        raise BadHandle(
            f"{handle:#x} is not a handle: its lowest {NONCE_BITS} bits are 0, and those of a handle never are",
            detail=BadArgument("handle", handle, rule=f"its lowest {NONCE_BITS} bits are not all 0"),
        )
    return HandleFields(
        tag=handle >> _LOW_TAG,
        slot=handle >> _LOW_SLOT & ((1 << SLOT_BITS) - 1),
        entry=handle >> _LOW_INDEX & ((1 << INDEX_BITS) - 1),
        nonce=nonce,
        nonce_bits=NONCE_BITS,
    )


def _from_text(handle: bytes | bytearray | memoryview | str) -> HandleFields:
    try:
        text = handle.encode("ascii") if isinstance(handle, str) else bytes(handle)
    except UnicodeEncodeError as error:
        raise BadHandle(
            f"this is not a handle: character {error.start + 1} is {handle[error.start]!r}",
            detail=Refused(reason="wrong_character", at=error.start, found=handle[error.start]),
        ) from None
    if len(text) != TEXT_LENGTH:
        raise BadHandle(
            f"this is not a handle: it has {len(text):,} characters, and a handle has {TEXT_LENGTH}",
            detail=Refused(reason="wrong_length", length=len(text), valid=TEXT_LENGTH),
        )
    foreign = text.translate(None, _ALPHABET)
    if foreign:
        at = text.index(foreign[:1])
        raise BadHandle(
            f"this is not a handle: character {at + 1} is {foreign[:1]!r}; it has letters, digits, '-' and '_'",
            detail=Refused(reason="wrong_character", at=at, found=foreign[:1].decode("latin-1")),
        )
    claims = _core.handle_claims(text)
    assert claims is not None
    magic, version, kind, node, slot_and_index, nonce, size, pid, start, checksum, computed = claims
    if magic != _MAGIC:
        raise BadHandle(
            f"this is not a handle: it begins with {text[:4].decode()!r}, and every handle with 'UEw'",
            detail=Refused(reason="wrong_start", found=text[:4].decode(), valid="UEw"),
        )
    # Before the checksum, which another version may have elsewhere.
    if version != VERSION:
        age = "a newer" if version > VERSION else "an older"
        raise BadHandle(
            f"this handle is of version {version}, written by {age} peerlane; this one reads version {VERSION}: "
            "use the same release in all processes",
            fault=Fault.HANDLE_VERSION,
            detail=Refused(reason="other_version", version=version, own_version=VERSION),
        )
    if computed != checksum:
        raise BadHandle(
            f"this handle was changed on its way: its checksum is {checksum:#010x}, and should be {computed:#010x}",
            detail=Refused(reason="wrong_checksum", checksum=checksum, valid=computed),
        )
    if slot_and_index >> SLOT_BITS + INDEX_BITS or not nonce & ((1 << NONCE_BITS) - 1):
        raise BadHandle(
            "this handle was not made by peerlane: its checksum is right, but its fields are impossible",
            detail=Refused(reason="impossible_fields", place=slot_and_index, nonce=nonce),
        )
    return HandleFields(
        tag=node_tag(node),
        slot=slot_and_index & ((1 << SLOT_BITS) - 1),
        entry=slot_and_index >> SLOT_BITS,
        nonce=nonce,
        node=node,
        kind=kind,
        size=size,
        pid=pid,
        start=start,
    )


def _check_node(fields: HandleFields, name: str, ours: int) -> None:
    if is_of(fields, ours):
        return
    if fields.node is None:
        raise BadHandle(
            f"{encode_int(fields):#x} is not a handle of this process's node {name!r}: the highest 8 "
            f"bits of the node's handles are {node_tag(ours):#04x}, and those of this number {fields.tag:#04x}; pass "
            "int(handle) unchanged, give both processes the same PEERLANE_NODE, and run them on one machine",
            fault=Fault.NODE_MISMATCH,
            detail=Refused(
                reason="other_node", handle=encode_int(fields), tag=fields.tag, own_tag=node_tag(ours)
            ),
        )
    if is_elsewhere(fields.node, ours):
        raise other_machine("this handle", fields.node, ours)
    raise BadHandle(
        f"this handle belongs to another node ({fields.node:#018x}); this process is in node {name!r} "
        f"({ours:#018x}): give both processes the same PEERLANE_NODE",
        fault=Fault.NODE_MISMATCH,
        detail=Refused(reason="other_node", node=fields.node, own_node=ours),
    )


def other_machine(what: str, home: int, ours: int) -> BadHandle:
    """Return the error for a handle or descriptor of the equal node of another machine."""
    theirs, mine = (f"{each & 0xFFFFFFFF:08x}" for each in (home, ours))
    return BadHandle(
        f"{what} is of another machine ({theirs}; this one is {mine}, or another PEERLANE_RUNTIME_DIR or "
        f"PEERLANE_MACHINE made it one): {_APART}",
        fault=Fault.NODE_MISMATCH,
        detail=Refused(reason="other_machine", machine=theirs, own_machine=mine),
    )
