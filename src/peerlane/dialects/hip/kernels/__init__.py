"""Calls for kernels and arrays: they refuse wrong arguments as the vendor does, and run nothing."""

from peerlane.dialects.hip.kernels import compiler, library, link, refused  # noqa: F401 - they declare calls
