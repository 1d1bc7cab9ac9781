"""Memory and copies on one Ascend device: pinned host memory, asynchronous copies, rectangles, fills.

A matrix goes to the device row by row into a padded layout, is copied there, comes back, and is compared.
Runs unmodified on hardware (``python acl_memory.py``) and on virtual devices (``peerlane run acl_memory.py``).
"""

import argparse
import sys
from contextlib import ExitStack

import acl
import numpy as np
from acl_checked import AclError, created, equal, initialized, rt, using

HUGE_FIRST = 0
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3
PITCH_UNIT = 512


def pinned(stack, nbytes):
    """Return pinned host memory and an array over it: copies from and to it do not block."""
    pointer = stack.enter_context(created("malloc_host", nbytes))
    return pointer, acl.util.ptr_to_numpy(pointer, (nbytes,), np.dtype(np.uint8).num)


def round_trip(rows, columns):
    """Copy a matrix to a padded layout on the device, within it, and back."""
    pitch = -(-columns // PITCH_UNIT) * PITCH_UNIT
    size, padded = rows * columns, rows * pitch
    with ExitStack() as stack:
        source, there = pinned(stack, size)
        target, back = pinned(stack, size)
        there[:] = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
        back[:] = 0
        first = stack.enter_context(created("malloc", padded, HUGE_FIRST))
        second = stack.enter_context(created("malloc", padded, HUGE_FIRST))
        stream = stack.enter_context(created("create_stream"))
        rt.memset_async(first, padded, 0xEE, padded, stream)
        rt.memcpy2d_async(first, pitch, source, columns, columns, rows, HOST_TO_DEVICE, stream)
        rt.memcpy_async(second, padded, first, padded, DEVICE_TO_DEVICE, stream)
        rt.memcpy2d_async(target, columns, second, pitch, columns, rows, DEVICE_TO_HOST, stream)
        rt.synchronize_stream(stream)
        equal(back, there, "the matrix that came back")
        whole = np.zeros(padded, np.uint8)  # pageable: the synchronous copy
        rt.memcpy(acl.util.numpy_contiguous_to_ptr(whole)[0], padded, second, padded, DEVICE_TO_HOST)
        padding = whole.reshape(rows, pitch)[:, columns:]
        equal(padding, np.full_like(padding, 0xEE), "the padding")


def main():
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--columns", type=int, default=3001, help="bytes of a row")
    parser.add_argument("--device", type=int, default=0)
    args = parser.parse_args()
    try:
        with initialized(), using(args.device):
            round_trip(args.rows, args.columns)
    except AclError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{args.rows} rows of {args.columns} bytes to device {args.device} and back, every byte verified")
    return 0


if __name__ == "__main__":
    sys.exit(main())
