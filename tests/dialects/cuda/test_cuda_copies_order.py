"""The order of copies that name both devices (facts/cuda 4.3)."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator

import pytest

from dialects.cuda.driver import NOT_READY, WORD, Driver, begin, code, struct
from helpers.each import for_each
from helpers.promises import Node
from peerlane import dialects

SECONDS = 20
SIZE = 64


@pytest.fixture
def begun(node: Node) -> Iterator[Driver]:
    """The driver on three devices, with the primary context of device 0 current."""
    node("devices=3")
    dialects.begin_anew("cuda")
    yield begin(Driver())
    dialects.begin_anew("cuda")


class Ends:
    """Memory of the devices 1 and 2, with their contexts."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.contexts = [driver.cuDevicePrimaryCtxRetain(WORD, device) for device in (1, 2)]
        self.memory = [self.within(at, lambda: driver.cuMemAlloc_v2(WORD, SIZE)) for at in range(2)]
        for at in range(2):
            self.within(at, lambda at=at: driver.cuMemsetD8_v2(self.memory[at], at, SIZE))
            self.within(at, driver.cuCtxSynchronize)

    def within(self, at: int, call: Callable[[], object]) -> object:
        self.driver.cuCtxPushCurrent_v2(self.contexts[at])
        try:
            return call()
        finally:
            self.driver.cuCtxPopCurrent_v2(WORD)

    def copy(self) -> None:
        self.driver.cuMemcpyPeer(self.memory[0], self.contexts[0], self.memory[1], self.contexts[1], SIZE)

    def copy_box(self) -> None:
        kinds = {"srcMemoryType": 2, "dstMemoryType": 2, "WidthInBytes": SIZE, "Height": 1, "Depth": 1}
        ends = {"dstDevice": self.memory[0], "srcDevice": self.memory[1]}
        contexts = {"dstContext": self.contexts[0], "srcContext": self.contexts[1]}
        self.driver.cuMemcpy3DPeer(ctypes.byref(struct("CUDA_MEMCPY3D_PEER_v1", **kinds, **ends, **contexts)))

    def copied(self) -> int:
        back = (ctypes.c_uint8 * SIZE)()
        self.driver.cuMemcpyDtoH_v2(back, self.memory[0], SIZE)
        return int(sum(back))


@for_each("name", ["copy", "copy_box"])
def test_copy_between_two_devices_follows_the_current_one_and_is_followed(begun: Driver, name: str) -> None:
    ends, opened = Ends(begun), threading.Event()
    gate = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: opened.wait(SECONDS) and None)
    stream = begun.cuStreamCreate(WORD, 0)
    begun.cuLaunchHostFunc(stream, gate, 0)
    getattr(ends, name)()
    later = begun.cuStreamCreate(WORD, 0)
    begun.cuMemsetD8Async(begun.cuMemAlloc_v2(WORD, SIZE), 1, SIZE, later)
    assert code(ends.within, 0, lambda: begun.cuStreamQuery(0)) == NOT_READY
    assert code(begun.cuStreamQuery, later) == NOT_READY
    opened.set()
    begun.cuStreamSynchronize(later)
    ends.within(0, lambda: begun.cuStreamSynchronize(0))
    assert ends.copied() == SIZE


@for_each("name", ["copy", "copy_box"])
def test_copy_between_two_devices_is_between_the_work_of_streams_that_do_not_block(
    begun: Driver, name: str
) -> None:
    ends, opened = Ends(begun), threading.Event()
    gate = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: opened.wait(SECONDS) and None)
    before, other = (ends.within(at, lambda: begun.cuStreamCreate(WORD, 1)) for at in (1, 0))
    begun.cuLaunchHostFunc(before, gate, 0)
    begun.cuMemsetD8Async(ends.memory[1], 5, SIZE, before)
    getattr(ends, name)()
    later = ends.within(0, lambda: begun.cuStreamCreate(WORD, 1))
    back = begun.cuMemHostAlloc(WORD, SIZE, 0)
    for each in (other, later):
        assert code(begun.cuStreamQuery, each) == NOT_READY
    begun.cuMemcpyDtoHAsync_v2(back, ends.memory[0], SIZE, later)
    opened.set()
    begun.cuStreamSynchronize(later)
    assert ctypes.string_at(back, SIZE) == bytes([5]) * SIZE
