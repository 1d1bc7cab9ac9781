"""Plugins: what the back-ends that are made of them move, and why there is no other one (facts/nixl 4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

from peerlane.dialects.nixl._regions import is_strict
from peerlane.dialects.nixl._status import nixl_mem_t, nixlBackendError, nixlNotFoundError

_DRAM, _VRAM, _FILE = nixl_mem_t.DRAM_SEG, nixl_mem_t.VRAM_SEG, nixl_mem_t.FILE_SEG


_MOST_NUMBER = (1 << 32) - 1
_YES = frozenset({"y", "yes", "on", "1", "true", "enable"})
_NO = frozenset({"n", "no", "off", "0", "false", "disable"})
_MODES = ("none", "peer")
_QUEUES = ("use_aio", "use_uring", "use_posix_aio")
_LEAST_POOL, _MOST_POOL = 64, 65536


def _number(text: str) -> int:
    """Return a number of 32 bits, decimal or hexadecimal with ``0x``."""
    if re.fullmatch("[0-9]{1,32}|0[xX][0-9a-fA-F]{1,30}", text):
        number = int(text, 16 if text[:2] in ("0x", "0X") else 10)
        if number <= _MOST_NUMBER:
            return number
    raise ValueError(f"a number from 0 to {_MOST_NUMBER:,}")


def _switch(text: str) -> bool:
    if text.lower() in _YES | _NO:
        return text.lower() in _YES
    raise ValueError("'true' or 'false'")


def _mode(text: str) -> str:
    if text in _MODES:
        return text
    raise ValueError(" or ".join(map(repr, _MODES)))


def _pool(text: str) -> int:
    """Return how many descriptors a back-end moves at a time."""
    return min(max(_number(text) or _MOST_POOL, _LEAST_POOL), _MOST_POOL)


class Plugin(NamedTuple):
    """A plugin."""

    params: Mapping[str, str]  #: the parameters of its back-ends, with their defaults
    #: By parameter: what returns the value of its text, or raises ValueError with the valid ones.
    readers: Mapping[str, Callable[[str], Any]]
    #: ``mems``, ``backend_mems``: its kinds of memory, and those that a back-end names: the same ones in another
    #: order.
    mems: tuple[nixl_mem_t, ...]
    backend_mems: tuple[nixl_mem_t, ...]
    is_remote: bool  #: whether a back-end reaches other agents, and sends notifications


#: In the order in which a transfer that fits several prefers them.
PLUGINS: Mapping[str, Plugin] = {
    "UCX": Plugin(
        {"num_workers": "1", "ucx_devices": "", "ucx_error_handling_mode": "peer"},
        {"num_workers": _number, "num_threads": _number, "ucx_error_handling_mode": _mode},
        (_DRAM, _VRAM),
        (_DRAM, _VRAM),
        is_remote=True,
    ),
    "POSIX": Plugin(
        {
            "ios_pool_size": "65536",
            "kernel_queue_size": "256",
            "use_aio": "false",
            "use_posix_aio": "false",
            "use_uring": "false",
        },
        {"ios_pool_size": _pool, "kernel_queue_size": _number, **dict.fromkeys(_QUEUES, _switch)},
        (_DRAM, _FILE),
        (_FILE, _DRAM),
        is_remote=False,
    ),
}
_FILES = "use 'POSIX' for files"
#: Why a plugin of the vendor's is not here, and what to do instead.
_ELSEWHERE = {
    "GDS": ("moves bytes between files and a GPU by cuFile", _FILES),
    "GDS_MT": ("moves bytes between files and a GPU by cuFile", _FILES),
    "OBJ": ("moves bytes to a store of objects (S3)", _FILES),
    "AZURE_BLOB": ("moves bytes to a store of objects (Azure)", _FILES),
    "INFINIA": ("moves bytes to a store of objects (Infinia)", _FILES),
    "GUSLI": ("moves bytes to block devices", _FILES),
    "GPUNETIO": ("moves bytes by a GPU's kernels", "use 'UCX' between agents"),
    "LIBFABRIC": ("moves bytes by network adapters", "use 'UCX' between agents"),
}


def plugin_of(name: str) -> Plugin:
    """Return the plugin of that name; nixlNotFoundError if virtual devices have none."""
    return PLUGINS.get(name) or _refuse(name)


def settings_of(name: str, params: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of a plugin's parameters; parameters that it does not know are left out.

    Raises nixlBackendError: a text is no such value, or several queues of POSIX are chosen.
    """
    plugin = plugin_of(name)
    settings = {}
    for key, read in plugin.readers.items():
        if key in plugin.params or key in params:
            text = params.get(key, plugin.params.get(key, ""))
            try:
                settings[key] = read(text)
            except ValueError as error:
                raise nixlBackendError(
                    f"{name!r} has the parameter {key!r}, but not as {text!r}", f"pass {error}"
                ) from None
    chosen = [key for key in _QUEUES if settings.get(key)]
    if len(chosen) > 1:
        raise nixlBackendError(
            f"{name!r} has one queue, but {' and '.join(chosen)} are set", "set one of them"
        )
    return settings


def _refuse(name: str) -> NoReturn:
    if name in _ELSEWHERE:
        does, instead = _ELSEWHERE[name]
        raise nixlNotFoundError(f"plugin {name!r} {does}, which virtual devices do not have", instead)
    raise nixlNotFoundError(f"there is no plugin {name!r}", f"pass one of {', '.join(sorted(PLUGINS))}")


def in_order(backends: Iterable[str]) -> list[str]:
    """Return back-ends in the order in which a transfer prefers them."""
    named = set(backends)
    return [name for name in PLUGINS if name in named]


def takes(backend: str, mem: nixl_mem_t) -> bool:
    """Return whether a back-end registers memory of a kind.

    The vendor's POSIX moves no memory of a GPU, which is work for its GDS.  Here it does, unless the policy is the
    vendor's.
    """
    return mem in PLUGINS[backend].mems or (backend == "POSIX" and mem is _VRAM and is_strict())


def check_notifies(backend: str, message: bytes | None) -> None:
    """Refuse a notification of a transfer whose back-end sends none."""
    if message is not None and not PLUGINS[backend].is_remote:
        raise nixlBackendError(
            f"{backend!r} sends no notifications, and this transfer has one of {len(message):,} bytes",
            "leave it out when you make the transfer and post it; send_notif sends one with 'UCX'",
        )


def moves(backend: str, local: nixl_mem_t, remote: nixl_mem_t) -> bool:
    """Return whether a back-end moves bytes between these kinds of memory."""
    is_to_file = remote is _FILE and local is not _FILE
    return takes(backend, local) and takes(backend, remote) and is_to_file == (backend == "POSIX")
