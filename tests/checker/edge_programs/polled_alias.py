"""Rank 0 polls a word of pinned memory, which its stream writes, as ctypes sees it; then a rank uses the data.

``polled_alias.py MODE``: in ``right`` rank 0 reads the data when the word is there; in ``message`` it sends rank 1 a
message then, which overwrites them.  ``early`` and ``early message`` do so before the word is written.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import tempfile
import time
from pathlib import Path

import peerlane as pl
from peerlane.rendezvous import Rendezvous

SECONDS = 30
BIG = 1 << 20


def connected(meeting: Rendezvous, folder: Path) -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    end.settimeout(SECONDS)
    if meeting.rank == 0:
        end.bind(str(folder / "s"))
        end.listen()
        meeting.put("listens", str(folder).encode())
        return end.accept()[0]
    end.connect(str(Path(meeting.get("listens").decode()) / "s"))
    return end


def writer(meeting: Rendezvous, mode: str, peer: socket.socket, target: pl.Buffer) -> None:
    device = pl.devices()[0]
    source, flag = device.allocate(BIG), pl.Host().allocate(64)
    source.fill(1)
    flag.fill(0)
    word = ctypes.c_uint32.from_address(flag.address)
    with device.create_stream() as stream:
        target.copy_from(source, stream=stream)
        if mode == "early":
            assert target.view()[-1] in (0, 1)
        if mode == "early message":
            peer.send(b".")
            peer.recv(1)
        pl.raw.fill(flag.address, 1, count=1, width=4, stream=stream)
        end = time.monotonic() + SECONDS
        while word.value == 0 and time.monotonic() < end:
            time.sleep(0)
        if mode == "right":
            assert target.view().all()
        if mode == "message":
            peer.send(b".")
        stream.sync(SECONDS)
    meeting.barrier()
    del word


def main(mode: str) -> None:
    with tempfile.TemporaryDirectory() as folder, Rendezvous.from_environment() as meeting:
        peer = connected(meeting, Path(folder))
        processes = [int(each) for each in meeting.gather("process", b"%d" % os.getpid())]
        if meeting.rank == 0:
            with pl.devices()[0].allocate(BIG) as target:
                target.fill(0)
                meeting.put("target", bytes(target.export(allow=processes)))
                meeting.barrier()
                writer(meeting, mode, peer, target)
        else:
            with pl.Buffer.open(meeting.get("target")) as target:
                meeting.barrier()
                if mode.endswith("message"):
                    peer.recv(1)
                    target.view()[:8] = 7
                    peer.send(b".")
                meeting.barrier()


if __name__ == "__main__":
    main(sys.argv[1])
