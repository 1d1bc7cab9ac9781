"""Channels to other machines where this machine's network is not ready, or routes lead elsewhere."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator

import pytest

from helpers.absent import needs_engine
from helpers.namespaces import OtherNetwork, other_network
from helpers.ports import free_port
from helpers.two_machines import by_address, ended, hear, on_two, run, send_line, started
from peerlane.support import netlink

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180), needs_engine]

EXCHANGE = """
with joined(timeout=float(os.environ.get("PATIENCE", "30")), window=64) as group:
    while True:
        try:
            channel = group.channel(1 - group.rank, notifies=1, timeout=30 if group.rank == 0 else None)
            break
        except (pl.WaitTimeout, pl.Unsupported) as error:
            say(type(error).__name__, error.detail.reason, error)
            sys.stdin.readline()
    channel.write(f"rank {group.rank}".encode(), notify=0)
    channel.wait(0, timeout=30)
    say(bytes(group.window.view()[:6]).decode(), channel.route)
"""


@pytest.fixture
def network() -> Iterator[OtherNetwork]:
    with other_network() as second_network:
        yield second_network


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=60)


def _let_it_sleep(network: OtherNetwork) -> None:
    """Let the interface of the other machine pass frames, and its kernel say that it is not up."""
    _ip("-n", network.prefix[-1], "link", "set", "far", "mode", "dormant")
    _ip("-n", network.prefix[-1], "link", "set", "far", "state", "dormant")


def _wake(network: OtherNetwork) -> None:
    _ip("-n", network.prefix[-1], "link", "set", "far", "mode", "default")
    _ip("-n", network.prefix[-1], "link", "set", "far", "state", "up")


def test_rank_whose_interface_comes_up_late_waits_for_it(network: OtherNetwork) -> None:
    _let_it_sleep(network)
    program = EXCHANGE.replace("    while True:", "    say('met')\n    while True:", 1)
    with started(program, *on_two(network, "ab")) as children:
        assert [hear(child) for child in children] == ["met"] * 2
        _wake(network)
        ends = ended(children)
    assert [(code, errors) for code, _, errors in ends] == [(0, "")] * 2
    assert ["rank 1" in ends[0][1], "rank 0" in ends[1][1]] == [True, True]


def test_interface_that_stays_down_is_named_and_a_later_try_of_the_process_connects(
    network: OtherNetwork,
) -> None:
    _let_it_sleep(network)
    environs, prefixes = on_two(network, "ab", PATIENCE="10")
    with started(EXCHANGE, environs, prefixes) as children:
        words = hear(children[1])
        assert words.startswith("WaitTimeout interface_not_ready")
        assert "interface far" in words
        assert "'dormant'" in words
        _wake(network)
        send_line(children[1:])
        ends = ended(children)
    assert [(code, errors) for code, _, errors in ends] == [(0, "")] * 2
    assert "rank 1" in ends[0][1]
    assert "rank 0" in ends[1][1]


@contextlib.contextmanager
def _route_elsewhere(network: OtherNetwork, *, is_there: bool) -> Iterator[list[str]]:
    """Give one machine a longer route to the other by an interface of its own; yield the words that remove it."""
    prefix = ["-n", network.prefix[-1]] if is_there else []
    name, peer = f"el{os.getpid()}", network.near if is_there else network.far
    route = [*prefix, "route", "delete", f"{peer}/32", "table", "100"]
    try:
        _ip(*prefix, "link", "add", name, "type", "veth", "peer", "name", f"{name}x")
        _ip(*prefix, "address", "add", "10.128.0.1/24", "dev", name)
        _ip(*prefix, "link", "set", name, "up")
        _ip(*prefix, "link", "set", f"{name}x", "up")
        _ip(*prefix, "route", "add", f"{peer}/32", "via", "10.128.0.2", "dev", name, "table", "100")
        yield route
    finally:
        subprocess.run(["ip", *prefix, "link", "delete", name], check=False, capture_output=True, timeout=60)


@pytest.mark.parametrize("is_there", [False, True], ids=["at rank 0", "at rank 1"])
@pytest.mark.parametrize("chosen", [True, False], ids=["interface named", "interface not named"])
def test_longer_route_by_another_interface_is_refused_by_name(
    network: OtherNetwork, is_there: bool, chosen: bool
) -> None:
    environs, prefixes = on_two(network, "ab")
    for environ in environs:
        if not chosen:
            del environ["PEERLANE_INTERFACE"]
    program = """
with joined(timeout=30, window=64) as group:
    refused(lambda: group.channel(1 - group.rank, notifies=1))
