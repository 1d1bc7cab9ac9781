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

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(120)]

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


def exported(other: Peer, size: int = 4096, pointer: str = "p") -> bytes:
    """Allocate memory in the other process, byte i holding 7 i modulo 256, and return its handle."""
    return bytes.fromhex(other.run(GIVE.format(size=size, pointer=pointer)))


def pattern(size: int) -> bytes:
    return bytes(i * 7 % 256 for i in range(size))


def taken(other: Peer, handle: bytes) -> str:
    """Return the code that the other process gets when it opens a handle."""
    other.run(
        f"opened = hip.hipIpcOpenMemHandle(bytes.fromhex('{handle.hex()}'), 1); result = opened[0].name"
    )
    return str(other.run("result = opened[0].name"))


@pytest.mark.parametrize("size", [1, 4096, G - 1, G, 3 * G + 5])
def test_hip_ipc_open_mem_handle_shares_bytes_in_both_directions(
    shared: tuple[ModuleType, Peer], size: int
) -> None:
    hip, other = shared
    pointer = ok(hip.hipIpcOpenMemHandle(exported(other, size), LAZY))
    assert read(hip, pointer, size) == pattern(size)
    write(hip, pointer, b"\x5a" * size)
    assert other.run(f"result = read(p, {size}) == b'\\x5a' * {size}")
    assert code(hip.hipMemcpy(bytearray(size + 1), pointer, size + 1, hip.hipMemcpyKind(4))) != "hipSuccess"


def test_hip_ipc_get_mem_handle_is_64_bytes_that_contain_nul(shared: tuple[ModuleType, Peer]) -> None:
    hip, _ = shared
    handle = ok(hip.hipIpcGetMemHandle(ok(hip.hipMalloc(64))))
    assert type(handle) is hip.hipIpcMemHandle_t
    assert len(handle.reserved) == hip.HIP_IPC_HANDLE_SIZE == 64
    assert 0 in bytes(handle.reserved)


@pytest.mark.parametrize("version", ["7.2", "6.4"])
def test_hip_ipc_mem_handle_before_10_reserved_ends_at_first_nul(hip_on: Enter, version: str) -> None:
    hip = hip_on(VERSION=version)
    handle = ok(hip.hipIpcGetMemHandle(ok(hip.hipMalloc(64))))
    whole = ctypes.string_at(int(handle), 64)
    assert handle.reserved == whole[: whole.index(0)]
    explain()
    assert code(hip.hipIpcOpenMemHandle(handle.reserved, LAZY)) == "hipErrorInvalidValue"
    explained = explain()
    assert f"has {len(handle.reserved)} bytes" in explained
    assert "ctypes.string_at(int(handle), 64)" in explained
    assert code(hip.hipIpcOpenMemHandle(whole, LAZY)) == "hipErrorInvalidContext"
    assert code(hip.hipIpcOpenMemHandle(handle, LAZY)) == "hipErrorInvalidContext"


def test_hip_ipc_open_mem_handle_text_of_neutral_handle_opens(shared: tuple[ModuleType, Peer]) -> None:
    hip, other = shared
    whole = exported(other, 64)
    text = base64.urlsafe_b64encode(whole[:48])
    assert len(text) == 64
    assert read(hip, ok(hip.hipIpcOpenMemHandle(text, LAZY)), 64) == pattern(64)


def test_hip_ipc_get_mem_handle_differs_per_allocation(hip: ModuleType) -> None:
    handles = [bytes(ok(hip.hipIpcGetMemHandle(ok(hip.hipMalloc(64)))).reserved) for _ in range(5)]
    assert len(set(handles)) == 5


def test_hip_ipc_get_mem_handle_twice_returns_same_bytes(hip: ModuleType) -> None:
    pointer = ok(hip.hipMalloc(64))
    first, second = (bytes(ok(hip.hipIpcGetMemHandle(pointer)).reserved) for _ in range(2))
    assert first == second


def test_hip_ipc_get_mem_handle_new_allocation_at_same_address_differs(hip: ModuleType) -> None:
    seen: dict[int, bytes] = {}
    for _ in range(4):
        pointer = ok(hip.hipMalloc(4 * G))
        handle = bytes(ok(hip.hipIpcGetMemHandle(pointer)).reserved)
        assert seen.get(int(pointer)) != handle
        assert handle not in seen.values()
        seen[int(pointer)] = handle
        ok(hip.hipFree(pointer))
    assert len(seen) < 4  # an address was reused


