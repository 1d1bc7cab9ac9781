"""HIP as hip-python 10.0 has it, on virtual devices: ``from hip import hip``.

``hip.py`` and ``hiprtc.py`` are the modules that programs import, ``hip.h.txt`` is the vendor's header.  A call is
in the folder of its concept: ``devices``, ``memory``, ``copies``, ``streams``, ``sharing`` or ``kernels``; a call
about calls is in ``errors.py`` or ``lookup.py``.  ``binding`` is hip-python's side: arguments, classes and results;
``_binding.py``, which the build runs, derives its table from the header.  ``state.py`` has the machine and the
table of calls.

Served on request under the vendor's names (:func:`peerlane.dialects.install`); ``docs/reference/hip.md`` lists each
function.  :func:`explain` explains failed calls.
"""

from __future__ import annotations

from peerlane.dialects.hip import hip, hiprtc, hiprtc_pyext
from peerlane.dialects.hip.binding import facts
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
from peerlane.dialects.hip.state import explain

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
