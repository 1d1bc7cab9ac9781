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
from peerlane.dialects.mooncake._service import Piece as _Piece
from peerlane.errors import Error as _Error
from peerlane.memory import raw as _raw

SUPPORT_CUDA = SUPPORT_EFA = SUPPORT_HIP = SUPPORT_INTRA_NVLINK = SUPPORT_MNNVL = SUPPORT_MUSA = False

_P2P = "P2PHANDSHAKE"
_ANY = "*"
_FORCED = "MC_FORCE_TCP"
_log = logging.getLogger("mooncake.engine")
_P = ParamSpec("_P")
_R = TypeVar("_R")


class TransferOpcode(enum.Enum):
    """What a transfer does; ``int()`` gives its number, which it does not equal."""

    Read = 0
    Write = 1

    def __index__(self) -> int:
        return self.value

    def __int__(self) -> int:
        return self.value


Read, Write = TransferOpcode.Read, TransferOpcode.Write


def _text_of_notify(name: str) -> property:
    def value(notify: TransferNotify) -> str:
        return notify._texts[name]

    def assign(notify: TransferNotify, text: str) -> None:
        notify._texts[name] = _read.text("TransferNotify", name, text)

    return property(value, assign)


class TransferNotify:
    """A notify: what an engine sends to the target when a transfer is over.

    Parameters
    ----------
    name, msg : str
    """

    __slots__ = ("_texts",)
    name, msg = _text_of_notify("name"), _text_of_notify("msg")

    def __init__(self, name: str | None = None, msg: str | None = None) -> None:
        if name is None and msg is None:
            name = msg = ""
        self._texts: dict[str, str] = {}
        self.name, self.msg = name, msg


#: By the annotation of a parameter, what reads its arguments.
_READERS: dict[str, Callable[[str, str, Any], Any]] = {
    "str": _read.text,
    "str | None": _read.optional(_read.text),
    "bytes": _read.content,
    "int": _read.word,
    "list[int]": _read.words,
    "TransferOpcode": _read.kind(TransferOpcode),
    "TransferNotify | None": _read.optional(_read.kind(TransferNotify)),
}


def _answers(failed: Any = None) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Read a method's arguments; where it is refused, return ``failed``, or the code of its refusal without it."""

    def decorate(method: Callable[_P, _R]) -> Callable[_P, _R]:
        signature = inspect.signature(method)
        own, *parameters = signature.parameters.values()
        readers = [(each.name, _READERS[each.annotation]) for each in parameters]
        named, name = dict(readers), method.__name__

        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            engine, *values = args
            # The method refuses arguments that it does not have.
            read = [reader(name, each, value) for (each, reader), value in zip(readers, values, strict=False)]
            if kwargs:
                for each in kwargs.keys() & named.keys():
                    kwargs[each] = named[each](name, each, kwargs[each])
            try:
                return method(engine, *read, *values[len(read) :], **kwargs)
            except (_Refusal, _Error) as error:
                arguments = signature.bind(*args, **kwargs).arguments
                del arguments[own.name]
                return _report(name, error, failed, arguments)

        _name_code(call, f"TransferEngine.{name}")
        _ANSWERS[name] = "the code" if failed is None else str(failed)
        return call

    return decorate


