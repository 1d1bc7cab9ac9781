"""Which calls of the vendor work: the others answer HCCL_E_NOT_SUPPORT with a reason, and a probe says which ones.

``HcommIsSupportHcclThreadAcquire()`` is the probe of ``HcclThreadAcquire`` (facts/hcomm 0).
"""

from __future__ import annotations

from collections.abc import Callable

from peerlane.dialects.hcomm._codes import NOT_SUPPORT
from peerlane.dialects.hcomm._state import hcomm
from peerlane.dialects.hcomm.manifest import SUPPORTS
from peerlane.support.libraries import binding

_REASONS: dict[str, str] = binding("hcomm")["refused"]


def refused() -> dict[str, str]:
    """Return the reason of each call that refuses, by name."""
    served = hcomm.functions("hcomm")
    return {name: reason for name, reason in sorted(_REASONS.items()) if name not in served}


def refusing_calls() -> dict[str, object]:
    """Return a call for each name that refuses."""
    return {
        name: hcomm.refusing(
            f"hcomm.{name}", NOT_SUPPORT.refusal(reason, "docs/reference/hcomm.md lists what works")
        )
        for name, reason in refused().items()
    }


def probes() -> dict[str, Callable[[], bool]]:
    """Return a probe for each call that works, and for each that refuses."""
    works = dict.fromkeys(hcomm.functions("hcomm"), True) | dict.fromkeys(refused(), False)
    return {f"{SUPPORTS}{name}": _probe(name, answer) for name, answer in works.items()}


def _probe(name: str, answer: bool) -> Callable[[], bool]:
    def probe() -> bool:
        return answer

    probe.__name__ = probe.__qualname__ = f"{SUPPORTS}{name}"
    probe.__doc__ = f"Return whether {name} works: {answer}."
    return probe
