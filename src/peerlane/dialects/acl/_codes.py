"""Return codes of pyACL: the codes of this dialect's calls, and for every fault its code and its remedy."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from peerlane.dialects._shared.call import Refusal
from peerlane.errors import Fault

SUCCESS = 0


class Code(enum.IntEnum):
    """A return code, under the vendor's name without its prefix (facts/acl 3)."""

    INVALID_PARAM = 100000
    REPEAT_INITIALIZE = 100002
    INVALID_FILE = 100003
    INVALID_FILE_SIZE = 100005
    PARSE_FILE = 100006
    FILE_ATTR_INVALID = 100008
    REPEAT_FINALIZE = 100037
    API_NOT_SUPPORT = 200001
    FEATURE_UNSUPPORTED = 200006
    INTERNAL_ERROR = 500000
    RT_PARAM_INVALID = 107000
    RT_INVALID_DEVICEID = 107001
    RT_CONTEXT_NULL = 107002
    RT_STREAM_CONTEXT = 107003
    RT_EVENT_TIMESTAMP_INVALID = 107006
    RT_STREAM_SUBSCRIBE = 107011
    RT_THREAD_SUBSCRIBE = 107012
    RT_STREAM_NO_CB_REG = 107015
    RT_INVALID_HANDLE = 107017
    RT_WAIT_TIMEOUT = 107019
    RT_STREAM_ABORT = 107023
    RT_FEATURE_NOT_SUPPORT = 207000
    RT_MEMORY_ALLOCATION = 207001
    RT_NO_DEVICE = 207004
    RT_RESOURCE_ALLOC_FAIL = 207005
    RT_NO_PERMISSION = 207006
    RT_NO_EVENT_RESOURCE = 207007
    RT_NO_STREAM_RESOURCE = 207008
    RT_NO_NOTIFY_RESOURCE = 207009
    RT_INTERNAL_ERROR = 507000
    RT_CONTEXT_RELEASE_ERROR = 507007
    RT_REPORT_TIMEOUT = 507012
    RT_AICPU_EXCEPTION = 507018
    RT_DEV_SETUP_ERROR = 507033
    RT_STREAM_SYNC_TIMEOUT = 507046
    RT_EVENT_SYNC_TIMEOUT = 507047
    RT_DEVICE_MEM_ERROR = 507053
    RT_SUSPECT_REMOTE_ERROR = 507057
    RT_DRV_INTERNAL_ERROR = 507899
    RT_HOST_MEMORY_ALREADY_REGISTERED = 507910
    RT_HOST_MEMORY_NOT_REGISTERED = 507911

    @property
    def is_runtime(self) -> bool:
        """Whether the vendor's runtime returns it, not the upper layer, which checks arguments."""
        return self.name.startswith("RT_")

    def refusal(self, cause: str, remedy: str) -> Refusal:
        """Return the refusal with this code."""
        return Refusal(self, cause, remedy)


_NAMED: Mapping[int, Code] = MappingProxyType({int(each): each for each in Code})


def is_runtime(code: int) -> bool:
    """Tell whether a code is the runtime's, and not one that a callback of the program returned."""
    return code in _NAMED and _NAMED[code].is_runtime


def in_words(code: int) -> str:
    """Return a code with its name, if it has one."""
    return f"{code} (ACL_ERROR_{_NAMED[code].name})" if code in _NAMED else str(code)


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
        Fault.NO_ACCESS: Code.RT_NO_PERMISSION,
        Fault.CLOSED: Code.RT_CONTEXT_NULL,
        Fault.FORKED: Code.RT_DEV_SETUP_ERROR,
        Fault.PROCESS_ENDING: Code.RT_DEV_SETUP_ERROR,
        Fault.BUSY: Code.RT_DRV_INTERNAL_ERROR,
        Fault.CANCELLED: Code.RT_STREAM_ABORT,
        Fault.PEER_LOST: Code.RT_SUSPECT_REMOTE_ERROR,
        Fault.WAIT_TIMEOUT: Code.RT_WAIT_TIMEOUT,
        Fault.BAD_HANDLE: Code.RT_INVALID_HANDLE,
        Fault.HANDLE_VERSION: Code.RT_INVALID_HANDLE,
        Fault.STALE_HANDLE: Code.RT_INVALID_HANDLE,
        Fault.WRONG_KIND: Code.RT_INVALID_HANDLE,
        Fault.FALSE_CLAIM: Code.RT_SUSPECT_REMOTE_ERROR,
        Fault.OWN_HANDLE: Code.RT_DRV_INTERNAL_ERROR,
        Fault.NOT_LISTED: Code.RT_DRV_INTERNAL_ERROR,
        Fault.PID_REUSED: Code.RT_DRV_INTERNAL_ERROR,
        Fault.LISTED_EARLY: Code.RT_DRV_INTERNAL_ERROR,
        Fault.OTHER_USER: Code.RT_DRV_INTERNAL_ERROR,
        Fault.FOREIGN_NAMESPACE: Code.RT_DRV_INTERNAL_ERROR,
        Fault.NODE_MISMATCH: Code.RT_DEV_SETUP_ERROR,
        Fault.DEVICE_FAULT: Code.RT_DEVICE_MEM_ERROR,
        Fault.NOT_RECORDED: Code.RT_PARAM_INVALID,
        Fault.NOT_READY: Code.RT_EVENT_TIMESTAMP_INVALID,
        Fault.CALLBACK_FAILED: Code.RT_INTERNAL_ERROR,
        Fault.BAD_DESCRIPTOR: Code.RT_PARAM_INVALID,
        Fault.NOTIFY_DOUBLED: Code.RT_INTERNAL_ERROR,
        Fault.NOTIFY_ORDER: Code.RT_INTERNAL_ERROR,
        Fault.NOTIFY_LEFT: Code.RT_INTERNAL_ERROR,
        Fault.DEADLOCK: Code.RT_STREAM_SYNC_TIMEOUT,
    }
)

