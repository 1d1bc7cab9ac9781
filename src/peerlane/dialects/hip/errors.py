"""``hip``: error codes, their names, and the last one (facts/hip 0.10, 2)."""

from __future__ import annotations

from typing import Any

from peerlane.dialects.hip.binding.arguments import shape_of
from peerlane.dialects.hip.binding.convention import SUCCESS, hipError_t
from peerlane.dialects.hip.binding.results import text
from peerlane.dialects.hip.log import log
from peerlane.dialects.hip.state import calls

# The words of the vendor's runtime for a code; it has "unknown error" for the others.
_WORDS = {
    "hipSuccess": "no error",
    "hipErrorInvalidValue": "invalid argument",
    "hipErrorOutOfMemory": "out of memory",
    "hipErrorNotInitialized": "initialization error",
    "hipErrorDeinitialized": "driver shutting down",
    "hipErrorProfilerDisabled": "profiler disabled while using external profiling tool",
    "hipErrorProfilerNotInitialized": "profiler is not initialized",
    "hipErrorProfilerAlreadyStarted": "profiler already started",
    "hipErrorProfilerAlreadyStopped": "profiler already stopped",
    "hipErrorInvalidConfiguration": "invalid configuration argument",
    "hipErrorInvalidPitchValue": "invalid pitch argument",
    "hipErrorInvalidSymbol": "invalid device symbol",
    "hipErrorInvalidDevicePointer": "invalid device pointer",
    "hipErrorInvalidMemcpyDirection": "invalid copy direction for memcpy",
    "hipErrorInsufficientDriver": "driver version is insufficient for runtime version",
    "hipErrorMissingConfiguration": "__global__ function call is not configured",
    "hipErrorPriorLaunchFailure": "unspecified launch failure in prior launch",
    "hipErrorInvalidDeviceFunction": "invalid device function",
    "hipErrorNoDevice": "no ROCm-capable device is detected",
    "hipErrorInvalidDevice": "invalid device ordinal",
    "hipErrorInvalidImage": "device kernel image is invalid",
    "hipErrorInvalidContext": "invalid device context",
    "hipErrorContextAlreadyCurrent": "context is already current context",
    "hipErrorMapFailed": "mapping of buffer object failed",
    "hipErrorUnmapFailed": "unmapping of buffer object failed",
    "hipErrorArrayIsMapped": "array is mapped",
    "hipErrorAlreadyMapped": "resource already mapped",
    "hipErrorNoBinaryForGpu": "no kernel image is available for execution on the device",
    "hipErrorAlreadyAcquired": "resource already acquired",
    "hipErrorNotMapped": "resource not mapped",
    "hipErrorNotMappedAsArray": "resource not mapped as array",
    "hipErrorNotMappedAsPointer": "resource not mapped as pointer",
    "hipErrorECCNotCorrectable": "uncorrectable ECC error encountered",
    "hipErrorUnsupportedLimit": "limit is not supported on this architecture",
    "hipErrorContextAlreadyInUse": "exclusive-thread device already in use by a different thread",
    "hipErrorPeerAccessUnsupported": "peer access is not supported between these two devices",
    "hipErrorInvalidKernelFile": "invalid kernel file",
    "hipErrorInvalidGraphicsContext": "invalid OpenGL or DirectX context",
    "hipErrorInvalidSource": "device kernel image is invalid",
    "hipErrorFileNotFound": "file not found",
    "hipErrorSharedObjectSymbolNotFound": "shared object symbol not found",
    "hipErrorSharedObjectInitFailed": "shared object initialization failed",
    "hipErrorOperatingSystem": "OS call failed or operation not supported on this OS",
    "hipErrorInvalidHandle": "invalid resource handle",
    "hipErrorIllegalState": "the operation cannot be performed in the present state",
    "hipErrorNotFound": "named symbol not found",
    "hipErrorNotReady": "device not ready",
    "hipErrorIllegalAddress": "an illegal memory access was encountered",
    "hipErrorLaunchOutOfResources": "too many resources requested for launch",
    "hipErrorLaunchTimeOut": "the launch timed out and was terminated",
    "hipErrorPeerAccessAlreadyEnabled": "peer access is already enabled",
    "hipErrorPeerAccessNotEnabled": "peer access has not been enabled",
    "hipErrorSetOnActiveProcess": "cannot set while device is active in this process",
    "hipErrorContextIsDestroyed": "context is destroyed",
    "hipErrorAssert": "device-side assert triggered",
    "hipErrorHostMemoryAlreadyRegistered": "part or all of the requested memory range is already mapped",
    "hipErrorHostMemoryNotRegistered": "pointer does not correspond to a registered memory region",
    "hipErrorLaunchFailure": "unspecified launch failure",
    "hipErrorCooperativeLaunchTooLarge": "too many blocks in cooperative launch",
    "hipErrorNotSupported": "operation not supported",
    "hipErrorStreamCaptureUnsupported": "operation not permitted when stream is capturing",
    "hipErrorStreamCaptureInvalidated": "operation failed due to a previous error during capture",
    "hipErrorStreamCaptureMerge": "operation would result in a merge of separate capture sequences",
    "hipErrorStreamCaptureUnmatched": "capture was not ended in the same stream as it began",
    "hipErrorStreamCaptureUnjoined": "capturing stream has unjoined work",
    "hipErrorStreamCaptureIsolation": "dependency created on uncaptured work in another stream",
    "hipErrorStreamCaptureImplicit": (
        "operation would make the legacy stream depend on a capturing blocking stream"
    ),
    "hipErrorCapturedEvent": "operation not permitted on an event last recorded in a capturing stream",
    "hipErrorStreamCaptureWrongThread": (
        "attempt to terminate a thread-local capture sequence from another thread"
    ),
    "hipErrorGraphExecUpdateFailure": (
        "the graph update was not performed because it included changes which violated constraints specific to"
        " instantiated graph update"
    ),
    "hipErrorRuntimeMemory": "runtime memory call returned error",
    "hipErrorRuntimeOther": "runtime call other than memory returned error",
}


