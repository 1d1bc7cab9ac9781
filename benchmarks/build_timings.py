"""What ``benchmarks against`` runs with each of two Pythons: it times the calls of that Python's peerlane.

It imports nothing of the build that started it.  The other build may be older or newer, so the program uses only what
each release has.  It prints one JSON object: ``build`` is the package's folder, ``seconds`` has
the time of each case, ``lacking`` says why this build cannot do a subject.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import timeit
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import Any

# Python puts the folder of this file first, and its modules belong to the build that started it.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

import numpy as np  # noqa: E402

import peerlane as pl  # noqa: E402

NODE = "devices=2,memory=1TiB,cache_bytes=0,schedule=eager"
SAMPLES = 7  # the quickest counts: a disturbance makes a sample longer, never shorter
SECONDS = 60.0
KIB, MIB = 1 << 10, 1 << 20

Timed = Iterator[tuple[str, Callable[[], float]]]


def looped(
    number: int, call: Callable[..., object], *arguments: object, **options: object
) -> Callable[[], float]:
    """Return a function that times ``number`` calls and returns the seconds of one."""
    names = [f"a{index}" for index in range(len(arguments))]
    argument_list = ", ".join([*names, *(f"{option}={option}" for option in options)])
    timer = timeit.Timer(
        f"call({argument_list})",
        setup=f"call, {', '.join([*names, *options])} = parts",
        globals={"parts": (call, *arguments, *options.values())},
    )
    return lambda: timer.timeit(number) / number


def copy(devices: Any, stack: ExitStack) -> Timed:
    for words, nbytes in (("64 KiB", 64 * KIB), ("1 MiB", MIB), ("64 MiB", 64 * MIB)):
        dst, src = _filled(devices[0], nbytes, stack), _filled(devices[0], nbytes, stack)
        yield f"copy {words}", looped(max(1, 64 * MIB // nbytes), pl.copy, dst, src)


def call(devices: Any, stack: ExitStack) -> Timed:
    dst, src = _filled(devices[0], 8, stack), _filled(devices[0], 8, stack)
    yield "call copying 8 bytes, neutral", looped(50_000, pl.copy, dst, src)
    yield "call copying 8 bytes, raw", looped(50_000, pl.raw.copy, dst.address, src.address, 8)
    from peerlane import dialects

    dialects.install("acl", shadow_real=True)
    import acl

    acl.init()
    acl.rt.set_device(0)
    (one, _), (other, _) = acl.rt.malloc(8, 0), acl.rt.malloc(8, 0)
    yield "call copying 8 bytes, acl", looped(50_000, acl.rt.memcpy, one, 8, other, 8, 3)
    dialects.install("hip", shadow_real=True)
    from hip import hip

    (_, first), (_, second) = hip.hipMalloc(8), hip.hipMalloc(8)
    hip.hipDeviceSynchronize()
    kind = hip.hipMemcpyKind.hipMemcpyDeviceToDevice
    yield "call copying 8 bytes, hip", looped(30_000, hip.hipMemcpy, first, second, 8, kind)


def submit(devices: Any, stack: ExitStack) -> Timed:
    dst, src = _filled(devices[0], 8, stack), _filled(devices[0], 8, stack)
    stream = stack.enter_context(devices[0].create_stream())
    gate = stack.enter_context(devices[0].create_notify())
    submissions = looped(50_000, pl.copy, dst, src, stream=stream)

    def idle() -> float:
        seconds = submissions()
        stream.sync()
        return seconds

    def behind() -> float:
        stream.wait(gate)
        seconds = submissions()
        gate.record()
        stream.sync()
        return seconds

    yield "submit 8 bytes, stream idle", idle
    yield "submit 8 bytes, behind a wait", behind


def batch(devices: Any, stack: ExitStack) -> Timed:
    count, block = 10_000, 4 * KIB
    dst, src = (_filled(devices[0], 2 * count * block, stack) for _ in range(2))
    blocks = np.random.default_rng(1).permutation(2 * count)
    ends = [whole[at * block : (at + 1) * block] for whole in (dst, src) for at in blocks[:count].tolist()]
    yield "batch of 10,000 blocks of 4 KiB", looped(1, pl.copy_batch, ends[:count], ends[count:])


def channel(devices: Any, stack: ExitStack) -> Timed:
    table = 100_000
    pipe = _partner("channel", stack)
    group = stack.enter_context(pl.Group(0, 2, rendezvous=_exchange_over(pipe, 0), window=8 * table))
    to = stack.enter_context(group.channel(1, notifies=2))
    block = _filled(group.device, 8, stack)

    def one_direction() -> float:
        pipe.send("again")
        return exchange(to, block, first=True)

    yield "8 bytes and a notify, one way", one_direction
    yield "write 8 bytes, at once", looped(50_000, to.write, block)
    stream = stack.enter_context(group.device.create_stream())
    writes = looped(50_000, to.write, block, stream=stream)

    def on_stream() -> float:
        seconds = writes()
        stream.sync()
        return seconds

    yield "write 8 bytes, on a stream", on_stream
    many = _filled(group.device, 8 * table, stack)
    at = np.arange(table, dtype=np.uint64) * 8
    blocks = np.stack([at, at, np.full_like(at, 8)], axis=1)
    in_table = looped(1, to.write_blocks, many, blocks)
    yield "write 8 bytes, in a table", lambda: in_table() / table
    pipe.send("end")


def collective(devices: Any, stack: ExitStack) -> Timed:
    pipe = _partner("collective", stack)
    group = stack.enter_context(pl.Group(0, 2, rendezvous=_exchange_over(pipe, 0)))
    for words, nbytes in (("64 bytes", 64), ("64 KiB", 64 * KIB), ("1 MiB", MIB)):
        elements = _filled(group.device, nbytes, stack)

        def again(elements: Any = elements, nbytes: int = nbytes) -> float:
            pipe.send(nbytes)
            return reduced(group, elements)

        yield f"all-reduce {words} over 2 processes", again
    pipe.send(0)


def exchange(to: Any, block: Any, *, first: bool, rounds: int = 5_000) -> float:
    """Return the seconds of a write with a notify until the other side has seen both: half of there and back."""
    write, wait = to.write, to.wait
    began = perf_counter()
    for _ in range(rounds):
        if first:
            write(block, at=64, notify=0)
            wait(0, timeout=SECONDS)
        else:
            wait(0, timeout=SECONDS)
            write(block, at=64, notify=0)
    return (perf_counter() - began) / (2 * rounds)


def reduced(group: Any, elements: Any, times: int = 50) -> float:
    """Return the seconds of one all-reduce."""
    group.barrier()
    began = perf_counter()
    for _ in range(times):
        group.all_reduce(elements, dtype="float32")
    return (perf_counter() - began) / times


def rank_1(subject: str, pipe: Connection[Any, Any]) -> None:
    """Run the other process of a subject."""
    pl.enter_node(NODE)
    with ExitStack() as stack:
        window = 800_000 if subject == "channel" else 1 << 20
        group = stack.enter_context(pl.Group(1, 2, rendezvous=_exchange_over(pipe, 1), window=window))
        if subject == "channel":
            to = stack.enter_context(group.channel(0, notifies=2))
            block = _filled(group.device, 8, stack)
            while pipe.recv() == "again":
                exchange(to, block, first=False)
        else:
            while nbytes := pipe.recv():
                with group.device.allocate(nbytes) as elements:
                    elements.fill(0)
                    reduced(group, elements)


def _partner(subject: str, stack: ExitStack) -> Connection[Any, Any]:
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=rank_1, args=(subject, theirs), daemon=True)
    process.start()
    theirs.close()
    stack.callback(process.join, SECONDS)
    return mine


def _exchange_over(pipe: Connection[Any, Any], rank: int) -> Callable[[bytes], list[bytes]]:
    def exchanged(mine: bytes) -> list[bytes]:
        pipe.send_bytes(mine)
        theirs = pipe.recv_bytes()
        return [mine, theirs] if rank == 0 else [theirs, mine]

    return exchanged


def _filled(device: Any, nbytes: int, stack: ExitStack) -> Any:
    """Return memory whose pages were all touched."""
    memory = stack.enter_context(device.allocate(nbytes))
    memory.fill(0)
    return memory


SUBJECTS = {each.__name__: each for each in (copy, call, submit, batch, channel, collective)}


def main(subjects: list[str]) -> None:
    """Time the subjects and print what was found."""
    seconds: dict[str, float] = {}
    lacking: dict[str, str] = {}
    devices = pl.enter_node(NODE)
    for subject in subjects:
        with ExitStack() as stack:
            try:
                for case, sample in SUBJECTS[subject](devices, stack):
                    sample()  # warms up, and does not count
                    seconds[case] = min(sample() for _ in range(SAMPLES))
            except (AttributeError, ImportError, TypeError) as error:  # this release lacks something
                lacking[subject] = f"{type(error).__name__}: {error}"
    print(json.dumps({"build": str(Path(pl.__file__).parent), "seconds": seconds, "lacking": lacking}))


if __name__ == "__main__":
    main(sys.argv[1:])
