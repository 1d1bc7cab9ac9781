"""Return codes of HCOMM: the code of every fault, and its remedy."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.hcomm._header import HcclResult
from peerlane.errors import Fault


class Code(int):
    """A code with which calls are refused."""

    __slots__ = ()

    def refusal(self, cause: str, remedy: str) -> Refusal:
        """Return the refusal with this code."""
        return Refusal(self, cause, remedy)


SUCCESS = 0
PARA = Code(HcclResult.HCCL_E_PARA)
PTR = Code(HcclResult.HCCL_E_PTR)
NOT_SUPPORT = Code(HcclResult.HCCL_E_NOT_SUPPORT)
NOT_FOUND = Code(HcclResult.HCCL_E_NOT_FOUND)
UNAVAIL = Code(HcclResult.HCCL_E_UNAVAIL)
TIMEOUT = Code(HcclResult.HCCL_E_TIMEOUT)
OPEN_FILE_FAILURE = Code(HcclResult.HCCL_E_OPEN_FILE_FAILURE)
RUNTIME = Code(HcclResult.HCCL_E_RUNTIME)
AGAIN = Code(HcclResult.HCCL_E_AGAIN)
REMOTE = Code(HcclResult.HCCL_E_REMOTE)
OOM = Code(HcclResult.HCCL_E_OOM)
SUSPENDING = Code(HcclResult.HCCL_E_SUSPENDING)
_MEMORY = Code(HcclResult.HCCL_E_MEMORY)
_INTERNAL = Code(HcclResult.HCCL_E_INTERNAL)
NETWORK = Code(HcclResult.HCCL_E_NETWORK)

# By fault: the code of the vendor, and the remedy.
_ANSWERS: Mapping[Fault, tuple[Code, str]] = {
    Fault.INVALID_VALUE: (PARA, "correct the argument that the cause names"),
    Fault.INVALID_DEVICE: (
        PARA,
        "name devices below acl.rt.get_device_count(), or pass --devices to `peerlane launch`",
    ),
    Fault.BAD_CONFIG: (PARA, "give all ranks the same settings: PEERLANE_NODE, PEERLANE_HCOMM_NOTIFIES"),
    Fault.OUT_OF_MEMORY: (OOM, "set HCCL_BUFFSIZE (MB, of which a communicator has twice), or free memory"),
    Fault.OUT_OF_RESOURCES: (UNAVAIL, "destroy what is not needed any more; the cause names what ran out"),
    Fault.UNSUPPORTED: (NOT_SUPPORT, "do without it; docs/reference/hcomm.md lists what works"),
    Fault.NULL_ADDRESS: (PTR, "pass an address that a call returned"),
    Fault.UNKNOWN_ADDRESS: (NOT_FOUND, "pass an address in memory that lives and that is registered"),
    Fault.FREED_ADDRESS: (NOT_FOUND, "use memory before it is freed"),
    Fault.OUT_OF_BOUNDS: (NOT_FOUND, "pass a range that lies in one buffer"),
    Fault.HOST_FAULT: (NOT_FOUND, "pass the address of device memory"),
    Fault.READ_ONLY: (_MEMORY, "write to memory that may be written"),
    Fault.WRONG_DEVICE: (PARA, "use one node in all of the program"),
    Fault.PEER_SELF: (PARA, "pass two different devices"),
    Fault.PEER_UNREACHABLE: (NOT_SUPPORT, "choose devices that reach one another"),
    Fault.PEER_NOT_ENABLED: (_MEMORY, "use a channel's memory on its channel"),
    Fault.NO_ACCESS: (_MEMORY, "map memory with access for its device"),
    Fault.CLOSED: (
        NOT_FOUND,
        "make it anew: a communicator, channel or stream that was destroyed takes no more calls",
    ),
    Fault.FORKED: (RUNTIME, "start ranks with `peerlane launch` or multiprocessing's 'spawn'"),
    Fault.PROCESS_ENDING: (RUNTIME, "communicate before the interpreter ends"),
    Fault.BUSY: (AGAIN, "wait until it is free: synchronize the streams, then call again"),
    Fault.CANCELLED: (RUNTIME, "find the first failure; this one follows from it"),
    Fault.PEER_LOST: (REMOTE, "look at why the other rank ended, then start all again"),
    Fault.WAIT_TIMEOUT: (
        TIMEOUT,
        "look at why the other rank did not come; HCCL_CONNECT_TIMEOUT and HCCL_EXEC_TIMEOUT are the seconds",
    ),
    Fault.BAD_HANDLE: (PARA, "pass what its maker gave in this run, unchanged"),
    Fault.HANDLE_VERSION: (NETWORK, "use one version of peerlane in all ranks"),
    Fault.STALE_HANDLE: (NOT_FOUND, "keep the memory until the other end has imported it"),
    Fault.WRONG_KIND: (PARA, "pass what HcommMemExport returned"),
    Fault.FALSE_CLAIM: (NETWORK, "look at the other rank; it is broken, or not the one meant"),
    Fault.OWN_HANDLE: (PARA, "use the memory directly; import it in other processes"),
    Fault.NOT_LISTED: (NETWORK, "make the communicator anew in all ranks"),
    Fault.PID_REUSED: (NETWORK, "make the communicator anew in all ranks"),
    Fault.LISTED_EARLY: (NETWORK, "make the communicator anew in all ranks"),
    Fault.OTHER_USER: (NETWORK, "run all ranks as one user"),
    Fault.FOREIGN_NAMESPACE: (NETWORK, "run all ranks in one container"),
    Fault.NODE_MISMATCH: (PARA, "give all ranks the same PEERLANE_NODE"),
    Fault.DEVICE_FAULT: (RUNTIME, "give the system more memory, or allocate less"),
    Fault.NOT_RECORDED: (PARA, "record it first"),
    Fault.NOT_READY: (AGAIN, "synchronize first"),
    Fault.CALLBACK_FAILED: (_INTERNAL, "look at what the callback raised"),
    Fault.BAD_DESCRIPTOR: (PARA, "write the list anew"),
    Fault.NOTIFY_DOUBLED: (_INTERNAL, "wait for the notify between two records"),
    Fault.NOTIFY_ORDER: (NETWORK, "wait for notifies in the order of their records, or use binary ones"),
    Fault.NOTIFY_LEFT: (_INTERNAL, "wait for every notify that is recorded"),
    Fault.DEADLOCK: (
        TIMEOUT,
        "submit what the cause waits for, or drop that wait: `peerlane check` names a skipped one",
    ),
}
FAULTS: Mapping[Fault, int] = MappingProxyType({fault: int(code) for fault, (code, _) in _ANSWERS.items()})
REMEDIES: Mapping[Fault, str] = MappingProxyType({fault: remedy for fault, (_, remedy) in _ANSWERS.items()})
