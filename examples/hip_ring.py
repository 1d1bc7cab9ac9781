"""All AMD devices in a ring: each passes a block to the next until all are back home; every byte is verified.

Runs unmodified on hardware (``python hip_ring.py``) and on virtual devices (``peerlane run hip_ring.py``).
Each device has two blocks and a stream of its own; events order the streams, the host only waits at the end.
"""

import argparse
import sys

import numpy as np
from hip import hip
from hip_checked import HipError, hip_check

HOST_TO_DEVICE = hip.hipMemcpyKind.hipMemcpyHostToDevice
DEVICE_TO_HOST = hip.hipMemcpyKind.hipMemcpyDeviceToHost
DISABLE_TIMING = 2


class Station:
    """One device of the ring: two blocks, which take turns in holding what it has, and its stream."""

    def __init__(self, device, data):
        self.device, self.size = device, data.nbytes
        hip_check(hip.hipSetDevice(device))
        self.blocks = [hip_check(hip.hipMalloc(self.size)) for _ in range(2)]
        self.stream = hip_check(hip.hipStreamCreate())
        self.passed = hip_check(hip.hipEventCreateWithFlags(DISABLE_TIMING))
        hip_check(hip.hipMemcpy(self.blocks[0], data, self.size, HOST_TO_DEVICE))

    def open_to(self, peer):
        """Enable access to the next device, where there is any."""
        if hip_check(hip.hipDeviceCanAccessPeer(self.device, peer)):
            hip_check(hip.hipSetDevice(self.device))
            error = hip.hipDeviceEnablePeerAccess(peer, 0)
            if error[0] != hip.hipError_t.hipErrorPeerAccessAlreadyEnabled:
                hip_check(error)

    def pass_to(self, other, step):
        """Queue the copy of what is here to where the next one has room."""
        src, dst = self.blocks[step % 2], other.blocks[(step + 1) % 2]
        hip_check(hip.hipSetDevice(self.device))
        hip_check(hip.hipMemcpyPeerAsync(dst, other.device, src, self.device, self.size, self.stream))
        hip_check(hip.hipEventRecord(self.passed, self.stream))

    def follow(self, *others):
        """Let what is queued next wait for the last copy of others."""
        for other in others:
            hip_check(hip.hipStreamWaitEvent(self.stream, other.passed, 0))

    def contents(self, step):
        """Wait, and return what is here after so many steps."""
        hip_check(hip.hipSetDevice(self.device))
        hip_check(hip.hipStreamSynchronize(self.stream))
        content = np.empty(self.size, np.uint8)
        hip_check(hip.hipMemcpy(content, self.blocks[step % 2], self.size, DEVICE_TO_HOST))
        return content

    def close(self):
        """Give back what it has."""
        hip_check(hip.hipSetDevice(self.device))
        hip_check(hip.hipEventDestroy(self.passed))
        hip_check(hip.hipStreamDestroy(self.stream))
        for block in self.blocks:
            hip_check(hip.hipFree(block))


def run(stations, steps):
    """Pass every block so many devices on."""
    count = len(stations)
    for station in stations:
        station.open_to(stations[(station.device + 1) % count].device)
    for step in range(steps):
        for at, station in enumerate(stations):
            station.pass_to(stations[(at + 1) % count], step)
        for at, station in enumerate(stations):
            # The one before must have brought its block, the one behind must have read what comes next is written to.
            station.follow(stations[at - 1], stations[(at + 1) % count])


def main():
    """Run the ring of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=1, help="MiB of each block (default 1)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each block goes round (default 3)")
    parser.add_argument("--shift", type=int, default=1, help="devices by which it goes further (default 1)")
    args = parser.parse_args()
    size = args.mib << 20
    try:
        count = hip_check(hip.hipGetDeviceCount())
        if count < 2:
            raise HipError(f"a ring needs 2 devices; there are {count}")
        data = np.random.default_rng().integers(0, 256, (count, size), dtype=np.uint8)
        stations = [Station(device, data[device]) for device in range(count)]
        steps = args.rounds * count + args.shift
        run(stations, steps)
        for station in stations:
            wrong = int(np.count_nonzero(station.contents(steps) != data[(station.device - steps) % count]))
            if wrong:
                raise HipError(f"{wrong} of {size} bytes differ on device {station.device}")
        for station in stations:
            station.close()
    except HipError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{args.mib} MiB blocks of {count} devices passed on {steps} times in a ring, every byte verified")
    return 0


if __name__ == "__main__":
    sys.exit(main())
