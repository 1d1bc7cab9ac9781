"""IPC memory of HIP: the rows of facts/hip 3.5, in two processes."""

from __future__ import annotations

import base64
import ctypes
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from helpers.hip_memory import G, code, hip_peer, mapped, ok, read, spec, write
from helpers.peers import Peer
from peerlane.dialects.hip import explain

Enter = Callable[..., ModuleType]
LAZY = 1

pytestmark = pytest.mark.timeout(120)

GIVE = """
p = int(ok(hip.hipMalloc({size}))); write(p, bytes(i * 7 % 256 for i in range({size})))
result = bytes(ok(hip.hipIpcGetMemHandle({pointer})).reserved).hex()
"""


@pytest.fixture
def shared(hip_on: Enter) -> Iterator[tuple[ModuleType, Peer]]:
    node = spec("ipc")
    hip = hip_on(node)
    with hip_peer(node) as other:
        yield hip, other


def given(other: Peer, size: int = 4096, pointer: str = "p") -> bytes:
    """Return the handle of new memory of the other process, whose byte i is 7 i."""
    return bytes.fromhex(other.run(GIVE.format(size=size, pointer=pointer)))


def pattern(size: int) -> bytes:
    return bytes(i * 7 % 256 for i in range(size))


def taken(other: Peer, handle: bytes) -> str:
    """Return what opening a handle there gives."""
    other.run(
        f"opened = hip.hipIpcOpenMemHandle(bytes.fromhex('{handle.hex()}'), 1); result = opened[0].name"
    )
    return str(other.run("result = opened[0].name"))


@pytest.mark.parametrize("size", [1, 4096, G - 1, G, 3 * G + 5])
def test_data_both_ways(shared: tuple[ModuleType, Peer], size: int) -> None:
    hip, other = shared
    pointer = ok(hip.hipIpcOpenMemHandle(given(other, size), LAZY))
    assert read(hip, pointer, size) == pattern(size)
    write(hip, pointer, b"\x5a" * size)
    assert other.run(f"result = read(p, {size}) == b'\\x5a' * {size}")
    assert code(hip.hipMemcpy(bytearray(size + 1), pointer, size + 1, hip.hipMemcpyKind(4))) != "hipSuccess"


def test_a_handle_is_64_bytes_and_none_is_0(shared: tuple[ModuleType, Peer]) -> None:
    hip, _ = shared
    handle = ok(hip.hipIpcGetMemHandle(ok(hip.hipMalloc(64))))
    assert type(handle) is hip.hipIpcMemHandle_t
    assert len(handle.reserved) == hip.HIP_IPC_HANDLE_SIZE == 64
    assert 0 in bytes(handle.reserved)


@pytest.mark.parametrize("version", ["7.2", "6.4"])
def test_older_bindings_end_it_at_the_first_nul(hip_on: Enter, version: str) -> None:
    hip = hip_on(VERSION=version)
    handle = ok(hip.hipIpcGetMemHandle(ok(hip.hipMalloc(64))))
    whole = ctypes.string_at(int(handle), 64)
    assert handle.reserved == whole[: whole.index(0)]
    explain()
    assert code(hip.hipIpcOpenMemHandle(handle.reserved, LAZY)) == "hipErrorInvalidValue"
    told = explain()
    assert f"has {len(handle.reserved)} bytes" in told
    assert "ctypes.string_at(int(handle), 64)" in told
    assert code(hip.hipIpcOpenMemHandle(whole, LAZY)) == "hipErrorInvalidContext"
    assert code(hip.hipIpcOpenMemHandle(handle, LAZY)) == "hipErrorInvalidContext"


def test_the_neutral_handle_opens_as_well(shared: tuple[ModuleType, Peer]) -> None:
    hip, other = shared
    whole = given(other, 64)
    text = base64.urlsafe_b64encode(whole[:48])
    assert len(text) == 64
    assert read(hip, ok(hip.hipIpcOpenMemHandle(text, LAZY)), 64) == pattern(64)


