"""A buffer that grows where it is: addresses reserved once, physical memory mapped behind what there is.

This is how caches grow without copying, and without a pointer changing: the address range is large and costs nothing,
each step maps one more block behind the last, and the end of the buffer may be given back in the same way.
Runs unmodified on hardware (``python acl_growing_buffer.py``) and on virtual devices
(``peerlane run acl_growing_buffer.py``).
"""

import argparse
import sys
from contextlib import ExitStack

import acl
import numpy as np
from acl_checked import AclError, created, equal, initialized, rt, using

HBM_MEM_HUGE, LOCATION_DEVICE, RECOMMENDED = 4, 1, 1
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


class GrowingBuffer:
    """Device memory at one address for good, of a size that changes in steps of a granule."""

    def __init__(self, stack, device, most):
        self._property = {"memAttr": HBM_MEM_HUGE, "location": {"id": device, "type": LOCATION_DEVICE}}
        self.granule = rt.mem_get_allocation_granularity(self._property, RECOMMENDED)
        reserved = -(-most // self.granule) * self.granule
        self.address = stack.enter_context(
            created("reserve_mem_address", reserved, 0, 0, 1, undo="release_mem_address")
        )
        self._blocks = []
        stack.callback(self.resize, 0)

    @property
    def size(self):
        """Bytes that may be used."""
        return len(self._blocks) * self.granule

    def resize(self, size):
        """Have at least ``size`` bytes, and no granule more."""
        while self.size < size:
            with created("malloc_physical", self.granule, self._property, 0, undo="free_physical") as block:
                # The mapping keeps the block: its handle is not needed any more.
                rt.map_mem(self.address + self.size, self.granule, 0, block, 0)
            self._blocks.append(block)
        while self.size - self.granule >= size:
            self._blocks.pop()
            rt.unmap_mem(self.address + self.size)


def grow(device, mib, steps):
    """Append pieces that do not fit granules; compare the whole at the end, and after it shrank."""
    piece = (mib << 20) // steps + 777
    content = np.random.default_rng(2).integers(0, 256, piece * steps, dtype=np.uint8)
    with ExitStack() as stack:
        stack.enter_context(using(device))
        buffer = GrowingBuffer(stack, device, content.size)
        for step in range(steps):
            at = step * piece
            buffer.resize(at + piece)
            part = content[at : at + piece]
            rt.memcpy(
                buffer.address + at, piece, acl.util.numpy_contiguous_to_ptr(part)[0], piece, HOST_TO_DEVICE
            )
        for size in (content.size, content.size // 3):
            buffer.resize(size)
            received = np.zeros(size, np.uint8)
            rt.memcpy(
                acl.util.numpy_contiguous_to_ptr(received)[0], size, buffer.address, size, DEVICE_TO_HOST
            )
            equal(received, content[:size], f"the buffer of {size} bytes")
        return content.size


def main():
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--mib", type=int, default=24)
    parser.add_argument("--steps", type=int, default=10)
    args = parser.parse_args()
    try:
        with initialized():
            size = grow(args.device, args.mib, args.steps)
    except AclError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"grown to {size} bytes in {args.steps} steps at one address, every byte verified")
    return 0


if __name__ == "__main__":
    sys.exit(main())
