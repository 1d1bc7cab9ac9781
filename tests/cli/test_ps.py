"""``peerlane ps``: it shows who holds what, enters no node, and survives any file in the runtime directory."""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.peers import Peer, peer
from peerlane import cli
from peerlane.backends.virtual.node import NodeConfig
from peerlane.backends.virtual.node.node_file import SLOTS, slot_offset
from peerlane.backends.virtual.node.state import NodeState
from peerlane.cli import ps as ps_command
from peerlane.testing.procs import run_python

G = 2 << 20
SPEC = "name=ci,devices=3,memory=64MiB/32MiB/32MiB"
SEED = int(os.environ.get("PEERLANE_TEST_SEED", "4"))

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

Ps = Callable[..., Any]


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("PEERLANE_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def other(directory: Path) -> Iterator[Peer]:
    with peer(SPEC) as child:
        yield child


@pytest.fixture
def ps(directory: Path, capsys: pytest.CaptureFixture[str]) -> Ps:
    def call(*words: str, code: int = 0) -> Any:
        assert cli.main(["ps", *words]) == code
        out = capsys.readouterr().out
        return json.loads(out) if "--json" in words else out

    return call


def _node(ps: Ps, *words: str, code: int = 0) -> dict[str, Any]:
    (node,) = ps("--json", *words, code=code)["nodes"]
    return dict(node)


def test_ps_json_shows_what_one_process_holds(ps: Ps, other: Peer) -> None:
    other.run(
        "kept = [devices[0].allocate(3 * G), pl.Physical(devices[1], G), pl.Physical(devices[0], G)]\n"
        "handle = kept[2].export(allow='user')\n"
        "devices[0].peers.add(devices[2])"
    )
    node = _node(ps)
    assert (node["name"], node["problem"]) == ("ci", None)
    assert node["shape"].startswith("ci: 3 devices")
    assert node["devices"] == [
        {"name": "virtual:0", "used": 4 * G, "capacity": 64 << 20},
        {"name": "virtual:1", "used": G, "capacity": 32 << 20},
        {"name": "virtual:2", "used": 0, "capacity": 32 << 20},
    ]
    (row,) = node["processes"]
    assert 0 <= row.pop("age_seconds") < 120
    assert "prepared_server.py" in row.pop("command")
    assert row == {
        "pid": other.pid,
        "state": "running",
        "own": {"virtual:0": 3 * G, "virtual:1": G},
        "shared": {"virtual:0": G},
        "shared_blocks": 1,
        "peers": [["virtual:0", "virtual:2"]],
        "serves": True,
    }
    assert other.run("result = devices[0].free_bytes") == (64 << 20) - 4 * G


def test_ps_shared_block_counts_once(ps: Ps, other: Peer) -> None:
    number = other.run(
        "block = pl.Physical(devices[0], G); handle = block.export(allow='user'); result = int(handle)"
    )
    with peer(SPEC) as second:
        second.run(f"block = pl.Physical.open({number}); own = devices[0].allocate(2 * G)")
        node = _node(ps)
        assert node["devices"][0]["used"] == 3 * G
        rows = {row["pid"]: row for row in node["processes"]}
        assert rows[other.pid]["shared"] == rows[second.pid]["shared"] == {"virtual:0": G}
        assert (rows[other.pid]["own"], rows[second.pid]["own"]) == ({}, {"virtual:0": 2 * G})
        assert (rows[other.pid]["serves"], rows[second.pid]["serves"]) == (True, False)
        other.kill()
        node = _node(ps)
        assert node["devices"][0]["used"] == 3 * G
        rows = {row["pid"]: row for row in node["processes"]}
        assert (rows[other.pid]["state"], rows[other.pid]["serves"]) == ("ended", False)
        text = ps()
        assert "ended; the next process that enters the node clears its place" in text
        second.run("block.close(); own.close()")
        assert _node(ps)["devices"][0]["used"] == 0


def test_ps_leaves_node_and_runtime_directory_unchanged(ps: Ps, other: Peer, directory: Path) -> None:
    other.run("kept = devices[0].allocate(G)")
    file = directory / "ci.node"
    before, names = file.read_bytes(), sorted(directory.iterdir())
    ps()
    ps("--json", "--node", SPEC)
    assert file.read_bytes() == before
    assert sorted(directory.iterdir()) == names


def test_ps_table_shows_process_and_devices(ps: Ps, other: Peer) -> None:
    other.run("kept = devices[0].allocate(3 * G); devices[0].peers.add(devices[1])")
    text = ps()
    assert "ci: 3 devices on 1 switch" in text
    row = next(line for line in text.splitlines() if line.split()[:1] == [str(other.pid)])
    for cell in ("0: 6 MiB", "0>1", "no", "..."):
        assert cell in row
    assert "virtual:0: 6 MiB of 64 MiB (9.4%) used" in text
    assert "virtual:2: 0 B of 32 MiB (0.0%) used" in text


def test_ps_node_option_selects_one_node(ps: Ps, other: Peer, capsys: pytest.CaptureFixture[str]) -> None:
    with peer("name=second,devices=1"):
        assert [node["name"] for node in ps("--json")["nodes"]] == ["ci", "second"]
        for words in (("--node", "second"), ("--node", "name=second,devices=1")):
            assert _node(ps, *words)["name"] == "second"
        assert cli.main(["ps", "--node", "name=third"]) == 2
        assert "no process has entered node 'third'; valid are" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["none", "third", "no such name", ""])
