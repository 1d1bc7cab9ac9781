"""Copies and memsets: ``hipMemcpyAsync``, ``hipMemcpyPeerAsync``, ``hipMemcpy2D``, ``hipMemsetAsync``."""

from peerlane.dialects.hip.copies import batches, boxes, memcpy, memset  # noqa: F401 - they declare calls
