"""The node file counts memory over processes, survives their deaths, and refuses a node of another shape."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import peerlane as pl
from peerlane.backends.virtual.node import NodeConfig
from peerlane.backends.virtual.node.node_file import SLOTS, pid_namespace, slot_offset
from peerlane.backends.virtual.node.state import NodeState, tidy
from peerlane.errors import Fault
from peerlane.testing.procs import run_python

pytestmark = pytest.mark.any_schedule

Node = Callable[..., tuple[pl.Device, ...]]
SECONDS = 30

HOLDER = """
import sys, peerlane as pl
buffer = pl.enter_node(sys.argv[1])[0].allocate(int(sys.argv[2]))
print("held", flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def holder(spec: str, nbytes: int) -> Iterator[subprocess.Popen[str]]:
    """Run a process that holds ``nbytes`` on device 0 until the test closes its stdin or kills it."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, spec, str(nbytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "held\n"
            yield child
        finally:
            child.kill()
            child.wait(SECONDS)


def test_capacity_held_by_other_process_is_not_free(node: Node) -> None:
    spec = f"name=shared-{os.getpid()},devices=2,memory=32MiB"
    d0, d1 = node(spec)
    with holder(spec, 20 << 20) as child:
        assert d0.free_bytes == 12 << 20
        assert d1.free_bytes == 32 << 20
        with pytest.raises(pl.OutOfMemory, match="12,582,912 of its 33,554,432 bytes are free"):
            d0.allocate(14 << 20)
        d0.allocate(12 << 20).close()
        child.communicate("\n", timeout=SECONDS)
        assert d0.free_bytes == 32 << 20
        d0.allocate(32 << 20).close()


def test_capacity_held_by_killed_process_is_free_again(node: Node) -> None:
    spec = f"name=killed-{os.getpid()},devices=2,memory=32MiB"
    d0, _ = node(spec)
    for _ in range(3):
        with holder(spec, 30 << 20) as child:
            child.send_signal(signal.SIGKILL)
            child.wait(SECONDS)
            d0.allocate(32 << 20).close()
    assert d0.free_bytes == 32 << 20


TURNS = """
import os, sys
import peerlane as pl
name, devices, turn = sys.argv[1:]
d0 = pl.enter_node(f"name={name},devices={devices},memory=32MiB")[0]
print(d0.free_bytes >> 20, len(list(os.scandir(os.environ["PEERLANE_RUNTIME_DIR"]))), flush=True)
d0.allocate(30 << 20).export()
if turn != "0":
    again = [sys.executable, sys.argv[0], name, str(int(devices) + (turn == "2")), str(int(turn) - 1)]
    os.execv(sys.executable, again)
os.kill(os.getpid(), 9)
"""


def test_capacity_held_before_exec_is_free_again(tmp_path: Path, runtime_directory: Path) -> None:
    name, program = f"turns-{os.getpid()}", tmp_path / "turns.py"
    program.write_text(TURNS)
    done = run_python(
        [str(program), name, "2", "2"], timeout=SECONDS
    )  # the program after the first exec asks for another shape
    assert done.returncode == -9, done.stderr
    free, files = zip(*(map(int, line.split()) for line in done.stdout.splitlines()), strict=True)
    assert free == (32, 32, 32)
    assert len(set(files)) == 1
    d0 = pl.enter_node(f"name={name},devices=3,memory=32MiB")[0]
    try:
        assert d0.free_bytes == 32 << 20
    finally:
        pl.leave_node()
    assert not list(runtime_directory.glob(f"{name}*.sock"))


def test_node_state_of_same_name_and_other_shape_raises_mismatch(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    first = NodeState(NodeConfig.parse("name=n,devices=2"), tmp_path)
    with pytest.raises(pl.InvalidValue, match=r"(?s)asks for .*4 devices.*have .*2 devices") as refused:
        NodeState(NodeConfig.parse("name=n,devices=4"), tmp_path)
    assert refused.value.fault is Fault.NODE_MISMATCH
    first.close()
    NodeState(NodeConfig.parse("name=n,devices=4"), tmp_path).close()


@pytest.mark.parametrize("content", [b"", b"x", b"PLNODE\0\1" + b"\xff" * 4088, os.urandom(100_000)])
def test_node_state_with_corrupt_file_starts_empty(tmp_path: Path, content: bytes) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "n.node").write_bytes(content)
    state = NodeState(NodeConfig.parse("name=n,devices=2"), tmp_path)
    assert state.processes() == (os.getpid(),)
    assert state.ledger.used(0) == 0
    state.close()
    state.close()


def test_node_state_of_live_other_release_raises_and_keeps_file(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    config = NodeConfig.parse("name=n,devices=2")
    first = NodeState(config, tmp_path)
    with (tmp_path / "n.node").open("r+b") as file:
        file.write(b"PLNODE\0\1")
    with pytest.raises(pl.InvalidValue, match="another release") as refused:
        NodeState(config, tmp_path)
    assert refused.value.fault is Fault.NODE_MISMATCH
    assert first.owner(first.slot) is not None
    first.close()
    NodeState(config, tmp_path).close()


def test_reap_frees_slots_of_dead_processes(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    config = NodeConfig.parse("name=n,devices=1")
    code = (
        "import os, sys, pathlib\n"
        "from peerlane.backends.virtual.node import NodeConfig\n"
        "from peerlane.backends.virtual.node.state import NodeState\n"
        "kept = [NodeState(NodeConfig.parse('name=n,devices=1'), pathlib.Path(sys.argv[1])) for _ in range(3)]\n"
        "print(len(kept[0].processes()), flush=True); os.kill(os.getpid(), 9)"
    )
    done = run_python(["-c", code, str(tmp_path)], timeout=SECONDS)
    assert done.stdout == "3\n"
    state = NodeState(config, tmp_path)
    assert state.processes() == (os.getpid(),)
    assert state.reap() == 2
    assert state.reap() == 0
    state.close()


def test_tidy_removes_dead_slots_and_sockets_only(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    config = NodeConfig.parse("name=n,devices=1")
    assert tidy(config, tmp_path) == 0
    assert list(tmp_path.iterdir()) == []
    code = (
        "import os, sys, pathlib\n"
        "from peerlane.backends.virtual.node import NodeConfig\n"
        "from peerlane.backends.virtual.node.state import NodeState\n"
        "kept = [NodeState(NodeConfig.parse('name=n,devices=1'), pathlib.Path(sys.argv[1])) for _ in range(3)]\n"
        "os.kill(os.getpid(), 9)"
    )
    state = NodeState(config, tmp_path)
    run_python(["-c", code, str(tmp_path)], timeout=SECONDS)
    file = tmp_path / "n.node"
    before = file.read_bytes()
    for slot in range(4):
        (tmp_path / state.socket_name(slot)).touch()
    for other in ("name=n,devices=2", "name=m,devices=1"):
        assert tidy(NodeConfig.parse(other), tmp_path) == 0
    assert file.read_bytes() == before
    assert [state.last_pid(slot) is not None for slot in range(4)] == [True] * 4
    assert tidy(config, tmp_path) == 3
    assert tidy(config, tmp_path) == 0
    assert [state.last_pid(slot) for slot in range(4)] == [os.getpid(), None, None, None]
    assert sorted(path.name for path in tmp_path.iterdir()) == [state.socket_name(state.slot), "n.node"]
    state.close()


def test_node_state_without_free_slot_raises_out_of_resources(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    config = NodeConfig.parse("name=n,devices=1")
    with contextlib.ExitStack() as closed:
        for _ in range(SLOTS):
            closed.callback(NodeState(config, tmp_path).close)
        with pytest.raises(pl.OutOfMemory, match=f"{SLOTS} live processes") as refused:
            NodeState(config, tmp_path)
        assert refused.value.fault is Fault.OUT_OF_RESOURCES


def test_node_file_is_private_and_symlink_is_refused(runtime_directory: Path, node: Node) -> None:
    node(f"name=private-{os.getpid()},devices=2")
    path = runtime_directory / f"private-{os.getpid()}.node"
    assert path.stat().st_mode & 0o777 == 0o600
    (runtime_directory / "linked.node").symlink_to("/etc/passwd")
    with pytest.raises(pl.Error, match="cannot open the state"):
        pl.enter_node("name=linked,devices=2")


def test_reap_frees_slot_with_impossible_pid(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    config = NodeConfig.parse("name=n,devices=2")
    first = NodeState(config, tmp_path)
    with (tmp_path / "n.node").open("r+b") as file:
        file.seek(slot_offset(2, 7))
        file.write(b"\xff" * 8 + pid_namespace().to_bytes(8, "little"))
    second = NodeState(config, tmp_path)
    assert second.processes() == (os.getpid(), os.getpid())
    assert second.reap() == 1
    second.close()
    first.close()
