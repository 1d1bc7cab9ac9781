"""Programs of several processes: the examples, every form of import, killed ranks, bytes on each schedule."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from helpers.prepared import run_python
from peerlane import dialects
from peerlane.rendezvous import RendezvousServer
from peerlane.testing.procs import Completed

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.any_schedule, pytest.mark.timeout(180)]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SCHEDULES = ("eager", "lazy", "seeded:5")
SECONDS, RANKS = 90.0, 3
Run = Callable[..., Completed]

HEAD = """\
import os, signal, sys, time
import acl, hcomm
from peerlane.rendezvous import Rendezvous
line = Rendezvous.from_environment()
rank, size = line.rank, line.size
def ok(result):
    *outputs, ret = result if isinstance(result, tuple) else (result,)
    assert ret == 0, (ret, acl.get_recent_err_msg())
    return outputs[0] if len(outputs) == 1 else outputs
ok(acl.rt.set_device(rank % 2))
info = line.gather("info", ok(hcomm.HcclGetRootInfo()) if rank == 0 else b"")[0]
comm = ok(hcomm.HcclCommInitRootInfo(size, info, rank))
peers = [each for each in range(size) if each != rank]
def channels_to(engine, protocol, notifies=2):
    descs = [hcomm.HcclChannelDesc() for _ in peers]
    ok(hcomm.HcclChannelDescInit(descs, len(descs)))
    for desc, peer in zip(descs, peers):
        desc.remoteRank, desc.channelProtocol, desc.notifyNum = peer, protocol, notifies
    return dict(zip(peers, ok(hcomm.HcclChannelAcquire(comm, engine, descs, len(descs)))))
"""
PROGRAM = f"""{HEAD}
import numpy as np, peerlane as pl
stream = ok(acl.rt.create_stream())
thread = ok(hcomm.HcclThreadAcquireWithStream(comm, 1, stream, 0))
channels = channels_to(1, hcomm.COMM_PROTOCOL_HCCS)
address, nbytes = ok(hcomm.HcclGetHcclBuffer(comm))
part = nbytes // 2 // size // 64 * 64
def drawn(who, turn):
    return np.random.default_rng(100 * who + turn).integers(0, 256, part, np.uint8)
for turn in range(5):
    mine = drawn(rank, turn)
    ok(acl.rt.memcpy(address, part, mine.ctypes.data, part, 1))
    for peer, channel in channels.items():
        there = ok(hcomm.HcclChannelGetHcclBuffer(comm, channel))[0] + nbytes // 2 + rank * part
        ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channel, 0))
        ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, 0, 60))
        for at in range(0, part, part // 4):
            ok(hcomm.HcommWriteOnThread(thread, channel, there + at, address + at, min(part // 4, part - at)))
        ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channel, 1))
    for channel in channels.values():
        ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, 1, 60))
    ok(acl.rt.synchronize_stream(stream))
    found = np.empty(part, np.uint8)
    for peer in peers:
        ok(acl.rt.memcpy(found.ctypes.data, part, address + nbytes // 2 + peer * part, part, 2))
        assert np.array_equal(found, drawn(peer, turn)), (turn, peer)
ok(hcomm.HcclCommDestroy(comm))
line.close()
print("every byte")
"""
DIES = f"""{HEAD}
engine = int(sys.argv[1])
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher sends it at the death of a rank
channel = channels_to(engine, hcomm.COMM_PROTOCOL_ROCE)[1 - rank]
line.barrier()
if rank == 1:
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
start = time.monotonic()
if engine == 0:
    ret = hcomm.HcommChannelNotifyWait(channel, 0, 60)
else:
    stream = ok(acl.rt.create_stream())
    thread = ok(hcomm.HcclThreadAcquireWithStream(comm, 1, stream, 0))
    ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, 0, 60))
    ret = acl.rt.synchronize_stream(stream)
text = acl.get_recent_err_msg() or ""
print(ret, time.monotonic() - start < 20, "rank 1" in text, flush=True)
"""

DIFFERENT = f"""{HEAD}
stream = ok(acl.rt.create_stream())
address = ok(acl.rt.malloc(4096, 0))
ok(hcomm.HcclBarrier(comm, stream))
ok(acl.rt.synchronize_stream(stream))
count = 3 if rank else 1
ret = hcomm.HcclAllReduce(address, address, count, 4, 0, comm, stream)
text = hcomm.explain()
if not ret:
    ret = acl.rt.synchronize_stream(stream)
