"""Exports of memory, handles and notifies to other processes: their keys, and lists of processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from peerlane import Handle
from peerlane.dialects._shared.call import int_list
from peerlane.dialects.acl._checks import one_of
from peerlane.dialects.acl._codes import REMEDIES, Code
from peerlane.errors import BadHandle, Fault
from peerlane.sharing.handle import check_offered

_LARGEST = (1 << 31) - 1
_SHORTEST, _TOO_LONG = 65, 1024
_NO_KEY = frozenset(
    {Fault.BAD_HANDLE, Fault.STALE_HANDLE, Fault.WRONG_KIND, Fault.HANDLE_VERSION, Fault.NODE_MISMATCH}
)


def refuse_long(call: str, length: int) -> None:
    """Raise ValueError for a length of a key's buffer that the binding does not take."""
    if length >= _TOO_LONG:
        raise ValueError(f"{call}: len is {length}; valid are {_SHORTEST} to {_TOO_LONG - 1}")


def refuse_short(length: int) -> None:
    """Refuse a buffer that is too short for a key: 107000."""
    if length < _SHORTEST:
        raise Code.RT_PARAM_INVALID.refusal(
            f"len is {length}, and a key with its end has {_SHORTEST} bytes", f"pass {_SHORTEST}"
        )


def text_of(handle: Handle) -> str:
    """Return the key of an export."""
    return bytes(handle).decode()


@contextlib.contextmanager
def as_no_key() -> Iterator[None]:
    """Refuse texts that are not a key with 507899 (facts/acl 3)."""
    try:
        yield
    except BadHandle as error:
        if error.fault not in _NO_KEY:
            raise
        raise Code.RT_DRV_INTERNAL_ERROR.refusal(str(error), REMEDIES[error.fault]) from None


def let_in(handle: Handle, pids: Iterable[int]) -> None:
    """List every process as an importer, or none if one number is not a pid: 107000.

    207006 if the handle was exported without a list.  Raises Closed if the handle is closed.
    """
    check_offered(handle, "Handle.allow.add")
    if handle.allow.is_everyone:
        raise Code.RT_NO_PERMISSION.refusal(
            "it was exported without a list of processes: any may import it",
            "export with flags 0 to choose the importers",
        )
    wanted = list(pids)
    for pid in wanted:
        if not 0 < pid <= _LARGEST:
            raise Code.RT_PARAM_INVALID.refusal(
                f"{pid} is not a process",
                "pass what acl.rt.device_get_bare_tgid gives in the processes that shall import",
            )
    for pid in wanted:
        handle.allow.add(pid)


def pids_of(call: str, listed: object) -> list[int]:
    """Return a list of processes: ValueError unless it is a list of ints, 107000 for an empty one."""
    pids = int_list(call, listed)
    if not pids:
        raise Code.RT_PARAM_INVALID.refusal("the list of processes is empty", "pass at least one")
    return pids


def refuse_export_flags(flags: int, for_all: int) -> bool:
    """Return whether any process may import; refuse flags other than 0 and ``for_all``: 107000."""
    one_of("flags", (0, for_all), f"pass 0, or {for_all} to let any process of this user import")(flags)
    return flags == for_all
