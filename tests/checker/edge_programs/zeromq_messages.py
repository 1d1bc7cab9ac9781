"""Two ranks use one memory in turn, and messages of ZeroMQ are between; several have the same contents.

``zeromq_messages.py SHAPE MODE FOLDER``: in ``right`` each message follows the use that it reports.  In ``racy`` the
last one of rank 0 comes before it.  Of the shape ``none`` no message comes from the other rank.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio

from checker.edge_programs.two_ranks import memory, until
from peerlane.rendezvous import Rendezvous

SECONDS = 60
ROUNDS = 3
#: What a rank calls to send a message, and to receive one.
Ends = tuple[Callable[[], object], Callable[[], object]]


def socket_of(kind: int, folder: Path, rank: int, context: Any = None) -> Any:
    """Return the socket of a rank; that of rank 0 is bound."""
    end = (context or zmq.Context()).socket(kind)
    end.rcvtimeo = end.sndtimeo = SECONDS * 1000
    (end.bind if rank == 0 else end.connect)(f"ipc://{folder}/z")
    return end


def same_bytes(folder: Path, rank: int) -> Ends:
    end = socket_of(zmq.PAIR, folder, rank)
    return lambda: end.send(b""), end.recv


def request(folder: Path, rank: int) -> Ends:
    end = socket_of(zmq.REP if rank else zmq.REQ, folder, rank)
    return lambda: end.send_pyobj({"bucket": 1}), end.recv_pyobj


def parts(folder: Path, rank: int) -> Ends:
    """Send what is large without a copy, behind an identity; receive frames."""
    end = socket_of(zmq.DEALER if rank else zmq.ROUTER, folder, rank)
    large = bytearray(100_000)
    if rank:
        end.send(b"here")
        return (
            lambda: end.send_multipart([b"", large], copy=False),
            lambda: end.recv_multipart(copy=False),
        )
    identity = end.recv_multipart()[0]
    return lambda: end.send_multipart([identity, b"", large], copy=False), lambda: end.recv_multipart()


def coroutines(folder: Path, rank: int) -> Ends:
    """Wait for messages in a loop of asyncio."""
    loop = asyncio.new_event_loop()
    end = socket_of(zmq.PAIR, folder, rank, zmq.asyncio.Context())

    async def send() -> None:
        await end.send_json([1])

    async def receive() -> None:
        await asyncio.wait_for(end.recv_json(), SECONDS)

    return lambda: loop.run_until_complete(send()), lambda: loop.run_until_complete(receive())


def into_buffer(folder: Path, rank: int) -> Ends:
    """Receive into memory of the program, and try each send without waiting."""
    end = socket_of(zmq.PAIR, folder, rank)
    buffer = bytearray(100)

    def send() -> None:
        while True:
            try:
                end.send(b"5" * 10, zmq.NOBLOCK)
                return
            except zmq.Again:
                assert end.poll(SECONDS * 1000, zmq.POLLOUT)

    return send, lambda: end.recv_into(buffer)


def send_elsewhere(folder: Path) -> None:
    """Send what libzmq itself makes in the other rank: an identity and an empty part."""
    near, far = (zmq.Context.instance().socket(zmq.DEALER) for _ in range(2))
    near.bind(f"ipc://{folder}/elsewhere")
    far.connect(f"ipc://{folder}/elsewhere")
    near.send_multipart([b"name", b"", b"to itself"])


def receive_own() -> None:
    """Receive at a ROUTER what a REQ of this process sent: an identity, an empty part and what it says."""
    service, client = (zmq.Context.instance().socket(kind) for kind in (zmq.ROUTER, zmq.REQ))
    service.bind("inproc://own")
    client.identity = b"name"
    client.connect("inproc://own")
    client.send(b"hello")
    assert service.recv_multipart() == [b"name", b"", b"hello"]


SHAPES = {each.__name__: each for each in (same_bytes, request, parts, coroutines, into_buffer)}


def use_without_a_message(folder: Path) -> None:
    """Write in rank 0 and read in rank 1; no message goes from one to the other."""
    with Rendezvous.from_environment() as meeting, memory(meeting) as shared:
        if meeting.rank == 0:
            shared.view()[:8] = 1
            send_elsewhere(folder)
            (folder / "sent").touch()
        else:
            until((folder / "sent").exists)  # which orders nothing that the log sees
            receive_own()
            shared.view()[:8].sum()
        meeting.barrier()


def main(shape: str, mode: str, folder: Path) -> None:
    if shape == "none":
        use_without_a_message(folder)
        return
    with Rendezvous.from_environment() as meeting, memory(meeting) as shared:
        send, receive = SHAPES[shape](folder, meeting.rank)
        for number in range(ROUNDS):
            is_early = mode == "racy" and number == ROUNDS - 1
            if meeting.rank == 1:
                receive()
                assert shared.view()[:8].sum() == 8 * (number + 1) or is_early
                send()
                continue
            if is_early:
                send()
            shared.view()[:8] = number + 1
            if not is_early:
                send()
            receive()
        meeting.barrier()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
