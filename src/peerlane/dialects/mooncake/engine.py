"""``mooncake.engine``: the transfer engine of Mooncake on virtual devices."""

from __future__ import annotations

import ctypes
import enum
import functools
import inspect
import json
import logging
import os
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from peerlane.dialects._shared.call import Refusal as _Refusal
from peerlane.dialects._shared.call import name_code as _name_code
from peerlane.dialects.mooncake import _arguments as _read
from peerlane.dialects.mooncake._engines import InnerTransferEngine as InnerTransferEngine
from peerlane.dialects.mooncake._failures import ANSWERS as _ANSWERS
from peerlane.dialects.mooncake._failures import FAILED as _FAILED
from peerlane.dialects.mooncake._failures import refused as _refused
from peerlane.dialects.mooncake._failures import report as _report
from peerlane.errors import Error as _Error
from peerlane.memory import raw as _raw

SUPPORT_CUDA = SUPPORT_EFA = SUPPORT_HIP = SUPPORT_INTRA_NVLINK = SUPPORT_MNNVL = SUPPORT_MUSA = False

_P2P = "P2PHANDSHAKE"
_ANY = "*"
_FORCED = "MC_FORCE_TCP"
_log = logging.getLogger("mooncake.engine")
_P = ParamSpec("_P")
_R = TypeVar("_R")


class TransferOpcode(enum.IntEnum):
    """What a transfer does."""

    Read = 0
    Write = 1

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


Read, Write = TransferOpcode.Read, TransferOpcode.Write


class TransferNotify:
    """A notify: what an engine sends to the target when a transfer is over.

    Parameters
    ----------
    name, msg : str
    """

    def __init__(self, name: str | None = None, msg: str | None = None) -> None:
        if name is None and msg is None:
            name = msg = ""
        self.name = _read.text("TransferNotify", "name", name)
        self.msg = _read.text("TransferNotify", "msg", msg)


