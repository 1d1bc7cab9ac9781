"""``hcomm``: suspending communicators, and callbacks about their state (facts/hcomm 2.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from peerlane.backend import host
from peerlane.dialects._shared.call import Object, Parse
from peerlane.dialects.acl._state import swallow
from peerlane.dialects.hcomm._arguments import REQUIRED, RequiredText
from peerlane.dialects.hcomm._comm import Comm, CommHandle
from peerlane.dialects.hcomm._header import HcclCommStatePhase
from peerlane.dialects.hcomm._state import hcomm

_callbacks: dict[str, tuple[Callable[..., Any], object]] = {}


def _callable(value: object) -> Any:
    if value is not None and not callable(value):
        raise TypeError("must be callable or None")
    return value


_Callback = Annotated[Callable[..., Any], Parse(_callable, shown=Callable[..., Any] | None), REQUIRED]


def run_callbacks(comm: Comm, phase: HcclCommStatePhase) -> None:
    """Run the registered callbacks about a communicator; an error that one raises becomes a message."""
    for name, (callback, args) in list(_callbacks.items()):
        try:
            callback(comm.handle, phase, args)
        except BaseException as error:  # noqa: BLE001 - the communicator has to go on
            swallow(
                error,
                f"the callback of {name!r}",
                f"it was told {phase.name} of {comm}",
                "catch in the callback what may be raised there",
            )


@hcomm.call("hcomm.HcclCommRegCommStateCallback")
def HcclCommRegCommStateCallback(regName: RequiredText, cb: _Callback, args: Object) -> None:
    """Let ``cb(comm, phase, args)`` be called before and after communicators end or are resumed; one for each name.

    Refuses: 2 NULL
    Basis: D; C for a name that is taken: the newer callback counts
    """
    _callbacks[regName] = (cb, args)


@hcomm.call("hcomm.HcclCommSuspend")
def HcclCommSuspend(comm: CommHandle) -> None:
    """Let calls of the data plane on a communicator return 22 from now on; queued operations go on.

    Refuses: 2 NULL; 6 the communicator
    Basis: D
    """
    comm.is_suspended = True
    host.forget_c_threads()


@hcomm.call("hcomm.HcclCommResume")
def HcclCommResume(comm: CommHandle) -> None:
    """Undo ``HcclCommSuspend``.

    Refuses: 2 NULL; 6 the communicator
    Basis: D
    """
    run_callbacks(comm, HcclCommStatePhase.HCCL_COMM_STATE_PHASE_RESUME_PRE)
    comm.is_suspended = False
    run_callbacks(comm, HcclCommStatePhase.HCCL_COMM_STATE_PHASE_RESUME_POST)


def forget() -> None:
    """Forget the callbacks, as a new process has none."""
    _callbacks.clear()
