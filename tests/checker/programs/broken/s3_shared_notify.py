"""Each of four ranks writes to the next one by pyACL; two notifies that processes share order each round."""

import pickle

import acl

from peerlane.rendezvous import Rendezvous

SIZE, ROUNDS, SECONDS, KEY = 1 << 14, 4, 30, 65
HUGE_FIRST_P2P, DEVICE_TO_DEVICE = 3, 3
WITH_PEER_ACCESS, FOR_ANY_PROCESS = 1, 2


def call(name, *args):
    """Call a function of acl.rt that must succeed, and return its outputs."""
    result = getattr(acl.rt, name)(*args)
    *outputs, code = result if isinstance(result, tuple) else (result,)
    if code:
        raise SystemExit(f"{name}: {code}: {acl.get_recent_err_msg()}")
    return outputs[0] if len(outputs) == 1 else outputs


line = Rendezvous.from_environment()
rank, size = line.rank, line.size
after, before = (rank + 1) % size, (rank - 1) % size
call("set_device", rank)
for peer in (after, before):
    call("device_enable_peer_access", peer, 0)
inbox, block, result = (call("malloc", SIZE, HUGE_FIRST_P2P) for _ in range(3))
full, free = (call("create_notify", 0) for _ in range(2))
mine = (
    call("ipc_mem_get_export_key", inbox, SIZE, KEY, WITH_PEER_ACCESS),
    *(call("notify_get_export_key", each, KEY, FOR_ANY_PROCESS) for each in (full, free)),
)
keys = [pickle.loads(each) for each in line.gather("keys", pickle.dumps(mine))]
there = call("ipc_mem_import_by_key", keys[after][0], WITH_PEER_ACCESS)
full_there = call("notify_import_by_key", keys[after][1], 0)
free_there = call("notify_import_by_key", keys[before][2], 0)
stream = call("create_stream")
for number in range(ROUNDS):
    if number > 0:
        call("wait_and_reset_notify", free, stream, SECONDS)
    call("memset_async", block, SIZE, number, SIZE, stream)
    call("memcpy_async", there, SIZE, block, SIZE, DEVICE_TO_DEVICE, stream)
    call("record_notify", full_there, stream)
    if rank != 2 or number != 1:
        call("wait_and_reset_notify", full, stream, SECONDS)
    call("memcpy_async", result, SIZE, inbox, SIZE, DEVICE_TO_DEVICE, stream)
    if number + 1 < ROUNDS:
        call("record_notify", free_there, stream)
call("synchronize_stream", stream)
line.barrier("end")
