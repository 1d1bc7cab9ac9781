"""What the rest of peerlane knows of HIP; ``dialects/_shared/manifests.py`` explains the names."""

MODULES = {
    "hip": "peerlane.dialects.hip",
    "hip.hip": "peerlane.dialects.hip.hip",
    "hip.hiprtc": "peerlane.dialects.hip.hiprtc",
    "hip.hiprtc_pyext": "peerlane.dialects.hip.hiprtc_pyext",
    "hip._util": "peerlane.dialects.hip.rocm.bindings.util",
    "hip._util.types": "peerlane.dialects.hip.binding.types",
    "rocm": "peerlane.dialects.hip.rocm",
    "rocm.version": "peerlane.dialects.hip.rocm.version",
    "rocm.bindings": "peerlane.dialects.hip.rocm.bindings",
    "rocm.bindings.hip": "peerlane.dialects.hip.hip",
    "rocm.bindings.hiprtc": "peerlane.dialects.hip.hiprtc",
    "rocm.bindings.hiprtc_pyext": "peerlane.dialects.hip.hiprtc_pyext",
    "rocm.bindings.util": "peerlane.dialects.hip.rocm.bindings.util",
    "rocm.bindings.util.types": "peerlane.dialects.hip.binding.types",
}
ENTRY = "hip.hip"
PROBE = """
import os
from hip import hip
try:
    error, count = hip.hipGetDeviceCount()
except RuntimeError:  # no libamdhip64.so
    os._exit(1)
os._exit(0 if int(error) == 0 and count > 0 else 1)
"""
PACKAGES = {"hip": "hip-python", "rocm": ""}
VARIABLES = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
ANEW = "peerlane.dialects.hip.state:begin_anew"
EXPLAIN = "peerlane.dialects.hip:explain"
REMEDY = (
    "Memory of hipMalloc ends with hipFree, streams and events with their destroy calls, or all of a device\n"
    "with hipDeviceReset, which ends handles of physical memory, reserved addresses and pools as well. Host memory\n"
    "has hipHostFree, and no reset ends it."
)
ORDERS = {
    "wait": "hipStreamWaitEvent",
    "record": "hipEventRecord",
    "token": "interprocess event",
    "own_record": "hipEventRecord",
    "own_wait": "hipStreamWaitEvent",
    "fifo": "",
    "barrier": "",
    "sync": "hipStreamSynchronize",
    "event": "hipStreamWaitEvent",
    "edge": "hipGraphAddDependencies",
}
LIBRARIES = {"amdhip64": "hip", "hiprtc": "hip"}