class TransferEngine:
    """An engine: registered memory of this process, and transfers with other engines."""

    def __init__(self) -> None:
        self._engine: InnerTransferEngine | None = None

    def _initialized(self) -> InnerTransferEngine:
        if self._engine is None:
            raise _refused("the engine was not initialized", "call initialize first")
        return self._engine

    def _own(self) -> InnerTransferEngine:
        return self._initialized().of_this_process()

    @_answers(_FAILED)
    def initialize(
        self, local_hostname: str, metadata_server: str, protocol: str, device_name: str | None, /
    ) -> int:
        """Begin to serve other engines at a port that the system chooses."""
        kind, _, server = metadata_server.rpartition("://")
        return self._begin(local_hostname, server, protocol, kind)

    @_answers(_FAILED)
    def initialize_ext(
        self,
        local_hostname: str,
        metadata_server: str,
        protocol: str,
        device_name: str | None,
        metadata_type: str,
        /,
    ) -> int:
        """Begin to serve other engines, as :meth:`initialize`."""
        return self._begin(local_hostname, metadata_server, protocol, metadata_type)

    def _begin(self, hostname: str, server: str, protocol: str, kind: str) -> int:
        if server != _P2P:
            raise _refused(
                f"the metadata server is {server!r} ({kind or 'etcd'}), and there is none here",
                f"pass {_P2P!r}: engines then ask each other",
            )
        if protocol == "xgmi":
            raise _refused("the protocol 'xgmi' is not one of the Python API", "pass 'hip'")
        by_tcp = protocol == "tcp" or _FORCED in os.environ
        self._engine = InnerTransferEngine(_host_of(hostname), needs_registration=not by_tcp)
        _log.info(
            "%s serves the protocol %r: memory of this machine is copied, other machines are reached by TCP",
            self._engine.name,
            protocol,
        )
        return 0

    @_answers(_FAILED)
    def get_rpc_port(self) -> int:
        """Return the port at which other engines reach this one."""
        return self._initialized().port

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
        self._own().segment.add([(buffer_addr, capacity)])
        return 0

    @_answers()
    def unregister_memory(self, buffer_addr: int, /) -> int:
        """Unregister memory, by the address that was registered."""
        self._own().segment.remove([buffer_addr])
        return 0

    @_answers()
    def batch_register_memory(
        self, buffer_addresses: list[int], capacities: list[int], location: str = _ANY
    ) -> int:
        """Register several pieces of memory, all or none."""
        if len(buffer_addresses) > len(capacities):
            raise _refused(
                f"there are {len(buffer_addresses)} addresses and {len(capacities)} capacities",
                "pass as many of each",
            )
        self._own().segment.add(list(zip(buffer_addresses, capacities, strict=False)))
        return 0

    @_answers()
    def batch_unregister_memory(self, buffer_addresses: list[int], /) -> int:
        """Unregister several pieces of memory."""
        self._own().segment.remove(buffer_addresses)
        return 0

    @_answers(0)
    def allocate_managed_buffer(self, length: int, /) -> int:
        """Return the address of new registered memory of the host; 0 if there is none."""
        return self._own().allocate(length)

    @_answers()
    def free_managed_buffer(self, buffer_addr: int, length: int, /) -> int:
        """Free memory of :meth:`allocate_managed_buffer`."""
        self._own().free(buffer_addr, length)
        return 0

    @_answers()
    def write_bytes_to_buffer(self, dest_address: int, src_ptr: bytes, length: int, /) -> int:
        """Write the first bytes of an object to memory of this process."""
        content = bytearray(src_ptr)
        if length > len(content):
            raise _refused(
                f"{length:,} bytes were asked of {len(content):,}", "pass a length that src_ptr has"
            )
        if length:
            _raw.copy(dest_address, ctypes.addressof(ctypes.c_char.from_buffer(content)), length)
        return 0

    def read_bytes_from_buffer(self, source_address: int, length: int, /) -> bytes:
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
    def get_first_buffer_address(self, segment_name: str, /) -> int:
        """Return where the first registration of a segment begins; 0 without one, or without such a segment."""
        return self._own().peer(segment_name).first_address()

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
        pieces = [(buffer, peer_buffer_address, length)]
        return self._move(target_hostname, pieces, Write)

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
        pieces = [(buffer, peer_buffer_address, length)]
        return self._move(target_hostname, pieces, Read)

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
        pieces = [(buffer, peer_buffer_address, length)]
        return self._move(target_hostname, pieces, opcode, notify)

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
        pieces = _pieces(buffers, peer_buffer_addresses, lengths)
        return self._move(target_hostname, pieces, Write)

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
        pieces = _pieces(buffers, peer_buffer_addresses, lengths)
        return self._move(target_hostname, pieces, Read)

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
        pieces = _pieces(buffers, peer_buffer_addresses, lengths)
        return self._move(target_hostname, pieces, opcode, notify)

    def _move(
        self, target: str, pieces: list[_Piece], opcode: TransferOpcode, notify: TransferNotify | None = None
    ) -> int:
        if notify is not None and not pieces:
            raise _refused("there are no pieces that the notify could follow", "pass one piece or more")
        peer = self._own().transfer(target, opcode is Write, pieces)
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
        pieces = [(buffer, peer_buffer_address, length)]
        return self._submit(target_hostname, pieces, Write, is_single=True)

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
        pieces = _pieces(buffers, peer_buffer_addresses, lengths)
        return self._submit(target_hostname, pieces, Write)

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
        pieces = _pieces(buffers, peer_buffer_addresses, lengths)
        return self._submit(target_hostname, pieces, Read)

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
        pieces = _pieces(buffers, peer_buffer_addresses, lengths)
        return self._submit(target_hostname, pieces, opcode)

    def _submit(
        self, target: str, pieces: list[_Piece], opcode: TransferOpcode, *, is_single: bool = False
    ) -> int:
        return self._own().submit(target, opcode is Write, pieces, is_single=is_single)

    @_answers(_FAILED)
    def transfer_check_status(self, batch_id: int, /) -> int:
        """Return 1 if a transfer is over, 0 if it is under way, -1 if it has failed; its end is reported once."""
        return int(self._own().is_over(batch_id))

    @_answers(_FAILED)
    def get_batch_transfer_status(self, batch_ids: list[int], /) -> int:
        """Wait for transfers; return 0 if all have succeeded."""
        if batch_ids:
            self._own().wait(batch_ids)
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
        self._own().probe(peer_server_name)
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


def _pieces(ours: list[int], theirs: list[int], lengths: list[int]) -> list[_Piece]:
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
