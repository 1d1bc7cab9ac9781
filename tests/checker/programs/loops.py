"""A thread writes memory, and an event loop reads it: ``loops.py WAY``.

``WAY`` is how the two agree.  In ``unsynced`` the loop hears of a copy that may still run; in ``none`` they do not.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import peerlane as pl

SECONDS = 60
buffer = pl.devices()[0].allocate(64)
other = pl.devices()[0].allocate(64)
other.fill(2)
stream = pl.devices()[0].create_stream()


def write() -> None:
    buffer.view()[0] = 2


def copy() -> None:
    pl.copy(buffer, other, stream=stream)


def read() -> None:
    assert buffer.view()[0] in (0, 2)


async def signalled(signal: Callable[[asyncio.AbstractEventLoop, asyncio.Event], None]) -> None:
    """Let a thread tell the loop, and read."""
    came = asyncio.Event()
    thread = threading.Thread(target=signal, args=(asyncio.get_running_loop(), came))
    thread.start()
    await asyncio.wait_for(came.wait(), SECONDS)
    read()
    while thread.is_alive():  # a join would order the two
        await asyncio.sleep(0)


async def threadsafe() -> None:
    def signal(loop: asyncio.AbstractEventLoop, came: asyncio.Event) -> None:
        write()
        loop.call_soon_threadsafe(came.set)

    await signalled(signal)


async def none() -> None:
    def signal(loop: asyncio.AbstractEventLoop, came: asyncio.Event) -> None:
        loop.call_soon_threadsafe(came.set)
        write()

    await signalled(signal)


async def queue() -> None:
    passed: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def put() -> None:
        write()
        loop.call_soon_threadsafe(passed.put_nowait, 1)

    thread = threading.Thread(target=put)
    thread.start()
    assert await asyncio.wait_for(passed.get(), SECONDS) == 1
    read()
    thread.join()


async def to_thread() -> None:
    await asyncio.to_thread(write)
    read()


async def executor() -> None:
    with ThreadPoolExecutor(1) as pool:
        await asyncio.get_running_loop().run_in_executor(pool, write)
        read()


async def unsynced() -> None:
    await asyncio.to_thread(copy)
    read()
    stream.sync(SECONDS)


async def awaits() -> None:
    copy()
    await stream
    read()
    copy()
    await stream.record()
    read()


async def awaits_too_little() -> None:
    event = stream.record()
    copy()
    await event
    read()
    await stream


async def trio() -> None:
    """Do as ``awaits`` in the loop of trio, which looks at the locks of the program."""
    import trio as loop

    await asyncio.to_thread(loop.run, awaits)


async def coroutine() -> None:
    """Let a thread wait for what the loop does."""
    loop = asyncio.get_running_loop()

    async def write_in_the_loop() -> None:
        write()

    def wait() -> None:
        asyncio.run_coroutine_threadsafe(write_in_the_loop(), loop).result(SECONDS)
        read()

    await asyncio.to_thread(wait)


if __name__ == "__main__":
    buffer.fill(0)
    asyncio.run(globals()[sys.argv[1]]())
