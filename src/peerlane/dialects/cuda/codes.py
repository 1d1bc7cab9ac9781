"""CUDA's code of each fault and refusal, and its name of each call that a remedy needs (facts/cuda 1.1)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from peerlane.dialects.gpu.vendor import Reason
from peerlane.errors import Fault

#: The names of codes behind ``CUDA_ERROR_``; their numbers stand in cuda.h.txt.
CODES: Mapping[Reason | Fault, str] = MappingProxyType(
    {
        Fault.INVALID_VALUE: "INVALID_VALUE",
        Fault.INVALID_DEVICE: "INVALID_DEVICE",
        Fault.OUT_OF_MEMORY: "OUT_OF_MEMORY",
        Fault.OUT_OF_RESOURCES: "OUT_OF_MEMORY",
        Fault.UNSUPPORTED: "NOT_SUPPORTED",
        Fault.HOST_FAULT: "ILLEGAL_ADDRESS",
        Fault.READ_ONLY: "ILLEGAL_ADDRESS",
        Fault.PEER_UNREACHABLE: "PEER_ACCESS_UNSUPPORTED",
        Fault.PEER_NOT_ENABLED: "PEER_ACCESS_NOT_ENABLED",
        Fault.NO_ACCESS: "ILLEGAL_ADDRESS",
        Fault.CLOSED: "CONTEXT_IS_DESTROYED",
        Fault.FORKED: "NOT_INITIALIZED",
        Fault.PROCESS_ENDING: "DEINITIALIZED",
        Fault.BUSY: "ILLEGAL_STATE",
        Fault.CANCELLED: "LAUNCH_FAILED",
        Fault.PEER_LOST: "MAP_FAILED",
        Fault.WAIT_TIMEOUT: "LAUNCH_TIMEOUT",
        Fault.DEVICE_FAULT: "ILLEGAL_ADDRESS",
        Fault.NOT_RECORDED: "INVALID_HANDLE",
        Fault.NOT_READY: "NOT_READY",
        Fault.CALLBACK_FAILED: "LAUNCH_FAILED",
        Fault.DEADLOCK: "LAUNCH_TIMEOUT",
        Fault.OWN_HANDLE: "INVALID_CONTEXT",
        Fault.PEER_SELF: "INVALID_CONTEXT",
        Reason.NO_DEVICE: "NO_DEVICE",
        Reason.NO_CONTEXT: "INVALID_CONTEXT",
        Reason.INVALID_CONTEXT: "INVALID_CONTEXT",
        Reason.DEVICE_RESET: "CONTEXT_IS_DESTROYED",
        Reason.INVALID_HANDLE: "INVALID_HANDLE",
        Reason.NOT_A_STREAM: "INVALID_HANDLE",
        Reason.NOT_AN_EVENT: "INVALID_HANDLE",
        Reason.OTHER_DEVICE: "INVALID_HANDLE",
        Reason.NOT_TIMED: "INVALID_HANDLE",
        Reason.NO_ALLOCATION: "NOT_FOUND",
        Reason.PEER_ENABLED: "PEER_ACCESS_ALREADY_ENABLED",
        Reason.REGISTERED: "HOST_MEMORY_ALREADY_REGISTERED",
        Reason.NOT_REGISTERED: "HOST_MEMORY_NOT_REGISTERED",
    }
)

#: CUDA's names for what texts of `gpu` name in braces.
NAMES: Mapping[str, str] = MappingProxyType(
    {
        "access_description": "CUmemAccessDesc",
        "any_direction": "cuMemcpy",
        "attach_global": "CU_MEM_ATTACH_GLOBAL",
        "can_access_peer": "cuDeviceCanAccessPeer",
        "create_context": "cuCtxCreate",
        "create_event": "cuEventCreate",
        "create_event_with_flags": "cuEventCreate",
        "create_physical": "cuMemCreate",
        "create_pool": "cuMemPoolCreate",
        "device_count": "cuDeviceGetCount",
        "device_location": "CU_MEM_LOCATION_TYPE_DEVICE",
        "disable_timing": "CU_EVENT_DISABLE_TIMING",
        "enable_peer": "cuCtxEnablePeerAccess",
        "event_synchronize": "cuEventSynchronize",
        "export_event": "cuIpcGetEventHandle",
        "export_memory": "cuIpcGetMemHandle",
        "export_physical": "cuMemExportToShareableHandle",
        "export_pool": "cuMemPoolExportToShareableHandle",
        "export_pool_pointer": "cuMemPoolExportPointer",
        "file_descriptor": "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR",
        "free": "cuMemFree",
        "granularity": "cuMemGetAllocationGranularity",
        "host_to_host": "cuMemcpy",
        "import_pool": "cuMemPoolImportFromShareableHandle",
        "import_pool_pointer": "cuMemPoolImportPointer",
        "interprocess": "CU_EVENT_INTERPROCESS",
        "malloc": "cuMemAlloc",
        "malloc_host": "cuMemHostAlloc",
        "malloc_managed": "cuMemAllocManaged",
        "map": "cuMemMap",
        "memory_info": "cuMemGetInfo",
        "open_event": "cuIpcOpenEventHandle",
        "open_memory": "cuIpcOpenMemHandle",
        "read_write": "CU_MEM_ACCESS_FLAGS_PROT_READWRITE",
        "record": "cuEventRecord",
        "reference": "docs/facts/cuda.md",
        "register": "cuMemHostRegister",
        "reserve": "cuMemAddressReserve",
        "reserved_high": "CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH",
        "reset": "cuDevicePrimaryCtxReset",
        "set_access": "cuMemSetAccess",
        "set_device": "cuCtxSetCurrent",
        "set_pool_access": "cuMemPoolSetAccess",
        "unmap": "cuMemUnmap",
        "wait_for_at_least": "CU_STREAM_WAIT_VALUE_GEQ",
    }
)
