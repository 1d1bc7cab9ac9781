"""Windows, puts and signals (facts/cuda 8.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from peerlane import Buffer, Host, Stream, copy
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.cuda.nccl import groups
from peerlane.dialects.cuda.nccl.codes import invalid, misuse, of_driver, refusal_of
from peerlane.dialects.cuda.nccl.collectives import refuse_no_rank
from peerlane.dialects.cuda.nccl.communicator import Communicator
from peerlane.dialects.cuda.nccl.memory import is_for_windows, memory
from peerlane.dialects.cuda.nccl.reductions import width_of
from peerlane.dialects.cuda.nccl.state import call
from peerlane.dialects.cuda.nccl.window import Window
from peerlane.dialects.cuda.state import machine
from peerlane.dialects.gpu.streams import AnyStream
from peerlane.errors import Error

_FLAGS = 3  # NCCL_WIN_COLL_SYMMETRIC and NCCL_WIN_STRICT_ORDERING
_ALIGNMENT = 4096
_PUTS, _AWAITS = "puts", "awaits"


@call
def ncclCommWindowRegister(comm: Communicator, buff: int, size: int, winFlags: int) -> int:
    """Make memory of this rank its part of a window; all ranks call it, in one order, and sizes may differ."""
    if winFlags & ~_FLAGS:
        raise invalid(f"winFlags is {winFlags:#x}", f"pass bits of {_FLAGS:#x}")
    if not size or buff % _ALIGNMENT:
        raise invalid(f"{size:,} bytes at {buff:#x}", f"pass 1 byte or more at a multiple of {_ALIGNMENT:,}")
    whole = memory(comm, "buff", buff, size)
    if isinstance(whole.device, Host) or not is_for_windows(buff):
        raise invalid(
            f"buff is {machine.describe(buff)}, which windows are not made of",
            "pass memory of ncclMemAlloc, or mapped memory of cuMemCreate",
        )
    window = Window(comm, whole)
    with of_driver():
        machine.issue(window)
    with comm.guard:
        comm.windows.append(window)

    def meet() -> None:
        try:
            window.meet()
        except Error as error:
            _drop(window, "its failed creation")
            raise refusal_of(error) from None

    try:
        groups.collective(meet, comm)
    except Refusal:
        _drop(window, "its failed creation")
        raise
    return window.handle


@call
def ncclCommWindowDeregister(comm: Communicator, win: Window) -> None:
    """End a window in this rank: uses of other ranks are refused from now on."""
    _refuse_other(comm, win)
    _drop(win, "ncclCommWindowDeregister")
    win.end()


def _drop(window: Window, call: str) -> None:
    machine.drop(window, call)
    with window.communicator.guard:
        if window in window.communicator.windows:
            window.communicator.windows.remove(window)


@call
def ncclWinGetUserPtr(comm: Communicator, win: Window) -> int:
    _refuse_other(comm, win)
    return win.memory.address


def _refuse_other(communicator: Communicator, window: Window) -> None:
    if window.communicator is not communicator:
        raise invalid(f"{window} is not of {communicator}", "pass the communicator that registered it")


@call
def ncclGetPeerDevicePointer(window: Window, offset: int, peer: int) -> int:
    """Return the address of a byte of a rank's part, for copies of this process."""
    refuse_no_rank("peer", peer, window.communicator)
    theirs = window.of(peer)
    if offset >= theirs.size:
        raise invalid(
            f"offset is {offset:,}, and the part of rank {peer} has {theirs.size:,} bytes", "pass less"
        )
    return theirs.address + offset


def _refuse_numbers(sigIdx: int, ctx: int, flags: int = 0) -> None:
    if sigIdx or ctx or flags:
        raise invalid(
            f"sigIdx is {sigIdx}, ctx {ctx}, flags {flags:#x}",
            "pass 0: a communicator has one signal of each rank here",
        )


