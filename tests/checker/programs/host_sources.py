"""Host memory that asynchronous operations read: each function is a kind, right or with a wait that is not there.

``python host_sources.py right`` waits before it writes again, and ``racy`` does not.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
from collections.abc import Callable

import numpy as np

import peerlane as pl

SIZE = 96 << 10  # of which a digest takes samples
Wait = Callable[[pl.Stream], None]


class Bench:
    """A device with a buffer and a stream."""

    def __init__(self, device: pl.Device) -> None:
        self.device = device
        self.buffer = device.allocate(SIZE)
        self.stream = device.create_stream()


def numpy_array(on: Bench, wait: Wait) -> None:
    stage = np.zeros(SIZE, np.uint8)
    on.buffer.copy_from(stage, stream=on.stream)
    wait(on.stream)
    stage[:] = 1
    on.stream.sync(30)


def one_block_of_it(on: Bench, wait: Wait) -> None:
    stage = np.zeros(SIZE, np.uint8)
    on.buffer.copy_from(stage, stream=on.stream)
    wait(on.stream)
    stage[40 << 10 : 44 << 10] = 1
    on.stream.sync(30)


def eight_bytes(on: Bench, wait: Wait) -> None:
    stage = np.zeros(1, np.uint64)
    on.buffer[:8].copy_from(stage, stream=on.stream)
    wait(on.stream)
    stage[0] = 1
    on.stream.sync(30)


def byte_array(on: Bench, wait: Wait) -> None:
    stage = bytearray(64)
    on.buffer[:64].copy_from(stage, stream=on.stream)
    wait(on.stream)
    stage[63] = 1
    on.stream.sync(30)


def ctypes_array(on: Bench, wait: Wait) -> None:
    stage = (ctypes.c_char * 64)()
    on.buffer[:64].copy_from(stage, stream=on.stream)
    wait(on.stream)
    ctypes.memset(stage, 7, 64)
    on.stream.sync(30)


def pinned_memory(on: Bench, wait: Wait) -> None:
    with pl.Host().allocate(SIZE) as stage:
        stage.fill(0)
        on.buffer.copy_from(stage, stream=on.stream)
        wait(on.stream)
        ctypes.memset(stage.address, 7, SIZE)
        on.stream.sync(30)


def memory_that_only_its_address_names(on: Bench, wait: Wait) -> None:
    stage = np.zeros(SIZE, np.uint8)
    pl.raw.copy(on.buffer.address, stage.ctypes.data, SIZE, stream=on.stream)
    wait(on.stream)
    stage[:] = 1
    on.stream.sync(30)


def rows(on: Bench, wait: Wait) -> None:
    stage = np.zeros((64, 64), np.uint8)
    pl.copy_2d(on.buffer, 64, stage, 64, 32, 64, stream=on.stream)
    stage[:, 32:] = 1  # between the rows
    wait(on.stream)
    stage[:, :32] = 1
    on.stream.sync(30)


def wrong_stream(on: Bench, wait: Wait) -> None:
    stage = np.zeros(SIZE, np.uint8)
    with on.device.create_stream() as other:
        on.buffer.copy_from(stage, stream=on.stream)
        other.sync(30)
        wait(on.stream)
        stage[:] = 1
        on.stream.sync(30)


def same_array_again(on: Bench, wait: Wait) -> None:
    stage = np.zeros(SIZE, np.uint8)
    for turn in range(3):
        stage[:] = turn
        on.buffer.copy_from(stage, stream=on.stream)
        wait(on.stream)


def upload_whose_end_nobody_asks_for(on: Bench, wait: Wait) -> None:
    stage = np.zeros(SIZE, np.uint8)
    with contextlib.suppress(KeyError), on.device.create_stream() as stream:
        on.buffer.copy_from(stage, stream=stream)
        wait(stream)
        raise KeyError
    stage[:] = 1


KINDS = [
    numpy_array,
    one_block_of_it,
    eight_bytes,
    byte_array,
    ctypes_array,
    pinned_memory,
    memory_that_only_its_address_names,
    rows,
    wrong_stream,
    same_array_again,
    upload_whose_end_nobody_asks_for,
]


def ring(on: Bench) -> None:
    stages = [np.zeros(SIZE, np.uint8), pl.Host().allocate(SIZE)]
    stages[1].fill(0)
    events: list[pl.Event | None] = [None, None]
    for turn in range(8):
        if event := events[turn % 2]:
            event.sync(30)
        stage = stages[turn % 2]
        if turn % 2:
            ctypes.memset(stage.address, turn, SIZE)
        else:
            stage[:] = turn
        on.buffer.copy_from(stage, stream=on.stream)
        events[turn % 2] = on.stream.record()
    on.stream.sync(30)


def event_of_another_stream(on: Bench) -> None:
    stage = np.zeros(SIZE, np.uint8)
    with on.device.create_stream() as other:
        for turn in range(3):
            stage[:] = turn
            on.buffer.copy_from(stage, stream=on.stream)
            other.wait(on.stream.record())
            other.sync(30)
        stage[:] = 9
        on.stream.sync(30)


def notify(on: Bench) -> None:
    stage = np.zeros(SIZE, np.uint8)
    with on.device.create_stream() as other, on.device.create_notify() as done:
        on.buffer.copy_from(stage, stream=on.stream)
        on.stream.notify(done)
        other.wait(done)
        other.sync(30)
        stage[:] = 9
        on.stream.sync(30)


def other_thread_waits(on: Bench) -> None:
    stage = np.zeros(SIZE, np.uint8)
    on.buffer.copy_from(stage, stream=on.stream)
    thread = threading.Thread(target=on.stream.sync, args=(30,))
    thread.start()
    thread.join()
    stage[:] = 9
    on.stream.sync(30)


def callback_fills_it_again(on: Bench) -> None:
    stage = np.zeros(SIZE, np.uint8)
    for turn in range(3):
        on.buffer.copy_from(stage, stream=on.stream)
        on.stream.launch_callback(stage.fill, turn + 1)
    on.stream.sync(30)


def filled_behind_a_wait_of_the_stream(on: Bench) -> None:
    stage = np.zeros(SIZE, np.uint8)
    with on.device.create_notify() as filled:
        on.stream.wait(filled)
        on.buffer.copy_from(stage, stream=on.stream)
        stage[:] = 1
        filled.record()
        on.stream.sync(30)


def stream_writes_it(on: Bench) -> None:
    for stage in (np.zeros(SIZE, np.uint8), pl.Host().allocate(SIZE)):
        on.buffer.fill(3)
        on.buffer.copy_to(stage, stream=on.stream)
        on.buffer.copy_from(stage, stream=on.stream)
        on.buffer.fill(4, stream=on.stream)
        on.buffer.copy_to(stage, stream=on.stream)
        on.stream.sync(30)


def dropped_at_once(on: Bench) -> None:
    for turn in range(300):
        on.buffer[:4096].copy_from(np.full(4096, turn % 256, np.uint8), stream=on.stream)
    on.stream.sync(30)


def beside_it(on: Bench) -> None:
    stage = np.zeros(SIZE, np.uint8)
    half = SIZE // 2
    on.buffer[:half].copy_from(stage[:half], stream=on.stream)
    stage[half:] = 1
    on.stream.sync(30)


def looks_until_it_is_over(on: Bench) -> None:
    stage = np.zeros(SIZE, np.uint8)
    on.buffer.copy_from(stage, stream=on.stream)
    while not on.stream.is_done:
        pass
    stage[:] = 1
    on.stream.sync(30)


def closed_and_freed(on: Bench) -> None:
    stream = on.device.create_stream()
    stage = pl.Host().allocate(SIZE)
    stage.fill(0)
    on.buffer.copy_from(stage, stream=stream)
    stream.sync(30)
    stage.close()
    with pl.Host().allocate(SIZE) as other:
        other.fill(1)
    stream.close()


RIGHT = [
    ring,
    event_of_another_stream,
    notify,
    other_thread_waits,
    callback_fills_it_again,
    filled_behind_a_wait_of_the_stream,
    stream_writes_it,
    dropped_at_once,
    beside_it,
    looks_until_it_is_over,
    closed_and_freed,
]


def main(which: str) -> None:
    """Run all kinds."""
    wait: Wait = (lambda stream: stream.sync(30)) if which == "right" else (lambda stream: None)
    device = pl.devices()[0]
    for kind in KINDS:
        kind(Bench(device), wait)
    if which == "right":
        for right in RIGHT:
            right(Bench(device))


if __name__ == "__main__":
    main(sys.argv[1])
