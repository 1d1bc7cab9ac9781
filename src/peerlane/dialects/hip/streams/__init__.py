"""Streams, events, host functions, and words that streams wait for: ``hipStreamWaitEvent``, ``hipLaunchHostFunc``."""

from peerlane.dialects.hip.streams import (  # noqa: F401 - they declare calls
    attributes,
    events,
    host_functions,
    stream,
    values,
)
