"""Rows of ``hcomm_tables``: what calls on engine contexts, and queries of endpoints and threads, refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def declare_contexts(
    one: Callable[..., None], each: Callable[..., None], comms: list[Any], threads: list[Any]
) -> None:
    """Declare what these calls answer, with the functions and lists of ``hcomm_tables``."""
    one("HcclEngineCtxCreate", 0, "comm", "ctx", 2, 64)
    each("HcclEngineCtxCreate", (), comms, "ctx", 2, 64)
    each("HcclEngineCtxCreate", ("comm",), [(None, 2), ("x" * 256, 1)], 2, 64)
    each("HcclEngineCtxCreate", ("comm", "ctx"), [(4, 5), (9, 1), (-1, 1), (1 << 32, 1)], 64)
    each("HcclEngineCtxCreate", ("comm", "ctx", 2), [(0, 1), (1 << 62, 24), (1 << 64, 1)])
    each("HcclEngineCtxGet", (), comms, "ctx", 2)
    each("HcclEngineCtxGet", ("comm",), [(None, 2), ("nothing", 6)], 2)
    each("HcclEngineCtxCopy", (), comms, 2, "ctx", "host", 8, 0)
    each("HcclEngineCtxCopy", ("comm", 2), [(None, 2), ("nothing", 6)], "host", 8, 0)
    one("HcclEngineCtxCopy", 2, "comm", 2, "ctx", None, 8, 0)
    each("HcclEngineCtxDestroy", (), comms, "ctx", 2)
    each("HcclEngineCtxDestroy", ("comm",), [(None, 2), ("nothing", 1)], 2)
    each("HcommEndpointGetDescNum", (), [(0, 5), (-1, 1), (99, 1), (1 << 32, 1)])
    each("HcommEndpointGetDescs", (), [(0, 5), (-1, 1), (99, 1)], 1)
    one("HcommThreadResGetInfo", 0, "thread", 0, 8)
    each("HcommThreadResGetInfo", (), threads, 0, 8)
    one("HcommThreadResGetInfo", 1, "thread", -1, 8)
    one("HcommThreadResGetInfo", 1, "thread", 0, 4)
    one("HcommThreadResGetInfo", 5, "slave", 0, 8)
