"""Checks that all ranks call the same collective: each rank posts its calls where the others can read them.

A rank posts its call, then reads what the others have posted for the same call.  So the last rank to call finds a
difference before it moves a byte; the others wait until that rank ends its collectives.

A rank on another machine cannot be read: it is sent what it would read, and has a place for each rank's posts.
"""

from __future__ import annotations

import contextlib
import functools
import struct
import zlib
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from peerlane.diagnostics.ranks.collective_calls import differ
from peerlane.errors import Error

if TYPE_CHECKING:
    from peerlane.backend.ranks import CallQueue, Ranks, Rounds
    from peerlane.memory.buffer import Buffer
    from peerlane.ranks.channel import Channel
    from peerlane.streams.stream import Stream

_CALLS_KEPT = 16  # ranks that are further ahead are not compared
_ENTRY, _WORD = 256, 8  # bytes
_CALLS = _CALLS_KEPT * _ENTRY
_LANE = _CALLS_KEPT * _WORD
_NUMBER, _NBYTES = 1 << 24, (1 << 39) - 1
_IN_COLLECTIVE = 1 << 39
_Q = struct.Struct("=Q")
_KINDS = ("message", "part")


def bytes_for(size: int, *, has_far: bool = False) -> int:
    """Return the bytes of a rank's posts in a group of ``size``: its last calls, and each lane's last messages.

    ``has_far``: with places for the posts of all ranks, behind its own.
    """
    return (_CALLS + 2 * size * _LANE) * (1 + size * has_far)


@functools.lru_cache(256)
def encoded(words: str) -> tuple[bytes, int]:
    """Return what is posted of a call in words, and its checksum."""
    text = words.encode()
    return text[: _ENTRY - _WORD].ljust(_ENTRY - _WORD, b"\0"), zlib.crc32(text)


def _words(posts: memoryview, at: int) -> str:
    return bytes(posts[at + _WORD : at + _ENTRY]).rstrip(b"\0").decode(errors="replace")


