"""Contexts and threads: each worker thread has a context of its own on an Ascend device, or shares the device's.

A stream belongs to the context it was created in; a thread that has another one gets 107003.
Runs unmodified on hardware (``python acl_contexts.py``) and on virtual devices (``peerlane run acl_contexts.py``).
"""

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import acl
import numpy as np
from acl_checked import AclError, created, equal, initialized, rt, using

HUGE_FIRST, DEVICE_TO_HOST = 0, 2
STREAM_CONTEXT = 107003
SIZE = 1 << 20


def fill_and_read(value):
    """Fill memory with a value on a stream of the current context, and read it back."""
    with ExitStack() as stack:
        pointer = stack.enter_context(created("malloc", SIZE, HUGE_FIRST))
        stream = stack.enter_context(created("create_stream"))
        rt.memset_async(pointer, SIZE, value, SIZE, stream)
        rt.synchronize_stream(stream)
        content = np.zeros(SIZE, np.uint8)
        rt.memcpy(acl.util.numpy_contiguous_to_ptr(content)[0], SIZE, pointer, SIZE, DEVICE_TO_HOST)
        equal(content, np.full(SIZE, value, np.uint8), f"memory filled with {value}")


def in_own_context(device, value):
    """Work in a context that this thread made, and destroys."""
    with created("create_context", device):
        fill_and_read(value)


def in_shared_context(context, value):
    """Work in a context that another thread made."""
    rt.set_context(context)
    fill_and_read(value)


def run(device, threads):
    """Run workers of both kinds at once; return how many."""
    with using(device), ThreadPoolExecutor(threads) as pool:
        shared = rt.get_context()
        work = [pool.submit(in_own_context, device, number) for number in range(threads)]
        work += [pool.submit(in_shared_context, shared, 100 + number) for number in range(threads)]
        for each in work:
            each.result()
        with created("create_stream") as stream, created("create_context", device):
            if acl.rt.synchronize_stream(stream) != STREAM_CONTEXT:
                raise AclError("a stream of another context was accepted")
            acl.get_recent_err_msg()
            rt.set_context(shared)
        return len(work)


def main():
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--threads", type=int, default=4)
    args = parser.parse_args()
    try:
        with initialized():
            count = run(args.device, args.threads)
    except AclError as error:
        print(error, file=sys.stderr)
        return 1
    print(
        f"{count} workers on device {args.device}, in contexts of their own and in a shared one, every byte verified"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
