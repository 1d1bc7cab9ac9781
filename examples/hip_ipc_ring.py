"""Processes in a ring hand on each other's data through memory that they share by IPC handles.

Each process has a device and an inbox there, and opens the inbox of its right neighbour.  In every step it writes the
block that came last into that inbox, device to device; after as many steps as there are processes, less one, each has
seen the blocks of all.  Runs unmodified on hardware (``python hip_ipc_ring.py``) and on virtual devices
(``peerlane run hip_ipc_ring.py``).
"""

import argparse
import sys
from contextlib import ExitStack
from multiprocessing import get_context
from threading import BrokenBarrierError

import numpy as np
from hip import hip
from hip_checked import HipError, created, download, equal, hip_check, upload

SECONDS = 60


def block_of(rank, size):
    """Return the bytes that a process brings."""
    return np.random.default_rng(rank).integers(0, 256, size, dtype=np.uint8)


def gather(pipe, barrier, rank, ranks, size):
    """Be one process of the ring."""
    with ExitStack() as stack:
        count = hip_check(hip.hipGetDeviceCount())
        own, right = rank % count, (rank + 1) % ranks % count
        hip_check(hip.hipSetDevice(own))
        # Two places in turn: what came in the last step is sent on while the next block comes.
        inbox = stack.enter_context(created(hip.hipMalloc(2 * size), hip.hipFree))
        start = stack.enter_context(created(hip.hipMalloc(size), hip.hipFree))
        upload(start, block_of(rank, size))
        pipe.send(bytes(hip_check(hip.hipIpcGetMemHandle(inbox)).reserved))
        stack.callback(barrier.wait, SECONDS)  # nobody frees an inbox before all have closed it
        handle = pipe.recv()
        outbox = stack.enter_context(
            created(
                hip.hipIpcOpenMemHandle(handle, hip.hipIpcMemLazyEnablePeerAccess), hip.hipIpcCloseMemHandle
            )
        )
        source = int(start)
        for step in range(ranks - 1):
            offset = step % 2 * size
            hip_check(hip.hipMemcpyPeer(int(outbox) + offset, right, source, own, size))
            hip_check(hip.hipDeviceSynchronize())  # the copy does not wait for itself
            barrier.wait(SECONDS)
            source = int(inbox) + offset
            owner = (rank - 1 - step) % ranks
            content = download(source, np.zeros(size, np.uint8))
            equal(content, block_of(owner, size), f"the block of process {owner} in process {rank}")


def process(pipe, barrier, *args):
    """Run in the ring, and tell how it went."""
    try:
        gather(pipe, barrier, *args)
        pipe.send(None)
    except (HipError, BrokenBarrierError, EOFError) as error:
        barrier.abort()  # or the others would wait
        pipe.send(error)


def ring(ranks, size):
    """Start the processes, give each the handle of its neighbour's inbox, and wait for all."""
    spawn = get_context("spawn")
    barrier = spawn.Barrier(ranks)
    with ExitStack() as stack:
        pipes = []
        for rank in range(ranks):
            ours, theirs = spawn.Pipe()
            stack.enter_context(ours)
            child = spawn.Process(target=process, args=(theirs, barrier, rank, ranks, size), daemon=True)
            child.start()
            stack.callback(child.join, SECONDS)
            theirs.close()
            pipes.append(ours)
        handles = receive(pipes)
        for rank, pipe in enumerate(pipes):
            pipe.send(handles[(rank + 1) % ranks])
        receive(pipes)


def receive(pipes):
    """Return what each process sent; raise what went wrong in the first."""
    received = []
    for pipe in pipes:
        if not pipe.poll(SECONDS):
            raise HipError(f"a process sent nothing within {SECONDS} s")
        received.append(pipe.recv())
    for each in received:
        if isinstance(each, HipError):
            raise each
    return received


def main():
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--bytes", type=int, default=1_000_003)
    args = parser.parse_args()
    try:
        ring(args.processes, args.bytes)
    except (HipError, EOFError) as error:
        print(error or "a process has ended", file=sys.stderr)
        return 1
    print(
        f"{args.processes} blocks of {args.bytes} bytes went round {args.processes} processes, every byte verified"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