class Agreement:
    """This rank's posts, and its comparison with those of the others.

    Parameters
    ----------
    rank, size : int
    memory : Buffer
        This rank's posts, which the others read.
    at : int
        Where the posts are in the windows of the channels.
    channels : mapping of int to Channel
        The channels to the others' memory.
    far : collection of int
        The ranks of other machines.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        memory: Buffer,
        at: int,
        channels: Mapping[int, Channel],
        far: Collection[int],
    ) -> None:
        self._rank, self._size, self._channels, self._far = rank, size, channels, far
        self._at = at
        self._memory, self._bytes = memory, bytes_for(size)
        self._sending: Stream | None = None
        self._mine = memoryview(memory).cast("B")
        self._theirs: dict[int, memoryview] = {}
        self._moved = [0] * (2 * size)  # how much was posted for each lane, by the place of its posts

    def calls(self, call: str, words: str, number: int, peers: Iterable[int]) -> None:
        """Post a call of a collective, by its number; InvalidValue if one of the peers has made another."""
        text, checksum = encoded(words)
        word = number % _NUMBER << 32 | checksum
        at = number % _CALLS_KEPT * _ENTRY
        self._mine[at + _WORD : at + _ENTRY] = text
        _Q.pack_into(self._mine, at, word)  # last: a rank that sees the word also sees the text
        for peer in self._far:
            self._send(peer, at + _WORD, _ENTRY - _WORD)
            self._send(peer, at, _WORD)
        self._arrive()
        for peer in peers:
            theirs = self._of(peer)
            if theirs is None:
                continue
            (seen,) = _Q.unpack_from(theirs, at)
            if seen != word and seen >> 32 == word >> 32:
                other = _words(theirs, at)
                position = f"collective {number:,}"
                raise differ(call, position, self._rank, f"calls {words}", peer, f"calls {other}")

    def difference(self, peer: int) -> str:
        """Return the first call of a peer that differs from this rank's, and this rank's, in words; else ``""``."""
        theirs = self._theirs.get(peer)
        if theirs is None:
            return ""
        differing = []
        for at in range(0, _CALLS, _ENTRY):
            (mine,), (seen,) = _Q.unpack_from(self._mine, at), _Q.unpack_from(theirs, at)
            if mine != seen and mine >> 32 == seen >> 32:
                differing.append((mine >> 32, at))
        if not differing:
            return ""
        number, at = min(differing)
        return (
            f": as collective {number:,} it calls {_words(theirs, at)}, and this rank, rank {self._rank}, calls "
            f"{_words(self._mine, at)}"
        )

    def moves(
        self, call: str, peer: int, nbytes: int, *, out: bool, in_collective: bool, messages: int | None
    ) -> None:
        """Post how many bytes go to a peer or come from it; InvalidValue if the peer has posted another number.

        ``messages``: how many messages the lane has had, this one included, if they are counted elsewhere.
        """
        lane = 2 * peer + out
        if in_collective or messages is None:
            self._moved[lane] += 1
        number = self._moved[lane] + (messages or 0)
        word = number % _NUMBER << 40 | in_collective * _IN_COLLECTIVE | nbytes & _NBYTES
        at = number % _CALLS_KEPT * _WORD
        _Q.pack_into(self._mine, _CALLS + lane * _LANE + at, word)
        if peer in self._far:
            self._send(peer, _CALLS + lane * _LANE + at, _WORD)
            self._arrive()
        theirs = self._of(peer)
        if theirs is None:
            return
        (seen,) = _Q.unpack_from(theirs, _CALLS + (2 * self._rank + (not out)) * _LANE + at)
        if seen != word and seen >> 40 == word >> 40:
            verbs = ("receives", "sends") if out else ("sends", "receives")
            kind = _KINDS[bool(seen & _IN_COLLECTIVE)]
            what = f"{verbs[0]} {seen & _NBYTES:,} bytes as a {kind}"
            mine = f"{verbs[1]} {nbytes:,} as a {_KINDS[in_collective]}"
            raise differ(call, f"number {number:,} of its lane", self._rank, mine, peer, what)

    def _send(self, peer: int, at: int, nbytes: int) -> None:
        """Send a part of this rank's posts to a rank of another machine."""
        try:
            channel = self._channels[peer]
            if self._sending is None:
                self._sending = channel.group.device.create_stream()
            start = self._bytes * (1 + self._rank) + at
            channel.write(self._memory[at : at + nbytes], at=self._at + start, stream=self._sending)
        except Error:  # the collective itself reports it better
            if peer not in self._channels:
                raise

    def _arrive(self) -> None:
        """Wait until what was sent is there: of two ranks that look after that, one sees what the other has sent."""
        if self._sending is not None:
            with contextlib.suppress(Error):  # as above
                self._sending.sync()

    def _of(self, peer: int) -> memoryview | None:
        """Return a peer's posts; None if the peer has gone, which its channel reports better."""
        posts = self._theirs.get(peer)
        if posts is None and peer in self._far:
            first = self._bytes * (1 + peer)
            posts = self._theirs[peer] = self._mine[first : first + self._bytes]
        elif posts is None:
            try:
                memory = self._channels[peer].window[self._at : self._at + self._bytes]
                posts = self._theirs[peer] = memoryview(memory).cast("B")
            except (Error, BufferError):
                if peer not in self._channels:
                    raise
                return None
        return posts

    def native_queue(self, ranks: Ranks, rounds: Rounds, timeout_ns: int) -> CallQueue:
        """Return what queues calls natively, and posts and compares them as this object does."""
        windows = [
            None if peer == self._rank else self._channels[peer].window[self._at : self._at + self._bytes]
            for peer in range(self._size)
        ]
        return ranks.call_queue(rounds, self._memory, windows, _CALLS_KEPT, _ENTRY, timeout_ns)

    def close(self) -> None:
        """Release all memory."""
        if self._sending is not None:
            self._sending.abort(close=True)
        for view in (*self._theirs.values(), self._mine):
            view.release()
