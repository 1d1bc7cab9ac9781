"""Memory and events that processes share by handles of 64 bytes.

A handle of memory has the bytes of the neutral one, not its text: like the vendors' it has NULs, so that a program
that loses what follows a NUL on hardware loses it on virtual devices.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from peerlane import Buffer, Device, Event, Handle, Host, Kind, Location
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects._shared.exchange import Exports, Imports
from peerlane.dialects._shared.machine import Context, Resource
from peerlane.dialects.gpu.events import DISABLE_TIMING, INTERPROCESS, GpuEvent
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.peers import Peers
from peerlane.dialects.gpu.pools import Pools
from peerlane.dialects.gpu.regions import Region
from peerlane.dialects.gpu.streams import Streams
from peerlane.dialects.gpu.vendor import Reason
from peerlane.dialects.gpu.virtual_memory import VirtualMemory
from peerlane.errors import AccessDenied, BadHandle, Busy, Error, Fault, PeerLost, WaitTimeout
from peerlane.memory import raw

HANDLE_SIZE = 64
_MOST_SECONDS = 5.0  # that another process may take to answer, and queued work to end
LAZY_PEER_ACCESS = 1  # both vendors' only flag of opened memory
_NAME = 48  # bytes of a handle that name an allocation
_OFFSET = 8  # behind them: the pointer's offset in the allocation, which nothing reads
_NO_EVENT = frozenset(
    (
        *(Fault.BAD_HANDLE, Fault.HANDLE_VERSION, Fault.STALE_HANDLE, Fault.WRONG_KIND),
        *(Fault.NOT_LISTED, Fault.PID_REUSED, Fault.LISTED_EARLY, Fault.OTHER_USER, Fault.FOREIGN_NAMESPACE),
    )
)


class _Opened(Resource):
    """Memory of another process; closed with its device's reset."""

    __slots__ = ("_shared", "address", "buffer", "devices", "key", "references")

    name = "memory of another process"
    is_counted = False
    is_owned = False  # the buffer is
    has_addresses = True

    def __init__(self, context: Context, shared: _Shared, key: bytes, buffer: Buffer) -> None:
        super().__init__(context)
        self._shared = shared
        self.key, self.address, self.buffer, self.references = key, buffer.address, buffer, 1
        #: The devices that were current when it was opened, which have access.
        self.devices = {context.device}

    def abandon(self) -> None:
        """Close it."""
        self._shared.forget(self)
        self.buffer.close()

    end = abandon


class _Shared:
    """The memory that this process exported and opened."""

    def __init__(self, machine: GpuMachine) -> None:
        #: By address: the allocation that begins there, and its handle.
        self.exported = Exports[int, tuple[Buffer, Handle]](lambda export: export[0].is_closed)
        self.opened = Imports[bytes, _Opened](machine)  #: by handle
        self.by_address: dict[int, _Opened] = {}  #: the open memory

    def forget(self, opened: _Opened) -> None:
        """Remove opened memory."""
        self.opened.forget(opened.key)
        self.by_address.pop(opened.address, None)


