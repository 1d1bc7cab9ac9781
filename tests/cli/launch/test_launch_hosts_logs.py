"""Event logs, timelines and faults of ranks on several machines: ``--trace``, ``--fault`` and ``peerlane check``."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.absent import needs_engine
from helpers.launched import Run
from helpers.trace_format import flaws_of
from helpers.two_machines import TCP
from peerlane.checker import Checker
from peerlane.cli.launch import collecting
from peerlane.cli.launch.wire import BadFrame
from peerlane.diagnostics.log import event_log

pytestmark = [
    pytest.mark.any_schedule,
    pytest.mark.timeout(120),
    needs_engine,
]

PROGRAM = """\
import peerlane as pl
with pl.Group(window=4096, timeout=60) as group, group.channel(1 - group.rank, notifies=2) as channel:
    block = group.device.allocate(64)
    block.fill(7)
    group.barrier()
    with group.device.create_stream() as stream:
        channel.write(block, notify=0, stream=stream)
        channel.wait(0, stream=stream, timeout=30)
        channel.write(block, at=64, stream=stream)
        channel.notify(1, stream=stream)
        stream.sync()
    assert group.window.view()[3] == 7
    channel.wait(1, timeout=30)
    group.window.view()[70]
    group.barrier()
"""
RACY = PROGRAM.replace(
    "    channel.wait(1, timeout=30)\n    group.window.view()[70]\n",
    ("    group.window.view()[70]\n    channel.wait(1, timeout=30)\n"),
)
HOSTS = (
    *(word for name, value in TCP.items() for word in ("--env", f"{name}={value}")),
    "--hosts",
    "localhost:1,b:1",
)


def test_trace_of_two_machines_has_all_ranks_and_arrows_between_them(ssh: str, run: Run, cwd: Path) -> None:
    (cwd / "program.py").write_text(PROGRAM)
    done = run("--ssh", ssh, *HOSTS, "--trace", "t.json", "program.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert flaws_of(cwd / "t.json") == []
    events = json.loads((cwd / "t.json").read_text())["traceEvents"]
    names = sorted(each["args"]["name"] for each in events if each["name"] == "process_name")
    assert [name.partition(" (")[0] for name in names] == ["rank 0", "rank 1"]
    assert [name.endswith(f" on {host})") for name, host in zip(names, ("localhost", "b"), strict=True)] == [
        True
    ] * 2
    ends: dict[tuple[int, str], dict[str, int]] = {}
    for each in events:
        if each["ph"] in ("s", "f"):
            ends.setdefault((each["id"], each["cat"]), {})[each["ph"]] = each["pid"]
    between = [kind for (_, kind), of in ends.items() if of["s"] != of["f"]]
    assert (between.count("notify"), between.count("arrival")) == (4, 4)


@pytest.fixture
def check(ssh: str, cwd: Path, env: dict[str, str]) -> Iterator[object]:
    def call(program: str, *words: str) -> tuple[int, list[dict[str, object]], str]:
        (cwd / "program.py").write_text(program)
        command = [
            sys.executable,
            "-m",
            "peerlane",
            "check",
            "--ssh",
            ssh,
            *HOSTS,
            "--json",
            "f.json",
            *words,
        ]
        done = subprocess.run(
            [*command, "program.py"],
            env=env,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        report = json.loads((cwd / "f.json").read_text())
        assert report["complete"], done.stderr
        return done.returncode, report["findings"], done.stdout + done.stderr

    yield call


def test_check_of_two_machines_finds_the_missing_wait_and_nothing_in_the_right_program(check) -> None:  # type: ignore[no-untyped-def]
    assert check(PROGRAM)[:2] == (0, [])
    code, findings, output = check(RACY)
    assert code == 3, output
    assert [(each["kind"], each["certain"]) for each in findings] == [("race", True)], output
    assert {site["verb"] for site in findings[0]["sites"]} == {"Channel.write", "host access"}
    assert findings[0]["sites"][0]["rank"] != findings[0]["sites"][1]["rank"]
    assert "a wait (Channel.wait)" in findings[0]["missing"]


def test_fault_kills_a_rank_of_another_machine_and_one_that_did_not_strike_is_reported(
    ssh: str, run: Run, cwd: Path
) -> None:
    (cwd / "program.py").write_text(PROGRAM)
    words = ("--ssh", ssh, *HOSTS)
    done = run(*words, "--fault", "kill:rank=1,op=20", "program.py")
    assert done.returncode == 137
    assert " on b) was killed by --fault kill:rank=1,op=20" in done.stderr
    done = run(*words, "--fault", "kill:rank=1,op=100000", "--fault", "delay:rank=1,op=3,ms=1", "program.py")
    assert done.returncode == 0, done.stderr
    assert "kill:rank=1,op=100000 did not strike: rank 1 logged " in done.stderr
    assert "delay" not in done.stderr.replace("[1] peerlane: --fault delay", "")


# What another machine sends of its files.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    logs = tmp_path / "logs"
    logs.mkdir()
    monkeypatch.setenv(event_log.VARIABLE, str(logs))
    monkeypatch.setenv(collecting.faults.REPORT, str(logs / "report"))
    return logs


def piece(name: str, at: int, content: bytes) -> bytes:
    return struct.pack("<BQ", len(name), at) + name.encode() + content


def test_files_come_as_they_were_without_their_holes(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    with (source / "12-34.log").open("wb") as file:
        file.write(b"x" * 300_000)
        file.seek(50 << 20)
        file.write(b"y" * 5000)
        file.truncate(1 << 30)
    (source / "12-34.names").write_bytes(b"{}\n")
    (source / "other").write_bytes(b"no log")
    (source / collecting.REPORT).write_text('{"struck": 0, "pid": 5}\n')
    received, sent = collecting.Received(3), 0
    for body in collecting.pieces(source, logs=True):
        sent += len(body)
        received.take(body)
    assert sent < 1 << 20
    assert sorted(each.name for each in folder.iterdir()) == ["12-34-3.log", "12-34-3.names", "report"]
    content = (folder / "12-34-3.log").read_bytes()
    assert content[:300_000] == b"x" * 300_000
    assert content[50 << 20 : (50 << 20) + 5000] == b"y" * 5000
    assert (folder / "report").read_text() == '{"struck": 0, "pid": 5}\n'
    assert list(collecting.pieces(source, logs=False))[-1].endswith(collecting.REPORT.encode())


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"\xff" * 8, b"\xff" * 40, piece("../12-34.log", 0, b"x"), piece("12-34.so", 0, b"x")),
        *(piece("a-b.log", 0, b"x"), piece("", 0, b"x"), piece("12-34.log\n", 0, b"x")),
        *(piece("12-34.log", 1 << 63, b"x"), piece("12-34.log", collecting.MOST_BYTES, b"x")),
    ],
)
def test_piece_that_no_part_sends_is_refused_and_writes_nothing(body: bytes, folder: Path) -> None:
    with pytest.raises(BadFrame):
        collecting.Received(0).take(body)
    assert list(folder.iterdir()) == []


def test_report_is_not_complete_without_the_logs_of_a_machine_that_was_lost(folder: Path) -> None:
    assert Checker(folder).finish()["complete"]
    collecting.Received(3).lose()
    assert not Checker(folder).finish()["complete"]


def test_report_of_another_machine_brings_numbers_alone(folder: Path) -> None:
    lines = b'{"struck": "x"}\n[1]\nno\n{"pid": 1, "struck": true}\n{"rank": 1, "events": 9}\n\xff\n'
    collecting.Received(0).take(piece(collecting.REPORT, 0, lines))
    assert (folder / "report").read_text() == '{"rank": 1, "events": 9}\n'
