"""What the rest of peerlane knows of CUDA; ``dialects/_shared/manifests.py`` explains the names."""

MODULES: dict[str, str] = {}
PACKAGES = {
    "cuda.core": "cuda-core",
    "cuda.bindings": "cuda-bindings",
    "pynvml": "nvidia-ml-py",
    "cupy": "",
    "numba_cuda": "numba-cuda",
    "nccl": "nccl4py",
}
DRIVERS = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/usr/lib/wsl/lib/libcuda.so.1")
VARIABLES = ("CUDA_VISIBLE_DEVICES", "CUDA_LOG_FILE", "NCCL_DEBUG")
ANEW = "peerlane.dialects.cuda.state:begin_anew"
EXPLAIN = "peerlane.dialects.cuda.state:explain"
TOPOLOGY = "peerlane.dialects.cuda.paths:shown"
REMEDY = (
    "Memory of cuMemAlloc ends with cuMemFree, streams and events with their destroy calls, or all of a device with\n"
    "the last cuDevicePrimaryCtxRelease. Host memory has cuMemFreeHost, and no release ends it.\n"
    "Communicators of NCCL end with ncclCommDestroy or ncclCommAbort."
)
ORDERS = {
    "wait": "cuStreamWaitEvent",
    "record": "cuEventRecord",
    "token": "interprocess event",
    "own_record": "cuEventRecord",
    "own_wait": "cuStreamWaitEvent",
    "fifo": "",
    "barrier": "",
    "sync": "cuStreamSynchronize",
    "event": "cuStreamWaitEvent",
    "edge": "cuGraphAddDependencies",
}
_SIGNALS = {"wait": "ncclWaitSignal", "record": "ncclSignal", "token": "signal"}
ORDERS_OF = {
    "cuda": {
        key: f"cuda{ORDERS[key].removeprefix('cu')}"
        for key in ("wait", "record", "own_record", "own_wait", "sync", "event", "edge")
    },
    "ncclPutSignal": _SIGNALS,
    "ncclSignal": _SIGNALS,
}
LIBRARIES = {
    "cuda.1": "cuda",
    "cudart.13": "cudart",
    "cudart.12": "cudart12",
    "nvidia-ml.1": "nvml",
    "nccl.2": "nccl",
}
