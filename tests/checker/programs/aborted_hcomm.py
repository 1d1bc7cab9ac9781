"""Rank 0 gives up a write of HCOMM, and uses the source again: ``aborted_hcomm.py racy|right``.

The access that comes too early has the kind's name at the end of its line.
"""

import sys

import acl
import hcomm

from checker.hcomm_orders.rank import PART, Rank, ok

if __name__ == "__main__":
    rank = Rank()
    if rank.number == 0:
        ok(acl.rt.memset(rank.buffer, PART, 1, PART))
        (stream,) = rank._streams
        ok(hcomm.HcommWriteOnThread(rank.main, rank.channels[1], rank.theirs[1], rank.buffer, PART))
        if sys.argv[1] == "racy":
            ok(acl.rt.destroy_stream_force(stream))
            ok(acl.rt.memset(rank.buffer, PART, 2, PART))  # forced
        else:
            ok(acl.rt.stream_abort(stream))  # it waits for what runs
            ok(acl.rt.memset(rank.buffer, PART, 2, PART))
    rank._line.barrier()