@pytest.mark.parametrize("what", ["NULL", "freed", "one past the end", "host", "pinned", "mapped", "opened"])
def test_hip_ipc_get_mem_handle_memory_not_of_malloc_returns_invalid_value(
    shared: tuple[ModuleType, Peer], what: str
) -> None:
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
        "opened": lambda: ok(hip.hipIpcOpenMemHandle(exported(other), LAZY)),
    }
    assert code(hip.hipIpcGetMemHandle(pointers[what]())) == "hipErrorInvalidValue"


def test_hip_ipc_get_mem_handle_inner_pointer_opens_to_the_start(shared: tuple[ModuleType, Peer]) -> None:
    hip, other = shared
    for size in (4096, G):
        handles = [
            exported(other, size),
            *(
                bytes.fromhex(
                    other.run(f"result = bytes(ok(hip.hipIpcGetMemHandle(p + {at})).reserved).hex()")
                )
                for at in (100, size // 2, size - 1)
            ),
        ]
        assert len(set(handles)) == len(handles)
        opened = [int(ok(hip.hipIpcOpenMemHandle(each, LAZY))) for each in handles]
        assert len(set(opened)) == 1
        assert read(hip, opened[0], size) == pattern(size)
        assert (
            read(hip, opened[1] + 100, size - 100) == pattern(size)[100:]
        )  # the program adds the offset itself
        for each in opened:
            assert code(hip.hipIpcCloseMemHandle(each + 100)) == "hipErrorInvalidValue"
            ok(hip.hipIpcCloseMemHandle(each))
        assert code(hip.hipIpcCloseMemHandle(opened[0])) == "hipErrorInvalidValue"


def test_hip_ipc_get_mem_handle_inner_pointer_is_explained_and_logged_from_level_2(
    hip: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    memory = int(ok(hip.hipMalloc(4096)))
    for level, is_written in (("0", False), ("1", False), ("2", True)):
        monkeypatch.setenv("AMD_LOG_LEVEL", level)
        ok(hip.hipIpcGetMemHandle(memory))
        assert explain() == ""
        ok(hip.hipIpcGetMemHandle(memory + 96))
        text = explain()
        assert "the handle names the whole of it" in text
        assert "send 96 along, and add it there" in text
        assert (text in capfd.readouterr().err) is is_written


def test_hip_ipc_get_mem_handle_of_pool_memory_returns_invalid_value(hip: ModuleType) -> None:
    pool = ok(hip.hipDeviceGetDefaultMemPool(0))
    for memory in (ok(hip.hipMallocAsync(4096, None)), ok(hip.hipMallocFromPoolAsync(4096, pool, None))):
        got, handle = hip.hipIpcGetMemHandle(memory)
        assert got.name == "hipErrorInvalidValue"
        assert not any(bytes(handle.reserved))
        assert "hipMemPoolExportPointer" in explain()
        ok(hip.hipFreeAsync(memory, None))


def test_hip_ipc_open_mem_handle_own_handle_returns_invalid_context(hip: ModuleType) -> None:
    pointer = ok(hip.hipMalloc(64))
    write(hip, pointer, b"x" * 64)
    handle = ok(hip.hipIpcGetMemHandle(pointer))
    opened = hip.hipIpcOpenMemHandle(handle, LAZY)
    assert int(opened[0]) == 201
    assert code(opened) == "hipErrorInvalidContext"
    assert code(hip.hipIpcCloseMemHandle(pointer)) == "hipErrorInvalidValue"
    assert read(hip, pointer, 64) == b"x" * 64


@pytest.mark.parametrize("flags", [0, 2, 3, 0xFFFFFFFF])
def test_hip_ipc_open_mem_handle_flags_other_than_1_return_invalid_value(
    shared: tuple[ModuleType, Peer], flags: int
) -> None:
    hip, other = shared
    result = hip.hipIpcOpenMemHandle(exported(other), flags)
    assert code(result) == "hipErrorInvalidValue"
    assert result[1] is None


@pytest.mark.parametrize("handle", [bytes(64), None, b"short", b"x" * 63], ids=["zero", "None", "5", "63"])
def test_hip_ipc_open_mem_handle_zero_or_short_bytes_return_invalid_value(
    hip: ModuleType, handle: object
) -> None:
    assert code(hip.hipIpcOpenMemHandle(handle, LAZY)) == "hipErrorInvalidValue"
    assert code(hip.hipIpcOpenMemHandle(hip.hipIpcMemHandle_t(), LAZY)) == "hipErrorInvalidValue"


def test_hip_ipc_open_mem_handle_other_bytes_return_invalid_device_pointer(hip: ModuleType) -> None:
    assert code(hip.hipIpcOpenMemHandle(b"x" * 64, LAZY)) == "hipErrorInvalidDevicePointer"
    with pytest.raises(TypeError):
        hip.hipIpcOpenMemHandle("x" * 64, LAZY)


def test_hip_ipc_open_mem_handle_changed_handle_returns_invalid_device_pointer(
    shared: tuple[ModuleType, Peer],
) -> None:
    hip, other = shared
    handle = bytearray(exported(other))
    handle[20] ^= 1
    assert code(hip.hipIpcOpenMemHandle(handle, LAZY)) == "hipErrorInvalidDevicePointer"


def test_hip_ipc_open_mem_handle_twice_needs_two_closes(shared: tuple[ModuleType, Peer]) -> None:
    hip, other = shared
    handle = exported(other)
    first, second = (ok(hip.hipIpcOpenMemHandle(handle, LAZY)) for _ in range(2))
    assert int(first) == int(second)
    ok(hip.hipIpcCloseMemHandle(first))
    assert read(hip, second, 4096) == pattern(4096)
    assert int(ok(hip.hipPointerGetAttributes(second)).devicePointer) == int(second)
    ok(hip.hipIpcCloseMemHandle(second))
    assert code(hip.hipPointerGetAttributes(first)) == "hipErrorInvalidValue"
    assert code(hip.hipMemcpy(bytearray(1), second, 1, hip.hipMemcpyKind(4))) == "hipErrorInvalidValue"
    assert code(hip.hipIpcCloseMemHandle(second)) == "hipErrorInvalidValue"


def test_hip_ipc_close_mem_handle_memory_not_opened_returns_invalid_value(hip: ModuleType) -> None:
    for pointer in (None, ok(hip.hipMalloc(64)), bytearray(8), 64):
        assert code(hip.hipIpcCloseMemHandle(pointer)) == "hipErrorInvalidValue"


def test_hip_ipc_memory_freed_by_exporter_after_close_ends_handle(shared: tuple[ModuleType, Peer]) -> None:
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


def test_hip_ipc_memory_freed_by_exporter_lives_in_importer(shared: tuple[ModuleType, Peer]) -> None:
    hip, other = shared
    pointer = ok(hip.hipIpcOpenMemHandle(exported(other, G), LAZY))
    other.run("ok(hip.hipFree(p))")
    assert read(hip, pointer, G) == pattern(G)
    other.kill()
    assert read(hip, pointer, G) == pattern(G)
    ok(hip.hipIpcCloseMemHandle(pointer))


def test_hip_ipc_open_mem_handle_exporter_killed_returns_invalid_device_pointer(
    shared: tuple[ModuleType, Peer],
) -> None:
    hip, other = shared
    handle = exported(other)
    other.kill()
    assert code(hip.hipIpcOpenMemHandle(handle, LAZY)) == "hipErrorInvalidDevicePointer"


def test_hip_ipc_open_mem_handle_memory_of_other_device_opens(shared: tuple[ModuleType, Peer]) -> None:
    hip, other = shared
    other.run("ok(hip.hipSetDevice(1))")
    handle = exported(other)
    pointer = ok(hip.hipIpcOpenMemHandle(handle, LAZY))  # device 0 is current
    near = ok(hip.hipMalloc(4096))
    ok(hip.hipMemcpyPeer(near, 0, pointer, 1, 4096))
    ok(hip.hipDeviceSynchronize())
    assert read(hip, near, 4096) == pattern(4096)
    ok(hip.hipSetDevice(1))
    assert int(ok(hip.hipIpcOpenMemHandle(handle, LAZY))) == int(pointer)


def test_hip_ipc_open_mem_handle_unreachable_device_returns_invalid_device_pointer(hip_on: Enter) -> None:
    node = spec("far", "devices=4,switch=2,memory=16MiB")
    hip = hip_on(node)
    with hip_peer(node) as other:
        other.run("ok(hip.hipSetDevice(2))")
        handle = exported(other)
        assert code(hip.hipIpcOpenMemHandle(handle, LAZY)) == "hipErrorInvalidDevicePointer"
        ok(hip.hipSetDevice(3))
        ok(hip.hipIpcOpenMemHandle(handle, LAZY))


def test_hip_ipc_open_mem_handle_every_reachable_device_opens(hip_on: Enter) -> None:
    node = spec("all", "devices=3,memory=16MiB")
    hip = hip_on(node)
    with hip_peer(node) as other:
        for owner in range(3):
            other.run(f"ok(hip.hipSetDevice({owner}))")
            handle = exported(other)
            for device in range(3):
                if not ok(hip.hipDeviceCanAccessPeer(device, owner)):
                    continue
                ok(hip.hipSetDevice(device))
                pointer, copy = ok(hip.hipIpcOpenMemHandle(handle, LAZY)), ok(hip.hipMalloc(4096))
                ok(hip.hipMemcpy(copy, pointer, 4096, hip.hipMemcpyKind(3)))
                ok(hip.hipDeviceSynchronize())
                assert read(hip, copy, 4096) == pattern(4096)
                ok(hip.hipIpcCloseMemHandle(pointer))


def test_hip_ipc_close_mem_handle_waits_for_queued_copy(shared: tuple[ModuleType, Peer]) -> None:
    hip, other = shared
    pointer = ok(hip.hipIpcOpenMemHandle(exported(other), LAZY))
    stream, copy = ok(hip.hipStreamCreate()), ok(hip.hipMalloc(4096))
    ok(hip.hipMemcpyAsync(copy, pointer, 4096, hip.hipMemcpyKind(4), stream))
    ok(hip.hipIpcCloseMemHandle(pointer))
    ok(hip.hipStreamSynchronize(stream))
    assert read(hip, copy, 4096) == pattern(4096)


def test_hip_device_reset_closes_opened_memory(shared: tuple[ModuleType, Peer]) -> None:
    hip, other = shared
    handle = exported(other)
    pointer = ok(hip.hipIpcOpenMemHandle(handle, LAZY))
    ok(hip.hipDeviceReset())
    assert code(hip.hipIpcCloseMemHandle(pointer)) == "hipErrorInvalidValue"
    assert code(hip.hipMemcpy(bytearray(1), pointer, 1, hip.hipMemcpyKind(4))) == "hipErrorInvalidValue"
    again = ok(hip.hipIpcOpenMemHandle(handle, LAZY))
    assert read(hip, again, 4096) == pattern(4096)


def test_hip_ipc_open_mem_handle_physical_handle_returns_invalid_device_pointer(
    shared: tuple[ModuleType, Peer],
) -> None:
    hip, other = shared
    handle = other.run(
        "physical = pl.Physical(pl.devices()[0], G); h = physical.export(allow='user'); result = bytes(h).hex()"
    )
    assert code(hip.hipIpcOpenMemHandle(bytes.fromhex(handle), LAZY)) == "hipErrorInvalidDevicePointer"


def test_hip_ipc_get_mem_handle_while_memory_is_viewed_returns_illegal_state(hip: ModuleType) -> None:
    array = ok(hip.hipMalloc(64))
    view = memoryview(array)
    assert code(hip.hipIpcGetMemHandle(array)) == "hipErrorIllegalState"
    view.release()
    del view
    ok(hip.hipIpcGetMemHandle(array))


def test_hip_ipc_get_mem_handle_1000_freed_allocations_are_forgotten(hip: ModuleType) -> None:
    from peerlane.dialects.hip.state import gpu

    for _ in range(1000):
        pointer = ok(hip.hipMalloc(64))
        ok(hip.hipIpcGetMemHandle(pointer))
        ok(hip.hipFree(pointer))
    assert gpu.ipc.exports < 200
