"""Gather blocks on an Ascend device with one copy descriptor that the device itself rewrites between launches.

A program that replays fixed launches (a graph) cannot pass new addresses to them.  Here every step is the same two
calls: a copy within the device puts the next prepared descriptor over the one that is launched, and the launch
copies what that says when it starts.  The host waits once, at the end.

Runs unmodified on hardware (``python acl_copy_with_desc.py``) and on virtual devices
(``peerlane run acl_copy_with_desc.py``).
"""

import argparse
import sys
from contextlib import ExitStack

import acl
import numpy as np

HUGE_FIRST = 0
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, INNER_DEVICE_TO_DEVICE = 1, 2, 3, 6
REPEAT_INITIALIZE = 100002
ALIGNMENT = 64


class AclError(Exception):
    """A call did not return 0, or bytes differ."""


def check(ret, what):
    """Raise with the runtime's own words unless ``ret`` is 0."""
    if ret != 0:
        raise AclError(f"{what} returned {ret}\n{acl.get_recent_err_msg() or ''}".rstrip())


def undo(call, argument):
    """Call, and report a failure without raising: the rest must be undone as well."""
    ret = call(argument)
    if ret != 0:
        print(f"{call.__name__}({argument}) returned {ret}\n{acl.get_recent_err_msg()}", file=sys.stderr)


def allocate(stack, size):
    """Return device memory that ``stack`` frees."""
    pointer, ret = acl.rt.malloc(size, HUGE_FIRST)
    check(ret, f"malloc({size})")
    stack.callback(undo, acl.rt.free, pointer)
    return pointer


def prepare(stack, source, target, order, size):
    """Return the descriptors of all steps, one behind the other, and their distance."""
    desc_size, ret = acl.rt.get_memcpy_desc_size(INNER_DEVICE_TO_DEVICE)
    check(ret, "get_memcpy_desc_size")
    distance = -(-desc_size // ALIGNMENT) * ALIGNMENT
    table = allocate(stack, distance * (len(order) + 1))
    for step, block in enumerate(order):
        _, ret = acl.rt.set_memcpy_desc(
            table + step * distance,
            INNER_DEVICE_TO_DEVICE,
            source + block * size,
            target + step * size,
            size,
            0,
        )
        check(ret, f"set_memcpy_desc of step {step}")
    return table, distance


def gather(table, distance, steps, stream):
    """Queue all steps: the same descriptor is launched each time, and rewritten before."""
    launched = table + steps * distance
    for step in range(steps):
        ret = acl.rt.memcpy_async(
            launched, distance, table + step * distance, distance, DEVICE_TO_DEVICE, stream
        )
        check(ret, f"memcpy_async of descriptor {step}")
        check(
            acl.rt.memcpy_async_with_desc(launched, INNER_DEVICE_TO_DEVICE, stream),
            f"memcpy_async_with_desc of step {step}",
        )
    check(acl.rt.synchronize_stream(stream), "synchronize_stream")


def run(stack, device, steps, size):
    """Gather shuffled blocks and compare every byte."""
    check(acl.rt.set_device(device), f"set_device({device})")
    stack.callback(undo, acl.rt.reset_device, device)
    stream, ret = acl.rt.create_stream()
    check(ret, "create_stream")
    stack.callback(undo, acl.rt.destroy_stream, stream)

    random = np.random.default_rng()
    blocks = random.integers(0, 256, (steps, size), dtype=np.uint8)
    order = random.permutation(steps)
    source, target = allocate(stack, blocks.nbytes), allocate(stack, blocks.nbytes)
    ret = acl.rt.memcpy(source, blocks.nbytes, blocks.ctypes.data, blocks.nbytes, HOST_TO_DEVICE)
    check(ret, "copy to the device")
    table, distance = prepare(stack, source, target, [int(block) for block in order], size)
    gather(table, distance, steps, stream)

    came = np.zeros_like(blocks)
    ret = acl.rt.memcpy(came.ctypes.data, came.nbytes, target, came.nbytes, DEVICE_TO_HOST)
    check(ret, "copy to the host")
    wrong = int(np.count_nonzero(came != blocks[order]))
    if wrong:
        raise AclError(f"{wrong} of {blocks.nbytes} bytes differ")


def main():
    """Run the gathering on the device of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--steps", type=int, default=64, help="blocks to gather (default 64)")
    parser.add_argument("--bytes", type=int, default=4096, help="bytes of a block (default 4096)")
    args = parser.parse_args()
    try:
        ret = acl.init()
        if ret != REPEAT_INITIALIZE:
            check(ret, "init")
        with ExitStack() as stack:
            stack.callback(acl.finalize)
            run(stack, args.device, args.steps, args.bytes)
        print(
            f"{args.steps} blocks of {args.bytes} bytes gathered through one descriptor, every byte verified"
        )
    except AclError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
