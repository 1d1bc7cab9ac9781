"""Probes: whether a call works, as ``HcommIsSupportHcclThreadAcquire()`` tells (facts/hcomm 0)."""

from __future__ import annotations

from collections.abc import Callable

from peerlane.dialects.hcomm import _refused
from peerlane.dialects.hcomm._state import hcomm


def probes() -> dict[str, Callable[[], bool]]:
    """Return a probe for each call that works, and for each that refuses."""
    works = dict.fromkeys(hcomm.functions("hcomm"), True)
    return {
        f"HcommIsSupport{name}": _probe(name, answer)
        for name, answer in (works | dict.fromkeys(_refused.names(), False)).items()
    }


def _probe(name: str, answer: bool) -> Callable[[], bool]:
    def probe() -> bool:
        return answer

    probe.__name__ = probe.__qualname__ = f"HcommIsSupport{name}"
    probe.__doc__ = f"Return whether {name} works: {answer}."
    return probe
