"""What ``peerlane doctor`` runs in a process of its own, as it may crash or hang.

``python -m peerlane.cli.doctor.programs NAME`` runs one.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from typing import NoReturn

import peerlane as pl
from peerlane.backends.virtual.ranks import VirtualRanks
from peerlane.errors import Error
from peerlane.ranks import far_engine, far_network

_BYTES = 1 << 20
_BLOCK = 2 << 20
_SECONDS = 20.0


def copy_and_share(spec: str) -> None:
    """Copy between two devices, and let another process write into shared memory; verify all bytes."""
    d0, d1 = pl.enter_node(spec)
    pattern = bytes(range(256)) * (_BYTES // 256)
    with d0.allocate(_BYTES) as a, d1.allocate(_BYTES) as b, d0.create_stream() as stream:
        a.copy_from(pattern)
        b.copy_from(a, stream=stream)
        stream.sync(timeout=_SECONDS)
        _check(bytes(b) == pattern, "a copy between two devices gave other bytes")
    block = pl.Physical(d0, _BLOCK)
    command = [sys.executable, "-m", "peerlane.cli.doctor.programs", "write", spec]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE) as other,
        pl.AddressRange(d0, block.size) as shared,
        block.export(allow=[other.pid]) as handle,
    ):
        shared.map(block)
        shared[:].fill(1)
        other.communicate(bytes(handle), timeout=_SECONDS)
        _check(other.returncode == 0, "the other process could not write into shared memory")
        _check(bytes(shared[:]) == b"\7" * _BLOCK, "the other process's bytes did not arrive")
    block.close()


def write(spec: str) -> None:
    """Be the other process: open the handle that comes on standard input, and write into its memory."""
    pl.enter_node(spec)
    block = pl.Physical.open(sys.stdin.buffer.read())
    with pl.AddressRange(block.device, block.size) as shared:
        shared.map(block)
        shared[:].fill(7)


def ucx() -> None:
    """Print the engine for other machines as JSON: its version and file, or why there is none."""
    report: dict[str, object] = {"engine": None, "why": "", "reason": "", "rdma": far_engine.rdma_devices()}
    try:
        engine = far_engine.start(VirtualRanks(_no_node), far_network.interfaces())
        report["engine"] = {"version": engine.version, "library": engine.library}
    except Error as error:
        report.update(why=str(error), reason=getattr(error.detail, "reason", ""))
    print(json.dumps(report))


def _no_node() -> NoReturn:
    raise AssertionError("the engine needs no node")


def read_parent(pid: str, address: str) -> None:
    """Read a byte of the process that started this one, as agents of NIXL read host memory; print errno."""

    class Piece(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))

    libc = ctypes.CDLL(None, use_errno=True)
    byte = ctypes.create_string_buffer(1)
    local, remote = Piece(ctypes.addressof(byte), 1), Piece(int(address), 1)
    done = libc.process_vm_readv(int(pid), ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    print(0 if done == 1 else ctypes.get_errno())


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise SystemExit(otherwise)


PROGRAMS = {each.__name__: each for each in (copy_and_share, write, ucx, read_parent)}

if __name__ == "__main__":
    try:
        PROGRAMS[sys.argv[1]](*sys.argv[2:])
    except Error as error:
        sys.exit(f"{type(error).__name__}: {error}")
