"""Each of two ranks copies eight blocks to its device memory through one buffer there, by pyACL."""

import acl

import peerlane as pl

SIZE, BLOCKS, DEVICE_TO_DEVICE = 1 << 14, 8, 3


def ok(result):
    """Return the outputs of a call that succeeded."""
    *outputs, code = result if isinstance(result, tuple) else (result,)
    if code:
        raise RuntimeError(f"code {code}")
    return outputs[0] if len(outputs) == 1 else outputs


group = pl.Group()
ok(acl.rt.set_device(group.rank))
staging, cache = ok(acl.rt.malloc(SIZE, 0)), ok(acl.rt.malloc(BLOCKS * SIZE, 0))
stream = ok(acl.rt.create_stream())
for block in range(BLOCKS):
    ok(acl.rt.memset(staging, SIZE, block, SIZE))
    ok(acl.rt.memcpy_async(cache + block * SIZE, SIZE, staging, SIZE, DEVICE_TO_DEVICE, stream))
ok(acl.rt.synchronize_stream(stream))
ok(acl.rt.free(staging))
ok(acl.rt.free(cache))
group.barrier()
group.close()
