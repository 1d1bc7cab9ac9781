"""Two processes share Ascend memory by a key, and take turns with notifies that they share as well.

The owner allocates, fills and exports; the guest imports both, waits on the device for the owner's notify, reads,
writes back, and records its own.  No process waits for the other but through the devices' notifies and the pipe
that the keys go through.
Runs unmodified on hardware (``python acl_ipc_key.py``) and on virtual devices (``peerlane run acl_ipc_key.py``).
"""

import argparse
import sys
from contextlib import ExitStack
from multiprocessing import get_context

import acl
import numpy as np
from acl_checked import AclError, created, equal, initialized, rt, using

HUGE_FIRST_P2P, HOST_TO_DEVICE, DEVICE_TO_HOST = 3, 1, 2
KEY_LENGTH, SECONDS = 65, 30


def pattern(size, seed):
    """Return bytes that both processes know."""
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def upload(pointer, data):
    """Copy an array to device memory."""
    rt.memcpy(pointer, data.size, acl.util.numpy_contiguous_to_ptr(data)[0], data.size, HOST_TO_DEVICE)


def download(pointer, size):
    """Return the bytes of device memory."""
    content = np.zeros(size, np.uint8)
    rt.memcpy(acl.util.numpy_contiguous_to_ptr(content)[0], size, pointer, size, DEVICE_TO_HOST)
    return content


def receive(pipe):
    """Return what the other process sent; raise what went wrong there."""
    if not pipe.poll(SECONDS):
        raise AclError(f"the other process sent nothing within {SECONDS} s")
    try:
        received = pipe.recv()
    except EOFError:
        raise AclError("the other process has ended") from None
    if isinstance(received, AclError):
        raise received
    return received


def wait_for(notify, stream):
    """Wait until a notify of this process's device is recorded."""
    rt.wait_and_reset_notify(notify, stream, SECONDS)
    rt.synchronize_stream(stream)


def owner(pipe, device, size):
    """Share memory, and two notifies: one that the guest waits for, which it made, and one of its own."""
    with ExitStack() as stack:
        stack.enter_context(using(device))
        stream = stack.enter_context(created("create_stream"))
        memory = stack.enter_context(created("malloc", size, HUGE_FIRST_P2P))
        answered = stack.enter_context(created("create_notify", 0))
        upload(memory, pattern(size, 1))
        key = rt.ipc_mem_get_export_key(memory, size, KEY_LENGTH, 0)
        stack.callback(rt.ipc_mem_close, key)
        answered_key = rt.notify_get_export_key(answered, KEY_LENGTH, 0)
        pid, written_key = receive(pipe)
        rt.ipc_mem_set_import_pid(key, [pid])
        rt.notify_set_import_pid(answered, [pid])
        pipe.send((key, answered_key))
        with created("notify_import_by_key", written_key, 0, undo="destroy_notify") as written:
            rt.record_notify(written, stream)
            rt.synchronize_stream(stream)
            wait_for(answered, stream)
        equal(download(memory, size), pattern(size, 2), "what the guest wrote")
        pipe.send("seen")
        receive(pipe)  # importers close first


def guest(pipe, device, size, owner_pid):
    """Read what the owner shares, and write it anew."""
    try:
        with initialized(), ExitStack() as stack:
            stack.enter_context(using(device))
            stream = stack.enter_context(created("create_stream"))
            written = stack.enter_context(created("create_notify", 0))
            written_key = rt.notify_get_export_key(written, KEY_LENGTH, 0)
            rt.notify_set_import_pid(written, [owner_pid])
            pipe.send((rt.device_get_bare_tgid(), written_key))
            key, answered_key = receive(pipe)
            with created("notify_import_by_key", answered_key, 0, undo="destroy_notify") as answered:
                memory = rt.ipc_mem_import_by_key(key, 0)
                stack.callback(rt.ipc_mem_close, key)
                wait_for(written, stream)
                equal(download(memory, size), pattern(size, 1), "what the owner wrote")
                upload(memory, pattern(size, 2))
                rt.record_notify(answered, stream)
                rt.synchronize_stream(stream)
                receive(pipe)
        pipe.send("closed")
    except AclError as error:
        pipe.send(error)


def main():
    """Start the guest, and be the owner."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--bytes", type=int, default=3_000_000)
    args = parser.parse_args()
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    other = None
    try:
        with initialized():
            with using(args.device):
                pid = rt.device_get_bare_tgid()
            other = spawn.Process(target=guest, args=(theirs, args.device, args.bytes, pid))
            other.start()
            theirs.close()
            owner(ours, args.device, args.bytes)
    except AclError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        ours.close()
        if other is not None:
            other.join(SECONDS)
            other.kill()
    print(
        f"{args.bytes} bytes of device {args.device} shared by a key, every byte verified in both processes"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