@call
def ncclPutSignal(
    localbuff: int,
    count: int,
    datatype: int,
    peer: int,
    peerWin: Window,
    peerWinOffset: int,
    sigIdx: int,
    ctx: int,
    flags: int,
    comm: Communicator,
    stream: int,
) -> None:
    """Write elements into a rank's part of a window, at an offset in bytes, then raise this rank's signal there."""
    refuse_no_rank("peer", peer, comm)
    _refuse_numbers(sigIdx, ctx, flags)
    _refuse_other(comm, peerWin)
    nbytes = count * width_of(datatype)
    source, theirs = memory(comm, "localbuff", localbuff, nbytes), peerWin.of(peer)
    if nbytes and not any(
        each.contains(localbuff, nbytes) for each in comm.windows if isinstance(each, Window)
    ):
        raise invalid(
            f"localbuff: {nbytes:,} bytes at {localbuff:#x} lie in no window of {comm}",
            "register the source as a window, too",
        )
    if peerWinOffset + nbytes > theirs.size:
        raise invalid(
            f"{nbytes:,} bytes from offset {peerWinOffset:,} on end beyond the {theirs.size:,} bytes of rank {peer}",
            "write fewer bytes",
        )

    def submit(on: Stream) -> None:
        _put(comm, peer, on, source, theirs, peerWinOffset)

    groups.run(groups.Operation("ncclPutSignal", comm, comm.stream_of(stream), submit, (_PUTS, peer)))


def _put(comm: Communicator, peer: int, stream: Stream, source: Buffer, theirs: Buffer, offset: int) -> None:
    if peer == comm.rank:
        copy(theirs[offset : offset + source.size], source, stream=stream)
        stream.notify(comm.own_signal)
    elif source.size:
        comm.signals[peer].write(source, at=offset, memory=theirs, notify=0, stream=stream)
    else:
        comm.signals[peer].notify(0, stream=stream)


@call
def ncclSignal(peer: int, sigIdx: int, ctx: int, flags: int, comm: Communicator, stream: int) -> None:
    """Raise this rank's signal in a rank, behind earlier puts and signals to it."""
    refuse_no_rank("peer", peer, comm)
    _refuse_numbers(sigIdx, ctx, flags)
    _refuse_unconnected(comm, peer)

    def submit(on: Stream) -> None:
        if peer == comm.rank:
            on.notify(comm.own_signal)
        else:
            comm.signals[peer].notify(0, stream=on)

    groups.run(groups.Operation("ncclSignal", comm, comm.stream_of(stream), submit, (_PUTS, peer)))


def _refuse_unconnected(communicator: Communicator, peer: int) -> None:
    communicator.refuse_unready()
    if peer != communicator.rank and peer not in communicator.signals:
        raise misuse(
            f"{communicator} has had no window, whose registration connects the ranks' signals",
            "register a window in all ranks first",
        )


@call
def ncclWaitSignal(
    nDesc: int, signalDescs: Sequence[Mapping[str, int]], comm: Communicator, stream: int
) -> None:
    """Wait on the stream for signals of some ranks; then the bytes of their puts are there."""
    on = comm.stream_of(stream)
    operations = []
    for each in signalDescs or ():
        peer, count = each["peer"], each["opCnt"]
        refuse_no_rank("peer", peer, comm)
        _refuse_numbers(each["sigIdx"], each["ctx"])
        _refuse_unconnected(comm, peer)
        if count < 0:
            raise invalid(f"opCnt is {count}", "pass how many signals to wait for")
        operations.append(_await(comm, peer, count, on))
    groups.run(*operations)


def _await(comm: Communicator, peer: int, count: int, on: AnyStream) -> groups.Operation:
    def submit(stream: Stream) -> None:
        for _ in range(count):
            if peer == comm.rank:
                stream.wait(comm.own_signal)
            else:
                comm.signals[peer].wait(0, stream=stream)

    return groups.Operation("ncclWaitSignal", comm, on, submit, (_AWAITS, peer))