def _name(error: Any) -> object:
    return text(hipError_t(int(error)).name)


def _words(error: Any) -> object:
    return text(_WORDS.get(hipError_t(int(error)).name, "unknown error"))


@calls.call("hipGetErrorName", keeps_last=True, needs_device=False)
def hipGetErrorName(hip_error: Any) -> object:
    """Return the name of a code; the first element is hipSuccess (facts/hip 1.3).

    Basis: S
    """
    return _name(hip_error)


@calls.call("hipGetErrorString", keeps_last=True, needs_device=False)
def hipGetErrorString(hipError: Any) -> object:
    """Return the meaning of a code, in words; ``peerlane.dialects.hip.explain()`` explains failed calls.

    Basis: S
    """
    return _words(hipError)


@calls.call("hipDrvGetErrorName", keeps_last=True, needs_device=False)
def hipDrvGetErrorName(hipError: Any) -> object:
    """Return the name of a code.

    Basis: S
    """
    return _name(hipError)


@calls.call("hipDrvGetErrorString", keeps_last=True, needs_device=False)
def hipDrvGetErrorString(hipError: Any) -> object:
    """Return the meaning of a code, in words.

    Basis: S
    """
    return _words(hipError)


def _serve_last(name: str, doc: str, attribute: str, *, take: bool) -> None:
    bind = shape_of(name).bind

    # The code is the answer itself, not an output behind a success.
    def last(*args: Any, **keywords: Any) -> Any:
        bind(args, keywords)
        code = getattr(calls.last, attribute)
        if take:
            setattr(calls.last, attribute, SUCCESS)
        return (code,)

    def body() -> None:
        pass

    body.__doc__ = doc
    body.__module__ = __name__
    calls.serve(name, last, calls.document(name, body), signature=shape_of(name).signature)


_serve_last(
    "hipGetLastError",
    """Return the last real error of this thread and forget it; success and hipErrorNotReady do not change it.

    Before HIP 7.0 (``PEERLANE_HIP_VERSION=6.4``) it is the code of the newest call (facts/hip 0.10).

    Basis: S
    """,
    "code",
    take=True,
)
_serve_last(
    "hipPeekAtLastError",
    """Return what hipGetLastError would, and keep it.

    Basis: S
    """,
    "code",
    take=False,
)
_serve_last(
    "hipExtGetLastError",
    """Return the code of this thread's newest call, and forget it (facts/hip 0.10).

    Basis: S
    """,
    "newest",
    take=True,
)


@calls.call("hipExtSetLoggingParams")
def hipExtSetLoggingParams(log_level: int, log_size: int, log_mask: int) -> None:
    """Set what hipExtEnableLogging writes: failures from level 1 on, each call from level 3 on if the mask has bit 0.

    ``log_size`` changes nothing, as the log goes to stderr.

    Basis: S; C for what the log says
    """
    log.choose(log_level, log_mask)


@calls.call("hipExtEnableLogging")
def hipExtEnableLogging() -> None:
    """Write to stderr from now on, in all threads, what hipExtSetLoggingParams set; nothing before that call.

    Basis: S
    """
    log.begin()


@calls.call("hipExtDisableLogging")
def hipExtDisableLogging() -> None:
    """Write nothing to stderr from now on, whatever ``AMD_LOG_LEVEL`` says.

    Basis: S
    """
    log.end()
