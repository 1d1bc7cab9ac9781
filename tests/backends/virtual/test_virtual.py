"""The virtual back-end passes the conformance suite, and broken back-ends fail it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from helpers.prepared import run_python
from peerlane.backend.interface import VisibleMemory
from peerlane.backends.virtual.backend import VirtualBackend
from peerlane.backends.virtual.node import NodeConfig
from peerlane.errors import BadAddress, Fault
from peerlane.testing.conformance import BackendConformance, noise

pytestmark = pytest.mark.any_schedule

SPEC = f"name=conformance-{os.getpid()},devices=2,memory=2GiB"


class TestVirtual(BackendConformance):
    def make(self) -> VirtualBackend:
        return VirtualBackend(NodeConfig.parse(SPEC))


class TestVirtualMapped(BackendConformance):
    def make(self) -> VirtualBackend:
        return VirtualBackend(
            NodeConfig.parse(SPEC.replace("name=", "name=map-") + ",host_access=map,poison=true")
        )


# Each mutant breaks one sentence of the contract.
MUTANTS = {
    "drops the last byte of an odd copy": """
    @staticmethod
    def copy(dst, src, nbytes, direct=False):
        _core.copy(dst, src, nbytes - nbytes % 2 if nbytes > 1 else nbytes, direct)
""",
    "copies forwards without looking for overlap": """
    @staticmethod
    def copy(dst, src, nbytes, direct=False):
        for at in range(0, nbytes, 1 << 20):
            _core.copy(dst + at, src + at, min(1 << 20, nbytes - at), direct)
""",
    "never takes memory back": """
    def allocate(self, ordinal, nbytes, peer=False):
        block = super().allocate(ordinal, nbytes, peer)
        class Kept:
            address, size = block.address, block.size
            def close(self):
                kept.append(block)
        return Kept()
""",
    "makes peers in both directions": """
    def set_peer(self, ordinal, peer, enabled):
        super().set_peer(ordinal, peer, enabled)
        super().set_peer(peer, ordinal, enabled)
""",
}


CAUGHT_BY = {
    "drops the last byte of an odd copy": "test_bytes_survive_host_device_peer_host",
    "copies forwards without looking for overlap": "test_overlapping_copies_behave_as_memmove",
    "never takes memory back": "test_capacity_is_charged_refunded_and_enforced",
    "makes peers in both directions": "test_peers_are_directed_and_idempotent",
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_conformance_suite_on_broken_backend_fails(mutant: str, tmp_path: Path) -> None:
    suite = tmp_path / "test_mutant.py"
    suite.write_text(
        "from peerlane import _core\n"
        "from peerlane.backends.virtual.backend import VirtualBackend\n"
        "from peerlane.backends.virtual.node import NodeConfig\n"
        "from peerlane.testing.conformance import BackendConformance\n"
        "kept = []\n"
        f"class Mutant(VirtualBackend):\n{MUTANTS[mutant]}\n"
        "class TestMutant(BackendConformance):\n"
        f"    def make(self):\n        return Mutant(NodeConfig.parse({SPEC!r}))\n"
    )
    done = run_python(["-m", "pytest", "-q", "-p", "no:cacheprovider", str(suite)], timeout=100, cwd=tmp_path)
    assert done.returncode == 1, done.stdout
    assert CAUGHT_BY[mutant] in done.stdout


@pytest.fixture
def backend() -> Iterator[VirtualBackend]:
    backend = VirtualBackend(NodeConfig.parse(SPEC))
    yield backend
    backend.close()


def test_virtual_memory_is_visible_memory(backend: VirtualBackend) -> None:
    assert isinstance(backend.allocate(0, 8), VisibleMemory)


@pytest.mark.parametrize("nbytes", [1, 255, 4097, (2 << 20) - 1, (5 << 20) + 7])
def test_copy_by_host_address_moves_bytes_in_both_directions(backend: VirtualBackend, nbytes: int) -> None:
    data, back = noise(nbytes, nbytes), np.full(nbytes, 0xA5, np.uint8)
    block = backend.allocate(0, nbytes)
    backend.copy(block.address, data.ctypes.data, nbytes)
    assert bytes(block.host_view()) == data.tobytes()
    backend.copy(back.ctypes.data, block.address, nbytes)
    assert np.array_equal(back, data)


@pytest.mark.parametrize("wild", [0, 0x1000, 0xDEAD << 48])
def test_copy_from_wild_host_address_raises_host_fault(backend: VirtualBackend, wild: int) -> None:
    block = backend.allocate(0, 4096)
    with pytest.raises(BadAddress) as refused:
        backend.copy(block.address, wild, 4096)
    assert refused.value.fault in (Fault.HOST_FAULT, Fault.NULL_ADDRESS)


def test_copy_beyond_allocation_raises_out_of_bounds(backend: VirtualBackend) -> None:
    block, scratch = backend.allocate(0, 100), np.zeros(101, np.uint8)
    with pytest.raises(BadAddress, match="1 bytes beyond") as refused:
        backend.copy(block.address, scratch.ctypes.data, 101)
    assert refused.value.fault is Fault.OUT_OF_BOUNDS