def _answers(failed: Any = None) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Let a method return ``failed`` where it is refused, or the code of its refusal without it."""

    def decorate(method: Callable[_P, _R]) -> Callable[_P, _R]:
        signature = inspect.signature(method)

        @functools.wraps(method)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            try:
                return method(*args, **kwargs)
            except (_Refusal, _Error) as error:
                arguments = signature.bind(*args, **kwargs).arguments
                del arguments["self"]
                answer: Any = _report(method.__name__, error, failed, arguments)
                return answer  # type: ignore[no-any-return]

        _name_code(call, f"TransferEngine.{method.__name__}")
        _ANSWERS[method.__name__] = "the code" if failed is None else str(failed)
        return call

    return decorate


class TransferEngine:
    """An engine: registered memory of this process, and transfers with other engines."""

    def __init__(self) -> None:
        self._engine: InnerTransferEngine | None = None

    def _own(self) -> InnerTransferEngine:
        if self._engine is None:
            raise _refused("the engine was not initialized", "call initialize first")
        return self._engine.of_this_process()

    @_answers(_FAILED)
    def initialize(self, local_hostname: str, metadata_server: str, protocol: str, device_name: str) -> int:
        """Begin to serve other engines at a port that the system chooses."""
        metadata_server = _read.text("initialize", "metadata_server", metadata_server)
        kind, _, server = metadata_server.rpartition("://")
        return self._begin("initialize", local_hostname, server, protocol, device_name, kind)

    @_answers(_FAILED)
    def initialize_ext(
        self, local_hostname: str, metadata_server: str, protocol: str, device_name: str, metadata_type: str
    ) -> int:
        """Begin to serve other engines, as :meth:`initialize`."""
        call = "initialize_ext"
        _read.text(call, "metadata_type", metadata_type)
        metadata_server = _read.text(call, "metadata_server", metadata_server)
        return self._begin(call, local_hostname, metadata_server, protocol, device_name, metadata_type)

    def _begin(self, call: str, hostname: str, server: str, protocol: str, devices: str, kind: str) -> int:
        name = _read.text(call, "local_hostname", hostname)
        wanted = _read.text(call, "protocol", protocol)
        if devices is not None:
            _read.text(call, "device_name", devices)
        if server != _P2P:
            raise _refused(
                f"the metadata server is {server!r} ({kind or 'etcd'}), and there is none here",
                f"pass {_P2P!r}: engines then ask each other",
            )
        if wanted == "xgmi":
            raise _refused("the protocol 'xgmi' is not one of the Python API", "pass 'hip'")
        by_tcp = wanted == "tcp" or _FORCED in os.environ
        self._engine = InnerTransferEngine(_host_of(name), needs_registration=not by_tcp)
        _log.info(
            "%s serves the protocol %r: memory of this machine is copied, other machines are reached by TCP",
            self._engine.name,
            wanted,
        )
        return 0

    @_answers(_FAILED)
    def get_rpc_port(self) -> int:
        """Return the port at which other engines reach this one."""
        return self._own().port

    @_answers(0)
    def get_engine_ptr(self) -> int:
        """Return a number of the engine, of which only this process knows."""
        return id(self._own())

    def get_engine(self) -> InnerTransferEngine | None:
        """Return the inner engine, None before :meth:`initialize`."""
        return self._engine

    # Memory.

    @_answers()
    def register_memory(self, buffer_addr: int, capacity: int, location: str = _ANY) -> int:
        """Register memory of the host or of a device."""
        start = _read.word("register_memory", "buffer_addr", buffer_addr)
        size = _read.word("register_memory", "capacity", capacity)
        _read.text("register_memory", "location", location)
        self._own().segment.add([(start, size)])
        return 0

    @_answers()
    def unregister_memory(self, buffer_addr: int) -> int:
        """Unregister memory, by the address that was registered."""
        start = _read.word("unregister_memory", "buffer_addr", buffer_addr)
        self._own().segment.remove([start])
        return 0

    @_answers()
    def batch_register_memory(
        self, buffer_addresses: list[int], capacities: list[int], location: str = _ANY
    ) -> int:
        """Register several pieces of memory, all or none."""
        starts = _read.words("batch_register_memory", "buffer_addresses", buffer_addresses)
        sizes = _read.words("batch_register_memory", "capacities", capacities)
        _read.text("batch_register_memory", "location", location)
        if len(starts) > len(sizes):
            raise _refused(
                f"there are {len(starts)} addresses and {len(sizes)} capacities", "pass as many of each"
            )
        self._own().segment.add(list(zip(starts, sizes, strict=False)))
        return 0

    @_answers()
    def batch_unregister_memory(self, buffer_addresses: list[int]) -> int:
        """Unregister several pieces of memory."""
        self._own().segment.remove(
            _read.words("batch_unregister_memory", "buffer_addresses", buffer_addresses)
        )
        return 0

    @_answers(0)
    def allocate_managed_buffer(self, length: int) -> int:
        """Return the address of new registered memory of the host; 0 if there is none."""
        return self._own().allocate(_read.word("allocate_managed_buffer", "length", length))

    @_answers()
    def free_managed_buffer(self, buffer_addr: int, length: int) -> int:
        """Free memory of :meth:`allocate_managed_buffer`."""
        address = _read.word("free_managed_buffer", "buffer_addr", buffer_addr)
        self._own().free(address, _read.word("free_managed_buffer", "length", length))
        return 0

    @_answers()
    def write_bytes_to_buffer(self, dest_address: int, src_ptr: bytes, length: int) -> int:
        """Write the first bytes of an object to memory of this process."""
        address = _read.word("write_bytes_to_buffer", "dest_address", dest_address)
        size = _read.word("write_bytes_to_buffer", "length", length)
        content = bytearray(_read.content("write_bytes_to_buffer", "src_ptr", src_ptr))
        if size > len(content):
            raise _refused(f"{size:,} bytes were asked of {len(content):,}", "pass a length that src_ptr has")
        if size:
            _raw.copy(address, ctypes.addressof(ctypes.c_char.from_buffer(content)), size)
        return 0

    def read_bytes_from_buffer(self, source_address: int, length: int) -> bytes:
        """Return bytes of memory of this process.

        Raises
        ------
        RuntimeError
            They are not memory.
        """
        address = _read.word("read_bytes_from_buffer", "source_address", source_address)
        content = bytearray(_read.word("read_bytes_from_buffer", "length", length))
        if content:
            try:
                _raw.copy(ctypes.addressof(ctypes.c_char.from_buffer(content)), address, len(content))
            except _Error as error:
                raise RuntimeError(f"read_bytes_from_buffer: {error}") from error
        return bytes(content)

    @_answers(0)
    def get_first_buffer_address(self, segment_name: str) -> int:
        """Return where the first registration of a segment begins; 0 without one, or without such a segment."""
        name = _read.text("get_first_buffer_address", "segment_name", segment_name)
        return self._own().peer(name).first_address()

    # Transfers that are over when the call returns.

    @_answers(_FAILED)
    def transfer_sync_write(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        transport_hint: str = "",
    ) -> int:
        """Write to memory of a segment; ``target_hostname`` is its name, ``host:port``."""
        pieces = [_piece("transfer_sync_write", buffer, peer_buffer_address, length)]
        return self._move("transfer_sync_write", target_hostname, pieces, Write, None, transport_hint)

    @_answers(_FAILED)
    def transfer_sync_read(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        transport_hint: str = "",
    ) -> int:
        """Read from memory of a segment."""
        pieces = [_piece("transfer_sync_read", buffer, peer_buffer_address, length)]
        return self._move("transfer_sync_read", target_hostname, pieces, Read, None, transport_hint)

    @_answers(_FAILED)
    def transfer_sync(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        opcode: TransferOpcode,
        notify: TransferNotify | None = None,
        transport_hint: str = "",
    ) -> int:
        """Read or write; then send a notify to the segment's engine."""
        pieces = [_piece("transfer_sync", buffer, peer_buffer_address, length)]
        return self._move("transfer_sync", target_hostname, pieces, opcode, notify, transport_hint)

    @_answers(_FAILED)
    def batch_transfer_sync_write(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        transport_hint: str = "",
    ) -> int:
        """Write several pieces; none if one of them is refused."""
        pieces = _pieces("batch_transfer_sync_write", buffers, peer_buffer_addresses, lengths)
        return self._move("batch_transfer_sync_write", target_hostname, pieces, Write, None, transport_hint)

    @_answers(_FAILED)
    def batch_transfer_sync_read(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        transport_hint: str = "",
    ) -> int:
        """Read several pieces; none if one of them is refused."""
        pieces = _pieces("batch_transfer_sync_read", buffers, peer_buffer_addresses, lengths)
        return self._move("batch_transfer_sync_read", target_hostname, pieces, Read, None, transport_hint)

    @_answers(_FAILED)
    def batch_transfer_sync(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        opcode: TransferOpcode,
        notify: TransferNotify | None = None,
        transport_hint: str = "",
    ) -> int:
        """Read or write several pieces; then send a notify to the segment's engine."""
        pieces = _pieces("batch_transfer_sync", buffers, peer_buffer_addresses, lengths)
        return self._move("batch_transfer_sync", target_hostname, pieces, opcode, notify, transport_hint)

    def _move(
        self,
        call: str,
        target: str,
        pieces: list[tuple[int, int, int]],
        opcode: TransferOpcode,
        notify: TransferNotify | None,
        hint: str,
    ) -> int:
        name, _ = _read.text(call, "target_hostname", target), _read.text(call, "transport_hint", hint)
        is_write = _read.kind(call, "opcode", opcode, TransferOpcode) is Write
        if notify is not None:
            _read.kind(call, "notify", notify, TransferNotify)
        if notify is not None and not pieces:
            raise _refused("there are no pieces that the notify could follow", "pass one piece or more")
        peer = self._own().transfer(name, is_write, pieces)
        if notify is not None:
            peer.notify(notify.name, notify.msg)
        return 0

    # Transfers that go on behind the call.

    @_answers(0)
    def transfer_submit_write(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        transport_hint: str = "",
    ) -> int:
        """Begin to write, and return the transfer's number; 0 if it is refused."""
        pieces = [_piece("transfer_submit_write", buffer, peer_buffer_address, length)]
        return self._submit(
            "transfer_submit_write", target_hostname, pieces, Write, transport_hint, is_single=True
        )

    @_answers(0)
    def batch_transfer_async_write(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        transport_hint: str = "",
    ) -> int:
        """Begin to write several pieces, and return the transfer's number; 0 if it is refused."""
        pieces = _pieces("batch_transfer_async_write", buffers, peer_buffer_addresses, lengths)
        return self._submit("batch_transfer_async_write", target_hostname, pieces, Write, transport_hint)

    @_answers(0)
    def batch_transfer_async_read(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        transport_hint: str = "",
    ) -> int:
        """Begin to read several pieces, and return the transfer's number; 0 if it is refused."""
        pieces = _pieces("batch_transfer_async_read", buffers, peer_buffer_addresses, lengths)
        return self._submit("batch_transfer_async_read", target_hostname, pieces, Read, transport_hint)

    @_answers(0)
    def batch_transfer_async(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        opcode: TransferOpcode,
        transport_hint: str = "",
    ) -> int:
        """Begin to read or write several pieces, and return the transfer's number; 0 if it is refused."""
        pieces = _pieces("batch_transfer_async", buffers, peer_buffer_addresses, lengths)
        return self._submit("batch_transfer_async", target_hostname, pieces, opcode, transport_hint)

    def _submit(
        self,
        call: str,
        target: str,
        pieces: list[tuple[int, int, int]],
        opcode: TransferOpcode,
        hint: str,
        *,
        is_single: bool = False,
    ) -> int:
        name, _ = _read.text(call, "target_hostname", target), _read.text(call, "transport_hint", hint)
        is_write = _read.kind(call, "opcode", opcode, TransferOpcode) is Write
        return self._own().submit(name, is_write, pieces, is_single=is_single)

    @_answers(_FAILED)
    def transfer_check_status(self, batch_id: int) -> int:
        """Return 1 if a transfer is over, 0 if it is under way, -1 if it has failed; its end is reported once."""
        return int(self._own().is_over(_read.word("transfer_check_status", "batch_id", batch_id)))

    @_answers(_FAILED)
    def get_batch_transfer_status(self, batch_ids: list[int]) -> int:
        """Wait for transfers; return 0 if all have succeeded."""
        numbers = _read.words("get_batch_transfer_status", "batch_ids", batch_ids)
        if numbers:
            self._own().wait(numbers)
        return 0

    # Other engines.

    def get_notifies(self) -> list[TransferNotify]:
        """Return the notifies that have come, and forget them.

        Raises
        ------
        RuntimeError
            The engine was not initialized.
        """
        try:
            inbox = self._own().inbox
        except _Refusal as error:
            raise RuntimeError(f"get_notifies: {error}; {error.remedy}") from None
        return [TransferNotify(each.name, each.message) for each in inbox.take()]

    @_answers()
    def send_probe(self, peer_server_name: str) -> int:
        """Return 0 if an engine answers at an address."""
        name = _read.text("send_probe", "peer_server_name", peer_server_name)
        self._own().probe(name)
        return 0

    def get_local_topology(self, device_name: str | None = None) -> str:
        """Return the network cards near each kind of memory, as JSON: none."""
        return json.dumps({"cpu:0": [[], []]}, indent="\t") + "\n"

    def warmup_efa_segment(self, segment_name: str) -> int:
        """Return 0: there is no EFA."""
        _read.text("warmup_efa_segment", "segment_name", segment_name)
        return 0


