"""HIP as hip-python 10.0 has it, on virtual devices: ``from hip import hip``.

Served on request under the vendor's names (:func:`peerlane.dialects.install`); ``docs/reference/hip.md`` lists each
function.  :func:`explain` explains failed calls.
"""

from __future__ import annotations

from peerlane.dialects.hip import hip, hiprtc, hiprtc_pyext
from peerlane.dialects.hip._facts import facts
from peerlane.dialects.hip._state import explain
from peerlane.dialects.hip.rocm.bindings import util as _util
from peerlane.dialects.hip.rocm.version import (
    HIP_VERSION,
    HIP_VERSION_NAME,
    HIP_VERSION_TUPLE,
    ROCM_VERSION,
    ROCM_VERSION_NAME,
    ROCM_VERSION_TUPLE,
    hip_version_name,
    hip_version_tuple,
    rocm_version_name,
    rocm_version_tuple,
)

hiprtc.ext = hiprtc_pyext
VERSION = __version__ = facts()["version"]

__all__ = [
    "HIP_VERSION",
    "HIP_VERSION_NAME",
    "HIP_VERSION_TUPLE",
    "ROCM_VERSION",
    "ROCM_VERSION_NAME",
    "ROCM_VERSION_TUPLE",
    "VERSION",
    "_util",
    "explain",
    "hip",
    "hip_version_name",
    "hip_version_tuple",
    "hiprtc",
    "hiprtc_pyext",
    "rocm_version_name",
    "rocm_version_tuple",
]
