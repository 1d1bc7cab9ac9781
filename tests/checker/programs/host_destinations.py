"""Host memory that asynchronous operations write: each function is a kind, right or with a wait that is not there.

``python host_destinations.py right`` waits before it touches the bytes, and ``racy`` does not.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

import peerlane as pl

SIZE = 96 << 10
Wait = Callable[[pl.Stream], None]


class Bench:
    """A device with a buffer and a stream."""

    def __init__(self, device: pl.Device) -> None:
        self.device = device
        self.buffer = device.allocate(SIZE)
        self.buffer.fill(3)
        self.stream = device.create_stream()


def numpy_array(on: Bench, wait: Wait) -> None:
    out = np.zeros(SIZE, np.uint8)
    on.buffer.copy_to(out, stream=on.stream)
    wait(on.stream)
    int(out.sum())
    on.stream.sync(30)


def one_element_of_it(on: Bench, wait: Wait) -> None:
    out = np.zeros(SIZE, np.uint8)
    on.buffer.copy_to(out, stream=on.stream)
    wait(on.stream)
    int(out[SIZE // 2])
    on.stream.sync(30)


def after_a_while(on: Bench, wait: Wait) -> None:
    out = np.zeros(SIZE, np.uint8)
    on.buffer.copy_to(out, stream=on.stream)
    wait(on.stream)
    time.sleep(0.005)
    bytes(out)
    on.stream.sync(30)


def behind_other_operations(on: Bench, wait: Wait) -> None:
    out = np.zeros(SIZE, np.uint8)
    with on.device.create_stream() as other:
        on.buffer.fill(7, stream=other)
        on.stream.wait(other.record())
        on.buffer.copy_to(out, stream=on.stream)
        wait(on.stream)
        np.array_equal(out, out)
        on.stream.sync(30)


def byte_array(on: Bench, wait: Wait) -> None:
    out = bytearray(SIZE)
    on.buffer.copy_to(out, stream=on.stream)
    wait(on.stream)
    out.count(3)
    on.stream.sync(30)


def ctypes_array(on: Bench, wait: Wait) -> None:
    out = (ctypes.c_char * SIZE)()
    on.buffer.copy_to(out, stream=on.stream)
    wait(on.stream)
    ctypes.string_at(out, SIZE)
    on.stream.sync(30)


def pinned_memory(on: Bench, wait: Wait) -> None:
    with pl.Host().allocate(SIZE) as out:
        on.buffer.copy_to(out, stream=on.stream)
        wait(on.stream)
        ctypes.string_at(out.address, SIZE)
        on.stream.sync(30)


def eight_pinned_bytes(on: Bench, wait: Wait) -> None:
    with pl.Host().allocate(8) as out:
        on.buffer[:8].copy_to(out, stream=on.stream)
        wait(on.stream)
        ctypes.string_at(out.address, 8)
        on.stream.sync(30)


def view_of_pinned_memory(on: Bench, wait: Wait) -> None:
    with pl.Host().allocate(SIZE) as out:
        on.buffer.copy_to(out, stream=on.stream)
        wait(on.stream)
        int(out.view().sum())
        on.stream.sync(30)


def shared_mapping(on: Bench, wait: Wait) -> None:
    out = mmap.mmap(-1, SIZE)
    on.buffer.copy_to(out, stream=on.stream)
    wait(on.stream)
    out.find(b"x")
    on.stream.sync(30)


def write_to_it(on: Bench, wait: Wait) -> None:
    out = np.zeros(SIZE, np.uint8)
    on.buffer.copy_to(out, stream=on.stream)
    wait(on.stream)
    out[:] = 1
    on.stream.sync(30)


def another_thread(on: Bench, wait: Wait) -> None:
    out = np.zeros(SIZE, np.uint8)
    on.buffer.copy_to(out, stream=on.stream)
    wait(on.stream)
    thread = threading.Thread(target=another_thread_reads, args=(out,))
    thread.start()
    thread.join()
    on.stream.sync(30)


def another_thread_reads(out: np.ndarray) -> None:
    int(out.sum())


def rows(on: Bench, wait: Wait) -> None:
    out = np.zeros((4, 24 << 10), np.uint8)
    pl.copy_2d(out, 24 << 10, on.buffer, 24 << 10, 16 << 10, 4, stream=on.stream)
    int(out[:, 16 << 10 :].sum())  # between the rows
    wait(on.stream)
    int(out[:, : 16 << 10].sum())
    on.stream.sync(30)


def one_of_a_list(on: Bench, wait: Wait) -> None:
    outs = [np.zeros(24 << 10, np.uint8) for _ in range(4)]
    parts = [on.buffer[at : at + (24 << 10)] for at in range(0, SIZE, 24 << 10)]
    pl.copy_batch(outs, parts, stream=on.stream)
    wait(on.stream)
    int(outs[2].sum())
    on.stream.sync(30)


def abandoned_download(on: Bench, wait: Wait) -> None:
    out = np.zeros(SIZE, np.uint8)
    on.buffer.copy_to(out, stream=on.stream)
    on.stream.abort()
    with contextlib.suppress(pl.Cancelled):
        wait(on.stream)
    int(out.sum())
    with contextlib.suppress(pl.Cancelled):
        on.stream.sync(30)


def write_to_few_bytes(on: Bench, wait: Wait) -> None:
    out = np.zeros(4, np.uint64)
    on.buffer[:32].copy_to(out, stream=on.stream)
    wait(on.stream)
    out[1] = 9
    on.stream.sync(30)


KINDS = [
    numpy_array,
    one_element_of_it,
    after_a_while,
    behind_other_operations,
    byte_array,
    ctypes_array,
    pinned_memory,
    eight_pinned_bytes,
    view_of_pinned_memory,
    shared_mapping,
    write_to_it,
    another_thread,
    rows,
    one_of_a_list,
    abandoned_download,
    write_to_few_bytes,
]
#: Those whose touch is in another function.
TOUCHES = {"another_thread": "another_thread_reads"}


def event(on: Bench) -> None:
    out = np.zeros(SIZE, np.uint8)
    for _ in range(3):
        on.buffer.copy_to(out, stream=on.stream)
        done = on.stream.record()
        done.sync(30)
        assert int(out[SIZE // 2]) == 3


def notify_of_the_stream(on: Bench) -> None:
    out = np.zeros(SIZE, np.uint8)
    with on.device.create_stream() as other, on.device.create_notify() as done:
        on.buffer.copy_to(out, stream=on.stream)
        on.stream.notify(done)
        other.wait(done)
        other.sync(30)
        assert int(out.sum()) == 3 * SIZE


def callback_reads(on: Bench) -> None:
    out = np.zeros(SIZE, np.uint8)
    seen = []
    on.buffer.copy_to(out, stream=on.stream)
    on.stream.launch_callback(lambda: seen.append(int(out.sum())))
    on.stream.sync(30)
    assert seen == [3 * SIZE]


def other_thread_waits(on: Bench) -> None:
    out = np.zeros(SIZE, np.uint8)
    on.buffer.copy_to(out, stream=on.stream)
    thread = threading.Thread(target=on.stream.sync, args=(30,))
    thread.start()
    thread.join()
    assert int(out.sum()) == 3 * SIZE


def a_variable_signals(on: Bench) -> None:
    out = np.zeros(SIZE, np.uint8)
    done_flags: list[int] = []
    on.buffer.copy_to(out, stream=on.stream)
    on.stream.launch_callback(lambda: done_flags.append(1))
    while not done_flags:
        time.sleep(0.001)
    assert int(out.sum()) == 3 * SIZE


def round_trip(on: Bench) -> None:
    out = np.full(SIZE, 5, np.uint8)
    on.buffer.copy_from(out, stream=on.stream)
    on.buffer.copy_to(out, stream=on.stream)
    on.buffer.copy_from(out, stream=on.stream)
    on.stream.sync(30)
    assert int(out.sum()) == 5 * SIZE


def filled_before_the_copy_may_begin(on: Bench) -> None:
    out = np.zeros(SIZE, np.uint8)
    read, write = os.pipe()
    with on.device.create_notify() as filled:
        on.stream.wait(filled)
        on.buffer.copy_to(out, stream=on.stream)
        os.write(write, bytes(4096))
        os.readv(read, [memoryview(out)[8192:12288]])
        out[:] = 1
        filled.record()
        on.stream.sync(30)
    os.close(read)
    os.close(write)
    assert int(out.sum()) == 3 * SIZE


def neighbours(on: Bench) -> None:
    out = np.zeros((8, 3000), np.uint8)
    read, write = os.pipe()
    for row in range(0, 8, 2):
        on.buffer[:3000].copy_to(out[row], stream=on.stream)
    for row in range(1, 8, 2):
        out[row] = row
        os.write(write, memoryview(out[row]))
        os.readv(read, [memoryview(out[row])])
        assert int(out[row].sum()) == row * 3000
    on.stream.sync(30)
    assert int(out[::2].sum()) == 3 * 4 * 3000
    os.close(read)
    os.close(write)


def forks(on: Bench) -> None:
    out = np.zeros(SIZE, np.uint8)
    on.buffer.copy_to(out, stream=on.stream)
    if (child := os.fork()) == 0:
        os._exit(0 if set(bytes(out)) <= {0, 3} else 1)  # the copy may be in its middle
    assert os.waitpid(child, 0)[1] == 0
    on.stream.sync(30)
    assert int(out.sum()) == 3 * SIZE


def polls_until_it_is_done(on: Bench) -> None:
    out = np.zeros(SIZE, np.uint8)
    on.buffer.copy_to(out, stream=on.stream)
    while not on.stream.is_done:
        pass
    assert int(out.sum()) == 3 * SIZE


def polls_its_last_byte(on: Bench) -> None:
    with pl.Host().allocate(8) as out:
        out.fill(0)
        view = out.view()
        on.buffer[:8].copy_to(out, stream=on.stream)
        while view[7] != 3:
            time.sleep(0.001)
        on.stream.sync(30)


def aborts(on: Bench) -> None:
    out = np.zeros(SIZE, np.uint8)
    stream = on.device.create_stream()
    on.buffer.copy_to(out, stream=stream)
    stream.abort()
    with contextlib.suppress(pl.Cancelled):
        stream.sync(30)
    out[:] = 1
    stream.close()


def closes_the_stream(on: Bench) -> None:
    out = np.zeros(SIZE, np.uint8)
    with on.device.create_stream() as stream:
        on.buffer.copy_to(out, stream=stream)
        stream.sync(30)
    assert int(out.sum()) == 3 * SIZE


RIGHT = [
    event,
    notify_of_the_stream,
    callback_reads,
    other_thread_waits,
    a_variable_signals,
    round_trip,
    filled_before_the_copy_may_begin,
    neighbours,
    forks,
    polls_until_it_is_done,
    polls_its_last_byte,
    aborts,
    closes_the_stream,
]


def main(which: str) -> None:
    """Run all kinds."""
    wait: Wait = (lambda stream: stream.sync(30)) if which == "right" else (lambda stream: None)
    device = pl.devices()[0]
    names = sys.argv[2:]
    for kind in KINDS:
        if not names or kind.__name__ in names:
            kind(Bench(device), wait)
    if which == "right":
        for right in RIGHT:
            if not names or right.__name__ in names:
                right(Bench(device))


if __name__ == "__main__":
    main(sys.argv[1])
