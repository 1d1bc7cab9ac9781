"""Collectives (facts/cuda 8.3); each is queued on the stream that it gets."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from peerlane import Buffer, Stream, copy
from peerlane.dialects.cuda.nccl.codes import invalid
from peerlane.dialects.cuda.nccl.communicator import Communicator
from peerlane.dialects.cuda.nccl.config import refuse_raw
from peerlane.dialects.cuda.nccl.groups import RECEIVES, SENDS, Operation, run
from peerlane.dialects.cuda.nccl.memory import memory
from peerlane.dialects.cuda.nccl.reductions import Reduction, reduction, width_of
from peerlane.dialects.cuda.nccl.state import call, calls


def refuse_no_rank(name: str, rank: int, communicator: Communicator) -> None:
    """Refuse a number that no rank has."""
    if not 0 <= rank < communicator.size:
        raise invalid(
            f"{name} is {rank}; valid are 0 to {communicator.size - 1}", "pass a rank of the communicator"
        )


def _run(name: str, comm: Communicator, stream: int, submit: Callable[[Stream], None], nbytes: int) -> None:
    comm.refuse_unready()
    on = comm.stream_of(stream)
    if nbytes:
        run(Operation(name, comm, on, submit))


def _collective(body: Callable[..., None]) -> Callable[..., Any]:
    """Declare a call, and its form with a config, which tunes what virtual devices do not have."""

    @functools.wraps(body)
    def configured(*arguments: Any) -> None:
        *plain, config = arguments
        refuse_raw(config)
        body(*plain)

    calls.define(f"{body.__name__}Config", configured)
    return call(body)


@_collective
def ncclAllReduce(
    sendbuff: int, recvbuff: int, count: int, datatype: int, op: int, comm: Communicator, stream: int
) -> None:
    """Combine the elements of all ranks in the order of ranks; all get the result.  In place if both are one."""
    kind, nbytes = _reduced(comm, datatype, op, count)
    source, target = memory(comm, "sendbuff", sendbuff, nbytes), memory(comm, "recvbuff", recvbuff, nbytes)

    def submit(on: Stream) -> None:
        def combine(elements: Buffer) -> None:
            comm.group.all_reduce(target, elements, dtype=kind.dtype, op=kind.op, stream=on)

        kind.submit(comm, source, target, combine, on)

    _run("ncclAllReduce", comm, stream, submit, nbytes)


@_collective
def ncclReduce(
    sendbuff: int,
    recvbuff: int,
    count: int,
    datatype: int,
    op: int,
    root: int,
    comm: Communicator,
    stream: int,
) -> None:
    """As ncclAllReduce; only the root gets the result, and the others' ``recvbuff`` may be anything."""
    kind, nbytes = _reduced(comm, datatype, op, count)
    refuse_no_rank("root", root, comm)
    source = memory(comm, "sendbuff", sendbuff, nbytes)
    target = memory(comm, "recvbuff", recvbuff, nbytes) if comm.rank == root else None

    def submit(on: Stream) -> None:
        def combine(elements: Buffer) -> None:
            comm.group.reduce(target, elements, root, dtype=kind.dtype, op=kind.op, stream=on)

        kind.submit(comm, source, target, combine, on)

    _run("ncclReduce", comm, stream, submit, nbytes)


@_collective
def ncclReduceScatter(
    sendbuff: int, recvbuff: int, recvcount: int, datatype: int, op: int, comm: Communicator, stream: int
) -> None:
    """Combine the elements of all ranks; rank i gets part i.  ``recvbuff`` may be this rank's part."""
    kind, nbytes = _reduced(comm, datatype, op, recvcount)
    source = memory(comm, "sendbuff", sendbuff, nbytes * comm.size)
    target = memory(comm, "recvbuff", recvbuff, nbytes)

    def submit(on: Stream) -> None:
        def combine(elements: Buffer) -> None:
            comm.group.reduce_scatter(target, elements, dtype=kind.dtype, op=kind.op, stream=on)

        kind.submit(comm, source, target, combine, on)

    _run("ncclReduceScatter", comm, stream, submit, nbytes)


def _reduced(comm: Communicator, datatype: int, op: int, count: int) -> tuple[Reduction, int]:
    kind = reduction(comm, datatype, op)
    return kind, count * kind.width


@_collective
def ncclBroadcast(
    sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, comm: Communicator, stream: int
) -> None:
    """Copy the root's ``sendbuff`` to the ``recvbuff`` of all; the others' ``sendbuff`` may be anything."""
    nbytes = count * width_of(datatype)
    refuse_no_rank("root", root, comm)
    target = memory(comm, "recvbuff", recvbuff, nbytes)
    is_apart = comm.rank == root and sendbuff != recvbuff
    source = memory(comm, "sendbuff", sendbuff, nbytes) if is_apart else target

    def submit(on: Stream) -> None:
        if source is not target:
            copy(target, source, stream=on)
        comm.group.broadcast(target, root, stream=on)

    _run("ncclBroadcast", comm, stream, submit, nbytes)