def test_handles_of_two_allocations_differ(hip: ModuleType) -> None:
    handles = [bytes(ok(hip.hipIpcGetMemHandle(ok(hip.hipMalloc(64)))).reserved) for _ in range(5)]
    assert len(set(handles)) == 5


def test_asked_again_it_is_the_same(hip: ModuleType) -> None:
    pointer = ok(hip.hipMalloc(64))
    first, second = (bytes(ok(hip.hipIpcGetMemHandle(pointer)).reserved) for _ in range(2))
    assert first == second


def test_a_new_allocation_at_the_same_address_has_another(hip: ModuleType) -> None:
    seen: dict[int, bytes] = {}
    for _ in range(4):
        pointer = ok(hip.hipMalloc(4 * G))
        handle = bytes(ok(hip.hipIpcGetMemHandle(pointer)).reserved)
        assert seen.get(int(pointer)) != handle
        assert handle not in seen.values()
        seen[int(pointer)] = handle
        ok(hip.hipFree(pointer))
    assert len(seen) < 4  # the address came again


@pytest.mark.parametrize("what", ["NULL", "freed", "one past the end", "host", "pinned", "mapped", "opened"])
def test_no_handle_of(shared: tuple[ModuleType, Peer], what: str) -> None:
    hip, other = shared
    large = ok(hip.hipMalloc(G))
    freed = ok(hip.hipMalloc(G))
    ok(hip.hipFree(freed))
    pointers = {
        "NULL": lambda: None,
        "freed": lambda: freed,
        "one past the end": lambda: int(large) + G,
        "host": lambda: bytearray(64),
        "pinned": lambda: ok(hip.hipHostMalloc(64, 0)),
        "mapped": lambda: mapped(hip, (0, G))[0],
        "opened": lambda: ok(hip.hipIpcOpenMemHandle(given(other), LAZY)),
    }
    assert code(hip.hipIpcGetMemHandle(pointers[what]())) == "hipErrorInvalidValue"


def test_an_inner_pointer_keeps_its_offset(shared: tuple[ModuleType, Peer]) -> None:
    hip, other = shared
    for size in (4096, G):
        inner = ok(hip.hipIpcOpenMemHandle(given(other, size, "p + 100"), LAZY))
        assert read(hip, inner, size - 100) == pattern(size)[100:]
        whole = ok(hip.hipIpcOpenMemHandle(given(other, size), LAZY))
        assert read(hip, whole, size) == pattern(size)
        assert code(hip.hipIpcCloseMemHandle(int(inner) - 100)) == "hipErrorInvalidValue"
        ok(hip.hipIpcCloseMemHandle(inner))
        ok(hip.hipIpcCloseMemHandle(whole))


def test_the_process_that_made_it(hip: ModuleType) -> None:
    pointer = ok(hip.hipMalloc(64))
    write(hip, pointer, b"x" * 64)
    handle = ok(hip.hipIpcGetMemHandle(pointer))
    opened = hip.hipIpcOpenMemHandle(handle, LAZY)
    assert int(opened[0]) == 201
    assert code(opened) == "hipErrorInvalidContext"
    assert code(hip.hipIpcCloseMemHandle(pointer)) == "hipErrorInvalidValue"
    assert read(hip, pointer, 64) == b"x" * 64


@pytest.mark.parametrize("flags", [0, 2, 3, 0xFFFFFFFF])
def test_flags_must_be_1(shared: tuple[ModuleType, Peer], flags: int) -> None:
    hip, other = shared
    result = hip.hipIpcOpenMemHandle(given(other), flags)
    assert code(result) == "hipErrorInvalidValue"
    assert result[1] is None


@pytest.mark.parametrize("handle", [bytes(64), None, b"short", b"x" * 63], ids=["zero", "None", "5", "63"])
def test_no_bytes_of_a_handle(hip: ModuleType, handle: object) -> None:
    assert code(hip.hipIpcOpenMemHandle(handle, LAZY)) == "hipErrorInvalidValue"
    assert code(hip.hipIpcOpenMemHandle(hip.hipIpcMemHandle_t(), LAZY)) == "hipErrorInvalidValue"


