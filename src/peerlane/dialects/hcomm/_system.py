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

_TEXTS = {
    HcclResult.HCCL_SUCCESS: "no error",
    HcclResult.HCCL_E_PARA: "an argument is wrong",
    HcclResult.HCCL_E_PTR: "a pointer is NULL",
    HcclResult.HCCL_E_MEMORY: "memory cannot be used so",
    HcclResult.HCCL_E_INTERNAL: "an internal error",
    HcclResult.HCCL_E_NOT_SUPPORT: "this is not supported",
    HcclResult.HCCL_E_NOT_FOUND: "an object or memory was not found",
    HcclResult.HCCL_E_UNAVAIL: "a resource is used up",
    HcclResult.HCCL_E_SYSCALL: "a call of the system failed",
    HcclResult.HCCL_E_TIMEOUT: "a wait took too long",
    HcclResult.HCCL_E_OPEN_FILE_FAILURE: "a file cannot be read",
    HcclResult.HCCL_E_TCP_CONNECT: "no connection over TCP",
    HcclResult.HCCL_E_ROCE_CONNECT: "no connection over RoCE",
    HcclResult.HCCL_E_TCP_TRANSFER: "a transfer over TCP failed",
    HcclResult.HCCL_E_ROCE_TRANSFER: "a transfer over RoCE failed",
    HcclResult.HCCL_E_RUNTIME: "a call of the runtime failed",
    HcclResult.HCCL_E_DRV: "a call of the driver failed",
    HcclResult.HCCL_E_PROFILING: "a call of the profiler failed",
    HcclResult.HCCL_E_CCE: "a call of the compute engine failed",
    HcclResult.HCCL_E_NETWORK: "the network failed",
    HcclResult.HCCL_E_AGAIN: "it is busy; try again",
    HcclResult.HCCL_E_REMOTE: "the other end failed",
    HcclResult.HCCL_E_SUSPENDING: "the communicator is suspended",
    HcclResult.HCCL_E_OPRETRY_FAIL: "an operation cannot be repeated",
    HcclResult.HCCL_E_OOM: "memory is used up",
    HcclResult.HCCL_E_IN_STATUS: "the error is in the status",
}
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
    known = code in HcclResult.__members__.values() and code in _TEXTS
    return f"{HcclResult(code).name}: {_TEXTS[HcclResult(code)]}" if known else f"unknown code {code}"


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
        raise Refusal(PARA, f"the value is {configValue}; valid are 0 to 2", "pass 1 for deterministic")
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
            raise Refusal(
                PARA,
                f"this thread has not locked {comm}",
                "call HcommAcquireComm before, in the same thread",
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
