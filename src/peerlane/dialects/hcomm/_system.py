"""``hcomm``: properties of communicators, their state, and texts (facts/hcomm 2.2)."""

from __future__ import annotations

import threading
from typing import Annotated

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects._shared.checks import one_of
from peerlane.dialects.acl._state import machine
from peerlane.dialects.hcomm import _basic_channels, _batch, _grouping, _meeting, _suspend
from peerlane.dialects.hcomm._arguments import AnyInt, Enum, RequiredConfig, RequiredText
from peerlane.dialects.hcomm._codes import AGAIN, NOT_SUPPORT, PARA
from peerlane.dialects.hcomm._comm import CommHandle, comm_named, comms, find_comm
from peerlane.dialects.hcomm._header import (
    HcclCommConfigCapability,
    HcclCommStatus,
    HcclConfig,
    HcclResult,
    reset,
)
from peerlane.dialects.hcomm._settings import chosen
from peerlane.dialects.hcomm._state import hcomm, messages
from peerlane.dialects.hcomm.code_texts import texts_of

_text_of = texts_of({"HcclResult": dict(HcclResult.__members__.items())})["HcclGetErrorString"]
_Setting = Annotated[Enum, one_of(NOT_SUPPORT, (HcclConfig.HCCL_DETERMINISTIC,), "pass HCCL_DETERMINISTIC")]


@hcomm.call("hcomm.HcclGetRankSize", out=1)
def HcclGetRankSize(comm: CommHandle) -> int:
    """Return how many ranks a communicator has.

    Gives: number
    Refuses: 2 NULL; 6 the communicator
    Basis: D
    """
    return comm.group.size


@hcomm.call("hcomm.HcclGetRankId", out=1)
def HcclGetRankId(comm: CommHandle) -> int:
    """Return which rank this is.

    Gives: rank
    Refuses: 2 NULL; 6 the communicator
    Basis: D
    """
    return comm.group.rank


@hcomm.call("hcomm.HcclGetCommName", out=1, blank=("",))
def HcclGetCommName(comm: CommHandle) -> str:
    """Return the name of a communicator: its configuration's, or one that all ranks of a root info derive alike.

    Gives: name
    Refuses: 2 NULL; 6 the communicator
    Basis: D
    """
    return comm.comm_name


@hcomm.call("hcomm.HcclCommGetHandleWithName", out=1)
def HcclCommGetHandleWithName(commName: RequiredText) -> int:
    """Return the communicator of a name in this process.

    Gives: comm
    Refuses: 2 NULL; 6 none has it
    Basis: D
    """
    return comm_named(commName).handle


@hcomm.value("hcomm.HcclGetErrorString")
def HcclGetErrorString(code: AnyInt) -> str:
    """Return the meaning of a code.

    Gives: bare str
    Basis: D; C for the texts
    """
    return _text_of(code)


@hcomm.value("hcomm.HcclGetCommConfigCapability")
def HcclGetCommConfigCapability() -> int:
    """Return how many fields of HcclCommConfig are known.

    Gives: bare int
    Basis: D
    """
    return int(HcclCommConfigCapability.HCCL_COMM_CONFIG_RESERVED)


@hcomm.call("hcomm.HcclCommConfigInit")
def HcclCommConfigInit(config: RequiredConfig) -> None:
    """Fill a configuration with the vendor's defaults; C returns nothing.

    Refuses: 2 NULL
    Basis: S
    """
    reset(config)


@hcomm.call("hcomm.HcclGetCommAsyncError", out=1)
def HcclGetCommAsyncError(comm: CommHandle) -> int:
    """Return what went wrong on the network: nothing; calls and synchronizations report failures.

    Gives: 0
    Refuses: 2 NULL; 6 the communicator
    Basis: D
    """
    return 0


@hcomm.call("hcomm.HcclCommGetStatus", out=1)
def HcclCommGetStatus(commId: RequiredText) -> int:
    """Return the state of a communicator, by its name: 0 ready, 1 suspended, 254 there is none.

    Gives: HcclCommStatus
    Refuses: 2 NULL
    Basis: D; C for 254
    """
    comm = find_comm(commId)
    if comm is None:
        return int(HcclCommStatus.HCCL_COMM_STATUS_INVALID)
    is_suspended = comm.is_suspended
    return int(
        HcclCommStatus.HCCL_COMM_STATUS_SUSPENDING if is_suspended else HcclCommStatus.HCCL_COMM_STATUS_READY
    )


@hcomm.call("hcomm.HcclSetConfig")
def HcclSetConfig(config: _Setting, configValue: Enum) -> None:
    """Take whether reductions are deterministic, 0 to 2: they always are.

    Refuses: 1 value; 5 other settings
    Basis: D; C for the codes
    """
    if not 0 <= configValue <= 2:
        raise PARA.refusal(f"the value is {configValue}; valid are 0 to 2", "pass 1 for deterministic")
    chosen.deterministic = configValue


@hcomm.call("hcomm.HcclGetConfig", out=1)
def HcclGetConfig(config: _Setting) -> int:
    """Return what ``HcclSetConfig`` set.

    Gives: value
    Refuses: 5 other settings than HCCL_DETERMINISTIC
    Basis: D; C for the code
    """
    return chosen.deterministic


@hcomm.call("hcomm.HcommAcquireComm")
def HcommAcquireComm(commId: RequiredText) -> None:
    """Lock a communicator, by its name, for this thread; the call never waits.

    Refuses: 2 NULL; 6 none has the name; 1 this thread has locked it; 20 another thread has
    Basis: D; C for the codes
    """
    comm = comm_named(commId)
    me = threading.get_ident()
    with comm.guard:
        if comm.owner is not None:
            mine = comm.owner == me
            raise Refusal(
                PARA if mine else AGAIN,
                f"{'this thread' if mine else f'thread {comm.owner}'} has locked {comm} already",
                "call HcommReleaseComm first",
            )
        comm.owner = me


@hcomm.call("hcomm.HcommReleaseComm")
def HcommReleaseComm(commId: RequiredText) -> None:
    """Unlock a communicator that this thread has locked.

    Refuses: 2 NULL; 6 none has the name; 1 this thread has not locked it
    Basis: D; C for the codes
    """
    comm = comm_named(commId)
    with comm.guard:
        if comm.owner != threading.get_ident():
            raise PARA.refusal(
                f"this thread has not locked {comm}", "call HcommAcquireComm before, in the same thread"
            )
        comm.owner = None


def begin_anew() -> None:
    """Be as a new process finds ``hcomm``; communicators end."""
    for each in comms():
        if machine.drop(each, "begin_anew"):
            each.abandon()
    _basic_channels.forget()
    _suspend.forget()
    _batch.forget()
    _grouping.forget()
    _meeting.forget()
    messages.forget()
    chosen.forget()
