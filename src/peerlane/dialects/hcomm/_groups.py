"""``hcomm``: grouped calls, which are checked at once and carried out at the end of their group (facts/hcomm 2.2)."""

from __future__ import annotations

from peerlane.dialects.hcomm._batch import carry_out
from peerlane.dialects.hcomm._grouping import begin, finish
from peerlane.dialects.hcomm._point_to_point import exchange
from peerlane.dialects.hcomm._state import hcomm


@hcomm.call("hcomm.HcclGroupStart")
def HcclGroupStart() -> None:
    """Keep what this thread calls of a kind until ``HcclGroupEnd``: collectives, messages, or makers and ends of
    communicators.

    Each call is checked at once.  Groups nest, and the outermost counts.  A communicator that a call returned may be
    used after the end: so one thread makes those of several ranks.

    Basis: D, S
    """
    begin()


@hcomm.call("hcomm.HcclGroupEnd")
def HcclGroupEnd() -> None:
    """Carry out what was kept: messages all at once, as ``HcclBatchSendRecv``, the others in their order.

    The first that fails ends it, with its code.

    Refuses: 5 this thread has begun none; what a call failed with: 1, 4, 6, 9, 15, 19, 20, 21, 22, 24
    Basis: D, S; C for failures
    """
    group = finish()
    if group is None:
        return
    exchange(group.messages)
    try:
        carry_out(group.calls, "group")
    except BaseException:
        for undo in group.undo:
            undo()
        raise
