"""A rendezvous whose ranks are on several machines: here each relay is a machine, and lines go over the loopback."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

import peerlane as pl
from helpers.launched import until
from helpers.namespaces import other_network
from helpers.ports import free_port
from helpers.promised import overdue
from peerlane.rendezvous import Rendezvous, RendezvousRelay, RendezvousServer, loop
from peerlane.rendezvous.frames import MAX_VALUE
from peerlane.rendezvous.link import BadLink, Kind, Link
from peerlane.rendezvous.strangers import to_give_up

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(60)]

SECRET = b"sixteen bytes..."
PROMISED_SECONDS = 0.5
UNREACHABLE = 5.0


@pytest.fixture
def server() -> Iterator[RendezvousServer]:
    with RendezvousServer(3, machines="127.0.0.1:0", secret=SECRET, unreachable=UNREACHABLE) as it:
        yield it


@pytest.fixture
def relays(server: RendezvousServer) -> Iterator[list[RendezvousRelay]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(RendezvousRelay(where(server), secret=SECRET, unreachable=UNREACHABLE))
            for _ in range(2)
        ]


@pytest.fixture
def ranks(server: RendezvousServer, relays: list[RendezvousRelay]) -> Iterator[list[Rendezvous]]:
    """Rank 0 is on the server's machine, and the others each on one of their own."""
    it = [Rendezvous(each.address, rank, 3) for rank, each in enumerate((server, *relays))]
    yield it
    for one in it:
        with contextlib.suppress(pl.PeerLost):
            one.close()


def where(server: RendezvousServer) -> str:
    assert server.machines is not None
    return "{}:{}".format(*server.machines)


class Machine:
    """Another process with a relay and a rank, which does as it is told."""

    PROGRAM = """
import sys, time
from peerlane.rendezvous import Rendezvous, RendezvousRelay
where, secret, rank, unreachable = sys.argv[1:]
relay = RendezvousRelay(where, secret=secret.encode(), unreachable=float(unreachable))
rank = Rendezvous(relay.address, int(rank), relay.size)
print(relay.address, flush=True)
for line in sys.stdin:
    try:
        exec(line)
    except Exception as error:
        print(f"{type(error).__name__}: {error}".replace("\\n", " "), flush=True)
    else:
        print("done", flush=True)
"""

    def __init__(
        self,
        server: RendezvousServer,
        rank: int,
        before: Sequence[str] = (),
        unreachable: float = UNREACHABLE,
    ) -> None:
        words = [
            *before,
            sys.executable,
            "-c",
            self.PROGRAM,
            where(server),
            SECRET.decode(),
            str(rank),
            str(unreachable),
        ]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.read_answer()

    def send_statement(self, statement: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(statement + "\n")
        self.process.stdin.flush()

    def read_answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def machine(server: RendezvousServer) -> Iterator[Machine]:
    it = Machine(server, 2)
    yield it
    it.end()


def test_all_machines_call_a_rendezvous_by_one_name_in_event_logs(ranks: list[Rendezvous]) -> None:
    assert len({each.address for each in ranks}) > 1
    assert len({each._name for each in ranks}) == 1


def test_values_barriers_and_gathers_cross_machines(ranks: list[Rendezvous]) -> None:
    with ThreadPoolExecutor(3) as pool:
        for round_ in range(20):
            pool.map(lambda rank: rank.barrier("b", timeout=20), ranks)
            values = [bytes([rank]) * (round_ * 1000 + rank) for rank in range(3)]
            decoded_frames = [
                pool.submit(one.gather, "g", values[rank], timeout=20) for rank, one in enumerate(ranks)
            ]
            assert [each.result(20) for each in decoded_frames] == [values] * 3
            for writer in ranks:
                key = f"k{writer.rank}"
                reader = pool.submit(ranks[writer.rank - 1].get, key, timeout=20)
                writer.put(key, b"v%d" % round_)
                assert reader.result(20) == b"v%d" % round_
                ranks[writer.rank - 2].delete(key)


def test_relay_without_a_thread_is_not_silent_while_it_serves_now(server: RendezvousServer) -> None:
    with RendezvousRelay(
        where(server), secret=SECRET, unreachable=UNREACHABLE, start=False, name="b"
    ) as relay:
        until_time = time.monotonic() + 2 * UNREACHABLE
        while time.monotonic() < until_time:
            relay.serve_now()
            time.sleep(UNREACHABLE / 20)  # as a fork would take
        relay.start()
        with Rendezvous(relay.address, 1, 3) as rank:
            rank.put("key", b"value")
            assert rank.get("key", timeout=20) == b"value"


def test_longest_value_crosses_and_a_longer_sum_is_refused(ranks: list[Rendezvous]) -> None:
    value = os.urandom(MAX_VALUE)
    for number in range(3):
        ranks[1].put(str(number), value)
    assert ranks[2].get("1", timeout=20) == value
    with pytest.raises(pl.OutOfMemory, match="rank 1 has no room for 16,777,216 bytes more"):
        ranks[1].put("3", value)
    ranks[0].delete("0")
    ranks[1].put("3", value)
    assert ranks[0].get("3", timeout=20) == value


def test_wait_that_times_out_names_the_ranks_on_each_machine(ranks: list[Rendezvous]) -> None:
    for one in ranks:
        others = [rank for rank in range(3) if rank != one.rank]
        with pytest.raises(
            pl.WaitTimeout, match=f"ranks {others[0]} and {others[1]} of 3 did not come to 'b'"
        ):
            one.barrier("b", timeout=0.05)
        with pytest.raises(pl.WaitTimeout, match="nobody has put 'k'"):
            one.get("k", timeout=0.05)


def test_interrupted_wait_on_another_machine_is_withdrawn(server: RendezvousServer, machine: Machine) -> None:
    with Rendezvous(server.address, 0, 3):
        machine.send_statement("rank.barrier('b')")
        until(lambda: bool(server._loop.meeting._rounds))
        machine.process.send_signal(signal.SIGINT)
        until(lambda: not server._loop.meeting._rounds and not server._loop.relayed)


def test_rank_that_is_killed_on_another_machine_is_named_in_time(
    server: RendezvousServer, machine: Machine
) -> None:
    worker = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from peerlane.rendezvous import Rendezvous\n"
            f"rank = Rendezvous({machine.address!r}, 1, 3)\n"
            "rank.put('here', b'')\n"
            "input()",
        ],
        stdin=subprocess.PIPE,
    )
    with Rendezvous(server.address, 0, 3) as mine, ThreadPoolExecutor(1) as pool:
        mine.get("here", timeout=20)
        waiting = pool.submit(mine.barrier, timeout=20)
        until(lambda: bool(server._loop.meeting._rounds))
        worker.kill()
        killed = time.monotonic()
        with pytest.raises(
            pl.PeerLost, match=rf"rank 1 \(pid {worker.pid} on .+\) ended without closing"
        ) as lost:
            waiting.result(20)
        assert time.monotonic() - killed < overdue(PROMISED_SECONDS)
        assert lost.value.rank == 1
    worker.communicate()


