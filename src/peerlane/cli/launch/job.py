"""The job of a part of launch: the ranks of its machine, and how they reach the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .wire import BadFrame


@dataclass(frozen=True)
class Job:
    """The ranks of one machine.

    Attributes
    ----------
    host : str
        What the launcher calls the machine.
    first, count, size : int
        The first of its ranks, their number, and that of all ranks.
    flags, words : sequence of str
        The options of Python, and the words that follow them.
    folder : str
        The working directory.
    environment : dict of str to str
        Variables for all its ranks.
    server : str
        The rendezvous: ``"host:port"``; on the launcher's machine the path of its socket.
    secret : str
        In hexadecimal; empty on the launcher's machine.
    unreachable : float
        Seconds of silence after which the launcher's machine counts as lost.
    dialects : sequence of str
        The dialects to install; none on the launcher's machine, where they are.
    shadow_real : bool
        As `peerlane.dialects.install` has it.
    ignored : sequence of int
        The signals that the ranks ignore, because launch does.
    logs : bool
        Whether the launcher wants the event logs.
    log_bytes, faults : str
        ``PEERLANE_LOG_BYTES`` and ``PEERLANE_FAULT``, or nothing.
    """

    host: str
    first: int
    count: int
    size: int
    flags: Sequence[str]
    words: Sequence[str]
    folder: str
    environment: dict[str, str]
    server: str
    secret: str
    unreachable: float
    dialects: Sequence[str]
    shadow_real: bool
    ignored: Sequence[int]
    logs: bool
    log_bytes: str
    faults: str

    @property
    def is_local(self) -> bool:
        """Whether the launcher is on the same machine."""
        return not self.secret

    def as_json(self) -> dict[str, Any]:
        """Return it as `from_json` takes it."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Any) -> Job:
        """Return the job that a launcher has sent; raise BadFrame if it has other fields."""
        try:
            return cls(**fields)
        except TypeError as error:
            raise BadFrame(f"a job has other fields: {error}") from None
