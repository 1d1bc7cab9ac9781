"""SIGKILL at random points of sharing: the survivor learns of it in time and keeps its memory; nothing leaks."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from helpers.peers import SECONDS, Peer, PeerError, peer
from helpers.promised import overdue
from peerlane.testing.procs import await_session_end

pytestmark = pytest.mark.any_schedule

LOST_SECONDS = 0.5

POINTS = ("export", "allow", "open", "map", "copy", "close")
FORKS = ("none", "before", "none", "after")  # half of the victims fork a child

# What each process of a round defines.
COMMON = """
import gc, json, os, signal, time, psutil
def pattern(seed):
    return bytes((seed * 7 + i * 31) % 251 for i in range(4096))
def mapped(block):
    rng = pl.AddressRange(devices[0], block.size); rng.map(block); return rng
def begin():
    print(json.dumps({"result": "begun"}), flush=True)
def child_that_stays():
    # It holds every socket there is, also those that peerlane closes in its children.
    for name in os.listdir("/proc/self/fd"):
        try: kind = os.readlink(f"/proc/self/fd/{name}")
        except OSError: continue
        if kind.startswith("socket:"): os.dup(int(name))
    if os.fork() == 0:
        signal.pause()
        os._exit(0)
def state():
    gc.collect(); pl.trim()
    me = psutil.Process()
    return [me.memory_info().rss, me.num_fds(), devices[0].free_bytes]
"""

EXPORTER = """
home = pl.Physical(devices[0], G)
rng = mapped(home)
rng[:4096].copy_from(pattern({seed}))
rng[G - 4096 :].copy_from(pattern({seed} + 1))
handle = home.export(allow=[{other}])
spare = pl.Physical(devices[0], 4 * G)
"""

# Each loop runs until its process is killed; `number` is the other side's handle.
LOOPS = {
    "export": "while True: home.export(allow=[{other}]).close()",
    "allow": "more = home.export()\nwhile True: more.allow.add({other}); more.allow.discard({other})",
    "map": "space = pl.AddressRange(devices[1], 5 * G)\nwhile True: space.map(spare, at=G); space.unmap(G)",
    "copy": "space = mapped(spare)\nwhile True: pl.copy(space[: 2 * G], space[2 * G :])",
    "close": "while True:\n    block = pl.Physical(devices[0], G); made = block.export(); block.close()",
    "open": "while True: signal.pause()",
}

OPEN = "pl.Physical.open({number}, timeout=20)"
IMPORTS = {
    "export": "while True: pl.Physical(devices[0], G).export(allow=[{other}])",
    "allow": "while True: " + OPEN + ".close()",
    "open": "kept = []\nwhile True: kept.append(" + OPEN + ")",
    "map": "block = " + OPEN + "\nspace = pl.AddressRange(devices[1], 5 * G)\n"
    "while True: space.map(block, at=G); space.unmap(G)",
    "copy": "space = mapped(" + OPEN + ")\nown = devices[0].allocate(G)\nwhile True: pl.copy(own, space[:])",
    "close": "while True:\n    block = " + OPEN + "; space = mapped(block); block.close(); space.close()",
}

# The survivor imports until its exporter is lost, and returns when that was.
IMPORT_UNTIL_LOST = """
begin()
try:
    while True: pl.Physical.open({number}, timeout=20).close()
except pl.PeerLost as error:
    assert str({victim}) in str(error), error
    result = time.monotonic()
