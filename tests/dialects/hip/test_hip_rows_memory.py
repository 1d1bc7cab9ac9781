"""Rows of facts/hip 3.5 and 3.6 that no other test covers whole; `helpers.hip_rows` says where each row is."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType

import pytest

from helpers.hip_memory import BEGIN, G, code, hip_peer, mapped, ok, properties, read, spec
from helpers.prepared import run_python

Enter = Callable[..., ModuleType]

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

GIVE = """
p = ok(hip.hipMalloc(64)); write(p, bytes(range(64)))
result = bytes(ok(hip.hipIpcGetMemHandle(p)).reserved).hex()
"""


def test_hip_ipc_open_mem_handle_second_context_returns_same_pointer(hip_on: Enter) -> None:
    node = spec("contexts")
    hip = hip_on(node)
    with hip_peer(node) as other:
        handle = bytes.fromhex(other.run(GIVE))
        first = ok(hip.hipIpcOpenMemHandle(handle, 1))
        context = ok(hip.hipCtxCreate(0, 0))
        again = hip.hipIpcOpenMemHandle(handle, 1)
        assert int(ok(again)) == int(first)
        ok(hip.hipCtxDestroy(context))
        ok(hip.hipIpcCloseMemHandle(first))
        assert read(hip, first, 64) == bytes(range(64))
        ok(hip.hipIpcCloseMemHandle(first))
        assert code(hip.hipIpcCloseMemHandle(first)) == "hipErrorInvalidValue"


BEFORE = (
    BEGIN
    + """
here, there = socket.socketpair()
child = os.fork()
if child == 0:
    handle = there.recv(64)
    p = ok(hip.hipIpcOpenMemHandle(handle, 1))
    assert read(p, 6) == b"parent"
    write(p, b"child!")
    ok(hip.hipIpcCloseMemHandle(p))
    os._exit(0)
p = ok(hip.hipMalloc(6))
write(p, b"parent")
here.send(bytes(ok(hip.hipIpcGetMemHandle(p)).reserved))
assert os.waitpid(child, 0)[1] == 0
print(read(p, 6).decode())
"""
)
AFTER = (
    BEGIN
    + """
from peerlane.dialects.hip import explain
p = ok(hip.hipMalloc(6))
write(p, b"parent")
child = os.fork()
if child == 0:
    results = (hip.hipMalloc(64), hip.hipFree(p), hip.hipSetDevice(0), hip.hipMemcpy(p, b"c", 1, KIND))
    found = {result[0].name for result in results}
    assert found == {"hipErrorNotInitialized"}, found
    assert "forked after its parent had used devices" in explain()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(read(p, 6).decode())
"""
)


@pytest.mark.parametrize(
    ("program", "expected"), [(BEFORE, "child!"), (AFTER, "parent")], ids=["before", "after"]
)
@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:3"])
def test_hip_calls_in_forked_child_work_only_if_parent_used_no_device(
    program: str, expected: str, schedule: str
) -> None:
    env = {**os.environ, "PEERLANE_NODE": spec("fork"), "PEERLANE_SCHEDULE": schedule}
    done = run_python(["-c", program], timeout=60, env=env)
    assert (done.returncode, done.stdout) == (0, f"{expected}\n"), done.stderr


def test_hip_mem_retain_allocation_handle_unmapped_address_returns_invalid_value(hip: ModuleType) -> None:
    address, size = mapped(hip, (0, G))
    handle = ok(hip.hipMemRetainAllocationHandle(address))
    ok(hip.hipMemUnmap(address, size))
    assert code(hip.hipMemRetainAllocationHandle(address)) == "hipErrorInvalidValue"
    ok(hip.hipMemRelease(handle))


def test_hip_vmm_supported_attribute_is_1_and_mem_create_succeeds(hip: ModuleType) -> None:
    gate = hip.hipDeviceAttribute_t.hipDeviceAttributeVirtualMemoryManagementSupported
    assert [ok(hip.hipDeviceGetAttribute(gate, device)) for device in (0, 1)] == [1, 1]
    ok(hip.hipMemRelease(ok(hip.hipMemCreate(G, properties(hip, 1), 0))))
