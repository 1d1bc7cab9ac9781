"""Default bodies of verbs, which a back-end need not write itself."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from peerlane.backend.facts import Caps
from peerlane.backend.interface import Backend, Copies, VisibleMemory
from peerlane.errors import AccessDenied, Fault, MemoryHolder, Refused, Unsupported
from peerlane.support import reductions

_PIECE = 1 << 20  # bytes that a reduction reads at a time


def copy_batch(backend: Copies, copies: Sequence[tuple[int, int, int]]) -> None:
    """Make the copies one after the other."""
    for dst, src, nbytes in copies:
        backend.copy(dst, src, nbytes)


def copy_2d(
    backend: Copies, dst: int, dst_pitch: int, src: int, src_pitch: int, width: int, height: int
) -> None:
    """Copy row by row."""
    for row in range(height if width else 0):
        backend.copy(dst + row * dst_pitch, src + row * src_pitch, width)


def reduce(backend: Copies, dst: int, src: int, count: int, dtype: str, op: str) -> None:
    """Read source and destination, combine them on the host, and write the result."""
    import numpy as np

    from peerlane.support.host_reductions import combined

    width = reductions.width_of(reductions.number_of("reduce", dtype, op))
    check_reduction(dst, src, count * width, width)
    step = _PIECE // width
    for first in range(0, count, step):
        nbytes = min(step, count - first) * width
        at = first * width
        mine, other = np.empty(nbytes, np.uint8), np.empty(nbytes, np.uint8)
        backend.read(dst + at, mine.data)
        backend.read(src + at, other.data)
        backend.write(dst + at, combined(mine, other, dtype, op).data)


def check_reduction(dst: int, src: int, nbytes: int, width: int) -> None:
    """Refuse a source and destination that are misaligned or overlap in part."""
    for role, address in (("dst", dst), ("src", src)):
        if address % width:
            raise reductions.misaligned(role, address, width)
    if dst != src and nbytes and max(dst, src) < min(dst, src) + nbytes:
        raise reductions.partly_overlapping(src, dst, nbytes)


class BackendBase:
    """A back-end that has only ``copy``, ``fill``, ``read`` and ``write``, and whose devices do not reach each other.

    Inherit from it, and write the rest of :class:`~peerlane.backend.interface.Backend`.
    """

    name: str
    caps = Caps.NONE

    def ready(self) -> None:
        """Do nothing: it can always be used."""

    def copy_batch(self, copies: Sequence[tuple[int, int, int]]) -> None:
        """Make the copies one after the other."""
        copy_batch(self._copies(), copies)

    def copy_2d(self, dst: int, dst_pitch: int, src: int, src_pitch: int, width: int, height: int) -> None:
        """Copy row by row."""
        copy_2d(self._copies(), dst, dst_pitch, src, src_pitch, width, height)

    def reduce(self, dst: int, src: int, count: int, dtype: str, op: str) -> None:
        """Combine on the host."""
        reduce(self._copies(), dst, src, count, dtype, op)

    def memory_holders(self, ordinal: int) -> tuple[MemoryHolder, ...]:
        """Return this process, if it holds memory: it is alone in the node."""
        backend = self._backend()
        held = backend.devices()[ordinal].total_bytes - backend.free_bytes(ordinal)
        return (MemoryHolder(os.getpid(), "", held),) if held else ()

    def allocate_host(self, nbytes: int) -> VisibleMemory:
        """Refuse: it has no pinned memory."""
        raise Unsupported(
            f"back-end {self.name} has no pinned host memory (PINNED_HOST)",
            detail=Refused(reason="lacks", backend=self.name, capability="PINNED_HOST"),
        )

    def can_access(self, ordinal: int, peer: int) -> bool:
        """Return False."""
        return False

    def why_not(self, ordinal: int, peer: int) -> str:
        """Return the reason: the devices have no peers."""
        return (
            "it is the device itself" if ordinal == peer else f"devices of back-end {self.name} have no peers"
        )

    def link(self, ordinal: int, peer: int) -> str:
        """Return the kind of link of devices that are joined by the host."""
        return "X" if ordinal == peer else "SYS"

    def peers(self, ordinal: int) -> Collection[int]:
        """Return none."""
        return frozenset()

    def set_peer(self, ordinal: int, peer: int, enabled: bool) -> None:
        """Refuse."""
        if enabled:
            raise AccessDenied(
                f"{self.name}:{ordinal} cannot reach {self.name}:{peer}: {self.why_not(ordinal, peer)}",
                fault=Fault.PEER_UNREACHABLE,
                detail=Refused(
                    reason="unreachable",
                    device=f"{self.name}:{ordinal}",
                    peer=f"{self.name}:{peer}",
                    why=self.why_not(ordinal, peer),
                ),
            )

    def announce_peer(self, ordinal: int, peer: int, enabled: bool) -> None:
        """Refuse."""
        self.set_peer(ordinal, peer, enabled)

    def is_announced(self, ordinal: int, peer: int) -> bool:
        """Return False."""
        return False

    def count_all_announcements(self, counts: bool) -> None:
        """Do nothing: there is none."""

    def announcers(self, ordinal: int, peer: int) -> tuple[int, ...]:
        """Return none."""
        return ()

    def relied_on(self) -> tuple[int, ...]:
        """Return none."""
        return ()

    def _backend(self) -> Backend:
        return self  # type: ignore[return-value]  # subclasses have the verbs

    def _copies(self) -> Copies:
        return self  # type: ignore[return-value]  # subclasses have the verbs
