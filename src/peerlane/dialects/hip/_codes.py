"""The vendor's code of every fault, and what to do about it in HIP's terms (spec hip 2, 3)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from peerlane.errors import Fault

# By the vendor's names; the numbers stand in facts.json, once.
FAULTS: Mapping[Fault, str] = MappingProxyType(
    {
        Fault.INVALID_VALUE: "hipErrorInvalidValue",
        Fault.INVALID_DEVICE: "hipErrorInvalidDevice",
        Fault.BAD_CONFIG: "hipErrorInvalidConfiguration",
        Fault.OUT_OF_MEMORY: "hipErrorOutOfMemory",
        Fault.OUT_OF_RESOURCES: "hipErrorOutOfMemory",
        Fault.UNSUPPORTED: "hipErrorNotSupported",
        Fault.NULL_ADDRESS: "hipErrorInvalidValue",
        Fault.UNKNOWN_ADDRESS: "hipErrorInvalidValue",
        Fault.FREED_ADDRESS: "hipErrorInvalidValue",
        Fault.OUT_OF_BOUNDS: "hipErrorInvalidValue",
        Fault.HOST_FAULT: "hipErrorIllegalAddress",
        Fault.READ_ONLY: "hipErrorUnknown",
        Fault.WRONG_DEVICE: "hipErrorInvalidValue",
        Fault.PEER_SELF: "hipErrorInvalidDevice",
        Fault.PEER_UNREACHABLE: "hipErrorInvalidDevice",
        Fault.PEER_NOT_ENABLED: "hipErrorPeerAccessNotEnabled",
        Fault.NO_ACCESS: "hipErrorUnknown",
        Fault.CLOSED: "hipErrorContextIsDestroyed",
        Fault.FORKED: "hipErrorNotInitialized",
        Fault.PROCESS_ENDING: "hipErrorDeinitialized",
        Fault.BUSY: "hipErrorIllegalState",
        Fault.CANCELLED: "hipErrorLaunchFailure",
        Fault.PEER_LOST: "hipErrorMapFailed",
        Fault.WAIT_TIMEOUT: "hipErrorLaunchTimeOut",
        Fault.BAD_HANDLE: "hipErrorInvalidDevicePointer",
        Fault.HANDLE_VERSION: "hipErrorInvalidDevicePointer",
        Fault.STALE_HANDLE: "hipErrorInvalidDevicePointer",
        Fault.WRONG_KIND: "hipErrorInvalidDevicePointer",
        Fault.FALSE_CLAIM: "hipErrorMapFailed",
        Fault.OWN_HANDLE: "hipErrorInvalidContext",
        Fault.NOT_LISTED: "hipErrorInvalidDevicePointer",
        Fault.PID_REUSED: "hipErrorInvalidDevicePointer",
        Fault.LISTED_EARLY: "hipErrorInvalidDevicePointer",
        Fault.OTHER_USER: "hipErrorInvalidDevicePointer",
        Fault.FOREIGN_NAMESPACE: "hipErrorInvalidDevicePointer",
        Fault.NODE_MISMATCH: "hipErrorInvalidConfiguration",
        Fault.DEVICE_FAULT: "hipErrorIllegalAddress",
        Fault.NOT_RECORDED: "hipErrorInvalidHandle",
        Fault.NOT_READY: "hipErrorNotReady",
        Fault.CALLBACK_FAILED: "hipErrorLaunchFailure",
        Fault.BAD_DESCRIPTOR: "hipErrorInvalidValue",
        Fault.NOTIFY_DOUBLED: "hipErrorIllegalState",
        Fault.NOTIFY_LEFT: "hipErrorIllegalState",
        Fault.DEADLOCK: "hipErrorLaunchTimeOut",
    }
)

REMEDIES: Mapping[Fault, str] = MappingProxyType(
    {
        Fault.INVALID_VALUE: "correct the argument that the cause names",
        Fault.INVALID_DEVICE: "pass an id below hipGetDeviceCount(), or start the program with "
        "`peerlane run --devices N`",
        Fault.BAD_CONFIG: "correct PEERLANE_NODE, or start the program with `peerlane run --devices N`",
        Fault.OUT_OF_MEMORY: "free memory with hipFree, look at hipMemGetInfo, or give the devices more: "
        "`peerlane run --node memory=32GiB`",
        Fault.OUT_OF_RESOURCES: "free what is not needed any more; the cause names what ran out",
        Fault.UNSUPPORTED: "do without it; docs/reference/hip.md lists what works",
        Fault.NULL_ADDRESS: "pass what hipMalloc or hipHostMalloc returned, or host memory",
        Fault.UNKNOWN_ADDRESS: "pass memory that hipMalloc returned and that was not freed",
        Fault.FREED_ADDRESS: "use memory before hipFree, and before hipDeviceReset of its device",
        Fault.OUT_OF_BOUNDS: "copy fewer bytes, or allocate more with hipMalloc",
        Fault.HOST_FAULT: "pass host memory that lives, and keep the object",
        Fault.READ_ONLY: "write to memory that may be written",
        Fault.NO_ACCESS: "give the device access with hipMemSetAccess",
        Fault.WRONG_DEVICE: "take all devices and addresses from the node that the process is in now",
        Fault.PEER_SELF: "pass two different devices",
        Fault.PEER_UNREACHABLE: "choose devices for which hipDeviceCanAccessPeer gives 1",
        Fault.PEER_NOT_ENABLED: "call hipDeviceEnablePeerAccess first",
        Fault.CLOSED: "use it before it is destroyed, and before hipDeviceReset",
        Fault.FORKED: "start workers with multiprocessing's 'spawn', or fork before anything uses a device",
        Fault.PROCESS_ENDING: "use devices before the interpreter ends",
        Fault.BUSY: "end the other use first, then call again",
        Fault.CANCELLED: "find the first failure; this one follows from it",
        Fault.PEER_LOST: "look at why the other process ended, then start both again",
        Fault.WAIT_TIMEOUT: "look at why nothing came",
        Fault.BAD_HANDLE: "pass the 64 bytes that hipIpcGetMemHandle gave in this run, unchanged",
        Fault.HANDLE_VERSION: "use one version of peerlane in all processes",
        Fault.STALE_HANDLE: "keep the memory in the process that exported it until the others have opened it",
        Fault.WRONG_KIND: "open memory handles with hipIpcOpenMemHandle, event handles with hipIpcOpenEventHandle",
        Fault.FALSE_CLAIM: "look at the other process; it is broken, or not the one meant",
        Fault.OWN_HANDLE: "use what was exported directly; open it in other processes",
        Fault.NOT_LISTED: "export it anew",
        Fault.PID_REUSED: "export it anew",
        Fault.LISTED_EARLY: "export it anew",
        Fault.OTHER_USER: "run both processes as one user",
        Fault.FOREIGN_NAMESPACE: "run both processes in one container",
        Fault.NODE_MISMATCH: "give all processes of the node the same description",
        Fault.NOT_RECORDED: "record the event with hipEventRecord first",
        Fault.NOT_READY: "synchronize first",
        Fault.CALLBACK_FAILED: "look at what the callback raised",
        Fault.BAD_DESCRIPTOR: "write the descriptor anew",
        Fault.NOTIFY_DOUBLED: "wait between two records",
        Fault.NOTIFY_LEFT: "wait for each record",
        Fault.DEADLOCK: "submit what the cause misses, in another order",
        Fault.DEVICE_FAULT: "give the system more memory, or allocate less",
    }
)
