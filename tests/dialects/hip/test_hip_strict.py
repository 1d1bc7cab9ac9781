"""The access that copies between devices need with ``peer_copies=strict`` (facts/hip 3.8)."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from helpers.hip_client import code, done, on, read
from helpers.hip_memory import G, descriptions, hip_peer, location, mapped, spec
from peerlane.dialects.hip import explain

Enter = Callable[..., ModuleType]
N = 4096
STRICT = "peer_copies=strict"
REFUSED, COPIED = "hipErrorPeerAccessNotEnabled", "hipSuccess"

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def strict(hip_on: Enter) -> ModuleType:
    return hip_on(POLICY=STRICT)


def copied(hip: ModuleType, dst: Any, src: Any, nbytes: int = N) -> str:
    """Copy with every call that copies between two devices; return their code, which must be one."""
    kind = hip.hipMemcpyKind.hipMemcpyDefault
    box = hip.hipMemcpy3DPeerParms()
    for end, memory, device in (("dst", dst, 1), ("src", src, 0)):
        pitched = getattr(box, f"{end}Ptr")
        pitched.ptr, pitched.pitch, pitched.xsize, pitched.ysize = memory, 64, 64, 1
        setattr(box, f"{end}Device", device)
    box.extent.width, box.extent.height, box.extent.depth = 64, 1, 1
    outcomes = {
        code(hip.hipMemcpyPeer(dst, 1, src, 0, nbytes)),
        code(hip.hipMemcpyPeerAsync(dst, 1, src, 0, nbytes, None)),
        code(hip.hipMemcpy(dst, src, nbytes, kind)),
        code(hip.hipMemcpyAsync(dst, src, nbytes, kind, None)),
        code(hip.hipMemcpyWithStream(dst, src, nbytes, kind, None)),
        code(hip.hipMemcpyDtoD(dst, src, nbytes)),
        code(hip.hipMemcpy2D(dst, 64, src, 64, 64, 2, kind)),
        code(hip.hipMemcpy3DPeer(box)),
        code(hip.hipMemcpy3DPeerAsync(box, None)),
        code(hip.hipMemcpyBatchAsync([dst], [src], [nbytes], 1, None, None, 0, None, None)),
    }
    done(hip.hipDeviceSynchronize())
    assert len(outcomes) == 1, outcomes
    return outcomes.pop()


@pytest.mark.parametrize("current", [0, 1])
def test_hip_strict_copies_access_in_either_direction_suffices(strict: ModuleType, current: int) -> None:
    src, dst = on(strict, 0, N, 5), on(strict, 1, N)
    done(strict.hipSetDevice(current))
    assert copied(strict, dst, src) == REFUSED
    assert not read(strict, dst, N).any()
    done(strict.hipDeviceEnablePeerAccess(1 - current, 0))
    assert copied(strict, dst, src) == COPIED
    assert (read(strict, dst, N) == 5).all()


def test_hip_strict_copies_memory_decides_and_ids_do_not(strict: ModuleType) -> None:
    near, far = on(strict, 0, N, 5), on(strict, 0, N)
    done(strict.hipMemcpyPeer(far, 1, near, 0, N))
    assert code(strict.hipMemcpyPeer(on(strict, 1, N), 0, near, 0, N)) == REFUSED


@pytest.mark.parametrize(
    ("end", "rights", "expected"),
    [
        ("src", {"d0": "ReadWrite"}, REFUSED),
        ("src", {"d0": "ReadWrite", "d1": "Read"}, COPIED),
        ("src", {"d0": "ReadWrite", "d1": "ReadWrite"}, COPIED),
        ("dst", {"d1": "ReadWrite"}, REFUSED),
        ("dst", {"d1": "ReadWrite", "d0": "Read"}, REFUSED),
        ("dst", {"d1": "ReadWrite", "d0": "ReadWrite"}, COPIED),
    ],
)
def test_hip_strict_copies_mapped_memory_needs_its_access_rights(
    strict: ModuleType, end: str, rights: dict[str, str], expected: str
) -> None:
    home = 0 if end == "src" else 1
    memory, _ = mapped(strict, (home, G), access=rights)
    plain = on(strict, 1 - home, N, 7)
    src, dst = (memory, plain) if end == "src" else (plain, memory)
    assert copied(strict, dst, src) == expected


def test_hip_strict_copies_over_adjacent_mappings_need_access_to_each(strict: ModuleType) -> None:
    src, _ = mapped(strict, (1, G), (0, G), access={})
    done(strict.hipMemSetAccess(src, G, *descriptions(strict, d1="ReadWrite")))
    done(strict.hipMemSetAccess(src + G, G, *descriptions(strict, d0="ReadWrite")))
    dst = on(strict, 1, 2 * G)
    assert code(strict.hipMemcpy(dst, src, 2 * G, strict.hipMemcpyKind.hipMemcpyDefault)) == REFUSED
    assert code(strict.hipMemcpy(dst, src, G, strict.hipMemcpyKind.hipMemcpyDefault)) == COPIED
    done(strict.hipMemSetAccess(src + G, G, *descriptions(strict, d1="Read")))
    assert code(strict.hipMemcpy(dst, src, 2 * G, strict.hipMemcpyKind.hipMemcpyDefault)) == COPIED


@pytest.mark.parametrize("is_destroyed", [False, True])
@pytest.mark.parametrize(
    ("end", "rights", "expected"),
    [
        ("src", None, REFUSED),
        ("src", "Read", COPIED),
        ("dst", "Read", REFUSED),
        ("dst", "ReadWrite", COPIED),
    ],
)
def test_hip_strict_copies_pool_memory_needs_access_to_pool(
    strict: ModuleType, end: str, rights: str | None, expected: str, is_destroyed: bool
) -> None:
    home = 0 if end == "src" else 1
    properties = strict.hipMemPoolProps()
    properties.allocType = strict.hipMemAllocationType.hipMemAllocationTypePinned
    properties.location.type, properties.location.id = location(strict, home).type, home
    pool = done(strict.hipMemPoolCreate(properties))
    memory, plain = done(strict.hipMallocFromPoolAsync(N, pool, None)), on(strict, 1 - home, N, 7)
    if rights is not None:
        done(strict.hipMemPoolSetAccess(pool, *descriptions(strict, **{f"d{1 - home}": rights})))
    if is_destroyed:
        done(strict.hipMemPoolDestroy(pool))
    src, dst = (memory, plain) if end == "src" else (plain, memory)
    assert copied(strict, dst, src) == expected


GIVE = """
p = ok(hip.hipMalloc(4096)); write(p, b"7" * 4096)
result = bytes(ok(hip.hipIpcGetMemHandle(p)).reserved).hex()
"""


def test_hip_strict_copies_opened_memory_belongs_to_opening_device(hip_on: Enter) -> None:
    node = spec("strict")
    hip = hip_on(node, POLICY=STRICT)
    near = on(hip, 1, N)
    with hip_peer(node) as other:
        handle = bytes.fromhex(other.run(GIVE))
        done(hip.hipSetDevice(0))
        opened = done(hip.hipIpcOpenMemHandle(handle, hip.hipIpcMemLazyEnablePeerAccess))
        assert copied(hip, near, opened) == REFUSED
        assert "devices 1 and 0 have no peer access enabled" in explain()
        done(hip.hipSetDevice(1))
        assert int(done(hip.hipIpcOpenMemHandle(handle, hip.hipIpcMemLazyEnablePeerAccess))) == int(opened)
        assert copied(hip, near, opened) == COPIED
        assert (read(hip, near, N) == ord("7")).all()


def test_hip_strict_copies_message_uses_visible_ids(hip_on: Enter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "3,2")
    hip = hip_on("devices=4,memory=64MiB", POLICY=STRICT)
    assert copied(hip, on(hip, 1, N), on(hip, 0, N)) == REFUSED
    assert "call hipDeviceEnablePeerAccess for device 0 while device 1 is current" in explain()