# The causes of imports that the exporter does not permit.
NOT_LET_IN: Mapping[Fault, str] = MappingProxyType(
    {
        Fault.NOT_LISTED: "process {maker} exported it and does not let process {asker} import it",
        Fault.PID_REUSED: "process {maker} listed pid {asker} when another process had it",
        Fault.LISTED_EARLY: "process {maker} listed pid {asker} before there was such a process",
    }
)

REMEDIES: Mapping[Fault, str] = MappingProxyType(
    {
        Fault.INVALID_VALUE: "correct the argument that the cause names",
        Fault.INVALID_DEVICE: "pass an id below acl.rt.get_device_count(), or start the program with "
        "`peerlane run --devices N`",
        Fault.BAD_CONFIG: "correct PEERLANE_NODE, or start the program with `peerlane run --devices N`",
        Fault.OUT_OF_MEMORY: "free memory with acl.rt.free, or look at acl.rt.get_mem_info",
        Fault.OUT_OF_RESOURCES: "free what is not needed any more; the cause names what ran out",
        Fault.UNSUPPORTED: "do without it; docs/reference/acl.md lists what works",
        Fault.NULL_ADDRESS: "pass what acl.rt.malloc or acl.rt.malloc_host returned, or an address of host memory",
        Fault.UNKNOWN_ADDRESS: "pass an address that acl.rt.malloc returned and that was not freed",
        Fault.FREED_ADDRESS: "use memory before acl.rt.free and before the last acl.rt.reset_device of its device",
        Fault.OUT_OF_BOUNDS: "pass a smaller count, or allocate more with acl.rt.malloc",
        Fault.HOST_FAULT: "pass the address of host memory that lives: acl.rt.malloc_host, acl.util.bytes_to_ptr or "
        "acl.util.numpy_to_ptr, and keep the object",
        Fault.READ_ONLY: "copy to memory that may be written",
        Fault.NO_ACCESS: "map memory with acl.rt.map_mem, which lets its device read and write it",
        Fault.WRONG_DEVICE: "take all devices and addresses from the node that the process is in now",
        Fault.PEER_SELF: "pass two different devices",
        Fault.PEER_UNREACHABLE: "choose devices for which acl.rt.device_can_access_peer gives 1",
        Fault.PEER_NOT_ENABLED: "call acl.rt.device_enable_peer_access in both directions, and allocate with policy "
        "3, 4, 5 or 7 where the chip asks for it",
        Fault.CLOSED: "call acl.rt.set_device again; what belonged to the node that was left is gone",
        Fault.FORKED: "start workers with multiprocessing's 'spawn', or fork before anything uses a device",
        Fault.PROCESS_ENDING: "use devices before the interpreter ends",
        Fault.BUSY: "end the other use first, then call again",
        Fault.CANCELLED: "find the first failure; this one follows from it",
        Fault.PEER_LOST: "look at why the other process ended, then start both again",
        Fault.WAIT_TIMEOUT: "wait longer, or look at why nothing came",
        Fault.BAD_HANDLE: "pass a handle or key that its maker gave in this run, unchanged",
        Fault.HANDLE_VERSION: "use one version of peerlane in all processes",
        Fault.STALE_HANDLE: "keep the memory in the process that exported it until the others have imported it, and "
        "export again",
        Fault.WRONG_KIND: "pass numbers to acl.rt.mem_import_from_shareable_handle, memory keys to "
        "acl.rt.ipc_mem_import_by_key, notify keys to acl.rt.notify_import_by_key",
        Fault.FALSE_CLAIM: "look at the other process; it is broken, or not the one meant",
        Fault.OWN_HANDLE: "use what was exported directly; import it in other processes",
        Fault.NOT_LISTED: "list the number that acl.rt.device_get_bare_tgid gives here, in the process that exported",
        Fault.PID_REUSED: "list this process anew in the one that exported",
        Fault.LISTED_EARLY: "list a process once it runs: send it the handle after it has sent its number",
        Fault.OTHER_USER: "run both processes as one user",
        Fault.FOREIGN_NAMESPACE: "run both processes in one container",
        Fault.NODE_MISMATCH: "give all processes of the node the same description",
        Fault.NOT_RECORDED: "record the event with acl.rt.record_event first",
        Fault.NOT_READY: "synchronize first",
        Fault.CALLBACK_FAILED: "look at what the callback raised",
        Fault.BAD_DESCRIPTOR: "write it with acl.rt.set_memcpy_desc, or copy a whole one over it",
        Fault.NOTIFY_DOUBLED: "wait for the notify between two records",
        Fault.NOTIFY_ORDER: "wait for notifies in the order of their records",
        Fault.NOTIFY_LEFT: "wait for each notify that is recorded",
        Fault.DEADLOCK: "submit what the cause waits for, or drop that wait: `peerlane check` names a skipped one",
        Fault.DEVICE_FAULT: "give the system more memory, or allocate less",
    }
)
