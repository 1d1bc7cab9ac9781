"""The collectives as methods of a group."""

from __future__ import annotations

from peerlane.collectives.moving import Moving
from peerlane.collectives.reducing import Reducing
from peerlane.collectives.turns import Turns
from peerlane.errors import InvalidValue
from peerlane.support.timeouts import checked_timeout


class Collectives(Moving, Reducing):
    """The part of a :class:`peerlane.Group` that all ranks call together, in the same order and with equal sizes.

    Without a stream a call is complete on return: this rank's result is there, and its sources may be changed.  With
    one it is queued there; collectives of a group run one after the other, whatever streams they are on.  Only the
    first one waits, for the first one of the ranks in other processes.  Buffers are what :func:`peerlane.copy` takes.

    A collective that fails half-way ends the collectives of its group, here (``Closed``) and for the peers
    (``PeerLost``).  So does a rank that calls something else than the others, or with other sizes: the last to call
    finds it, with ``InvalidValue``.
    """

    def _prepare_collectives(self, call: str, workspace: object, wait_timeout: float | None) -> None:
        if isinstance(workspace, bool) or not isinstance(workspace, int):
            raise TypeError(f"{call}: workspace must be an int, not {type(workspace).__name__}")
        if workspace < 0:
            raise InvalidValue(f"{call}: workspace is {workspace}; valid are 0 bytes and more", call=call)
        checked_timeout(call, wait_timeout)
        self._turns = Turns(self, workspace, wait_timeout)  # type: ignore[arg-type]  # every Collectives is a Group

    def _end_collectives(self) -> None:
        self._turns.end()
