"""Which node this process is in.  Nothing is entered before the first call that needs one."""

from __future__ import annotations

import atexit
import os
import threading

from peerlane.backend.virtual import VirtualBackend
from peerlane.node.config import NodeConfig

_lock = threading.RLock()
_current: VirtualBackend | None = None


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


# A thread that entered a node while another one forked does not exist in the child to let go of the lock.
os.register_at_fork(after_in_child=_renew_lock)


def current() -> VirtualBackend:
    """Return the back-end of this process's node, entering the one of ``PEERLANE_NODE`` at first."""
    return _current or enter(NodeConfig.from_environment())


def is_entered() -> bool:
    """Tell whether this process is in a node."""
    return _current is not None


def enter(config: NodeConfig) -> VirtualBackend:
    """Enter ``config``, leaving the present node if it is another one."""
    global _current
    with _lock:
        if _current is not None and _current.config == config:
            return _current
        entered = VirtualBackend(config)
        leave()
        _current = entered
        return entered


def leave() -> None:
    """Leave the present node: its allocations die, its objects become Closed.  Idempotent."""
    global _current
    with _lock:
        left, _current = _current, None
        if left is not None:
            left.close()


atexit.register(leave)
