"""Making, asking and ending communicators (facts/cuda 8.1)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects._shared.machine import Context
from peerlane.dialects.cuda.nccl import groups
from peerlane.dialects.cuda.nccl.codes import (
    IN_PROGRESS,
    SUCCESS,
    invalid,
    misuse,
    of_driver,
)
from peerlane.dialects.cuda.nccl.communicator import Communicator
from peerlane.dialects.cuda.nccl.config import Config, refuse_raw
from peerlane.dialects.cuda.nccl.state import call, last
from peerlane.dialects.cuda.runtime.table import current
from peerlane.dialects.cuda.state import machine
from peerlane.support.libraries import binding

_MAJOR, _MINOR, _PATCH = binding("nccl")["version"]
VERSION: int = 10_000 * _MAJOR + 100 * _MINOR + _PATCH
_ID_BYTES, _TOKEN_BYTES = 128, 16
_MARK = b"peerlane-nccl-01"
_NO_COLOR = -1  # NCCL_SPLIT_NOCOLOR
_SHRINK_FLAGS = _SHRINK_ABORT = 1


@call
def ncclGetVersion() -> int:
    return VERSION


def last_message(comm: int) -> str:
    """Return the message of the last failure in this process, which may be of another communicator."""
    communicator = machine.resources.get(comm)
    if not last.message and isinstance(communicator, Communicator) and communicator.failure is not None:
        return str(communicator.failure)
    return str(last.message)


@call
def ncclGetUniqueId() -> Mapping[str, list[int]]:
    """Return 128 bytes by which the ranks of one communicator on this machine find one another."""
    return {"internal": list((_MARK + os.urandom(_TOKEN_BYTES)).ljust(_ID_BYTES, b"\0"))}


def _key(unique_id: Mapping[str, list[int]]) -> str:
    content = bytes(unique_id["internal"])
    token = content[len(_MARK) : len(_MARK) + _TOKEN_BYTES]
    if content != (_MARK + token).ljust(_ID_BYTES, b"\0"):
        raise invalid(
            "these 128 bytes are not a unique id of peerlane's NCCL",
            "pass what ncclGetUniqueId returned in one rank, unchanged",
        )
    return token.hex()


def _current_context() -> Context:
    """Return the context of this thread; NCCL asks the runtime, which makes that of its device current."""
    with of_driver():
        current.enter()
        return machine.context()


def _new(context: Context, rank: int, size: int, *, is_blocking: bool = True) -> Communicator:
    if size < 1 or not 0 <= rank < size:
        raise invalid(f"rank {rank} of {size}", "pass a rank from 0 to the number of ranks less 1")
    communicator = Communicator(context, rank, size, is_blocking=is_blocking)
    with of_driver():
        machine.issue(communicator)
    return communicator


def _join(communicator: Communicator, job: groups.Job) -> int:
    """Let a communicator meet its ranks, and return its handle; it is dropped if that fails now."""
    try:
        groups.make(communicator, job)
    except Refusal:
        machine.drop(communicator, "its failed creation")
        raise
    return communicator.handle


@call
def ncclCommInitRank(nranks: int, commId: Mapping[str, Any], rank: int) -> int:
    return _init(nranks, [commId], rank, None)


@call
def ncclCommInitRankConfig(nranks: int, commId: Mapping[str, Any], rank: int, config: Config | None) -> int:
    return _init(nranks, [commId], rank, config)


@call
def ncclCommInitRankScalable(
    nranks: int, myrank: int, nId: int, commIds: Sequence[Mapping[str, Any]], config: Config | None
) -> int:
    """As ncclCommInitRankConfig, with several unique ids, which spread what ranks ask elsewhere."""
    if not 1 <= nId <= nranks:
        raise invalid(f"{nId} unique ids are passed for {nranks} ranks", "pass one, up to one for each rank")
    return _init(nranks, commIds, myrank, config)


def _init(nranks: int, unique_ids: Sequence[Mapping[str, Any]], rank: int, config: Config | None) -> int:
    key = "".join(map(_key, unique_ids))
    is_blocking = _is_blocking(config)
    communicator = _new(_current_context(), rank, nranks, is_blocking=is_blocking)
    return _join(communicator, partial(communicator.meet, key, "ncclCommInitRank"))


@call
def ncclCommInitAll(ndev: int, devlist: Sequence[int] | None) -> list[int]:
    """Make the communicators of devices of this process, by default of the first ``ndev``."""
    chosen = range(ndev) if devlist is None else devlist
    with of_driver(invalid("", "").code):
        devices = [machine.device_of(each) for each in chosen]
    if not devices:
        raise invalid(f"{ndev} devices are asked for", "pass 1 or more")
    if len(set(devices)) < ndev:
        raise misuse(f"the devices are {list(chosen)}", "pass each device once")
    key = os.urandom(_TOKEN_BYTES).hex()
    for device in devices:
        current.retain(device)
    communicators = [
        _new(machine.context_of(device.ordinal), rank, ndev) for rank, device in enumerate(devices)
    ]
    jobs = [partial(each.make, partial(each.meet, key, "ncclCommInitAll")) for each in communicators]
    try:
        groups.together(jobs)
    except Refusal:
        for each in communicators:
            machine.drop(each, "its failed creation")
            each.abandon()
        raise
    return [each.handle for each in communicators]


@call
def ncclCommSplit(comm: Communicator, color: int, key: int, config: Config | None) -> int:
    """Make a communicator of the ranks of one color, in the order of their keys; without a color none."""
    if color < _NO_COLOR:
        raise invalid(f"color is {color}", "pass 0 or more, or NCCL_SPLIT_NOCOLOR, -1")
    is_blocking = _is_blocking(config, comm)
    parent, number = comm.group, _next_child(comm)
    name = f"split/{number}"
    if color == _NO_COLOR:
        groups.collective(lambda: _colors(comm, name, color, key), comm)
        return 0
    child = _new(comm.context, 0, parent.size, is_blocking=is_blocking)

    def meet() -> None:
        chosen = sorted(
            (theirs, rank)
            for rank, (other, theirs) in enumerate(_colors(comm, name, color, key))
            if other == color
        )
        child.size = len(chosen)
        child.rank = [rank for _, rank in chosen].index(comm.rank)
        child.meet(f"{comm.key}.{number}.{color}", "ncclCommSplit")

    return _join(child, meet)


def _colors(comm: Communicator, name: str, color: int, key: int) -> list[tuple[int, int]]:
    comm.refuse_left()
    answers = comm.rendezvous.gather(name, f"{color} {key}".encode(), timeout=None)
    return [(int(first), int(second)) for first, second in (each.split() for each in answers)]


def _is_blocking(config: Config | None, parent: Communicator | None = None) -> bool:
    refuse_raw(config)
    if config is None:
        return parent is None or parent.is_blocking
    return config.is_blocking


def _next_child(comm: Communicator) -> int:
    with comm.guard:
        comm.children += 1
        return comm.children


@call
def ncclCommShrink(
    comm: Communicator,
    excludeRanksList: list[int] | None,
    excludeRanksCount: int,
    config: Config | None,
    shrinkFlags: int,
) -> int:
    """Make a communicator of all ranks but some, which do not call; with NCCL_SHRINK_ABORT, operations end first."""
    excluded = sorted(set(excludeRanksList or ()))
    if not excluded or not set(excluded) < set(range(comm.size)):
        raise invalid(
            f"the excluded ranks are {excluded}", f"exclude 1 or more ranks of 0 to {comm.size - 1}, not all"
        )
    if comm.rank in excluded:
        raise invalid(f"rank {comm.rank} excludes itself", "call it in the ranks that stay")
    if shrinkFlags & ~_SHRINK_FLAGS:
        raise invalid(f"shrinkFlags is {shrinkFlags:#x}", "pass 0 or NCCL_SHRINK_ABORT, 1")
    is_blocking = _is_blocking(config, comm)
    if shrinkFlags & _SHRINK_ABORT:
        comm.cancel()
    else:
        comm.refuse_unready()
    left = [each for each in range(comm.size) if each not in excluded]
    child = _new(comm.context, left.index(comm.rank), len(left), is_blocking=is_blocking)
    key = f"{comm.key}.{_next_child(comm)}.without.{'.'.join(map(str, excluded))}"
    return _join(child, partial(child.meet, key, "ncclCommShrink"))


@call
def ncclCommFinalize(comm: Communicator) -> None:
    """Wait for its operations, and leave its ranks; then it can only be destroyed.

    Operations of other ranks with this one fail with ncclRemoteError from then on.
    """
    comm.refuse_unready()
    comm.wait()
    comm.finalize()
    comm.refuse_lost()


@call
def ncclCommDestroy(comm: Communicator) -> None:
    """Wait for its operations, and end it in this process."""
    if comm.is_pending:
        raise misuse(
            f"{comm} is not made yet", "wait until ncclCommGetAsyncError gives ncclSuccess, or abort it"
        )
    _drop(comm, "ncclCommDestroy")
    comm.end()


@call
def ncclCommAbort(comm: Communicator) -> None:
    """Cancel its operations, and end it in this process; the streams of the program go on."""
    _drop(comm, "ncclCommAbort")
    comm.abort()


def _drop(comm: Communicator, name: str) -> None:
    if not machine.drop(comm, name):
        raise invalid(f"another thread has ended {comm}", "end a communicator once")


@call
def ncclCommGetAsyncError(comm: Communicator) -> int:
    """Return whether it is ready, not yet, or lost, and why; ncclGetLastError has the text."""
    comm.look()
    if comm.failure is not None:
        last.message = comm.failure
        return comm.failure.code
    return IN_PROGRESS if comm.is_pending else SUCCESS


@call
def ncclCommCount(comm: Communicator) -> int:
    _refuse_pending(comm)
    return comm.size


@call
def ncclCommCuDevice(comm: Communicator) -> int:
    _refuse_pending(comm)
    return machine.id_of(comm.context.device.ordinal)


@call
def ncclCommUserRank(comm: Communicator) -> int:
    _refuse_pending(comm)
    return comm.rank


def _refuse_pending(comm: Communicator) -> None:
    if comm.is_pending:
        comm.refuse_unready()
