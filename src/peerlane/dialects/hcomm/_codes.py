"""Return codes of HCOMM: those of every fault, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from peerlane.dialects.hcomm._enums import HcclResult
from peerlane.errors import Fault

SUCCESS = 0
PARA = int(HcclResult.HCCL_E_PARA)
PTR = int(HcclResult.HCCL_E_PTR)
NOT_SUPPORT = int(HcclResult.HCCL_E_NOT_SUPPORT)
NOT_FOUND = int(HcclResult.HCCL_E_NOT_FOUND)
UNAVAIL = int(HcclResult.HCCL_E_UNAVAIL)
TIMEOUT = int(HcclResult.HCCL_E_TIMEOUT)
OPEN_FILE_FAILURE = int(HcclResult.HCCL_E_OPEN_FILE_FAILURE)
RUNTIME = int(HcclResult.HCCL_E_RUNTIME)
AGAIN = int(HcclResult.HCCL_E_AGAIN)
REMOTE = int(HcclResult.HCCL_E_REMOTE)
OOM = int(HcclResult.HCCL_E_OOM)
SUSPENDING = int(HcclResult.HCCL_E_SUSPENDING)
_MEMORY = int(HcclResult.HCCL_E_MEMORY)
_INTERNAL = int(HcclResult.HCCL_E_INTERNAL)
_NETWORK = int(HcclResult.HCCL_E_NETWORK)

FAULTS: Mapping[Fault, int] = MappingProxyType(
    {
        Fault.INVALID_VALUE: PARA,
        Fault.INVALID_DEVICE: PARA,
        Fault.BAD_CONFIG: PARA,
        Fault.OUT_OF_MEMORY: OOM,
        Fault.OUT_OF_RESOURCES: UNAVAIL,
        Fault.UNSUPPORTED: NOT_SUPPORT,
        Fault.NULL_ADDRESS: PTR,
        Fault.UNKNOWN_ADDRESS: NOT_FOUND,
        Fault.FREED_ADDRESS: NOT_FOUND,
        Fault.OUT_OF_BOUNDS: NOT_FOUND,
        Fault.HOST_FAULT: NOT_FOUND,
        Fault.READ_ONLY: _MEMORY,
        Fault.WRONG_DEVICE: PARA,
        Fault.PEER_SELF: PARA,
        Fault.PEER_UNREACHABLE: NOT_SUPPORT,
        Fault.PEER_NOT_ENABLED: _MEMORY,
        Fault.NO_ACCESS: _MEMORY,
        Fault.CLOSED: NOT_FOUND,
        Fault.FORKED: RUNTIME,
        Fault.PROCESS_ENDING: RUNTIME,
        Fault.BUSY: AGAIN,
        Fault.CANCELLED: RUNTIME,
        Fault.PEER_LOST: REMOTE,
        Fault.WAIT_TIMEOUT: TIMEOUT,
        Fault.BAD_HANDLE: PARA,
        Fault.HANDLE_VERSION: _NETWORK,
        Fault.STALE_HANDLE: NOT_FOUND,
        Fault.WRONG_KIND: PARA,
        Fault.FALSE_CLAIM: _NETWORK,
        Fault.OWN_HANDLE: PARA,
        Fault.NOT_LISTED: _NETWORK,
        Fault.PID_REUSED: _NETWORK,
        Fault.LISTED_EARLY: _NETWORK,
        Fault.OTHER_USER: _NETWORK,
        Fault.FOREIGN_NAMESPACE: _NETWORK,
        Fault.NODE_MISMATCH: PARA,
        Fault.DEVICE_FAULT: RUNTIME,
        Fault.NOT_RECORDED: PARA,
        Fault.NOT_READY: AGAIN,
        Fault.CALLBACK_FAILED: _INTERNAL,
        Fault.BAD_DESCRIPTOR: PARA,
        Fault.NOTIFY_DOUBLED: _INTERNAL,
        Fault.NOTIFY_ORDER: _NETWORK,
        Fault.NOTIFY_LEFT: _INTERNAL,
        Fault.DEADLOCK: TIMEOUT,
    }
)

REMEDIES: Mapping[Fault, str] = MappingProxyType(
    {
        Fault.INVALID_VALUE: "correct the argument that the cause names",
        Fault.INVALID_DEVICE: "name devices below acl.rt.get_device_count(), or pass --devices to `peerlane launch`",
        Fault.BAD_CONFIG: "give all ranks the same settings: PEERLANE_NODE, PEERLANE_HCOMM_NOTIFIES",
        Fault.OUT_OF_MEMORY: "set HCCL_BUFFSIZE (MB, of which a communicator has twice), or free memory",
        Fault.OUT_OF_RESOURCES: "destroy what is not needed any more; the cause names what ran out",
        Fault.UNSUPPORTED: "do without it; docs/reference/hcomm.md lists what works",
        Fault.NULL_ADDRESS: "pass an address that a call returned",
        Fault.UNKNOWN_ADDRESS: "pass an address in memory that lives and that is registered",
        Fault.FREED_ADDRESS: "use memory before it is freed",
        Fault.OUT_OF_BOUNDS: "pass a range that lies in one buffer",
        Fault.HOST_FAULT: "pass the address of device memory",
        Fault.READ_ONLY: "write to memory that may be written",
        Fault.WRONG_DEVICE: "use one node in all of the program",
        Fault.PEER_SELF: "pass two different devices",
        Fault.PEER_UNREACHABLE: "choose devices that reach one another",
        Fault.PEER_NOT_ENABLED: "use a channel's memory on its channel",
        Fault.NO_ACCESS: "map memory with access for its device",
        Fault.CLOSED: "make it anew: a communicator, channel or stream that was destroyed takes no more calls",
        Fault.FORKED: "start ranks with `peerlane launch` or multiprocessing's 'spawn'",
        Fault.PROCESS_ENDING: "communicate before the interpreter ends",
        Fault.BUSY: "wait until it is free: synchronize the streams, then call again",
        Fault.CANCELLED: "find the first failure; this one follows from it",
        Fault.PEER_LOST: "look at why the other rank ended, then start all again",
        Fault.WAIT_TIMEOUT: "look at why the other rank did not come; HCCL_CONNECT_TIMEOUT and HCCL_EXEC_TIMEOUT are "
        "the seconds",
        Fault.BAD_HANDLE: "pass what its maker gave in this run, unchanged",
        Fault.HANDLE_VERSION: "use one version of peerlane in all ranks",
        Fault.STALE_HANDLE: "keep the memory until the other end has imported it",
        Fault.WRONG_KIND: "pass what HcommMemExport returned",
        Fault.FALSE_CLAIM: "look at the other rank; it is broken, or not the one meant",
        Fault.OWN_HANDLE: "use the memory directly; import it in other processes",
        Fault.NOT_LISTED: "make the communicator anew in all ranks",
        Fault.PID_REUSED: "make the communicator anew in all ranks",
        Fault.LISTED_EARLY: "make the communicator anew in all ranks",
        Fault.OTHER_USER: "run all ranks as one user",
        Fault.FOREIGN_NAMESPACE: "run all ranks in one container",
        Fault.NODE_MISMATCH: "give all ranks the same PEERLANE_NODE",
        Fault.DEVICE_FAULT: "give the system more memory, or allocate less",
        Fault.NOT_RECORDED: "record it first",
        Fault.NOT_READY: "synchronize first",
        Fault.CALLBACK_FAILED: "look at what the callback raised",
        Fault.BAD_DESCRIPTOR: "write the list anew",
        Fault.NOTIFY_DOUBLED: "wait for the notify between two records",
        Fault.NOTIFY_ORDER: "wait for notifies in the order of their records, or use binary ones",
        Fault.NOTIFY_LEFT: "wait for every notify that is recorded",
        Fault.DEADLOCK: "submit what the cause misses, in another order",
    }
)
