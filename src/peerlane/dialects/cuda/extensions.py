"""Modules of Python that have a copy of CUDA's runtime inside: their calls go to ``libcudart.so`` of peerlane.

``dialects/_shared/hook.py`` runs this file without the package peerlane, in each process of a program: it imports
nothing that takes long.

A module that has its symbols, as CuPy's have, gets a jump in each function of its copy, and so does a library that it
needs, or that ctypes opens.  That of cuda-bindings has none; its callers take the addresses of functions from
capsules, which get other addresses.
"""

from __future__ import annotations

import os
import struct
import sys

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Collection
    from types import ModuleType
    from typing import Any, BinaryIO

_MARKS = (b"\0cudaGetDeviceCount\0", b"\0libcudart")  # the first is a function's, the other a library's
_SYMBOLS = (2, 11)  # SHT_SYMTAB, SHT_DYNSYM
_OF_THE_SYSTEM = tuple(
    f"lib{name}".encode()
    for name in ("c.so", "m.so", "dl.so", "rt.so", "pthread.so", "util.so", "stdc++.so", "gcc_s.so", "python")
)
_OF_PYTHON = "/lib-dynload/"  # where its own modules are, among them that of ctypes
_NOW = os.RTLD_NOW
_NCCL = "libnccl.so.2"
_CAPSULES = {
    "cuda.bindings._internal.runtime": "",
    "cuda.bindings._internal.runtime_ptds": "_ptds",
    "cuda.bindings._bindings.cyruntime": "",
    "cuda.bindings._bindings.cyruntime_ptds": "_ptds",
}


def has_runtime(path: str) -> bool:
    """Tell whether a file of machine code has a copy of the runtime with its symbols, or needs a library of it."""
    names = _names_in(path, _SYMBOLS)
    return any(mark in names for mark in _MARKS)


def _needs_others(path: str) -> bool:
    """Tell whether a file of machine code needs libraries besides those of the system, which have no copy."""
    names = _names_in(path, _SYMBOLS[1:]).split(b"\0")
    return any(
        name.startswith(b"lib") and b".so" in name and not name.startswith(_OF_THE_SYSTEM) for name in names
    )


def _names_in(path: str, kinds: Collection[int]) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes long to import
            return _names(file, kinds)
    except (OSError, struct.error):
        return b""


def loads_first(program: str, *, is_chosen: bool) -> str:
    """Return the library that a program of machine code has to load before all others; empty if none.

    A program of CUDA may load modules with a copy of the runtime: where the user chose the dialect, it is one.
    """
    return "peerlane_static_runtime" if is_chosen or has_runtime(program) else ""


def _names(file: BinaryIO, kinds: Collection[int]) -> bytes:
    """Return the names of symbols and libraries in tables of an ELF file, one behind the other."""
    head = file.read(64)
    if head[:5] != b"\x7fELF\x02":
        return b""
    (offset,) = struct.unpack_from("<Q", head, 40)
    size, count = struct.unpack_from("<HH", head, 58)
    file.seek(offset)
    table = file.read(size * count)
    sections = [struct.unpack_from("<IIQQQQI", table, at * size) for at in range(count)]
    names = b""
    for _, kind, _, _, _, _, link in sections:
        if kind in kinds and link < count:
            file.seek(sections[link][4])
            names += b"\0" + file.read(sections[link][5])
    return names


def _open_replaced(path: bytes, flags: int) -> None:
    """Open a library or a module as Python will at once, and replace the runtime in what that loads."""
    from _ctypes import call_cdeclfunction, dlopen, dlsym

    from peerlane.support.libraries import folder

    unwatched: Any = getattr(dlopen, "__wrapped__", dlopen)
    library = unwatched(f"{folder()}/preload/libpeerlane_static_runtime.so", 0)
    call_cdeclfunction(dlsym(library, "peerlane_replace_runtime"), (path, flags))


def creating(path: str) -> None:
    """Replace the runtime in a module of a file, and in libraries that it needs, before any code of it runs."""
    if _OF_PYTHON not in path and (has_runtime(path) or _needs_others(path)):
        _open_replaced(os.fsencode(path), sys.getdlopenflags())


def opening(name: Any, flags: int) -> Any:
    """Return the library to open for one that ctypes or cffi opens: peerlane's NCCL for that of a wheel.

    The runtime in another library is replaced before.
    """
    if name is None or _is_own(name):
        return name
    if os.path.basename(os.fsdecode(name)) == _NCCL:  # noqa: PTH119 - pathlib is not needed for anything else
        from peerlane.support.libraries import folder

        return f"{folder()}/{_NCCL}"
    _open_replaced(os.fsencode(name), flags or _NOW)
    return name


def _is_own(name: Any) -> bool:
    """Tell whether a library is one of peerlane's, which has no copy of the runtime."""
    return "/peerlane/lib/" in os.fsdecode(name)


def executed(module: ModuleType) -> None:
    """Let the capsules of a module have the addresses of peerlane's functions."""
    if module.__name__ not in _CAPSULES:
        return
    import ctypes

    from peerlane.support.libraries import folder

    runtime = ctypes.CDLL(f"{folder()}/libcudart.so.{_version_of_bindings()}")
    point = ctypes.pythonapi.PyCapsule_SetPointer
    point.argtypes, point.restype = [ctypes.py_object, ctypes.c_void_p], ctypes.c_int
    ending = _CAPSULES[module.__name__]
    capsules: dict[str, Any] = getattr(module, "__pyx_capi__", {})
    for name, capsule in capsules.items():
        function = _function_of(runtime, name.removeprefix("_"), ending)
        if function is not None:
            point(capsule, ctypes.cast(function, ctypes.c_void_p))


def _function_of(runtime: Any, name: str, ending: str) -> Any:
    """Return a function in the variant of an ending, if it has one."""
    variants = [name + ending, name + "_ptsz"] if ending else []
    for each in (*variants, name):
        function = getattr(runtime, each, None)
        if function is not None:
            return function
    return None


def _version_of_bindings() -> int:
    """Return the version of the runtime in cuda-bindings, 12 or 13."""
    bindings = sys.modules.get("cuda.bindings")
    version = str(getattr(bindings, "__version__", "13"))
    return 12 if version.startswith("12") else 13
