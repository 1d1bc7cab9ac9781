"""Shared memory lives until the last process has let go of it, in whatever order they do."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator

import pytest

import peerlane as pl
from helpers.peers import Peer, peer

SECONDS = 10.0
G = 2 << 20
SIZE = 4 * G

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

Node = Callable[..., tuple[pl.Device, ...]]

EXPORTER, IMPORTER = "exporter", "importer"
CLOSE, UNMAP, EXIT = "close", "unmap", "exit"

# The steps of each process, in its own order.  Exit lets go of everything, so it comes last.
EXPORTER_ORDERS = ((CLOSE, EXIT), (EXIT,))
IMPORTER_ORDERS = ((CLOSE, UNMAP, EXIT), (UNMAP, CLOSE, EXIT), (CLOSE, EXIT), (UNMAP, EXIT), (EXIT,))

Step = tuple[str, str]


def _orders(exporter: tuple[str, ...], importer: tuple[str, ...]) -> Iterator[tuple[Step, ...]]:
    """Yield each interleaving of the steps of the two processes."""
    count = len(exporter) + len(importer)
    for positions in itertools.combinations(range(count), len(exporter)):
        first, second = iter(exporter), iter(importer)
        yield tuple(
            (EXPORTER, next(first)) if position in positions else (IMPORTER, next(second))
            for position in range(count)
        )


FULL = [
    order for steps in IMPORTER_ORDERS if len(steps) == 3 for order in _orders(EXPORTER_ORDERS[0], steps)
]  # all five steps: 20 orders
ALL = [order for first in EXPORTER_ORDERS for second in IMPORTER_ORDERS for order in _orders(first, second)]


def _name(order: tuple[Step, ...]) -> str:
    return "-".join(f"{who[0]}.{what}" for who, what in order)


def _lives_after(done: tuple[Step, ...]) -> bool:
    """Tell whether a process still has the memory after these steps."""
    exporter = {what for who, what in done if who == EXPORTER}
    importer = {what for who, what in done if who == IMPORTER}
    return not exporter or (EXIT not in importer and not {CLOSE, UNMAP} <= importer)


def _becomes(device: pl.Device, free: int) -> None:
    deadline = time.monotonic() + SECONDS
    while device.free_bytes != free:  # the exporter may not have heard yet that the importer left
        assert time.monotonic() < deadline, f"{device.free_bytes:,} of {free:,} bytes are free"


def _step(peers: dict[str, Peer], who: str, what: str) -> None:
    if what == EXIT:
        peers[who].close()
    else:
        peers[who].run({CLOSE: "block.close()", UNMAP: "rng.unmap()"}[what])


def release(device: pl.Device, spec: str, order: tuple[Step, ...], content: bytes) -> None:
    """Let two processes let go in an order; this process checks when the memory goes."""
    total = device.total_bytes
    with peer(spec) as exporter, peer(spec) as importer:
        number = exporter.run(
            f"block = pl.Physical(devices[0], {SIZE}); handle = block.export(allow=[{importer.pid}])\n"
            f"with pl.AddressRange(devices[0], {SIZE}) as space:\n"
            f"    space.map(block); space[: {len(content)}].copy_from({content})\n"
            "result = int(handle)"
        )
        importer.run(
            f"block = pl.Physical.open({number}); rng = pl.AddressRange(devices[1], {SIZE}); rng.map(block)"
        )
        assert device.free_bytes == total - SIZE
        for count, (who, what) in enumerate(order, 1):
            _step({EXPORTER: exporter, IMPORTER: importer}, who, what)
            if _lives_after(order[:count]):
                assert device.free_bytes == total - SIZE, f"after {_name(order[:count])}"
                mapped = not {(IMPORTER, UNMAP), (IMPORTER, EXIT)} & set(order[:count])
                if mapped:
                    content_hex = importer.run(f"result = bytes(rng[: {len(content)}].view()).hex()")
                    assert bytes.fromhex(content_hex) == content
            else:
                _becomes(device, total)
    assert device.free_bytes == total


def _all_of(node: Node, orders: list[tuple[Step, ...]]) -> None:
    spec = f"name=release-{os.getpid()},devices=2"
    device = node(spec)[0]
    for number, order in enumerate(orders):
        release(device, spec, order, bytes((number, 1, 2, 3)))


def test_memory_released_in_each_order_of_five_steps_goes_with_last_user(node: Node) -> None:
    assert len(FULL) == 20
    _all_of(node, FULL)


@pytest.mark.soak
def test_memory_released_in_each_shorter_order_goes_with_last_user(node: Node) -> None:
    _all_of(node, [order for order in ALL if order not in FULL])


def test_memory_exported_and_not_opened_goes_with_its_owner(node: Node) -> None:
    """No process has opened it: neither the handle nor its allow list keeps the memory."""
    spec = f"name=release-{os.getpid()},devices=2"
    device = node(spec)[0]
    for end in ("block.close()", "handle.close(); block.close()", "block.close(); handle.close()"):
        with peer(spec) as exporter:
            exporter.run(
                f"block = pl.Physical(devices[0], {SIZE}); handle = block.export(allow=[{os.getpid()}])"
            )
            exporter.run(end)
            assert device.free_bytes == device.total_bytes
    with peer(spec) as exporter:
        exporter.run(
            "kept = [devices[0].allocate(100 + i) for i in range(9)]; made = [b.export() for b in kept]"
        )
        assert device.free_bytes < device.total_bytes
        exporter.run("[b.close() for b in kept]; pl.trim()")
        assert device.free_bytes == device.total_bytes
