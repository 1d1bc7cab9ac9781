"""A paged KV cache moves between two Ascend devices: gathered by descriptors, copied across at once, scattered.

pyACL's copy descriptors hold one copy within one device each.  So the blocks of a sequence are gathered into a
staging buffer on their device by one descriptor a block, cross to the other device as a single copy, and are
scattered there by descriptors again.  ``kv_cache.py`` does it with one launch of one list.
Runs unmodified on hardware (``python acl_kv_cache.py``) and on virtual devices (``peerlane run acl_kv_cache.py``).
"""

import argparse
import sys
import time
from contextlib import ExitStack

import acl
import numpy as np
from acl_checked import AclError, created, equal, initialized, rt, using

HUGE_FIRST_P2P = 3
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, INNER_DEVICE_TO_DEVICE = 1, 2, 3, 6
ALIGNMENT = 64


class Side:
    """The pages, the staging buffer, the descriptors and the stream of one device."""

    def __init__(self, stack, device, peer, pages, blocks, block):
        self.device, self.block = device, block
        stack.enter_context(using(device))
        rt.device_enable_peer_access(peer, 0)
        stack.callback(rt.device_disable_peer_access, peer)
        self.pages = stack.enter_context(created("malloc", pages * block, HUGE_FIRST_P2P))
        self.staging = stack.enter_context(created("malloc", blocks * block, HUGE_FIRST_P2P))
        size = rt.get_memcpy_desc_size(INNER_DEVICE_TO_DEVICE)
        self._distance = -(-size // ALIGNMENT) * ALIGNMENT
        self._descriptors = stack.enter_context(created("malloc", blocks * self._distance, HUGE_FIRST_P2P))
        self.stream = stack.enter_context(created("create_stream"))
        self.done = stack.enter_context(created("create_event"))
        stack.callback(rt.set_device, device)  # what was made on a device is undone while it is set

    def prepare(self, order, *, gathers):
        """Write one descriptor a block: from its page to its place in the staging buffer, or back."""
        for index, page in enumerate(order):
            ends = self.pages + int(page) * self.block, self.staging + index * self.block
            source, target = ends if gathers else ends[::-1]
            at = self._descriptors + index * self._distance
            rt.set_memcpy_desc(at, INNER_DEVICE_TO_DEVICE, source, target, self.block, 0)

    def launch(self, blocks):
        """Queue all descriptors."""
        for index in range(blocks):
            at = self._descriptors + index * self._distance
            rt.memcpy_async_with_desc(at, INNER_DEVICE_TO_DEVICE, self.stream)


def run(devices, blocks, block):
    """Move one sequence; return the seconds from the first launch to the last byte."""
    rng = np.random.default_rng(4)
    pages = 2 * blocks
    content = rng.integers(0, 256, (pages, block), dtype=np.uint8)
    taken, assigned = rng.permutation(pages)[:blocks], rng.permutation(pages)[:blocks]
    with ExitStack() as stack:
        near, far = (Side(stack, a, b, pages, blocks, block) for a, b in (devices, devices[::-1]))
        far.prepare(assigned, gathers=False)
        rt.memset(far.pages, content.size, 0, content.size)
        rt.set_device(near.device)
        near.prepare(taken, gathers=True)
        rt.memcpy(
            near.pages,
            content.size,
            acl.util.numpy_contiguous_to_ptr(content)[0],
            content.size,
            HOST_TO_DEVICE,
        )
        began = time.perf_counter()
        near.launch(blocks)
        size = blocks * block
        rt.memcpy_async(far.staging, size, near.staging, size, DEVICE_TO_DEVICE, near.stream)
        rt.record_event(near.done, near.stream)
        rt.set_device(far.device)
        rt.stream_wait_event(far.stream, near.done)
        far.launch(blocks)
        rt.synchronize_stream(far.stream)
        seconds = time.perf_counter() - began
        received, expected = np.zeros_like(content), np.zeros_like(content)
        rt.memcpy(
            acl.util.numpy_contiguous_to_ptr(received)[0],
            received.size,
            far.pages,
            received.size,
            DEVICE_TO_HOST,
        )
        expected[assigned] = content[taken]
        equal(received, expected, "the pages of the other device")
        return seconds


def main():
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, nargs=2, default=[0, 1])
    parser.add_argument("--blocks", type=int, default=10_000)
    parser.add_argument("--block-bytes", type=int, default=4096)
    args = parser.parse_args()
    try:
        with initialized():
            seconds = run(args.devices, args.blocks, args.block_bytes)
    except AclError as error:
        print(error, file=sys.stderr)
        return 1
    speed = args.blocks * args.block_bytes / seconds / 1e9
    print(
        f"{args.blocks:,} blocks of {args.block_bytes:,} bytes from device {args.devices[0]} to device "
        f"{args.devices[1]}, every byte verified: {speed:.2f} GB/s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
