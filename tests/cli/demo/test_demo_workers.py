"""``peerlane demo`` with worker processes: what they report, and what is left when a process ends too early."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import peerlane as pl
from helpers.promised import overdue
from helpers.safetensors_files import model, packed, small_model
from peerlane.cli import main
from peerlane.cli.children import Child
from peerlane.cli.demo import residence, transfer, worker, workers
from peerlane.testing import procs

# The demo works on as many bytes for more than a second after its workers hold them.
HELD_BYTES = 128 << 20
READ_BYTES = 16 << 20

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]


@pytest.fixture(autouse=True)
def default_node(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("PEERLANE_NODE", raising=False)
    yield
    pl.leave_node()


def run(*arguments: object) -> int:
    """Run the demo with two workers, unless the arguments say otherwise."""
    return main(["demo", "--workers", "2", *map(str, arguments)])


def test_demo_workers_share_weights_in_one_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out.json"
    assert run("--weights", small_model(tmp_path), "--workers", 3, "--json", target) == 0
    found = json.loads(target.read_text())["sharing"]
    assert found["bytes"] == 2 << 20
    assert [(one["name"], one["rights"]) for one in found["processes"]] == [
        ("owner", "rw"),
        ("worker 1", "rw"),
        ("worker 2", "r"),
        ("worker 3", "r"),
    ]
    assert all(one["mismatched"] == [] for one in found["processes"])
    assert all(one["seconds"] > 0 for one in found["processes"][1:])
    assert found["unseen"] == {"owner": [], "worker 1": [], "worker 2": [], "worker 3": []}
    assert found["written"] == "layer.weight"
    assert found["one_copy"] is True
    # Each process has all pages of the tensors, and together they have each page once.
    assert all(one["residence"]["resident"] >= 307_277 for one in found["processes"])
    assert 307_277 * 0.95 <= found["resident"] <= 2 << 20
    table = capsys.readouterr().out
    assert table.count("yes, 2/2") == 2 + 3
    assert "4 processes share" in table
    assert (
        "worker 1 wrote tensor 'layer.weight' back with every bit inverted: 4 of 4 processes see it" in table
    )


def test_demo_many_tensors_are_checked_in_batches(tmp_path: Path) -> None:
    weights = tmp_path / "many.safetensors"
    sizes = [1 + number % 600 for number in range(700)] + [20 << 20, 20 << 20]
    weights.write_bytes(
        model({f"t{number}": ("U8", [size], os.urandom(size)) for number, size in enumerate(sizes)})
    )
    batches = list(workers._batches(list(enumerate(sizes))))
    assert [len(batch) for batch in batches] == [256, 256, 189, 1]
    assert [place for batch in batches for place in batch] == list(enumerate(sizes))
    target = tmp_path / "out.json"
    assert run("--weights", weights, "--workers", 1, "--json", target) == 0
    assert json.loads(target.read_text())["sharing"]["unseen"] == {"owner": [], "worker 1": []}


def test_demo_zero_workers_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "Child", None)
    target = tmp_path / "out.json"
    assert run("--weights", small_model(tmp_path), "--workers", 0, "--json", target) == 0
    assert json.loads(target.read_text())["sharing"] is None


@pytest.mark.parametrize("count", [-1, 65])
def test_demo_worker_count_out_of_range_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    assert run("--weights", small_model(tmp_path), "--workers", count) == 2
    assert f"--workers is {count}; valid are 0 (share with none) to 64" in capsys.readouterr().err


def test_demo_mismatch_in_worker_names_worker_and_tensor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = workers.Team.digests

    def damaging(
        team: workers.Team,
        places: Sequence[transfer.Place],
        advance: transfer.Advance,
        *,
        arrived: bool = False,
    ) -> list[list[str]]:
        if len(places) == 2 and not arrived:  # the first worker inverts a second tensor too
            team.invert(places[1])
        return digests(team, places, advance, arrived=arrived)

    monkeypatch.setattr(workers.Team, "digests", damaging)
    assert run("--weights", small_model(tmp_path)) == 1
    table = capsys.readouterr().out
    for name in (
        *("worker 1", "worker 2", "owner, after it was written back"),
        # The owner sends its wrong bytes to the others.
        *("worker 1, after the broadcast", "worker 2, after the broadcast"),
        *(f"{each}, after the all-gather" for each in ("owner", "worker 1", "worker 2")),
    ):
        assert f"{name}: tensor 'layer.bias' differs from" in table
    assert table.count("differs") == 8
    assert [table.count(f"NO, {count}") for count in ("1/2", "2/4", "3/6")] == [2, 1, 1]


def test_demo_write_of_worker_unseen_exits_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers.Team, "invert", lambda team, place: None)
    assert run("--weights", small_model(tmp_path)) == 1
    table = capsys.readouterr().out
    assert "0 of 3 processes see it" in table
    assert "owner, after it was written back: tensor 'layer.weight' differs from" in table


@pytest.mark.parametrize(
    ("found", "code", "words"),
    [
        (residence.Residence(8 << 20, 8 << 20, 0), 1, "MORE THAN ONE COPY"),
        (None, 0, "the resident memory is not known"),
    ],
)
def test_demo_more_than_one_copy_exits_1_and_unknown_exits_0(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    found: residence.Residence | None,
    code: int,
    words: str,
) -> None:
    monkeypatch.setattr(workers, "residence", lambda address, nbytes: found)
    assert run("--weights", small_model(tmp_path)) == code
    assert words in capsys.readouterr().out


def test_residence_counts_touched_pages_only(monkeypatch: pytest.MonkeyPatch) -> None:
    descriptor = os.memfd_create("residence")
    os.ftruncate(descriptor, 1 << 20)
    with mmap.mmap(descriptor, 1 << 20) as one, mmap.mmap(descriptor, 1 << 20) as two:
        os.close(descriptor)
        one[: 1 << 18] = b"\1" * (1 << 18)
        assert two[0] == 1
        at = {map_: _address(map_) for map_ in (one, two)}
        assert [residence.residence(at[map_], 1 << 20) is not None for map_ in (one, two)] == [True, True]
        found = residence.residence(at[one], 1 << 20)
        assert found is not None
        assert found.resident == 1 << 18
        assert found.share < 1 << 18  # this process maps the first page twice
        assert found.private > 1 << 20
        monkeypatch.setattr(residence, "_lines", lambda name: [])
        assert residence.residence(at[one], 1 << 20) is None


def _address(mapped: mmap.mmap) -> int:
    import numpy as np

    return int(np.frombuffer(mapped, np.uint8).ctypes.data)


def test_demo_worker_never_answers_exits_2_and_workers_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = []

    def stopped(*arguments: object, name: str) -> Child:
        child = Child(worker.serve, *arguments[1:], name=name)
        pids.append(child.pid)
        os.kill(child.pid, signal.SIGSTOP)
        return child

    monkeypatch.setattr(workers, "Child", stopped)
    monkeypatch.setattr(workers, "START_SECONDS", 0.5)
    assert run("--weights", small_model(tmp_path)) == 2
    assert capsys.readouterr().err == (
        "peerlane demo: the demo's worker 1 did not answer within 0.5 s; is it stopped?\n"
    )
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_demo_worker_cannot_start_exits_2_with_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(process: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("multiprocessing.context.SpawnProcess.start", refuse)
    assert run("--weights", small_model(tmp_path)) == 2
    words = "worker 1 cannot be started: Resource temporarily unavailable; start fewer"
    assert words in capsys.readouterr().err


Demo = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Demo]:
    """Return a function that starts the demo in its own session, which the test's end kills."""
    weights = tmp_path / "large.safetensors"
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    command = [sys.executable, "-m", "peerlane", "demo", "--workers", "2", "--weights", str(weights)]
    with contextlib.ExitStack() as stack:

        def call(nbytes: int) -> subprocess.Popen[str]:
            header = json.dumps(
                {"t": {"dtype": "U8", "shape": [nbytes], "data_offsets": [0, nbytes]}}
            ).encode()
            weights.write_bytes(packed(header))
            os.truncate(weights, 8 + len(header) + nbytes)
            demo = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
                env={**os.environ, "PEERLANE_RUNTIME_DIR": str(runtime)},
            )
            stack.enter_context(demo)
            stack.callback(procs._kill_session, demo.pid)
            return demo

        yield call


