"""The promises of docs/errors.md on the rendezvous."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import peerlane as pl
from helpers.launched import until
from helpers.prepared import run_python
from peerlane.errors import Fault
from peerlane.rendezvous import Rendezvous, RendezvousServer

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(60)]


@pytest.fixture
def server() -> Iterator[RendezvousServer]:
    with RendezvousServer(3) as it:
        yield it


@pytest.fixture
def ranks(server: RendezvousServer) -> Iterator[list[Rendezvous]]:
    it = [Rendezvous(server.address, rank, 3) for rank in range(3)]
    yield it
    for one in it:
        one.close()


def test_rendezvous_bad_rank_is_refused(server: RendezvousServer) -> None:
    for rank, size in ((3, 3), (-1, 3), (0, 0), (0, 1 << 17)):
        with pytest.raises(pl.InvalidValue, match="valid are sizes of 1 to 65,536"):
            Rendezvous(server.address, rank, size)
    for wrong in (True, 1.0, "0", None):
        with pytest.raises(TypeError, match="must be an int"):
            Rendezvous(server.address, wrong, 3)  # type: ignore[arg-type]
    with pytest.raises(pl.InvalidValue, match="told a size of 4; it serves 3"):
        Rendezvous(server.address, 0, 4)


def test_rendezvous_unserved_address_raises_peer_lost(server: RendezvousServer) -> None:
    with pytest.raises(pl.PeerLost, match="nobody serves the rendezvous at /nowhere/at-all"):
        Rendezvous("/nowhere/at-all", 0, 3)
    server.close()
    with pytest.raises(pl.PeerLost, match="nobody serves"):
        Rendezvous(server.address, 0, 3)


def test_rendezvous_rank_lost_before_raises_peer_lost(server: RendezvousServer) -> None:
    server.end_rank(1, "rank 1 was struck by lightning", lost=True)
    with pytest.raises(pl.PeerLost, match="struck by lightning and stays lost"):
        Rendezvous(server.address, 1, 3)


def test_peer_lost_of_a_rank_has_its_number(server: RendezvousServer, ranks: list[Rendezvous]) -> None:
    server.end_rank(2, "rank 2 was struck by lightning", lost=True)
    with pytest.raises(pl.PeerLost) as reported:
        ranks[0].get("never")
    for error in (reported.value, pickle.loads(pickle.dumps(reported.value)), reported.value.retold("again")):
        assert (type(error), error.rank) == (pl.PeerLost, 2)
    assert pl.PeerLost("of nobody").rank is None


def test_rendezvous_incomplete_environment_raises_invalid_value(server: RendezvousServer) -> None:
    good = server.environment(2)
    for name in ("PEERLANE_RENDEZVOUS", "RANK", "WORLD_SIZE"):
        for value in ("", "1.5", "-1", "\uff19") if name != "PEERLANE_RENDEZVOUS" else ("",):
            with pytest.raises(pl.InvalidValue, match=name) as refused:
                Rendezvous.from_environment({**good, name: value})
            assert refused.value.fault is Fault.BAD_CONFIG
    with Rendezvous.from_environment(good) as r:
        assert (r.rank, r.size) == (2, 3)


def test_rendezvous_put_bad_key_or_value_is_refused(ranks: list[Rendezvous]) -> None:
    r = ranks[0]
    for key in (1, None, b"k"):
        with pytest.raises(TypeError, match="must be a str"):
            r.put(key, b"")  # type: ignore[arg-type]
    for key in ("k" * 256, "é" * 128, "\ud800"):
        with pytest.raises(pl.InvalidValue, match="the key"):
            r.put(key, b"")
    for value in ("v", 1, None, bytearray(2)):
        with pytest.raises(TypeError, match="must be bytes"):
            r.put("k", value)  # type: ignore[arg-type]
    with pytest.raises(pl.InvalidValue, match="16,777,217 bytes; 16,777,216 is the most"):
        r.put("k", bytes((16 << 20) + 1))
    with pytest.raises(pl.WaitTimeout):
        r.get("k", timeout=0)
    r.put("k" * 255, bytes(16 << 20))
    assert ranks[1].get("k" * 255) == bytes(16 << 20)


def test_rendezvous_put_beyond_room_raises_out_of_memory(ranks: list[Rendezvous]) -> None:
    for number in range(3):
        ranks[0].put(str(number), bytes(16 << 20))
    with pytest.raises(pl.OutOfMemory, match="no room for 16,777,216 bytes more") as refused:
        ranks[0].put("2nd", bytes(16 << 20))
    assert refused.value.fault is Fault.OUT_OF_RESOURCES
    assert "67,108,864" in str(refused.value) and "Rendezvous.delete" in str(refused.value)
    with pytest.raises(pl.OutOfMemory, match="no room for 16,777,216 bytes more"):
        ranks[0].put("0", bytes(16 << 20))  # the old value takes room until the new one has come
    with pytest.raises(pl.OutOfMemory):
        ranks[0].gather("g", bytes(16 << 20))
    ranks[1].put("2nd", b"of another rank")
    assert ranks[0].get("2nd") == b"of another rank"


def test_rendezvous_delete_bad_key_is_refused(ranks: list[Rendezvous]) -> None:
    r = ranks[0]
    r.put("k", b"stays")
    for key in ("k" * 256, "\ud800"):
        with pytest.raises(pl.InvalidValue, match="the key"):
            r.delete("k", key)
    with pytest.raises(TypeError, match="must be a str"):
        r.delete("k", 1)  # type: ignore[arg-type]
    r.delete("was never there")
    assert ranks[1].get("k") == b"stays"


def test_rendezvous_get_missing_key_raises_wait_timeout(ranks: list[Rendezvous]) -> None:
    with pytest.raises(pl.WaitTimeout, match="nobody has put 'never'"):
        ranks[0].get("never", timeout=0.05)
    for bad in (-1, float("nan")):
        with pytest.raises(pl.InvalidValue, match="timeout"):
            ranks[0].get("never", timeout=bad)
    with pytest.raises(TypeError, match="timeout"):
        ranks[0].get("never", timeout="1")  # type: ignore[arg-type]


def test_rendezvous_get_rank_lost_raises_peer_lost(server: RendezvousServer, ranks: list[Rendezvous]) -> None:
    ranks[0].put("there", b"is")
    with ThreadPoolExecutor(1) as pool:
        wait = pool.submit(ranks[0].get, "never")
        until(lambda: bool(server._loop.meeting._wanted))
        server.end_rank(2, "rank 2 (pid 17) was killed", lost=True)
        with pytest.raises(pl.PeerLost, match=r"rank 2 \(pid 17\) was killed") as reported:
            wait.result(20)
        assert reported.value.rank == 2
    assert ranks[1].get("there") == b"is"
    with pytest.raises(pl.PeerLost, match="'never' is not there"):
        ranks[1].get("never")


def test_rendezvous_get_all_others_ended_raises_peer_lost(
    server: RendezvousServer, ranks: list[Rendezvous]
) -> None:
    with ThreadPoolExecutor(1) as pool:
        wait = pool.submit(ranks[0].get, "late")
        server.end_rank(1, "rank 1 has ended", lost=False)
        ranks[2].put("late", b"came")
        assert wait.result(20) == b"came"
        wait = pool.submit(ranks[0].get, "later")
        server.end_rank(2, "rank 2 has ended", lost=False)
        with pytest.raises(
            pl.PeerLost, match="rank 1 has ended, and so have all others; 'later' is not there"
        ):
            wait.result(20)


_CIRCLE = """
import pickle, threading
import peerlane as pl
from peerlane.rendezvous import Rendezvous, RendezvousServer
told = {{}}
def work(rank, wait):
    try:
        wait()
    except pl.Deadlock as error:
        told[rank] = pickle.loads(pickle.dumps(error))
