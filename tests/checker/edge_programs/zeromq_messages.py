"""Two ranks use one memory in turn, and messages of ZeroMQ are between; several have the same contents.

``zeromq_messages.py SHAPE MODE FOLDER``: in ``right`` each message follows the use that it reports.  In ``racy`` the
last one of rank 0 comes before it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq
import zmq.asyncio

from checker.edge_programs.two_ranks import memory
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


SHAPES = {each.__name__: each for each in (same_bytes, request, parts, coroutines, into_buffer)}


def main(shape: str, mode: str, folder: Path) -> None:
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
