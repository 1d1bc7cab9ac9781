"""An out-of-memory error names the other processes that hold memory; it is raised whatever the node file holds."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import peerlane
from helpers.acl_calls import ok
from helpers.acl_peer import acl_peer
from helpers.peers import Peer, peer
from peerlane.backends.virtual.node import census
from peerlane.backends.virtual.node.state import NodeState

G = 2 << 20
SPEC = "name=full,devices=2,memory=32MiB"

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("PEERLANE_RUNTIME_DIR", str(folder))
    peerlane.enter_node(SPEC)
    yield folder
    peerlane.leave_node()


@pytest.fixture
def other(node: Path) -> Iterator[Peer]:
    with peer(SPEC) as child:
        yield child


def refusal(device: int = 0) -> str:
    with pytest.raises(peerlane.OutOfMemory) as caught:
        peerlane.devices()[device].allocate(17 * G)
    return str(caught.value)


def test_out_of_memory_names_other_process_program_and_bytes(other: Peer) -> None:
    other.run("held = pl.devices()[0].allocate(2 * G)")
    own = peerlane.devices()[0].allocate(G)
    text = refusal()
    assert f"process {other.pid} (" in text and "python" in text
    assert "4,194,304 bytes" in text
    assert "peerlane ps" in text
    assert f"process {os.getpid()}" not in text
    assert "other processes" not in refusal(1)  # no process holds memory of device 1
    own.close()


def test_out_of_memory_omits_processes_that_hold_nothing_or_died(other: Peer) -> None:
    assert "other processes" not in refusal()
    other.run("held = pl.devices()[0].allocate(G)")
    assert str(other.pid) in refusal()
    other.run("held.close()")
    assert "other processes" not in refusal()
    other.run("held = pl.devices()[0].allocate(G)")
    other.kill()
    assert "other processes" not in refusal()


def test_out_of_memory_names_three_processes_largest_first() -> None:
    with peer(SPEC) as a, peer(SPEC) as b, peer(SPEC) as c, peer(SPEC) as d:
        for child, size in ((a, "G"), (b, "3 * G"), (c, "G"), (d, "2 * G")):
            child.run(f"held = [pl.devices()[0].allocate({size})]")
        text = refusal()
        named = [int(pid) for pid in re.findall(r"process (\d+) ", text)]
        assert len(named) == 3
        assert named[:2] == [b.pid, d.pid]
        assert " and 1 more" in text


def test_out_of_memory_without_command_line_names_pid(other: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    other.run("held = pl.devices()[0].allocate(G)")
    monkeypatch.setattr(census, "_command", lambda *_: "")
    assert f"process {other.pid} 2,097,152 bytes" in refusal()


def test_out_of_memory_with_hostile_command_line_escapes_and_cuts_it(
    other: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    other.run("held = pl.devices()[0].allocate(G)")
    monkeypatch.setattr(census, "_command", lambda *_: "\x1b[2Jrun\nERROR: " + "x" * 5000)
    text = refusal()
    assert "?[2Jrun?ERROR: xxx" in text
    assert "\x1b" not in text and "\n" not in text
    assert len(text) < 1000


def test_out_of_memory_is_raised_when_processes_cannot_be_counted(
    other: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    other.run("held = pl.devices()[0].allocate(G)")

    def fails(*_: object) -> census.Census:
        raise RuntimeError("the file is garbage")

    monkeypatch.setattr(census, "take_census", fails)
    assert "other processes" not in refusal()
    monkeypatch.undo()
    monkeypatch.setattr(NodeState, "processes", fails)
    assert "other processes" not in refusal()


def test_out_of_memory_is_raised_without_node_file(node: Path, other: Peer) -> None:
    other.run("held = pl.devices()[0].allocate(G)")
    for path in node.rglob("*"):
        if path.is_file():
            path.unlink()
    assert "cannot allocate" in refusal()


def test_acl_out_of_memory_message_names_other_process() -> None:
    import peerlane.dialects.acl as acl

    with acl_peer(SPEC) as other:
        other.ok("rt.malloc", 2 * G, 0)
        ok(acl.rt.set_device(0))
        assert acl.rt.malloc(17 * G, 0) == (0, 207001)
        text = acl.get_recent_err_msg()
        assert f"process {other.pid} (" in text
        assert "4,194,304 bytes" in text
        assert other("rt.malloc", 17 * G, 0) == (0, 207001)
        assert f"process {other.pid}" not in other("get_recent_err_msg")
        ok(acl.rt.malloc(G, 0))
        assert other("rt.malloc", 17 * G, 0) == (0, 207001)
        assert f"process {os.getpid()} (" in other("get_recent_err_msg")
    ok(acl.rt.reset_device(0))
