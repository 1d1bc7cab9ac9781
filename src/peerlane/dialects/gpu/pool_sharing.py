"""Memory pools of other processes.

The file descriptor of a pool is a sealed file that names its maker, its device and its access.  Its memory goes
pointer by pointer, by handles as in `ipc.py`, so that no process has more access than it was given.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct as layout
from typing import NamedTuple

from peerlane import Buffer, Kind
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.ipc import Ipc
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.pools import Location, Pool, Pools
from peerlane.dialects.gpu.regions import CPU
from peerlane.dialects.gpu.reuse import REUSE
from peerlane.dialects.gpu.vendor import Reason
from peerlane.memory import raw

_HEADER = layout.Struct(
    "<8s16sIQII"
)  # magic, uuid of the device, pid, a number of its own, reuse flags, how many rights
_RIGHT = layout.Struct("<16sI")  # uuid of a device, its access
_RIGHTS = ("none", "r", "rw")
_MOST_RIGHTS = 4096  # devices of a node
_MAGIC = b"PLPOOL\0\2"
_HOST = bytes(16)  # in the place of a device's uuid
_ADD_SEALS, _GET_SEALS, _ALL_SEALS = 1033, 1034, 15  # seal, shrink, grow, write


class _Contents(NamedTuple):
    """The contents of the file of a pool."""

    uuid: bytes
    maker: int
    flags: int
    access: dict[bytes, str]


class PoolSharing:
    """The pools that a vendor's program shares by file descriptors, and the pointers into them."""

    def __init__(self, machine: GpuMachine, pools: Pools, ipc: Ipc) -> None:
        self._machine, self._pools, self._ipc = machine, pools, ipc

    def export(self, pool: Pool) -> int:
        """Return a new file descriptor of a pool.

        Raises Refusal: ``INVALID_VALUE`` an imported pool, one that was not created to be shared; ``OUT_OF_MEMORY``
            no descriptor is left.
        """
        vendor, device = self._machine.vendor, pool.device
        if not pool.is_shareable or pool.maker:
            raise vendor.invalid(
                "the pool was imported"
                if pool.maker
                else "the pool was not created with handleTypes file descriptor",
                "create it with handleTypes={file_descriptor}",
            )
        try:
            fd = os.memfd_create("peerlane-pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        except OSError as error:
            raise vendor.refusal(
                Reason.OUT_OF_MEMORY, f"there is no new file descriptor: {error.strerror}", "close some"
            ) from None
        flags = sum(bool(pool.get(each)) << each for each in REUSE)
        number = int.from_bytes(os.urandom(8), "little")
        uuid = _HOST if device is None else device.uuid
        header = _HEADER.pack(_MAGIC, uuid, os.getpid(), number, flags, len(pool.access))
        rights = (_RIGHT.pack(each.uuid, _RIGHTS.index(access)) for each, access in pool.access.items())
        os.write(fd, header + b"".join(rights))
        fcntl.fcntl(fd, _ADD_SEALS, _ALL_SEALS)
        return fd

    def open(self, fd: int) -> Pool:
        """Return the pool of a file descriptor, with the reuse flags that it had when it was exported.

        The policy decides whether it has the access of then, too.  ``POOL_NOT_OPENED`` for what is not a pool of this
        node.
        """
        contents = self._read(fd)
        by_uuid = {device.uuid: device for device in self._machine.devices()}
        homes: dict[bytes, Location] = {_HOST: CPU, **by_uuid}
        if contents.uuid not in homes or not contents.access.keys() <= by_uuid.keys():
            raise self._no_pool(fd, "it is of another node")
        pool = self._pools.create_imported(homes[contents.uuid], contents.maker)
        for each in REUSE:
            pool.set(each, contents.flags >> each & 1)
        if self._machine.vendor.policy.pool_import == "kept":
            pool.access.update({by_uuid[uuid]: rights for uuid, rights in contents.access.items()})
        return pool

    def _read(self, fd: int) -> _Contents:
        try:
            facts = os.fstat(fd)
            is_file = stat.S_ISREG(facts.st_mode) and facts.st_size >= _HEADER.size
            if not is_file or fcntl.fcntl(fd, _GET_SEALS) & _ALL_SEALS != _ALL_SEALS:
                raise self._no_pool(fd, "it is another file")
            magic, uuid, maker, _, flags, count = _HEADER.unpack(os.pread(fd, _HEADER.size, 0))
            if magic != _MAGIC or count > _MOST_RIGHTS or facts.st_size != _HEADER.size + count * _RIGHT.size:
                raise self._no_pool(fd, "it says something else")
            listed = _RIGHT.iter_unpack(os.pread(fd, count * _RIGHT.size, _HEADER.size))
            access = {device: _RIGHTS[rights] for device, rights in listed}
        except (OSError, OverflowError, IndexError, layout.error) as error:
            raise self._no_pool(fd, str(error)) from None
        return _Contents(uuid, maker, flags, access)

    def _no_pool(self, fd: int, why: str) -> Refusal:
        return self._machine.vendor.refusal(
            Reason.POOL_NOT_OPENED,
            f"descriptor {fd} is not a memory pool: {why}",
            "pass a descriptor that {export_pool} wrote, in this node",
        )

    def export_pointer(self, address: int) -> bytes:
        """Return the handle by which a process that has the pool imports memory of it; refused as `Ipc.allocation`.

        The policy decides whether memory outside of shareable pools has one.  Memory of a pool that was exported is
        not reused.
        """
        buffer = self._on_host(address) or self._ipc.allocation(address)
        pool = self._pools.holding(buffer)
        is_shared = pool is not None and (pool.is_shareable or pool.maker)
        vendor = self._machine.vendor
        if not is_shared and vendor.policy.pool_pointers == "shareable":
            raise vendor.invalid(
                f"{self._machine.describe(address)} is not memory of a pool that can be exported",
                "allocate it of a pool that was created with handleTypes={file_descriptor}",
            )
        if pool is not None:
            pool.share(buffer)
        return self._ipc.handle_of(buffer, address)

    def _on_host(self, address: int) -> Buffer | None:
        """Return the memory of a shareable pool of the host around an address; None for all else."""
        located = raw.locate(address) if address else None
        if located is None or located.kind is not Kind.PINNED:
            return None
        buffer = self._machine.owned(located.base, host=True)
        pool = None if buffer is None or buffer.is_imported else self._pools.holding(buffer)
        return buffer if pool is not None and pool.is_shareable else None

    def import_pointer(self, pool: Pool, key: bytes) -> int:
        """Return the address of memory of an imported pool, until it is freed.

        What this process exported is its own memory: one free ends it for both.

        Raises Refusal: ``INVALID_VALUE`` a pool that was not imported, memory that another process exported than the
            pool; ``MEMORY_NOT_OPENED``.
        """
        vendor = self._machine.vendor
        if not pool.maker:
            raise vendor.invalid(
                "the pool was made by this process, and pointers are imported to pools of others",
                "pass what {import_pool} returned",
            )
        maker = pool.context.device.backend.maker_of(key)
        if maker not in (None, pool.maker):
            raise vendor.invalid(
                f"process {maker} exported the pointer, and process {pool.maker} the pool",
                "import a pointer to the pool that it was allocated of",
            )
        own = self._ipc.own(key)
        if own is not None:
            return own.address
        buffer = self._ipc.attach_host(key) if pool.device is None else self._ipc.attach(key)
        try:
            return self._pools.enter(buffer, pool)
        except BaseException:
            buffer.close()
            raise
