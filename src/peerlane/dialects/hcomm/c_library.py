"""``libhcomm.so`` and ``libhccl.so``: the dialect `hcomm` for C."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from peerlane.backend import host
from peerlane.dialects import hcomm
from peerlane.dialects._shared.c_library import Library, Words
from peerlane.dialects._shared.c_names import declarations_of
from peerlane.dialects._shared.call import Arguments, Refusal
from peerlane.dialects.acl._state import machine
from peerlane.dialects.hcomm._codes import PARA, PTR
from peerlane.dialects.hcomm._comm import Comm
from peerlane.dialects.hcomm._fast_paths import pair_of
from peerlane.dialects.hcomm._header import CLASSES, HcclCommConfig, abi_header
from peerlane.dialects.hcomm._state import hcomm as calls

_LARGEST = 1 << 16  # bytes of a struct


class Hcomm(Library):
    """Its structs may be of an older version, which their headers say: fields that they lack have their defaults."""

    def read_struct(self, name: str, address: int) -> Any:
        """Return what the dialect has for a struct; an older configuration is one of the newest version then."""
        struct = super().read_struct(name, address)
        newest = HcclCommConfig()
        if (
            isinstance(struct, HcclCommConfig)
            and 0 < struct.version < newest.version
            and struct.size < newest.size
        ):
            struct.version, struct.size = newest.version, newest.size
        return struct

    def size_at(self, name: str, address: int) -> int:
        """Return the size that a struct's header has; where no Init has set it, that of the newest version."""
        newest = super().size_at(name, address)
        if name == "HcclCommConfig":
            size = ctypes.c_uint64.from_address(address).value
        elif self.declarations.structs[name].fields[0].name == "header":
            first = self.layout.struct("CommAbiHeader").from_address(address)
            size = first.size if first.magicWord == abi_header(self._forms[name]).magicWord else newest
        else:
            return newest
        return size if 16 <= size < _LARGEST else newest


def _refuse(call: str, name: str, cause: str, arguments: Arguments) -> int:
    remedy = f"pass the address of what the call needs for {name}" if name else "correct it"
    error = Refusal(PARA if cause else PTR, cause or f"{name} is NULL", remedy)
    return calls.fail(f"hcomm.{call}", error, lambda: arguments)


def _ranks(values: Mapping[str, Any]) -> int:
    comm = machine.resources.get(values["comm"])
    return comm.group.size if isinstance(comm, Comm) else 0


def _learn_lane(then: int, words: Words) -> None:
    thread, channel, dst, src, nbytes = words
    worker, link, stream = pair_of(thread, channel)
    theirs, ours = link.remote.around(dst, nbytes), link.own.around(src, nbytes)
    if theirs is not None and ours is not None and machine.is_native(worker.context):
        host.know_c_lane(then, thread, channel, stream, theirs, ours)


def library(header: str) -> Library:
    """Return the library of a header."""
    return Hcomm(
        declarations_of(header),
        call=lambda name: getattr(hcomm, name),
        refuse=_refuse,
        forms=CLASSES,
        known={"ranks": _ranks},
        learn={"HcommWriteOnThread": _learn_lane},
    )