print(ret, "all_reduce of 4 bytes" in text and "all_reduce of 12 bytes" in text, flush=True)
hcomm.HcclCommDestroy(comm)
line.barrier()
"""
WAITS_IN_VAIN = f"""{HEAD}
import threading
if rank == 0:
    stream = ok(acl.rt.create_stream())
    found = []
    def call():
        start = time.monotonic()
        found.append(hcomm.HcclBarrier(comm, stream))
        print(found[0], time.monotonic() - start < 20, "estroy" in hcomm.explain(), flush=True)
    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(0.5)  # most often the call waits by then; it ends in both cases
    ok(hcomm.HcclCommDestroy(comm))
    thread.join()
line.barrier()
"""
WINDOWS = f"""{HEAD}
import numpy as np
mine = np.random.default_rng(rank).integers(0, 256, 3000, np.uint8)
whole = ok(acl.rt.malloc(8192, 0))
window = ok(hcomm.HcclCommSymWinRegister(comm, whole + 64, 6000, hcomm.HCCL_WIN_COLL_SYMMETRIC))
assert ok(hcomm.HcclCommSymWinGet(comm, whole + 100, 10)) == [window, 36]
ok(acl.rt.memcpy(whole + 64, 3000, mine.ctypes.data, 3000, 1))
line.barrier()
found = np.empty_like(mine)
for peer in peers:
    there = ok(hcomm.HcclSymWinGetPeerPointer(window, 0, peer))
    ok(acl.rt.memcpy(found.ctypes.data, 3000, there, 3000, 2))
    assert np.array_equal(found, np.random.default_rng(peer).integers(0, 256, 3000, np.uint8))
after = (rank + 1) % size
ok(acl.rt.memcpy(ok(hcomm.HcclSymWinGetPeerPointer(window, 3000, after)), 3000, whole + 64, 3000, 3))
line.barrier()
ok(acl.rt.memcpy(found.ctypes.data, 3000, whole + 3064, 3000, 2))
assert np.array_equal(found, np.random.default_rng((rank - 1) % size).integers(0, 256, 3000, np.uint8))
other = ok(hcomm.HcclCommSymWinRegister(comm, whole, 100 + rank, 0))
assert hcomm.HcclSymWinGetPeerPointer(other, 0, after) == (0, 1)  # the windows differ in size
line.barrier()
ok(hcomm.HcclCommSymWinDeregister(window))
assert hcomm.HcclSymWinGetPeerPointer(window, 0, after) == (0, 6)
ok(hcomm.HcclCommDestroy(comm))
line.barrier()
print("every byte", flush=True)
"""
TEAMS_HEAD = f"""{HEAD}
def team_of(ranks, made_of, make):
    desc = hcomm.HcclTeamCreateDesc()
    ok(hcomm.HcclTeamCreateDescInit(desc))
    desc.rankIds, desc.rankNum, desc.selfRankId = ranks, len(ranks), rank
    desc.requirement.barrierCount = 1
    return ok(make(made_of, desc))
def create_channels(team):
    desc = hcomm.HcclTeamCreateChannelsDesc()
    ok(hcomm.HcclTeamCreateChannelsDescInit(desc))
    desc.engine, desc.notifyNum, desc.channelCnt = hcomm.COMM_ENGINE_CPU_TS, 2, 1
    return hcomm.HcclTeamChannelsCreate(comm, team, desc)
"""
DIES_IN_TEAM = f"""{TEAMS_HEAD}
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher sends it at the death of a rank
world = team_of(list(range(size)), comm, hcomm.HcclWorldTeamCreate)
ok(create_channels(world))
line.barrier()
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
ok(hcomm.HcclTeamWindowRegister(comm, world, hcomm.CommMem(0, ok(acl.rt.malloc(4096, 0)), 4096), 0))
start = time.monotonic()
ret = create_channels(world)
print(ret, time.monotonic() - start < 20, "rank 1" in hcomm.explain(), flush=True)
"""
TEAMS = f"""{TEAMS_HEAD}
import numpy as np
def drawn(who):
    return np.random.default_rng(who).integers(0, 256, 3000, np.uint8)
whole = ok(acl.rt.malloc(3000 * (size + 1), 0))
mine = drawn(rank)
ok(acl.rt.memcpy(whole, 3000, mine.ctypes.data, 3000, 1))
world = team_of(list(range(size)), comm, hcomm.HcclWorldTeamCreate)
window = ok(hcomm.HcclTeamWindowRegister(comm, world, hcomm.CommMem(0, whole, 3000 * (size + 1)), 0))
pair = [2, 0]
if rank in pair:
    ok(create_channels(team_of(pair, world, hcomm.HcclSubTeamCreate)))
    ok(hcomm.HcclSymWinGetPeerPointer(window, 0, 2 - rank))
