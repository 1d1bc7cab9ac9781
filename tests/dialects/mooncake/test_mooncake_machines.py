"""The dialect mooncake between two networks: bytes, notifies, and an outage of the network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

import peerlane as pl
from helpers.namespaces import OtherNetwork, other_network
from helpers.promised import overdue
from helpers.promises import Node
from peerlane.dialects import mooncake as dialect
from peerlane.dialects.mooncake.engine import TransferEngine, TransferNotify, Write

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]

SIZE = 1 << 20
SECONDS = 30.0

OTHER = f"""
import json, sys
import numpy as np
from mooncake.engine import TransferEngine
import peerlane as pl
engine = TransferEngine()
assert engine.initialize(sys.argv[1], "P2PHANDSHAKE", "rdma", "") == 0
device, host = pl.devices()[1].allocate({SIZE}), np.zeros({SIZE}, np.uint8)
device.fill(0)
assert engine.batch_register_memory([device.address, host.ctypes.data], [{SIZE}] * 2) == 0
print(json.dumps([engine.get_rpc_port(), device.address, host.ctypes.data]), flush=True)
for line in sys.stdin:
    notes = [[each.name, each.msg] for each in engine.get_notifies()]
    print(json.dumps([notes, bytes(device.view()[:64]).hex(), bytes(host[:64]).hex()]), flush=True)
"""


class Ends:
    """An engine here, and one of a process in another network."""

    def __init__(self, network: OtherNetwork, child: subprocess.Popen[str]) -> None:
        self.network, self._child = network, child
        port, self.device, self.host = self._heard()
        self.far = f"{network.far}:{port}"
        self.engine = TransferEngine()
        assert self.engine.initialize(network.near, "P2PHANDSHAKE", "rdma", "") == 0
        self.source = pl.devices()[0].allocate(SIZE)
        self.source.copy_from(np.arange(SIZE).astype(np.uint8))
        assert self.engine.register_memory(self.source.address, SIZE) == 0

    def _heard(self) -> list[int]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        assert line, "the other process has ended"
        return list(json.loads(line))

    def ask(self) -> list[object]:
        """Return the notifies and the first bytes of the other process."""
        assert self._child.stdin is not None
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        return list(self._heard())

    def write(self, target: int, size: int = SIZE) -> int:
        """Write to memory of the other process."""
        note = TransferNotify("written", str(size))
        return self.engine.transfer_sync(self.far, self.source.address, target, size, Write, note)


@pytest.fixture
def ends(node: Node, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ends]:
    monkeypatch.setenv("MC_TRANSFER_TIMEOUT", "5")
    node(f"name=here-{os.getpid()},devices=2")
    env = {**os.environ, "PEERLANE_MACHINE": "there", "PEERLANE_NODE": f"name=there-{os.getpid()},devices=2"}
    with other_network() as network:
        words = [sys.executable, "-m", "peerlane", "run", "--dialect", "mooncake", "-c", OTHER, network.far]
        with subprocess.Popen(
            [*network.prefix, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        ) as child:
            try:
                yield Ends(network, child)
            finally:
                child.kill()


def test_mooncake_engines_of_two_networks_write_and_read(ends: Ends) -> None:
    assert [ends.write(each) for each in (ends.device, ends.host)] == [0, 0]
    wanted = bytes(range(64)).hex()
    assert ends.ask() == [[["written", str(SIZE)]] * 2, wanted, wanted]
    back = np.zeros(SIZE, np.uint8)
    assert ends.engine.register_memory(int(back.ctypes.data), SIZE) == 0
    number = ends.engine.batch_transfer_async_read(ends.far, [int(back.ctypes.data)], [ends.device], [SIZE])
    assert ends.engine.get_batch_transfer_status([number]) == 0
    assert (back == ends.source.view()).all()


def test_mooncake_outage_of_the_network_fails_transfers_in_time_and_later_ones_succeed(ends: Ends) -> None:
    assert ends.write(ends.host, 64) == 0
    ends.network.cut()
    begin = time.monotonic()
    assert ends.write(ends.device, 64) == -1
    assert ends.engine.transfer_submit_write(ends.far, ends.source.address, ends.device, 64) == 0
    assert ends.engine.send_probe(ends.far) == -102
    assert time.monotonic() - begin < overdue(15.0)
    assert "cannot be reached within" in dialect.explain()
    ends.network.mend()
    deadline = time.monotonic() + SECONDS
    while (code := ends.write(ends.device, 64)) and time.monotonic() < deadline:
        pass
    assert code == 0
    assert ends.ask()[1] == bytes(range(64)).hex()
