"""Channels and collectives between machines: what they do, and what they say when the other machine fails."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.absent import needs_engine
from helpers.namespaces import OtherNetwork, other_network
from helpers.ports import free_port
from helpers.prepared import run_python
from helpers.promised import overdue
from helpers.two_machines import TCP, by_address, ended, hear, on_two, run, send_line, started

FOLDER = Path(__file__).parents[1]

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(180), needs_engine]


@pytest.mark.any_schedule
@pytest.mark.parametrize(
    "file", ["test_channels.py", "test_completion_queues.py", "test_promises_event_loops.py"]
)
def test_tests_of_channels_pass_between_machines(file: str) -> None:
    words = [
        "-q",
        "-p",
        "helpers.threads_as_machines",
        "-p",
        "no:cacheprovider",
        str(FOLDER / "ranks" / file),
    ]
    words += ["-k", "not between_switches"]  # about the route within a machine
    done = run_python(["-m", "pytest", *words], env={**os.environ, **TCP}, cwd=FOLDER, timeout=150)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.fixture
def network() -> Iterator[OtherNetwork]:
    with other_network() as second_network:
        yield second_network


MIXED = """
import hashlib
import numpy as np
with joined(timeout=30, window=1 << 20) as group:
    draw = np.random.default_rng(5)
    seen = hashlib.sha256()
    names = sorted({each.machine for each in group.members})
    for peer in range(group.size):
        if peer == group.rank: continue
        with group.channel(peer, notifies=4) as channel, group.device.create_stream() as stream:
            if not group.members[peer].is_here: over_tcp(channel)
            data = np.random.default_rng(group.rank * 100 + peer).integers(0, 256, 200_000, np.uint8)
            first = 200_000 * (group.rank if group.rank < peer else group.rank - 1)
            channel.write(data, at=first, notify=0, stream=stream)
            stream.sync(30)
            channel.wait(0, timeout=30)
            back = bytearray(data.nbytes)
            channel.read(back, at=first, stream=stream)  # as the write
            stream.sync(30)
            assert back == data.tobytes()
            channel.notify(1)
            channel.wait(1, timeout=30)
    seen.update(group.window.view()[:200_000 * (group.size - 1)])
    for nbytes in (64, 40_000, 3_000_000):
        mine = np.random.default_rng(group.rank).normal(size=nbytes // 4).astype(np.float32)
        for algorithm in ("one-shot", "two-shot", "ring", "by-machine"):
            whole = mine.copy()
            group.all_reduce(whole, dtype="float32", algorithm=algorithm)
            seen.update(whole)
        everyone = np.zeros(group.size * mine.size, np.float32)
        group.all_gather(everyone, mine)
        seen.update(everyone)
        group.broadcast(mine, 1)
        seen.update(mine)
    group.barrier()
    say(seen.hexdigest())
"""


@pytest.mark.parametrize("machines", ["aabb", "abab"])
def test_mixed_program_of_two_machines_gives_bytes_of_one(network: OtherNetwork, machines: str) -> None:
    far = run(MIXED, *on_two(network, machines))
    near = run(MIXED, by_address("aaaa", free_port()))
    assert [(code, errors) for code, _, errors in far + near] == [(0, "")] * 8
    assert [output for _, output, _ in far] == [output for _, output, _ in near]


@pytest.mark.any_schedule
def test_killed_rank_is_reported_to_those_who_wait_and_write(network: OtherNetwork) -> None:
    program = """
group = joined(timeout=30, window=1 << 20)
if group.rank == 2:
    for peer in (0, 1): group.channel(peer)
    say("ready")
    time.sleep(60)
channel = over_tcp(group.channel(2))
say("ready")
def until_lost():
    if group.rank == 0:
        channel.wait(0)
    else:
        while True: channel.write(bytes(100_000))
error = refused(until_lost)
say(time.time())
assert error.rank == 2, error.rank
refused(lambda: channel.notify(0))
"""
    environs, prefixes = on_two(network, "aab")
    with started(program, environs, prefixes) as children:
        assert [hear(child) for child in children] == ["ready"] * 3
        killed = time.time()
        children[2].send_signal(signal.SIGKILL)
        ends = ended(children)
    for _, output, errors in ends[:2]:
        assert errors == ""
        first, reported, second = output.splitlines()
        assert first.startswith("PeerLost PEER_LOST "), first
        assert "rank 2 (process" in first
        assert "on machine b) is lost: " in first
        assert second.startswith("PeerLost PEER_LOST "), second
        assert float(reported) - killed < overdue(0.5)


@pytest.mark.any_schedule
def test_machine_that_vanishes_is_lost_after_its_time_and_short_outages_heal(network: OtherNetwork) -> None:
    program = """
with joined(timeout=30, window=1 << 20) as group:
    with over_tcp(group.channel(1 - group.rank, notifies=2)) as channel:
        if group.rank == 1:
            channel.wait(0, timeout=60)
            channel.notify(0)
            channel.wait(1, timeout=60)
            assert bytes(group.window.view()[:1000]) == b"x" * 1000
            time.sleep(600)
        channel.notify(0)
        channel.wait(0, timeout=60)
        say("cut")
        channel.write(b"x" * 1000, notify=1)
        say("healed")
        sys.stdin.readline()
        refused(lambda: channel.wait(1, timeout=60))
        say(time.monotonic())
    os._exit(0)
"""
    environs, prefixes = on_two(network, "ab", PEERLANE_UNREACHABLE="8")
    with started(program, environs, prefixes) as children:
        first = children[0]
        assert hear(first) == "cut"
        network.cut()
        time.sleep(1)  # the outage itself
        network.mend()
        assert hear(first) == "healed"
        cut_at = time.monotonic()  # the clock of the children too
        network.cut()
        send_line([first])
        code, output, errors = ended(children[:1])[0]
    assert (code, errors) == (0, "")
    text, lost_at = output.splitlines()
    assert "rank 1 (process" in text
    assert "has answered in time" in text
    assert 5 < float(lost_at) - cut_at < 5 * 9


@pytest.mark.any_schedule
def test_memory_taken_back_or_freed_is_refused_by_name_and_channel_goes_on(network: OtherNetwork) -> None:
    program = """
with joined(timeout=30, window=4096) as group:
    table, other = group.device.allocate(1 << 20), group.device.allocate(4096)
    group.register(table, "table")
    group.register(other, "other")
    with over_tcp(group.channel(1 - group.rank, notifies=2)) as channel, group.device.create_stream() as stream:
        if group.rank == 1:
            channel.wait(0, timeout=30)
            group.deregister("table")
            other.close()
            channel.notify(0)
            channel.wait(1, timeout=30)
        else:
            channel.write(bytes(1 << 20), memory="table", notify=0)
            channel.wait(0, timeout=30)
            refused(lambda: channel.write(b"x", memory="table"))
            refused(lambda: channel.read(bytearray(1 << 20), memory="table"))
            refused(lambda: channel.write_blocks(b"x", [(0, 0, 1)], memory="other"))
            channel.write(bytes(1 << 20), memory="table", stream=stream)
            channel.write(b"y", notify=1, stream=stream)
            refused(stream.sync)
            assert channel.peer_notifies == 2
            channel.write(b"z", notify=1, stream=stream)
            stream.sync()
"""
    (code, output, errors), other = run(program, *on_two(network, "ab"))
    assert (code, errors, other[0]) == (0, "", 0), other
    lines = output.splitlines()
    assert len(lines) == 4
    for line, memory, what in zip(
        lines,
        ("table", "table", "other", "table"),
        ("took it back", "took it back", "freed it", "took it back"),
        strict=True,
    ):
        assert line.startswith("Closed CLOSED "), line
        assert f"the memory '{memory}' of rank 1 may not be used any more: rank 1 (process" in line
        assert what in line


@pytest.mark.timeout(300)
@pytest.mark.any_schedule  # under the others each write waits for the one before, and nothing can pile up
def test_sender_of_many_small_writes_stays_small_and_small_frame_is_not_held_up(
    network: OtherNetwork,
) -> None:
    program = """
import resource
import numpy as np
with joined(timeout=30, window=16 << 20) as group, over_tcp(group.channel(1 - group.rank, notifies=4)) as channel:
    if group.rank == 1:
        until = time.monotonic() + 1
        while time.monotonic() < until: sum(range(1000))
        channel.wait(0, timeout=200)  # a million writes take 10 s where nothing else runs
        channel.notify(0)
        for _ in range(10):
            channel.wait(2, timeout=60)
            channel.notify(2)
        channel.wait(1, timeout=60)
    else:
        source, large = group.device.allocate(8), group.device.allocate(16 << 20)
        large.fill(1)
        with group.device.create_stream() as stream, group.device.create_stream() as other:
            channel.write(source, stream=stream)
            stream.sync()
            def resident():
                return int(open("/proc/self/statm").read().split()[1]) * 4096
            before = most = resident()
            for number in range(1_000_000):
                channel.write(source, at=8 * (number & 1023), stream=stream)
                if number % 10_000 == 0: most = max(most, resident())
            channel.notify(0, stream=stream)
            stream.sync()
            say(max(most, resident()) - before)
            channel.wait(0, timeout=60)
            spent = []
            for _ in range(10):  # other tests use the cores too
                if min(spent, default=1) >= 0.025:
                    for _ in range(30): channel.write(large, stream=stream)
                begun = time.perf_counter()
                channel.write(source, notify=2, stream=other)
                other.sync()
                spent.append(time.perf_counter() - begun)
                channel.wait(2, timeout=60)
                stream.sync()
            say(min(spent))
            channel.notify(1)
"""
    (code, output, errors), other = run(program, *on_two(network, "ab"), seconds=240)
    assert (code, errors, other[0]) == (0, "", 0), other
    grown, seconds = map(float, output.split())
    assert grown < 32 << 20, "the same for 3 million writes: 9 MiB under eager, 21 MiB under lazy"
    assert seconds < 0.025, "promised are 5 ms"


@pytest.mark.any_schedule
def test_without_engine_channel_to_other_machine_names_what_to_install(tmp_path: Path) -> None:
    nonsense = tmp_path / "libucp.so.0"
    nonsense.write_bytes(b"not a library")
    program = "group = joined(timeout=30); refused(lambda: group.channel(1 - group.rank, timeout=30)); group.close()"
    ends = run(program, by_address("ab", free_port(), PEERLANE_UCX=str(nonsense)))
    for code, output, errors in ends:
        assert (code, errors) == (0, "")
        assert output.startswith(
            ("Unsupported UNSUPPORTED channels to other machines need UCX: ", "PeerLost")
        ), output
    assert any(str(nonsense) in output and "pip install peerlane[ucx]" in output for _, output, _ in ends)


@pytest.mark.any_schedule
def test_two_versions_of_the_engine_are_refused_by_name_at_both_ends() -> None:
    """Connected, they reset each other's connections or crash: 1.14 to 1.18 with 1.22 did."""
    program = """
from peerlane.ranks import far_engine
if os.environ["PEERLANE_MACHINE"] == "b":
    start = far_engine.start
    far_engine.start = lambda *args, **options: start(*args, **options)._replace(version="1.18.1")
with joined(timeout=30) as group:
    refused(lambda: group.channel(1 - group.rank))
    refused(group.barrier)
    sys.stdin.readline()
"""
    with started(program, by_address("ab", free_port(), **TCP)) as children:
        lines = [[hear(child) for _ in range(2)] for child in children]
        send_line(children)
        assert [(code, errors) for code, _, errors in ended(children)] == [(0, "")] * 2
    for rank, (channel, barrier) in enumerate(lines):
        for output in (channel, barrier):
            assert output.startswith("Unsupported UNSUPPORTED Group"), output
            assert f"rank {1 - rank} on machine {'ba'[rank]} has UCX " in output
            assert "UCX 1.18.1" in output
            assert "pip install libucx-cu12==" in output


@pytest.mark.any_schedule
@pytest.mark.timeout(300)
def test_channels_that_are_closed_leave_no_memory_behind() -> None:
    program = """
import gc
def resident(): return int(open("/proc/self/statm").read().split()[1]) * 4096
with joined(timeout=30, window=4096) as group:
    for number in range(1200):
        with over_tcp(group.channel(1 - group.rank, notifies=4)) as channel:
            channel.write(b"12345678", notify=0)
            channel.wait(0)
        if number == 400:
            gc.collect()
            before = resident()
    gc.collect()
    say(resident() - before)
"""
    for code, output, errors in run(program, by_address("ab", free_port(), **TCP), seconds=240):
        assert (code, errors) == (0, "")
        assert int(output) < 1 << 20, "a channel that stays takes 5 KiB"


@pytest.mark.any_schedule
def test_memory_of_a_peer_elsewhere_is_no_source_and_no_target_by_name() -> None:
    program = """
with joined(timeout=30) as group, over_tcp(group.channel(1 - group.rank)) as channel:
    theirs = channel.window
    for call in (
        lambda: theirs.fill(0),
        lambda: channel.write(theirs),
        lambda: channel.read(theirs),
        lambda: channel.write_blocks(theirs, [(0, 0, 1)]),
        lambda: channel.write_reduce(theirs, dtype="uint8"),
    ):
        refused(call)
    say(group.window.route_to(theirs).kind)
"""
    for code, output, errors in run(program, by_address("ab", free_port(), **TCP)):
        assert (code, errors) == (0, "")
        *lines, route = output.splitlines()
        calls = (
            "Buffer.fill",
            "Channel.write",
            "Channel.read",
            "Channel.write_blocks",
            "Channel.write_reduce",
        )
        for call, line in zip(calls, lines, strict=True):
            assert line.startswith(f"Unsupported UNSUPPORTED {call}: the window of rank "), line
        assert route == "far"


@pytest.mark.any_schedule
def test_engine_that_does_not_start_names_the_variables_that_it_reads() -> None:
    program = "group = joined(timeout=30); refused(lambda: group.channel(1 - group.rank, timeout=30)); group.close()"
    ends = run(program, by_address("ab", free_port(), PEERLANE_INTERFACE="eth77"))
    output = "".join(output for _, output, _ in ends)
    assert 'which does not start: there is no network interface "eth77" here' in output
    assert "PEERLANE_INTERFACE says" in output
    assert "pip install" not in output