def test_machine_whose_relay_is_killed_loses_its_ranks(server: RendezvousServer, machine: Machine) -> None:
    with Rendezvous(server.address, 0, 3) as mine, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(mine.barrier, timeout=20)
        until(lambda: bool(server._loop.meeting._rounds))
        machine.process.kill()
        with pytest.raises(pl.PeerLost, match=r"rank 2 \(pid \d+ on .+\) is lost: it closed the connection"):
            waiting.result(20)


def test_silent_machine_is_lost_after_the_time_that_was_asked_for(
    server: RendezvousServer, machine: Machine
) -> None:
    with Rendezvous(server.address, 0, 3) as mine, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(mine.barrier, timeout=20)
        until(lambda: bool(server._loop.meeting._rounds))
        machine.process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        with pytest.raises(pl.PeerLost, match=f"rank 2 .* its machine has been silent for {UNREACHABLE:g} s"):
            waiting.result(20)
        assert UNREACHABLE / 2 < time.monotonic() - stopped < 5 * (UNREACHABLE + 1)


def test_idle_machines_stay(ranks: list[Rendezvous], server: RendezvousServer) -> None:
    with pytest.raises(pl.WaitTimeout):
        ranks[1].get("never", timeout=2 * UNREACHABLE)
    assert len(server._loop.machines) == 2


def test_end_of_the_server_is_reported_on_each_machine(
    server: RendezvousServer, ranks: list[Rendezvous]
) -> None:
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(one.barrier, timeout=20) for one in ranks[1:]]
        until(lambda: bool(server._loop.meeting._rounds) and len(server._loop.relayed) == 2)
        server.close()
        for each in waiting:
            with pytest.raises(
                pl.PeerLost, match=r"the rendezvous at tcp://127\.0\.0\.1:\d+ is lost: its process has ended"
            ):
                each.result(20)
    with pytest.raises(pl.PeerLost, match="is lost: its process has ended"):
        ranks[1].put("k", b"")


