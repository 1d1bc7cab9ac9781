"""What the two ends of a channel between machines tell each other over the rendezvous, checked completely."""

from __future__ import annotations

import base64
import binascii
import json

from peerlane.diagnostics.log.event_log import MemoryRange
from peerlane.ranks.wire import MAX_TAG, MOST_NOTIFIES, no_words, number_in, object_in, text_in
from peerlane.support.records import dataclass

_LONGEST_ADDRESS = 8192
_LONGEST_VERSION = 64
_MOST_MEMORIES = 4096
_MOST_PLACES = 4096  # of all memories; what lies in more is not told


@dataclass(frozen=True, slots=True)
class FarInvitation:
    """A rank's message to a peer on another machine at the other end of a channel.

    Attributes
    ----------
    notifies : int
        How many notifies it can wait for.
    version : str
        The version of its engine.
    address : bytes
        Where the engine is reached.
    process : int
        The number of its process.
    number, secret : int
        The number of its end, and what frames for it must know.
    memories : tuple of (str, int)
        The tags and the sizes of its memories, in the order of their numbers.
    places : tuple of (tuple of MemoryRange), optional
        Where each of them lies, for event logs; empty if the rank has no event log.
    """

    notifies: int
    version: str
    address: bytes
    process: int
    number: int
    secret: int
    memories: tuple[tuple[str, int], ...]
    places: tuple[tuple[MemoryRange, ...], ...] = ()

    def encode(self) -> bytes:
        return json.dumps(
            {
                "notifies": self.notifies,
                "version": self.version,
                "address": base64.b64encode(self.address).decode(),
                "process": self.process,
                "number": self.number,
                "secret": self.secret,
                "far": self.memories,
                **({"places": self.places} if 0 < sum(map(len, self.places)) <= _MOST_PLACES else {}),
            }
        ).encode()

    @classmethod
    def decode(cls, call: str, rank: int, content: bytes) -> FarInvitation:
        """Return the message of a rank.

        Raises
        ------
        BadHandle
            ``FALSE_CLAIM``: it is not such a message.
        """
        found = object_in(call, rank, content)
        listed = found.get("far")
        if not isinstance(listed, list) or len(listed) > _MOST_MEMORIES:
            raise no_words(call, rank, "far")
        memories = {}
        for each in listed:
            if not isinstance(each, list) or len(each) != 2 or not isinstance(each[0], str):
                raise no_words(call, rank, "far")
            if len(each[0]) > MAX_TAG or each[0] in memories:
                raise no_words(call, rank, "far")
            memories[each[0]] = number_in(call, rank, {"size": each[1]}, "size", 0, 1 << 62)
        try:
            text = text_in(call, rank, found, "address", _LONGEST_ADDRESS)
            address = base64.b64decode(text, validate=True)
        except binascii.Error:
            raise no_words(call, rank, "address") from None
        return cls(
            number_in(call, rank, found, "notifies", 0, MOST_NOTIFIES + 1),
            text_in(call, rank, found, "version", _LONGEST_VERSION),
            address,
            number_in(call, rank, found, "process", 0, 1 << 64),
            number_in(call, rank, found, "number", 0, 1 << 64),
            number_in(call, rank, found, "secret", 0, 1 << 64),
            tuple(memories.items()),
            _places(call, rank, found.get("places", []), len(memories)),
        )


def _places(call: str, rank: int, listed: object, memories: int) -> tuple[tuple[MemoryRange, ...], ...]:
    if listed == []:
        return ()
    if not isinstance(listed, list) or len(listed) != memories:
        raise no_words(call, rank, "places")
    found, left = [], _MOST_PLACES
    for each in listed:
        left -= len(each) if isinstance(each, list) else 0
        if not isinstance(each, list) or left < 0:
            raise no_words(call, rank, "places")
        found.append(tuple(_place(call, rank, place) for place in each))
    return tuple(found)


def _place(call: str, rank: int, said: object) -> MemoryRange:
    if not isinstance(said, list) or len(said) != 3:
        raise no_words(call, rank, "places")
    block, offset, size = (number_in(call, rank, {"places": each}, "places", 0, 1 << 63) for each in said)
    return block, offset, size
