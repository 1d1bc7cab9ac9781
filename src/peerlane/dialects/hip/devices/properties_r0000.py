"""The properties of a device in the layout of programs that were compiled before HIP 6: ``hipDeviceProp_tR0000``."""

from __future__ import annotations

import ctypes
from typing import Any

from peerlane.dialects.hip.binding import facts
from peerlane.dialects.hip.binding.results import struct

_NAMES = [
    "name",
    "totalGlobalMem",
    "sharedMemPerBlock",
    "regsPerBlock",
    "warpSize",
    "maxThreadsPerBlock",
    "maxThreadsDim",
    "maxGridSize",
    "clockRate",
    "memoryClockRate",
    "memoryBusWidth",
    "totalConstMem",
    "major",
    "minor",
    "multiProcessorCount",
    "l2CacheSize",
    "maxThreadsPerMultiProcessor",
    "computeMode",
    "clockInstructionRate",
    "arch",
    "concurrentKernels",
    "pciDomainID",
    "pciBusID",
    "pciDeviceID",
    "maxSharedMemoryPerMultiProcessor",
    "isMultiGpuBoard",
    "canMapHostMemory",
    "gcnArch",
    "gcnArchName",
    "integrated",
    "cooperativeLaunch",
    "cooperativeMultiDeviceLaunch",
    "maxTexture1DLinear",
    "maxTexture1D",
    "maxTexture2D",
    "maxTexture3D",
    "hdpMemFlushCntl",
    "hdpRegFlushCntl",
    "memPitch",
    "textureAlignment",
    "texturePitchAlignment",
    "kernelExecTimeoutEnabled",
    "ECCEnabled",
    "tccDriver",
    "cooperativeMultiDeviceUnmatchedFunc",
    "cooperativeMultiDeviceUnmatchedGridDim",
    "cooperativeMultiDeviceUnmatchedBlockDim",
    "cooperativeMultiDeviceUnmatchedSharedMem",
    "isLargeBar",
    "asicRevision",
    "managedMemory",
    "directManagedMemAccessFromHost",
    "concurrentManagedAccess",
    "pageableMemoryAccess",
    "pageableMemoryAccessUsesHostPageTables",
]
_LATER = {
    name: (kind, offset, nbytes)
    for name, kind, _, offset, nbytes in facts()["structs"]["hipDeviceProp_t"]["fields"]
}
_WORDS = ("size_t", "pointer ListOfUnsigned")
_ARCHITECTURE = 942  # gcnArch, which is in no later struct: the digits of gfx942


def _type(name: str) -> Any:
    kind, _, nbytes = _LATER.get(name, ("int", 0, 4))
    if kind.startswith("str"):
        return ctypes.c_char * nbytes
    one = ctypes.c_uint64 if kind in _WORDS else ctypes.c_int32
    return one if nbytes == ctypes.sizeof(one) else one * (nbytes // ctypes.sizeof(one))


class Earlier(ctypes.Structure):
    """The struct, with the fields of ``hipDeviceProp_t`` of the same names and one more."""

    _fields_ = [(name, _type(name)) for name in _NAMES]

    @classmethod
    def of(cls, properties: Any) -> Earlier:
        """Return the struct with the values of a ``hipDeviceProp_t``."""
        earlier = cls(gcnArch=_ARCHITECTURE)
        for name in _LATER.keys() & set(_NAMES):
            _, offset, nbytes = _LATER[name]
            ctypes.memmove(
                ctypes.addressof(earlier) + getattr(cls, name).offset, int(properties) + offset, nbytes
            )
        return earlier

    def later(self) -> Any:
        """Return it as a ``hipDeviceProp_t``."""
        later = struct("hipDeviceProp_t")()
        for name in _LATER.keys() & set(_NAMES):
            _, offset, nbytes = _LATER[name]
            ctypes.memmove(
                int(later) + offset, ctypes.addressof(self) + getattr(type(self), name).offset, nbytes
            )
        return later
