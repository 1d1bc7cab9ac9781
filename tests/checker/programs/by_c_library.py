"""Two ranks use the same memory, in an order that only a C library makes: ``by_c_library.py PATH``, a socket's.

Python has no hook in what is called by ``ctypes``.
"""

import ctypes
import os
import sys
import time

import peerlane as pl
from peerlane.rendezvous import Rendezvous

AF_UNIX, SOCK_STREAM, SECONDS = 1, 1, 60


class Address(ctypes.Structure):
    _fields_ = (("family", ctypes.c_ushort), ("path", ctypes.c_char * 108))


libc = ctypes.CDLL(None, use_errno=True)
with Rendezvous.from_environment() as line:
    pids = [int(pid) for pid in line.gather("pids", b"%d" % os.getpid())]
    memory = pl.devices()[0].allocate(64) if line.rank == 0 else None
    if memory is not None:
        line.put("handle", bytes(memory.export(allow=pids[1:])))
    where = Address(AF_UNIX, sys.argv[1].encode())
    end = libc.socket(AF_UNIX, SOCK_STREAM, 0)
    if memory is not None:
        assert libc.bind(end, ctypes.byref(where), ctypes.sizeof(where)) == 0
        assert libc.listen(end, 1) == 0
        peer = libc.accept(end, None, None)
        memory.fill(7)
        assert libc.send(peer, b"x", 1, 0) == 1
    else:
        opened = pl.Buffer.open(line.get("handle", timeout=SECONDS))
        limit = time.monotonic() + SECONDS
        while libc.connect(end, ctypes.byref(where), ctypes.sizeof(where)) != 0:
            assert time.monotonic() < limit
        assert libc.recv(end, ctypes.create_string_buffer(1), 1, 0) == 1
        assert bytes(opened)[0] == 7
    line.barrier("end", timeout=SECONDS)
