"""Which node this process is in.  Nothing is entered before the first call that needs one."""

from __future__ import annotations

import atexit
import os
import threading

from peerlane import _core
from peerlane.backends.virtual.backend import VirtualBackend, refuse_other_window
from peerlane.backends.virtual.node.config import NodeConfig
from peerlane.backends.virtual.node.state import refuse_other_shape
from peerlane.errors import Closed, Fault

_lock = threading.RLock()
_current: VirtualBackend | None = None
_is_over = False


def _after_fork() -> None:
    # A thread that entered a node while another one forked does not exist in the child to let go of the lock.
    global _lock
    _lock = threading.RLock()
    if _core.begin_anew() and _current is not None:
        _current.inherit()


os.register_at_fork(after_in_child=_after_fork)


def current() -> VirtualBackend:
    """Return the back-end of this process's node, entering the one of ``PEERLANE_NODE`` at first.

    Raises
    ------
    Closed
        ``FORKED`` in the child of a fork that came after its parent had used devices; the process is ending.
    """
    if _current is None:
        check_time()
        return enter(NodeConfig.from_environment())
    _core.check_usable()
    if _current.is_inherited:
        _current.join()
    return _current


def end() -> None:
    """Leave the node, and enter none any more: destructors that run while the interpreter ends find none."""
    global _is_over
    _is_over = True
    leave()


def check_time() -> None:
    """Refuse what comes after the exit handlers: ``Closed``."""
    if _is_over:
        raise Closed(
            "the process is ending: its node was left by an exit handler",
            fault=Fault.PROCESS_ENDING,
            call="devices",
        )


def is_entered() -> bool:
    """Tell whether this process is in a node."""
    return _current is not None


def enter(config: NodeConfig) -> VirtualBackend:
    """Enter ``config``, leaving the present node if it is another one.

    The present node is kept when the new one is refused.
    """
    global _current
    _core.check_usable()
    check_time()
    with _lock:
        if _current is not None and _current.config == config:
            return current()
        if _current is not None and _current.config.name == config.name:
            # One file: this process's own slot in it is in its way and must go first.
            refuse_other_window(config)
            refuse_other_shape(config)
            leave()
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
            _core.end_use()


# Exit handlers run from the last to the first: the device module, which needs this one, leaves the node before.
atexit.register(_core.interpreter_exits)
