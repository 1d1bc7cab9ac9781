"""``monitored_barrier``: a barrier over the store that names the ranks that did not come."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from peerlane.torch.failures import refused
from peerlane.torch.meeting import Meeting

_MARGIN = 5.0  # seconds in which a rank hears from rank 0, beyond the time that this waits for the last rank


def monitored_barrier(
    meeting: Meeting, rank: int, size: int, number: int, seconds: float, *, wait_all_ranks: bool
) -> None:
    """Wait for all ranks at rank 0, which tells the others how it ended.

    Raises
    ------
    DistBackendError
        At rank 0: ranks did not come; without ``wait_all_ranks`` the text names the first of them.  At other ranks:
        rank 0 has missed a rank, or did not answer.
    """
    come, over = f"monitored {number}", f"monitored {number} over"
    if rank == 0:
        missing = _missing(meeting, size, come, seconds, wait_all_ranks=wait_all_ranks)
        text = _of_missing(missing, seconds) if missing else ""
        meeting.put(over, text.encode())
        if missing:
            raise refused(text)
        return
    meeting.put(come, b"")
    answer = meeting.wait(over, 0, seconds + _MARGIN)
    if answer != b"":
        why = (
            f"it raised: {answer.decode()}" if answer else f"it did not answer within {seconds + _MARGIN:g} s"
        )
        raise refused(
            f"peerlane:monitored_barrier : Rank {rank} successfully reached monitoredBarrier, but received errors "
            f"while waiting for send/recv from rank 0: {why}"
        )


def _missing(meeting: Meeting, size: int, come: str, seconds: float, *, wait_all_ranks: bool) -> list[int]:
    if seconds <= 0:
        raise refused(
            f"peerlane:monitored_barrier : Rank 0 timed out in monitoredBarrier after {seconds:g} s"
        )
    ends = time.monotonic() + seconds
    missing = []
    for peer in range(1, size):
        if meeting.wait(come, peer, ends - time.monotonic()) is None:
            missing.append(peer)
            if not wait_all_ranks:
                break
    return missing


def _of_missing(missing: list[int], seconds: float) -> str:
    names = ", ".join(map(str, missing))
    ranks = "Ranks" if len(missing) > 1 else "Rank"
    return f"peerlane:monitored_barrier : {ranks} {names} failed to pass monitoredBarrier in {seconds * 1000:g} ms"


def serve(kind: type[Any]) -> None:
    """Let ``torch.distributed.monitored_barrier`` take groups of a class; torch's own function takes gloo's only."""
    gloos = dist.monitored_barrier

    def either(
        group: dist.ProcessGroup | None = None,
        timeout: timedelta | float | None = None,
        wait_all_ranks: bool = False,
    ) -> None:
        group_in_use = c10d._get_default_group() if group is None else group
        if not isinstance(group_in_use, kind):
            gloos(group, timeout, wait_all_ranks)
            return
        if isinstance(timeout, (int, float)):
            timeout = timedelta(seconds=timeout)
        group_in_use.monitored_barrier(timeout, wait_all_ranks)

    either.__doc__ = gloos.__doc__
    dist.monitored_barrier = c10d.monitored_barrier = either
