"""The virtual back-end keeps the contract, and the contract notices who does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from peerlane.backend.interface import Block
from peerlane.backends.virtual.backend import VirtualBackend
from peerlane.backends.virtual.node import NodeConfig
from peerlane.testing.conformance import BackendConformance
from peerlane.testing.procs import run_python

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


# Each mutant breaks one sentence of the contract, as a careless back-end would.
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
def test_a_mutant_is_caught(mutant: str, tmp_path: Path) -> None:
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


def test_the_block_protocol_is_met() -> None:
    backend = VirtualBackend(NodeConfig.parse(SPEC))
    try:
        assert isinstance(backend.allocate(0, 8), Block)
    finally:
        backend.close()