def test_rank_that_closes_its_rendezvous_on_another_machine_is_not_lost(
    server: RendezvousServer, machine: Machine
) -> None:
    with Rendezvous(server.address, 0, 3) as mine:
        machine.send_statement("rank.close()")
        assert machine.read_answer() == "done"
        machine.end()
        until(lambda: not server._loop.machines)
        mine.put("k", b"v")
        assert mine.get("k", timeout=20) == b"v"


def test_deadlock_over_machines_is_not_reported(ranks: list[Rendezvous]) -> None:
    with ThreadPoolExecutor(3) as pool:
        waits = [pool.submit(one.get, "never", timeout=3.0) for one in ranks]
        for each in waits:
            with pytest.raises(pl.WaitTimeout):
                each.result(20)


def test_other_secret_is_refused_and_reported(
    server: RendezvousServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "peerlane.rendezvous"):
        with pytest.raises(
            pl.AccessDenied, match="was started with another secret: set the same PEERLANE_SECRET"
        ):
            RendezvousRelay(where(server), secret=b"another secret of theirs", timeout=20)
        until(lambda: not server._loop.machines)
        refusal = "refused a connection from 127.0.0.1: it closed the connection before it proved anything"
        until(lambda: refusal in caplog.text)  # the server logs it after it has forgotten the connection


@pytest.mark.parametrize("secret", [None, b"", b"fifteen bytes.."])
def test_missing_or_short_secret_is_refused_before_anything_is_sent(secret: bytes | None) -> None:
    for make in (
        lambda: RendezvousServer(2, machines="127.0.0.1:0", secret=secret),
        lambda: RendezvousRelay("127.0.0.1:9", secret=secret),
    ):
        with pytest.raises(pl.AccessDenied if secret is None else pl.InvalidValue, match="16"):
            make()


def test_bad_arguments_are_refused() -> None:
    for address in ("127.0.0.1", ":7", "127.0.0.1:x", "127.0.0.1:70000", ""):
        with pytest.raises(pl.InvalidValue, match="valid is host:port"):
            RendezvousServer(2, machines=address, secret=SECRET)
        with pytest.raises(pl.InvalidValue, match="valid is host:port"):
            RendezvousRelay(address, secret=SECRET)
    for seconds in (0.0, 0.4, -1.0):
        with pytest.raises(pl.InvalidValue, match="unreachable"):
            RendezvousServer(2, machines="127.0.0.1:0", secret=SECRET, unreachable=seconds)
    with pytest.raises(TypeError, match="secret must be bytes"):
        RendezvousServer(2, machines="127.0.0.1:0", secret="text" * 8)  # type: ignore[arg-type]


def test_server_that_is_not_there_is_waited_for_and_then_named() -> None:
    port = free_port()
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(pl.Busy, match=f"cannot listen at tcp://127.0.0.1:{port}"),
    ):
        RendezvousServer(2, machines=f"127.0.0.1:{port}", secret=SECRET)
    with pytest.raises(
        pl.WaitTimeout, match=f"no rendezvous answered at tcp://127.0.0.1:{port} within 0.3 s"
    ):
        RendezvousRelay(f"127.0.0.1:{port}", secret=SECRET, timeout=0.3)


def test_other_version_is_named_by_both_ends(
    server: RendezvousServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    line = socket.create_connection(server.machines, timeout=20)
    old = Link(SECRET, is_hub=False, longest=64)
    hello = bytearray(old.begin())
    hello[8] = 77
    with caplog.at_level(logging.WARNING, "peerlane.rendezvous"):
        line.sendall(hello)
        until(lambda: "it uses version 77 of the line" in caplog.text)
    answered = line.recv(1 << 16)  # its own hello: the other end can name its version too
    line.close()
    changed = bytearray(answered[:44])
    changed[8] = 78
    with pytest.raises(BadLink, match="it uses version 78 of the line, this end version 1"):
        old.meet(bytes(changed))


def test_strangers_are_refused_and_nothing_is_lost(
    server: RendezvousServer,
    ranks: list[Rendezvous],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "peerlane.rendezvous"), contextlib.ExitStack() as stack:

        def send(*contents: bytes) -> None:
            for content in contents:
                line = stack.enter_context(socket.create_connection(server.machines, timeout=20))
                line.sendall(content)

        send(b"GET / HTTP/1.1\r\n\r\n" * 9, b"\0" * 100, random.Random(7).randbytes(4000))
        until(lambda: len(caplog.records) == 3)  # before any of them may be called silent
        monkeypatch.setattr("peerlane.rendezvous.machine_connection.STALL_SECONDS", 0.3)
        send(b"", b"PLLINK\r\n")
        until(lambda: len(caplog.records) == 5)
    read_answer = [each.getMessage().partition(": ")[2] for each in caplog.records]
    assert (
        sorted(read_answer)
        == ["it proved nothing within 0.3 s"] * 2 + ["what it sends is not a line of peerlane's"] * 3
    )
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda one: one.barrier(timeout=20), ranks)) == [None] * 3


