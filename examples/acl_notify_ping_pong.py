"""Ping-pong: two Ascend devices send a buffer to and fro, ordered by notifies alone.

Everything is queued before anything is waited for.  Each device waits for the other's notify, copies the buffer from
there, changes its own byte of it, and records the notify that the other waits for.
Runs unmodified on hardware (``python acl_notify_ping_pong.py``) and on virtual devices
(``peerlane run acl_notify_ping_pong.py``).
"""

import argparse
import sys
from contextlib import ExitStack

import acl
import numpy as np
from acl_checked import AclError, created, equal, initialized, rt, using

HUGE_FIRST_P2P, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 3, 2, 3
SECONDS = 30


class Player:
    """A device's buffer, stream, and the notify that it waits for."""

    def __init__(self, stack, device, peer, size):
        self.device = device
        stack.enter_context(using(device))
        rt.device_enable_peer_access(peer, 0)
        stack.callback(rt.device_disable_peer_access, peer)
        self.memory = stack.enter_context(created("malloc", size, HUGE_FIRST_P2P))
        self.stream = stack.enter_context(created("create_stream"))
        self.turn = stack.enter_context(created("create_notify", 0))
        stack.callback(rt.set_device, device)  # what was made on a device is undone while it is set
        rt.memset(self.memory, size, 0, size)


def play(devices, rounds, size):
    """Queue all rounds, then wait; return the buffer where it ends."""
    with ExitStack() as stack:
        first, second = (Player(stack, a, b, size) for a, b in (devices, devices[::-1]))
        me, other = first, second
        for number in range(rounds):
            rt.set_device(me.device)
            if number:
                rt.wait_and_reset_notify(me.turn, me.stream, SECONDS)
                rt.memcpy_async(me.memory, size, other.memory, size, DEVICE_TO_DEVICE, me.stream)
            at = number % size
            rt.memset_async(me.memory + at, size - at, number % 251 + 1, 1, me.stream)
            rt.record_notify(other.turn, me.stream)
            me, other = other, me
        for player in (first, second):
            rt.set_device(player.device)
            rt.synchronize_stream(player.stream)
        rt.set_device(other.device)
        content = np.zeros(size, np.uint8)
        rt.memcpy(acl.util.numpy_contiguous_to_ptr(content)[0], size, other.memory, size, DEVICE_TO_HOST)
        rt.notify_batch_reset([first.turn, second.turn])
        return content


def main():
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, nargs=2, default=[0, 1])
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--bytes", type=int, default=4096)
    args = parser.parse_args()
    try:
        with initialized():
            content = play(args.devices, args.rounds, args.bytes)
        expected = np.zeros(args.bytes, np.uint8)
        for number in range(args.rounds):
            expected[number % args.bytes] = number % 251 + 1
        equal(content, expected, "the buffer after the last round")
    except AclError as error:
        print(error, file=sys.stderr)
        return 1
    print(
        f"{args.rounds} rounds between devices {args.devices[0]} and {args.devices[1]}, every byte verified"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
