"""What peerlane is compared with, timed in C++; `references.cpp` is compiled at the first use."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from peerlane import _core
from peerlane.errors import Unsupported

ROOT = Path(__file__).parents[1]

_SOURCES = (Path(__file__).with_name("references.cpp"), ROOT / "native" / "copy" / "kernels.cpp")
_SECONDS = 120

Addresses = npt.NDArray[np.uint64]


@functools.cache
def compiled() -> Path:
    """Return the library, which is compiled again after a change of its sources.

    Raises
    ------
    Unsupported
        There is no C++ compiler.
    """
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        raise Unsupported("the references are timed in C++, and there is no compiler (c++ or g++)")
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in _SOURCES)).hexdigest()[:16]
    library = ROOT / "build" / "benchmarks" / f"references-{digest}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as folder:
            temporary = Path(folder) / library.name
            flags = ("-std=c++20", "-O3", "-shared", "-fPIC", "-pthread", f"-I{ROOT / 'native'}")
            subprocess.run([compiler, *flags, *_SOURCES, "-o", temporary], check=True, timeout=_SECONDS)
            temporary.replace(library)
    return library


def time_copy(dst: int, src: int, size: int, streaming: bool, threads: int, rounds: int) -> float:
    """Return the seconds of one plain or streaming copy between host addresses, without any check."""
    word = ctypes.c_uint64
    call = _function("time_copy", word, word, word, ctypes.c_bool, ctypes.c_uint, word)
    return float(call(dst, src, size, streaming, threads, rounds))


def time_scattered_copies(dsts: Addresses, srcs: Addresses, size: int, rounds: int) -> float:
    """Return the seconds of a loop of memcpy between pairs of host addresses, all of one size."""
    if len(dsts) != len(srcs):
        raise ValueError("as many destinations as sources")
    word = ctypes.c_uint64
    call = _function("time_scattered_copies", ctypes.c_void_p, ctypes.c_void_p, word, word, word)
    return float(call(dsts.ctypes.data, srcs.ctypes.data, len(dsts), size, rounds))


def time_lookups(addresses: Addresses, rounds: int) -> float:
    """Return the seconds of one look-up of an allocation, over the whole list in order."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    look_up_each = pointer(_core.look_up_each, b"look_up_each")
    call = ctypes.PyDLL(str(compiled())).time_lookups  # what it calls needs the GIL
    word = ctypes.c_uint64
    call.restype, call.argtypes = ctypes.c_double, [ctypes.c_void_p, ctypes.c_void_p, word, word]
    return float(call(look_up_each, addresses.ctypes.data, len(addresses), rounds))


def time_ping_pong(mine: int, theirs: int, begin: int, rounds: int, first: bool, deadline: float) -> float:
    """Tell another process numbers from ``begin`` + 1 on, and hear its own; return the seconds of one way.

    Both words are host addresses.  The seconds are negative if the other process does not come.
    """
    word = ctypes.c_uint64
    call = _function("time_ping_pong", word, word, word, word, ctypes.c_bool, ctypes.c_double)
    return float(call(mine, theirs, begin, rounds, first, deadline))


def _function(name: str, *arguments: type) -> Callable[..., Any]:
    function = ctypes.CDLL(str(compiled()))[name]
    function.restype, function.argtypes = ctypes.c_double, arguments
    return function
