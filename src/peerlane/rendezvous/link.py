"""The bytes of a connection between two machines, little-endian; no sockets::

    hello    magic, version, role, 32 random bytes              each end's, at once
    proof    HMAC-SHA256 of the role and both hellos            the hub's, then the relay's
    frame    length of the body, kind, number; the body; 16 bytes of a keyed BLAKE2b of this and the frame's position

Both ends know a secret.  Each proves that before it takes anything else, and each direction has a key of its own, so
that no frame can be forged, left out, repeated or sent back.  The bodies are not hidden.

A decoder accepts any bytes: it returns frames or raises `BadLink`.  Lengths are checked before bytes are stored.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

VERSION = 1
LEAST_SECRET = 16  # bytes

_MAGIC = b"PLLINK\r\n"
_HELLO = struct.Struct("<8sHH32s")
_HEAD = struct.Struct("<IBQ")
_PROOF_BYTES = hashlib.sha256().digest_size
_DIGEST_BYTES = 16


class Kind(enum.IntEnum):
    """The kind of a frame; the frame's number is that of a request, else 0."""

    JOIN = 1  # of the relay, first of all: the name of its machine
    WELCOME = 2  # of the hub, next: the number of ranks
    REQUEST = 3  # of a process there: its pid, and a request as on a Unix socket
    ANSWER = 4  # to it, as on a Unix socket
    WITHDRAW = 5  # the client no longer waits for the answer
    DIED = 6  # the pid of a process that had a rendezvous open
    ALIVE = 7  # nothing
    BYE = 8  # this end closes the connection


class Frame(NamedTuple):
    """A frame that the other end has sent."""

    kind: Kind
    number: int
    body: bytes


class BadLink(ValueError):
    """The other end is not a link, or is not trusted; the text has the reason."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason  #: ``"not_a_link"``, ``"version"``, ``"secret"`` or ``"forged"``


class Link:
    """One end of a connection.

    ``is_hub``: which of the two ends this is.
    ``longest``: the most bytes of a body that the other end may send.
    """

    def __init__(self, secret: bytes, *, is_hub: bool, longest: int) -> None:
        self._secret, self._is_hub, self._longest = secret, is_hub, longest
        self._hello = _HELLO.pack(_MAGIC, VERSION, is_hub, os.urandom(32))
        self._hellos = b""
        self._received = bytearray()
        self._sent_frames = self._heard_frames = 0
        self._own_key = self._other_key = b""
        self.is_open = False  #: whether both have proved that they know the secret

    def begin(self) -> bytes:
        """Return what this end sends before it has heard anything."""
        return self._hello

    def meet(self, data: bytes) -> bytes:
        """Take bytes until the connection is open; return what to send.

        Raises BadLink: the other end is none, uses another version, or does not know the secret.
        """
        self._received += data
        reply = b""
        if not self._hellos and len(self._received) >= _HELLO.size:
            self._greet(self._taken(_HELLO.size))
            if self._is_hub:
                reply = self._proof(True)
        if self._hellos and len(self._received) >= _PROOF_BYTES:
            proof = self._taken(_PROOF_BYTES)
            if not hmac.compare_digest(proof, self._proof(not self._is_hub)):
                raise BadLink("secret", "it does not know the secret")
            if not self._is_hub:
                reply += self._proof(False)
            self._own_key, self._other_key = self._key(self._is_hub), self._key(not self._is_hub)
            self.is_open = True
        return reply

    def _taken(self, nbytes: int) -> bytes:
        taken = bytes(self._received[:nbytes])
        del self._received[:nbytes]
        return taken

    def _greet(self, other: bytes) -> None:
        magic, version, is_hub, _ = _HELLO.unpack(other)
        if magic != _MAGIC or is_hub != (not self._is_hub):
            raise BadLink("not_a_link", "what it sends is not a line of peerlane's")
        if version != VERSION:
            raise BadLink("version", f"it uses version {version} of the line, this end version {VERSION}")
        self._hellos = other + self._hello if self._is_hub else self._hello + other

    def _proof(self, is_hub: bool) -> bytes:
        return self._mac(b"proof of the hub" if is_hub else b"proof of the relay")

    def _key(self, is_hub: bool) -> bytes:
        return self._mac(b"key of the hub" if is_hub else b"key of the relay")

    def _mac(self, role: bytes) -> bytes:
        return hmac.digest(self._secret, role + self._hellos, "sha256")

    def frame(self, kind: Kind, number: int, body: bytes) -> list[bytes]:
        """Return the parts of a frame, to be sent in this order and not otherwise."""
        head = _HEAD.pack(len(body), kind, number)
        self._sent_frames += 1
        return [head, body, _digest(self._own_key, self._sent_frames, head, body)]

    def hear(self, data: bytes) -> Iterator[Frame]:
        """Take bytes of an open connection; yield the frames that are there as a whole.

        Raises BadLink: it is none of the other end's frames, or too long.
        """
        self._received += data
        while len(self._received) >= _HEAD.size:
            length, kind, number = _HEAD.unpack_from(self._received)
            if length > self._longest:
                raise BadLink(
                    "forged", f"a frame of {length:,} bytes is too long; {self._longest:,} is the most"
                )
            end = _HEAD.size + length
            if len(self._received) < end + _DIGEST_BYTES:
                return
            head, body = bytes(self._received[: _HEAD.size]), bytes(self._received[_HEAD.size : end])
            digest = bytes(self._received[end : end + _DIGEST_BYTES])
            del self._received[: end + _DIGEST_BYTES]
            self._heard_frames += 1
            if not hmac.compare_digest(digest, _digest(self._other_key, self._heard_frames, head, body)):
                raise BadLink("forged", "a frame is not the one that the other end sent")
            if kind not in _KINDS:
                raise BadLink("forged", f"there is no frame of kind {kind}")
            yield Frame(Kind(kind), number, body)


def _digest(key: bytes, number: int, head: bytes, body: bytes) -> bytes:
    digest = hashlib.blake2b(head, digest_size=_DIGEST_BYTES, key=key, salt=number.to_bytes(16, "little"))
    digest.update(body)
    return digest.digest()


_KINDS = frozenset(Kind)
