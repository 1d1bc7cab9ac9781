"""``hip``: memory pools of other processes.

The file descriptor of a pool is a sealed file that says whose it is.  Its memory goes pointer by pointer, as with IPC
handles, so that no process has more access than it was given.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct as layout
from typing import Any, NamedTuple

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.reuse import REUSE
from peerlane.dialects.hip._checks import NotZero, Reserved
from peerlane.dialects.hip._convention import invalid, refusal
from peerlane.dialects.hip._ipc import Ipc, attached, bytes_of, exported
from peerlane.dialects.hip._physical import FileDescriptor, descriptor_of, write_descriptor
from peerlane.dialects.hip._pool import FILE_DESCRIPTOR, Pool, PoolHandle, as_handle
from peerlane.dialects.hip._pool_memory import keep
from peerlane.dialects.hip._results import pointer, put, struct
from peerlane.dialects.hip._state import calls, machine
from peerlane.dialects.hip._types import Pointer

_SAYS = layout.Struct(
    "<8s16sIQII"
)  # magic, uuid of the device, pid, a number of its own, reuse flags, how many rights
_RIGHT = layout.Struct("<16sI")  # uuid of a device, its access
_RIGHTS = ("none", "r", "rw")
_MOST_RIGHTS = 4096  # devices of a node
_MAGIC = b"PLPOOL\0\2"
_ADD_SEALS, _GET_SEALS, _ALL_SEALS = 1033, 1034, 15  # seal, shrink, grow, write


@calls.call("hipMemPoolExportToShareableHandle", first=("shared_handle", "flags"))
def hipMemPoolExportToShareableHandle(
    shared_handle: NotZero, mem_pool: PoolHandle, handle_type: FileDescriptor, flags: Reserved
) -> None:
    """Write a new file descriptor of a pool to an address; the program closes it.

    Refuses: hipErrorInvalidValue NULL, no pool, an imported one, `flags`, a type that is not the pool's
    Basis: D; C for imported pools
    """
    if mem_pool.handle_type != FILE_DESCRIPTOR or mem_pool.maker:
        raise invalid(
            "the pool was imported"
            if mem_pool.maker
            else "the pool was not created with handleTypes file descriptor",
            "create it with handleTypes=hipMemHandleTypePosixFileDescriptor",
        )
    write_descriptor(shared_handle, _file_of(mem_pool), "shared_handle")


def _file_of(pool: Pool) -> int:
    try:
        fd = os.memfd_create("peerlane-pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise refusal(
            "hipErrorOutOfMemory", f"there is no new file descriptor: {error.strerror}", "close some"
        ) from None
    flags = sum(pool.settings[each] << each for each in REUSE)
    said = _SAYS.pack(
        _MAGIC,
        pool.device.uuid,
        os.getpid(),
        int.from_bytes(os.urandom(8), "little"),
        flags,
        len(pool.access),
    ) + b"".join(_RIGHT.pack(device.uuid, _RIGHTS.index(rights)) for device, rights in pool.access.items())
    os.write(fd, said)
    fcntl.fcntl(fd, _ADD_SEALS, _ALL_SEALS)
    return fd


@calls.call("hipMemPoolImportFromShareableHandle", first=("flags", "handle_type"))
def hipMemPoolImportFromShareableHandle(
    shared_handle: int, handle_type: FileDescriptor, flags: Reserved
) -> Any:
    """Have the pool of a file descriptor, to import pointers of it; descriptors as `hipMemImportFromShareableHandle`.

    It has the access and the reuse flags that the pool had when it was exported [D: the code].

    Gives: pool
    Refuses: hipErrorInvalidValue NULL, `flags`, a type other than file descriptor; hipErrorOutOfMemory what is no
        pool of this node
    Basis: D
    """
    fd = descriptor_of(shared_handle, "shared_handle")
    said = _said(fd)
    by_uuid = {device.uuid: device for device in machine.devices()}
    if said.uuid not in by_uuid or not said.access.keys() <= by_uuid.keys():
        raise _no_pool(fd, "it is of another node")
    context = machine.context_of(by_uuid[said.uuid].ordinal)
    pool = Pool(context, handle_type=FILE_DESCRIPTOR, maker=said.maker)
    pool.settings.update({each: said.flags >> each & 1 for each in REUSE})
    pool.access.update({by_uuid[uuid]: rights for uuid, rights in said.access.items()})
    machine.give(pool)
    return as_handle(pool)


class _Said(NamedTuple):
    """The contents of the file of a pool."""

    uuid: bytes
    maker: int
    flags: int
    access: dict[bytes, str]


def _said(fd: int) -> _Said:
    try:
        facts = os.fstat(fd)
        is_file = stat.S_ISREG(facts.st_mode) and facts.st_size >= _SAYS.size
        if not is_file or fcntl.fcntl(fd, _GET_SEALS) & _ALL_SEALS != _ALL_SEALS:
            raise _no_pool(fd, "it is another file")
        magic, uuid, maker, _, flags, count = _SAYS.unpack(os.pread(fd, _SAYS.size, 0))
        if magic != _MAGIC or count > _MOST_RIGHTS or facts.st_size != _SAYS.size + count * _RIGHT.size:
            raise _no_pool(fd, "it says something else")
        listed = _RIGHT.iter_unpack(os.pread(fd, count * _RIGHT.size, _SAYS.size))
        access = {device: _RIGHTS[rights] for device, rights in listed}
    except (OSError, OverflowError, IndexError, layout.error) as error:
        raise _no_pool(fd, str(error)) from None
    return _Said(uuid, maker, flags, access)


def _no_pool(fd: int, why: str) -> Refusal:
    return refusal(
        "hipErrorOutOfMemory",
        f"descriptor {fd} is not a memory pool: {why}",
        "pass a descriptor that hipMemPoolExportToShareableHandle wrote, in this node",
    )


@calls.call("hipMemPoolExportPointer")
def hipMemPoolExportPointer(dev_ptr: int) -> Any:
    """Return the 64 bytes by which a process that has the pool imports memory of it.

    hip-python 7.2 passed a struct to fill, which is taken too.

    Gives: hipMemPoolPtrExportData
    Refuses: hipErrorInvalidValue NULL, freed, not allocated; hipErrorIllegalState as `hipIpcGetMemHandle`
    Basis: D; C for not allocated
    """
    made = struct("hipMemPoolPtrExportData")()
    put(made, "reserved", exported(dev_ptr))
    return made


@calls.call("hipMemPoolImportPointer")
def hipMemPoolImportPointer(mem_pool: PoolHandle, export_data: Any) -> Pointer | None:
    """Have memory of an imported pool at an address of this process, until hipFreeAsync or hipFree.

    What this process exported is its own memory: the address is that of the allocation, and one free ends it for
    both (facts/hip 3.9).

    Gives: Pointer
    Refuses: hipErrorInvalidValue NULL, no pool, one that was not imported, what another process exported;
        hipErrorInvalidDevicePointer no handle, freed, its maker has ended
    Basis: S for an own one; D; C for another process's
    """
    key = bytes_of(export_data, "export_data")
    if not mem_pool.maker:
        raise invalid(
            "the pool was made by this process, and pointers are imported to pools of others",
            "pass what hipMemPoolImportFromShareableHandle returned",
        )
    maker = mem_pool.device.backend.maker_of(key)
    if maker not in (None, mem_pool.maker):
        raise invalid(
            f"process {maker} exported the pointer, and process {mem_pool.maker} the pool",
            "import a pointer to the pool that it was allocated of",
        )
    own = machine.table(Ipc).exported_by(key)
    if own is not None:
        return pointer(own.address)
    buffer = attached(key)
    try:
        return pointer(keep(buffer, mem_pool))
    except BaseException:
        buffer.close()
        raise
