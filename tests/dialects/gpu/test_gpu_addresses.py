"""Virtual memory of a vendor whose calls have plain numbers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import peerlane
from peerlane import raw
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.gpu import Gpu
from peerlane.dialects.gpu.vendor import Policy, Reason, Vendor
from peerlane.dialects.gpu.virtual_memory import PhysicalProperties
from peerlane.errors import AccessDenied, Fault

INVALID, UNSUPPORTED, NO_DEVICE = 1, 2, 3
SECONDS = 60
pytestmark = pytest.mark.timeout(SECONDS)
toy = Gpu(
    Vendor(
        "Toy",
        {
            Fault.INVALID_VALUE: INVALID,
            Fault.UNSUPPORTED: UNSUPPORTED,
            Fault.INVALID_DEVICE: NO_DEVICE,
        },
        {"reserve": "toyReserve", "unmap": "toyUnmap"},
        Policy(),
    )
)


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    peerlane.leave_node()
    peerlane.enter_node("devices=2,memory=64MiB")
    yield toy
    peerlane.leave_node()


def mapped(gpu: Gpu, ordinal: int, *readers: int) -> tuple[int, int]:
    """Return the address and the bytes of mapped memory of a device that some devices may use."""
    device = gpu.machine.device(ordinal)
    size, memory = device.granularity, gpu.virtual_memory
    handle = memory.create(size, PhysicalProperties(device))
    address = memory.reserve(size, 0, 0)
    memory.map(address, size, handle)
    memory.release(handle, "toyRelease")
    memory.set_access(address, size, {gpu.machine.device(each): "rw" for each in readers})
    return address, size


def test_gpu_mapped_memory_has_the_access_that_devices_were_given(gpu: Gpu) -> None:
    memory, (first, second) = gpu.virtual_memory, gpu.machine.devices()
    address, size = mapped(gpu, 1, 0)
    assert [memory.access(each, address) for each in (first, second)] == ["rw", "none"]
    region = gpu.regions.at(address)
    assert region is not None and (region.ordinal, region.base, region.size) == (1, address, size)
    gpu.memory.fill(None, address, 7, size)
    gpu.streams.synchronize(gpu.streams.of(0))
    assert bytes(raw.view(address, 4)) == b"\x07" * 4
    memory.set_access(address, size, {first: "r"})
    with pytest.raises(AccessDenied):
        gpu.memory.fill(None, address, 8, size)


def test_gpu_released_handle_comes_back_from_the_mapping(gpu: Gpu) -> None:
    memory = gpu.virtual_memory
    address, size = mapped(gpu, 0, 0)
    handle = memory.retain(address)
    assert memory.retain(address) == handle
    assert memory.physical(handle).properties.device is gpu.machine.device(0)
    memory.unmap(address, size)
    for _ in range(2):
        memory.release(handle, "toyRelease")
    with pytest.raises(Refusal):
        memory.physical(handle)


def test_gpu_reservation_with_mappings_is_refused_with_the_vendors_names(gpu: Gpu) -> None:
    memory = gpu.virtual_memory
    address, size = mapped(gpu, 0)
    with pytest.raises(Refusal) as refused:
        memory.free(address, size, "toyFree")
    assert (refused.value.code, refused.value.remedy) == (INVALID, "call toyUnmap first")
    memory.unmap(address, size)
    memory.free(address, size, "toyFree")
    with pytest.raises(Refusal) as refused:
        memory.access(gpu.machine.device(0), address)
    assert refused.value.remedy == "pass an address that toyReserve gave"


def test_gpu_physical_memory_of_other_handle_types_is_unsupported(gpu: Gpu) -> None:
    device = gpu.machine.device(0)
    with pytest.raises(Refusal) as refused:
        gpu.virtual_memory.create(device.granularity, PhysicalProperties(device, handle_type=2))
    assert refused.value.code == UNSUPPORTED


def test_gpu_rights_leave_descriptions_of_the_host_out(gpu: Gpu) -> None:
    described = [(2, 0, 3), (1, 1, 1)]
    assert gpu.locations.rights(described.__getitem__, 2, hosts=1) == [(gpu.machine.device(1), "r")]
    with pytest.raises(Refusal) as refused:
        gpu.locations.rights(lambda at: (1, 5, 1), 1, reason=Reason.INVALID_DEVICE)
    assert refused.value.code == NO_DEVICE
