"""The promises of docs/errors.md on groups of ranks."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import peerlane as pl
from helpers.launched import until
from helpers.launcher_variables import LAUNCHER_VARIABLES
from helpers.peers import PeerError, peer
from helpers.ports import free_port
from helpers.promises import Node
from helpers.rank_peers import ask_all, ranks
from helpers.threads_as_ranks import Exchange, run_ranks
from peerlane.errors import Fault, MeetingWait
from peerlane.ranks import wire
from peerlane.ranks.channel_setup import Begun
from peerlane.ranks.invite import Invitations
from peerlane.rendezvous import Rendezvous, RendezvousServer, late_ranks

DEADLOCK_SECONDS = 2.0

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]


def test_channel_wait_in_a_circle_raises_deadlock() -> None:
    """The circle has two ranks; tests/ranks/deadlock/test_deadlocks.py has all kinds."""
    with ranks(2) as peers:
        for code in (
            "ch[1 - grp.rank].wait(0, timeout=60)",
            "s = grp.device.create_stream()\nch[1 - grp.rank].wait(0, stream=s); s.sync()",
        ):
            began = time.monotonic()
            for each in peers:
                each.send(code)
            for each in peers:
                with pytest.raises(
                    PeerError, match=r"(?s)rank 0 .* waits for notify 0 .*rank 1 .* waits for notify 0"
                ) as failed:
                    each.receive()
                assert (failed.value.kind, failed.value.fault) == ("Deadlock", "DEADLOCK")
            assert time.monotonic() - began < 5 * DEADLOCK_SECONDS
        assert ask_all(
            peers, "ch[1 - grp.rank].notify(0); ch[1 - grp.rank].wait(0, timeout=20); result = 1"
        ) == [1, 1]


def test_group_bank_for_other_number_of_ranks_raises_bad_handle() -> None:
    lying = """
from peerlane.backends.virtual.ranks import VirtualRanks
offer = VirtualRanks.offer_bank
VirtualRanks.offer_bank = lambda ranks, source, device, bank, count, *rest: offer(
    ranks, source, device, bank, count + 1, *rest)
