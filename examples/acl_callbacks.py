"""Callbacks: a thread of the program takes blocks off an Ascend stream as they arrive in host memory.

The stream copies block after block into pinned memory; after each one a callback hands it to Python.  A callback runs
in the thread that called ``process_report``, and blocks its stream (``block_type`` 1) until it returns.
Runs unmodified on hardware (``python acl_callbacks.py``) and on virtual devices (``peerlane run acl_callbacks.py``).
"""

import argparse
import sys
import threading
from contextlib import ExitStack, contextmanager

import acl
import numpy as np
from acl_checked import AclError, created, equal, initialized, rt, using

HUGE_FIRST, HOST_TO_DEVICE, DEVICE_TO_HOST = 0, 1, 2
BLOCKING = 1
SIZE = 64 << 10


@contextmanager
def reporter(device):
    """Run a thread that serves callbacks, and yield its number."""
    stop = threading.Event()

    def serve():
        rt.set_device(device)
        while not stop.is_set():
            acl.rt.process_report(100)  # 507012 when nothing arrived in time
        rt.reset_device(device)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield thread.ident
    finally:
        stop.set()
        thread.join()


def receive(device, blocks):
    """Send blocks to the device and take them back through one slot of pinned memory; return them."""
    content = np.random.default_rng(1).integers(0, 256, (blocks, SIZE), dtype=np.uint8)
    arrived = []
    with ExitStack() as stack:
        stack.enter_context(using(device))
        memory = stack.enter_context(created("malloc", blocks * SIZE, HUGE_FIRST))
        rt.memcpy(
            memory, blocks * SIZE, acl.util.numpy_contiguous_to_ptr(content)[0], blocks * SIZE, HOST_TO_DEVICE
        )
        slot = stack.enter_context(created("malloc_host", SIZE))
        seen = acl.util.ptr_to_numpy(slot, (SIZE,), np.dtype(np.uint8).num)
        stream = stack.enter_context(created("create_stream"))
        thread = stack.enter_context(reporter(device))
        rt.subscribe_report(thread, stream)
        for block in range(blocks):
            rt.memcpy_async(slot, SIZE, memory + block * SIZE, SIZE, DEVICE_TO_HOST, stream)
            # The next copy into the slot waits for this call to return.
            rt.launch_callback(lambda number: arrived.append((number, seen.copy())), block, BLOCKING, stream)
        rt.synchronize_stream(stream)
        rt.unsubscribe_report(thread, stream)
    if [number for number, _ in arrived] != list(range(blocks)):
        raise AclError(f"callbacks ran in the order {[number for number, _ in arrived]}")
    for number, block in arrived:
        equal(block, content[number], f"block {number}")


def main():
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--blocks", type=int, default=20)
    args = parser.parse_args()
    try:
        with initialized():
            receive(args.device, args.blocks)
    except AclError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{args.blocks} blocks handed over by callbacks in order, every byte verified")
    return 0


if __name__ == "__main__":
    sys.exit(main())