def test_strangers_beyond_the_most_are_dropped_and_a_machine_joins_beside_them(
    server: RendezvousServer,
) -> None:
    with contextlib.ExitStack() as stack:
        lines = [
            stack.enter_context(socket.create_connection(server.machines, timeout=20)) for _ in range(80)
        ]
        for line in lines[:16]:  # the oldest were given up
            while line.recv(4096):
                pass
        # The server closes the oldest connection before it keeps the newest.
        until(lambda: len(server._loop.machines) == 64)
        RendezvousRelay(where(server), secret=SECRET, timeout=20).close()
    until(lambda: not server._loop.machines)


def test_address_with_most_strangers_gives_up_its_oldest() -> None:
    def refused_address(strangers: list[str], newcomer: str) -> str:
        return to_give_up(strangers, lambda each: each[0], newcomer)

    assert refused_address(["b1", "a1", "a2", "c1", "a3"], "b") == "a1"
    assert refused_address(["b1", "a1", "a2", "c1", "a3"], "d") == "a1"
    assert refused_address(["b1", "a1", "a2", "b2", "c1"], "b") == "b1"
    assert refused_address(["a1", "b1", "a2", "b2", "c1"], "b") == "b1"
    assert refused_address(["a1", "b1"], "a") == "a1"


def opened(is_hub: bool = True) -> tuple[Link, Link]:
    """Return two ends of an open line: the one, and the other."""
    ends = Link(SECRET, is_hub=True, longest=1000), Link(SECRET, is_hub=False, longest=1000)
    proof = ends[0].begin() + ends[0].meet(ends[1].begin())
    ends[0].meet(ends[1].meet(proof))
    assert ends[0].is_open and ends[1].is_open
    return ends if is_hub else ends[::-1]


@pytest.mark.parametrize("is_hub", [True, False])
def test_frames_come_whole_however_they_are_cut(is_hub: bool) -> None:
    one, other = opened(is_hub)
    drawn = random.Random(3)
    sent = [
        (drawn.choice(list(Kind)), drawn.getrandbits(64), drawn.randbytes(drawn.randrange(1000)))
        for _ in range(200)
    ]
    stream = b"".join(part for each in sent for part in one.frame(*each))
    decoded_frames = []
    while stream:
        cut = drawn.randrange(1, 500)
        decoded_frames += [tuple(frame) for frame in other.hear(stream[:cut])]
        stream = stream[cut:]
    assert decoded_frames == sent


