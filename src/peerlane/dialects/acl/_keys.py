"""Keys: the texts by which other processes import memory and notifies (facts/acl 4.6)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from peerlane import Handle
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.acl._codes import REMEDIES, Code
from peerlane.errors import BadHandle, Fault

_SHORTEST, _TOO_LONG = 65, 1024
_NO_KEY = frozenset(
    {Fault.BAD_HANDLE, Fault.STALE_HANDLE, Fault.WRONG_KIND, Fault.HANDLE_VERSION, Fault.NODE_MISMATCH}
)


def refuse_long(call: str, length: int) -> None:
    """Raise ValueError for room that the binding does not take."""
    if length >= _TOO_LONG:
        raise ValueError(f"{call}: len is {length}; valid are {_SHORTEST} to {_TOO_LONG - 1}")


def refuse_short(length: int) -> None:
    """Refuse room that a key has not enough of: 107000."""
    if length < _SHORTEST:
        raise Refusal(
            Code.RT_PARAM_INVALID,
            f"len is {length}, and a key with its end has {_SHORTEST} bytes",
            f"pass {_SHORTEST}",
        )


def text_of(given: Handle) -> str:
    """Return the key of what was exported."""
    return bytes(given).decode()


@contextlib.contextmanager
def as_no_key() -> Iterator[None]:
    """Answer what is no key with 507899 (facts/acl 3)."""
    try:
        yield
    except BadHandle as error:
        if error.fault not in _NO_KEY:
            raise
        raise Refusal(Code.RT_DRV_INTERNAL_ERROR, str(error), REMEDIES[error.fault]) from None
