"""``hcomm``: grouped calls, which are checked at once and run at the end of their group (facts/hcomm 2.2)."""

from __future__ import annotations

from peerlane.dialects.hcomm._batch import carry_out
from peerlane.dialects.hcomm._grouping import begin, finish
from peerlane.dialects.hcomm._point_to_point import exchange
from peerlane.dialects.hcomm._state import hcomm


@hcomm.call("hcomm.HcclGroupStart")
def HcclGroupStart() -> None:
    """Keep the calls of this thread until ``HcclGroupEnd``.

    A group has calls of one kind: collectives, messages, or calls that make and end communicators.  Each call is
    checked at once.  Groups nest, and the outermost counts.  A communicator that a call returned may be used after
    the end of the group: so one thread makes the communicators of several ranks.

    Basis: D, S
    """
    begin()


@hcomm.call("hcomm.HcclGroupEnd")
def HcclGroupEnd() -> None:
    """Run the calls of the group: messages all at once, as ``HcclBatchSendRecv``, the others in their order.

    The first call that fails ends the group, with its code.

    Refuses: 5 this thread has begun no group; the code of a call that failed: 1, 4, 6, 9, 15, 19, 20, 21, 22, 24
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