# In the class this name would hide the enumeration from the annotations of its methods.
setattr(TransferEngine, "TransferOpcode", TransferOpcode)  # noqa: B010


def _piece(call: str, near: Any, far: Any, size: Any) -> tuple[int, int, int]:
    return (
        _read.word(call, "buffer", near),
        _read.word(call, "peer_buffer_address", far),
        _read.word(call, "length", size),
    )


def _pieces(call: str, near: Any, far: Any, sizes: Any) -> list[tuple[int, int, int]]:
    ours, theirs = _read.words(call, "buffers", near), _read.words(call, "peer_buffer_addresses", far)
    lengths = _read.words(call, "lengths", sizes)
    if not len(ours) == len(theirs) == len(lengths):
        raise _refused(
            f"there are {len(ours)} buffers, {len(theirs)} addresses of the peer and {len(lengths)} lengths",
            "pass as many of each",
        )
    return list(zip(ours, theirs, lengths, strict=True))


def _host_of(name: str) -> str:
    """Return the host of ``host``, ``host:port``, ``host:port:npu_0``, an IPv6 address or ``[address]:port``."""
    if name.startswith("["):
        return name[1:].partition("]")[0]
    host, _, rest = name.partition(":")
    return name if ":" in rest and ":npu_" not in rest else host
