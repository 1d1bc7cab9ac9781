"""The vendor's module ``toy``: its threads need a device, and its copies follow the work of both devices."""

from __future__ import annotations

from peerlane.dialects._shared.c_names import declarations_of
from peerlane.dialects.gpu.calls import HeaderCalls
from peerlane.dialects.gpu.gpu import Gpu
from peerlane.dialects.gpu.vendor import Policy, Reason, Vendor
from peerlane.errors import Fault

gpu = Gpu(
    Vendor(
        "Toy",
        codes={
            Fault.INVALID_VALUE: 1,
            Fault.OUT_OF_MEMORY: 2,
            Fault.UNSUPPORTED: 3,
            Fault.CLOSED: 4,
            Fault.INVALID_DEVICE: 5,
            Reason.NO_CONTEXT: 6,
            Reason.NOT_READY: 7,
            Reason.PEER_ENABLED: 8,
        },
        calls={
            "free": "toyFree",
            "free_async": "toyFreeAsync",
            "malloc": "toyMalloc",
            "device_count": "toyGetDeviceCount",
            "set_device": "toySetDevice",
        },
        policy=Policy(needs_context=True, cross_device="both"),
    )
)
explain, begin_anew = gpu.failures.take, gpu.begin_anew
calls = HeaderCalls(
    gpu.vendor,
    declarations_of("toy"),
    {"toyDevice": gpu.machine.device_of, "toyStream": gpu.streams.of, "toyEvent": gpu.events.of},
    gpu.failures.record,
)
for _name, _body in {
    "toyGetDeviceCount": lambda: len(gpu.machine.shown()),
    "toySetDevice": lambda device: gpu.machine.choose(device.ordinal),
    "toyGetDevice": lambda: gpu.machine.id_of(gpu.machine.ordinal),
    "toyEnablePeer": gpu.peers.enable,
    "toyDisablePeer": gpu.peers.disable,
    "toyMalloc": gpu.memory.allocate,
    "toyFree": lambda memory: gpu.memory.free(memory, "toyFree"),
    "toyMemset": lambda dst, value, size: gpu.memory.fill(None, dst, value, size),
    "toyMemsetAsync": lambda dst, value, size, stream: gpu.memory.fill(stream, dst, value, size),
    "toyMemcpy": gpu.copies.copy,
    "toyMemcpyAsync": lambda dst, src, size, stream: gpu.copies.copy_async(stream, dst, src, size),
    "toyMemcpyPeer": lambda dst, to, src, source, size: gpu.copies.copy_peer(to, source, dst, src, size),
    "toyStreamCreate": lambda: gpu.streams.create(0),
    "toyStreamDestroy": lambda stream: gpu.streams.destroy(stream, "toyStreamDestroy"),
    "toyStreamQuery": gpu.streams.query,
    "toyStreamSynchronize": gpu.streams.synchronize,
    "toyStreamWaitEvent": gpu.events.wait,
    "toyEventCreate": lambda: gpu.events.create(0),
    "toyEventRecord": gpu.events.record,
}.items():
    calls.define(_name, _body)
globals().update({name: calls.function(name) for name in declarations_of("toy").functions})
