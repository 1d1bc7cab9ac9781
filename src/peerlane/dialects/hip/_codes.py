"""The vendor's code of every fault, and what to do about it in HIP's terms (facts/hip 2, 3)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from peerlane.errors import Fault

# The name of the code, whose number stands in hip.h.txt, and the remedy.
CODES: Mapping[Fault, tuple[str, str]] = MappingProxyType(
    {
        Fault.INVALID_VALUE: ("hipErrorInvalidValue", "correct the argument that the cause names"),
        Fault.INVALID_DEVICE: (
            "hipErrorInvalidDevice",
            "pass an id below hipGetDeviceCount(), or start the program with `peerlane run --devices N`",
        ),
        Fault.BAD_CONFIG: (
            "hipErrorInvalidConfiguration",
            "correct PEERLANE_NODE, or start the program with `peerlane run --devices N`",
        ),
        Fault.OUT_OF_MEMORY: (
            "hipErrorOutOfMemory",
            "free memory with hipFree, look at hipMemGetInfo, or give the devices more: "
            "`peerlane run --node memory=32GiB`",
        ),
        Fault.OUT_OF_RESOURCES: (
            "hipErrorOutOfMemory",
            "free what is not needed any more; the cause names what ran out",
        ),
        Fault.UNSUPPORTED: ("hipErrorNotSupported", "do without it; docs/reference/hip.md lists what works"),
        Fault.NULL_ADDRESS: (
            "hipErrorInvalidValue",
            "pass what hipMalloc or hipHostMalloc returned, or host memory",
        ),
        Fault.UNKNOWN_ADDRESS: (
            "hipErrorInvalidValue",
            "pass memory that hipMalloc returned and that was not freed",
        ),
        Fault.FREED_ADDRESS: (
            "hipErrorInvalidValue",
            "use memory before hipFree, and before hipDeviceReset of its device",
        ),
        Fault.OUT_OF_BOUNDS: ("hipErrorInvalidValue", "copy fewer bytes, or allocate more with hipMalloc"),
        Fault.HOST_FAULT: ("hipErrorIllegalAddress", "pass host memory that lives, and keep the object"),
        Fault.READ_ONLY: ("hipErrorUnknown", "write to memory that may be written"),
        Fault.WRONG_DEVICE: (
            "hipErrorInvalidValue",
            "take all devices and addresses from the node that the process is in now",
        ),
        Fault.PEER_SELF: ("hipErrorInvalidDevice", "pass two different devices"),
        Fault.PEER_UNREACHABLE: (
            "hipErrorInvalidDevice",
            "choose devices for which hipDeviceCanAccessPeer gives 1",
        ),
        Fault.PEER_NOT_ENABLED: ("hipErrorPeerAccessNotEnabled", "call hipDeviceEnablePeerAccess first"),
        Fault.NO_ACCESS: ("hipErrorUnknown", "give the device access with hipMemSetAccess"),
        Fault.CLOSED: (
            "hipErrorContextIsDestroyed",
            "use it before it is destroyed, and before hipDeviceReset",
        ),
        Fault.FORKED: (
            "hipErrorNotInitialized",
            "start workers with multiprocessing's 'spawn', or fork before anything uses a device",
        ),
        Fault.PROCESS_ENDING: ("hipErrorDeinitialized", "use devices before the interpreter ends"),
        Fault.BUSY: ("hipErrorIllegalState", "end the other use first, then call again"),
        Fault.CANCELLED: ("hipErrorLaunchFailure", "find the first failure; this one follows from it"),
        Fault.PEER_LOST: ("hipErrorMapFailed", "look at why the other process ended, then start both again"),
        Fault.WAIT_TIMEOUT: ("hipErrorLaunchTimeOut", "look at why nothing came"),
        Fault.BAD_HANDLE: (
            "hipErrorInvalidDevicePointer",
            "pass the 64 bytes that hipIpcGetMemHandle gave in this run, unchanged",
        ),
        Fault.HANDLE_VERSION: (
            "hipErrorInvalidDevicePointer",
            "use one version of peerlane in all processes",
        ),
        Fault.STALE_HANDLE: (
            "hipErrorInvalidDevicePointer",
            "keep the memory in the process that exported it until the others have opened it",
        ),
        Fault.WRONG_KIND: (
            "hipErrorInvalidDevicePointer",
            "open memory handles with hipIpcOpenMemHandle, event handles with hipIpcOpenEventHandle",
        ),
        Fault.FALSE_CLAIM: (
            "hipErrorMapFailed",
            "look at the other process; it is broken, or not the one meant",
        ),
        Fault.OWN_HANDLE: (
            "hipErrorInvalidContext",
            "use what was exported directly; open it in other processes",
        ),
        Fault.NOT_LISTED: ("hipErrorInvalidDevicePointer", "export it anew"),
        Fault.PID_REUSED: ("hipErrorInvalidDevicePointer", "export it anew"),
        Fault.LISTED_EARLY: ("hipErrorInvalidDevicePointer", "export it anew"),
        Fault.OTHER_USER: ("hipErrorInvalidDevicePointer", "run both processes as one user"),
        Fault.FOREIGN_NAMESPACE: ("hipErrorInvalidDevicePointer", "run both processes in one container"),
        Fault.NODE_MISMATCH: (
            "hipErrorInvalidConfiguration",
            "give all processes of the node the same description",
        ),
        Fault.DEVICE_FAULT: ("hipErrorIllegalAddress", "give the system more memory, or allocate less"),
        Fault.NOT_RECORDED: ("hipErrorInvalidHandle", "record the event with hipEventRecord first"),
        Fault.NOT_READY: ("hipErrorNotReady", "synchronize first"),
        Fault.CALLBACK_FAILED: ("hipErrorLaunchFailure", "look at what the callback raised"),
        Fault.BAD_DESCRIPTOR: ("hipErrorInvalidValue", "write the descriptor anew"),
        Fault.NOTIFY_DOUBLED: ("hipErrorIllegalState", "wait between two records"),
        Fault.NOTIFY_ORDER: ("hipErrorIllegalState", "wait in the order of the records"),
        Fault.NOTIFY_LEFT: ("hipErrorIllegalState", "wait for each record"),
        Fault.DEADLOCK: (
            "hipErrorLaunchTimeOut",
            "submit what the cause waits for, or drop that wait: `peerlane check` names a skipped one",
        ),
    }
)
