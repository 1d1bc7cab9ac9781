"""The order in which processes let go of shared memory does not matter: it lives until the last one has."""

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

# What each may do, in its own order.  Ending lets go of everything, so it comes last, with or without the rest.
EXPORTER_WAYS = ((CLOSE, EXIT), (EXIT,))
IMPORTER_WAYS = ((CLOSE, UNMAP, EXIT), (UNMAP, CLOSE, EXIT), (CLOSE, EXIT), (UNMAP, EXIT), (EXIT,))

Step = tuple[str, str]


def _orders(exporter: tuple[str, ...], importer: tuple[str, ...]) -> Iterator[tuple[Step, ...]]:
    """Yield every way in which the steps of the two can follow each other."""
    count = len(exporter) + len(importer)
    for places in itertools.combinations(range(count), len(exporter)):
        first, second = iter(exporter), iter(importer)
        yield tuple(
            (EXPORTER, next(first)) if place in places else (IMPORTER, next(second)) for place in range(count)
        )


FULL = [
    order for way in IMPORTER_WAYS if len(way) == 3 for order in _orders(EXPORTER_WAYS[0], way)
]  # each of the five things once: 20 orders
ALL = [order for first in EXPORTER_WAYS for second in IMPORTER_WAYS for order in _orders(first, second)]


def _name(order: tuple[Step, ...]) -> str:
    return "-".join(f"{who[0]}.{what}" for who, what in order)


def _lives_after(done: tuple[Step, ...]) -> bool:
    """Whether somebody still has the memory."""
    exporter = {what for who, what in done if who == EXPORTER}
    importer = {what for who, what in done if who == IMPORTER}
    return not exporter or (EXIT not in importer and not {CLOSE, UNMAP} <= importer)


def _becomes(device: pl.Device, free: int) -> None:
    deadline = time.monotonic() + SECONDS
    while device.free_bytes != free:  # an importer's goodbye is on its way to the exporter
        assert time.monotonic() < deadline, f"{device.free_bytes:,} of {free:,} bytes are free"


def _step(peers: dict[str, Peer], who: str, what: str) -> None:
    if what == EXIT:
        peers[who].close()
    else:
        peers[who].run({CLOSE: "block.close()", UNMAP: "rng.unmap()"}[what])


def release(device: pl.Device, spec: str, order: tuple[Step, ...], content: bytes) -> None:
    """Let the two let go in an order; a third process sees the memory live, and go at the right moment."""
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
                    found = importer.run(f"result = bytes(rng[: {len(content)}].view()).hex()")
                    assert bytes.fromhex(found) == content
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
    """Nobody has opened it: the handle does not keep it, and neither does the list of who might."""
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