pl.Group(timeout=20)
"""
    node = "name=lying-bank,devices=2"
    with (
        RendezvousServer(2) as server,
        peer(node, **server.environment(0)) as first,
        peer(node, **server.environment(1)) as second,
    ):
        first.send(lying)
        second.send("pl.Group()")
        with pytest.raises(PeerError, match="its bank is for 3 ranks, and the group has 2") as failed:
            second.receive()
        assert failed.value.fault == "FALSE_CLAIM"
        with pytest.raises(PeerError):
            first.receive()


def alone(value: bytes) -> list[bytes]:
    return [value]


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"rank": 1, "size": 1}, pl.InvalidValue),
        ({"rank": -1, "size": 2}, pl.InvalidValue),
        ({"rank": 0, "size": 0}, pl.InvalidValue),
        ({"rank": 0, "size": 1025}, pl.InvalidValue),
        ({"rank": "0", "size": 1}, TypeError),
        ({"rank": 0, "size": True}, TypeError),
        ({"notifies": "queue"}, pl.InvalidValue),
        ({"notifies": 1}, TypeError),
        ({"name": 5}, TypeError),
        ({"name": ""}, pl.InvalidValue),
        ({"name": "x" * 65}, pl.InvalidValue),
        ({"name": "a\nb"}, pl.InvalidValue),
        ({"window": -1}, pl.InvalidValue),
        ({"window": "1M"}, TypeError),
        ({"window": True}, TypeError),
        ({"device": 0}, TypeError),
        ({"timeout": -1}, pl.InvalidValue),
        ({"timeout": "1"}, TypeError),
        ({"rendezvous": 5}, TypeError),
    ],
)
def test_group_bad_argument_is_refused(node: Node, options: dict[str, Any], kind: type[Exception]) -> None:
    node()
    with pytest.raises(kind):
        pl.Group(**{"rank": 0, "size": 1, "rendezvous": alone, **options})
    with pytest.raises(pl.InvalidValue, match=r"not on .*:0, this rank's device") as refused:
        pl.Group(0, 1, rendezvous=alone, window=pl.devices()[1].allocate(64))
    assert refused.value.fault is Fault.WRONG_DEVICE
    with pl.Group(0, 1, rendezvous=alone) as group:
        assert group.members[0].device is group.device


def test_group_without_rank_raises_invalid_value(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node()
    for name in LAUNCHER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for options in ({}, {"rank": 0}, {"size": 2}):
        with pytest.raises(pl.InvalidValue, match="peerlane launch -n N") as refused:
            pl.Group(**options, rendezvous=alone)  # type: ignore[arg-type]
        assert refused.value.fault is Fault.BAD_CONFIG


def test_group_rank_unlike_rendezvous_raises_invalid_value(node: Node) -> None:
    node()
    with RendezvousServer(1) as server, Rendezvous(server.address, 0, 1) as line:
        with pytest.raises(pl.InvalidValue, match=r"rank 1 of 2 was asked for, .* rank 0 of 1"):
            pl.Group(1, 2, rendezvous=line)
        with pl.Group(rendezvous=line) as group:
            assert (group.rank, group.size) == (0, 1)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "localhost:5",
        "tcp://",
        "tcp://h",
        "tcp://h:0",
        "tcp://h:70000",
        "tcp://h:x",
        "udp://h:5",
        "tcp://h:5/x",
    ],
)
def test_group_bad_address_raises_invalid_value(node: Node, address: str) -> None:
    node()
    with pytest.raises(pl.InvalidValue, match=r"valid is tcp://host:port"):
        pl.Group(0, 2, rendezvous=address)


def test_group_foreign_or_taken_address_is_refused(node: Node) -> None:
    node()
    with pytest.raises(pl.InvalidValue, match=r"cannot listen at tcp://192\.0\.2\.1:5000"):
        pl.Group(0, 2, rendezvous="tcp://192.0.2.1:5000")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(pl.Busy, match="choose a free port"):
            pl.Group(0, 2, rendezvous=f"tcp://127.0.0.1:{number}")


@pytest.mark.parametrize("exchanged", [None, [], [b"", b""], [b"x"], [5], [b"peerlane rendezvous 2\n"]])
def test_group_bad_exchange_is_refused(node: Node, exchanged: Any) -> None:
    node()
    kind = pl.BadHandle if isinstance(exchanged, list) and len(exchanged) == 1 else pl.InvalidValue
    with pytest.raises(kind) as refused:
        pl.Group(0, 1, rendezvous=lambda _: exchanged)
    assert kind is pl.InvalidValue or refused.value.fault is Fault.HANDLE_VERSION

    def raises(_: bytes) -> list[bytes]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pl.Group(0, 1, rendezvous=raises)


def test_group_rank_missing_raises_wait_timeout(node: Node, port: int) -> None:
    node()
    with pytest.raises(pl.WaitTimeout, match=r"ranks 1, 2 of 3 did not come to tcp://127\.0\.0\.1"):
        pl.Group(0, 3, rendezvous=f"tcp://127.0.0.1:{port}", timeout=0.1)
    with pytest.raises(pl.WaitTimeout, match="rank 0 did not answer at tcp"):
        pl.Group(1, 3, rendezvous=f"tcp://127.0.0.1:{port}", timeout=0.1)
    with pytest.raises(pl.WaitTimeout, match=r"rank 0 did not come within 0\.1 s"):
        pl.Group(1, 2, timeout=0.1, name="nobody")
    with (
        RendezvousServer(2) as server,
        Rendezvous(server.address, 0, 2) as line,
        pytest.raises(pl.WaitTimeout, match="Group: rank 1 did not come"),
    ):
        pl.Group(rendezvous=line, timeout=0.1)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("by_address", [False, True])
def test_group_of_ranks_started_by_hand_shows_once_who_has_not_come(
    node: Node,
    port: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    rank: int,
    by_address: bool,
) -> None:
    node()
    monkeypatch.setattr(late_ranks, "SECONDS", 0.5)
    monkeypatch.setattr(sys, "argv", [__file__])
    with pytest.raises(pl.WaitTimeout):
        address = f"tcp://127.0.0.1:{port}" if by_address else None
        pl.Group(rank, 3, rendezvous=address, timeout=3, name="by hand")
    (line,) = capsys.readouterr().err.splitlines()
    awaited = "ranks 1, 2" if rank == 0 else "rank 0"
    assert line.startswith(f"Group: rank {rank} of 3 has waited 0.5 s for {awaited}; ")
    assert line.endswith(f"`peerlane launch -n 3 {__file__}`")


def test_group_at_address_names_rank_that_is_late_and_not_rank_0_that_waits_for_it(
    node: Node, port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node()
    monkeypatch.setattr(late_ranks, "SECONDS", 0.5)
    address = f"tcp://127.0.0.1:{port}"

    def joined(rank: int, size: int, timeout: float) -> pl.Error:
        with pytest.raises(pl.Error) as failed:
            pl.Group(rank, size, rendezvous=address, timeout=timeout)
        return failed.value

    def listens() -> bool:
        with socket.socket() as line:
            return line.connect_ex(("127.0.0.1", port)) == 0

    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(joined, 0, 3, 60)
        until(listens)
        late = joined(1, 3, 5)
        while not first.done():  # it refuses a rank of a group of another size
            joined(2, 4, 0.5)
    assert isinstance(late, pl.WaitTimeout) and str(late) == "Group: rank 2 did not come within 5 s"
    assert isinstance(late.detail, MeetingWait) and late.detail.awaited == (2,)
    assert isinstance(first.result(), pl.InvalidValue)
    (line,) = (each for each in capsys.readouterr().err.splitlines() if "rank 1 of 3 has waited" in each)
    assert line.startswith("Group: rank 1 of 3 has waited 0.5 s for rank 2; ")


def test_group_of_launched_ranks_shows_nothing_while_one_is_late(
    node: Node, port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The launcher has started all of them; one may import for long."""
    node()
    monkeypatch.setattr(late_ranks, "SECONDS", 0.1)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(pl.WaitTimeout):
        pl.Group(rendezvous=f"tcp://127.0.0.1:{port}", timeout=0.5)
    assert capsys.readouterr().err == ""


