"""NCCL's codes, and the refusals that have them (facts/cuda 8.2)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.vendor import Policy, Reason, Vendor
from peerlane.errors import Error, Fault
from peerlane.support.libraries import binding

#: The enumerators of each enumeration of the header.
enums: dict[str, dict[str, int]] = binding("nccl")["enums"]
_RESULTS = enums["ncclResult_t"]
SUCCESS, UNHANDLED_CUDA_ERROR = _RESULTS["ncclSuccess"], _RESULTS["ncclUnhandledCudaError"]
SYSTEM_ERROR, INTERNAL_ERROR = _RESULTS["ncclSystemError"], _RESULTS["ncclInternalError"]
INVALID_ARGUMENT, INVALID_USAGE = _RESULTS["ncclInvalidArgument"], _RESULTS["ncclInvalidUsage"]
REMOTE_ERROR, IN_PROGRESS = _RESULTS["ncclRemoteError"], _RESULTS["ncclInProgress"]
TIMEOUT = _RESULTS["ncclTimeout"]
NAMES_OF_RESULTS = {value: name for name, value in _RESULTS.items()}

_CODES: dict[Reason | Fault, int] = {
    Fault.INVALID_VALUE: INVALID_ARGUMENT,
    **dict.fromkeys(
        (
            *(Fault.OUT_OF_MEMORY, Fault.HOST_FAULT, Fault.READ_ONLY, Fault.NO_ACCESS, Fault.DEVICE_FAULT),
            *(Fault.PEER_UNREACHABLE, Fault.PEER_NOT_ENABLED, Fault.CALLBACK_FAILED),
        ),
        UNHANDLED_CUDA_ERROR,
    ),
    **dict.fromkeys((Fault.OUT_OF_RESOURCES, Fault.OTHER_USER, Fault.FOREIGN_NAMESPACE), SYSTEM_ERROR),
    **dict.fromkeys((Fault.CANCELLED, Fault.PROCESS_ENDING), INTERNAL_ERROR),
    **dict.fromkeys(
        (
            *(Fault.UNSUPPORTED, Fault.BAD_CONFIG, Fault.NODE_MISMATCH, Fault.CLOSED, Fault.FORKED),
            *(Fault.BUSY, Fault.DEADLOCK, Fault.HANDLE_VERSION),
        ),
        INVALID_USAGE,
    ),
    Fault.PEER_LOST: REMOTE_ERROR,
    Fault.WAIT_TIMEOUT: TIMEOUT,
}
_NAMES = {
    "malloc": "cuMemAlloc or ncclMemAlloc",
    "malloc_host": "cuMemHostAlloc",
    "free": "cuMemFree or ncclMemFree",
    "memory_info": "cuMemGetInfo",
    "reference": "docs/reference/cuda.md",
    "reset": "cuDevicePrimaryCtxReset",
    "device_count": "cuDeviceGetCount",
}

vendor = Vendor("NCCL", _CODES, _NAMES, Policy())


def invalid(cause: str, remedy: str) -> Refusal:
    """Return the refusal of an argument: the call has no effect, and the communicator still works."""
    return Refusal(INVALID_ARGUMENT, cause, remedy)


def misuse(cause: str, remedy: str) -> Refusal:
    """Return the refusal of a call that does not fit those before it."""
    return Refusal(INVALID_USAGE, cause, remedy)


@contextlib.contextmanager
def of_driver(code: int = UNHANDLED_CUDA_ERROR) -> Iterator[None]:
    """Give refusals of the driver's calls a code of NCCL."""
    try:
        yield
    except Refusal as error:
        raise Refusal(code, str(error), error.remedy) from None


def refusal_of(error: Error) -> Refusal:
    """Return the refusal for an error of the core; ranks that disagree have used the calls wrongly."""
    cause, remedy = vendor.explain(error)
    code = INVALID_USAGE if error.fault is Fault.INVALID_VALUE else vendor.code(error.fault)
    return Refusal(code, cause, remedy)
