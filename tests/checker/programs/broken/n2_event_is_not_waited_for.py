"""Each of two ranks fills an array by one HIP stream, and copies it by another one."""

from hip import hip

import peerlane as pl

SIZE, ROUNDS = 1 << 14, 4


def check(result):
    """Return the outputs of a call that succeeded."""
    error, *outputs = result
    if error != hip.hipError_t.hipSuccess:
        raise RuntimeError(error.name)
    return outputs[0] if len(outputs) == 1 else outputs


group = pl.Group()
check(hip.hipSetDevice(group.rank))
source, target = check(hip.hipMalloc(SIZE)), check(hip.hipMalloc(SIZE))
producer, consumer = check(hip.hipStreamCreate()), check(hip.hipStreamCreate())
copied = check(hip.hipEventCreate())
for number in range(ROUNDS):
    if number > 0:
        check(hip.hipStreamWaitEvent(producer, copied, 0))
    check(hip.hipMemsetAsync(source, number, SIZE, producer))
    check(hip.hipMemcpyAsync(target, source, SIZE, hip.hipMemcpyKind.hipMemcpyDeviceToDevice, consumer))
    check(hip.hipEventRecord(copied, consumer))
check(hip.hipStreamSynchronize(producer))
check(hip.hipStreamSynchronize(consumer))
for pointer in (source, target):
    check(hip.hipFree(pointer))
group.barrier()
group.close()
