"""The messages between the two ends of a channel between machines, checked completely."""

from __future__ import annotations

import base64
import binascii
import json

from peerlane.diagnostics.log.event_log import MemoryRange
from peerlane.ranks.wire import MAX_TAG, MOST_NOTIFIES, bad_message, number_in, object_in, text_in
from peerlane.support.records import dataclass

_LONGEST_ADDRESS = 8192
_LONGEST_VERSION = 64
_MOST_MEMORIES = 4096
_MOST_RANGES = 4096  # of all memories together; with more, the message has none


@dataclass(frozen=True, slots=True)
class FarInvitation:
    """A rank's message to a peer on another machine at the other end of a channel."""

    notifies: int  #: how many notifies it can wait for
    version: str  #: the version of its engine
    address: bytes  #: where the engine is reached
    process: int  #: the number of its process
    number: int  #: ``number``, ``secret``: the number of its end, and what frames for it must know
    secret: int
    #: The tags and the sizes of its memories, in the order of their numbers.
    memories: tuple[tuple[str, int], ...]
    #: Where each of them lies, for event logs; empty if the rank has no event log.
    ranges: tuple[tuple[MemoryRange, ...], ...] = ()

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
                **({"places": self.ranges} if 0 < sum(map(len, self.ranges)) <= _MOST_RANGES else {}),
            }
        ).encode()

    @classmethod
    def decode(cls, call: str, rank: int, content: bytes) -> FarInvitation:
        """Return the message of a rank.

        Raises BadHandle: ``FALSE_CLAIM``: it is not such a message.
        """
        message = object_in(call, rank, content)
        listed = message.get("far")
        if not isinstance(listed, list) or len(listed) > _MOST_MEMORIES:
            raise bad_message(call, rank, "far")
        memories = {}
        for each in listed:
            if not isinstance(each, list) or len(each) != 2 or not isinstance(each[0], str):
                raise bad_message(call, rank, "far")
            if len(each[0]) > MAX_TAG or each[0] in memories:
                raise bad_message(call, rank, "far")
            memories[each[0]] = number_in(call, rank, {"size": each[1]}, "size", 0, 1 << 62)
        try:
            text = text_in(call, rank, message, "address", _LONGEST_ADDRESS)
            address = base64.b64decode(text, validate=True)
        except binascii.Error:
            raise bad_message(call, rank, "address") from None
        return cls(
            number_in(call, rank, message, "notifies", 0, MOST_NOTIFIES + 1),
            text_in(call, rank, message, "version", _LONGEST_VERSION),
            address,
            number_in(call, rank, message, "process", 0, 1 << 64),
            number_in(call, rank, message, "number", 0, 1 << 64),
            number_in(call, rank, message, "secret", 0, 1 << 64),
            tuple(memories.items()),
            _ranges(call, rank, message.get("places", []), len(memories)),
        )


def _ranges(call: str, rank: int, listed: object, memories: int) -> tuple[tuple[MemoryRange, ...], ...]:
    if listed == []:
        return ()
    if not isinstance(listed, list) or len(listed) != memories:
        raise bad_message(call, rank, "places")
    ranges, left = [], _MOST_RANGES
    for each in listed:
        left -= len(each) if isinstance(each, list) else 0
        if not isinstance(each, list) or left < 0:
            raise bad_message(call, rank, "places")
        ranges.append(tuple(_range(call, rank, fields) for fields in each))
    return tuple(ranges)


def _range(call: str, rank: int, fields: object) -> MemoryRange:
    if not isinstance(fields, list) or len(fields) != 3:
        raise bad_message(call, rank, "places")
    block, offset, size = (number_in(call, rank, {"places": each}, "places", 0, 1 << 63) for each in fields)
    return block, offset, size
