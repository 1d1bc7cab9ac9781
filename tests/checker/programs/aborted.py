"""Operations that a program gives up, and then uses their memory again: ``aborted.py racy|right``.

The second access of each kind has its name at the end of its line.
"""

import contextlib
import gc
import sys
import threading

import peerlane as pl
from peerlane.errors import Cancelled

SIZE = 8 << 20
ROUNDS = 3
KINDS = (
    "aborted",
    "closed",
    "left",
    "forced",
    "released write",
    "released read",
    "removed",
    "deregistered",
    "early",
)


def pair():
    return [each.allocate(SIZE) for each in pl.devices()[:2]]


def give_up_streams():
    source, target = pair()
    source.fill(1)
    stream = pl.devices()[0].create_stream()
    target.copy_from(source, stream=stream)
    stream.abort()
    source.fill(2)  # aborted
    with_close = pl.devices()[0].create_stream()
    other_source, other_target = pair()
    other_source.fill(1)
    other_target.copy_from(other_source, stream=with_close)
    with_close.abort(close=True)
    other_target.fill(2)  # closed
    last_source, last_target = pair()
    last_source.fill(1)
    try:
        with pl.devices()[0].create_stream() as left:
            last_target.copy_from(last_source, stream=left)
            raise KeyError
    except KeyError:
        last_target.fill(2)  # left


def force_an_acl_stream():
    import acl

    source, target = (acl.rt.malloc(SIZE, 0)[0] for _ in range(2))
    acl.rt.memset(source, SIZE, 1, SIZE)
    stream, _ = acl.rt.create_stream()
    acl.rt.memcpy_async(target, SIZE, source, SIZE, 3, stream)
    assert acl.rt.destroy_stream_force(stream) == 0
    acl.rt.memset(target, SIZE, 2, SIZE)  # forced


def agents(name):
    from nixl._api import nixl_agent

    near, far = nixl_agent(f"near {name}"), nixl_agent(f"far {name}")
    source, target = pair()
    registered = near.register_memory([(source.address, SIZE, 0, "")], "VRAM")
    far.register_memory([(target.address, SIZE, 1, "")], "VRAM")
    near.add_remote_agent(far.get_agent_metadata())
    source.fill(1)
    target.fill(1)
    return near, far, source, target, registered


def begun(name, operation="WRITE"):
    near, far, source, target, registered = agents(name)
    mine = near.get_xfer_descs([(source.address, SIZE, 0)], "VRAM")
    theirs = near.get_xfer_descs([(target.address, SIZE, 1)], "VRAM")
    handle = near.initialize_xfer(operation, mine, theirs, far.name, b"")
    near.transfer(handle)
    return near, far, source, target, registered, handle


def give_up_transfers(number):
    near, far, source, _, _, handle = begun(f"write {number}")
    near.release_xfer_handle(handle)
    source.fill(2)  # released write
    near, far, source, _, _, handle = begun(f"read {number}", "READ")
    near.release_xfer_handle(handle)
    bytes(source[:8])  # released read
    near, far, _, target, _, handle = begun(f"removed {number}")
    near.remove_remote_agent(far.name)
    target.fill(2)  # removed
    near, far, source, _, registered, handle = begun(f"deregistered {number}")
    near.deregister_memory(registered)
    source.fill(2)  # deregistered
    near, far, source, _, _, handle = begun(f"early {number}")
    threading.Event().wait(0.05)
    source.view()[:] = 2  # early
    done(near, handle)


def done(near, handle):
    while near.check_xfer_state(handle) != "DONE":
        pass


def end_streams():
    source, target = pair()
    source.fill(1)
    stream = pl.devices()[0].create_stream()
    target.copy_from(source, stream=stream)
    stream.abort()
    with contextlib.suppress(Cancelled):
        stream.sync()
    source.fill(2)
    target.copy_from(source, stream=stream)
    event = stream.record()
    stream.abort()
    with contextlib.suppress(Cancelled):
        event.sync()
    target.fill(2)
    with contextlib.suppress(Cancelled):
        stream.sync()
    target.copy_from(source, stream=stream)
    stream.sync()
    stream.abort()
    source.fill(3)
    notify = pl.devices()[0].create_notify()
    stream.wait(notify)
    target.copy_from(source, stream=stream)  # it never begins
    stream.abort()
    target.fill(3)


def end_an_acl_stream():
    import acl

    source, target = (acl.rt.malloc(SIZE, 0)[0] for _ in range(2))
    acl.rt.memset(source, SIZE, 1, SIZE)
    stream, _ = acl.rt.create_stream()
    acl.rt.memcpy_async(target, SIZE, source, SIZE, 3, stream)
    assert acl.rt.stream_abort(stream) == 0  # it waits for what runs
    acl.rt.memset(target, SIZE, 2, SIZE)
    acl.rt.memcpy_async(target, SIZE, source, SIZE, 3, stream)
    acl.rt.destroy_stream(stream)
    acl.rt.memset(source, SIZE, 2, SIZE)


def end_transfers(number):
    from nixl._bindings import nixlRemoteDisconnectError

    near, far, source, target, registered, handle = begun(f"right write {number}")
    done(near, handle)
    near.release_xfer_handle(handle)
    source.fill(2)
    target.fill(2)
    near, far, source, target, registered, handle = begun(f"right read {number}", "READ")
    waiter = threading.Thread(target=done, args=(near, handle))
    waiter.start()
    waiter.join()
    bytes(source[:8])
    target.fill(2)
    near.transfer(handle)
    done(near, handle)
    near.release_xfer_handle(handle)
    near.deregister_memory(registered)
    near.remove_remote_agent(far.name)
    source.fill(3)
    near, far, source, target, _, handle = begun(f"right gone {number}")
    del far
    gc.collect()
    with contextlib.suppress(nixlRemoteDisconnectError):  # as DONE, it says that the transfer is over
        done(near, handle)
    source.fill(4)
    target.fill(4)


if __name__ == "__main__":
    import acl

    acl.init()
    acl.rt.set_device(0)
    for number in range(ROUNDS):
        if sys.argv[1] == "racy":
            give_up_streams()
            force_an_acl_stream()
            give_up_transfers(number)
        else:
            end_streams()
            end_an_acl_stream()
            end_transfers(number)
