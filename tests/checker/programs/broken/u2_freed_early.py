"""Each of two ranks copies a block to its device memory by pyACL, and frees the source."""

import acl
import numpy as np

import peerlane as pl

SIZE, DEVICE_TO_DEVICE = 1 << 16, 3


def ok(result):
    """Return the outputs of a call that succeeded."""
    *outputs, code = result if isinstance(result, tuple) else (result,)
    if code:
        raise RuntimeError(f"code {code}")
    return outputs[0] if len(outputs) == 1 else outputs


group = pl.Group()
ok(acl.rt.set_device(group.rank))
stream = ok(acl.rt.create_stream())
source, target = ok(acl.rt.malloc(SIZE, 0)), ok(acl.rt.malloc(SIZE, 0))
values = np.full(SIZE, group.rank, dtype=np.uint8)
ok(acl.rt.memcpy(source, SIZE, values.ctypes.data, SIZE, 1))
ok(acl.rt.memcpy_async(target, SIZE, source, SIZE, DEVICE_TO_DEVICE, stream))
ok(acl.rt.free(source))
ok(acl.rt.synchronize_stream(stream))
ok(acl.rt.free(target))
group.barrier()
group.close()
