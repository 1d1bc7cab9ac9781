"""Every test gets its own node and must leave nothing behind in it."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

import peerlane
from helpers import prepared
from helpers.peers import Peer, peer
from helpers.promises import Node
from peerlane.diagnostics.memory import allocations

pytest_plugins = ["helpers.schedules", "helpers.again"]
# A loaded machine may keep a test from running for seconds, in the middle of an example.
hypothesis.settings.register_profile("peerlane", deadline=None)
hypothesis.settings.load_profile("peerlane")
_numbers = itertools.count()

# A shell and nohup start what they run in the background with these ignored, and every test inherits that.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    gc.disable()  # each automatic collection would look at all tests so far
    try:
        return (yield)  # type: ignore[return-value]
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)  # behind those who sort and leave out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Put those that wait for compilers last, and long ones first: one that begins last would run alone."""
    yield
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[bool, bool]:
    waits, is_long = (item.get_closest_marker(name) for name in ("waits_for_compilers", "takes_long"))
    return waits is not None, is_long is None


def pytest_collection_finish() -> None:
    # A full collection would look at every test there is, each time that a test asks for one.
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def heap_of_earlier_files() -> Iterator[None]:
    """Keep collections short, which hundreds of tests ask for: none looks at what earlier files left."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def runtime_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("runtime")
    directory.chmod(0o700)
    before = os.environ.get("PEERLANE_RUNTIME_DIR")
    os.environ["PEERLANE_RUNTIME_DIR"] = str(directory)
    yield directory
    if before is None:
        del os.environ["PEERLANE_RUNTIME_DIR"]
    else:
        os.environ["PEERLANE_RUNTIME_DIR"] = before


@pytest.fixture(autouse=True, scope="session")
def server_of_processes(runtime_directory: Path) -> Iterator[None]:
    """Start the server before any test, so that a test that counts descriptors or children sees it all the time."""
    with prepared.server():
        yield


@pytest.fixture(autouse=True)
def no_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    # A pytest inside a test prints more when these are set.
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("BUILD_NUMBER", raising=False)


@pytest.fixture
def node() -> Iterator[Callable[..., tuple[peerlane.Device, ...]]]:
    """Enter a fresh node: ``node()``, or ``node("devices=4,switch=2")``."""

    def enter(spec: str = "devices=2") -> tuple[peerlane.Device, ...]:
        name = "" if "name=" in spec else f"name=t{os.getpid()}-{next(_numbers)},"
        return peerlane.enter_node(name + spec)

    yield enter
    peerlane.leave_node()
    assert allocations.live_records() == ()


@pytest.fixture
def shared(node: Node) -> Iterator[tuple[peerlane.Device, peerlane.Device, Peer]]:
    """Enter a fresh node; yield its two devices and another process of it."""
    spec = f"name=shared-{os.getpid()},devices=2"
    d0, d1 = node(spec)
    with peer(spec) as other:
        yield d0, d1, other


@pytest.fixture
def alone(node: Node) -> peerlane.Channel:
    """Return a channel of a rank to itself."""
    node("devices=2")
    group = peerlane.Group(0, 1, rendezvous=lambda value: [value], window=4096)
    return group.channel(0, notifies=4)


@pytest.fixture(autouse=True)
def no_node_stays_entered() -> Iterator[None]:
    """Leave the default node, which a test enters by its first object: programs of later tests meet there."""
    yield
    peerlane.leave_node()


@pytest.fixture(autouse=True)
def no_server_lingers() -> Iterator[None]:
    """Wait for the end of rank 0's rendezvous, so that the next test does not count its descriptors."""
    yield
    deadline = time.monotonic() + 5
    while any(each.name == "peerlane-rendezvous-end" for each in threading.enumerate()):
        if time.monotonic() > deadline:
            break
        time.sleep(0.002)
