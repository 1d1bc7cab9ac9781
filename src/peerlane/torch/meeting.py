"""Ranks meet over a store of torch."""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta

import torch.distributed as dist

from peerlane.errors import Refused, WaitTimeout


class Meeting:
    """The keys of one process group in its store.

    A store may outlive a group and keep its values, so the keys contain how often this rank has made the group.

    Parameters
    ----------
    store : Store
    rank, size : int
    seconds : float
        How long to wait for other ranks.
    call : str
        What they all call, for texts.

    Attributes
    ----------
    time : int
        How often this rank has made the group; the same in all ranks.
    """

    def __init__(
        self, store: dist.Store, rank: int, size: int, seconds: float, *, call: str = "Group"
    ) -> None:
        self._store, self._rank, self._size, self._seconds = store, rank, size, seconds
        self._call = call
        self.time = store.add(f"peerlane/made/{rank}", 1)

    def key(self, name: str, rank: int) -> str:
        """Return the key of a rank's value of that name."""
        return f"peerlane/{self.time}/{name}/{rank}"

    def put(self, name: str, value: bytes) -> None:
        """Set this rank's value of that name."""
        self._store.set(self.key(name, self._rank), value)

    def wait(self, name: str, rank: int, seconds: float) -> bytes | None:
        """Return a rank's value of that name, None if it does not come in time."""
        key = self.key(name, rank)
        if not self._have_come([key], seconds):
            return None
        value: bytes = self._store.get(key)
        return value

    def _have_come(self, keys: list[str], seconds: float) -> bool:
        try:
            # A store takes 0 for its own time-out.
            self._store.wait(keys, timedelta(seconds=max(seconds, 0.001)))
        except (dist.DistStoreError, RuntimeError):
            return bool(self._store.check(keys))
        return True

    def all_gather(self, name: str, value: bytes) -> list[bytes]:
        """Return the values of all ranks.

        Raises
        ------
        WaitTimeout
            Ranks did not come in time; the text names them.
        """
        self.put(name, value)
        ends = time.monotonic() + self._seconds
        keys = [self.key(name, rank) for rank in range(self._size)]
        if self._store.has_extended_api():
            # It waits for the keys by itself, as long as the store's own time-out.
            waits = self._store.timeout <= timedelta(seconds=self._seconds)
            with contextlib.suppress(dist.DistStoreError):
                if waits or self._have_come(keys, self._seconds):
                    return list(self._store.multi_get(keys))
        values = [self.wait(name, rank, ends - time.monotonic()) for rank in range(self._size)]
        if None in values:
            late = tuple(rank for rank, value in enumerate(values) if value is None)
            missing = ", ".join(map(str, late))
            raise WaitTimeout(
                f"{self._call}: of {self._size} ranks these did not come within {self._seconds:g} s: {missing}; all "
                "ranks of the process group must make the call",
                call=self._call,
                detail=Refused(reason="ranks_missing", ranks=late, size=self._size, seconds=self._seconds),
            )
        return [value for value in values if value is not None]