def test_a_handle_that_is_none(hip: ModuleType) -> None:
    assert code(hip.hipIpcOpenMemHandle(b"x" * 64, LAZY)) == "hipErrorInvalidDevicePointer"
    with pytest.raises(TypeError):
        hip.hipIpcOpenMemHandle("x" * 64, LAZY)


def test_a_changed_handle(shared: tuple[ModuleType, Peer]) -> None:
    hip, other = shared
    handle = bytearray(given(other))
    handle[20] ^= 1
    assert code(hip.hipIpcOpenMemHandle(handle, LAZY)) == "hipErrorInvalidDevicePointer"


def test_opened_twice_it_is_counted(shared: tuple[ModuleType, Peer]) -> None:
    hip, other = shared
    handle = given(other)
    first, second = (ok(hip.hipIpcOpenMemHandle(handle, LAZY)) for _ in range(2))
    assert int(first) == int(second)
    ok(hip.hipIpcCloseMemHandle(first))
    assert read(hip, second, 4096) == pattern(4096)
    assert int(ok(hip.hipPointerGetAttributes(second)).devicePointer) == int(second)
    ok(hip.hipIpcCloseMemHandle(second))
    assert code(hip.hipPointerGetAttributes(first)) == "hipErrorInvalidValue"
    assert code(hip.hipMemcpy(bytearray(1), second, 1, hip.hipMemcpyKind(4))) == "hipErrorInvalidValue"
    assert code(hip.hipIpcCloseMemHandle(second)) == "hipErrorInvalidValue"


def test_close_what_was_not_opened(hip: ModuleType) -> None:
    for pointer in (None, ok(hip.hipMalloc(64)), bytearray(8), 64):
        assert code(hip.hipIpcCloseMemHandle(pointer)) == "hipErrorInvalidValue"


def test_the_maker_frees_after_the_other_closed(shared: tuple[ModuleType, Peer]) -> None:
    hip, other = shared
    pointer = ok(hip.hipMalloc(4096))
    write(hip, pointer, pattern(4096))
    handle = bytes(ok(hip.hipIpcGetMemHandle(pointer)).reserved)
    other.run(f"p = ok(hip.hipIpcOpenMemHandle(bytes.fromhex('{handle.hex()}'), 1))")
    assert other.run("result = list(read(p, 4))") == [0, 7, 14, 21]
    other.run("ok(hip.hipIpcCloseMemHandle(p))")
    assert read(hip, pointer, 4096) == pattern(4096)
    ok(hip.hipFree(pointer))
    assert taken(other, handle) == "hipErrorInvalidDevicePointer"


def test_freed_first_it_lives_with_who_has_it(shared: tuple[ModuleType, Peer]) -> None:
    hip, other = shared
    pointer = ok(hip.hipIpcOpenMemHandle(given(other, G), LAZY))
    other.run("ok(hip.hipFree(p))")
    assert read(hip, pointer, G) == pattern(G)
    other.kill()
    assert read(hip, pointer, G) == pattern(G)
    ok(hip.hipIpcCloseMemHandle(pointer))


def test_its_maker_has_ended(shared: tuple[ModuleType, Peer]) -> None:
    hip, other = shared
    handle = given(other)
    other.kill()
    assert code(hip.hipIpcOpenMemHandle(handle, LAZY)) == "hipErrorInvalidDevicePointer"


def test_memory_of_another_device(shared: tuple[ModuleType, Peer]) -> None:
    hip, other = shared
    other.run("ok(hip.hipSetDevice(1))")
    handle = given(other)
    pointer = ok(hip.hipIpcOpenMemHandle(handle, LAZY))  # device 0 is current
    near = ok(hip.hipMalloc(4096))
    ok(hip.hipMemcpyPeer(near, 0, pointer, 1, 4096))
    ok(hip.hipDeviceSynchronize())
    assert read(hip, near, 4096) == pattern(4096)
    ok(hip.hipSetDevice(1))
    assert int(ok(hip.hipIpcOpenMemHandle(handle, LAZY))) == int(pointer)


