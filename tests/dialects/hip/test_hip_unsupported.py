"""Calls about graphs, arrays and semaphores of others refuse wrong arguments as the vendor's do."""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any

import pytest

from helpers import hip_c_calls
from helpers.hip_client import code, done

pytestmark = pytest.mark.any_schedule


def test_hip_unsupported_calls_refuse_wrong_arguments_as_the_vendor_does(hip: ModuleType) -> None:
    attribute = hip.hipGraphMemAttributeType.hipGraphMemAttrUsedMemCurrent
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
    kind = hip.hipMemcpyKind.hipMemcpyDefault
    memory, stream = done(hip.hipMalloc(64)), done(hip.hipStreamCreate())
    for result, answer in (
        (hip.hipGraphCreate(1), "hipErrorInvalidValue"),
        (hip.hipDeviceGetGraphMemAttribute(-1, attribute, memory), "hipErrorInvalidDevice"),
        (hip.hipStreamBeginCapture(None, mode), "hipErrorStreamCaptureUnsupported"),
        (hip.hipMemcpy2DToArrayAsync(None, 0, 0, memory, 8, 8, 8, kind, stream), "hipErrorInvalidHandle"),
        (hip.hipMemcpy2DFromArrayAsync(memory, 8, None, 0, 0, 8, 8, kind, stream), "hipErrorInvalidHandle"),
        (hip.hipGraphAddKernelNode(None, None, 0, None), "hipErrorNotSupported"),
    ):
        assert code(result) == answer


def test_hip_c_library_refuses_semaphores_and_captures_as_the_vendor_does() -> None:
    opened, words = hip_c_calls.library(), (ctypes.c_uint64 * 18)()
    null: Any = ctypes.c_void_p()
    for call in (opened.hipWaitExternalSemaphoresAsync, opened.hipSignalExternalSemaphoresAsync):
        assert call(null, words, 1, null) == 1
        assert call(words, null, 1, null) == 1
        assert call(words, words, 1, ctypes.c_void_p(0x1230)) == 1
        assert call(words, words, 1, null) == 801
    for legacy in (null, ctypes.c_void_p(1)):
        assert opened.hipStreamBeginCapture(legacy, 0) == 900
