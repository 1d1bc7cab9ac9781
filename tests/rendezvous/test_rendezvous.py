"""The rendezvous between processes: deaths, deadlines, Ctrl-C, other users, and hostile peers."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import random
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import peerlane as pl
from helpers.interrupts import INTERRUPTS
from helpers.launched import until
from helpers.prepared import run_python
from helpers.promised import overdue
from peerlane.rendezvous import Rendezvous, RendezvousServer, client, frames, loop
from peerlane.rendezvous.frames import MAX_VALUE, Operation
from peerlane.rendezvous.meeting import cost
from peerlane.testing import procs

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(60)]

PROMISED_SECONDS = 0.5
CTRL_C_SECONDS = 0.1


@pytest.fixture
def server() -> Iterator[RendezvousServer]:
    with RendezvousServer(3) as it:
        yield it


def ranks(server: RendezvousServer) -> list[Rendezvous]:
    return [Rendezvous(server.address, rank, server.size) for rank in range(server.size)]


def raw(server: RendezvousServer) -> socket.socket:
    it = socket.socket(socket.AF_UNIX)
    it.settimeout(20)
    it.connect(server.address)
    return it


def request(operation: int = Operation.PUT, key: bytes = b"k", value: bytes = b"v", **fields: int) -> bytes:
    arguments = {
        "version": frames._VERSION,
        "zero": 0,
        "rank": 0,
        "size": 3,
        "timeout": 0,
        "length": len(value),
        **fields,
    }
    head = struct.pack(
        "<4sBBBBIIQI",
        b"PLRV",
        *(arguments["version"], operation, len(key), arguments["zero"]),
        *(arguments["rank"], arguments["size"], arguments["timeout"], arguments["length"]),
    )
    return head + key + value


def answer_of(it: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionResetError):  # the server closed the connection with our bytes unread
        while chunk := it.recv(1 << 16):
            received += chunk
    it.close()
    return received


def is_served(server: RendezvousServer) -> bool:
    with Rendezvous(server.address, 0, 3) as r:
        r.put("probe", b"yes")
        return r.get("probe", timeout=20) == b"yes"


def _rank(address: str, rank: int, size: int, end: str) -> None:
    r = Rendezvous(address, rank, size)
    mine = random.Random(rank).randbytes(1 << 20)
    r.put(f"of {rank}", mine)
    for other in range(size):
        assert r.get(f"of {other}", timeout=30) == random.Random(other).randbytes(1 << 20)
    for turn in range(20):
        values = r.gather("turn", struct.pack("<II", rank, turn), timeout=30)
        assert values == [struct.pack("<II", other, turn) for other in range(size)]
        r.barrier(timeout=30)
    if end == "close":
        r.close()
    elif end == "kill" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    elif end == "kill":
        start = time.monotonic()
        with pytest.raises(pl.PeerLost, match=r"rank 1 \(pid \d+\) ended without closing"):
            (r.barrier if rank else r.get)("never")
        assert time.monotonic() - start < overdue(PROMISED_SECONDS)
        r.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("end", ["close", "kill"])
def test_rendezvous_multiprocessing_workers_meet_and_learn_of_death(method: str, end: str) -> None:
    context = multiprocessing.get_context(method)
    with RendezvousServer(3, start=False) as server:
        workers = [context.Process(target=_rank, args=(server.address, rank, 3, end)) for rank in range(3)]
        for worker in workers:
            worker.start()
        server.start()
        for worker in workers:
            worker.join(40)
        codes = [worker.exitcode for worker in workers]
        for worker in workers:
            worker.kill()
    assert codes == [0, -9 if end == "kill" else 0, 0]
    assert not Path(server.address).exists()


def test_rendezvous_wait_rank_killed_its_child_alive_raises_peer_lost(server: RendezvousServer) -> None:
    code = (
        "import os, signal, sys\nfrom peerlane.rendezvous import Rendezvous\n"
        f"r = Rendezvous({server.address!r}, 1, 3)\n"
        "read, write = os.pipe()\n"
        "if os.fork() == 0: os.close(write); print('forked', flush=True); sys.stdin.read(); os._exit(0)\n"
        "signal.pause()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdin is not None
    try:
        assert child.stdout.readline() == b"forked\n"
        first, third = Rendezvous(server.address, 0, 3), Rendezvous(server.address, 2, 3)
        with ThreadPoolExecutor(2) as pool:
            waits = [pool.submit(first.get, "never"), pool.submit(third.barrier)]
            until(lambda: len(server._loop.meeting._rounds) + len(server._loop.meeting._wanted) == 2)
            killed = time.monotonic()
            child.kill()
            for wait in waits:
                with pytest.raises(pl.PeerLost, match=rf"rank 1 \(pid {child.pid}\)"):
                    wait.result(20)
            took = time.monotonic() - killed
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()
    print(f"told after {took:.4f} s (promised: {PROMISED_SECONDS} s)")
    assert took < overdue(PROMISED_SECONDS)
    with pytest.raises(pl.PeerLost, match="rank 1"):
        first.gather("later", b"")
    first.put("still", b"served")
    assert third.get("still") == b"served"


@pytest.mark.parametrize("call", ["r.get('never')", "r.barrier()", "r.gather('g', b'')"])
@pytest.mark.parametrize("how", INTERRUPTS)
def test_rendezvous_wait_ctrl_c_ends_it_and_leaves_nothing(
    how: str, call: str, server: RendezvousServer
) -> None:
    code = (
        "import os, signal, threading, time\nfrom peerlane.rendezvous import Rendezvous\n"
        f"r = Rendezvous({server.address!r}, 1, 3)\nsent = []\n"
        f"def interrupt(): sent.append(time.monotonic()); {INTERRUPTS[how]}\n"
        f"try: threading.Timer(0.3, interrupt).start(); {call}\n"
        "except KeyboardInterrupt: print(time.monotonic() - sent[0])\n"
        "r.put('after', b'x'); r.close()"
    )
    done = run_python(["-c", code], timeout=40)
    assert done.returncode == 0, done.stderr
    print(f"seen after {float(done.stdout):.4f} s (promised: {CTRL_C_SECONDS} s)")
    assert float(done.stdout) < overdue(CTRL_C_SECONDS)
    meeting = server._loop.meeting
    until(lambda: not server._loop.connections and meeting._rounds == {} and meeting._wanted == {})
    assert Rendezvous(server.address, 0, 3).get("after") == b"x"


def test_rendezvous_server_killed_waits_raise_peer_lost(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom peerlane.rendezvous import RendezvousServer\n"
        "s = RendezvousServer(2, start=False)\n"
        "child = os.fork()\n"
        "if child == 0: os.read(0, 1); os._exit(0)\n"
        "s.start(); print(s.address, flush=True); os.waitpid(child, 0)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdin is not None
    address = child.stdout.readline().decode().strip()
    r = Rendezvous(address, 0, 2)
    with ThreadPoolExecutor(1) as pool:
        wait = pool.submit(r.barrier)
        until(lambda: wait.running())
        started = time.monotonic()
        child.kill()  # the server's forked child still holds the socket
        with pytest.raises(pl.PeerLost, match="its process has ended"):
            wait.result(20)
    assert time.monotonic() - started < overdue(PROMISED_SECONDS)
    for call in (lambda: r.put("k", b""), lambda: r.get("k"), lambda: Rendezvous(address, 1, 2)):
        with pytest.raises(pl.PeerLost):
            call()
    r.close()
    child.stdin.close()
    child.stdout.close()
    child.wait()
    stale = Path(address)
    assert stale.exists()
    os.utime(stale, (0, 0))
    until(lambda: _refuses(stale))
    with RendezvousServer(1):
        assert not stale.exists()


def _refuses(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) != 0


def test_rendezvous_server_old_live_socket_is_kept(server: RendezvousServer) -> None:
    os.utime(server.address, (0, 0))
    with RendezvousServer(1):
        assert is_served(server)


def test_rendezvous_server_socket_is_private_and_its_path_may_be_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 100) / ("y" * 100)
    deep.mkdir(parents=True)
    deep.chmod(0o700)
    monkeypatch.setenv("PEERLANE_RUNTIME_DIR", str(deep))
    with RendezvousServer(1) as server:
        assert stat.S_IMODE(Path(server.address).stat().st_mode) == 0o600
        with Rendezvous(server.address, 0, 1) as r:
            r.put("k", b"v")
    assert list(deep.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_rendezvous_server_connection_of_other_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Path("/tmp") / f"peerlane-test-{os.getpid()}"
    directory.mkdir(mode=0o700)
    monkeypatch.setenv("PEERLANE_RUNTIME_DIR", str(directory))
    try:
        with RendezvousServer(2) as server:
            directory.chmod(0o711)  # else the modes alone would refuse the other user
            Path(server.address).chmod(0o666)
            read_end, write_end = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    os.setgid(65534)
                    os.setuid(65534)
                    it = socket.socket(socket.AF_UNIX)
                    it.settimeout(20)
                    it.connect(server.address)
                    os.write(write_end, answer_of(it) or b"nothing")
                finally:
                    os._exit(0)
            os.close(write_end)
            answer = os.read(read_end, 1000)
            os.close(read_end)
            os.waitpid(child, 0)
            assert b"it serves uid 0, and this is 65534" in answer
            assert frames.decode_answer(answer[: frames.ANSWER_BYTES]).status is frames.Status.DENIED
            with Rendezvous(server.address, 0, 2) as r:
                r.put("k", b"")
    finally:
        directory.rmdir()


BAD = {
    "other magic": b"GET / HTTP/1.1\r\n\r\n" + bytes(10),
    "other version": request(version=1),
    "neither waits nor does not": request(zero=2),
    "no operation": request(operation=9),
    "rank of another size": request(rank=3),
    "size 0": request(size=0),
    "size too large": request(size=1 << 20),
    "another size": request(size=5),
    "value too long": request(length=MAX_VALUE + 1),
    "value of a get": request(Operation.GET),
    "no UTF-8": request(key=b"\xff\xfe"),
    "keys cut short": request(Operation.DELETE, b"", b"\x05keys"),
    "keys that are no UTF-8": request(Operation.DELETE, b"", b"\x02\xff\xfe"),
    "too many keys": request(Operation.DELETE, length=(1 << 16) + 1),
    "value of a folder": request(Operation.CLEAR),
}


@pytest.mark.parametrize("case", BAD)
def test_rendezvous_server_bad_frame_is_refused_with_reason(case: str, server: RendezvousServer) -> None:
    it = raw(server)
    it.sendall(BAD[case])
    answer = answer_of(it)
    head = frames.decode_answer(answer[: frames.ANSWER_BYTES])
    assert (head.status, head.count, head.lost) == (frames.Status.INVALID, 1, None)
    assert len(answer) > frames.ANSWER_BYTES + 14
    assert is_served(server)


def test_rendezvous_server_half_frame_or_silence_is_dropped(
    server: RendezvousServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "STALL_SECONDS", 0.3)
    whole = request(value=b"x" * 1000)
    half = [raw(server) for _ in range(4)]
    for it, length in zip(half, (0, 5, len(whole) - 1000, len(whole) - 1), strict=True):
        it.sendall(whole[:length])
    assert is_served(server)
    for it in half:
        assert answer_of(it) == b""
    until(lambda: not server._loop.connections)
    assert server._loop.meeting._ranks[0].charged == cost("probe", 3)


def test_rendezvous_server_peer_that_never_reads_is_dropped(
    server: RendezvousServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "STALL_SECONDS", 0.3)
    with Rendezvous(server.address, 1, 3) as r:
        r.put("large", bytes(MAX_VALUE))
        deaf = [raw(server) for _ in range(8)]
        for it in deaf:
            it.sendall(request(Operation.GET, b"large", b""))
        assert is_served(server)
        assert r.get("large") == bytes(MAX_VALUE)
        until(lambda: not server._loop.connections)
    for it in deaf:
        it.close()


def test_rendezvous_server_flood_is_refused_and_others_are_served(server: RendezvousServer) -> None:
    code = (
        "import socket, sys\nits = []\n"
        "for _ in range(300):\n"
        "    it = socket.socket(socket.AF_UNIX); it.settimeout(20)\n"
        "    try: it.connect(sys.argv[1])\n"
        "    except OSError: pass\n"
        "    its.append(it)\n"
        "print(b''.join(iter(lambda: its[-1].recv(1000), b'')), flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", code, server.address]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        first_line = child.stdout.readline()
        served = is_served(server)
        until(lambda: len(server._loop.connections) <= 64)
        child.communicate(timeout=20)
    assert b"64 requests under way, the most" in first_line and served
    until(lambda: not server._loop.connections)


def test_rendezvous_put_until_full_leaves_room_of_other_ranks(server: RendezvousServer) -> None:
    first, second, _ = ranks(server)
    with pytest.raises(pl.OutOfMemory, match="rank 0 has no room for") as refused:
        for number in range(10):
            first.put(f"k{number}", bytes(MAX_VALUE))
    assert number == 3
    assert refused.value.fault is pl.Fault.OUT_OF_RESOURCES
    second.put("of 1", bytes(MAX_VALUE))
    for number in range(3):
        second.put(f"k{number}", b"")  # replaces the large value and frees its room
    first.put("again", bytes(MAX_VALUE))
    with pytest.raises(pl.OutOfMemory):
        for number in range(200_000):
            first.put("many" * 60 + str(number), bytes(MAX_VALUE // 4))


def test_rendezvous_server_without_descriptors_serves_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with RendezvousServer(3) as server:
        held = []
        used = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                while True:
                    held.append(raw(server))
        finally:
            for it in held:
                it.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert is_served(server)


def fuzz(server: RendezvousServer, rounds: int) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    it = random.Random(seed)
    values = {Operation.PUT: b"value", Operation.GATHER: b"value", Operation.DELETE: b"\3key\1k"}
    whole = [request(operation, b"key", values.get(operation, b"")) for operation in Operation]
    for number in range(rounds):
        if number % 32 == 0:  # else the server refuses most frames unread, as a flood
            until(lambda: not server._loop.connections)
        frame = bytearray(it.choice(whole))
        for _ in range(it.choice((0, 0, 1, 1, 2, 8))):
            frame[it.randrange(len(frame))] = it.randrange(256)
        cut = it.choice((len(frame), it.randrange(len(frame) + 1)))
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(server.address)
        peer.setblocking(False)
        with contextlib.suppress(OSError):  # the server has closed it, or there is no answer yet
            peer.send(bytes(frame[:cut]) + it.randbytes(it.choice((0, 0, 0, 40))))
            peer.recv(100)
        peer.close()


def fuzz_and_look(rounds: int) -> None:
    with RendezvousServer(3, follow=False) as server:
        fuzz(server, 500)
        until(lambda: not server._loop.connections)
        gc.collect()
        before, descriptors = resident(), len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        threads = threading.active_count()
        fuzz(server, rounds)
        until(lambda: not server._loop.connections)
        gc.collect()
        assert is_served(server)
        assert server._loop.meeting._rounds == {} and server._loop.meeting._wanted == {}
        until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)  # noqa: PTH208
        assert threading.active_count() <= threads
        grown = resident() - before
        print(f"{rounds} frames: grown by {grown:,} bytes")
        assert grown < (16 << 20) + 3 * (64 << 20) * (rounds > 100_000)  # three ranks have 64 MiB each


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_rendezvous_server_malformed_frames_leave_it_serving() -> None:
    fuzz_and_look(10_000)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_rendezvous_server_million_malformed_frames_leave_it_serving() -> None:
    fuzz_and_look(1_000_000)


def test_frame_decoders_random_bytes_decode_or_raise_bad_frame() -> None:
    it = random.Random(4)
    for _ in range(20_000):
        head = bytearray(b"PLRV\x03" + it.randbytes(23)) if it.random() < 0.7 else bytearray(it.randbytes(28))
        for decode, length in ((frames.decode_request, 28), (frames.decode_answer, frames.ANSWER_BYTES)):
            try:
                decode(head[:length])
            except frames.BadFrame as error:
                assert str(error)


def test_decode_entries_random_or_cut_bytes_decode_or_raise_bad_frame() -> None:
    it = random.Random(5)
    drawn = {it.randbytes(4).hex().encode(): it.randbytes(it.randrange(40)) for _ in range(20)}
    (whole,) = frames.encode_entries(drawn)
    assert frames.decode_entries(whole) == {key.decode(): value for key, value in drawn.items()}
    for _ in range(5_000):
        damaged = bytearray(whole[: it.randrange(len(whole))]) + it.randbytes(it.randrange(3))
        if damaged:
            damaged[it.randrange(len(damaged))] ^= 1 << it.randrange(8)
        try:
            entries = frames.decode_entries(bytes(damaged))
        except frames.BadFrame as error:
            assert str(error)
        else:
            assert sum(map(len, entries.values())) <= len(damaged)


@pytest.mark.parametrize("values", [[], [b"\1"], [b"\1\1"], [b"\1\0", b"a", b"b"], [b"\1\1\0", b"a", b"b"]])
def test_decode_present_flags_that_do_not_fit_raise_bad_frame(values: list[bytes]) -> None:
    assert frames.decode_present(["k", "l"], [b"\0\1", b"value"]) == {"l": b"value"}
    with pytest.raises(frames.BadFrame, match="about 2 keys"):
        frames.decode_present(["k", "l"], values)


def test_encode_entries_longer_than_a_value_take_several_requests() -> None:
    entries = {f"{number}".encode(): bytes(MAX_VALUE // 2) for number in range(3)}
    encoded = frames.encode_entries(entries)
    assert [len(frames.decode_entries(each)) for each in encoded] == [1, 1, 1]
    assert all(len(each) <= MAX_VALUE for each in encoded)


def test_put_all_values_are_there_for_waiting_and_later_ranks(server: RendezvousServer) -> None:
    with ThreadPoolExecutor(1) as pool:
        one, other, third = ranks(server)
        waiting = pool.submit(other.get, "b", timeout=20)
        client.put_all(one, {"a": b"first", "b": b"", "folder/c": b"third"})
        assert waiting.result(20) == b""
        assert client.get_present(third, ["b", "none", "folder/c"]) == {"b": b"", "folder/c": b"third"}
        one.delete("a", "b", "folder/c")
        assert client.get_present(third, ["a", "b"]) == {}
    charged = server._loop.meeting._ranks[0].charged
    for each in (one, other, third):
        each.close()
    assert charged == 0


def test_put_all_without_room_or_malformed_stores_and_charges_nothing(server: RendezvousServer) -> None:
    with Rendezvous(server.address, 0, 3) as r:
        for number in range(3):
            r.put(f"large {number}", bytes(MAX_VALUE))
        charged = server._loop.meeting._ranks[0].charged
        with pytest.raises(pl.OutOfMemory, match="rank 0 has no room for"):
            client.put_all(r, {f"{number}": b"" for number in range(40_000)})
        assert client.get_present(r, ["0", "39999"]) == {}
        it = raw(server)
        it.sendall(request(Operation.PUT_ALL, b"", b"\3abc\xff\0\0\0short"))
        assert b"cut short" in answer_of(it)
        assert server._loop.meeting._ranks[0].charged == charged


def test_get_present_more_than_an_answer_holds_returns_some(server: RendezvousServer) -> None:
    with Rendezvous(server.address, 0, 3) as one, Rendezvous(server.address, 1, 3) as other:
        for number in range(3):
            one.put(f"{number}", bytes(MAX_VALUE // 2))
        assert sorted(client.get_present(other, ["0", "1", "2"])) == ["0", "1"]


def test_decode_answer_refusal_without_text_or_with_wrong_rank_raises_bad_frame() -> None:
    text = [b"why"]
    lost = frames.decode_answer(frames.encode_answer(frames.Status.LOST, text, 3)[: frames.ANSWER_BYTES])
    assert (lost.status, lost.count, lost.lost) == (frames.Status.LOST, 1, 3)
    for status, values, rank in (
        (frames.Status.LOST, [*text, b"\x03\0\0\0"], None),
        (frames.Status.BUSY, [], None),
        (frames.Status.WAIT_TIMEOUT, text, None),
        (frames.Status.BUSY, text, 3),
        (frames.Status.OK, text, 0),
        (frames.Status.LOST, text, -2),
        (frames.Status.LOST, text, frames.MAX_SIZE),
    ):
        with pytest.raises(frames.BadFrame):
            frames.decode_answer(frames.encode_answer(status, values, rank)[: frames.ANSWER_BYTES])


def test_rendezvous_foreign_server_answers_raises_invalid_value(tmp_path: Path) -> None:
    path = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()

        def answer() -> None:
            accepted, _ = other.accept()
            accepted.recv(1000)
            accepted.sendall(b"HTTP/1.1 400\r\n")
            accepted.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(pl.InvalidValue, match="does not answer with a frame"):
            Rendezvous(str(path), 0, 1)
        thread.join(20)


def test_rendezvous_is_not_imported_with_peerlane_and_enters_no_node() -> None:
    done = procs.run_python(
        ["-c", "import sys, peerlane; print('peerlane.rendezvous' in sys.modules)"], timeout=40
    )
    assert done.stdout == "False\n"
    code = "import sys, peerlane.rendezvous, peerlane.backend.registry as r; print(r.is_entered())"
    assert procs.run_python(["-c", code], timeout=40).stdout == "False\n"


def test_rendezvous_close_ends_own_waits_only(server: RendezvousServer) -> None:
    first, second, third = ranks(server)
    with ThreadPoolExecutor(2) as pool:
        mine, theirs = (pool.submit(line.get, "never", timeout=30) for line in (first, second))
        until(lambda: len(server._loop.meeting._wanted.get("never", ())) == 2)
        first.close()
        with pytest.raises(pl.PeerLost, match="rank 0 closed this rendezvous meanwhile"):
            mine.result(20)
        assert not theirs.done()
        third.put("never", b"after all")
        assert theirs.result(20) == b"after all"


def test_rendezvous_server_lingering_ends_when_all_have_closed(server: RendezvousServer) -> None:
    lines = ranks(server)
    server.linger(30)
    for line in lines[:2]:
        line.close()
    with Rendezvous(server.address, 0, 3) as again:  # a rank that has closed may come again
        again.put("here", b"")
        lines[2].close()
        assert not server._is_closing
    until(lambda: not Path(server.address).exists())


def test_server_that_lingers_from_the_end_of_its_process_serves_until_all_have_left() -> None:
    code = (
        "import atexit; from peerlane.rendezvous import Rendezvous, RendezvousServer\n"
        "server = RendezvousServer(2); line = Rendezvous(server.address, 0, 2)\n"
        "@atexit.register\n"
        "def leave(): line.put('left', b''); line.close(); server.linger(30)\n"
        "print(server.address, flush=True)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        with Rendezvous(child.stdout.readline().strip(), 1, 2) as line:
            line.get("left", timeout=30)
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(0.5)
            line.put("still", b"here")
            assert line.get("still", timeout=30) == b"here"
        assert child.wait(30) == 0
    finally:
        child.kill()
        child.communicate()
