"""Places in programs of C and C++: a frame of Python stands for each, so that all that tells places tells it.

The line comes from the program's debug information, by ``addr2line`` of binutils, when somebody asks for it.  Without
either it is the function, or the file, with the offset.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from peerlane.diagnostics import call_site
from peerlane.diagnostics.log import event_log

_SECONDS = 10.0  # what a look at debug information may take
_EXECUTABLE_OF_FIXED_ADDRESSES = 2  # e_type in the header of ELF


class _SymbolInfo(ctypes.Structure):
    _fields_ = [
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


@dataclass(frozen=True)
class CSite:
    """A site in a program of C."""

    path: str  #: of the source; of the program or library if its debug information does not tell
    line: int  #: from 1; 0 if it is not known
    function: str  #: Empty if it is not known
    offset: int  #: from the beginning of the file, or of the function if that is known
    is_in_function: bool = False

    def __str__(self) -> str:
        name = Path(self.path).name
        if self.line:
            return f"{name}:{self.line}"
        if self.is_in_function:
            return f"{self.function}+{self.offset:#x} of {name}"
        return f"{self.function} of {name}+{self.offset:#x}" if self.function else f"{name}+{self.offset:#x}"


def frame(address: int) -> Callable[..., Any]:
    """Return what calls a function, with arguments, from a frame that stands for the code at an address."""
    site_of_call = functools.cache(lambda: site_of(address))
    code = (lambda answer, *words: answer(*words)).__code__
    if event_log.active:  # the log has the line itself
        site = site_of_call()
        name = site.function or hex(site.offset)
        # Without a line the site stands for the file: a function or a file, with an offset.
        code = code.replace(co_filename=site.path if site.line else str(site), co_firstlineno=site.line)
    else:
        name = hex(address)
    code = code.replace(co_name=name)
    if sys.version_info >= (3, 11):
        code = code.replace(co_qualname=name)
    call_site.foreign[id(code)] = code, site_of_call
    return FunctionType(code, {"__name__": "__main__"})


def site_of(address: int) -> CSite:
    """Return the site of a call, by the address to which the call returns."""
    info = _SymbolInfo()
    called = address - 1
    dladdr = ctypes.CDLL(None).dladdr
    dladdr.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    if not dladdr(called, ctypes.byref(info)) or not info.file:
        return CSite("?", 0, "", address)
    file, offset = info.file.decode(errors="backslashreplace"), called - (info.base or 0)
    with event_log.quiet():  # the program did not read it
        path, line, function = _looked_up(file, called if _is_fixed(file) else offset)
    if line:
        return CSite(path, line, function, offset)
    if info.symbol and info.address:
        symbol = info.symbol.decode(errors="backslashreplace")
        return CSite(file, 0, symbol, called - info.address, is_in_function=True)
    return CSite(file, 0, function, offset)


def _is_fixed(file: str) -> bool:
    try:
        with Path(file).open("rb") as program:
            header = program.read(20)
    except OSError:
        return False
    return int.from_bytes(header[16:18], "little") == _EXECUTABLE_OF_FIXED_ADDRESSES


def _looked_up(file: str, address: int) -> tuple[str, int, str]:
    """Ask addr2line: path and line, 0 if it does not know, and the function."""
    import subprocess  # as every first call would wait for it

    words = ["addr2line", "-f", "-C", "-e", file, hex(address)]
    try:
        reply = subprocess.run(
            words, capture_output=True, text=True, errors="backslashreplace", timeout=_SECONDS, check=False
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return file, 0, ""
    if len(reply) < 2:
        return file, 0, ""
    function = "" if reply[0] == "??" else _without_arguments(reply[0])
    path, _, line = reply[1].partition(" ")[0].rpartition(":")
    return path, int(line) if line.isdigit() and not path.startswith("?") else 0, function


def _without_arguments(function: str) -> str:
    """Return the name of a function of C++; a lambda has that of where it is."""
    named = function.replace("(anonymous namespace)::", "")
    return named.partition("::operator()(")[0] if "::operator()(" in named else named.partition("(")[0]
