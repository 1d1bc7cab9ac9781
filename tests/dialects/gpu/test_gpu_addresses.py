"""Virtual memory, managed memory, attributes, words and batches of a vendor whose calls have plain numbers."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import pytest

import peerlane
from peerlane import Host, raw
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.gpu import Gpu
from peerlane.dialects.gpu.managed import Advice
from peerlane.dialects.gpu.regions import CPU
from peerlane.dialects.gpu.values import WORD
from peerlane.dialects.gpu.vendor import Policy, Reason, Vendor
from peerlane.dialects.gpu.virtual_memory import PhysicalProperties
from peerlane.errors import AccessDenied, BadArgument, Fault

INVALID, UNSUPPORTED, NO_DEVICE, NO_ALLOCATION = 1, 2, 3, 4
SECONDS = 60
PAGE = mmap.PAGESIZE
pytestmark = pytest.mark.timeout(SECONDS)
toy = Gpu(
    Vendor(
        "Toy",
        {
            Fault.INVALID_VALUE: INVALID,
            Fault.UNSUPPORTED: UNSUPPORTED,
            Fault.INVALID_DEVICE: NO_DEVICE,
            Reason.NO_ALLOCATION: NO_ALLOCATION,
        },
        {"reserve": "toyReserve", "unmap": "toyUnmap"},
        Policy(),
    )
)


def test_gpu_policy_has_the_first_value_of_each_rule_that_is_not_set() -> None:
    rules = vars(Policy(pool_size="used"))
    assert rules == {name: values[0] for name, values in Policy.CHOICES.items()} | {"pool_size": "used"}
    assert all(f"    {name} : {{" in str(Policy.__doc__) for name in rules)


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (
            {"pool_acess": "own"},
            r"no policy 'pool_acess' \(did you mean 'pool_access'\?\); valid are needs_context, .*",
        ),
        ({"__doc__": "own"}, "no policy '__doc__'; valid are .*, pool_size$"),
        ({"pool_access": "mine"}, "pool_access is 'mine'; valid are peers, own$"),
        ({"needs_context": "yes"}, "needs_context is 'yes'; valid are False, True$"),
    ],
)
def test_gpu_policy_without_such_a_rule_or_value_raises_and_lists_valid_ones(
    rules: dict[str, str], text: str
) -> None:
    with pytest.raises(peerlane.InvalidValue, match=text) as caught:
        Policy(**rules)
    assert isinstance(caught.value.detail, BadArgument)


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


def test_gpu_mapped_memory_has_the_access_that_devices_were_granted(gpu: Gpu) -> None:
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


def test_gpu_rights_name_devices_and_the_host(gpu: Gpu) -> None:
    described = [(2, 0, 3), (1, 1, 1)]
    assert gpu.locations.rights(described.__getitem__, 2, hosts=1) == [
        (Host(), "rw"),
        (gpu.machine.device(1), "r"),
    ]
    with pytest.raises(Refusal) as refused:
        gpu.locations.rights(lambda at: (1, 5, 1), 1, reason=Reason.INVALID_DEVICE)
    assert refused.value.code == NO_DEVICE


def test_gpu_advice_holds_for_whole_pages_of_managed_memory(gpu: Gpu) -> None:
    managed = gpu.managed
    address = gpu.memory.allocate_host(4 * PAGE, 0, is_managed=True)
    managed.advise(managed.advisable("ptr", address + 1, 1), Advice.READ_MOSTLY, 99, is_set=True)
    managed.prefetch(managed.span("ptr", address, 4 * PAGE), 1, 0)
    for device in (CPU, 1, 0):
        managed.advise(managed.advisable("ptr", address, 2 * PAGE), Advice.ACCESSED_BY, device, is_set=True)
    page, half = managed.pieces("ptr", address, PAGE), managed.pieces("ptr", address, 2 * PAGE)
    assert (page.is_read_mostly, half.is_read_mostly) == (True, False)
    assert half.accessed_by == [0, 1, CPU]
    whole = managed.pieces("ptr", address, 4 * PAGE)
    assert (whole.accessed_by, whole.common(lambda piece: piece.prefetched)) == ([], 1)
    with pytest.raises(Refusal) as refused:
        managed.prefetch(managed.span("ptr", address, 1), 2, 0)
    assert refused.value.code == NO_DEVICE


def test_gpu_attributes_describe_the_memory_around_an_address(gpu: Gpu) -> None:
    attributes = gpu.attributes
    address = gpu.memory.allocate(PAGE)
    attributes.set_synchronous(address + 8, is_set=True)
    pointer = attributes.at(address + 8)
    assert pointer is not None and pointer.is_synchronous
    assert (pointer.device, pointer.host_address, pointer.region.base) == (0, None, address)
    host = gpu.memory.allocate_host(PAGE, 0)
    pointer = attributes.at(host)
    assert pointer is not None and pointer.host_address == host
    with pytest.raises(Refusal) as refused:
        attributes.allocation(0)
    assert refused.value.code == NO_ALLOCATION


def test_gpu_stream_waits_for_the_word_that_another_writes(gpu: Gpu) -> None:
    word, filled = gpu.memory.allocate_host(WORD, 0), gpu.memory.allocate_host(WORD, 0)
    raw.view(word, WORD)[:] = raw.view(filled, WORD)[:] = bytes(WORD)
    waiting, writing = gpu.streams.create(1), gpu.streams.create(1)
    gpu.values.wait(waiting, word, 5, 0, (1 << 64) - 1, WORD)
    gpu.values.write(waiting, filled, 9, 0, WORD)
    assert not gpu.streams.of(waiting).is_done
    gpu.values.write(writing, word, 6, 0, WORD)
    gpu.streams.synchronize(gpu.streams.of(waiting))
    assert bytes(raw.view(filled, WORD)) == (9).to_bytes(WORD, "little")
    with pytest.raises(Refusal, match="is not a multiple of 8"):
        gpu.values.write(waiting, word + 4, 1, 0, WORD)


def test_gpu_batch_ends_with_the_first_failure_and_its_number(gpu: Gpu) -> None:
    submitted: list[int] = []

    def submit(at: int) -> None:
        if at == 2:
            gpu.copies.copy(0, 0, 1)
        submitted.append(at)

    assert gpu.batches.run(2, submit, "copy") is None
    failure = gpu.batches.run(4, submit, "copy")
    assert submitted == [0, 1, 0, 1]
    assert failure is not None and failure[0] == 2
    assert (failure[1].code, str(failure[1])) == (INVALID, "copy 2: dst is NULL")


@pytest.mark.parametrize("starts", [[1], [0, 0], [0, 3, 2], [0, 4]])
def test_gpu_batch_groups_that_do_not_rise_from_0_are_refused(gpu: Gpu, starts: list[int]) -> None:
    group_of = gpu.batches.group_of("starts", [0, 2, 3], 4)
    assert [group_of(at) for at in range(4)] == [0, 0, 1, 2]
    with pytest.raises(Refusal):
        gpu.batches.group_of("starts", starts, 4)