with RendezvousServer(3) as server:
    ranks = [Rendezvous(server.address, rank, 3) for rank in range(3)]
    waits = {waits}
    threads = [threading.Thread(target=work, args=each) for each in enumerate(waits)]
    for each in threads: each.start()
    for each in threads: each.join()
    for rank in range(3):
        assert {{each.kind for each in told[rank].detail.ranks}} == {kinds}, told[rank]
    for one in ranks[1:]: threading.Thread(target=one.barrier, args=["a"]).start()
    ranks[0].barrier("a", timeout=20)
print(told[0])
"""


def reported_in_a_circle(waits: str, kinds: set[str]) -> str:
    """Return what rank 0 is told when the ranks, threads of one process, wait so."""
    done = run_python(["-c", _CIRCLE.format(waits=waits, kinds=kinds)], timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_rendezvous_get_in_circle_raises_deadlock() -> None:
    waits = "[lambda: ranks[0].get('k'), lambda: ranks[1].get('l'), lambda: ranks[2].gather('g', b'')]"
    reported = reported_in_a_circle(waits, {"key", "gather"})
    assert reported.startswith("Rendezvous.get: a deadlock: ranks 0, 1 and 2 wait in vain")
    assert "waits for ranks 1 or 2 to put 'k'" in reported


_HANDLER = """
import signal, threading
from peerlane.rendezvous import Rendezvous, RendezvousServer
with RendezvousServer(2) as server:
    ranks = [Rendezvous(server.address, rank, 2) for rank in range(2)]
    signal.signal(signal.SIGALRM, lambda *_: ranks[0].put("k", b"from a handler"))
    signal.setitimer(signal.ITIMER_REAL, 2.5)  # longer than a deadlock takes to be named
    other = threading.Thread(target=ranks[1].get, args=["k"])
    other.start()
    print(ranks[0].get("k").decode())
    other.join()