else:
    assert hcomm.HcclSymWinGetPeerPointer(window, 0, 0) == (0, 20)
ok(create_channels(world))
channels = channels_to(hcomm.COMM_ENGINE_CPU_TS, hcomm.COMM_PROTOCOL_HCCS)
stream = ok(acl.rt.create_stream())
thread = ok(hcomm.HcclThreadAcquireWithStream(comm, 1, stream, 0))
for peer, channel in channels.items():
    there = ok(hcomm.HcclSymWinGetPeerPointer(window, 3000 * (1 + rank), peer))
    assert there - 3000 * (1 + rank) in [each.addr for each in ok(hcomm.HcclChannelGetRemoteMems(comm, channel))[1]]
    ok(hcomm.HcommWriteOnThread(thread, channel, there, whole, 3000))
    ok(hcomm.HcommChannelNotifyRecordOnThread(thread, channel, 0))
for channel in channels.values():
    ok(hcomm.HcommChannelNotifyWaitOnThread(thread, channel, 0, 60))
ok(acl.rt.synchronize_stream(stream))
found = np.empty(3000, np.uint8)
for peer in peers:
    ok(acl.rt.memcpy(found.ctypes.data, 3000, whole + 3000 * (1 + peer), 3000, 2))
    assert np.array_equal(found, drawn(peer)), peer
line.barrier()
ok(hcomm.HcclTeamDestroy(world))
again = team_of(list(range(size)), comm, hcomm.HcclWorldTeamCreate)
ok(hcomm.HcclTeamWindowRegister(comm, again, hcomm.CommMem(0, whole, 64), 0))
ok(create_channels(again))
ok(hcomm.HcclTeamDestroy(again))  # at once: the other ranks need nothing more of it
ok(hcomm.HcclCommDestroy(comm))
line.barrier()
print("every byte", flush=True)
"""
DIES_IN_COLLECTIVE = f"""{HEAD}
signal.signal(signal.SIGTERM, signal.SIG_IGN)
stream = ok(acl.rt.create_stream())
address = ok(acl.rt.malloc(4096, 0))
ok(hcomm.HcclAllReduce(address, address, 1024, 4, 0, comm, stream))
ok(acl.rt.synchronize_stream(stream))
line.barrier()
if rank == 1:
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
start = time.monotonic()
ok(hcomm.HcclAllReduce(address, address, 1024, 4, 0, comm, stream))
ret = acl.rt.synchronize_stream(stream)
text = acl.get_recent_err_msg() or ""
print(ret, time.monotonic() - start < 20, "rank 1" in text, flush=True)
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    clean = {
        name: value for name, value in os.environ.items() if "PEERLANE" not in name and "HCCL" not in name
    }
    return {**clean, "PEERLANE_RUNTIME_DIR": str(tmp_path / "runtime"), "HCCL_CONNECT_TIMEOUT": "60"}


@pytest.fixture
def run(tmp_path: Path, env: dict[str, str]) -> Run:
    def call(*words: str, **variables: str) -> Completed:
        return run_python(["-m", "peerlane", *words], timeout=SECONDS, env={**env, **variables}, cwd=tmp_path)

    return call


@pytest.fixture
def prints(env: dict[str, str]) -> Callable[..., list[str]]:
    """Return a function that runs a program in each of three ranks, and returns what they printed.

    No launcher starts them, so they save the imports.
    """

    def call(program: str, **variables: str) -> list[str]:
        installed = f"from peerlane.dialects import install\ninstall('acl'); install('hcomm')\n{program}"
        node = f"name=hcomm-{os.getpid()},devices=2"
        with RendezvousServer(RANKS) as server, ThreadPoolExecutor(RANKS) as pool:

            def rank(number: int) -> str:
                ours = {**env, "PEERLANE_NODE": node, **server.environment(number), **variables}
                done = run_python(["-c", installed], timeout=SECONDS, env=ours)
                assert (done.returncode, done.stderr) == (0, "")
                return done.stdout

            return list(pool.map(rank, range(RANKS)))

    return call


@pytest.mark.parametrize(("ranks", "schedule"), [(2, "eager"), (3, "lazy"), (3, "seeded:5")])
def test_hcomm_example_write_on_thread_verifies_bytes(run: Run, ranks: int, schedule: str) -> None:
    program = str(EXAMPLES / "hcomm_write_on_thread.py")
    done = run("launch", "-n", str(ranks), "--devices", "3", program, PEERLANE_SCHEDULE=schedule)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    wanted = [
        f"[{rank}] rank {rank} of {ranks}: 16777216 bytes {'received' if rank else 'written'}, every byte verified"
        for rank in range(ranks)
    ]
    assert sorted(done.stdout.splitlines()) == wanted


