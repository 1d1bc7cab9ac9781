"""Error texts about imported memory, and about handles and parts from before the node was left."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest

import peerlane as pl
from helpers.peers import Peer, peer
from helpers.promises import Node
from peerlane.errors import Fault

G = 2 << 20

pytestmark = pytest.mark.timeout(120)


def _refused(kind: type[pl.Error], fault: Fault, work: Callable[[], object]) -> str:
    with pytest.raises(kind) as refused:
        work()
    assert refused.value.fault is fault, str(refused.value)
    return str(refused.value)


def test_closed_imported_buffer_error_names_import_and_close(
    shared: tuple[pl.Device, pl.Device, Peer],
) -> None:
    number = shared[2].run("b=devices[0].allocate(100); result=int(b.export(allow='user'))")
    buffer = pl.Buffer.open(number)
    part, address = buffer[:4], buffer.address
    buffer.close()
    for use in (buffer.view, buffer.export, lambda: part.address, lambda: part.fill(1)):
        text = _refused(pl.Closed, Fault.CLOSED, use)
        assert re.match(
            r"imported buffer \d+ \(100 bytes .*, opened at \w+.py:\d+\) was closed by Buffer", text
        )
    text = _refused(pl.BadAddress, Fault.FREED_ADDRESS, lambda: pl.raw.fill(address, 1, count=4))
    assert "imported buffer" in text
    assert "closed by Buffer.close()" in text
    buffer = pl.Buffer.open(number)
    address = buffer.address
    del buffer
    text = _refused(pl.BadAddress, Fault.FREED_ADDRESS, lambda: pl.raw.fill(address, 1, count=4))
    assert "imported buffer" in text
    assert "closed by garbage collection" in text


def test_part_of_closed_range_error_names_the_close_of_the_range(node: Node) -> None:
    device = node()[0]
    closed, left = (pl.AddressRange(device, G) for _ in range(2))
    parts = closed[:4], left[:4]
    closed.close()
    pl.leave_node()
    for part, how in zip(parts, (r"AddressRange\.close\(\)", "leaving the node"), strict=True):
        text = rf"a part of address range \d+ \(.*reserved at .*\), which was closed by {how} at \w+.py:\d+; "
        for use in (lambda part=part: part.fill(1), lambda part=part: part.address, part.view):
            with pytest.raises(pl.Closed, match=text) as refused:
                use()
            assert ("`with` block" in str(refused.value)) is (how != "leaving the node")


@pytest.mark.parametrize("stays", [1, 2])
def test_open_handle_from_before_leave_node_raises_stale_handle(node: Node, stays: int) -> None:
    spec = f"name=again-{os.getpid()},devices=2"
    old = pl.Physical(node(spec)[0], G).export(allow="user")
    forms = old, bytes(old), int(old)
    for _ in range(stays):
        pl.leave_node()
        device = node(spec)[0]
        block = pl.Physical(device, G)
        handle = block.export(allow="user")
    for form in forms:
        _refused(pl.BadHandle, Fault.STALE_HANDLE, lambda form=form: pl.Physical.open(form))
    with pl.Physical(device, G).export() as closed:
        pass
    for form in (closed, bytes(closed), int(closed)):
        _refused(pl.BadHandle, Fault.STALE_HANDLE, lambda form=form: pl.Physical.open(form))
    _refused(pl.BadHandle, Fault.BAD_HANDLE, lambda: pl.Physical.open(int(handle) ^ 1))
    _refused(pl.AccessDenied, Fault.OWN_HANDLE, lambda: pl.Physical.open(bytes(handle)))
    # Another process has the slot that this process had before it left the node.
    pl.leave_node()
    with peer(spec) as other:
        other.run("block = pl.Physical(devices[0], G); handle = block.export(allow='user')")
        node(spec)
        _refused(pl.BadHandle, Fault.STALE_HANDLE, lambda: pl.Physical.open(forms[1]))
        _refused(pl.BadHandle, Fault.BAD_HANDLE, lambda: pl.Physical.open(forms[2]))