"""


def test_rendezvous_get_value_of_signal_handler_is_no_deadlock() -> None:
    done = run_python(["-c", _HANDLER], timeout=50)
    assert (done.returncode, done.stdout, done.stderr) == (0, "from a handler\n", "")


def test_rendezvous_barrier_in_circle_raises_deadlock() -> None:
    waits = "[lambda: ranks[0].barrier('a'), lambda: ranks[1].barrier('b'), lambda: ranks[2].get('k')]"
    reported = reported_in_a_circle(waits, {"key", "barrier"})
    assert reported.startswith("Rendezvous.barrier: a deadlock: ranks 0, 1 and 2 wait in vain")
    assert "waits for ranks 1 and 2 to come to barrier 'a'" in reported


def test_rendezvous_barrier_rank_missing_raises_wait_timeout(
    server: RendezvousServer, ranks: list[Rendezvous]
) -> None:
    with pytest.raises(pl.WaitTimeout, match="ranks 1 and 2 of 3 did not come to 'here'"):
        ranks[0].barrier("here", timeout=0.05)
    with ThreadPoolExecutor(3) as pool:  # rank 0 timed out, so it has not come: all three are needed
        waits = [pool.submit(ranks[rank].barrier, "here") for rank in (1, 2)]
        until(lambda: [len(it) for it in server._loop.meeting._rounds.values()] == [2])
        assert not any(wait.done() for wait in waits)
        ranks[0].barrier("here", timeout=20)
        for wait in waits:
            wait.result(20)


def test_rendezvous_barrier_rank_lost_raises_peer_lost(
    server: RendezvousServer, ranks: list[Rendezvous]
) -> None:
    with ThreadPoolExecutor(1) as pool:
        wait = pool.submit(ranks[0].barrier)
        until(lambda: bool(server._loop.meeting._rounds))
        server.end_rank(1, "rank 1 has ended", lost=False)
        with pytest.raises(pl.PeerLost, match="rank 1 has ended"):
            wait.result(20)
    with pytest.raises(pl.PeerLost, match="rank 1 has ended") as reported:
        ranks[2].barrier("another")
    assert reported.value.rank == 1


def test_rendezvous_barrier_entered_twice_raises_busy(
    server: RendezvousServer, ranks: list[Rendezvous]
) -> None:
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(ranks[0].barrier)
        until(lambda: bool(server._loop.meeting._rounds))
        with pytest.raises(pl.Busy, match="rank 0 is waiting there already"):
            ranks[0].barrier()
        others = [pool.submit(ranks[1].barrier), ranks[2].barrier(timeout=20)]
        assert others[1] is None
        assert first.result(20) is None


def test_rendezvous_gather_fails_as_barrier_does(server: RendezvousServer, ranks: list[Rendezvous]) -> None:
    with pytest.raises(pl.WaitTimeout, match="ranks 1 and 2 of 3 did not come to 'g'"):
        ranks[0].gather("g", bytes(1 << 20), timeout=0.05)
    with pytest.raises(TypeError, match="must be bytes"):
        ranks[0].gather("g", "text")  # type: ignore[arg-type]
    server.end_rank(1, "rank 1 was lost", lost=True)
    with pytest.raises(pl.PeerLost, match="rank 1 was lost"):
        ranks[0].gather("g", b"")
    until(lambda: all(it.charged == 0 for it in server._loop.meeting._ranks))


def test_rendezvous_close_twice_does_nothing_and_calls_raise_closed(ranks: list[Rendezvous]) -> None:
    r = ranks[0]
    r.close()
    r.close()
    assert r.is_closed and "closed" in repr(r)
    calls = (
        lambda: r.put("k", b""),
        lambda: r.delete("k"),
        lambda: r.get("k"),
        r.barrier,
        lambda: r.gather("k", b""),
        r.__enter__,
    )
    for call in calls:
        with pytest.raises(pl.Closed, match="rank 0 has closed this rendezvous"):
            call()


def test_rendezvous_server_bad_size_is_refused() -> None:
    for bad in (0, -1, 1 << 17):
        with pytest.raises(pl.InvalidValue, match="valid are 1 to 65,536"):
            RendezvousServer(bad)
    for wrong in (1.0, True, "2"):
        with pytest.raises(TypeError, match="must be an int"):
            RendezvousServer(wrong)  # type: ignore[arg-type]


def test_rendezvous_server_start_closed_raises_closed() -> None:
    server = RendezvousServer(1, start=False)
    server.close()
    with pytest.raises(pl.Closed):
        server.start()


def test_rendezvous_server_environment_bad_rank_raises_invalid_value(server: RendezvousServer) -> None:
    for bad in (-1, 3):
        with pytest.raises(pl.InvalidValue, match="valid are 0 to 2"):
            server.environment(bad)


def test_rendezvous_server_end_unknown_rank_raises_invalid_value(server: RendezvousServer) -> None:
    with pytest.raises(pl.InvalidValue, match="valid are 0 to 2"):
        server.end_rank(3, "rank 3 has ended", lost=True)


def test_rendezvous_server_close_ends_waits_with_peer_lost(
    server: RendezvousServer, ranks: list[Rendezvous]
) -> None:
    with ThreadPoolExecutor(1) as pool:
        wait = pool.submit(ranks[0].get, "never")
        until(lambda: bool(server._loop.meeting._wanted))
        server.close()
        server.close()
        with pytest.raises(pl.PeerLost, match="nobody serves"):
            wait.result(20)
    assert not os.path.exists(server.address)  # noqa: PTH110
