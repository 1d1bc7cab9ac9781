"""``hcomm``: endpoints and memory without a communicator (facts/hcomm 2.1, 2.3)."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import threading
import weakref
from typing import Annotated

from peerlane import Buffer, Device, Group
from peerlane.backend.ranks import Lent
from peerlane.dialects._shared import checks
from peerlane.dialects._shared.machine import Context
from peerlane.dialects.acl._state import machine
from peerlane.dialects.hcomm._arguments import (
    HANDLE,
    CBytes,
    Enum,
    RequiredEndpoint,
    RequiredMem,
    RequiredText,
    UInt32,
    UInt64,
    field,
    meaning,
    part,
    required,
    zero,
)
from peerlane.dialects.hcomm._arguments import Handle as Number
from peerlane.dialects.hcomm._buffers import checked
from peerlane.dialects.hcomm._channels import refuse_protocol
from peerlane.dialects.hcomm._codes import AGAIN, NOT_FOUND, NOT_SUPPORT, PARA, PTR
from peerlane.dialects.hcomm._comm import current_context, keep
from peerlane.dialects.hcomm._header import (
    CommMem,
    EndpointDesc,
    EndpointLoc,
    EndpointLocDevice,
    EndpointLocType,
)
from peerlane.dialects.hcomm._rank_graph import endpoint_of as described
from peerlane.dialects.hcomm._rank_graph import is_on_bus, protocol_of
from peerlane.dialects.hcomm._regions import Regions
from peerlane.dialects.hcomm._state import HcommResource, drop, hcomm
from peerlane.errors import Error, Fault, InvalidValue
from peerlane.ranks.lending import Loan, Terms, borrow

_MAGIC = "peerlane memory 2"
_LONGEST = 4096
_SECONDS = 5.0
_FIRST_PORT = 16666
_RESERVED = "window"
_handles = itertools.count((1 << 61) + 32, 64)
_lock = threading.Lock()
#: By the text of the handle: exported memory, for imports in this same process.
_exported: dict[str, Loan] = {}


class Export:
    """Exported memory, until :meth:`end` takes the export back."""

    def __init__(self, memory: Buffer) -> None:
        self._loan = Loan(memory)
        handle, terms = self._loan.offer("user")
        assert terms is not None
        self.text, self.terms = bytes(handle).decode(), terms  #: ``text``: the text of its handle
        _exported[self.text] = self._loan

    def end(self) -> None:
        """Take the export back."""
        _exported.pop(self.text, None)
        self._loan.take_back()


class HcommEndpoint(HcommResource):
    """An end of channels that a program describes, on a device."""

    __slots__ = ("desc", "groups", "imported", "imports", "memories", "own", "users")

    name = "endpoint"

    def __init__(self, context: Context, desc: EndpointDesc) -> None:
        super().__init__(context)
        self.desc = copy.deepcopy(desc)  #: a copy of the program's descriptor
        #: By handle: the tag, the registered memory, and its export if there is one.
        self.memories: dict[int, tuple[str, Buffer, Export | None]] = {}
        #: By description: the peer's memory, and whether it must be closed.
        self.imports: dict[bytes, tuple[Buffer, bool]] = {}
        #: The registered and the imported memory, by address.
        self.own, self.imported = Regions({}), Regions({})
        #: The groups of its channels; the other ends of these reach the registered memory.
        self.groups: weakref.WeakSet[Group] = weakref.WeakSet()
        self.users = 0

    def offer(self, group: Group, memories: dict[str, Buffer]) -> None:
        """Let the other end of a channel reach memories that were not unregistered meanwhile."""
        with _lock:
            self.groups.add(group)
            for tag, memory in memories.items():
                if self.own.has(tag, memory):
                    group.register(memory, tag)

    def end(self) -> None:
        """Let go of the registered and the imported memory."""
        with contextlib.ExitStack() as ends:
            for _, _, exported in self.memories.values():
                if exported is not None:
                    ends.callback(exported.end)
            for memory, is_opened in self.imports.values():
                if is_opened:
                    ends.callback(memory.close)
            self.memories, self.imports = {}, {}


EndpointHandle = Annotated[HcommEndpoint, HANDLE, meaning(HcommEndpoint)]


@hcomm.call("hcomm.HcommEndpointCreate", out=1)
def HcommEndpointCreate(endpoint: RequiredEndpoint) -> int:
    """Make an endpoint on this thread's device, which ``loc.device.devPhyId`` names if ``locType`` is DEVICE.

    Gives: endpointHandle
    Refuses: 2 NULL; 1 protocol, `locType`, a device that is not set; 5 protocols of plugins; 15 no device is set
    Basis: D; C for the codes
    """
    refuse_protocol(field(endpoint, "protocol", signed=True))
    context = current_context()
    loc = part(endpoint, "loc", EndpointLoc)
    kind = field(loc, "locType", signed=True)
    if kind not in (EndpointLocType.ENDPOINT_LOC_TYPE_DEVICE, EndpointLocType.ENDPOINT_LOC_TYPE_HOST):
        raise PARA.refusal(f"locType is {kind}", "set ENDPOINT_LOC_TYPE_DEVICE or ENDPOINT_LOC_TYPE_HOST")
    if kind == EndpointLocType.ENDPOINT_LOC_TYPE_DEVICE:
        number = field(part(loc, "device", EndpointLocDevice), "devPhyId")
        if number != context.device.ordinal:
            raise PARA.refusal(
                f"devPhyId is {number}, and device {context.device.ordinal} is set",
                f"call acl.rt.set_device({number}) first",
            )
    return keep(HcommEndpoint(context, endpoint))


@hcomm.call("hcomm.HcommEndpointDestroy")
def HcommEndpointDestroy(endpointHandle: EndpointHandle) -> None:
    """End an endpoint, with what it registered, exported and imported.

    Refuses: 2 NULL; 6 the endpoint; 20 it has channels
    Basis: D; C for the codes
    """
    with _lock:
        if endpointHandle.users:
            raise AGAIN.refusal(
                f"{endpointHandle} has {endpointHandle.users} channels", "call HcommChannelDestroy first"
            )
        drop(endpointHandle, "HcommEndpointDestroy")
    endpointHandle.end()


@hcomm.call("hcomm.HcommEndpointGetDescNum", out=1)
def HcommEndpointGetDescNum(deviceLogicId: Enum) -> int:
    """Return how many endpoints of a network a device has: on a unified bus one.

    Gives: number
    Refuses: 1 no device; 5 a device that is not on a unified bus, as the vendor's other chips than 950
    Basis: D, S; C for the value
    """
    _on_bus(deviceLogicId)
    return 1


@hcomm.call("hcomm.HcommEndpointGetDescs", out=2, blank=lambda *_: (0, []))
def HcommEndpointGetDescs(deviceLogicId: Enum, descNum: UInt32) -> tuple[int, list[EndpointDesc]]:
    """Return the endpoints of a network that a device has; ``descNum`` is how many there is room for.

    Gives: number, list of EndpointDesc
    Refuses: as `HcommEndpointGetDescNum`; 1 less room than there are endpoints
    Basis: D, S; C for the values
    """
    device = _on_bus(deviceLogicId)
    if not descNum:
        raise PARA.refusal("descNum is 0, and there is 1 endpoint", "ask HcommEndpointGetDescNum")
    return 1, [described(device, protocol_of(device))]


def _on_bus(number: int) -> Device:
    """Return a device on a unified bus: HCCL_E_PARA for none, HCCL_E_NOT_SUPPORT for others."""
    present = machine.devices()
    if not 0 <= number < len(present):
        raise PARA.refusal(
            f"{number} is not a device; valid are 0 to {len(present) - 1}",
            "pass a device below acl.rt.get_device_count()",
        )
    device = present[number]
    if not is_on_bus(device):
        raise NOT_SUPPORT.refusal(
            f"{device.info.name} is not on a unified bus, and has no endpoints of a network",
            "run with `--profile ascend-950`",
        )
    return device


@hcomm.call("hcomm.HcommEndpointGetListenPort", out=1)
def HcommEndpointGetListenPort(endpointHandle: EndpointHandle) -> int:
    """Return a port for the descriptors of channels: only a number, no socket listens.

    Gives: port
    Refuses: 2 NULL; 6 the endpoint
    Basis: C
    """
    return _FIRST_PORT + endpointHandle.context.device.ordinal


@hcomm.call("hcomm.HcommMemReg", out=1)
def HcommMemReg(endpointHandle: EndpointHandle, memTag: RequiredText, mem: RequiredMem) -> int:
    """Register device memory, so that channels may reach it and it can be exported.

    Gives: memHandle
    Refuses: 2 NULL; 6 the endpoint; 1, 5, 6 as `HcclCommMemReg`
    Basis: D; C for the codes
    """
    tag, memory = checked(memTag, mem)
    with _lock:
        if tag == _RESERVED or any(tag == each for each, _, _ in endpointHandle.memories.values()):
            what = "is reserved" if tag == _RESERVED else "is taken by other memory of the endpoint"
            raise PARA.refusal(f"the tag {tag!r} {what}", "choose another tag")
        handle = next(_handles)
        endpointHandle.memories[handle] = (tag, memory, None)
        endpointHandle.own.add(tag, memory)
    return handle


def memory_of(endpoint: HcommEndpoint, handle: int) -> tuple[str, Buffer, Export | None]:
    """Return the registered memory of a handle: HCCL_E_PTR, HCCL_E_NOT_FOUND."""
    required("memHandle", handle)
    registration = endpoint.memories.get(handle)
    if registration is None:
        raise NOT_FOUND.refusal(
            f"{handle:#x} is not memory of {endpoint}", "pass what HcommMemReg returned for this endpoint"
        )
    return registration


@hcomm.call("hcomm.HcommMemUnreg")
def HcommMemUnreg(endpointHandle: EndpointHandle, memHandle: Number) -> None:
    """Take a registration back: processes that imported the memory, or reach it over a channel, lose it.

    Their calls with it return 6; operations that they have queued fail when they run.

    Refuses: 2 NULL; 6 the endpoint, the memory
    Basis: D
    """
    with _lock:
        tag, _, exported = memory_of(endpointHandle, memHandle)
        del endpointHandle.memories[memHandle]
        endpointHandle.own.remove(tag)
        groups = list(endpointHandle.groups)
    if exported is not None:
        exported.end()
    for group in groups:
        with contextlib.suppress(InvalidValue):  # its channel was made before the memory was registered
            group.deregister(tag)


@hcomm.call("hcomm.HcommMemExport", out=2, blank=(b"", 0))
def HcommMemExport(endpointHandle: EndpointHandle, memHandle: Number) -> tuple[bytes, int]:
    """Return bytes by which another process of this user imports the memory; the program sends them there.

    Gives: memDesc, its bytes
    Refuses: 2 NULL; 6 the endpoint, the memory; 20 the memory is in use and would have to move; 24
    Basis: D; C for the codes
    """
    with _lock:
        tag, memory, exported = memory_of(endpointHandle, memHandle)
        if exported is None:
            exported = Export(memory)
            endpointHandle.memories[memHandle] = (tag, memory, exported)
    description = json.dumps([_MAGIC, tag, exported.text, memory.size, exported.terms.encode()]).encode()
    return description, len(description)


@hcomm.call("hcomm.HcommMemImport", out=1, blank=(None,))
def HcommMemImport(endpointHandle: EndpointHandle, memDesc: CBytes, descLen: UInt32) -> CommMem:
    """Import memory for the channels of this endpoint; return its address in this process.

    Gives: CommMem
    Refuses: 2 NULL; 6 the endpoint, memory that is gone; 1 other bytes, imported before; 5 memory of another machine;
        9, 19, 21 the other process
    Basis: D; C for the codes
    """
    tag, text, terms = _decoded(memDesc, descLen)
    key = bytes(required("memDesc", memDesc)[:descLen])
    name = Lent("the exporting process", f"the memory {tag!r}", "HcommMemUnreg, or HcommEndpointDestroy")
    with _lock:
        if key in endpointHandle.imports:
            raise PARA.refusal(f"{endpointHandle} has imported this already", "import each description once")
        loan = _exported.get(text)
        if loan is not None:
            memory = loan.for_own_process(name)
        else:
            try:
                memory = Buffer.open(text)
                borrow("HcommMemImport", memory, terms, _SECONDS, name=name)
            except Error as error:
                if error.fault is Fault.OWN_HANDLE:
                    raise NOT_FOUND.refusal(
                        "the memory is not exported any more", "export it again"
                    ) from None
                if getattr(error.detail, "reason", "") == "other_machine":
                    raise NOT_SUPPORT.refusal(
                        str(error),
                        "set exchangeAllMems of the HcommChannelDesc: a channel reaches memory of other machines",
                    ) from None
                raise
        endpointHandle.imports[key] = (memory, loan is None)
        endpointHandle.imported.add(key.hex(), memory)
    return CommMem(0, memory.address, memory.size)


@hcomm.call("hcomm.HcommMemUnimport")
def HcommMemUnimport(endpointHandle: EndpointHandle, memDesc: CBytes, descLen: UInt32) -> None:
    """Let go of imported memory.

    Refuses: 2 NULL; 6 the endpoint, not imported; 1 other bytes
    Basis: D; C for the codes
    """
    _decoded(memDesc, descLen)
    key = bytes(required("memDesc", memDesc)[:descLen])
    with _lock:
        if key not in endpointHandle.imports:
            raise NOT_FOUND.refusal(
                f"{endpointHandle} has not imported this", "pass what HcommMemImport was given"
            )
        memory, is_opened = endpointHandle.imports.pop(key)
        endpointHandle.imported.remove(key.hex())
    if is_opened:
        memory.close()


def _decoded(desc: bytes | None, length: int) -> tuple[str, str, Terms]:
    """Return the tag, the text of the handle and the terms of a description: HCCL_E_PTR, HCCL_E_PARA."""
    content = required("memDesc", desc, length)
    try:
        fields = json.loads(content) if len(content) <= _LONGEST else None
    except (ValueError, RecursionError):
        fields = None
    match fields:
        case [str(magic), str(tag), str(text), int(), list(terms)] if magic == _MAGIC and text.isascii():
            if (decoded := Terms.decode(terms)) is not None:
                return tag, text, decoded
    raise PARA.refusal(
        f"{length:,} bytes that begin with {bytes(content[:24])!r} are not a description of memory",
        "pass what HcommMemExport returned, unchanged",
    )


@hcomm.call("hcomm.HcommMemAlloc", out=1)
def HcommMemAlloc(size: Annotated[UInt64, zero(remedy="pass the bytes of the memory")]) -> int:
    """Allocate memory of this thread's device, for peers to reach; acl takes its address too.

    Gives: address
    Refuses: 1 `size` 0; 15 no device is set; 24 no room
    Basis: D; C for the codes
    """
    address = machine.allocate(current_context(), size, peer=True)
    if address is None:
        raise NOT_FOUND.refusal("the device was reset by another thread during the call", "set it again")
    return address


@hcomm.call("hcomm.HcommMemFree")
def HcommMemFree(
    ptr: Annotated[Number, checks.null(PTR, cause="{name} is NULL", remedy="pass {name}")],
) -> None:
    """Free what ``HcommMemAlloc`` returned.

    Refuses: 2 NULL; 6 nothing was allocated there
    Basis: D; C for 6
    """
    if not machine.free(ptr, host=False, call="HcommMemFree"):
        raise NOT_FOUND.refusal(
            f"nothing was allocated at {machine.describe(ptr)}", "pass what HcommMemAlloc returned, once"
        )
