"""Programs that wait by what peerlane documents and no call of peerlane sees: ``own_waits.py WAY``.

A descriptor of an event, a word that is polled, and views of memory that has ended.  The racy ways lack the wait.
"""

from __future__ import annotations

import asyncio
import os
import select
import selectors
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np

import peerlane as pl

BIG = 4 << 20


def wait_in_select(fd: int) -> None:
    assert select.select([fd], [], [], 30)[0]


def wait_in_poll(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    assert poll.poll(30_000)


def wait_in_epoll(fd: int) -> None:
    with select.epoll() as epoll:
        epoll.register(fd, select.EPOLLIN)
        assert epoll.poll(timeout=30)


def wait_in_selector(fd: int) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        assert selector.select(30)


def wait_in_loop(fd: int) -> None:
    async def run() -> None:
        ready = asyncio.Event()
        asyncio.get_running_loop().add_reader(fd, ready.set)
        await asyncio.wait_for(ready.wait(), 30)
        asyncio.get_running_loop().remove_reader(fd)

    asyncio.run(run())


def wait_by_read(fd: int) -> None:
    while True:
        try:
            os.read(fd, 8)
        except BlockingIOError:
            time.sleep(0.001)
        else:
            return


WAITS: dict[str, Callable[[int], None]] = {
    each.__name__.removeprefix("wait_"): each
    for each in (wait_in_select, wait_in_poll, wait_in_epoll, wait_in_selector, wait_in_loop, wait_by_read)
}


def descriptor(device: pl.Device, wait: Callable[[int], None]) -> None:
    buffer = device.allocate(BIG)
    with device.create_stream() as stream:
        buffer.fill(1, stream=stream)
        done = stream.record()
        wait(done.fileno())
        assert buffer.view().all()


def descriptor_in_thread(device: pl.Device) -> None:
    """Wait in one thread, and touch the memory in another one, which sees a variable."""
    buffer, ready = device.allocate(BIG), []
    with device.create_stream() as stream:
        buffer.fill(1, stream=stream)
        done = stream.record()

        def wait() -> None:
            wait_in_select(done.fileno())
            ready.append(True)

        waiter = threading.Thread(target=wait)
        waiter.start()
        until = time.monotonic() + 30
        while not ready and time.monotonic() < until:
            time.sleep(0.001)
        assert buffer.view().all()
        waiter.join()


class Words:
    """Data and a word behind it, on one stream."""

    def __init__(self, device: pl.Device, word: int = 8) -> None:
        self.data, self.word, self.later = (device.allocate(size) for size in (BIG, word, BIG))
        for each in (self.data, self.word, self.later):
            each.fill(0)
        self.stream = device.create_stream()

    def submit(self, number: int) -> None:
        self.data.fill(number, stream=self.stream)
        self.word.fill(number, stream=self.stream)

    def read(self, number: int) -> None:
        assert (self.data.view() == number).all()

    def end(self) -> None:
        self.stream.sync(30)


def poll_in_while(words: Words) -> None:
    view = words.word.view()
    for number in (1, 2, 3):
        words.submit(number)
        while view[0] != number:
            pass
        words.read(number)


def poll_in_helper(words: Words) -> None:
    view = words.word.view()

    def has_come(number: int) -> bool:
        return bool(view[0] == number)

    words.submit(1)
    while not has_come(1):
        time.sleep(0)
    words.read(1)


def poll_in_lambda(words: Words) -> None:
    def wait_for(condition: Callable[[], bool]) -> None:
        while True:
            if condition():
                return

    view = words.word.view()
    words.submit(1)
    wait_for(lambda: bool(view[0] == 1))
    words.read(1)


def poll_in_nested_helpers(words: Words) -> None:
    view = words.word.view()

    def word() -> int:
        return int(view[0])

    def has_come(number: int) -> bool:
        return word() == number

    def wait_for(condition: Callable[[], bool]) -> None:
        while not condition():
            time.sleep(0)

    assert word() == 0  # a look outside a loop, by the same line
    words.submit(1)
    wait_for(lambda: has_come(1))
    words.read(1)


def poll_in_generator(words: Words) -> None:
    view = words.word.view()

    def values() -> Iterator[int]:
        while True:
            yield int(view[0])

    words.submit(1)
    for value in values():
        if value == 1:
            break
    words.read(1)


def poll_in_recursion(words: Words) -> None:
    view = words.word.view()

    def wait(left: int) -> None:
        if view[0] == 1:
            return
        time.sleep(0.01)
        wait(left - 1)

    words.submit(1)
    wait(500)
    words.read(1)


def poll_by_assertion(words: Words) -> None:
    view = words.word.view()
    words.submit(1)
    while True:
        try:
            assert view[0] == 1
        except AssertionError:
            continue
        break
    words.read(1)


def poll_by_condition(words: Words) -> None:
    """Let a function of the standard library call what looks, once before its loop."""
    view = words.word.view()
    condition = threading.Condition()
    words.submit(1)
    with condition:
        while not condition.wait_for(lambda: view[0] == 1, 0.01):
            pass
    words.read(1)


def poll_many_in_turn(words: Words) -> None:
    views = [words.word[at : at + 1].view() for at in range(4)]
    left = set(range(4))
    words.submit(1)
    while left:
        for number in sorted(left):
            if views[number][0] == 1:
                left.discard(number)
    words.read(1)


def poll_by_break(words: Words) -> None:
    view = words.word.view(np.uint64)
    words.submit(1)
    while True:
        seen = view[0]
        if seen == 0x0101010101010101:
            break
    words.read(1)


def poll_when_it_is_there(words: Words) -> None:
    view = words.word.view()
    words.submit(1)
    time.sleep(1.5)  # the first look sees it, under each schedule
    while view[0] != 1:
        pass
    words.read(1)


def poll_slice(words: Words) -> None:
    view = words.word.view()
    words.submit(1)
    while not (view[:4] == 1).all():
        pass
    words.read(1)


def poll_declared(words: Words) -> None:
    words.submit(1)
    while True:
        with words.word.reading() as array:
            if int(array[0]) == 1:
                break
    words.read(1)


def poll_by_copies(words: Words) -> None:
    seen = np.zeros(1, np.uint64)
    words.submit(1)
    while seen[0] != 0x0101010101010101:
        words.word.copy_to(seen)
    words.read(1)


def poll_by_copies_in_helper(words: Words) -> None:
    seen = np.zeros(8, np.uint8)

    def word() -> int:
        pl.copy(seen, words.word)
        return int(seen[0])

    words.submit(1)
    while word() != 1:
        time.sleep(0)
    words.read(1)


def poll_by_memcpy_of_hip(words: Words) -> None:
    from peerlane.dialects.hip import hip

    seen = bytearray(8)
    words.submit(1)
    while True:
        (status,) = hip.hipMemcpy(seen, words.word.address, 8, hip.hipMemcpyKind.hipMemcpyDeviceToHost)
        assert status == hip.hipError_t.hipSuccess
        if seen[0] == 1:
            break
    words.read(1)


def poll_by_memcpy_of_acl(words: Words) -> None:
    from peerlane.dialects import acl

    seen = bytes(8)
    pointer = acl.util.bytes_to_ptr(seen)
    assert acl.rt.set_device(0) == 0
    words.submit(1)
    while seen[0] != 1:
        assert acl.rt.memcpy(pointer, 8, words.word.address, 8, 2) == 0
    words.read(1)


def poll_once_by_copy(words: Words) -> None:
    seen = np.zeros(8, np.uint8)
    words.submit(1)
    words.word.copy_to(seen)
    if seen[0] == 1:
        words.data.view().sum()


def poll_copies_of_data(words: Words) -> None:
    part = np.zeros(1024, np.uint8)
    words.submit(1)
    at = 0
    while at < BIG:
        words.data[at : at + 1024].copy_to(part)
        at += 1024


def poll_once(words: Words) -> None:
    words.submit(1)
    words.word.view()[0]
    words.data.view().sum()


def poll_each_element_in_for(words: Words) -> None:
    """Compare the bytes, and stop at the first that is wrong."""
    view = words.word.view()
    words.submit(1)
    for at in range(8):
        if view[at] != 1:
            break


def poll_each_element_in_while(words: Words) -> None:
    view, at = words.word.view(), 0
    words.submit(1)
    while at < 8 and view[at] == 1:
        at += 1


def poll_word_before_data(words: Words) -> None:
    words.word.fill(1, stream=words.stream)
    words.later.fill(1, stream=words.stream)
    view = words.word.view()
    while view[0] != 1:
        pass
    words.later.view().sum()


def poll_for_old_value(words: Words) -> None:
    words.word.fill(1, stream=words.stream)
    words.stream.sync(30)
    view = words.word.view()
    words.submit(1)
    while view[0] != 1:
        pass
    words.data.view().sum()


def poll_other_stream(words: Words) -> None:
    other = words.data.device.create_stream()
    words.later.fill(1, stream=other)
    words.submit(1)
    view = words.word.view()
    while view[0] != 1:
        pass
    words.later.view().sum()
    other.sync(30)


POLLS = {
    name.removeprefix("poll_"): each for name, each in list(globals().items()) if name.startswith("poll_")
}


def poll_window(is_racy: bool) -> None:
    """Rank 0 writes data, then a word, into rank 1's window; rank 1 polls the word."""
    with pl.Group(window=1 << 16) as group:
        channel = group.channel(1 - group.rank, notifies=1)
        source = group.device.allocate(1 << 16)
        group.window.fill(0)
        source.fill(3)
        group.barrier()
        if group.rank == 0:
            stream = group.device.create_stream()
            if not is_racy:
                channel.write(source[8:], at=8, stream=stream)
            channel.write(source[:8], at=0, stream=stream)
            if is_racy:
                channel.write(source[8:], at=8, stream=stream)
            stream.sync(30)
        else:
            word = group.window[:8].view()
            while word[0] != 3:
                pass
            group.window[8:].view().sum()
        group.barrier()


def view_after_close(device: pl.Device, use: str) -> None:
    buffer = device.allocate(4096)
    buffer.fill(1)
    view = buffer.view()
    part = view[16:32]
    if use == "within block":
        with buffer.reading() as array:
            buffer.close()
            assert array[0] == 1
        return
    if use == "copied":
        view = view.copy()
    if use == "dropped":
        del buffer
        assert view[0] == 1
        return
    buffer.close()
    if use == "read":
        assert view[3] == 1
    elif use == "write":
        view[4] = 2
    elif use == "part":
        assert part.sum() == 16
    elif use == "copied":
        assert view.sum() == 4096


def main(case: str) -> None:
    if case.startswith("window"):
        poll_window(case == "window racy")
        return
    device = pl.devices()[0]
    if case in WAITS:
        descriptor(device, WAITS[case])
    elif case == "in thread":
        descriptor_in_thread(device)
    elif case.startswith("view "):
        view_after_close(device, case.removeprefix("view "))
    else:
        words = Words(device)
        POLLS[case](words)
        words.end()


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]))
