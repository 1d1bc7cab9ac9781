"""Fixtures of the dialects: each test enters its own node."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

import peerlane
from helpers.acl_calls import Server
from helpers.acl_peer import AclPeer, acl_peer
from peerlane.dialects.acl import _system

Enter = Callable[[str], ModuleType]
TWO = "devices=2,memory=64MiB"


@pytest.fixture
def enter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Enter]:
    """Return a function that enters a node and returns ``acl`` as a new process finds it."""
    import peerlane.dialects.acl as acl

    for variable in [name for name in os.environ if name.startswith("PEERLANE_NODE")]:
        monkeypatch.delenv(variable)
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(_system, "_started", _system._Started())

    def enter(spec: str) -> ModuleType:
        peerlane.leave_node()
        peerlane.enter_node(spec)
        acl.get_recent_err_msg()
        acl.rt.get_last_error(0)
        return acl

    yield enter
    _system._end()
    acl.get_recent_err_msg()
    peerlane.leave_node()


@pytest.fixture
def acl(enter: Enter) -> ModuleType:
    """Return ``acl`` on two devices of one switch, device 0 set."""
    module = enter(TWO)
    assert module.rt.set_device(0) == 0
    return module


@pytest.fixture
def shared_node() -> str:
    """Return the specification of the node of a test with two processes."""
    return f"name=acl-{os.getpid()},{TWO}"


@pytest.fixture
def shared_acl(enter: Enter, shared_node: str) -> ModuleType:
    """Return ``acl`` on a node that ``peer`` is in as well, device 0 set."""
    module = enter(shared_node)
    assert module.rt.set_device(0) == 0
    return module


@pytest.fixture
def peer(shared_acl: ModuleType, shared_node: str) -> Iterator[AclPeer]:
    """Return another process of the node, device 0 set."""
    with acl_peer(shared_node) as other:
        yield other


@pytest.fixture
def message(acl: ModuleType) -> Callable[[], str]:
    """Return a function that takes the message of the last failure; it must be the only one."""

    def take() -> str:
        text = acl.get_recent_err_msg()
        assert isinstance(text, str)
        assert acl.get_recent_err_msg() is None
        return text

    return take


@pytest.fixture
def server(acl: ModuleType) -> Iterator[Server]:
    """Return a thread that processes reports until the test is over."""
    started = Server(acl)
    yield started
    started.stop()


HIP_VARIABLES = (
    *("PEERLANE_HIP_VERSION", "PEERLANE_HIP_POLICY", "AMD_LOG_LEVEL"),
    *("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_HIDDEN_FREE_MEM"),
)


@pytest.fixture
def hip_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModuleType]]:
    """Return a function that enters a node and returns ``hip`` as a new process finds it.

    Its first argument is the node; others are environment variables: ``hip_on("devices=2", VERSION="7.2")`` and
    ``POLICY``, which stand for PEERLANE_HIP_VERSION and PEERLANE_HIP_POLICY.
    """
    from peerlane.dialects import begin_anew
    from peerlane.dialects.hip import hip

    for variable in [name for name in os.environ if name.startswith("PEERLANE_NODE")] + [*HIP_VARIABLES]:
        monkeypatch.delenv(variable, raising=False)

    def enter_node(spec: str = TWO, **rules: str) -> ModuleType:
        for name, value in rules.items():
            monkeypatch.setenv(f"PEERLANE_HIP_{name}", value)
        peerlane.leave_node()
        peerlane.enter_node(spec)
        begin_anew("hip")
        return hip

    yield enter_node
    peerlane.leave_node()
    for variable in HIP_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    begin_anew("hip")


@pytest.fixture
def hip(hip_on: Callable[..., ModuleType]) -> ModuleType:
    """Return ``hip`` on two devices of one switch."""
    return hip_on(TWO)


@pytest.fixture
def hcomm_on(enter: Enter, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModuleType]]:
    """Return a function that enters a node and returns ``hcomm`` as a new process finds it."""
    from peerlane.dialects import begin_anew, hcomm

    monkeypatch.setenv("HCCL_BUFFSIZE", "1")
    monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "30")
    for variable in ("HCCL_EXEC_TIMEOUT", "PEERLANE_HCOMM_NOTIFIES"):
        monkeypatch.delenv(variable, raising=False)

    def enter_node(spec: str = "devices=4,memory=256MiB") -> ModuleType:
        enter(spec)
        begin_anew("hcomm")
        return hcomm

    yield enter_node
    begin_anew("hcomm")


@pytest.fixture
def hcomm(hcomm_on: Callable[..., ModuleType]) -> ModuleType:
    """Return ``hcomm`` on four devices; communicators have an HcclBuffer of 2 MiB."""
    return hcomm_on()