def workers_of(demo: subprocess.Popen[str], *, holding: bool) -> list[int]:
    """Wait for both workers, with ``holding`` until they have the weights; return their pids."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert demo.poll() is None, demo.communicate()
        pids = []
        for word in Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                is_worker = "spawn_main" in Path(f"/proc/{word}/cmdline").read_text()
                if is_worker and (not holding or "memfd:" in Path(f"/proc/{word}/maps").read_text()):
                    pids.append(int(word))
        if len(pids) == 2:
            return pids
        time.sleep(0.005)
    raise AssertionError("the demo never had two workers")


def assert_nothing_is_left(demo: subprocess.Popen[str], tmp_path: Path) -> None:
    assert procs.await_session_end(demo.pid, 10) == {}
    left = [path for path in (tmp_path / "runtime").rglob("*") if path.is_socket()]
    assert left == []


@pytest.mark.parametrize("holding", [False, True])
def test_demo_worker_killed_is_named_and_nothing_is_left(tmp_path: Path, start: Demo, holding: bool) -> None:
    demo = start(HELD_BYTES if holding else READ_BYTES)
    first, _ = workers_of(demo, holding=holding)
    os.kill(first, signal.SIGKILL)
    out, err = demo.communicate(timeout=60)
    assert (demo.returncode, out) == (2, "")
    assert err == "peerlane demo: the demo's worker 1 died of SIGKILL\n"
    assert_nothing_is_left(demo, tmp_path)


@pytest.mark.parametrize("holding", [False, True])
def test_demo_ctrl_c_ends_its_workers(tmp_path: Path, start: Demo, holding: bool) -> None:
    demo = start(HELD_BYTES if holding else READ_BYTES)
    workers_of(demo, holding=holding)
    began = time.monotonic()
    os.killpg(demo.pid, signal.SIGINT)
    out, err = demo.communicate(timeout=60)
    assert (demo.returncode, out, err) == (130, "", "peerlane demo: interrupted\n")
    assert time.monotonic() - began < overdue(1.0)
    assert_nothing_is_left(demo, tmp_path)


def test_demo_owner_killed_its_workers_end(start: Demo) -> None:
    demo = start(HELD_BYTES)
    workers_of(demo, holding=True)
    demo.kill()
    assert procs.await_session_end(demo.pid, 30) == {}
