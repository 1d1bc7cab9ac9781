"""``hcomm``: suspending communicators, and who is told of it (facts/hcomm 2.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from peerlane.dialects._shared.call import Object, Parse
from peerlane.dialects.acl._state import swallow
from peerlane.dialects.hcomm._arguments import CText, Handle, given
from peerlane.dialects.hcomm._comm import Comm, comm_of
from peerlane.dialects.hcomm._enums import HcclCommStatePhase
from peerlane.dialects.hcomm._state import hcomm

_callbacks: dict[str, tuple[Callable[..., Any], object]] = {}


def _callable(value: object) -> Any:
    if value is not None and not callable(value):
        raise TypeError("must be callable or None")
    return value


Callback = Annotated[Callable[..., Any] | None, Parse(_callable)]


def tell(comm: Comm, phase: HcclCommStatePhase) -> None:
    """Tell everybody who wants to know what happens to a communicator; what they raise becomes a message."""
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
def HcclCommRegCommStateCallback(regName: CText, cb: Callback, args: Object) -> None:
    """Let ``cb(comm, phase, args)`` be called before and after communicators end or are resumed; one for each name.

    Refuses: 2 NULL
    Basis: D; C for a name that is taken: the newer one counts
    """
    name = given("regName", regName)
    _callbacks[name] = (given("cb", cb), args)


@hcomm.call("hcomm.HcclCommSuspend")
def HcclCommSuspend(comm: Handle) -> None:
    """Let the calls of the data plane on a communicator return 22 from now on; what is queued goes on.

    Refuses: 2 NULL; 6 the communicator
    Basis: D
    """
    comm_of(comm).is_suspended = True


@hcomm.call("hcomm.HcclCommResume")
def HcclCommResume(comm: Handle) -> None:
    """Undo ``HcclCommSuspend``.

    Refuses: 2 NULL; 6 the communicator
    Basis: D
    """
    found = comm_of(comm)
    tell(found, HcclCommStatePhase.HCCL_COMM_STATE_PHASE_RESUME_PRE)
    found.is_suspended = False
    tell(found, HcclCommStatePhase.HCCL_COMM_STATE_PHASE_RESUME_POST)


def forget() -> None:
    """Be as in a new process."""
    _callbacks.clear()
