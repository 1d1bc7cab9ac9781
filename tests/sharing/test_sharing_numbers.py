"""Many handles, many importers, many blocks side by side, and too few descriptors."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import peerlane as pl
from helpers.launched import until
from helpers.peers import Peer, PeerError, peer
from helpers.prepared import run_python
from peerlane.backends.virtual.node.census import take_census

G = 2 << 20
SECONDS = 120.0

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

Node = Callable[..., tuple[pl.Device, ...]]

DESCRIPTORS = "import os; result = len(os.listdir('/proc/self/fd'))"


def _limit(soft: int, hard: int | None = None) -> str:
    hard_text = "resource.getrlimit(resource.RLIMIT_NOFILE)[1]" if hard is None else str(hard)
    return f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard_text}))"


def _spec(name: str) -> str:
    return f"name={name}-{os.getpid()},devices=2,memory=64GiB"


def handles_alive(device: pl.Device, spec: str, count: int) -> None:
    """Export ``count`` blocks and open them, between processes whose soft limit is 256 descriptors."""
    with peer(spec) as exporter, peer(spec) as importer:
        for each in (exporter, importer):
            each.run(_limit(256))
        before = [each.run(DESCRIPTORS) for each in (exporter, importer)]
        exporter.send(
            f"blocks = [pl.Physical(devices[i % 2], G) for i in range({count})]\n"
            f"handles = [b.export(allow=[{importer.pid}]) for b in blocks]\n"
            "mark = pl.AddressRange(devices[0], G)\n"
            "for i, b in enumerate(blocks):\n"
            "    mark.map(b); mark[:4].copy_from(i.to_bytes(4, 'big')); mark.unmap()\n"
            "result = [int(h) for h in handles]"
        )
        numbers = exporter.receive(SECONDS)
        assert len(set(numbers)) == count
        importer.send(
            f"opened = [pl.Physical.open(n) for n in {numbers}]\n"
            "mark = pl.AddressRange(devices[0], G)\n"
            "found = []\n"
            "for b in opened:\n"
            "    mark.map(b, access='r'); found.append(int.from_bytes(bytes(mark[:4].view()), 'big')); mark.unmap()\n"
            f"result = found == list(range({count}))"
        )
        assert importer.receive(SECONDS)
        assert exporter.run("result = sum(h.importers for h in handles)") == count
        assert device.free_bytes == device.total_bytes - count // 2 * G
        importer.run("[b.close() for b in opened]", SECONDS)
        exporter.run(
            "import time\nuntil = time.monotonic() + 20\n"
            "while sum(h.importers for h in handles) and time.monotonic() < until: pass\n"
            "[h.close() for h in handles]; [b.close() for b in blocks]",
            SECONDS,
        )
        assert device.free_bytes == device.total_bytes
        # What stays: the exporter's server, and the importer's connection to it.
        after = [each.run(DESCRIPTORS) for each in (exporter, importer)]
        assert after[0] <= before[0] + 8 and after[1] <= before[1] + 4


def test_thousand_handles_open_with_256_descriptors(node: Node) -> None:
    spec = _spec("handles")
    handles_alive(node(spec)[0], spec, 1000)


def test_process_with_some_blocks_has_room_for_many_descriptors(node: Node) -> None:
    spec, room = (
        _spec("room"),
        "result = int(open('/proc/self/status').read().split('FDSize:')[1].split()[0])",
    )
    node(spec)
    with peer(spec) as other:
        other.run(_limit(4096))
        assert other.run(room) < 1024
        other.run("kept = [pl.Physical(devices[0], G) for _ in range(250)]")
        assert other.run(room) == 4096
        other.run("[each.close() for each in kept]")


@pytest.mark.soak
def test_ten_thousand_handles_open_with_256_descriptors(node: Node) -> None:
    hard = Path("/proc/self/limits").read_text().split("Max open files")[1].split()[1]
    if hard != "unlimited" and int(hard) < 10_500:
        pytest.skip(f"the hard limit of open files is {hard}")
    spec = _spec("handles")
    handles_alive(node(spec)[0], spec, 10_000)


def _until_refused(other: Peer, code: str) -> int:
    """Repeat code until it raises; return how often it succeeded."""
    done: int = other.run(
        "done = 0\n"
        "try:\n"
        f"    while done < 10_000: {code}; done += 1\n"
        "except pl.OutOfMemory as error:\n"
        "    assert error.fault.name == 'OUT_OF_RESOURCES', error\n"
        "    assert 'descriptor' in str(error) or 'ulimit' in str(error), error\n"
        "result = done",
        SECONDS,
    )
    assert 0 < done < 10_000
    return done


def test_physical_without_descriptor_raises_and_charges_nothing(node: Node) -> None:
    spec = _spec("few")
    device = node(spec)[0]
    with peer(spec) as other:
        other.run(_limit(48, 64))
        other.run("warm = pl.Physical(devices[0], G); first = warm.export(); kept = []")
        done = _until_refused(other, "kept.append(pl.Physical(devices[0], G))")
        assert device.free_bytes == device.total_bytes - (done + 1) * G  # the refused one is not charged
        for code in ("pl.Physical(devices[0], G)", f"warm.export(allow=[{os.getpid()}])") * 2:
            with pytest.raises(PeerError) as refused:
                other.run(code)
            assert (refused.value.kind, refused.value.fault) == ("OutOfMemory", "OUT_OF_RESOURCES")
        # Without a descriptor no process can tell which others live; it must not take their slots away.
        assert other.run("result = devices[0].free_bytes") == device.free_bytes
        directory = Path(os.environ["PEERLANE_RUNTIME_DIR"])
        pids = [
            holder.pid for holder in take_census(directory, spec.split(",")[0].removeprefix("name=")).holders
        ]
        assert sorted(pids) == sorted([os.getpid(), other.pid])
        assert device.free_bytes == device.total_bytes - (done + 1) * G
        other.run("kept.pop().close(); kept.append(pl.Physical(devices[0], G))")
        other.run("[b.close() for b in kept]; warm.close()")
        assert device.free_bytes == device.total_bytes


def test_open_without_descriptor_raises_and_opens_nothing(node: Node) -> None:
    spec = _spec("few")
    device = node(spec)[0]
    with peer(spec) as exporter, peer(spec) as importer:
        exporter.run(
            f"blocks = [pl.Physical(devices[0], G) for _ in range(100)]\n"
            f"handles = [b.export(allow=[{importer.pid}]) for b in blocks]"
        )
        numbers = exporter.run("result = [int(h) for h in handles]")
        importer.run(_limit(48, 64) + f"\nkept = []; numbers = {numbers}")
        done = _until_refused(importer, "kept.append(pl.Physical.open(numbers[done]))")
        for _ in range(3):
            with pytest.raises(PeerError) as refused:
                importer.run("pl.Physical.open(numbers[-1])")
            assert (refused.value.kind, refused.value.fault) == ("OutOfMemory", "OUT_OF_RESOURCES")
        # An open that failed for want of a descriptor does not count as an importer.
        exporter.run(
            "import time\nuntil = time.monotonic() + 20\n"
            f"while sum(h.importers for h in handles) != {done} and time.monotonic() < until: pass"
        )
        assert exporter.run("result = sum(h.importers for h in handles)") == done
        importer.run("kept.pop().close(); again = pl.Physical.open(numbers[-1])")
        assert device.free_bytes == device.total_bytes - 100 * G


# Importing peerlane starts nothing, so one process imports it and forks all importers.
IMPORTERS = """
import json, os, sys
import peerlane as pl
from peerlane.cli import machine
number, count, size = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
def child(rank, said, go):
    d0, d1 = pl.devices()
    block = pl.Physical.open(number, timeout=100)
    rng = pl.AddressRange(d1, size)
    rng.map(block)
    ok = bytes(rng[:4].view()) == b"here"
    rng[4096 + rank : 4097 + rank].copy_from(bytes([rank % 251]))
    os.write(said, b"y" if ok else b"n")
    os.read(go, 1)      # all have it before one lets go
    os._exit(0)
