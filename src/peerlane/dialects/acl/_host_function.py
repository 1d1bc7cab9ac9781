"""``acl.rt``: functions of the program in stream order, on a thread of the library (facts/acl 6)."""

from __future__ import annotations

from peerlane.dialects._shared.call import Address, Object, Refusal, type_name
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl
from peerlane.dialects.acl._stream import stream_of


@acl.call("aclrtLaunchHostFunc")
def launch_host_function(stream: Address, fn: Object, args: Address) -> None:
    """Call ``fn(args)`` when all earlier operations are over; later ones wait for its return.

    One thread calls the functions of all streams; none has to be subscribed.  A function must not wait for its own
    stream: 507046.

    Refuses: 107000 NULL, stream; 107002; 107003
    Basis: S, D; C for NULL and the one thread
    """
    found = stream_of(stream)
    if not callable(fn):
        given = "NULL" if fn is None else f"of type {type_name(fn)}"
        raise Refusal(Code.RT_PARAM_INVALID, f"fn is {given}", "pass a function")
    found.neutral.launch_callback(fn, args)
