"""Which devices HIP shows, by number and by UUID (facts/hip 3.2)."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from helpers.hip_client import code, done

pytestmark = pytest.mark.any_schedule

Enter = Callable[..., ModuleType]
NODE = "devices=4,switch=2,memory=64MiB"
HIP, CUDA, ROCR = "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
VARIABLES = (HIP, CUDA, ROCR)


@pytest.fixture
def shown(hip_on: Enter, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Return a function that sets variables and returns the node's numbers of the visible devices.

    In its texts ``{2}`` is the UUID of device 2, without ``GPU-``.
    """
    uuids = [done(hip_on(NODE).hipDeviceGetUuid(device)).bytes.decode() for device in range(4)]

    def shown(**variables: str) -> list[int]:
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, text in variables.items():
            monkeypatch.setenv(f"{name}_VISIBLE_DEVICES", text.format(*uuids))
        hip = hip_on(NODE)
        count = hip.hipGetDeviceCount()
        assert code(count) == ("hipSuccess" if count[1] else "hipErrorNoDevice")
        return [done(hip.hipGetDeviceProperties(device)).pciBusID - 1 for device in range(count[1])]

    return shown


def test_hip_device_get_uuid_is_16_hexadecimal_digits(hip: ModuleType) -> None:
    for device in (0, 1):
        uuid = done(hip.hipDeviceGetUuid(device)).bytes
        assert len(uuid) == 16
        assert uuid == f"{int(uuid, 16):016x}".encode() == done(hip.hipGetDeviceProperties(device)).uuid.bytes


@pytest.mark.parametrize("name", ["HIP", "CUDA", "ROCR"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GPU-{2}", [2]),
        ("GPU-{3},GPU-{0}", [3, 0]),
        ("0,GPU-{2}", [0, 2]),
        ("GPU-{1:.6}", [1]),
        ("GPU-{1},GPU-0000000000000000,2", [1]),
        ("GPU-{1}0,2", []),
        ("{1},2", []),
        ("7,0", []),
        ("1,-1,2", [1]),
        ("1,2x,3", [1]),
        ("1,,2", [1]),
    ],
)
def test_hip_visible_devices_list_shows_listed_devices(
    shown: Callable[..., list[int]], name: str, text: str, expected: list[int]
) -> None:
    assert shown(**{name: text}) == expected


@pytest.mark.parametrize(
    ("text", "by_hip", "by_the_runtime"),
    [
        ("", [0, 1, 2, 3], []),
        (" 1, 2", [], [1, 2]),
        ("1, 2", [1], [1, 2]),
        ("0x2,1", [], [2, 1]),
        ("gpu-{2}", [], [2]),
        ("GPU-", [0], []),
        ("0,GPU-{2},GPU-{0},1", [0, 2, 1], [0, 2]),
        ("1,1,3", [1, 3], [1]),
    ],
)
def test_hip_visible_devices_hip_and_rocr_read_some_lists_differently(
    shown: Callable[..., list[int]], text: str, by_hip: list[int], by_the_runtime: list[int]
) -> None:
    assert shown(HIP=text) == by_hip
    assert shown(ROCR=text) == by_the_runtime


def test_hip_visible_devices_hip_overrides_cuda_and_indexes_rocr(shown: Callable[..., list[int]]) -> None:
    assert shown(HIP="1", CUDA="2") == [1]
    assert shown(HIP="", CUDA="2") == [2]
    assert shown(ROCR="3,2,1", HIP="2,0") == [1, 3]
    assert shown(ROCR="3,GPU-{1}", HIP="GPU-{1},0") == [1, 3]
    assert shown(ROCR="3", HIP="GPU-{1}") == []
    assert shown(ROCR="", HIP="0") == []


@pytest.mark.parametrize(
    ("hidden", "free"), [("", 64), ("16", 48), ("63", 1), ("64", 64), ("-1", 64), ("x", 64)]
)
def test_hip_hidden_free_mem_is_not_counted_as_free(
    hip_on: Enter, monkeypatch: pytest.MonkeyPatch, hidden: str, free: int
) -> None:
    monkeypatch.setenv("HIP_HIDDEN_FREE_MEM", hidden)
    assert hip_on("devices=1,memory=64MiB").hipMemGetInfo()[1:] == (free << 20, 64 << 20)
