"""What programs say of managed memory, and what HIP tells of it (facts/hip 1.4)."""

from __future__ import annotations

import mmap
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.hip_client import code, done, on, read, write

pytestmark = pytest.mark.timeout(60)
PAGE = mmap.PAGESIZE
N = 4 * PAGE


def attribute(
    hip: ModuleType, memory: Any, name: str, start: int = 0, nbytes: int = N, room: int = 1
) -> list[int]:
    data = np.full(room, 99, np.int32)
    member = hip.hipMemRangeAttribute[f"hipMemRangeAttribute{name}"]
    done(hip.hipMemRangeGetAttribute(data, 4 * room, member, int(memory) + start, nbytes))
    return [int(each) for each in data]


def test_hip_mem_advise_and_prefetch_are_read_back(hip: ModuleType) -> None:
    advice = hip.hipMemoryAdvise
    memory = done(hip.hipMallocManaged(N, 1))
    assert attribute(hip, memory, "ReadMostly") == [0]
    assert attribute(hip, memory, "PreferredLocation") == [-2]
    assert attribute(hip, memory, "LastPrefetchLocation") == [-2]
    assert attribute(hip, memory, "AccessedBy", room=2) == [-2, -2]
    assert attribute(hip, memory, "CoherencyMode") == [0]

    done(hip.hipMemAdvise(memory, 2 * PAGE, advice.hipMemAdviseSetReadMostly, -5))  # the device id is ignored
    assert attribute(hip, memory, "ReadMostly", 0, 2 * PAGE) == [1]
    assert attribute(hip, memory, "ReadMostly") == [0]
    done(hip.hipMemAdvise(int(memory) + PAGE, PAGE, advice.hipMemAdviseUnsetReadMostly, 0))
    assert [attribute(hip, memory, "ReadMostly", at, PAGE) for at in (0, PAGE, PAGE // 2)] == [[1], [0], [0]]

    done(hip.hipMemAdvise(memory, N, advice.hipMemAdviseSetPreferredLocation, 1))
    assert attribute(hip, memory, "PreferredLocation") == [1]
    done(hip.hipMemAdvise(memory, 8, advice.hipMemAdviseSetPreferredLocation, -1))
    assert attribute(hip, memory, "PreferredLocation", 0, 8) == [-1]
    assert attribute(hip, memory, "PreferredLocation") == [-2]
    done(hip.hipMemAdvise(memory, N, advice.hipMemAdviseUnsetPreferredLocation, 0))
    assert attribute(hip, memory, "PreferredLocation", 100, 1) == [-2]

    for device in (-1, 1, 0):
        done(hip.hipMemAdvise(memory, N, advice.hipMemAdviseSetAccessedBy, device))
    assert attribute(hip, memory, "AccessedBy", room=4) == [0, 1, -1, -2]
    done(hip.hipMemAdvise(memory, 8, advice.hipMemAdviseUnsetAccessedBy, 1))
    assert attribute(hip, memory, "AccessedBy", room=2) == [0, -1]

    done(hip.hipMemAdvise(memory, 8, advice.hipMemAdviseSetCoarseGrain, 0))
    assert [attribute(hip, memory, "CoherencyMode", 0, each) for each in (8, N)] == [[1], [2]]
    done(hip.hipMemAdvise(memory, 8, advice.hipMemAdviseUnsetCoarseGrain, 0))
    assert attribute(hip, memory, "CoherencyMode") == [0]

    done(hip.hipMemPrefetchAsync(memory, N, 1, None))
    assert attribute(hip, memory, "LastPrefetchLocation") == [1]
    done(hip.hipMemPrefetchAsync(memory, N, -1, None))
    assert attribute(hip, memory, "LastPrefetchLocation") == [-1]
    done(hip.hipFree(memory))
    assert attribute(hip, done(hip.hipMallocManaged(N, 1)), "LastPrefetchLocation") == [-2]


@pytest.mark.parametrize(
    ("start", "nbytes", "pages"),
    [(PAGE // 4, PAGE // 2, 1), (PAGE // 2, PAGE, 2), (PAGE // 2, 2 * PAGE, 3), (PAGE, PAGE, 1)],
)
def test_hip_mem_advise_and_prefetch_hold_for_whole_pages(
    hip: ModuleType, start: int, nbytes: int, pages: int
) -> None:
    memory, first = done(hip.hipMallocManaged(N, 1)), start // PAGE * PAGE
    done(hip.hipMemAdvise(int(memory) + start, nbytes, hip.hipMemoryAdvise.hipMemAdviseSetAccessedBy, 1))
    done(hip.hipMemPrefetchAsync(int(memory) + start, nbytes, 1, None))
    for name in ("AccessedBy", "LastPrefetchLocation"):
        assert attribute(hip, memory, name, first, pages * PAGE) == [1]
        assert attribute(hip, memory, name, first, (pages + 1) * PAGE) == [-2]
        if first:
            assert attribute(hip, memory, name, first - 1, 2) == [-2]


def test_hip_mem_advise_and_prefetch_of_registered_memory_hold_until_it_is_unregistered(
    hip: ModuleType,
) -> None:
    memory = np.zeros(N, np.uint8).ctypes
    done(hip.hipHostRegister(memory.data, N, 0))
    done(hip.hipMemAdvise(memory.data, N, hip.hipMemoryAdvise.hipMemAdviseSetPreferredLocation, 1))
    done(hip.hipMemPrefetchAsync(memory.data, N, 0, None))
    assert attribute(hip, memory.data, "PreferredLocation") == [1]
    assert attribute(hip, memory.data, "LastPrefetchLocation") == [0]
    done(hip.hipHostUnregister(memory.data))
    done(hip.hipHostRegister(memory.data, N, 0))
    assert attribute(hip, memory.data, "PreferredLocation") == [-2]
    done(hip.hipHostUnregister(memory.data))


def test_hip_mem_range_coherency_mode_is_reported_for_memory_that_takes_no_advice(hip: ModuleType) -> None:
    fine, coarse = [0], [1]
    assert attribute(hip, on(hip, 0, N), "CoherencyMode") == coarse
    assert attribute(hip, done(hip.hipExtMallocWithFlags(N, 1)), "CoherencyMode") == fine
    assert attribute(hip, done(hip.hipHostMalloc(N, 0)), "CoherencyMode") == fine
    assert attribute(hip, done(hip.hipHostMalloc(N, 0x8000_0000)), "CoherencyMode") == coarse
    mode = hip.hipMemRangeAttribute.hipMemRangeAttributeCoherencyMode
    data = np.zeros(2, np.int32)
    assert code(hip.hipMemRangeGetAttribute(data, 8, mode, on(hip, 0, N), N)) == "hipErrorInvalidValue"
    assert code(hip.hipMemRangeGetAttribute(data, 4, mode, data, 4)) == "hipErrorInvalidValue"


def test_hip_mem_advise_v2_and_prefetch_v2_accept_locations(hip: ModuleType) -> None:
    kinds, advice = hip.hipMemLocationType, hip.hipMemoryAdvise
    memory = done(hip.hipMallocManaged(N, 1))
    device = hip.hipMemLocation(type=kinds.hipMemLocationTypeDevice, id=1)
    host = hip.hipMemLocation(type=kinds.hipMemLocationTypeHost, id=7)
    done(hip.hipMemPrefetchAsync_v2(memory, N, device, 0, None))
    assert attribute(hip, memory, "LastPrefetchLocation") == [1]
    done(hip.hipMemAdvise_v2(memory, N, advice.hipMemAdviseSetPreferredLocation, host))
    assert attribute(hip, memory, "PreferredLocation") == [-1]
    prefer = advice.hipMemAdviseSetPreferredLocation
    assert code(hip.hipMemPrefetchAsync_v2(memory, N, device, 1, None)) == "hipErrorInvalidValue"
    assert code(hip.hipMemPrefetchAsync_v2(memory, N, None, 0, None)) == "hipErrorInvalidValue"
    assert code(hip.hipMemAdvise_v2(memory, N, prefer, hip.hipMemLocation())) == "hipErrorInvalidValue"
    mostly = advice.hipMemAdviseSetReadMostly
    assert code(hip.hipMemAdvise_v2(memory, N, mostly, hip.hipMemLocation())) == "hipErrorInvalidValue"
    device.id = 2
    assert code(hip.hipMemAdvise_v2(memory, N, prefer, device)) == "hipErrorInvalidDevice"
    done(hip.hipMemAdvise_v2(memory, N, mostly, device))


def test_hip_managed_memory_calls_bad_arguments_return_documented_codes(hip: ModuleType) -> None:
    memory, plain = done(hip.hipMallocManaged(N, 1)), on(hip, 0, N)
    prefer = hip.hipMemoryAdvise.hipMemAdviseSetPreferredLocation
    mostly, data = hip.hipMemRangeAttribute.hipMemRangeAttributeReadMostly, np.zeros(2, np.int32)
    for pointer, nbytes in ((None, N), (memory, 0), (memory, N + 1), (int(memory) + 1, N)):
        assert code(hip.hipMemPrefetchAsync(pointer, nbytes, 0, None)) == "hipErrorInvalidValue"
        assert code(hip.hipMemAdvise(pointer, nbytes, prefer, 0)) == "hipErrorInvalidValue"
        assert code(hip.hipMemRangeGetAttribute(data, 4, mostly, pointer, nbytes)) == "hipErrorInvalidValue"
    for device in (2, -2):
        assert code(hip.hipMemPrefetchAsync(memory, N, device, None)) == "hipErrorInvalidDevice"
        assert code(hip.hipMemAdvise(memory, N, prefer, device)) == "hipErrorInvalidDevice"
    for other in (plain, data):
        assert code(hip.hipMemAdvise(other, 8, prefer, 0)) == "hipErrorInvalidValue"
        assert code(hip.hipMemRangeGetAttribute(data, 4, mostly, other, 8)) == "hipErrorInvalidValue"
    done(hip.hipMemPrefetchAsync(plain, N, 1, None))
    assert code(hip.hipMemPrefetchAsync(data, 8, 1, None)) == "hipErrorNotSupported"
    done(hip.hipMemPrefetchAsync(data, 8, -1, None))
    assert code(hip.hipMemPrefetchAsync(memory, N, 0, 77)) == "hipErrorContextIsDestroyed"
    for nbytes in (0, 3, 8):
        assert code(hip.hipMemRangeGetAttribute(data, nbytes, mostly, memory, N)) == "hipErrorInvalidValue"
    assert code(hip.hipMemRangeGetAttribute(None, 4, mostly, memory, N)) == "hipErrorInvalidValue"


def test_hip_mem_range_get_attributes_fills_values_and_refuses_bad_lists(hip: ModuleType) -> None:
    kinds = hip.hipMemRangeAttribute
    memory = done(hip.hipMallocManaged(N, 1))
    done(hip.hipMemAdvise(memory, N, hip.hipMemoryAdvise.hipMemAdviseSetAccessedBy, 1))
    one, many = np.full(1, 99, np.int32), np.full(2, 99, np.int32)
    members = [kinds.hipMemRangeAttributeReadMostly, kinds.hipMemRangeAttributeAccessedBy]
    done_ = hip.hipMemRangeGetAttributes([one, many], [4, 8], members, 2, memory, N)
    assert done_ == (hip.hipError_t.hipSuccess,)
    assert (one.tolist(), many.tolist()) == ([0], [1, -2])
    assert code(hip.hipMemRangeGetAttributes([one, many], [4, 8], members, 0, memory, N)) == (
        "hipErrorInvalidValue"
    )
    assert code(hip.hipMemRangeGetAttributes([None], [4], members, 1, memory, N)) == "hipErrorInvalidValue"
    assert code(hip.hipMemRangeGetAttributes(2, memory, N)) == "hipErrorNotSupported"
    assert code(hip.hipMemRangeGetAttributes(2, memory, 0)) == "hipErrorInvalidValue"


def prefetch(hip: ModuleType, pointers: list[Any], *targets: tuple[int, str, int], **others: Any) -> str:
    """Prefetch ranges of `N` bytes: from which range on, and where to."""
    locations = hip.hipMemLocation.allocate(len(targets))
    for at, (_, kind, device) in enumerate(targets):
        locations.set_type(at, hip.hipMemLocationType[f"hipMemLocationType{kind}"])
        locations.set_id(at, device)
    words: dict[str, Any] = {
        "dev_ptrs": pointers,
        "sizes": [N] * len(pointers),
        "count": len(pointers),
        "prefetch_locs": locations,
        "prefetch_loc_idxs": [first for first, _, _ in targets],
        "num_prefetch_locs": len(targets),
        "flags": 0,
        "stream": others.pop("stream") if "stream" in others else done(hip.hipStreamCreate()),
    }
    return code(hip.hipMemPrefetchBatchAsync(*{**words, **others}.values()))


def test_hip_mem_prefetch_batch_async_takes_the_location_of_the_last_index(hip: ModuleType) -> None:
    pointers = [done(hip.hipMallocManaged(N, 1)) for _ in range(5)]
    assert prefetch(hip, pointers, (0, "Device", 1), (2, "Host", 0), (4, "Device", 0)) == "hipSuccess"
    assert [attribute(hip, each, "LastPrefetchLocation") for each in pointers] == [[1], [1], [-1], [-1], [0]]


def test_hip_mem_prefetch_batch_async_bad_arguments_return_invalid_value_and_note_nothing(
    hip: ModuleType,
) -> None:
    one, two = (done(hip.hipMallocManaged(N, 1)) for _ in range(2))
    near, plain = (0, "Device", 0), np.zeros(N, np.uint8)
    done(hip.hipHostRegister(plain[:64].ctypes.data, 64, 0))
    for answer in (
        *(prefetch(hip, [one, two], near, **{name: None}) for name in ("dev_ptrs", "sizes", "prefetch_locs")),
        *(prefetch(hip, [one, two], near, **{name: 0}) for name in ("count", "num_prefetch_locs")),
        prefetch(hip, [one, two], near, prefetch_loc_idxs=None),
        prefetch(hip, [one, two], near, sizes=[N, N + 1]),
        prefetch(hip, [one, two], near, sizes=[N, 0]),
        prefetch(hip, [one, two], near, flags=1),
        prefetch(hip, [one, two], near, stream=None),
        prefetch(hip, [one, two], near, near, near),
        prefetch(hip, [one, two], (1, "Device", 0)),
        prefetch(hip, [one, two], near, near),
        prefetch(hip, [one, two], near, (2, "Device", 0)),
        prefetch(hip, [one, two], (0, "Device", -5)),
        prefetch(hip, [one, two], (0, "Device", 2)),
        *(prefetch(hip, [one, each], near) for each in (None, on(hip, 0, N), plain, plain[64:])),
    ):
        assert answer == "hipErrorInvalidValue"
    assert attribute(hip, one, "LastPrefetchLocation") == [-2]
    words = ([one], 1, hip.hipMemLocation(), 1, 0, done(hip.hipStreamCreate()))
    assert code(hip.hipMemPrefetchBatchAsync(*words)) == "hipErrorInvalidValue"
    done(hip.hipHostUnregister(plain.ctypes.data))


@pytest.mark.parametrize("call", ["hipMemDiscardBatchAsync", "hipDrvMemDiscardBatchAsync"])
def test_hip_mem_discard_batch_async_keeps_bytes_and_refuses_other_memory(hip: ModuleType, call: str) -> None:
    discard, stream = getattr(hip, call), done(hip.hipStreamCreate())
    one, plain = done(hip.hipMallocManaged(N, 1)), np.zeros(N, np.uint8)
    write(hip, one, bytes([7]) * N)
    assert discard([one, one], [N, 16], 2, 0, stream) == (hip.hipError_t.hipSuccess,)
    assert read(hip, one, N).tolist() == [7] * N
    for words in (
        (None, [N], 1, 0, stream),
        ([one], None, 1, 0, stream),
        ([one], [N], 0, 0, stream),
        ([one], [N], 1, 1, stream),
        ([one], [N], 1, 0, None),
        ([one, None], [N, N], 2, 0, stream),
        ([one, one], [N, 0], 2, 0, stream),
        ([one], [N + 1], 1, 0, stream),
        ([one], 1, 0, stream),
    ):
        assert code(discard(*words)) == "hipErrorInvalidValue"
    for other in (on(hip, 0, N), plain):
        assert code(discard([one, other], [N, N], 2, 0, stream)) == "hipErrorNotSupported"


def test_hip_stream_attach_mem_async_checks_memory_length_and_flags(hip: ModuleType) -> None:
    memory, stream = done(hip.hipMallocManaged(N, 1)), done(hip.hipStreamCreate())
    for flags in (1, 2, 4):
        done(hip.hipStreamAttachMemAsync(stream, memory, 0, flags))
    done(hip.hipStreamAttachMemAsync(None, memory, N, 1))
    for words in (
        (stream, None, 0, 1),
        (stream, np.zeros(8), 0, 1),
        (stream, memory, 0, 3),
        (stream, memory, 8, 1),
        (None, memory, 0, 4),
    ):
        assert code(hip.hipStreamAttachMemAsync(*words)) == "hipErrorInvalidValue"
    assert code(hip.hipStreamAttachMemAsync(77, memory, 0, 1)) == "hipErrorContextIsDestroyed"