reads, says = os.pipe()
waits, lets = os.pipe()
for rank in range(count):
    if os.fork() == 0:
        os.close(lets)
        try: child(rank, says, waits)
        finally: os._exit(1)
answers = b""
while len(answers) < count:
    answers += os.read(reads, 4096)
print(json.dumps(answers.decode()), flush=True)
sys.stdin.readline()
os.close(lets)
ends = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(count)]
assert ends == [0] * count, ends
"""


def importers_of_one(node: Node, count: int) -> None:
    """Let ``count`` processes have one block at the same time; each writes one byte of it."""
    spec = _spec("importers")
    device = node(spec)[0]
    block = pl.Physical(device, G)
    rng = pl.AddressRange(device, G)
    rng.map(block)
    rng[:4].copy_from(b"here")
    handle = block.export(allow="user")
    environment = {**os.environ, "PEERLANE_NODE": spec}
    done = run_python(
        ["-c", IMPORTERS, str(int(handle)), str(count), str(G)], timeout=SECONDS, env=environment, input="\n"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == "y" * count
    assert bytes(rng[4096 : 4096 + count].view()) == bytes(rank % 251 for rank in range(count))
    print(f"{count} importers of one block in {done.seconds:.1f} s")
    assert device.free_bytes == device.total_bytes - G  # charged once
    rng.close()
    handle.close()
    block.close()
    until(
        lambda: device.free_bytes == device.total_bytes
    )  # this process may not have heard yet that they ended


def test_block_with_16_importers_is_shared_and_charged_once(node: Node) -> None:
    importers_of_one(node, 16)


@pytest.mark.soak
def test_block_with_200_importers_is_shared_and_charged_once(node: Node) -> None:
    importers_of_one(node, 200)


def test_range_of_1000_imported_blocks_copies_across_seams(node: Node) -> None:
    count, spec = 1000, _spec("blocks")
    device = node(spec)[0]
    with peer(spec) as exporter:
        numbers = exporter.run(
            f"blocks = [pl.Physical(devices[i % 2], G) for i in range({count})]\n"
            f"handles = [b.export(allow=[{os.getpid()}]) for b in blocks]\n"
            f"rng = pl.AddressRange(devices[0], {count} * G)\n"
            "for i, b in enumerate(blocks): rng.map(b, at=i * G, access='rw')\n"
            "result = [int(h) for h in handles]",
            SECONDS,
        )
        rng = pl.AddressRange(device, count * G)
        for index, number in enumerate(numbers):
            with pl.Physical.open(number) as block:
                rng.map(block, at=index * G, access="rw")
        assert len(rng.mappings) == count

        # 64 bytes across each seam, written by one copy_2d and read by another.
        seams, width = count - 1, 64
        strips = bytes((row * 3 + column) % 251 for row in range(seams) for column in range(width))
        first = rng.address + G - width // 2
        source = pl.Host().allocate(len(strips))
        source.copy_from(strips)
        pl.raw.copy_2d(first, G, source.address, width, width, seams)
        result = exporter.run(
            f"import hashlib; rows = pl.Host().allocate({len(strips)})\n"
            f"pl.raw.copy_2d(rows.address, {width}, rng.address + G - {width // 2}, G, {width}, {seams})\n"
            "result = bytes(rows.view()).hex()"
        )
        assert bytes.fromhex(result) == strips

        # One flat copy across 31 seams, from the middle of a block to the middle of another.
        size = 31 * G
        exporter.run(
            f"import numpy as np; part = rng[G // 2 : G // 2 + {size}]\n"
            f"part.copy_from(np.arange({size} // 8, dtype='<u8'))"
        )
        far = (count - 40) * G + 12_345
        pl.copy(rng[far : far + size], rng[G // 2 : G // 2 + size])
        assert exporter.run(
            f"result = bool((rng[{far} : {far} + {size}].view('<u8', ({size // 8},)) == "
            f"np.arange({size} // 8, dtype='<u8')).all())"
        )
        rng.close()
