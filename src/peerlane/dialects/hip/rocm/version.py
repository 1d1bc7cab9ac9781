"""``rocm.version``: which ROCm and HIP the names are of."""

from __future__ import annotations

from peerlane.dialects.hip.binding import facts

_constants = facts()["constants"]


def _number(*parts: int) -> int:
    major, minor, patch = parts[:3]
    return major * 10_000_000 + minor * 100_000 + patch


ROCM_VERSION_TUPLE = rocm_version_tuple = tuple(int(each) for each in facts()["version"].split(".")[:3])
ROCM_VERSION_NAME = rocm_version_name = ".".join(map(str, ROCM_VERSION_TUPLE))
ROCM_VERSION = _number(*ROCM_VERSION_TUPLE)
_HIP = tuple(_constants[f"HIP_VERSION_{part}"] for part in ("MAJOR", "MINOR", "PATCH"))
HIP_COMMIT = facts()["byte constants"]["HIP_VERSION_GITHASH"]
HIP_VERSION_TUPLE = hip_version_tuple = (*_HIP, HIP_COMMIT)
HIP_VERSION_NAME = hip_version_name = HIP_FULL_VERSION = f"{'.'.join(map(str, _HIP))}-{HIP_COMMIT}"
HIP_VERSION = _number(*_HIP)
