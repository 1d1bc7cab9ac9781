"""Rows of facts/hip 3.2 and 3.3 that no other test covers whole; `helpers.hip_rows` says where each row is."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.hip_client import code, done, held, on, read

Enter = Callable[..., ModuleType]
PAGE = 4096
PER_THREAD = 2
LINKS = ("devices=4,switch=2,memory=16MiB", "profile=mi300x", "profile=two-islands")

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("node", LINKS)
def test_hip_p2p_calls_agree_on_every_pair(hip_on: Enter, node: str) -> None:
    hip = hip_on(node)
    attributes = hip.hipDeviceP2PAttr
    for src, dst in itertools.permutations(range(done(hip.hipGetDeviceCount())), 2):
        values = {
            each.name.removeprefix("hipDevP2PAttr"): done(hip.hipDeviceGetP2PAttribute(each, src, dst))
            for each in attributes
        }
        can = done(hip.hipDeviceCanAccessPeer(src, dst))
        kind, hops = done(hip.hipExtGetLinkTypeAndHopCount(src, dst))
        assert values["PerformanceRank"] == kind >= 0
        assert values["AccessSupported"] == can == values["HipArrayAccessSupported"]  # of one architecture
        assert values["NativeAtomicSupported"] in (0, 1)
        assert done(hip.hipExtGetLinkTypeAndHopCount(dst, src)) == (kind, hops)
        assert hops > 0


def test_hip_device_get_p2p_attribute_member_10_raises(hip: ModuleType) -> None:
    with pytest.raises(ValueError, match="10 is not a valid"):
        hip.hipDeviceP2PAttr(10)
    with pytest.raises(TypeError, match="must be of type '_hipDeviceP2PAttr__Base'"):
        hip.hipDeviceGetP2PAttribute(10, 0, 1)


@pytest.fixture
def three(hip_on: Enter) -> ModuleType:
    return hip_on("devices=3,memory=64MiB")


def stream_named(hip: ModuleType, name: str) -> Any:
    """Return a stream of the current device."""
    return {"null": lambda: None, "per thread": lambda: PER_THREAD}.get(
        name, lambda: done(hip.hipStreamCreate())
    )()


def sent(nbytes: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, nbytes, dtype=np.uint8)


@pytest.mark.parametrize("nbytes", [PAGE // 2, PAGE, 2 * PAGE])
@pytest.mark.parametrize("name", ["null", "per thread", "created"])
def test_hip_memcpy_peer_async_every_pair_and_size_copies_bytes(
    three: ModuleType, name: str, nbytes: int
) -> None:
    for number, (a, b) in enumerate(itertools.permutations(range(3), 2)):
        src, dst = on(three, a, nbytes), on(three, b, nbytes)
        data = sent(nbytes, number)
        done(three.hipMemcpyHtoD(src, data, nbytes))
        done(three.hipSetDevice(a))
        done(three.hipDeviceEnablePeerAccess(b, 0))
        stream = stream_named(three, name)
        done(three.hipMemcpyPeerAsync(dst, b, src, a, nbytes, stream))
        done(three.hipStreamSynchronize(stream))
        assert (read(three, dst, nbytes) == data).all()
        done(three.hipDeviceDisablePeerAccess(b))


@pytest.mark.parametrize("name", ["null", "per thread", "created"])
def test_hip_memcpy_peer_async_stream_of_third_device_copies_bytes(three: ModuleType, name: str) -> None:
    src, dst, data = on(three, 0, PAGE), on(three, 1, PAGE), sent(PAGE, 7)
    done(three.hipMemcpyHtoD(src, data, PAGE))
    done(three.hipSetDevice(2))
    stream = stream_named(three, name)
    done(three.hipMemcpyPeerAsync(dst, 1, src, 0, PAGE, stream))
    done(three.hipStreamSynchronize(stream))
    assert (read(three, dst, PAGE) == data).all()


@pytest.mark.parametrize("call", ["hipMemcpyPeerAsync", "hipMemcpyAsync", "hipMemcpyDtoDAsync"])
def test_hip_peer_copies_destroyed_stream_returns_context_is_destroyed(hip: ModuleType, call: str) -> None:
    src, dst = on(hip, 0, PAGE, 1), on(hip, 1, PAGE)
    stream = done(hip.hipStreamCreate())
    done(hip.hipStreamDestroy(stream))
    words = {
        "hipMemcpyPeerAsync": (dst, 1, src, 0, PAGE),
        "hipMemcpyAsync": (dst, src, PAGE, hip.hipMemcpyKind.hipMemcpyDefault),
        "hipMemcpyDtoDAsync": (dst, src, PAGE),
    }[call]
    result = getattr(hip, call)(*words, stream)
    assert (code(result), int(result[0])) == ("hipErrorContextIsDestroyed", 709)
    assert not read(hip, dst, PAGE).any()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_hip_memcpy_peer_does_not_wait_for_null_streams_of_both_devices(
    hip: ModuleType, asynchronous: bool
) -> None:
    src, dst = on(hip, 0, PAGE, 5), on(hip, 1, PAGE)
    done(hip.hipSetDevice(0))
    with held(0, 1):  # the null streams of both
        if asynchronous:
            done(hip.hipMemcpyPeerAsync(dst, 1, src, 0, PAGE, None))
        else:
            done(hip.hipMemcpyPeer(dst, 1, src, 0, PAGE))
        result = hip.hipStreamQuery(None)
        assert (code(result), int(result[0])) == ("hipErrorNotReady", 600)
    done(hip.hipStreamSynchronize(None))
    assert (read(hip, dst, PAGE) == 5).all()