@call
def ncclBcast(buff: int, count: int, datatype: int, root: int, comm: Communicator, stream: int) -> None:
    """Copy the root's elements to all."""
    nbytes = count * width_of(datatype)
    refuse_no_rank("root", root, comm)
    whole = memory(comm, "buff", buff, nbytes)
    _run("ncclBcast", comm, stream, lambda on: comm.group.broadcast(whole, root, stream=on), nbytes)


@_collective
def ncclAllGather(
    sendbuff: int, recvbuff: int, sendcount: int, datatype: int, comm: Communicator, stream: int
) -> None:
    """Copy the elements of all ranks to all, side by side; ``sendbuff`` may be this rank's part of ``recvbuff``."""
    nbytes = sendcount * width_of(datatype)
    source = memory(comm, "sendbuff", sendbuff, nbytes)
    target = memory(comm, "recvbuff", recvbuff, nbytes * comm.size)
    _run("ncclAllGather", comm, stream, lambda on: comm.group.all_gather(target, source, stream=on), nbytes)


@_collective
def ncclAlltoAll(
    sendbuff: int, recvbuff: int, count: int, datatype: int, comm: Communicator, stream: int
) -> None:
    """Send part i to rank i, and receive the parts in rank order; both must not be one."""
    nbytes = count * width_of(datatype)
    whole = nbytes * comm.size
    if nbytes and sendbuff < recvbuff + whole and recvbuff < sendbuff + whole:
        raise invalid("sendbuff and recvbuff overlap", "pass two buffers: this call does not work in place")
    source, target = memory(comm, "sendbuff", sendbuff, whole), memory(comm, "recvbuff", recvbuff, whole)
    _run("ncclAlltoAll", comm, stream, lambda on: comm.group.all_to_all(target, source, stream=on), nbytes)


@_collective
def ncclGather(
    sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, comm: Communicator, stream: int
) -> None:
    """Copy the elements of all ranks to the root, side by side; its ``sendbuff`` may be its part there."""
    nbytes = count * width_of(datatype)
    refuse_no_rank("root", root, comm)
    is_root = comm.rank == root
    source = memory(comm, "sendbuff", sendbuff, nbytes)
    target = memory(comm, "recvbuff", recvbuff, nbytes * comm.size if is_root else 0)
    others = [each for each in range(comm.size) if each != root]
    sends, receives = [0] * comm.size, [0] * comm.size
    if is_root:
        for each in others:
            receives[each] = nbytes
    else:
        sends[root] = nbytes
    starts = [nbytes * each if is_root else 0 for each in range(comm.size)]
    own = slice(nbytes * root, nbytes * (root + 1))

    def submit(on: Stream) -> None:
        if is_root and recvbuff + own.start != sendbuff:
            copy(target[own], source, stream=on)
        content = comm.group.window[:0] if is_root else source
        comm.group.all_to_all_v(
            target, content, receives=receives, receives_at=starts, sends=sends, stream=on
        )

    _run("ncclGather", comm, stream, submit, nbytes)


@_collective
def ncclScatter(
    sendbuff: int, recvbuff: int, count: int, datatype: int, root: int, comm: Communicator, stream: int
) -> None:
    """Copy part i of the root's elements to rank i; the root's ``recvbuff`` may be its part there."""
    nbytes = count * width_of(datatype)
    refuse_no_rank("root", root, comm)
    target = memory(comm, "recvbuff", recvbuff, nbytes)
    is_root = comm.rank == root
    source = memory(comm, "sendbuff", sendbuff, nbytes * comm.size) if is_root else None
    _run("ncclScatter", comm, stream, lambda on: comm.group.scatter(target, source, root, stream=on), nbytes)


def _message(kind: str, name: str, comm: Communicator, peer: int, content: Buffer, stream: int) -> None:
    refuse_no_rank("peer", peer, comm)

    def submit(on: Stream) -> None:
        move = comm.group.send if kind == SENDS else comm.group.recv
        move(content, peer, stream=on)

    on = comm.stream_of(stream)
    if content.size:
        run(Operation(name, comm, on, submit, (kind, peer), content))


@call
def ncclSend(sendbuff: int, count: int, datatype: int, peer: int, comm: Communicator, stream: int) -> None:
    """Send elements to a rank, which receives as many; messages to one rank arrive in order.

    One to this rank itself must be received in the same group.
    """
    content = memory(comm, "sendbuff", sendbuff, count * width_of(datatype))
    _message(SENDS, "ncclSend", comm, peer, content, stream)


@call
def ncclRecv(recvbuff: int, count: int, datatype: int, peer: int, comm: Communicator, stream: int) -> None:
    """Receive elements of a rank."""
    content = memory(comm, "recvbuff", recvbuff, count * width_of(datatype))
    _message(RECEIVES, "ncclRecv", comm, peer, content, stream)