def test_ps_unknown_node_exits_2_and_names_nodes(
    name: str, ps: Ps, other: Peer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["ps", "--node", name]) == 2
    errors = capsys.readouterr().err
    assert f"--node {name!r}: no process has entered node" in errors
    assert "valid are the name of a node" in errors and "nodes in use: ci" in errors


def test_ps_unknown_node_names_the_close_one_and_no_more_than_eight_in_use(
    ps: Ps, other: Peer, directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert other.run("pl.leave_node(); pl.enter_node('name=decode,devices=1'); result = 1") == 1
    monkeypatch.setattr(ps_command, "_MOST_NAMED", 0)
    assert cli.main(["ps", "--node", "decoed"]) == 2
    errors = capsys.readouterr().err
    assert "(did you mean 'decode'?)" in errors and "nodes in use: 1 more" in errors


def test_ps_node_without_processes_is_idle(ps: Ps, other: Peer, directory: Path) -> None:
    assert other.run("pl.leave_node(); result = 1") == 1
    listed = ps("--json")
    assert (listed["nodes"], listed["idle"]) == ([], ["ci"])
    assert "no node in use" in ps() and "1 idle (nobody is in them): ci" in ps()
    for words in (("--node", "ci"), ("--node", SPEC)):  # named, it is shown though idle
        node = _node(ps, *words)
        assert node["processes"] == []
        assert [device["used"] for device in node["devices"]] == [0, 0, 0]
        assert "ci: 3 devices" in ps(*words)
    with peer("name=second,devices=1"):
        assert [each["name"] for each in ps("--json")["nodes"]] == ["second"]
        assert "second: 1 device" in ps() and "1 idle (nobody is in them): ci" in ps()
    for file in directory.iterdir():
        file.unlink()
    assert "no node in use" in ps() and "idle" not in ps()
    directory.rmdir()
    assert ps("--json") == {"directory": "", "nodes": [], "idle": []}
    assert not directory.exists()


def test_ps_locked_file_and_stopped_process_does_not_wait(other: Peer, directory: Path) -> None:
    fd = os.open(directory / "ci.node", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.kill(other.pid, signal.SIGSTOP)
    try:
        done = run_python(["-m", "peerlane", "ps", "--json"], timeout=30)
    finally:
        os.kill(other.pid, signal.SIGCONT)
        os.close(fd)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["nodes"][0]["processes"][0]["pid"] == other.pid


def _file(directory: Path, spec: str = "name=n,devices=2") -> bytearray:
    """Return the content of the file of a node that this process has entered."""
    state = NodeState(NodeConfig.parse(spec), directory)
    content = bytearray((directory / "n.node").read_bytes())
    state.close()
    (directory / "n.node").unlink()
    return content


def test_ps_broken_node_file_exits_1_and_names_problem(ps: Ps, directory: Path) -> None:
    good = _file(directory)
    for content, message in (
        (b"", "has no header"),
        (b"PLNODE", "has no header"),
        (good[:4096], "is cut short: 4,096 bytes of"),
        (good[:-1], "is cut short"),
        (b"x" * len(good), "is not the file of a node"),
        (good[:7] + b"\x09" + good[8:], "has layout 9 of another release of peerlane, and this one reads 3"),
        (good[:16] + b"\xff" * 8 + good[24:], "which no node has"),
        (good[:16] + bytes(8) + good[24:], "which no node has"),
        (good[:24] + b"\xff" * 8 + good[32:], "which no node has"),
    ):
        (directory / "n.node").write_bytes(content)
        assert message in _node(ps, code=1)["problem"]
        assert message in ps(code=1)


@pytest.mark.parametrize("layout", [1, 2, 9])
def test_ps_node_file_of_other_layout_is_reported_with_a_remedy(
    ps: Ps, other: Peer, directory: Path, layout: int
) -> None:
    file = directory / "ci.node"
    with file.open("r+b") as opened:
        opened.seek(7)
        opened.write(bytes([layout]))
        opened.truncate(4096 + 1024 * 40)  # the size of a file of layout 1
    node = _node(ps, code=1)
    assert (node["shape"], node["devices"], node["processes"]) == ("", [], [])
    assert f"has layout {layout} of another release of peerlane" in node["problem"]
    assert f"end its processes ({other.pid}) and delete it" in node["problem"]
    other.kill()
    assert "no process is in it: delete it" in _node(ps, code=1)["problem"]
    assert "no process is in it: delete it" in ps(code=1)
    with peer(SPEC):  # this process makes the file anew
        assert _node(ps)["problem"] is None


def test_ps_pipe_folder_link_or_socket_as_node_file_names_problem(ps: Ps, directory: Path) -> None:
    for name, message in (
        ("pipe", "is not a regular file"),
        ("folder", "is not a regular file"),
        ("link", "cannot be opened"),
        ("socket", "cannot be opened"),
    ):
        path = directory / f"{name}.node"
        if name == "pipe":
            os.mkfifo(path)
        elif name == "folder":
            path.mkdir()
        elif name == "link":
            path.symlink_to("/dev/zero")
        else:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(path))
        problem = {node["name"]: node["problem"] for node in ps("--json", code=1)["nodes"]}[name]
        assert message in problem, (name, problem)


def test_ps_hostile_node_file_is_shown_safely(ps: Ps, directory: Path) -> None:
    good = _file(directory)
    content = good.copy()
    content[72 : 72 + 8] = b"\x1b]0;xy\x07\n"  # an escape sequence of terminals
    content[4096 + 16 : 4096 + 32] = b"\xff" * 16  # the largest sizes that fit
    content[4096 : 4096 + 8] = b"\xff" * 8  # a pid that no process has
    (directory / "n.node").write_bytes(content)
    assert "\x1b" not in ps()
    assert _node(ps)["processes"][0]["state"] == "ended"
    for seed in range(SEED, SEED + 10):
        draw = random.Random(seed)
        content = good.copy()
        for _ in range(draw.choice((1, 20, 2000))):
            at = draw.randrange(72, len(content)) if draw.random() < 0.3 else draw.randrange(72, 3 * 4096)
            content[at] = draw.randrange(256)
        # Each slot is taken by this process: no file makes more work for ps.
        if seed == SEED:
            for slot in range(SLOTS):
                at = slot_offset(2, slot)
                content[at : at + 16] = good[4096 : 4096 + 16]
        (directory / "n.node").write_bytes(content)
        assert ps(), f"seed {seed}"
        _node(ps)