@pytest.mark.parametrize(("ranks", "schedule"), [(1, "eager"), (2, "lazy"), (3, "seeded:5"), (4, "eager")])
def test_hcomm_example_all_reduce_verifies_sums(run: Run, ranks: int, schedule: str) -> None:
    program = str(EXAMPLES / "hcomm_all_reduce.py")
    done = run("launch", "-n", str(ranks), "--devices", "4", program, PEERLANE_SCHEDULE=schedule)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    text = "1000003 gradients summed and passed on, every one verified"
    wanted = [f"[{rank}] rank {rank} of {ranks}: {text}" for rank in range(ranks)]
    assert sorted(done.stdout.splitlines()) == wanted


def test_hcomm_all_reduce_processes_call_different_sizes_fails_every_rank(run: Run, tmp_path: Path) -> None:
    ranks = 3
    (tmp_path / "program.py").write_text(DIFFERENT)
    done = run("launch", "-n", str(ranks), "--devices", "2", "program.py")
    assert done.returncode == 0, done.stderr
    results = [line.partition(" ")[2] for line in done.stdout.splitlines()]
    assert len(results) == ranks and "1 True" in results, results
    assert set(results) <= {"1 True", "507057 False", "21 False"}, results


def test_hcomm_comm_destroy_during_barrier_ends_it_with_6(run: Run, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(WAITS_IN_VAIN)
    done = run("launch", "-n", "2", "--devices", "2", "program.py")
    assert done.returncode == 0, done.stderr
    assert "[0] 6 True True" in done.stdout


@pytest.mark.parametrize("program", [WINDOWS, TEAMS], ids=["symmetric windows", "teams"])
def test_hcomm_windows_and_teams_of_three_processes_move_bytes(
    prints: Callable[..., list[str]], program: str
) -> None:
    assert prints(program) == ["every byte\n"] * RANKS


def test_hcomm_all_reduce_killed_rank_returns_507057_and_names_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(DIES_IN_COLLECTIVE)
    done = run("launch", "-n", "2", "--devices", "2", "--grace", "20", "program.py")
    assert "[0] 507057 True True" in done.stdout, (done.stdout, done.stderr)


def test_hcomm_team_channels_create_killed_rank_returns_21_and_names_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(DIES_IN_TEAM)
    done = run("launch", "-n", "2", "--devices", "2", "--grace", "20", "program.py")
    assert "[0] 21 True True" in done.stdout, (done.stdout, done.stderr)


def test_hcomm_example_write_on_thread_too_little_memory_exits_with_message(run: Run) -> None:
    program = str(EXAMPLES / "hcomm_write_on_thread.py")
    done = run("launch", "-n", "2", "--node", "devices=2,memory=8MiB", program)
    assert done.returncode != 0
    assert "HcclChannelAcquire returned 24" in done.stderr and "HCCL_BUFFSIZE" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_hcomm_write_on_thread_between_three_processes_moves_every_byte(
    prints: Callable[..., list[str]], schedule: str
) -> None:
    assert prints(PROGRAM, PEERLANE_SCHEDULE=schedule, HCCL_BUFFSIZE="1") == ["every byte\n"] * RANKS


@pytest.mark.parametrize(("engine", "ret"), [(0, 21), (1, 507057)])
def test_hcomm_channel_notify_wait_killed_rank_fails_and_names_it(
    run: Run, tmp_path: Path, engine: int, ret: int
) -> None:
    (tmp_path / "program.py").write_text(DIES)
    words = ["launch", "-n", "2", "--devices", "2", "--grace", "20", "program.py", str(engine)]
    done = run(*words, HCCL_BUFFSIZE="1")
    assert f"[0] {ret} True True" in done.stdout, (done.stdout, done.stderr)


@pytest.mark.parametrize("command", ["run", "launch"])
def test_hcomm_run_and_launch_serve_import_of_hcomm(run: Run, command: str) -> None:
    program = "import acl, hcomm; print(hcomm.HcclGetErrorString(20), hcomm.HcclGetRankId(0))"
    done = run(command, *(["-n", "1"] if command == "launch" else []), "-c", program)
    assert re.search(r"HCCL_E_AGAIN: it is busy; try again \(0, 2\)", done.stdout), done.stderr


def test_hcomm_install_serves_import_until_uninstall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    before = dialects.installed()
    dialects.install("hcomm")
    try:
        import hcomm

        import peerlane.dialects.hcomm as serving

        assert hcomm is serving
    finally:
        dialects.uninstall("hcomm")
    assert dialects.installed() == before
    with pytest.raises(ModuleNotFoundError):
        import hcomm
