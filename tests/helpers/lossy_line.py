"""A line between this network and a namespace that loses frames: two TAP devices, and this process between them.

``python lossy_line.py NAMESPACE DEVICE SEED SHARE`` makes DEVICE here and ``lossy`` there, says ``ready``, and
carries frames until it is killed.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import select
import struct
import sys
from pathlib import Path

_TUNSETIFF = 0x400454CA
_TAP, _NO_INFORMATION = 0x0002, 0x1000
_LONGEST = 65_536


def _tap(name: str) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH", name.encode(), _TAP | _NO_INFORMATION))
    return descriptor


def main(namespace: str, device: str, seed: int, share: float) -> None:
    """Make the devices, and carry frames between them."""
    near = _tap(device)
    with Path("/var/run/netns", namespace).open() as namespace_file:
        if ctypes.CDLL(None, use_errno=True).setns(namespace_file.fileno(), 0):
            raise OSError(ctypes.get_errno(), "setns")
    there = _tap("lossy")  # it is in the namespace of the process that makes it
    print("ready", flush=True)
    draw = random.Random(seed)
    other = {near: there, there: near}
    while True:
        for descriptor in select.select([near, there], [], [])[0]:
            try:
                frame = os.read(descriptor, _LONGEST)
                if draw.random() >= share:
                    os.write(other[descriptor], frame)
            except BlockingIOError:  # its queue is full: one more that is lost
                continue
            except OSError:  # the other device is not up yet
                continue


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
