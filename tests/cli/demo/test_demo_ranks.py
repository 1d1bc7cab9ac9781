"""``peerlane demo`` sends the weights to worker processes by collectives; what a dead or stopped worker causes."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import peerlane as pl
from helpers.safetensors_files import model, small_model
from peerlane.cli import main
from peerlane.cli.children import Child
from peerlane.cli.demo import rank, workers

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]


@pytest.fixture(autouse=True)
def own_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the test its own runtime directory; check at the end that no socket is left in it."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.delenv("PEERLANE_NODE", raising=False)
    monkeypatch.setenv("PEERLANE_RUNTIME_DIR", str(runtime))
    yield runtime
    pl.leave_node()
    for thread in threading.enumerate():  # the rendezvous serves until all ranks have left it
        if thread.name == "peerlane-rendezvous-end":
            thread.join(10)
    assert [path for path in runtime.rglob("*") if path.is_socket()] == []


def run(*arguments: object) -> int:
    return main(["demo", *map(str, arguments)])


def test_demo_four_workers_verify_broadcast_and_all_gather(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "out.json"
    assert run("--weights", small_model(tmp_path), "--json", target) == 0
    first, second = json.loads(target.read_text())["deliveries"]
    packed = 307_200 + 256  # each tensor begins at a multiple of 256
    assert (first["collective"], first["ranks"], first["bytes"]) == ("broadcast", 5, 4 * packed)
    parts = -(-packed // (5 * 256)) * 5 * 256
    assert (second["collective"], second["ranks"], second["bytes"]) == ("all-gather", 5, 4 * parts)
    names = [f"worker {number}" for number in range(1, 5)]
    assert first["mismatched"] == {key: [] for key in names}
    assert second["mismatched"] == {key: [] for key in ["owner", *names]}
    for each in (first, second):
        assert each["verified"] is True
        assert min(each["seconds"], each["ratio"], each["gb_per_s"]) > 0
    table = capsys.readouterr().out
    assert "yes, 8/8" in table
    assert "yes, 10/10" in table


@pytest.mark.parametrize("profile", ["ascend-310p", "two-islands"])
def test_demo_ranks_on_other_profiles_are_verified(tmp_path: Path, profile: str) -> None:
    # Larger than the workspace, so that it goes in pieces; of odd size, so that parts are padded.
    weights = tmp_path / "long.safetensors"
    size = rank.WORKSPACE + 4_097
    weights.write_bytes(model({"t": ("U8", [size], os.urandom(size)), "u": ("U8", [3], b"abc")}))
    assert run("--weights", weights, "--profile", profile, "--workers", 3) == 0


@pytest.mark.parametrize("method", ["broadcast", "gather"])
def test_demo_wrong_byte_in_collective_names_processes_and_tensor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    right = getattr(rank.Rank, method)

    def damaging(own: rank.Rank, *given: pl.Buffer) -> rank.Span:
        (given or (own.whole,))[0][:1].view()[0] ^= 1  # wrong in the end: the number of rounds is odd
        span: rank.Span = right(own, *given)
        return span

    monkeypatch.setattr(rank.Rank, method, damaging)
    assert run("--weights", small_model(tmp_path), "--workers", 1) == 1
    table = capsys.readouterr().out
    wrong = ["owner, after the all-gather", "worker 1, after the all-gather"]
    wrong += ["worker 1, after the broadcast"] if method == "broadcast" else []
    for each in wrong:
        assert f"{each}: tensor 'layer.weight' differs from the file" in table
    assert table.count("differs") == len(wrong)


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, int], list[int]]]:
    """Return a function that sends worker 2 a signal when the owner begins a collective."""
    pids: list[int] = []

    def start(*arguments: object, name: str) -> Child:
        child = Child(*arguments, name=name)  # type: ignore[arg-type]
        pids.append(child.pid)
        return child

    def prepare(method: str, number: int) -> list[int]:
        right = getattr(rank.Rank, method)

        def doing(own: rank.Rank, *given: pl.Buffer) -> rank.Span:
            os.kill(pids[1], number)
            span: rank.Span = right(own, *given)
            return span

        monkeypatch.setattr(workers, "Child", start)
        monkeypatch.setattr(rank.Rank, method, doing)
        return pids

    yield prepare
    assert len(pids) == 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.parametrize("method", ["broadcast", "gather"])
def test_demo_worker_killed_in_collective_exits_2(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    signalled: Callable[[str, int], list[int]],
    method: str,
) -> None:
    signalled(method, signal.SIGKILL)
    assert run("--weights", small_model(tmp_path), "--workers", 3) == 2
    assert capsys.readouterr().err == "peerlane demo: the demo's worker 2 died of SIGKILL\n"


def test_demo_worker_stopped_in_collective_exits_2(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    signalled: Callable[[str, int], list[int]],
) -> None:
    signalled("gather", signal.SIGSTOP)
    monkeypatch.setattr(rank, "_LEAST_SECONDS", 0.5)
    assert run("--weights", small_model(tmp_path), "--workers", 3) == 2
    assert "was not done after" in capsys.readouterr().err


def test_demo_ctrl_c_during_broadcast_exits_130(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], signalled: Callable[[str, int], list[int]]
) -> None:
    signalled("broadcast", signal.SIGSTOP)
    right = rank.Rank.broadcast

    def interrupted(own: rank.Rank, weights: pl.Buffer) -> rank.Span:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        return right(own, weights)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rank.Rank, "broadcast", interrupted)
        assert run("--weights", small_model(tmp_path), "--workers", 3) == 130
    assert capsys.readouterr().err == "peerlane demo: interrupted\n"


def test_demo_device_too_small_for_its_ranks_exits_2_with_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = small_model(tmp_path)
    assert run("--weights", weights, "--node", "memory=20MiB", "--workers", 0) == 0
    assert run("--weights", weights, "--node", "memory=20MiB") == 2
    err = capsys.readouterr().err
    # Owner, worker 2 and worker 4 are on the first device.
    assert (
        "virtual:0 has 20,971,520 bytes; the weights need 2,097,152 there, and 50,331,648 more for those of"
        in err
    )
    assert "take fewer --workers" in err
    assert run("--weights", weights, "--node", "memory=52MiB") == 0
