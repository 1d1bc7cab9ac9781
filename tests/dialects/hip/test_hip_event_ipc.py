"""Events of HIP that processes share: the rows of facts/hip 3.5."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import pytest

from helpers.hip_calls import Gate, code, content, done, holding
from helpers.hip_peer import HipPeer, hip_peer

Enter = Callable[..., ModuleType]
SHARED, PLAIN = 6, 0  # hipEventInterprocess | hipEventDisableTiming
PROCESSES = 3
PAGE = 4096

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(180)]


@pytest.fixture
def node() -> str:
    """Return the specification of the node of a test with several processes."""
    return f"name=hip-{os.getpid()},devices=2,memory=64MiB"


@pytest.fixture
def hip(hip_on: Enter, node: str) -> ModuleType:
    """Return ``hip`` on a node that ``peer`` is in as well."""
    return hip_on(node)


@pytest.fixture
def peer(hip: ModuleType, node: str) -> Iterator[HipPeer]:
    """Return another process of the node."""
    with hip_peer(node) as other:
        yield other


def shared(hip: ModuleType) -> Any:
    return done(hip.hipEventCreateWithFlags(SHARED))


def text_of(hip: ModuleType, event: Any) -> bytes:
    return bytes(done(hip.hipIpcGetEventHandle(event)).reserved)


def test_hip_ipc_get_event_handle_is_64_bytes_without_nul_and_stable(hip: ModuleType) -> None:
    event, other = shared(hip), shared(hip)
    text = text_of(hip, event)
    assert len(text) == 64
    assert b"\0" not in text
    assert text_of(hip, event) == text != text_of(hip, other)


@pytest.mark.parametrize("event", [None, 0])
def test_hip_ipc_get_event_handle_null_returns_invalid_value(hip: ModuleType, event: int | None) -> None:
    assert code(hip.hipIpcGetEventHandle(event)) == "hipErrorInvalidValue"


def test_hip_ipc_get_event_handle_not_an_event_returns_invalid_handle(hip: ModuleType) -> None:
    event = shared(hip)
    done(hip.hipEventDestroy(event))
    for bad in (event, 1 << 20, done(hip.hipStreamCreate())):
        assert code(hip.hipIpcGetEventHandle(bad)) == "hipErrorInvalidHandle"


def test_hip_ipc_get_event_handle_plain_event_returns_invalid_configuration(hip: ModuleType) -> None:
    for flags in (PLAIN, 2):
        event = done(hip.hipEventCreateWithFlags(flags))
        assert code(hip.hipIpcGetEventHandle(event)) == "hipErrorInvalidConfiguration"


def test_hip_ipc_open_event_handle_own_handle_returns_invalid_context(hip: ModuleType) -> None:
    handle = done(hip.hipIpcGetEventHandle(shared(hip)))
    assert hip.hipIpcOpenEventHandle(handle) == (hip.hipError_t.hipErrorInvalidContext, None)
    assert code(hip.hipIpcOpenEventHandle(bytes(handle.reserved))) == "hipErrorInvalidContext"


@pytest.mark.parametrize(
    "handle", [None, bytes(64), b"A" * 64, b"\xff" * 64, bytes(range(64)), b"short", b"A" * 65]
)
def test_hip_ipc_open_event_handle_wrong_bytes_returns_invalid_value(
    hip: ModuleType, handle: bytes | None
) -> None:
    assert hip.hipIpcOpenEventHandle(handle) == (hip.hipError_t.hipErrorInvalidValue, None)


def test_hip_ipc_open_event_handle_empty_struct_returns_invalid_value(hip: ModuleType) -> None:
    assert code(hip.hipIpcOpenEventHandle(hip.hipIpcEventHandle_t())) == "hipErrorInvalidValue"


def test_hip_ipc_event_recorded_by_exporter_releases_importer(hip: ModuleType, peer: HipPeer) -> None:
    event, stream, gate = shared(hip), done(hip.hipStreamCreate()), Gate(hip)
    theirs = peer.done("hipIpcOpenEventHandle", text_of(hip, event))
    assert peer("hipEventQuery", theirs) == ["hipSuccess"]  # never recorded
    assert peer("hipEventSynchronize", theirs) == ["hipSuccess"]
    gate.close(stream)
    done(hip.hipEventRecord(event, stream))
    assert peer("hipEventQuery", theirs) == ["hipErrorNotReady"]
    waiting = peer.done("hipStreamCreate")
    peer.done("hipStreamWaitEvent", waiting, theirs, 0)
    assert peer("hipStreamQuery", waiting) == ["hipErrorNotReady"]
    gate.open()
    done(hip.hipEventSynchronize(event))
    peer.done("hipEventSynchronize", theirs)
    peer.done("hipEventQuery", theirs)
    peer.done("hipStreamSynchronize", waiting)
    assert peer("hipEventElapsedTime", theirs, theirs)[0] == "hipErrorInvalidHandle"  # without timing
    peer.done("hipEventDestroy", theirs)
    done(hip.hipEventRecord(event, stream))
    done(hip.hipEventSynchronize(event))


def test_hip_ipc_event_recorded_by_importer_releases_exporter(hip: ModuleType, peer: HipPeer) -> None:
    event, stream = shared(hip), done(hip.hipStreamCreate())
    theirs = peer.done("hipIpcOpenEventHandle", text_of(hip, event))
    at = peer.done("hipStreamCreate")
    peer.done("close_gate", at)
    peer.done("hipEventRecord", theirs, at)
    assert code(hip.hipEventQuery(event)) == "hipErrorNotReady"
    done(hip.hipStreamWaitEvent(stream, event, 0))
    assert code(hip.hipStreamQuery(stream)) == "hipErrorNotReady"
    peer.done("open_gate")
    peer.done("hipStreamSynchronize", at)
    done(hip.hipEventSynchronize(event))
    done(hip.hipStreamSynchronize(stream))


def test_hip_ipc_event_recorded_before_export_releases_importer(hip: ModuleType, peer: HipPeer) -> None:
    event, gate = shared(hip), Gate(hip)
    gate.close(None)
    done(hip.hipEventRecord(event, None))
    theirs = peer.done("hipIpcOpenEventHandle", text_of(hip, event))
    assert peer("hipEventQuery", theirs) == ["hipErrorNotReady"]
    gate.open()
    done(hip.hipDeviceSynchronize())
    peer.done("hipEventSynchronize", theirs)


def test_hip_ipc_open_event_handle_destroyed_event_or_killed_exporter_fails(
    hip: ModuleType, peer: HipPeer
) -> None:
    event = shared(hip)
    text = text_of(hip, event)
    done(hip.hipEventDestroy(event))
    assert peer("hipIpcOpenEventHandle", text) == ["hipErrorInvalidValue", None]
    theirs = peer.done("hipIpcGetEventHandle", peer.done("hipEventCreateWithFlags", SHARED))
    peer.kill()
    assert code(hip.hipIpcOpenEventHandle(theirs)) == "hipErrorMapFailed"


def test_hip_event_synchronize_recorder_killed_returns_map_failed(hip: ModuleType, peer: HipPeer) -> None:
    at = peer.done("hipStreamCreate")
    theirs = peer.done("hipEventCreateWithFlags", SHARED)
    event = done(hip.hipIpcOpenEventHandle(peer.done("hipIpcGetEventHandle", theirs)))
    peer.done("close_gate", at)
    peer.done("hipEventRecord", theirs, at)
    assert code(hip.hipEventQuery(event)) == "hipErrorNotReady"
    peer.kill()
    assert code(hip.hipEventSynchronize(event)) == "hipErrorMapFailed"


def test_hip_ipc_event_between_unreachable_devices_orders_streams(hip_on: Enter, node: str) -> None:
    apart = f"{node.partition(',')[0]},devices=2,switch=1,memory=64MiB"
    hip = hip_on(apart)
    assert hip.hipDeviceCanAccessPeer(0, 1)[1] == 0
    event, gate = shared(hip), Gate(hip)
    with hip_peer(apart) as peer:
        peer.done("hipSetDevice", 1)
        theirs, at = peer.done("hipIpcOpenEventHandle", text_of(hip, event)), peer.done("hipStreamCreate")
        gate.close(None)
        done(hip.hipEventRecord(event, None))
        peer.done("hipStreamWaitEvent", at, theirs, 0)
        assert peer("hipStreamQuery", at) == ["hipErrorNotReady"]
        gate.open()
        peer.done("hipStreamSynchronize", at)
        peer.done("hipEventRecord", theirs, at)
        done(hip.hipEventSynchronize(event))
        done(hip.hipDeviceSynchronize())


@pytest.mark.parametrize("version", ["10.0", "7.2"])
def test_hip_ipc_get_event_handle_older_shape_keeps_all_64_bytes(
    hip_on: Enter, node: str, version: str
) -> None:
    hip = hip_on(node, VERSION=version)
    event = shared(hip)
    handle = hip.hipIpcEventHandle_t()
    result = hip.hipIpcGetEventHandle(handle, event)
    assert code(result) == "hipSuccess"
    assert len(result) == 1
    assert len(handle.reserved) == 64  # a wheel of 7.2 ends them at the first NUL
    assert handle.reserved == text_of(hip, event)
    with hip_peer(node, PEERLANE_HIP_VERSION=version) as peer:
        theirs = peer.done("hipIpcOpenEventHandle", bytes(handle.reserved))
        done(hip.hipEventRecord(event, None))
        done(hip.hipEventSynchronize(event))
        peer.done("hipEventSynchronize", theirs)


def test_hip_ipc_events_of_three_processes_order_copies_into_one_buffer(hip: ModuleType, node: str) -> None:
    memory = holding(hip, bytes(PROCESSES * PAGE))
    handle = bytes(done(hip.hipIpcGetMemHandle(memory)).reserved)
    with ExitStack() as stack:
        peers = [stack.enter_context(hip_peer(node)) for _ in range(PROCESSES)]
        events, opened_by = [], []
        for number, peer in enumerate(peers):
            peer.done("hipSetDevice", number % 2)
            stream = peer.done("hipStreamCreate")
            opened = peer.done("hipIpcOpenMemHandle", handle, hip.hipIpcMemLazyEnablePeerAccess)
            opened_by.append(opened)
            address = opened + number * PAGE
            source = peer.done("hipMalloc", PAGE)
            peer.done("hipMemcpy", source, bytes([number + 1]) * PAGE, PAGE)
            event = peer.done("hipEventCreateWithFlags", SHARED)
            peer.done("close_gate", stream)
            peer.done("hipMemcpyPeerAsync", address, 0, source, number % 2, PAGE, stream)
            peer.done("hipEventRecord", event, stream)
            events.append(done(hip.hipIpcOpenEventHandle(peer.done("hipIpcGetEventHandle", event))))
        assert {code(hip.hipEventQuery(each)) for each in events} == {"hipErrorNotReady"}
        assert content(hip, memory, PROCESSES * PAGE) == bytes(PROCESSES * PAGE)
        for number, peer in enumerate(peers):
            peer.done("open_gate")
            peer.done("hipIpcCloseMemHandle", opened_by[number])  # its record is submitted
            done(hip.hipEventSynchronize(events[number]))
            received = content(hip, int(memory) + number * PAGE, PAGE)
            assert received == bytes([number + 1]) * PAGE