def test_group_over_tcp_with_stray_connections_meets(node: Node, port: int) -> None:
    node()
    address = f"tcp://127.0.0.1:{port}"
    sizes: list[int] = []

    def second() -> None:
        with pl.Group(1, 2, rendezvous=address, timeout=30) as group:
            sizes.append(group.size)

    def noise() -> None:
        for content in (b"", b"GET / HTTP/1.0\r\n\r\n", b"PLgroup3"):
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=20) as line:
                    line.sendall(content)
            except OSError:
                pass

    threads = [threading.Thread(target=each) for each in (noise, second)]
    for thread in threads:
        thread.start()
    with pl.Group(0, 2, rendezvous=address, timeout=30) as group:
        sizes.append(group.size)
        for thread in threads:
            thread.join(30)
    assert sizes == [2, 2]


def test_group_over_tcp_same_rank_twice_is_refused_for_all(node: Node, port: int) -> None:
    node()
    address = f"tcp://127.0.0.1:{port}"
    refused: list[pl.Error] = []

    def first() -> None:
        try:
            pl.Group(1, 3, rendezvous=address, timeout=20)
        except pl.Error as error:
            refused.append(error)

    threads = [threading.Thread(target=first) for _ in range(2)]
    for thread in threads:
        thread.start()
    with pytest.raises(pl.InvalidValue, match="rank 1 came twice"):
        pl.Group(0, 3, rendezvous=address, timeout=30)
    for thread in threads:
        thread.join(30)
    assert len(refused) == 2


