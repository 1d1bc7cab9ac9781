"""``acl.rt``: host memory that a program registers, and attributes of pointers."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from helpers.acl_calls import Held, content, filled, in_thread, ok
from peerlane import as_buffer

pytestmark = pytest.mark.timeout(60)
PAGE = 4096
MAPPED, PINNED = 0x2, 0x10000000


class Pages:
    """Ordinary host memory of whole pages."""

    def __init__(self, size: int) -> None:
        self.bytes = mmap.mmap(-1, size)
        self.address = as_buffer(self.bytes).address


@pytest.fixture
def pages() -> Iterator[Pages]:
    yield Pages(4 * PAGE)


def test_acl_memcpy_async_registered_memory_is_read_when_stream_reaches_copy(
    acl: ModuleType, pages: Pages
) -> None:
    device, stream = filled(acl, PAGE, 0), ok(acl.rt.create_stream())
    assert ok(acl.rt.host_register(pages.address, 4 * PAGE, 0)) == pages.address
    held = Held(acl, stream)
    ok(acl.rt.memcpy_async(device, PAGE, pages.address + 8, PAGE, 1, stream))
    ok(acl.rt.memcpy2d_async(pages.address + 2 * PAGE, 64, device, 64, 16, 2, 2, stream))
    ok(acl.rt.memset_async(pages.address + 3 * PAGE, PAGE, 5, PAGE, stream))
    pages.bytes[8 : 8 + PAGE] = bytes([7]) * PAGE
    assert acl.rt.stream_query(stream) == (1, 0)
    held.release()
    ok(acl.rt.synchronize_stream(stream))
    assert content(acl, device, PAGE) == bytes([7]) * PAGE
    assert pages.bytes[2 * PAGE : 2 * PAGE + 80] == bytes([7]) * 16 + bytes(48) + bytes([7]) * 16
    assert pages.bytes[3 * PAGE :] == bytes([5]) * PAGE


def test_acl_memcpy_async_partly_registered_memory_completes_before_return(
    acl: ModuleType, pages: Pages
) -> None:
    device, stream = filled(acl, 4 * PAGE, 0), ok(acl.rt.create_stream())
    ok(acl.rt.host_register_v2(pages.address, PAGE, PINNED))
    for part in (PAGE + 1, 2 * PAGE):
        pages.bytes[:part] = bytes([part % 251]) * part
        ok(acl.rt.memcpy_async(device, 4 * PAGE, pages.address, part, 1, stream))
        pages.bytes[:part] = bytes(part)
        assert content(acl, device, part) == bytes([part % 251]) * part
    ok(acl.rt.host_unregister(pages.address))
    pages.bytes[:8] = b"ordinary"
    ok(acl.rt.memcpy_async(device, 8, pages.address, 8, 1, stream))
    pages.bytes[:8] = bytes(8)
    assert content(acl, device, 8) == b"ordinary"


def test_acl_memset_host_memory_succeeds_only_while_registered(acl: ModuleType, pages: Pages) -> None:
    assert acl.rt.memset(pages.address, 8, 1, 8) == 107000
    ok(acl.rt.host_register_v2(pages.address, PAGE, MAPPED))
    ok(acl.rt.memset(pages.address, PAGE, 1, PAGE))
    assert acl.rt.memset(pages.address, 2 * PAGE, 1, PAGE + 1) == 107000
    ok(acl.rt.host_unregister(pages.address))
    assert acl.rt.memset(pages.address, 8, 1, 8) == 107000
    assert pages.bytes[: PAGE + 1] == bytes([1]) * PAGE + b"\0"


@pytest.fixture
def file_of_pages(tmp_path: Path) -> Path:
    path = tmp_path / "pages"
    path.write_bytes(bytes(range(256)) * (2 * PAGE // 256))
    return path


@pytest.mark.parametrize("call", ["host_register", "host_register_v2"])
def test_acl_host_register_read_only_memory_returns_507899(
    acl: ModuleType, file_of_pages: Path, call: str
) -> None:
    register = getattr(acl.rt, call)
    with file_of_pages.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 2 * PAGE, access=mmap.ACCESS_READ)
    start = as_buffer(mapped).address
    for at, size in ((start, 2 * PAGE), (start, 1), (start + PAGE, PAGE)):
        result = register(at, size, MAPPED if call.endswith("v2") else 0)
        assert (result[-1] if isinstance(result, tuple) else result) == 507899
        assert "with rights r--" in acl.get_recent_err_msg()
    assert ok(acl.rt.pointer_get_attributes(start))["location"]["type"] == 2
    assert acl.rt.host_unregister(start) == 507911


def test_acl_host_register_range_with_read_only_page_returns_507899(acl: ModuleType, pages: Pages) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    protect = (ctypes.c_void_p(pages.address + 2 * PAGE), ctypes.c_size_t(PAGE))
    assert libc.mprotect(*protect, mmap.PROT_READ) == 0
    try:
        assert acl.rt.host_register(pages.address, 4 * PAGE, 0) == (0, 507899)
        ok(acl.rt.host_register(pages.address, 2 * PAGE, 0))
        ok(acl.rt.host_register(pages.address + 3 * PAGE, PAGE, 0))
    finally:
        assert libc.mprotect(*protect, mmap.PROT_READ | mmap.PROT_WRITE) == 0
    ok(acl.rt.host_register(pages.address + 2 * PAGE, PAGE, 0))


@pytest.mark.parametrize("access", [mmap.ACCESS_WRITE, mmap.ACCESS_COPY])
def test_acl_host_register_writable_file_mapping_succeeds(
    acl: ModuleType, file_of_pages: Path, access: int
) -> None:
    with file_of_pages.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 2 * PAGE, access=access)
    start = as_buffer(mapped).address
    assert ok(acl.rt.host_register(start, 2 * PAGE, 0)) == start
    ok(acl.rt.host_unregister(start))


def test_acl_host_register_unreadable_memory_rights_succeeds(
    acl: ModuleType, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hidden(*_: object, **__: object) -> str:
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", hidden)
    ok(acl.rt.host_register(pages.address, PAGE, 0))


@pytest.mark.parametrize(("start", "size"), [(1, 1), (0, 1), (2, 8), (0, 3 * PAGE), (1, PAGE)])
def test_acl_host_register_overlapping_range_returns_507910(
    acl: ModuleType, pages: Pages, start: int, size: int
) -> None:
    ok(acl.rt.host_register(pages.address + PAGE, PAGE + 16, 0))
    at = pages.address + start * PAGE
    assert acl.rt.host_register(at, size if start else max(size, PAGE + 1), 0) == (0, 507910)
    assert f"at {pages.address + PAGE:#x} are registered already" in acl.get_recent_err_msg()
    ok(acl.rt.host_register(pages.address, PAGE, 0))
    ok(acl.rt.host_register(pages.address + 3 * PAGE, PAGE, 0))


def test_acl_host_unregister_inside_range_or_twice_returns_507911(acl: ModuleType, pages: Pages) -> None:
    ok(acl.rt.host_register(pages.address, 2 * PAGE, 0))
    assert acl.rt.host_unregister(pages.address + PAGE) == 507911
    assert f"inside the 8,192 bytes registered at {pages.address:#x}" in acl.get_recent_err_msg()
    ok(acl.rt.host_unregister(pages.address))
    assert acl.rt.host_unregister(pages.address) == 507911


def test_acl_host_register_device_memory_returns_107000(acl: ModuleType) -> None:
    device, pinned = filled(acl, PAGE, 0), ok(acl.rt.malloc_host(PAGE))
    assert acl.rt.host_register(device - device % PAGE, PAGE, 0) == (0, 107000)
    assert "not all memory of the host" in acl.get_recent_err_msg()
    if not pinned % PAGE:
        assert ok(acl.rt.host_register(pinned, PAGE, 0)) == pinned


def test_acl_host_get_device_pointer_range_not_mapped_returns_507911(acl: ModuleType, pages: Pages) -> None:
    ok(acl.rt.host_register_v2(pages.address, PAGE, MAPPED | PINNED))
    ok(acl.rt.host_register_v2(pages.address + PAGE, PAGE, PINNED))
    assert ok(acl.rt.host_get_device_pointer(pages.address, 0)) == pages.address
    assert ok(acl.rt.host_get_device_pointer(pages.address + 5, 0)) == pages.address + 5
    for other in (PAGE, 2 * PAGE):
        assert acl.rt.host_get_device_pointer(pages.address + other, 0) == (0, 507911)


def test_acl_host_register_calls_in_thread_without_device_return_107002(
    acl: ModuleType, pages: Pages
) -> None:
    assert in_thread(acl.rt.host_register, pages.address, PAGE, 0) == (0, 107002)
    assert in_thread(acl.rt.host_register_v2, pages.address, PAGE, PINNED) == 107002
    ok(acl.rt.host_register(pages.address, PAGE, 0))
    assert in_thread(acl.rt.host_unregister, pages.address) == 107002
    assert in_thread(acl.rt.host_get_device_pointer, pages.address, 0) == (0, 107002)


def test_acl_host_register_outlives_reset_and_ends_with_node(
    acl: ModuleType, pages: Pages, enter: Callable[[str], ModuleType]
) -> None:
    ok(acl.rt.host_register(pages.address, PAGE, 0))
    ok(acl.rt.reset_device(0))
    ok(acl.finalize())
    ok(acl.rt.set_device(0))
    assert ok(acl.rt.pointer_get_attributes(pages.address))["location"]["type"] == 0
    acl = enter("devices=1,memory=64MiB")
    assert ok(acl.rt.pointer_get_attributes(pages.address))["location"]["type"] == 2


def test_acl_memcpy_async_registered_memory_unmapped_fails_at_synchronize(acl: ModuleType) -> None:
    array = np.empty(3 * PAGE, np.uint8)
    start = -(-array.ctypes.data // PAGE) * PAGE
    libc_pages = mmap.mmap(-1, PAGE)
    view = as_buffer(libc_pages)
    gone = view.address
    ok(acl.rt.host_register(gone, PAGE, 0))
    ok(acl.rt.host_register(start, PAGE, 0))
    device, stream = filled(acl, PAGE, 0), ok(acl.rt.create_stream())
    held = Held(acl, stream)
    ok(acl.rt.memcpy_async(device, PAGE, gone, PAGE, 1, stream))
    del view
    libc_pages.close()
    held.release()
    assert acl.rt.synchronize_stream(stream) == 107000


def test_acl_pointer_get_attributes_reports_location_of_each_memory_kind(
    acl: ModuleType, pages: Pages
) -> None:
    device, pinned = filled(acl, PAGE, 0), ok(acl.rt.malloc_host(PAGE))
    ok(acl.rt.set_device(1))
    other = filled(acl, PAGE, 0)

    def where(pointer: int) -> tuple[int, int, int]:
        attributes = ok(acl.rt.pointer_get_attributes(pointer))
        assert attributes["rsv"] == [0] * 4
        return attributes["location"]["type"], attributes["location"]["id"], attributes["page_size"]

    assert where(device + 9) == (1, 0, 2 << 20)
    assert where(other) == (1, 1, 2 << 20)
    assert where(pinned) == (0, 0, PAGE)
    assert where(pages.address) == (2, 0, PAGE)
    ok(acl.rt.host_register(pages.address, PAGE, 0))
    assert (where(pages.address), where(pages.address + PAGE)) == ((0, 0, PAGE), (2, 0, PAGE))
    ok(acl.rt.free(other))
    empty = {"location": {"id": 0, "type": 0}, "page_size": 0, "rsv": [0] * 4}
    assert acl.rt.pointer_get_attributes(other) == (empty, 107000)
    acl.rt.pointer_get_attributes(0)[0]["rsv"].append(1)
    assert acl.rt.pointer_get_attributes(0) == (empty, 100000)
