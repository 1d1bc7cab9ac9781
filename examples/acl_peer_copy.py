"""Copy between two Ascend devices over peer access, there and back, and verify every byte.

Runs unmodified on hardware (``python acl_peer_copy.py``) and on virtual devices
(``peerlane run acl_peer_copy.py``).
"""

import argparse
import sys
from contextlib import ExitStack

import acl
import numpy as np

HUGE_FIRST_P2P = 3
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3
REPEAT_INITIALIZE = 100002


class AclError(Exception):
    """A call did not return 0, or bytes differ."""


def check(ret, what):
    """Raise with the runtime's own words unless ``ret`` is 0."""
    if ret != 0:
        raise AclError(f"{what} returned {ret}\n{acl.get_recent_err_msg() or ''}".rstrip())


def prepare(stack, device, peer, size):
    """Open the direction from ``device`` to ``peer`` and return memory of ``device``; ``stack`` undoes it."""
    check(acl.rt.set_device(device), f"set_device({device})")
    stack.callback(undo, acl.rt.reset_device, device)
    reachable, ret = acl.rt.device_can_access_peer(device, peer)
    check(ret, f"device_can_access_peer({device}, {peer})")
    if not reachable:
        raise AclError(f"there is no peer access between device {device} and device {peer}")
    check(acl.rt.device_enable_peer_access(peer, 0), f"device_enable_peer_access({peer}) on {device}")
    stack.callback(disable, device, peer)
    pointer, ret = acl.rt.malloc(size, HUGE_FIRST_P2P)
    check(ret, f"malloc({size}) on {device}")
    stack.callback(undo, acl.rt.free, pointer)
    return pointer


def disable(device, peer):
    """Close one direction; it is the current device's, so set that for the while."""
    undo(acl.rt.set_device, device)
    undo(acl.rt.device_disable_peer_access, peer)
    undo(acl.rt.reset_device, device)


def undo(call, argument):
    """Call, and report a failure without raising: the rest must be undone as well."""
    ret = call(argument)
    if ret != 0:
        print(f"{call.__name__}({argument}) returned {ret}\n{acl.get_recent_err_msg()}", file=sys.stderr)


def copy(dst, src, size, kind, what):
    """Copy ``size`` bytes; both ends have room for exactly these."""
    check(acl.rt.memcpy(dst, size, src, size, kind), what)


def round_trip(first, second, size):
    """Send random bytes to the first device, on to the second, back, and compare."""
    sent = np.random.default_rng().integers(0, 256, size, dtype=np.uint8)
    came = np.zeros_like(sent)
    copy(first, sent.ctypes.data, size, HOST_TO_DEVICE, "copy from the host to the first device")
    copy(second, first, size, DEVICE_TO_DEVICE, "copy from the first device to the second")
    check(acl.rt.memset(first, size, 0, size), "memset on the first device")
    copy(first, second, size, DEVICE_TO_DEVICE, "copy from the second device to the first")
    copy(came.ctypes.data, first, size, DEVICE_TO_HOST, "copy from the first device to the host")
    wrong = int(np.count_nonzero(sent != came))
    if wrong:
        raise AclError(f"{wrong} of {size} bytes differ")


def main():
    """Run the copy between the two devices of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, nargs=2, default=(0, 1), metavar=("A", "B"))
    parser.add_argument("--mib", type=int, default=8, help="MiB to copy (default 8)")
    args = parser.parse_args()
    a, b = args.devices
    size = args.mib << 20
    try:
        ret = acl.init()
        if ret != REPEAT_INITIALIZE:
            check(ret, "init")
        with ExitStack() as stack:
            stack.callback(acl.finalize)
            first = prepare(stack, a, b, size)
            second = prepare(stack, b, a, size)
            round_trip(first, second, size)
            print(
                f"{acl.get_soc_name()}: {args.mib} MiB from device {a} to {b} and back, every byte verified"
            )
    except AclError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
