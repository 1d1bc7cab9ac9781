"""``hip``: what calls about graphs, arrays and semaphores of others refuse as the vendor's do."""

from __future__ import annotations

from typing import Any

from peerlane.dialects.gpu.streams import LEGACY_STREAM
from peerlane.dialects.gpu.vendor import Reason
from peerlane.dialects.hip._checks import refuse_bits, refuse_null
from peerlane.dialects.hip._convention import refusal
from peerlane.dialects.hip._peer import device_of
from peerlane.dialects.hip._state import calls
from peerlane.dialects.hip._stream import stream_of, streams


@calls.refuses("hipGraphCreate")
def _refuse_flags(flags: int) -> None:
    refuse_bits(0, "flags", flags)


@calls.refuses("hipDeviceGetGraphMemAttribute")
def _refuse_device(device: int) -> None:
    device_of(device)


@calls.refuses("hipStreamBeginCapture")
def _refuse_null_stream(stream: int) -> None:
    if streams.meaning(stream) in (0, LEGACY_STREAM):
        raise refusal(
            "hipErrorStreamCaptureUnsupported", "the null stream cannot be captured", "pass another stream"
        )
    stream_of(stream)


@calls.refuses("hipSignalExternalSemaphoresAsync")
@calls.refuses("hipWaitExternalSemaphoresAsync")
def _refuse_semaphores(extSemArray: Any, paramsArray: Any, stream: int) -> None:
    refuse_null("extSemArray", extSemArray)
    refuse_null("paramsArray", paramsArray)
    stream_of(stream, Reason.INVALID_VALUE)