def test_group_ranks_disagree_is_refused(node: Node) -> None:
    node()
    exchange, raised = Exchange(2), []

    def rank(number: int, mode: str) -> None:
        try:
            pl.Group(number, 2, rendezvous=exchange.of(number), notifies=mode, timeout=20)
        except pl.Error as error:
            raised.append(error)

    threads = [threading.Thread(target=rank, args=each) for each in ((0, "binary"), (1, "strict"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(raised) == 2
    assert {error.fault for error in raised} <= {Fault.BAD_CONFIG, Fault.PEER_LOST, Fault.WAIT_TIMEOUT}
    assert any("'strict'" in str(error) and "'binary'" in str(error) for error in raised)


WORDS = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=6),
    max_leaves=12,
)
FIELDS = (
    "protocol",
    "node",
    "pid",
    "start",
    "device",
    "mode",
    "machine",
    "notifies",
    "bank",
    "memories",
    "token",
)


@settings(max_examples=300, deadline=None)
@given(content=st.binary(max_size=200) | WORDS.map(lambda value: json.dumps(value).encode()))
def test_group_hostile_message_raises_bad_handle(content: bytes) -> None:
    for kind in (wire.Hello, wire.Invitation):
        with pytest.raises(pl.BadHandle) as refused:
            kind.decode("Group", 3, content)
        assert refused.value.fault in (Fault.FALSE_CLAIM, Fault.HANDLE_VERSION)


@settings(max_examples=300, deadline=None)
@given(fields=st.dictionaries(st.sampled_from(FIELDS), WORDS, max_size=len(FIELDS)))
def test_group_message_with_random_fields_is_refused_or_round_trips(fields: dict[str, Any]) -> None:
    good = {
        "protocol": 1,
        "node": "ab",
        "pid": 7,
        "start": 5,
        "device": 0,
        "mode": "binary",
        "notifies": 3,
        "bank": "x",
        "memories": {"window": ["y", 8]},
        "token": 0,
    }
    content = json.dumps({**good, **fields}).encode()
    for kind in (wire.Hello, wire.Invitation):
        try:
            answer = kind.decode("Group", 3, content)
        except pl.BadHandle:
            continue
        assert kind.decode("Group", 3, answer.encode()) == answer  # type: ignore[attr-defined]


def test_group_deregister_unknown_tag_raises_invalid_value(node: Node) -> None:
    node()
    with pl.Group(0, 1, rendezvous=alone) as group:
        group.register(group.device.allocate(8), "one")
        for bad in ("other", "window"):
            with pytest.raises(pl.InvalidValue, match=f"no buffer has the tag '{bad}'; registered: 'one'"):
                group.deregister(bad)


@pytest.mark.parametrize("bad", [-1, 1, 1024])
def test_group_channel_bad_peer_is_refused(node: Node, bad: int) -> None:
    node()
    with pl.Group(0, 1, rendezvous=alone) as group:
        with pytest.raises(pl.InvalidValue, match=f"{bad} is not a rank of 1"):
            group.channel(bad)
        for wrong in ("0", None, True, 0.0):
            with pytest.raises(TypeError):
                group.channel(wrong)  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                group.channel(0, notifies=wrong)  # type: ignore[arg-type]
        for notifies in (-1, 1025):
            with pytest.raises(pl.InvalidValue, match="valid are 0 to 1,024"):
                group.channel(0, notifies=notifies)
        assert group.channel(0, notifies=0).notifies == 0


def test_group_channel_peer_missing_raises_wait_timeout(node: Node) -> None:
    node()
    waited = threading.Event()

    def rank(group: pl.Group) -> None:
        if group.rank == 0:
            with pytest.raises(pl.WaitTimeout, match=r"Group\.channel: rank 1 did not come"):
                group.channel(1, timeout=0.05)
            assert repr(group).endswith("0 channels>")
            waited.set()
        assert waited.wait(20)
        # Rank 1 must meet rank 0's second try, not the one that it gave up.
        channel = group.channel(1 - group.rank, timeout=20)
        channel.write(bytes([group.rank + 5]), notify=0)
        channel.wait(0, timeout=20)
        assert group.window.view()[0] == 6 - group.rank

    run_ranks(2, rank)


def test_group_channel_peer_left_raises_peer_lost(node: Node) -> None:
    node()
    begun = threading.Event()

    def rank(group: pl.Group) -> None:
        if group.rank == 0:
            assert begun.wait(20)
            return  # its group is closed, and its process lives on
        begun.set()
        start = time.monotonic()
        with pytest.raises(pl.PeerLost, match="rank 0 did not come: it has closed its group"):
            group.channel(0, timeout=20)
        assert time.monotonic() - start < 10

    run_ranks(2, rank, ends_together=False)


def test_group_closed_while_its_channel_waits_raises_closed(node: Node) -> None:
    node()
    with RendezvousServer(2) as server, ThreadPoolExecutor(2) as pool:
        lines = [Rendezvous(server.address, rank, 2) for rank in range(2)]
        first, second = pool.map(lambda line: pl.Group(rendezvous=line), lines)
        waiting = pool.submit(first.channel, 1, timeout=40)
        until(lambda: bool(first._invitations._counts))
        first.close()
        with pytest.raises(pl.Closed):
            waiting.result(20)
        second.close()


def test_group_channel_abandoned_while_peer_accepts_next_try_meets(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node()
    accepted = threading.Event()
    accept = Invitations.accept

    def slowly(invitations: Invitations, call: str, begun: Begun, deadline: float) -> pl.Channel:
        if invitations._session.rank == 0:
            accepted.wait(20)
            raise KeyboardInterrupt
        joined = accept(invitations, call, begun, deadline)
        accepted.set()
        return joined

    def rank(group: pl.Group) -> None:
        if group.rank == 0:
            with pytest.raises(KeyboardInterrupt):
                group.channel(1, timeout=20)
            monkeypatch.setattr(Invitations, "accept", accept)
        channel = group.channel(1 - group.rank, timeout=20)
        channel.notify(0)
        channel.wait(0, timeout=20)

    monkeypatch.setattr(Invitations, "accept", slowly)
    run_ranks(2, rank)


def test_group_channels_one_bad_peer_makes_none(node: Node) -> None:
    node()
    with pl.Group(0, 1, rendezvous=alone) as group:
        with pytest.raises(pl.InvalidValue, match="7 is not a rank of 1"):
            group.channels([0, 7])
        assert repr(group).endswith("0 channels>")
        a, b = group.channels([0, 0])
        a.notify(0)
        a.wait(0, timeout=20)
        assert b.peer == 0


def test_group_close_with_unconsumed_notify_raises_busy(node: Node) -> None:
    node()
    group = pl.Group(0, 1, rendezvous=alone, notifies="strict")
    channel = group.channel(0)
    channel.notify(2)
    with pytest.raises(pl.Busy, match="notify 2 from rank 0 was recorded") as left:
        group.close()
    assert left.value.fault is Fault.NOTIFY_LEFT
    assert group.is_closed
    assert channel.is_closed
    group.close()


def test_group_enter_closed_raises_closed(node: Node) -> None:
    node()
    group = pl.Group(0, 1, rendezvous=alone)
    group.close()
    with pytest.raises(pl.Closed), group:
        pass
    with pytest.raises(pl.Closed):
        group.channel(0)
    with pytest.raises(pl.Closed):
        group.register(pl.devices()[0].allocate(8), "late")


def test_group_after_leave_node_is_closed(node: Node) -> None:
    node()
    group = pl.Group(0, 1, rendezvous=alone)
    channel = group.channel(0)
    pl.leave_node()
    assert group.is_closed
    for call in (lambda: channel.write(b"x"), lambda: channel.notify(0), lambda: group.channel(0)):
        with pytest.raises(pl.Closed):
            call()
    group.close()


def test_rendezvous_server_linger_serves_until_all_have_left() -> None:
    server = RendezvousServer(2)
    first, second = (Rendezvous(server.address, rank, 2) for rank in range(2))
    first.put("key", b"value")
    first.close()
    server.linger(0.0)
    assert second.get("key", timeout=20) == b"value"
    second.close()
    deadline = time.monotonic() + 20
    while Path(server.address).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    server.linger(0.0)
