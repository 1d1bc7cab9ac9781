"""HIP's codes of faults and refusals, and its calls by what they do (facts/hip 2, 3)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from peerlane.dialects.gpu.vendor import Reason
from peerlane.errors import Fault

#: The names of codes, whose numbers stand in hip.h.txt.
CODES: Mapping[Reason | Fault, str] = MappingProxyType(
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
        Fault.NOTIFY_ORDER: "hipErrorIllegalState",
        Fault.NOTIFY_LEFT: "hipErrorIllegalState",
        Fault.DEADLOCK: "hipErrorLaunchTimeOut",
        Reason.INVALID_PITCH: "hipErrorInvalidPitchValue",
        Reason.INVALID_POINTER: "hipErrorInvalidDevicePointer",
        Reason.NO_DEVICE: "hipErrorNoDevice",
        Reason.INVALID_CONTEXT: "hipErrorInvalidContext",
        Reason.DEVICE_RESET: "hipErrorContextIsDestroyed",
        Reason.INVALID_HANDLE: "hipErrorInvalidHandle",
        Reason.NOT_AN_EVENT: "hipErrorInvalidHandle",
        Reason.OTHER_DEVICE: "hipErrorInvalidHandle",
        Reason.PEER_ENABLED: "hipErrorPeerAccessAlreadyEnabled",
        Reason.REGISTERED: "hipErrorHostMemoryAlreadyRegistered",
        Reason.NOT_REGISTERED: "hipErrorHostMemoryNotRegistered",
    }
)

#: HIP's names for what texts of `gpu` name in braces.
NAMES: Mapping[str, str] = MappingProxyType(
    {
        "any_direction": "hipMemcpyDefault",
        "can_access_peer": "hipDeviceCanAccessPeer",
        "create_context": "hipCtxCreate",
        "create_event": "hipEventCreate",
        "device_count": "hipGetDeviceCount",
        "disable_timing": "hipEventDisableTiming",
        "enable_peer": "hipDeviceEnablePeerAccess",
        "event_synchronize": "hipEventSynchronize",
        "export_memory": "hipIpcGetMemHandle",
        "free": "hipFree",
        "host_to_host": "hipMemcpyHostToHost",
        "malloc": "hipMalloc",
        "malloc_host": "hipHostMalloc",
        "memory_info": "hipMemGetInfo",
        "open_event": "hipIpcOpenEventHandle",
        "open_memory": "hipIpcOpenMemHandle",
        "record": "hipEventRecord",
        "reference": "docs/reference/hip.md",
        "register": "hipHostRegister",
        "reset": "hipDeviceReset",
        "set_access": "hipMemSetAccess",
        "set_device": "hipSetDevice",
        "set_pool_access": "hipMemPoolSetAccess",
    }
)
