"""Return codes of pyACL: those that calls of this dialect give, and the one of every fault."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from peerlane.errors import Fault

SUCCESS = 0


class Code(enum.IntEnum):
    """A return code, under the vendor's name without its prefix (spec acl 3 [S])."""

    INVALID_PARAM = 100000
    REPEAT_INITIALIZE = 100002
    INVALID_FILE = 100003
    INVALID_FILE_SIZE = 100005
    PARSE_FILE = 100006
    FILE_ATTR_INVALID = 100008
    REPEAT_FINALIZE = 100037
    API_NOT_SUPPORT = 200001
    FEATURE_UNSUPPORTED = 200006
    RT_PARAM_INVALID = 107000
    RT_INVALID_DEVICEID = 107001
    RT_CONTEXT_NULL = 107002
    RT_INVALID_HANDLE = 107017
    RT_WAIT_TIMEOUT = 107019
    RT_STREAM_ABORT = 107023
    RT_FEATURE_NOT_SUPPORT = 207000
    RT_MEMORY_ALLOCATION = 207001
    RT_RESOURCE_ALLOC_FAIL = 207005
    RT_NO_PERMISSION = 207006
    RT_CONTEXT_RELEASE_ERROR = 507007
    RT_DEV_SETUP_ERROR = 507033
    RT_DEVICE_MEM_ERROR = 507053
    RT_SUSPECT_REMOTE_ERROR = 507057
    RT_DRV_INTERNAL_ERROR = 507899


FAULTS: Mapping[Fault, int] = MappingProxyType(
    {
        Fault.INVALID_VALUE: Code.RT_PARAM_INVALID,
        Fault.INVALID_DEVICE: Code.RT_INVALID_DEVICEID,
        Fault.BAD_CONFIG: Code.RT_DEV_SETUP_ERROR,
        Fault.OUT_OF_MEMORY: Code.RT_MEMORY_ALLOCATION,
        Fault.OUT_OF_RESOURCES: Code.RT_RESOURCE_ALLOC_FAIL,
        Fault.UNSUPPORTED: Code.RT_FEATURE_NOT_SUPPORT,
        Fault.NULL_ADDRESS: Code.INVALID_PARAM,
        Fault.UNKNOWN_ADDRESS: Code.RT_PARAM_INVALID,
        Fault.FREED_ADDRESS: Code.RT_PARAM_INVALID,
        Fault.OUT_OF_BOUNDS: Code.RT_PARAM_INVALID,
        Fault.HOST_FAULT: Code.RT_PARAM_INVALID,
        Fault.READ_ONLY: Code.RT_NO_PERMISSION,
        Fault.WRONG_DEVICE: Code.RT_PARAM_INVALID,
        Fault.PEER_SELF: Code.INVALID_PARAM,
        Fault.PEER_UNREACHABLE: Code.RT_FEATURE_NOT_SUPPORT,
        Fault.PEER_NOT_ENABLED: Code.RT_DRV_INTERNAL_ERROR,
        Fault.CLOSED: Code.RT_CONTEXT_NULL,
        Fault.FORKED: Code.RT_DEV_SETUP_ERROR,
        Fault.BUSY: Code.RT_DRV_INTERNAL_ERROR,
        Fault.CANCELLED: Code.RT_STREAM_ABORT,
        Fault.PEER_LOST: Code.RT_SUSPECT_REMOTE_ERROR,
        Fault.WAIT_TIMEOUT: Code.RT_WAIT_TIMEOUT,
        Fault.BAD_HANDLE: Code.RT_INVALID_HANDLE,
        Fault.NODE_MISMATCH: Code.RT_DEV_SETUP_ERROR,
        Fault.DEVICE_FAULT: Code.RT_DEVICE_MEM_ERROR,
    }
)