def test_memory_out_of_reach(hip_on: Enter) -> None:
    node = spec("far", "devices=4,switch=2,memory=16MiB")
    hip = hip_on(node)
    with hip_peer(node) as other:
        other.run("ok(hip.hipSetDevice(2))")
        handle = given(other)
        assert code(hip.hipIpcOpenMemHandle(handle, LAZY)) == "hipErrorInvalidDevicePointer"
        ok(hip.hipSetDevice(3))
        ok(hip.hipIpcOpenMemHandle(handle, LAZY))


def test_every_reachable_device_opens(hip_on: Enter) -> None:
    node = spec("all", "devices=3,memory=16MiB")
    hip = hip_on(node)
    with hip_peer(node) as other:
        for owner in range(3):
            other.run(f"ok(hip.hipSetDevice({owner}))")
            handle = given(other)
            for device in range(3):
                if not ok(hip.hipDeviceCanAccessPeer(device, owner)):
                    continue
                ok(hip.hipSetDevice(device))
                pointer, copy = ok(hip.hipIpcOpenMemHandle(handle, LAZY)), ok(hip.hipMalloc(4096))
                ok(hip.hipMemcpy(copy, pointer, 4096, hip.hipMemcpyKind(3)))
                ok(hip.hipDeviceSynchronize())
                assert read(hip, copy, 4096) == pattern(4096)
                ok(hip.hipIpcCloseMemHandle(pointer))


def test_close_waits_for_the_device(shared: tuple[ModuleType, Peer]) -> None:
    hip, other = shared
    pointer = ok(hip.hipIpcOpenMemHandle(given(other), LAZY))
    stream, copy = ok(hip.hipStreamCreate()), ok(hip.hipMalloc(4096))
    ok(hip.hipMemcpyAsync(copy, pointer, 4096, hip.hipMemcpyKind(4), stream))
    ok(hip.hipIpcCloseMemHandle(pointer))
    ok(hip.hipStreamSynchronize(stream))
    assert read(hip, copy, 4096) == pattern(4096)


def test_reset_closes(shared: tuple[ModuleType, Peer]) -> None:
    hip, other = shared
    handle = given(other)
    pointer = ok(hip.hipIpcOpenMemHandle(handle, LAZY))
    ok(hip.hipDeviceReset())
    assert code(hip.hipIpcCloseMemHandle(pointer)) == "hipErrorInvalidValue"
    assert code(hip.hipMemcpy(bytearray(1), pointer, 1, hip.hipMemcpyKind(4))) == "hipErrorInvalidValue"
    again = ok(hip.hipIpcOpenMemHandle(handle, LAZY))
    assert read(hip, again, 4096) == pattern(4096)


def test_another_kind_of_handle(shared: tuple[ModuleType, Peer]) -> None:
    hip, other = shared
    handle = other.run(
        "physical = pl.Physical(pl.devices()[0], G); h = physical.export(allow='user'); result = bytes(h).hex()"
    )
    assert code(hip.hipIpcOpenMemHandle(bytes.fromhex(handle), LAZY)) == "hipErrorInvalidDevicePointer"


def test_a_view_keeps_small_memory_where_it_is(hip: ModuleType) -> None:
    array = ok(hip.hipMalloc(64))
    view = memoryview(array)
    assert code(hip.hipIpcGetMemHandle(array)) == "hipErrorIllegalState"
    view.release()
    del view
    ok(hip.hipIpcGetMemHandle(array))


def test_handles_of_freed_memory_are_forgotten(hip: ModuleType) -> None:
    from peerlane.dialects.hip import _ipc
    from peerlane.dialects.hip._state import machine

    for _ in range(1000):
        pointer = ok(hip.hipMalloc(64))
        ok(hip.hipIpcGetMemHandle(pointer))
        ok(hip.hipFree(pointer))
    assert len(machine.table(_ipc.Ipc).given) < 200
