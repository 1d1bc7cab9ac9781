"""Collectives over two machines of two ranks: their results, and how many bytes cross the network."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.absent import needs_engine
from helpers.namespaces import OtherNetwork, other_network
from helpers.prepared import run_python
from helpers.two_machines import TCP, on_two, run

FOLDER = Path(__file__).parents[1]
MEGABYTES = 8
PLACINGS = [
    "abab",
    pytest.param("aabb", marks=pytest.mark.soak),
    pytest.param("aaab", marks=pytest.mark.soak),
]

pytestmark = [
    pytest.mark.any_schedule,
    pytest.mark.timeout(240),
    needs_engine,
]


@pytest.mark.takes_long
@pytest.mark.parametrize("placed", PLACINGS)
def test_tests_of_collectives_pass_on_two_machines(placed: str) -> None:
    words = ["-q", "-p", "helpers.threads_on_machines", "-p", "no:cacheprovider", "-m", "not soak"]
    file = str(FOLDER / "collectives" / "test_collectives.py")
    environ = {**os.environ, **TCP, "PLACED": placed}
    done = run_python(["-m", "pytest", *words, file], env=environ, cwd=FOLDER, timeout=200)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.fixture
def network() -> Iterator[OtherNetwork]:
    with other_network() as second_network:
        yield second_network


CROSSED = f"""
import numpy as np
SIZE = {MEGABYTES} << 20
def crossed():
    folder = "/sys/class/net/" + os.environ["PEERLANE_INTERFACE"] + "/statistics/"
    return sum(int(open(folder + name).read()) for name in ("rx_bytes", "tx_bytes"))
with joined(timeout=30) as group:
    for peer in range(group.size):
        if peer != group.rank:
            with group.channel(peer) as channel:
                if not group.members[peer].is_here: over_tcp(channel)
    whole, part = np.ones(SIZE // 4, np.float32), np.ones(SIZE // 16, np.float32)
    found = {{}}
    for name, call in {{
        "all_reduce": lambda: group.all_reduce(whole, dtype="float32"),
        "broadcast": lambda: group.broadcast(whole, 0),
        "all_gather": lambda: group.all_gather(whole, part),
        "reduce": lambda: group.reduce(whole, root=3, dtype="float32"),
        "reduce_scatter": lambda: group.reduce_scatter(part, whole, dtype="float32"),
    }}.items():
        call()
        group.barrier()
        before = crossed()
        group.barrier()  # nobody sends before
        call()
        group.barrier()
        found[name] = (crossed() - before) / SIZE
    if group.rank == 0: say(found)
"""
# In units of the whole, both ways together: what crosses between ranks that lie side by side.  TCP may send again.
LEAST = {"all_reduce": 2.0, "broadcast": 1.0, "all_gather": 1.0, "reduce": 1.0, "reduce_scatter": 1.5}


def test_bytes_cross_network_once_for_each_machine(network: OtherNetwork) -> None:
    environs, prefixes = on_two(network, "aabb")
    ends = run(CROSSED, environs, prefixes)
    assert [(code, errors) for code, _, errors in ends] == [(0, "")] * 4
    shown = ast.literal_eval(ends[0][1])
    print(shown)
    assert {name: LEAST[name] <= share < 1.5 * LEAST[name] for name, share in shown.items()} == dict.fromkeys(
        LEAST, True
    ), shown


ON_STREAMS = """
import numpy as np
with joined(timeout=30) as group, group.device.create_stream() as stream:
    for peer in range(group.size):
        if not group.members[peer].is_here: over_tcp(group.channel(peer))
    source, result = group.device.allocate(1 << 20), group.device.allocate(1 << 20)
    for on in (stream, None):
        source.copy_from(np.full(1 << 18, 10**group.rank, np.int32), stream=on)
        group.all_reduce(result, source, dtype="int32", stream=on)
        if on is not None: stream.sync()
        say(*np.unique(result.view(np.int32)))
"""


def test_collective_on_a_stream_waits_for_what_was_queued_there(network: OtherNetwork) -> None:
    environs, prefixes = on_two(network, "aabb", PEERLANE_SCHEDULE="lazy")
    assert run(ON_STREAMS, environs, prefixes) == [(0, "1111\n1111\n", "")] * 4
