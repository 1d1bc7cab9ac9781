"""Calls of the vendor that a virtual machine does not have: each answers HCCL_E_NOT_SUPPORT, and says why."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.hcomm._codes import NOT_SUPPORT
from peerlane.dialects.hcomm._state import hcomm

_RECORDING = "kernels on a device record tasks and repeat them, and there are no kernels"
_TEAMS = (
    "these fill tables on the device that kernels read, and there are no kernels; HcclWorldTeamCreate, "
    "HcclSubTeamCreate and HcclTeamChannelsCreate make teams"
)
_SHARED_QUEUES = "queues are shared by channels of engine AIV only, and there are none"
_KERNELS = "engines AIV and CCU run kernels, which no virtual device does"
_NICS = "a virtual machine has no network cards that could be changed"
_GRAPHS = "memory of a graph is activated by the compiler, which is not here"
_GROUPS = "nothing of a group is under way: HcclGroupEnd tells how its calls ended"
_FEATURES = (
    "it is not built; HcclChannelGetHcclBuffer and HcclChannelGetRemoteMems tell what a channel reaches"
)
_TASKS = "callbacks of tasks belong to the vendor's profiler and tracer"

#: By name: the reason.
REFUSED: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            [f"HcommAicpuTsTaskCache{each}" for each in ("Lookup", "Start", "End", "Execute", "Clear")],
            _RECORDING,
        ),
        **dict.fromkeys(
            (
                *("HcommTeamCreateDescInit", "HcommTeamBindChannelsDescInit"),
                *("HcommTeamWindowDescInit", "HcommTeamBindSyncMemDescInit", "HcommTeamCreate"),
                *("HcommTeamDestroy", "HcommTeamWindowRegister", "HcommTeamWindowDeregister"),
                *("HcommTeamBindChannels", "HcommTeamBindRemoteSyncMem", "HcommTeamWindowBindRemoteMems"),
                "HcommTeamIsSubBelongToWorld",
            ),
            _TEAMS,
        ),
        **dict.fromkeys(
            (
                *("HcclChannelConfigCreate", "HcclChannelConfigDestroy", "HcclChannelConfigSetInt"),
                *("HcclChannelConfigSetStr", "HcclChannelAcquireWithConfig", "HcommChannelConfigCreate"),
                *("HcommChannelConfigDestroy", "HcommChannelConfigSetInt", "HcommChannelCreateWithConfig"),
            ),
            _SHARED_QUEUES,
        ),
        **dict.fromkeys(
            (
                *("HcclCommAssignCcuIns", "HcclCommQueryCcuIns", "HcommCcuInsCreate", "HcommCcuInsDestroy"),
                *("HcclCcuKernelRegister", "HcclCcuKernelRegisterFinish", "HcclCcuKernelLaunch"),
            ),
            _KERNELS,
        ),
        **dict.fromkeys(("HcclCommWorkingDevNicSet",), _NICS),
        **dict.fromkeys(
            (
                *("HcclCommSetMemoryRange", "HcclCommUnsetMemoryRange", "HcclCommActivateCommMemory"),
                "HcclCommDeactivateCommMemory",
            ),
            _GRAPHS,
        ),
        **dict.fromkeys(("HcclGroupStatusGet",), _GROUPS),
        **dict.fromkeys(
            ("HcclTaskRegister", "HcclTaskUnRegister", "HcclDevMemAcquire", "HcclConfigGetInfo"), _TASKS
        ),
        **dict.fromkeys(("HcommEndpointCheckFeature", "HcclGetRemoteIpcHcclBuf"), _FEATURES),
    }
)


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
