"""Peer access of HIP: the rows of facts/hip 3.1 and 3.2, and facts/hip 4."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

Enter = Callable[..., ModuleType]
APART = "devices=4,switch=2,memory=64MiB"


def code(result: tuple[Any, ...]) -> str:
    return str(result[0].name)


def test_hip_device_can_access_peer_same_switch_returns_1(hip: ModuleType) -> None:
    assert hip.hipDeviceCanAccessPeer(0, 1) == (hip.hipError_t.hipSuccess, 1)
    assert hip.hipDeviceCanAccessPeer(peerDeviceId=0, deviceId=1) == (hip.hipError_t.hipSuccess, 1)


def test_hip_device_can_access_peer_itself_returns_0(hip: ModuleType) -> None:
    assert hip.hipDeviceCanAccessPeer(1, 1) == (hip.hipError_t.hipSuccess, 0)


@pytest.mark.parametrize("pair", [(-1, 1), (2, 1), (0, -1), (0, 2)])
def test_hip_device_can_access_peer_invalid_id_returns_invalid_device(
    hip: ModuleType, pair: tuple[int, int]
) -> None:
    assert code(hip.hipDeviceCanAccessPeer(*pair)) == "hipErrorInvalidDevice"


def test_hip_device_can_access_peer_equal_invalid_ids_return_0(hip: ModuleType) -> None:
    assert hip.hipDeviceCanAccessPeer(99, 99) == (hip.hipError_t.hipSuccess, 0)
    assert hip.hipDeviceCanAccessPeer(1, 1) == (hip.hipError_t.hipSuccess, 0)


def test_hip_device_can_access_peer_other_switch_returns_0(hip_on: Enter) -> None:
    hip = hip_on(APART)
    assert hip.hipDeviceCanAccessPeer(0, 1)[1] == 1
    assert hip.hipDeviceCanAccessPeer(0, 2) == (hip.hipError_t.hipSuccess, 0)


def test_hip_device_enable_and_disable_peer_access_succeed(hip: ModuleType) -> None:
    assert hip.hipDeviceEnablePeerAccess(1, 0) == (hip.hipError_t.hipSuccess,)
    assert hip.hipDeviceDisablePeerAccess(1) == (hip.hipError_t.hipSuccess,)


@pytest.mark.parametrize("peer", [-1, 2])
def test_hip_device_enable_peer_access_invalid_id_returns_invalid_device(hip: ModuleType, peer: int) -> None:
    assert code(hip.hipDeviceEnablePeerAccess(peer, 0)) == "hipErrorInvalidDevice"
    assert code(hip.hipDeviceDisablePeerAccess(peer)) == "hipErrorInvalidDevice"


@pytest.mark.parametrize("peer", [0, 1, -1, 99])
def test_hip_device_enable_peer_access_bad_flags_return_invalid_value_for_any_id(
    hip: ModuleType, peer: int
) -> None:
    assert code(hip.hipDeviceEnablePeerAccess(peer, 0xFFFFFFFF)) == "hipErrorInvalidValue"


def test_hip_device_enable_peer_access_twice_returns_already_enabled(hip: ModuleType) -> None:
    assert code(hip.hipDeviceEnablePeerAccess(1, 0)) == "hipSuccess"
    assert code(hip.hipDeviceEnablePeerAccess(1, 0)) == "hipErrorPeerAccessAlreadyEnabled"
    assert int(hip.hipDeviceEnablePeerAccess(1, 0)[0]) == 704
    assert code(hip.hipDeviceDisablePeerAccess(1)) == "hipSuccess"  # the refused enables do not count


def test_hip_device_enable_peer_access_itself_or_unreachable_returns_invalid_device(hip_on: Enter) -> None:
    hip = hip_on(APART)
    for peer in (0, 2):
        assert code(hip.hipDeviceEnablePeerAccess(peer, 0)) == "hipErrorInvalidDevice"
        assert code(hip.hipDeviceDisablePeerAccess(peer)) == "hipErrorInvalidDevice"


def test_hip_device_disable_peer_access_never_enabled_returns_not_enabled(hip: ModuleType) -> None:
    assert hip.hipDeviceDisablePeerAccess(1) == (hip.hipError_t.hipErrorPeerAccessNotEnabled,)
    assert int(hip.hipDeviceDisablePeerAccess(1)[0]) == 705


def test_hip_device_disable_peer_access_twice_returns_not_enabled(hip: ModuleType) -> None:
    hip.hipDeviceEnablePeerAccess(1, 0)
    hip.hipDeviceDisablePeerAccess(1)
    assert code(hip.hipDeviceDisablePeerAccess(1)) == "hipErrorPeerAccessNotEnabled"


def test_hip_device_enable_peer_access_covers_one_direction_only(hip: ModuleType) -> None:
    hip.hipDeviceEnablePeerAccess(1, 0)
    hip.hipSetDevice(1)
    assert code(hip.hipDeviceDisablePeerAccess(0)) == "hipErrorPeerAccessNotEnabled"
    assert code(hip.hipDeviceEnablePeerAccess(0, 0)) == "hipSuccess"
    hip.hipSetDevice(0)
    assert code(hip.hipDeviceEnablePeerAccess(1, 0)) == "hipErrorPeerAccessAlreadyEnabled"


def test_hip_ctx_enable_peer_access_enables_nothing(hip: ModuleType) -> None:
    context = hip.hipCtxCreate(0, 1)[1]
    for _ in range(2):
        assert code(hip.hipCtxEnablePeerAccess(context, 7)) == "hipSuccess"
        assert code(hip.hipCtxDisablePeerAccess(None)) == "hipSuccess"
    hip.hipSetDevice(0)
    assert code(hip.hipDeviceDisablePeerAccess(1)) == "hipErrorPeerAccessNotEnabled"


def test_hip_device_reset_ends_peer_access(hip: ModuleType) -> None:
    hip.hipDeviceEnablePeerAccess(1, 0)
    assert code(hip.hipDeviceReset()) == "hipSuccess"
    assert code(hip.hipDeviceDisablePeerAccess(1)) == "hipErrorPeerAccessNotEnabled"
    assert code(hip.hipDeviceEnablePeerAccess(1, 0)) == "hipSuccess"


def test_hip_use_peer_non_unified_is_1(hip: ModuleType) -> None:
    assert hip.USE_PEER_NON_UNIFIED == 1


def test_hip_device_get_p2p_attribute_agrees_with_can_access_peer(hip_on: Enter) -> None:
    hip = hip_on(APART)
    attribute = hip.hipDeviceP2PAttr
    for src, dst in ((0, 1), (1, 0), (0, 2)):
        rank = hip.hipDeviceGetP2PAttribute(attribute.hipDevP2PAttrPerformanceRank, src, dst)
        assert code(rank) == "hipSuccess"
        assert rank[1] >= 0
        can = hip.hipDeviceCanAccessPeer(src, dst)[1]
        for member in ("AccessSupported", "NativeAtomicSupported", "HipArrayAccessSupported"):
            assert hip.hipDeviceGetP2PAttribute(attribute[f"hipDevP2PAttr{member}"], src, dst)[1] == can


@pytest.mark.parametrize("pair", [(-1, 1), (2, 1), (0, -1), (0, 2), (0, 0), (7, 7)])
def test_hip_device_get_p2p_attribute_invalid_pair_returns_invalid_device(
    hip: ModuleType, pair: tuple[int, int]
) -> None:
    attr = hip.hipDeviceP2PAttr.hipDevP2PAttrAccessSupported
    assert code(hip.hipDeviceGetP2PAttribute(attr, *pair)) == "hipErrorInvalidDevice"


def test_hip_device_get_p2p_attribute_int_for_member_raises_type_error(hip: ModuleType) -> None:
    with pytest.raises(TypeError, match="'attr' must be of type '_hipDeviceP2PAttr__Base'"):
        hip.hipDeviceGetP2PAttribute(1, 0, 1)


def test_hip_ext_get_link_type_and_hop_count_is_symmetric_and_of_profile(hip_on: Enter) -> None:
    hip = hip_on(APART)
    error, kind, hops = hip.hipExtGetLinkTypeAndHopCount(0, 2)
    assert (error.name, kind) == ("hipSuccess", 2)
    assert hops >= 1
    assert hip.hipExtGetLinkTypeAndHopCount(2, 0)[2] == hops
    assert hip_on("profile=mi300x").hipExtGetLinkTypeAndHopCount(0, 5)[1:] == (4, 1)


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        ((-1, 0), "hipErrorInvalidValue"),
        ((0, -1), "hipErrorInvalidValue"),
        ((-1, 2), "hipErrorInvalidValue"),
        ((1, 1), "hipErrorInvalidValue"),
        ((2, 0), "hipErrorInvalidDevice"),
        ((0, 2), "hipErrorInvalidDevice"),
    ],
)
def test_hip_ext_get_link_type_and_hop_count_invalid_pair_returns_documented_code(
    hip: ModuleType, pair: tuple[int, int], expected: str
) -> None:
    assert code(hip.hipExtGetLinkTypeAndHopCount(*pair)) == expected


def test_hip_device_can_access_peer_reach_is_that_of_profile(hip_on: Enter) -> None:
    hip = hip_on("profile=mi300x")
    assert hip.hipGetDeviceCount()[1] == 8
    assert {hip.hipDeviceCanAccessPeer(a, b)[1] for a in range(8) for b in range(8) if a != b} == {1}
    assert hip.hipGetDeviceProperties(3)[1].isLargeBar == 1
    hip = hip_on("profile=two-islands")
    reach = [[b for b in range(8) if hip.hipDeviceCanAccessPeer(a, b)[1]] for a in (0, 7)]
    assert reach == [[1, 2, 3], [4, 5, 6]]
    assert hip.hipGetDeviceProperties(3)[1].isLargeBar == 0


ACCESS = "hipDevP2PAttrAccessSupported"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("0", "hipErrorInvalidDevice"),
        ("1", "hipErrorInvalidDevice"),
        ("0,1", "hipSuccess"),
        ("0,1,-1", "hipSuccess"),
        ("-1,0", "hipErrorNoDevice"),
        ("0,-1", "hipErrorInvalidDevice"),
        ("0,-1,1", "hipErrorInvalidDevice"),
        ("2,1", "hipSuccess"),
    ],
)
@pytest.mark.parametrize("variable", ["HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
def test_hip_visible_devices_list_decides_code_of_pair_0_1(
    hip_on: Enter, monkeypatch: pytest.MonkeyPatch, variable: str, shown: str, expected: str
) -> None:
    monkeypatch.setenv(variable, shown)
    hip = hip_on("devices=3,memory=64MiB")
    assert code(hip.hipDeviceGetP2PAttribute(hip.hipDeviceP2PAttr[ACCESS], 0, 1)) == expected


def test_hip_visible_devices_id_beyond_node_shows_no_device(
    hip_on: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "2,1")
    hip = hip_on()
    assert code(hip.hipDeviceGetP2PAttribute(hip.hipDeviceP2PAttr[ACCESS], 0, 1)) == "hipErrorNoDevice"
    assert hip.hipGetDeviceCount() == (hip.hipError_t.hipErrorNoDevice, 0)
    assert code(hip.hipMalloc(64)) == "hipErrorNoDevice"


def test_hip_visible_devices_ids_are_positions_in_list(
    hip_on: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "3,1")
    hip = hip_on(APART)
    assert hip.hipGetDeviceCount()[1] == 2
    assert hip.hipGetDevice()[1] == 0
    assert [hip.hipDeviceGetPCIBusId(64, each)[1].decode() for each in (0, 1)] == [
        "0000:04:00.0",
        "0000:02:00.0",
    ]
    assert hip.hipDeviceGetByPCIBusId("0000:02:00.0")[1] == 1
    assert code(hip.hipDeviceGetByPCIBusId("0000:01:00.0")) == "hipErrorInvalidValue"
    assert hip.hipDeviceCanAccessPeer(0, 1)[1] == 0  # 3 and 1 are on two switches
    first = hip.hipMalloc(4096)[1]
    assert code(hip.hipSetDevice(1)) == "hipSuccess"
    assert code(hip.hipSetDevice(2)) == "hipErrorInvalidDevice"
    second, stream = hip.hipMalloc(4096)[1], hip.hipStreamCreate()[1]
    assert hip.hipGetDevice()[1] == hip.hipCtxGetDevice()[1] == hip.hipStreamGetDevice(stream)[1] == 1
    assert [hip.hipPointerGetAttributes(each)[1].device for each in (first, second)] == [0, 1]
    assert code(hip.hipMemcpyPeer(second, 1, first, 0, 4096)) == "hipSuccess"
    assert code(hip.hipMemcpyPeer(second, 3, first, 1, 4096)) == "hipErrorInvalidDevice"
    assert code(hip.hipDeviceSynchronize()) == "hipSuccess"


def test_hip_visible_devices_hip_list_indexes_rocr_list(
    hip_on: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "3,2,1")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "2,0")
    hip = hip_on(APART)
    assert [hip.hipGetDeviceProperties(each)[1].pciBusID for each in (0, 1)] == [2, 4]
