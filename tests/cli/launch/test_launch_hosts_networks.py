"""``peerlane launch --hosts`` with a rank behind a network of its own, which can be cut."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.launched import Run, Start
from helpers.namespaces import OtherNetwork, other_network

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

UNREACHABLE = 5.0
TALK = """\
import os, signal, sys, time
from peerlane.rendezvous import Rendezvous
r = Rendezvous.from_environment()
def talk(rounds):
    for number in range(rounds):
        r.barrier(str(number))
        if number == 3 and r.rank == 0: print("ready", flush=True)
        time.sleep(0.02)
"""


@pytest.fixture
def network() -> Iterator[OtherNetwork]:
    with other_network() as it:
        yield it


def words(network: OtherNetwork, *more: str) -> tuple[str, ...]:
    hosts = f"localhost:1,{network.prefix[-1]}:2"
    command = " ".join(network.prefix[:-1])
    return (
        "--ssh",
        command,
        "--address",
        network.near,
        "--unreachable",
        str(UNREACHABLE),
        "--hosts",
        hosts,
        *more,
    )


def test_networks_ranks_meet_and_see_their_own_network(network: OtherNetwork, run: Run) -> None:
    program = TALK + (
        "import socket\n"
        "names = sorted(name for _, name in socket.if_nameindex())\n"
        "talk(5)\n"
        "print(' '.join(map(bytes.decode, r.gather('names', ','.join(names).encode()))))\n"
        "print('master', os.environ['MASTER_ADDR'])\n"
    )
    done = run(*words(network, "-c", program))
    assert done.returncode == 0, done.stderr
    lines = [line.partition("] ")[2] for line in done.stdout.splitlines()]
    assert lines.count(f"master {network.near}") == 3
    (seen,) = {line for line in lines if "far" in line}
    cwd, *there = seen.split()
    assert there == ["far,lo"] * 2 and "far" not in cwd.split(",")


def test_networks_cut_is_a_lost_machine_and_leaves_nothing(network: OtherNetwork, start: Start) -> None:
    launched = start(*words(network, "-c", TALK + "talk(100_000)"))
    launched.expect("ready")
    began = time.monotonic()
    network.cut()
    done = launched.end()
    assert done.returncode == 2
    assert f"host {network.prefix[-1]} is lost: " in done.stderr
    assert f"silent for {UNREACHABLE:g} s" in done.stderr
    assert time.monotonic() - began < 20


def test_networks_short_outage_heals(network: OtherNetwork, start: Start, cwd: Path) -> None:
    program = TALK + (
        "talk(5)\n"
        "if r.rank == 0:  # the others are in the next barrier meanwhile\n"
        "    while not os.path.exists('cut'): time.sleep(0.01)\n"
        "talk(5); print('done')"
    )
    launched = start(*words(network, "--unreachable", "20", "-c", program))
    launched.expect("ready")
    network.cut()
    (cwd / "cut").touch()
    assert launched.left_after(0.5) != {}
    network.mend()
    done = launched.end()
    assert (done.returncode, done.stdout.count("done")) == (0, 3), done.stderr


def test_networks_unreachable_address_is_reported_and_ends_launch(network: OtherNetwork, run: Run) -> None:
    network.cut()
    done = run(*words(network, "-c", TALK + "talk(1); print('ran')"))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"no rendezvous answered at tcp://{network.near}:" in done.stderr


def test_networks_interrupt_ends_ranks_behind_a_cut_network(network: OtherNetwork, start: Start) -> None:
    launched = start(*words(network, "--unreachable", "30", "-c", TALK + "talk(100_000)"))
    launched.expect("ready")
    network.cut()
    launched.send(signal.SIGINT)
    done = launched.end()
    assert done.returncode in (130, 1)
    assert done.seconds < 30
