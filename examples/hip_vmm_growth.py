"""A buffer that grows where it is: addresses reserved once, physical memory mapped behind what there is.

This is how caches grow without copying, and without a pointer changing: the reservation is large and costs nothing,
each step maps one more block behind the last, and the end of the buffer is given back in the same way.
Runs unmodified on hardware (``python hip_vmm_growth.py``) and on virtual devices
(``peerlane run hip_vmm_growth.py``).
"""

import argparse
import sys
from contextlib import ExitStack

import numpy as np
from hip import hip
from hip_checked import HipError, created, download, equal, hip_check, upload


class GrowingBuffer:
    """Device memory at one address for good, of a size that changes in steps of a granule."""

    def __init__(self, stack, device, most):
        location = hip.hipMemLocation(type=hip.hipMemLocationType.hipMemLocationTypeDevice, id=device)
        self._prop = hip.hipMemAllocationProp(type=hip.hipMemAllocationType.hipMemAllocationTypePinned)
        self._access = hip.hipMemAccessDesc(flags=hip.hipMemAccessFlags.hipMemAccessFlagsProtReadWrite)
        for each in (self._prop.location, self._access.location):
            each.type, each.id = location.type, location.id
        option = hip.hipMemAllocationGranularity_flags.hipMemAllocationGranularityRecommended
        self.granule = hip_check(hip.hipMemGetAllocationGranularity(self._prop, option))
        reserved = -(-most // self.granule) * self.granule
        self.address = int(
            stack.enter_context(
                created(hip.hipMemAddressReserve(reserved, 0, None, 0), hip.hipMemAddressFree, reserved)
            )
        )
        self.size = 0
        stack.callback(self.resize, 0)

    def resize(self, size):
        """Have at least ``size`` bytes, and no granule more."""
        while self.size < size:
            end = self.address + self.size
            # The mapping keeps the block: its handle is not needed any more.
            with created(hip.hipMemCreate(self.granule, self._prop, 0), hip.hipMemRelease) as block:
                hip_check(hip.hipMemMap(end, self.granule, 0, block, 0))
            hip_check(hip.hipMemSetAccess(end, self.granule, self._access, 1))
            self.size += self.granule
        while self.size - self.granule >= size:
            self.size -= self.granule
            hip_check(hip.hipMemUnmap(self.address + self.size, self.granule))


def grow(device, mib, steps):
    """Append pieces that do not fit granules; compare the whole at the end, and after it shrank."""
    piece = (mib << 20) // steps + 777
    content = np.random.default_rng(2).integers(0, 256, piece * steps, dtype=np.uint8)
    hip_check(hip.hipSetDevice(device))
    with ExitStack() as stack:
        buffer = GrowingBuffer(stack, device, content.size)
        for start in range(0, content.size, piece):
            buffer.resize(start + piece)
            upload(buffer.address + start, content[start : start + piece])
        for size in (content.size, content.size // 3):
            buffer.resize(size)
            received = download(buffer.address, np.zeros(size, np.uint8))
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
        size = grow(args.device, args.mib, args.steps)
    except HipError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"grown to {size} bytes in {args.steps} steps at one address, every byte verified")
    return 0


if __name__ == "__main__":
    sys.exit(main())