class Ipc:
    """The memory and the events that a vendor's program shares by handles."""

    def __init__(
        self, machine: GpuMachine, streams: Streams, peers: Peers, pools: Pools, virtual_memory: VirtualMemory
    ) -> None:
        self._machine, self._streams, self._pools = machine, streams, pools
        self._virtual_memory = virtual_memory
        peers.add_grant(self._granted)

    @property
    def exports(self) -> int:
        """How many exports are kept."""
        return len(self._shared.exported)

    @property
    def _shared(self) -> _Shared:
        return self._machine.table(_Shared, lambda: _Shared(self._machine))

    def _granted(self, device: Device, address: int, region: Region) -> str:
        memory = range(region.base, region.end)
        known = self._shared.by_address.items()
        return "rw" if any(at in memory and device in each.devices for at, each in known) else "none"

    def export(self, address: int) -> tuple[bytes, int]:
        """Return the handle of the allocation around an address, and how far inside that the address is.

        Opened, the handle gives the first address of the allocation.  Asked again for the same address it is the
        same, until the memory is freed.  Memory below 2 MiB moves first, at the same address, to have no neighbours.

        Raises Refusal: ``INVALID_VALUE`` memory of a pool; as :meth:`allocation`.
        Raises Busy: it has to move, and a view of it lives, or queued work that uses it does not end.
        """
        buffer = self.allocation(address)
        if self._pools.holding(buffer) is not None:
            raise self._machine.vendor.invalid(
                f"{self._machine.describe(address)} is memory of a pool",
                "share it by {export_pool} and {export_pool_pointer}, or allocate by {malloc}",
            )
        return self.handle_of(buffer, address), address - buffer.address

    def handle_of(self, buffer: Buffer, address: int) -> bytes:
        """Return the handle of memory that this process allocated; that of an address inside has the offset, too."""
        exported = self._shared.exported
        known = exported.get(buffer.address)
        if known is None or known[0].id != buffer.id:
            # Not under the lock: it may wait for a callback that wants it.
            handle = self._export(buffer)
            with self._machine.lock:
                known = exported.get(buffer.address)
                if known is None or known[0].id != buffer.id:
                    known = buffer, handle
                    exported.add(buffer.address, known)
            if known[1] is not handle:
                handle.close()  # another thread was quicker
        offset = (address - buffer.address).to_bytes(_OFFSET, "little")
        return (base64.urlsafe_b64decode(bytes(known[1])) + offset).ljust(HANDLE_SIZE, b"\0")

    def _export(self, buffer: Buffer) -> Handle:
        if not isinstance(buffer.device, Host):
            try:
                return buffer.export(allow="user")
            except Busy:  # queued work uses memory that must move, which hardware need not do
                running = self._streams.await_queued(_MOST_SECONDS)
            try:
                return buffer.export(allow="user")
            except Busy as error:
                raise self._in_use(error, running) from None
        handle: Handle = self._backend.export_host(buffer)
        return handle

    def _in_use(self, error: Busy, running: list[str]) -> Error:
        if not running:
            return error
        return Busy(
            f"{error}; the call waited {_MOST_SECONDS:g} s for queued work, and that of {', '.join(running)} is not "
            "over",
            fault=error.fault,
            call=error.call,
            device=error.device,
            detail=error.detail,
        )

    @property
    def _backend(self) -> Any:
        return self._machine.devices()[0].backend

    def allocation(self, address: int) -> Buffer:
        """Return the device memory around an address that this process allocated; ``INVALID_VALUE`` for all else.

        Memory of peerlane's Python API counts, as that of torch's tensors.
        """
        machine = self._machine
        machine.devices()
        located = raw.locate(address) if address else None
        is_device = located is not None and located.kind is Kind.DEVICE
        buffer = None
        if located is not None and is_device:
            buffer = machine.owned(located.base, host=False) or self._allocated_elsewhere(located)
        if buffer is None or buffer.is_imported:
            raise machine.vendor.invalid(
                f"{machine.describe(address)} is not memory that {machine.vendor.calls['malloc']} gave this process",
                "pass what {malloc} returned; mapped memory is shared with {export_physical}",
            )
        return buffer

    def _allocated_elsewhere(self, located: Location) -> Buffer | None:
        """Return memory that no call of the vendor allocated, mapped or opened, nor a pool keeps; else None."""
        machine, memory = self._machine, range(located.base, located.base + located.size)
        is_mapped = self._virtual_memory.right(machine.device(located.ordinal), located.base) is not None
        is_opened = any(at in memory for at in self._shared.by_address)
        if is_mapped or is_opened or located.allocation in machine.pooled:
            return None
        return raw.buffer(located.base, located.size)

    def key(self, name: str, handle: bytes | None, advice: str = "") -> bytes:
        """Return the neutral handle that the bytes of a handle mean; one of these is taken as well.

        ``INVALID_VALUE`` for NULL (None), too few bytes, and all 0; ``advice`` ends the remedy.
        """
        if handle is not None and len(handle) == HANDLE_SIZE and any(handle):
            is_text = any(handle[_NAME + _OFFSET :])
            return handle if is_text else base64.urlsafe_b64encode(handle[:_NAME])
        what = "is NULL" if handle is None else "is all 0"
        if handle is not None and len(handle) < HANDLE_SIZE:
            what = f"has {len(handle)} bytes"
        raise self._machine.vendor.invalid(
            f"{name} {what}", f"pass all {HANDLE_SIZE} bytes that the other process got{advice}"
        )

    def own(self, key: bytes) -> Buffer | None:
        """Return this process's own memory that a handle names; None for memory of others, and freed memory."""
        for _, (buffer, handle) in self._shared.exported.items():
            if bytes(handle) == key and not buffer.is_closed:
                return buffer
        return None

    def open(self, key: bytes) -> int:
        """Return the address of memory that another process exported, to be closed as often as it was opened.

        Opened again it is the same address.  This thread's device may be another one than the memory's, if it can
        reach that.  Refused as :meth:`attach`.
        """
        shared, context = self._shared, self._machine.context()

        def keep(buffer: Buffer) -> _Opened:
            opened_memory = _Opened(context, shared, key, buffer)
            self._machine.issue(opened_memory)
            shared.by_address[opened_memory.address] = opened_memory
            return opened_memory

        return shared.opened.open(
            key,
            lambda: self.attach(key, context.device),
            keep,
            again=lambda known: known.devices.add(context.device),
        ).address

    def attach(self, key: bytes, device: Device | None = None) -> Buffer:
        """Open memory of another process; ``MEMORY_NOT_OPENED`` for every failure but an own handle."""
        return self._opened(lambda: Buffer.open(key, device=device))

    def attach_host(self, key: bytes) -> Buffer:
        """Open memory of the host that another process allocated; fails as :meth:`attach`."""
        return self._opened(lambda: self._backend.open_host(key, _MOST_SECONDS))

    def _opened(self, open_it: Callable[[], Buffer]) -> Buffer:
        try:
            return open_it()
        except (AccessDenied, BadHandle, PeerLost, WaitTimeout) as error:
            if error.fault is Fault.OWN_HANDLE:
                raise
            vendor = self._machine.vendor
            raise vendor.refusal(Reason.MEMORY_NOT_OPENED, str(error), vendor.explain(error)[1]) from None

    def close(self, address: int, call: str) -> None:
        """Close opened memory, once for each time; its exporter keeps the memory.

        It waits for the null stream of this thread's device, then for all streams of the devices that were current
        when the memory was opened.  What their work failed with is left for their own synchronization.
        ``INVALID_VALUE`` for all else, and what was closed as often.  ``call`` is the vendor's name of the call.
        """
        shared, machine, streams = self._shared, self._machine, self._streams
        streams.await_stream(streams.null(machine.context()))
        # Not under the lock: host functions that are waited for may want it.
        for device in tuple(self._at(shared, address).devices):
            streams.await_device(machine.context_of(device.ordinal))
        with machine.lock:
            opened = shared.opened.release(self._at(shared, address).key)
            if opened is None:
                return
            shared.forget(opened)
            machine.drop(opened, call)
        opened.buffer.close()

    def _at(self, shared: _Shared, address: int) -> _Opened:
        opened = shared.by_address.get(address)
        if opened is None:
            machine = self._machine
            raise machine.vendor.invalid(
                f"{machine.describe(address)} is not what {machine.vendor.calls['open_memory']} gave, or was closed "
                "as often",
                "close what {open_memory} returned, once for each time",
            )
        return opened

    def export_event(self, event: GpuEvent) -> bytes:
        """Return the handle of an event: text without a NUL, the same each time.

        ``NOT_INTERPROCESS`` for one that was created without that flag.
        """
        vendor = self._machine.vendor
        if not event.flags & INTERPROCESS:
            raise vendor.refusal(
                Reason.NOT_INTERPROCESS,
                f"event {event.handle:#x} was created without {vendor.calls['interprocess']}",
                "create it with {create_event_with_flags}({interprocess} | {disable_timing})",
            )
        with self._machine.lock:
            if event.exported is None:
                event.exported = event.neutral.export(allow="user")
        return bytes(event.exported)

    def open_event(self, handle: bytes) -> int:
        """Return the number of another process's event, as one of this thread's device: both may record it.

        ``EVENT_NOT_OPENED`` for bytes that are not a handle, and for a destroyed event.
        """
        if not any(handle):
            raise self.no_event("the handle is all zeros")
        context = self._machine.context()
        try:
            neutral = Event.open(handle, device=context.device)
        except Error as error:
            if error.fault in _NO_EVENT:
                raise self.no_event(str(error)) from None
            raise
        return self._machine.issue(GpuEvent(context, INTERPROCESS | DISABLE_TIMING, neutral))

    def no_event(self, cause: str) -> Refusal:
        """Return the refusal of bytes that are not a handle of an event."""
        return self._machine.vendor.refusal(
            Reason.EVENT_NOT_OPENED,
            cause,
            "pass the 64 bytes that {export_event} gave in this run, unchanged, while the event lives",
        )