def test_changed_repeated_missing_and_returned_frames_are_forged() -> None:
    def frames(one: Link) -> list[bytes]:
        return [b"".join(one.frame(Kind.REQUEST, number, b"body %d" % number)) for number in range(3)]

    for bit in range(8 * len(frames(opened()[0])[0])):
        one, other = opened()
        changed = bytearray(frames(one)[0])
        changed[bit // 8] ^= 1 << bit % 8
        heard = []
        with contextlib.suppress(BadLink):
            heard += other.hear(bytes(changed) + b"\0" * 1000)
        assert heard == []
    for order in ([0, 0], [1], [0, 2], [1, 0]):
        one, other = opened()
        sent = frames(one)
        with pytest.raises(BadLink, match="not the one that the other end sent"):
            list(other.hear(b"".join(sent[each] for each in order)))
    one, other = opened()
    with pytest.raises(BadLink, match="not the one that the other end sent"):
        list(one.hear(frames(one)[0]))
    with pytest.raises(BadLink, match="a frame of 1,001 bytes is too long"):
        list(other.hear(b"".join(one.frame(Kind.REQUEST, 0, bytes(1001)))))


def test_proofs_of_another_line_or_of_the_other_role_open_nothing() -> None:
    first, second = Link(SECRET, is_hub=True, longest=9), Link(SECRET, is_hub=False, longest=9)
    proof = first.meet(second.begin())
    another = Link(SECRET, is_hub=False, longest=9)
    with pytest.raises(BadLink, match="does not know the secret"):
        another.meet(first.begin() + proof)
    with pytest.raises(BadLink, match="does not know the secret"):
        first.meet(proof)  # its own, sent back
    with pytest.raises(BadLink, match="not a line"):
        Link(SECRET, is_hub=True, longest=9).meet(Link(SECRET, is_hub=True, longest=9).begin())


def test_forged_requests_of_one_machine_end_that_machine_alone(
    server: RendezvousServer, ranks: list[Rendezvous], frames_of: int = 300
) -> None:
    """A relay that knows the secret, and sends what it likes, loses its own ranks and harms no others."""
    drawn = random.Random(11)
    for _ in range(frames_of):
        with socket.create_connection(server.machines, timeout=20) as line:
            link = Link(SECRET, is_hub=False, longest=1 << 20)
            line.sendall(link.begin())
            received = b""
            while not link.is_open:
                received = line.recv(1 << 16)
                assert received
                line.sendall(link.meet(received))
            if drawn.random() < 0.9:
                line.sendall(b"".join(link.frame(Kind.JOIN, 0, b"wild")))
            for _ in range(drawn.randrange(1, 6)):
                kind = drawn.choice(list(Kind))
                body = drawn.choice(
                    [b"", drawn.randbytes(4), drawn.randbytes(31), b"\1\0\0\0PLRV\4" + drawn.randbytes(40)]
                )
                with contextlib.suppress(OSError):
                    line.sendall(b"".join(link.frame(kind, drawn.getrandbits(64), body)))
    until(lambda: len(server._loop.machines) == 2 and not server._loop.relayed)
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(lambda one: one.barrier(timeout=20), ranks)) == [None] * 3


def test_relay_answers_within_its_limits(server: RendezvousServer, relays: list[RendezvousRelay]) -> None:
    """More calls at once than a process may have: the relay refuses them as the server does."""
    with Rendezvous(relays[0].address, 1, 3) as one, ThreadPoolExecutor(80) as pool:
        waits = [pool.submit(one.get, f"k{number}", timeout=20) for number in range(80)]
        until(lambda: len(server._loop.relayed) == loop.MOST_CONNECTIONS)
        until(lambda: sum(each.done() for each in waits) == 80 - loop.MOST_CONNECTIONS)
        refused = [each for each in waits if each.done()]
        for each in refused:
            with pytest.raises(pl.Busy, match="64 requests under way"):
                each.result()
        for number in range(80):
            Rendezvous(server.address, 0, 3).put(f"k{number}", b"v")
        assert {each.result(20) for each in waits if each not in refused} == {b"v"}


def test_line_that_is_down_for_three_seconds_heals_and_nothing_is_lost() -> None:
    with (
        other_network() as network,
        RendezvousServer(3, machines=f"{network.near}:0", secret=SECRET) as server,
        Rendezvous(server.address, 0, 3) as mine,
    ):
        machine = Machine(server, 2, network.prefix, unreachable=10.0)
        try:
            network.cut()
            machine.send_statement("rank.put('across', b'x' * 1_000_000)")
            with pytest.raises(pl.WaitTimeout):
                mine.get("across", timeout=3.0)
            network.mend()
            assert mine.get("across", timeout=20) == b"x" * 1_000_000
            assert machine.read_answer() == "done"
            machine.send_statement("rank.close()")
            assert machine.read_answer() == "done"
        finally:
            machine.end()


def test_machine_behind_a_line_that_stays_down_is_lost() -> None:
    with (
        other_network() as network,
        RendezvousServer(3, machines=f"{network.near}:0", secret=SECRET, unreachable=UNREACHABLE) as server,
        Rendezvous(server.address, 0, 3) as mine,
    ):
        machine = Machine(server, 2, network.prefix)
        try:
            network.cut()
            cut = time.monotonic()
            with pytest.raises(pl.PeerLost, match=f"rank 2 .* has been silent for {UNREACHABLE:g} s"):
                mine.barrier(timeout=20)
            assert time.monotonic() - cut < 5 * (UNREACHABLE + 1)
            machine.send_statement("rank.barrier(timeout=20)")
            assert "has been silent for" in machine.read_answer()
        finally:
            machine.end()