"""
    with _route_elsewhere(network, is_there=is_there):
        ends = run(program, environs, prefixes)
    assert [(code, errors) for code, _, errors in ends] == [(0, "")] * 2
    peer = network.near if is_there else network.far
    words = ends[is_there][1]
    assert words.startswith("Unsupported")
    assert (
        f"interface {network.interfaces[is_there]}: the longest route to {peer} is {peer}/32 by el" in words
    )
    assert "in table 100" in words
    assert ends[not is_there][1].startswith("PeerLost")


def test_process_connects_once_the_longer_route_is_gone(network: OtherNetwork) -> None:
    with (
        _route_elsewhere(network, is_there=True) as route,
        started(EXCHANGE, *on_two(network, "ab")) as children,
    ):
        assert hear(children[1]).startswith("Unsupported route_elsewhere")
        _ip(*route)
        send_line(children[1:])
        ends = ended(children)
    assert [(code, errors) for code, _, errors in ends] == [(0, "")] * 2


def test_longer_route_by_the_interface_itself_and_a_default_route_are_taken(network: OtherNetwork) -> None:
    _ip("route", "add", f"{network.far}/32", "dev", network.interfaces[0], "table", "100")
    try:
        ends = run(EXCHANGE, *on_two(network, "ab"))
    finally:
        _ip("route", "delete", f"{network.far}/32", "table", "100")
    assert [(code, errors) for code, _, errors in ends] == [(0, "")] * 2


def test_kernel_lists_interfaces_and_routes() -> None:
    loopback = netlink.interface_named("lo")
    assert loopback is not None
    assert (loopback.number, loopback.lacks) == (1, "")
    assert netlink.interface_named("none such") is None
    assert any(each.interface == 1 and each.covers("127.3.2.1") for each in netlink.routes())
    assert not any(
        each.bits and each.covers("203.0.113.1") and each.interface == 1 for each in netlink.routes()
    )


HOST_OBJECTS = """
import array, gc
import numpy as np
with joined(timeout=30, window=1 << 16) as group, over_tcp(group.channel(1 - group.rank, notifies=2)) as channel:
    draw = np.random.default_rng(7)
    data = draw.integers(0, 256, 9000, np.uint8)
    for size in (0, 1, 8, 4095, 4096, 4097, 9000):
        whole = data[:size].tobytes()
        for make in (bytes, bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8),
                     lambda b: array.array("B", b), lambda b: memoryview(bytearray(b))[:],
                     lambda b: np.frombuffer(b, np.uint8).copy()):
            if group.rank == 0:
                source = make(whole)
                channel.write(source, at=16, notify=1)
                if type(source) is bytearray: source[:] = bytes(size)  # it has been read
                channel.wait(0, timeout=30)
            else:
                channel.wait(1, timeout=30)
                assert bytes(group.window.view()[16:16 + size]) == whole, (size, make)
                group.window.fill(0)
                channel.notify(0)
    if group.rank == 0:
        for wrong, kind in ((np.zeros((4, 4))[:, 1], pl.InvalidValue), (np.array([object()]), TypeError),
                            ("text", TypeError)):
            try: channel.write(wrong)
            except kind: pass
            else: raise AssertionError(wrong)
        for at in ((1 << 16) - 7, 1 << 63):
            try: channel.write(b"12345678", at=at)
            except pl.BadAddress as error: assert error.fault is pl.Fault.OUT_OF_BOUNDS
            else: raise AssertionError(at)
        frames = []
        sources = [b"12345678", bytearray(8), memoryview(b"12345678"), np.zeros(8, np.uint8), np.zeros(1)]
        sys.setprofile(lambda frame, event, _: frames.append(frame.f_code.co_name) if event == "call" else None)
        for source in sources:
            channel.write(source)
            channel.write(source, at=8, notify=1)
            channel.write(source, notify=1, stream=None)
        sys.setprofile(None)
        assert frames == [], frames
    channel.notify(group.rank)  # rank 0 may not have consumed rank 1's last record of notify 0 yet
    channel.wait(1 - group.rank, timeout=30)
    say("over")
"""


def test_host_objects_written_to_another_machine_arrive_and_few_bytes_take_no_python_frame(
    network: OtherNetwork,
) -> None:
    ends = run(HOST_OBJECTS, *on_two(network, "ab"))
    assert ends == [(0, "over\n", "")] * 2


def test_network_of_another_program_may_go_while_ranks_of_the_loopback_write(network: OtherNetwork) -> None:
    environs = by_address("ab", free_port(), UCX_TLS="tcp,self")
    for environ in environs:
        del environ["PEERLANE_INTERFACE"]
    program = """
with joined(timeout=30, window=64) as group, group.channel(1 - group.rank, notifies=1) as channel:
    for word in (b"before", b"behind"):
        channel.write(word, notify=0)
        channel.wait(0, timeout=30)
        say(bytes(group.window.view()[:6]).decode())
        group.barrier()
        sys.stdin.readline()
"""
    with started(program, environs) as children:
        assert [hear(child) for child in children] == ["before"] * 2
        _ip("link", "delete", network.interfaces[0])
        send_line(children)
        assert [hear(child) for child in children] == ["behind"] * 2
        send_line(children)
        ends = ended(children)
    assert [(code, errors) for code, _, errors in ends] == [(0, "")] * 2
