"""The job of a part of launch: the ranks of its machine, and how they reach the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .wire import BadFrame


@dataclass(frozen=True)
class Job:
    """The ranks of one machine."""

    host: str  #: what the launcher calls the machine
    first: int  #: ``first``, ``count``, ``size``: the first of its ranks, their number, and that of all ranks
    count: int
    size: int
    flags: Sequence[str]  #: ``flags``, ``words``: the options of Python, and the words that follow them
    words: Sequence[str]
    folder: str  #: the working directory
    environment: dict[str, str]  #: variables for all its ranks
    server: str  #: the rendezvous: ``"host:port"``; on the launcher's machine the path of its socket
    secret: str  #: in hexadecimal; empty on the launcher's machine
    unreachable: float  #: seconds of silence after which the launcher's machine counts as lost
    dialects: Sequence[str]  #: the dialects to install; none on the launcher's machine, where they are
    shadow_real: bool  #: as `peerlane.dialects.install` has it
    ignored: Sequence[int]  #: the signals that the ranks ignore, because launch does
    logs: bool  #: whether the launcher wants the event logs
    log_bytes: str  #: ``log_bytes``, ``faults``: ``PEERLANE_LOG_BYTES`` and ``PEERLANE_FAULT``, or nothing
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
