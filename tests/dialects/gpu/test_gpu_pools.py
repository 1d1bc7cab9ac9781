"""Memory pools of a vendor that has them on the host, too, and whose devices reach them by access of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import peerlane
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.gpu.gpu import Gpu
from peerlane.dialects.gpu.pools import MANAGED, PINNED
from peerlane.dialects.gpu.regions import CPU
from peerlane.dialects.gpu.vendor import Policy, Reason, Vendor
from peerlane.errors import BadAddress, Fault

INVALID, NO_MEMORY, NO_ACCESS = 1, 2, 3
KIB = 1 << 10


rules = Policy(peer_copies="strict", pool_access="own", pool_size="used")
toy = Gpu(
    Vendor(
        "Toy",
        {
            Fault.INVALID_VALUE: INVALID,
            Reason.OUT_OF_MEMORY: NO_MEMORY,
            Fault.PEER_NOT_ENABLED: NO_ACCESS,
        },
        {"import_pool_pointer": "toyImport"},
        rules,
    )
)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    peerlane.leave_node()
    peerlane.enter_node("devices=2,memory=64MiB")
    monkeypatch.setattr(rules, "pool_access", "own")
    yield toy
    peerlane.leave_node()


def test_gpu_host_pool_reuses_and_gives_back_memory_of_host(gpu: Gpu) -> None:
    pools, stream = gpu.pools, gpu.streams.of(0)
    pool = pools.create(CPU, kind=PINNED, is_shareable=False, largest=0)
    address = pools.allocate(KIB, stream, pool)
    region = gpu.regions.at(address)
    assert region is not None and not region.is_device and region.size == KIB
    gpu.memory.fill(stream, address, 7, KIB)
    stream.wait()
    assert (pool.memory.used, pool.reserved) == (KIB, KIB)
    pools.free(address, stream, "toyFree")
    assert (pool.memory.used, pool.reserved) == (0, KIB)
    assert pools.allocate(KIB, stream, pool) == address
    pools.free(address, stream, "toyFree")
    gpu.streams.synchronize(stream)
    assert pool.reserved == 0
    with pytest.raises(BadAddress, match="freed by toyFree"):
        gpu.regions.at(address)


def test_gpu_default_pools_differ_by_location_and_type(gpu: Gpu) -> None:
    device = gpu.machine.devices()[0]
    locations = (device, CPU, 0, 1)
    pools = {gpu.pools.default(each, kind).handle for each in locations for kind in (PINNED, MANAGED)}
    assert len(pools) == 8
    assert all(gpu.pools.current(each).is_default for each in locations)
    mine = gpu.pools.create(CPU, kind=PINNED, is_shareable=False, largest=0)
    gpu.pools.use(CPU, PINNED, mine)
    assert gpu.pools.current(CPU) is mine
    with pytest.raises(Refusal, match="the pool is of the host, not of node 1 of the host"):
        gpu.pools.use(1, PINNED, mine)
    gpu.pools.destroy(mine, "toyDestroy")
    assert gpu.pools.current(CPU).is_default


def test_gpu_host_pool_is_exported_if_it_was_created_for_that(gpu: Gpu) -> None:
    descriptor = gpu.pool_sharing.export(gpu.pools.create(CPU, kind=PINNED, is_shareable=True, largest=0))
    os.close(descriptor)
    with pytest.raises(Refusal, match="was not created with handleTypes"):
        gpu.pool_sharing.export(gpu.pools.create(CPU, kind=PINNED, is_shareable=False, largest=0))


def test_gpu_pool_size_used_does_not_count_memory_that_went_back(gpu: Gpu) -> None:
    stream = gpu.streams.of(0)
    pool = gpu.pools.create(gpu.machine.devices()[0], kind=PINNED, is_shareable=False, largest=KIB)
    gpu.pools.free(gpu.pools.allocate(KIB, stream, pool), stream, "toyFree")
    gpu.streams.synchronize(stream)
    address = gpu.pools.allocate(KIB, stream, pool)
    with pytest.raises(Refusal, match="1,024 are used") as refused:
        gpu.pools.allocate(1, stream, pool)
    assert refused.value.code == NO_MEMORY
    gpu.pools.free(address, stream, "toyFree")


@pytest.mark.parametrize(("policy", "works"), [("own", False), ("peers", True)])
def test_gpu_pool_access_policy_decides_whether_peer_access_reaches_pools(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch, policy: str, works: bool
) -> None:
    monkeypatch.setattr(rules, "pool_access", policy)
    first, second = gpu.machine.devices()
    theirs = gpu.pools.create(second, kind=PINNED, is_shareable=False, largest=0)
    source = gpu.pools.allocate(KIB, gpu.streams.of(0), theirs)
    mine = gpu.memory.allocate(KIB)
    gpu.peers.enable(second)
    if not works:
        with pytest.raises(Refusal) as refused:
            gpu.copies.copy_peer(first, second, mine, source, KIB)
        assert refused.value.code == NO_ACCESS
        gpu.pools.set_access(theirs, [(first, "r")])
    gpu.copies.copy_peer(first, second, mine, source, KIB)
    gpu.streams.synchronize_device()
