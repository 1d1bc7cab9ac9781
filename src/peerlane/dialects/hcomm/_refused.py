"""Calls of the vendor that a virtual machine does not have: each answers HCCL_E_NOT_SUPPORT, and says why."""

from __future__ import annotations

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects._shared.header import table
from peerlane.dialects.hcomm._codes import NOT_SUPPORT
from peerlane.dialects.hcomm._state import hcomm

REFUSED: dict[str, str] = table("hcomm")["refused"]  #: the reason by name


def names() -> list[str]:
    """Return the names of the calls that refuse."""
    served = hcomm.functions("hcomm")
    return sorted(name for name in REFUSED if name not in served)


def serve() -> dict[str, object]:
    """Return a call for each name that refuses."""
    return {
        name: hcomm.refusing(
            f"hcomm.{name}", Refusal(NOT_SUPPORT, REFUSED[name], "docs/reference/hcomm.md lists what works")
        )
        for name in names()
    }
