"""What C programs get of devices beside what Python does: short buffers, and the struct of programs before HIP 6."""

from __future__ import annotations

import ctypes
from types import ModuleType

import pytest

from helpers import hip_c_calls

pytestmark = pytest.mark.any_schedule
SIZE_OF_EARLIER = 792
GCN_ARCH, GCN_ARCH_NAME, TOTAL = 392, 396, 256  # where these fields are in it


def test_hip_c_library_writes_as_much_of_a_bus_id_as_there_is_room_for(hip: ModuleType) -> None:
    opened, text = hip_c_calls.library(), ctypes.create_string_buffer(b"x" * 20, 20)
    assert opened.hipDeviceGetPCIBusId(text, 6, 1) == 1
    assert text.raw == b"0000:\0" + b"x" * 14
    assert opened.hipDeviceGetPCIBusId(text, 20, 1) == 0
    assert text.value == b"0000:02:00.0"
    assert opened.hipDeviceGetPCIBusId(None, 20, 1) == 1


def test_hip_c_library_gives_programs_before_hip_6_their_struct(hip: ModuleType) -> None:
    opened, prop, device = hip_c_calls.library(), (ctypes.c_ubyte * 1500)(*[0xAA] * 1500), ctypes.c_int(9)
    newer = hip.hipGetDeviceProperties(1)[1]
    assert opened.hipGetDeviceProperties(prop, 1) == 0
    assert set(bytes(prop)[SIZE_OF_EARLIER:]) == {0xAA}
    assert ctypes.string_at(ctypes.addressof(prop)) == newer.name.encode()
    assert int.from_bytes(bytes(prop)[TOTAL : TOTAL + 8], "little") == newer.totalGlobalMem
    assert int.from_bytes(bytes(prop)[GCN_ARCH : GCN_ARCH + 4], "little") == 942
    assert ctypes.string_at(ctypes.addressof(prop) + GCN_ARCH_NAME) == newer.gcnArchName.encode()
    assert opened.hipChooseDevice(ctypes.byref(device), prop) == 0
    assert device.value == 0
    assert opened.hipChooseDevice(None, prop) == opened.hipChooseDevice(ctypes.byref(device), None) == 1
    assert opened.hipGetDeviceProperties(None, 0) == 1
    assert opened.hipGetDeviceProperties(prop, 2) == 101


def test_hip_c_library_takes_lists_of_valid_devices(hip: ModuleType) -> None:
    opened, ids, device = hip_c_calls.library(), (ctypes.c_int * 2)(1, 0), ctypes.c_int(9)
    assert opened.hipSetValidDevices(ids, 2) == opened.hipGetDevice(ctypes.byref(device)) == 0
    assert device.value == 1
    assert opened.hipSetValidDevices(None, 0) == 0
    for wrong in (-1, 3):
        assert opened.hipSetValidDevices(ids, wrong) == opened.hipSetValidDevices(None, wrong) == 1
    ids[1] = 2
    assert opened.hipSetValidDevices(ids, 2) == 101


@pytest.mark.parametrize(("limit", "code"), [(-1, 215), (4, 215), (4099, 1), (0xFFFF, 1), (0, 0)])
def test_hip_c_library_names_limits_that_there_are_not(hip: ModuleType, limit: int, code: int) -> None:
    opened, value = hip_c_calls.library(), ctypes.c_size_t()
    assert opened.hipDeviceGetLimit(ctypes.byref(value), limit) == code
    assert opened.hipDeviceSetLimit(limit, ctypes.c_size_t(1024)) == code
    assert opened.hipDeviceGetLimit(None, 0) == opened.hipDeviceSetSharedMemConfig(-1) == 1
