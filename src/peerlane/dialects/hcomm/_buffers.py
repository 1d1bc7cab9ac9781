"""``hcomm``: the HcclBuffer, and memory that peers reach (facts/hcomm 2.3)."""

from __future__ import annotations

import itertools

from peerlane import Buffer, Host
from peerlane.dialects.hcomm._arguments import RequiredMem, RequiredText, field
from peerlane.dialects.hcomm._codes import NOT_FOUND, NOT_SUPPORT, PARA, PTR
from peerlane.dialects.hcomm._comm import BUFFER_TAG, CommHandle
from peerlane.dialects.hcomm._header import CommMem, CommMemType
from peerlane.dialects.hcomm._regions import device_memory
from peerlane.dialects.hcomm._state import hcomm

_LONGEST_TAG = 255
_RESERVED = (BUFFER_TAG, "window")
_FIRST_HANDLE = 1 << 61
_handles = itertools.count(_FIRST_HANDLE, 64)


@hcomm.call("hcomm.HcclGetHcclBuffer", out=2)
def HcclGetHcclBuffer(comm: CommHandle) -> tuple[int, int]:
    """Return where the HcclBuffer is, and its bytes: twice HCCL_BUFFSIZE.  It is the library's: never free it.

    It is allocated by the first call that needs it; only what is written takes room on this machine.

    Gives: address, bytes
    Refuses: 2 NULL; 6 the communicator; 24 the device has not that much
    Basis: D
    """
    buffer = comm.hccl_buffer()
    return buffer.address, buffer.size


@hcomm.call("hcomm.HcclGetHcclBufferCleared", out=2)
def HcclGetHcclBufferCleared(comm: CommHandle) -> tuple[int, int]:
    """As ``HcclGetHcclBuffer``; all of its bytes are 0 on return.

    Gives: address, bytes
    Refuses: as `HcclGetHcclBuffer`
    Basis: D
    """
    buffer = comm.hccl_buffer()
    buffer.fill(0)
    return buffer.address, buffer.size


@hcomm.call("hcomm.HcclCommMemReg", out=1)
def HcclCommMemReg(comm: CommHandle, memTag: RequiredText, mem: RequiredMem) -> int:
    """Let peers reach device memory by a tag, over channels that are acquired from now on, until it is freed.

    What peers do with it after that is code 6.

    Gives: memHandle
    Refuses: 2 NULL, `addr` NULL; 6 the communicator, memory that acl has not given out; 1 tag taken, reserved or not
        of 1 to 255 characters, `size` 0, type; 5 host memory
    Basis: D; C for 5 and 6
    """
    tag, memory = checked(memTag, mem)
    with comm.guard:
        comm.forget_freed()
        if tag in _RESERVED or any(tag == each for each, _ in comm.memories.values()):
            what = "is reserved" if tag in _RESERVED else "is taken by other memory of the communicator"
            raise PARA.refusal(f"the tag {tag!r} {what}", "choose another tag")
        comm.group.register(memory, tag)
        handle = next(_handles)
        comm.memories[handle] = (tag, memory)
        comm.regions.add(tag, memory)
    return handle


def checked(tag: str, mem: CommMem) -> tuple[str, Buffer]:
    """Return the tag and the memory of a registration."""
    if not 1 <= len(tag) <= _LONGEST_TAG:
        raise PARA.refusal(
            f"the tag has {len(tag):,} characters; valid are 1 to {_LONGEST_TAG}", "choose another tag"
        )
    kind, address = field(mem, "type", signed=True), field(mem, "addr", bits=64)
    nbytes = field(mem, "size", bits=64)
    if not address:
        raise PTR.refusal("addr of the CommMem is NULL", "pass the address of device memory")
    if not nbytes:
        raise PARA.refusal("size of the CommMem is 0", "pass the bytes of the memory")
    if kind == CommMemType.COMM_MEM_TYPE_HOST:
        raise NOT_SUPPORT.refusal(
            "this is COMM_MEM_TYPE_HOST: memory of the host is this process's own, pinned memory too, and nothing "
            "lets other processes reach it; a device's is shared with them",
            "copy it to a device",
        )
    if kind != CommMemType.COMM_MEM_TYPE_DEVICE:
        raise PARA.refusal(f"type of the CommMem is {kind}", "pass COMM_MEM_TYPE_DEVICE")
    memory = device_memory("addr", address, nbytes)
    if isinstance(memory.device, Host):
        raise NOT_FOUND.refusal(f"{address:#x} is host memory", "pass memory of acl.rt.malloc")
    return tag, memory
