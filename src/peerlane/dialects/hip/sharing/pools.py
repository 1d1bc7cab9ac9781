"""``hip``: memory pools of other processes (facts/hip 3.9)."""

from __future__ import annotations

from typing import Any

from peerlane.dialects.hip.binding.checks import NotZero, Reserved
from peerlane.dialects.hip.binding.results import pointer, put, struct
from peerlane.dialects.hip.binding.types import Pointer
from peerlane.dialects.hip.memory.physical import FileDescriptor, descriptor_of, write_descriptor
from peerlane.dialects.hip.memory.pools import PoolHandle, as_handle
from peerlane.dialects.hip.sharing.ipc import key_of
from peerlane.dialects.hip.state import calls, gpu

sharing = gpu.pool_sharing


@calls.call("hipMemPoolExportToShareableHandle", first=("shared_handle", "flags"))
def hipMemPoolExportToShareableHandle(
    shared_handle: NotZero, mem_pool: PoolHandle, handle_type: FileDescriptor, flags: Reserved
) -> None:
    """Write a new file descriptor of a pool to an address; the program closes it.

    Refuses: hipErrorInvalidValue NULL, no pool, an imported one, `flags`, a type that is not the pool's
    Basis: D; C for imported pools
    """
    write_descriptor(shared_handle, sharing.export(mem_pool), "shared_handle")


@calls.call("hipMemPoolImportFromShareableHandle", first=("flags", "handle_type"))
def hipMemPoolImportFromShareableHandle(
    shared_handle: int, handle_type: FileDescriptor, flags: Reserved
) -> Any:
    """Return the pool of a descriptor, to import pointers of it; descriptors as `hipMemImportFromShareableHandle`.

    It has the access and the reuse flags that the pool had when it was exported [D: the code].

    Gives: pool
    Refuses: hipErrorInvalidValue NULL, `flags`, a type other than file descriptor; hipErrorOutOfMemory what is no
        pool of this node
    Basis: D
    """
    return as_handle(sharing.open(descriptor_of(shared_handle, "shared_handle")))


@calls.call("hipMemPoolExportPointer")
def hipMemPoolExportPointer(dev_ptr: int) -> Any:
    """Return the 64 bytes by which a process that has the pool imports memory of it.

    hip-python 7.2 passed a struct to fill, which is taken too.

    Gives: hipMemPoolPtrExportData
    Refuses: hipErrorInvalidValue NULL, freed, not allocated; hipErrorIllegalState as `hipIpcGetMemHandle`
    Basis: D; C for not allocated
    """
    export_data = struct("hipMemPoolPtrExportData")()
    put(export_data, "reserved", sharing.export_pointer(dev_ptr))
    return export_data


@calls.call("hipMemPoolImportPointer")
def hipMemPoolImportPointer(mem_pool: PoolHandle, export_data: Any) -> Pointer | None:
    """Map memory of an imported pool until hipFreeAsync or hipFree, and return its address.

    What this process exported is its own memory: the address is that of the allocation, and one free ends it for
    both (facts/hip 3.9).

    Gives: Pointer
    Refuses: hipErrorInvalidValue NULL, no pool, one that was not imported, what another process exported;
        hipErrorInvalidDevicePointer no handle, freed, its maker has ended
    Basis: S for an own one; D; C for another process's
    """
    return pointer(sharing.import_pointer(mem_pool, key_of("export_data", export_data)))
