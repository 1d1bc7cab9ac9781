"""Lists of processes that may import what this one exported."""

from __future__ import annotations

from collections.abc import Iterable

from peerlane import Handle
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.acl._codes import Code

_LARGEST = (1 << 31) - 1


def let_in(handle: Handle, pids: Iterable[int]) -> None:
    """List every process, or none if one number is no pid: 107000.

    207006 if the handle was exported without a list.  Raises Closed if it is over.
    """
    handle._check_offered("Handle.allow.add")
    if handle.allow.is_everyone:
        raise Refusal(
            Code.RT_NO_PERMISSION,
            "it was exported without a list of processes: any may import it",
            "export with flags 0 to choose who may",
        )
    wanted = list(pids)
    for pid in wanted:
        if not 0 < pid <= _LARGEST:
            raise Refusal(
                Code.RT_PARAM_INVALID,
                f"{pid} is no process",
                "pass what acl.rt.device_get_bare_tgid gives in the processes that shall import",
            )
    for pid in wanted:
        handle.allow.add(pid)


def refuse_no_pids(pids: list[int]) -> None:
    """Refuse an empty list: 107000."""
    if not pids:
        raise Refusal(Code.RT_PARAM_INVALID, "the list of processes is empty", "pass at least one")


def refuse_export_flags(flags: int, for_all: int) -> bool:
    """Return whether any process may import; refuse flags other than 0 and ``for_all``: 107000."""
    if flags not in (0, for_all):
        raise Refusal(
            Code.RT_PARAM_INVALID,
            f"flags is {flags}",
            f"pass 0, or {for_all} to let any process of this user import",
        )
    return flags == for_all
