"""Share physical memory of an Ascend device between two processes, A and B, and verify every byte.

Process A allocates, maps, fills and exports; it lists process B, which imports, reads and writes back.
Runs unmodified on hardware (``python acl_shareable_handle.py``) and on virtual devices
(``peerlane run acl_shareable_handle.py``).
"""

import argparse
import sys
from contextlib import ExitStack
from multiprocessing import get_context

import acl
import numpy as np

HBM_MEM_HUGE = 4
LOCATION_DEVICE = 1
GRANULARITY_RECOMMENDED = 1
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
REPEAT_INITIALIZE = 100002
SECONDS = 30


class AclError(Exception):
    """A call did not return 0, the other process did not answer, or bytes differ."""


def check(ret, what):
    """Raise with the runtime's own words unless ``ret`` is 0."""
    if ret != 0:
        raise AclError(f"{what} returned {ret}\n{acl.get_recent_err_msg() or ''}".rstrip())


def value(result, what):
    """Return the output of a call that worked."""
    output, ret = result
    check(ret, what)
    return output


def undo(call, argument):
    """Call, and report a failure without raising: the rest must be undone as well."""
    ret = call(argument)
    if ret != 0:
        print(f"{call.__name__}({argument}) returned {ret}\n{acl.get_recent_err_msg()}", file=sys.stderr)


def begin(stack, device):
    """Initialize this process and set its device; ``stack`` undoes it."""
    ret = acl.init()
    if ret != REPEAT_INITIALIZE:
        check(ret, "init")
    stack.callback(acl.finalize)
    check(acl.rt.set_device(device), f"set_device({device})")
    stack.callback(undo, acl.rt.reset_device, device)


def mapped(stack, handle, size):
    """Return an address at which physical memory is mapped; ``stack`` undoes it."""
    pointer = value(acl.rt.reserve_mem_address(size, 0, 0, 1), "reserve_mem_address")
    stack.callback(undo, acl.rt.release_mem_address, pointer)
    check(acl.rt.map_mem(pointer, size, 0, handle, 0), "map_mem")
    stack.callback(undo, acl.rt.unmap_mem, pointer)
    return pointer


def write(pointer, array):
    """Copy an array to the device."""
    check(acl.rt.memcpy(pointer, array.nbytes, array.ctypes.data, array.nbytes, HOST_TO_DEVICE), "memcpy in")


def read(pointer, size):
    """Return bytes of the device."""
    array = np.zeros(size, np.uint8)
    check(acl.rt.memcpy(array.ctypes.data, size, pointer, size, DEVICE_TO_HOST), "memcpy out")
    return array


def receive(pipe):
    """Return what the other process sends; one that failed or ended is an AclError."""
    try:
        if not pipe.poll(SECONDS):
            raise AclError(f"the other process sent nothing within {SECONDS} s")
        message = pipe.recv()
    except (EOFError, ConnectionError) as error:
        raise AclError("the other process ended early") from error
    if isinstance(message, AclError):
        raise message
    return message


def pattern(size, seed):
    """Return bytes that both processes can make."""
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def verify(content, seed):
    """Raise unless every byte is the pattern's."""
    wrong = int(np.count_nonzero(content != pattern(content.size, seed)))
    if wrong:
        raise AclError(f"{wrong} of {content.size} bytes differ")


def process_a(pipe, device, mib):
    """Allocate, export to process B, and read what it wrote."""
    with ExitStack() as stack:
        begin(stack, device)
        prop = {
            "handleType": 0,
            "allocationType": 0,
            "memAttr": HBM_MEM_HUGE,
            "location": {"id": device, "type": LOCATION_DEVICE},
            "reserve": 0,
        }
        granularity = value(
            acl.rt.mem_get_allocation_granularity(prop, GRANULARITY_RECOMMENDED),
            "mem_get_allocation_granularity",
        )
        size = -(-(mib << 20) // granularity) * granularity
        handle = value(acl.rt.malloc_physical(size, prop, 0), f"malloc_physical({size})")
        stack.callback(undo, acl.rt.free_physical, handle)
        pointer = mapped(stack, handle, size)
        write(pointer, pattern(size, 1))
        shareable = value(
            acl.rt.mem_export_to_shareable_handle(handle, 0, 0), "mem_export_to_shareable_handle"
        )
        # Only when B runs is it known: a number that is listed before its process starts counts for nothing.
        pid = receive(pipe)
        check(
            acl.rt.mem_set_pid_to_shareable_handle(shareable, [pid]),
            f"mem_set_pid_to_shareable_handle({pid})",
        )
        pipe.send((shareable, size))
        receive(pipe)
        verify(read(pointer, size), 2)
        return size


def process_b(pipe, device):
    """Import what process A exports, read it and write it back."""
    try:
        with ExitStack() as stack:
            begin(stack, device)
            pipe.send(value(acl.rt.device_get_bare_tgid(), "device_get_bare_tgid"))
            shareable, size = receive(pipe)
            handle = value(
                acl.rt.mem_import_from_shareable_handle(shareable, device), "mem_import_from_shareable_handle"
            )
            stack.callback(undo, acl.rt.free_physical, handle)
            pointer = mapped(stack, handle, size)
            verify(read(pointer, size), 1)
            write(pointer, pattern(size, 2))
        pipe.send("written")
    except AclError as error:
        pipe.send(error)


def main():
    """Start process B, and be process A."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=int, default=0, help="whose memory it is (default 0)")
    parser.add_argument("--mib", type=int, default=8, help="MiB to share (default 8)")
    args = parser.parse_args()
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    other = spawn.Process(target=process_b, args=(theirs, args.device))
    other.start()
    theirs.close()
    try:
        size = process_a(ours, args.device, args.mib)
    except AclError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        ours.close()
        other.join(SECONDS)
        other.kill()
    print(f"{size >> 20} MiB of device {args.device} shared by two processes, every byte verified in both")
    return 0


if __name__ == "__main__":
    sys.exit(main())
