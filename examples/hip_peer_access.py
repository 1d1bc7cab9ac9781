"""Each call of HIP's page on peer-to-peer access, between two AMD devices; every byte is verified.

Runs unmodified on hardware (``python hip_peer_access.py``) and on virtual devices
(``peerlane run hip_peer_access.py``).
"""

import argparse
import sys
from contextlib import ExitStack

import numpy as np
from hip import hip
from hip_checked import HipError, hip_check

HOST_TO_DEVICE = hip.hipMemcpyKind.hipMemcpyHostToDevice
DEVICE_TO_HOST = hip.hipMemcpyKind.hipMemcpyDeviceToHost


def allocate(stack, device, size):
    """Return memory of a device, which ``stack`` frees."""
    hip_check(hip.hipSetDevice(device))
    array = hip_check(hip.hipMalloc(size))
    stack.callback(hip.hipFree, array)
    return array


def enable(stack, device, peer):
    """Let a device reach a peer's memory; ``stack`` ends it.  It is the current device's."""
    if not hip_check(hip.hipDeviceCanAccessPeer(device, peer)):
        raise HipError(f"device {device} cannot access device {peer}")
    hip_check(hip.hipSetDevice(device))
    error = hip.hipDeviceEnablePeerAccess(peer, 0)
    if error[0] != hip.hipError_t.hipErrorPeerAccessAlreadyEnabled:
        hip_check(error)
        stack.callback(disable, device, peer)


def disable(device, peer):
    """End what ``enable`` began."""
    hip_check(hip.hipSetDevice(device))
    hip_check(hip.hipDeviceDisablePeerAccess(peer))


def find_allocation(array, size):
    """Ask for the allocation around an address in the middle of it."""
    base, size_of_range = hip_check(hip.hipMemGetAddressRange(int(array) + size // 2))
    if (int(base), size_of_range) != (int(array), size):
        raise HipError(
            f"the allocation of {size} bytes at {int(array):#x} is reported as {size_of_range} at {int(base):#x}"
        )


def round_trip(first, a, second, b, size):
    """Send random bytes to device ``a``, on to ``b`` and back, and compare."""
    sent = np.random.default_rng().integers(0, 256, size, dtype=np.uint8)
    came = np.zeros_like(sent)
    hip_check(hip.hipSetDevice(a))
    stream = hip_check(hip.hipStreamCreate())
    try:
        hip_check(hip.hipMemcpy(first, sent, size, HOST_TO_DEVICE))
        hip_check(hip.hipMemcpyPeer(second, b, first, a, size))  # the host does not wait
        hip_check(hip.hipMemset(first, 0, size))  # follows it, as the copy is in the order of both devices
        hip_check(hip.hipDeviceSynchronize())
        hip_check(hip.hipMemcpyPeerAsync(first, a, second, b, size, stream))
        hip_check(hip.hipStreamSynchronize(stream))
        hip_check(hip.hipMemcpy(came, first, size, DEVICE_TO_HOST))
    finally:
        hip.hipStreamDestroy(stream)
    wrong = int(np.count_nonzero(sent != came))
    if wrong:
        raise HipError(f"{wrong} of {size} bytes differ")


def main():
    """Run the page between the two devices of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, nargs=2, default=(0, 1), metavar=("A", "B"))
    parser.add_argument("--mib", type=int, default=8, help="MiB to copy (default 8)")
    args = parser.parse_args()
    (a, b), size = args.devices, args.mib << 20
    try:
        with ExitStack() as stack:
            enable(stack, a, b)
            enable(stack, b, a)
            first, second = allocate(stack, a, size), allocate(stack, b, size)
            for array in (first, second):
                find_allocation(array, size)
            round_trip(first, a, second, b, size)
        for device, peer in ((a, b), (b, a)):
            hip_check(hip.hipSetDevice(device))
            error = hip.hipDeviceDisablePeerAccess(peer)[0]
            if error != hip.hipError_t.hipErrorPeerAccessNotEnabled:
                raise HipError(
                    f"access from {device} to {peer} was ended, and is said to be enabled: {error.name}"
                )
    except HipError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{args.mib} MiB from device {a} to {b} and back, every byte verified")
    return 0


if __name__ == "__main__":
    sys.exit(main())
