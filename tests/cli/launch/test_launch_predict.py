"""``peerlane launch --predict``: ranks of one machine and of several, and the ranks' own results."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from helpers.launching import FAR, Run
from peerlane.prediction.collectives import seconds_of
from peerlane.prediction.machines import COPY_LATENCY, MACHINES

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

MIB = 1 << 20
H100 = MACHINES["h100-8"]


def seconds_of_lanes(stderr: str) -> dict[str, float]:
    """Return the predicted end of each stream and thread, in seconds."""
    return {
        lane: float(us.replace(",", "")) / 1e6
        for lane, us in re.findall(r"^peerlane launch:   (rank .*?): ([\d.,]+) us", stderr, re.MULTILINE)
    }


def test_machine_without_rates_is_refused_before_a_rank_runs(run: Run) -> None:
    for words in (("-n", "2"), ("--hosts", "localhost:2")):
        done = run(*words, "--predict", "hgx", "-c", "print('ran')")
        assert done.returncode == 2 and done.stdout == ""
        assert "--predict" in done.stderr


def test_write_and_notify_to_another_machine_take_its_network(run: Run, ssh: str) -> None:
    program = """
import peerlane as pl
with pl.Group() as group:
    device = pl.devices()[group.rank]
    inbox, other = device.allocate(4 << 20), device.allocate(4 << 20)
    group.register(inbox, "inbox")
    with group.channel(1 - group.rank) as channel, device.create_stream() as stream:
        if group.rank == 0:
            channel.write(other, memory="inbox", notify=0, stream=stream)
        else:
            channel.wait(0, stream=stream)
            pl.copy(other, inbox, stream=stream)
        stream.sync()
        group.barrier()
"""
    words = ("--ssh", ssh, "--hosts", f"localhost:1,{FAR}:1", "--devices", "2", "--predict", "h100-8")
    done = run(*words, "-c", program)
    assert (done.returncode, done.stdout) == (0, "")
    sent = COPY_LATENCY + 4 * MIB / H100.network
    copied = sent + COPY_LATENCY + 4 * MIB / H100.memory
    lanes = seconds_of_lanes(done.stderr)
    assert lanes["rank 0, stream 1"] == pytest.approx(sent, abs=1e-7)
    assert lanes["rank 1, stream 1"] == pytest.approx(copied, abs=1e-7)
    assert "the bottleneck is network of device 0, out" in done.stderr
    assert "not known" not in done.stderr


def test_collective_of_two_machines_takes_their_network(run: Run, ssh: str) -> None:
    program = """
import peerlane as pl
with pl.Group() as group:
    one, other = (pl.devices()[0].allocate(4 << 20) for _ in range(2))
    group.all_reduce(other, one, dtype="float32")
"""
    words = ("--ssh", ssh, "--hosts", f"localhost:1,{FAR}:1", "--predict", "h100-8")
    done = run(*words, "-c", program)
    assert done.returncode == 0, done.stderr
    expected = seconds_of(H100, "all_reduce", (1, 1), 4 * MIB)
    assert expected is not None and expected > 4 * MIB / H100.network
    assert seconds_of_lanes(done.stderr) == pytest.approx(
        {"rank 0, main thread": expected, "rank 1, main thread": expected}, abs=1e-7
    )


def test_exit_code_and_trace_are_those_of_a_run_without_a_prediction(run: Run, cwd: Path) -> None:
    program = "import peerlane as pl, sys; pl.devices()[0].allocate(64).fill(1); sys.exit(3)"
    done = run("-n", "1", "--predict", "h100-8", "--trace", "t.json", "-c", program)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == "peerlane launch:   main thread: 2.0 us, 64 bytes"
    events = json.loads((cwd / "t.json").read_text())["traceEvents"]
    assert [each["args"]["what"] for each in events if each["name"] == "fill"] == ["64 bytes"]