"""

# It sleeps between looks at the importers: a survivor that does something else must learn of it, too.
EXPORT_UNTIL_LEFT = """
begin()
while handle.importers == 0: pass
begin()
while handle.importers: time.sleep(0.001)
result = time.monotonic()
"""


@dataclass
class Campaign:
    """One survivor, the victims that it outlives, and the longest time it took to learn of a death."""

    survivor: Peer
    spec: str
    random: random.Random
    worst: float = 0.0
    worst_at: str = ""
    rounds: list[str] = field(default_factory=list)

    def victim(self, fork: str) -> contextlib.AbstractContextManager[Peer]:
        """Start a process that may have a child which outlives it."""
        return _victim(self.spec, fork)

    def kill(self, victim: Peer) -> float:
        """Kill the victim, not its child, within the next 20 ms; return the time of the kill."""
        time.sleep(self.random.uniform(0, 0.02))
        at = time.monotonic()
        os.kill(victim.pid, signal.SIGKILL)
        return at

    def note(self, seconds: float, what: str) -> None:
        """Check that the survivor learned of the death in time."""
        self.rounds.append(what)
        if seconds > self.worst:
            self.worst, self.worst_at = seconds, what
        assert seconds < overdue(LOST_SECONDS), f"{what}: {seconds:.2f} s"


@contextlib.contextmanager
def _victim(spec: str, fork: str) -> Iterator[Peer]:
    victim = Peer({**os.environ, "PEERLANE_NODE": spec})
    try:
        victim.run(COMMON)
        if fork == "before":
            victim.run("child_that_stays()")
        victim.run("devices = pl.devices()")
        yield victim
    finally:
        victim.kill()
    assert await_session_end(victim.pid, SECONDS) == {}


def exporter_dies(campaign: Campaign, point: str, fork: str, seed: int) -> None:
    """The survivor holds memory of the victim, and opens more while it is killed."""
    survivor = campaign.survivor
    with campaign.victim(fork) as victim:
        words = {"seed": seed, "other": survivor.pid}
        victim.run(EXPORTER.format(**words))
        number = victim.run("result = int(handle)")
        survivor.run(f"kept = mapped(pl.Physical.open({number}))")
        if fork == "after":
            victim.run("child_that_stays()")
        survivor.send(IMPORT_UNTIL_LOST.format(number=number, victim=victim.pid))
        assert survivor.receive() == "begun"
        victim.send("begin()\n" + LOOPS[point].format(**words))
        assert victim.receive() == "begun"
        at = campaign.kill(victim)
        campaign.note(survivor.receive() - at, f"exporter at {point}, fork {fork}")
        held = survivor.run(
            f"result = [bytes(kept[:4096].view()) == pattern({seed}),"
            f" bytes(kept[G - 4096 :].view()) == pattern({seed} + 1)]\n"
            "kept[:].fill(3); result.append(bool((kept[:].view() == 3).all()))"
        )
        assert held == [True, True, True]
        with pytest.raises(PeerError) as lost:
            survivor.run(f"pl.Physical.open({number})")
        assert lost.value.kind == "PeerLost"
        survivor.run("kept.close()")


def importer_dies(campaign: Campaign, point: str, fork: str, seed: int) -> None:
    """The victim opens, maps and copies the survivor's memory, and is killed meanwhile."""
    survivor = campaign.survivor
    with campaign.victim(fork) as victim:
        survivor.run(EXPORTER.format(seed=seed, other=victim.pid) + "number = int(handle)")
        words = {"number": survivor.run("result = number"), "other": survivor.pid}
        if fork == "after":
            victim.run(f"first = {OPEN.format(**words)}; child_that_stays()")
        survivor.send(EXPORT_UNTIL_LEFT)
        assert survivor.receive() == "begun"
        # One import stays open, so that the kill is the moment at which the last importer goes.
        victim.send(f"held = {OPEN.format(**words)}\nbegin()\n{IMPORTS[point].format(**words)}")
        assert victim.receive() == "begun"
        assert survivor.receive() == "begun"
        at = campaign.kill(victim)
        campaign.note(survivor.receive() - at, f"importer at {point}, fork {fork}")
        assert survivor.run(f"result = bytes(rng[:4096].view()) == pattern({seed})")
        survivor.run("rng.close(); home.close(); spare.close(); handle.close(); del rng, home, spare, handle")


def _shared_memory() -> set[str]:
    """Return the names in the system's shared memory that may be peerlane's, but not those of other tests' checks."""
    names = {each.name for each in Path("/dev/shm").iterdir()}
    return {name for name in names if "peerlane" in name and not name.startswith("peerlane-scratch-")}


def _state(survivor: Peer) -> dict[str, int]:
    resident, descriptors, free = survivor.run("result = state()")
    return {"resident": resident, "descriptors": descriptors, "free": free}


def campaign(rounds: int, runtime: Path, growth: int) -> None:
    """Run rounds of both roles at all points; in half of them a forked child holds the victim's sockets."""
    seed = int(os.environ.get("PEERLANE_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"seed: PEERLANE_TEST_SEED={seed}")
    name = f"kills-{os.getpid()}"
    spec = f"name={name},devices=2"
    shared_memory = _shared_memory()
    began = time.monotonic()
    with peer(spec) as survivor:
        survivor.run(COMMON)
        going = Campaign(survivor, spec, random.Random(seed))
        before: Any = None
        for number in range(-2, rounds):
            role = (exporter_dies, importer_dies)[number % 2]
            point = POINTS[number // 2 % len(POINTS)] if number % 3 else going.random.choice(POINTS)
            role(going, point, FORKS[(number // 2 + number // 8) % 4], number % 100)
            if number == -1:  # after one round of each role caches are filled
                before = _state(survivor)
        with peer(spec) as following:  # entering reaps dead processes
            following.run("result = devices[0].free_bytes")
        left = {entry.name for entry in runtime.iterdir() if entry.name.startswith(name)}
        assert left == {f"{name}.node", f"{name}.0.sock"}  # the survivor has slot 0
        until = time.monotonic() + 20  # its thread may have to hear of the last deaths
        while (after := _state(survivor))["descriptors"] > before["descriptors"] and time.monotonic() < until:
            pass
        print(
            f"{rounds} kills in {time.monotonic() - began:.0f} s; told within {1000 * going.worst:.1f} ms at worst "
            f"({going.worst_at}); survivor {before} -> {after}"
        )
        assert after["free"] == before["free"]
        assert after["descriptors"] <= before["descriptors"]
        assert after["resident"] <= before["resident"] + growth
        survivor.close()
    assert {entry.name for entry in runtime.iterdir() if entry.name.startswith(name)} == {f"{name}.node"}
    assert _shared_memory() <= shared_memory


@pytest.mark.timeout(20 * SECONDS)
def test_sharing_process_killed_20_times_leaves_survivor_whole(runtime_directory: Path) -> None:
    campaign(20, runtime_directory, 4 << 20)


@pytest.mark.soak
def test_sharing_process_killed_500_times_leaves_survivor_whole(runtime_directory: Path) -> None:
    campaign(500, runtime_directory, 4 << 20)
