"""NCCL's windows, puts and signals, in one process whose thread drives all ranks."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import numpy as np
import pytest

from dialects.cuda import nccl
from dialects.cuda.driver import INT, WORD
from dialects.cuda.nccl import Config, Rank, Ranks, WaitSignalDesc, code_of
from helpers.promises import Node
from peerlane import dialects
from peerlane.dialects.cuda.nccl.state import communicator_of

SIZE = 8192

ranks = pytest.fixture(nccl.ranks_of)


class Windows:
    """A window of each rank, whose bytes are 0 to begin with."""

    def __init__(self, world: Ranks, sizes: tuple[int, ...] = ()) -> None:
        self.world, self.nccl, self.memory = world, world.nccl, []
        self.sizes = sizes or (SIZE,) * len(world)
        for each in world:
            each.enter()
            self.memory.append(self.nccl.ncclMemAlloc(WORD, self.sizes[each.number]))
            each.driver.cuMemsetD8_v2(self.memory[-1], 0, self.sizes[each.number])
            each.driver.cuStreamSynchronize(0)
        self.all = (WORD * len(world))()
        world.together(self._register)

    def _register(self, each: Rank) -> None:
        at = each.number
        self.nccl.ncclCommWindowRegister(
            each.comm, self.memory[at], self.sizes[at], ctypes.byref(self.all, 8 * at), 0
        )

    def put(self, each: Rank, source: int, nbytes: int, peer: int, offset: int, *numbers: int) -> None:
        words = numbers or (0, 0, 0)
        self.nccl.ncclPutSignal(
            *(source, nbytes, 1, peer, self.all[each.number], offset, *words, each.comm, each.stream)
        )

    def wait(self, each: Rank, *signals: tuple[int, int]) -> None:
        """Wait for signals: of each rank so many."""
        descs = (WaitSignalDesc * len(signals))(*(WaitSignalDesc(count, peer) for peer, count in signals))
        self.nccl.ncclWaitSignal(len(signals), descs, each.comm, each.stream)


def test_signals_are_counted_and_bytes_lie_before_them(ranks: Callable[..., Ranks]) -> None:
    world = ranks(3)
    windows = Windows(world)
    half, blank = SIZE // 2, np.zeros(SIZE, np.uint8)
    for each in world:
        each.enter()
        each.driver.cuMemsetD8Async(windows.memory[each.number], each.number + 1, half, each.stream)
        peer = (each.number + 1) % 3
        for step in range(8):
            windows.put(each, windows.memory[each.number], 64, peer, half + 64 * step)
        windows.nccl.ncclSignal(peer, 0, 0, 0, each.comm, each.stream)
    for each in world:
        windows.wait(each, ((each.number - 1) % 3, 9))
    for each in world:
        received = each.read(windows.memory[each.number], blank)[half : half + 512]
        assert (received == (each.number - 1) % 3 + 1).all()


def test_waits_of_one_call_are_for_several_ranks_also_itself(ranks: Callable[..., Ranks]) -> None:
    world = ranks(2)
    windows = Windows(world, (SIZE, 2 * SIZE))
    first, second = world.all
    windows.wait(second, (0, 2), (1, 1))
    assert code_of(world.driver.cuStreamQuery, second.stream) == 600
    second.enter()
    other = second.driver.cuStreamCreate(WORD, 1)
    for rank, stream in ((first, first.stream), (second, other)):
        world.nccl.ncclPutSignal(
            *(
                windows.memory[rank.number],
                64,
                1,
                1,
                windows.all[rank.number],
                SIZE,
                0,
                0,
                0,
                rank.comm,
                stream,
            )
        )
    world.nccl.ncclSignal(1, 0, 0, 0, first.comm, first.stream)
    for stream in (second.stream, other, first.stream):
        world.driver.cuStreamSynchronize(stream)


def test_group_of_puts_and_waits_goes_on_together(ranks: Callable[..., Ranks]) -> None:
    world = ranks(2)
    windows = Windows(world)

    def exchange(each: Rank) -> None:
        windows.wait(each, (1 - each.number, 1))
        windows.put(each, windows.memory[each.number], 64, 1 - each.number, 64)

    world.together(exchange)
    for each in world:
        world.driver.cuStreamSynchronize(each.stream)


def test_what_windows_do_not_take_is_refused(ranks: Callable[..., Ranks]) -> None:
    world = ranks(2)
    windows = Windows(world)
    first, library = world.all[0], world.nccl
    plain = first.buffer(np.zeros(SIZE, np.uint8))

    def refused(call: Callable[..., object], *arguments: object) -> str:
        assert code_of(call, *arguments) == nccl.INVALID_ARGUMENT
        return library.last_error()

    assert "windows are not made of" in refused(
        library.ncclCommWindowRegister, first.comm, plain, SIZE, WORD, 0
    )
    assert "multiple of 4,096" in refused(
        library.ncclCommWindowRegister, first.comm, windows.memory[0] + 64, 64, WORD, 0
    )
    assert "lie in no window" in refused(windows.put, first, plain, 64, 1, 0)
    assert "beyond the 8,192 bytes of rank 1" in refused(windows.put, first, windows.memory[0], 64, 1, SIZE)
    assert "one signal of each rank" in refused(windows.put, first, windows.memory[0], 64, 1, 0, 1, 0, 0)
    assert library.ncclWinGetUserPtr(first.comm, windows.all[0], WORD) == windows.memory[0]
    library.ncclCommWindowDeregister(first.comm, windows.all[0])
    assert "ended by ncclCommWindowDeregister" in refused(windows.put, first, windows.memory[0], 64, 1, 0)


def test_signals_need_a_window_that_connects_the_ranks(ranks: Callable[..., Ranks]) -> None:
    world = ranks(2)
    first = world.all[0]
    assert code_of(world.nccl.ncclSignal, 1, 0, 0, 0, first.comm, first.stream) == nccl.INVALID_USAGE
    assert "register a window" in world.nccl.last_error()


def test_address_of_a_peers_part_reaches_its_bytes(ranks: Callable[..., Ranks]) -> None:
    world = ranks(2)
    windows = Windows(world)
    first = world.all[0]
    first.enter()
    there = world.nccl.ncclGetPeerDevicePointer(windows.all[0], 128, 1, WORD)
    first.driver.cuMemsetD8Async(windows.memory[0], 7, 64, first.stream)
    first.driver.cuMemcpyAsync(there, windows.memory[0], 64, first.stream)
    first.driver.cuStreamSynchronize(first.stream)
    second = world.all[1]
    assert (second.read(windows.memory[1] + 128, np.zeros(64, np.uint8)) == 7).all()
    assert world.nccl.ncclCommUserRank(second.comm, INT) == 1


def test_write_to_memory_of_a_window_that_has_ended_loses_the_communicator(
    ranks: Callable[..., Ranks],
) -> None:
    world = ranks(2)
    windows = Windows(world)
    first, second = world.all
    world.nccl.ncclCommWindowDeregister(second.comm, windows.all[1])
    code = code_of(windows.put, first, windows.memory[0], 64, 1, 0)
    synchronized = code_of(world.driver.cuStreamSynchronize, first.stream)
    assert code or synchronized
    assert world.nccl.ncclCommGetAsyncError(first.comm, INT)


def test_window_of_nonblocking_communicators_is_in_progress_until_all_have_it(
    ranks: Callable[..., Ranks],
) -> None:
    world = ranks(2)
    library, unique_id, config = world.nccl, world.nccl.unique_id(), Config(blocking=0)
    comms, windows = (WORD * 2)(), (WORD * 2)()
    memory = []
    for each in world:
        each.enter()
        memory.append(library.ncclMemAlloc(WORD, SIZE))

    def make(each: Rank) -> None:
        each.enter()
        library.ncclCommInitRankConfig(
            *(ctypes.byref(comms, 8 * each.number), 2, unique_id, each.number, ctypes.byref(config))
        )

    def register(each: Rank) -> None:
        library.ncclCommWindowRegister(
            *(comms[each.number], memory[each.number], SIZE, ctypes.byref(windows, 8 * each.number), 0)
        )

    for step in (make, register):
        assert code_of(world.together, step) == nccl.IN_PROGRESS
        deadline = time.monotonic() + 30
        while any(library.ncclCommGetAsyncError(comm, INT) == nccl.IN_PROGRESS for comm in comms):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    for each in world:
        assert library.ncclGetPeerDevicePointer(windows[each.number], 0, 1 - each.number, WORD)
    for comm in comms:
        library.ncclCommAbort(comm)


def test_communicators_that_a_program_leaves_end_as_the_dialect_begins_anew(node: Node) -> None:
    node()
    dialects.begin_anew("cuda")
    world = Ranks(2)
    Windows(world)
    groups = [communicator_of(each.comm).group for each in world]
    dialects.begin_anew("cuda")
    assert all(each.is_closed for each in groups)
