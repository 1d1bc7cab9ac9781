"""The cost of one call that copies 8 bytes."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import peerlane as pl
from peerlane import dialects
from peerlane.cli.bench.copies import filled_pair, memmove
from peerlane.cli.bench.measure import PEERLANE, TIME, Contender, Figure, Skip, figure, interleaved, looped
from peerlane.cli.bench.plan import Plan
from peerlane.errors import DeviceFault

PEERLANE_ACL, PEERLANE_HIP = "peerlane acl", "peerlane hip"
CASE = "call copying 8 bytes"
_BYTES = 8
_NUMBER = 30_000
_DEVICE_TO_DEVICE = 3


def measure(plan: Plan, devices: Sequence[pl.Device]) -> tuple[list[Figure], list[Skip]]:
    """Time the neutral copy, the raw copy and the dialects' copies against ``ctypes.memmove``."""
    plan.show(CASE)
    skips: list[Skip] = []
    with ExitStack() as stack:
        dst, src = filled_pair(devices[0], devices[0], _BYTES, stack)
        reference = memmove(dst, src, _NUMBER)
        contenders = [
            reference,
            looped(PEERLANE, pl.copy, dst, src, number=_NUMBER),
            looped("peerlane raw", pl.raw.copy, dst.address, src.address, _BYTES, number=_NUMBER),
        ]
        try:
            contenders.append(_acl(stack))
        except ImportError as error:
            skips.append(Skip(f"{CASE}, acl dialect", f"cannot be imported: {error}"))
        contenders.append(_hip(stack))
        samples = interleaved(contenders, plan.rounds)
        names = [name for name in samples if name != reference.name]
        return [figure(samples, CASE, name, reference.name, TIME) for name in names], skips


def _acl(stack: ExitStack) -> Contender:
    """Return acl's memcpy between two allocations of acl."""
    dialects.install("acl", shadow_real=True)
    stack.callback(dialects.uninstall, "acl")
    acl = importlib.import_module("acl")
    _check(acl.init(""), "acl.init")
    stack.callback(acl.finalize)
    _check(acl.rt.set_device(0), "acl.rt.set_device")
    dst, src = _allocated(acl, stack), _allocated(acl, stack)
    return looped(PEERLANE_ACL, acl.rt.memcpy, dst, _BYTES, src, _BYTES, _DEVICE_TO_DEVICE, number=_NUMBER)


def _hip(stack: ExitStack) -> Contender:
    """Return hipMemcpy between two DeviceArrays, while nothing is queued before it."""
    from peerlane.dialects.hip import hip

    def allocated() -> Any:
        error, array = hip.hipMalloc(_BYTES)
        _check(error, "hipMalloc")
        stack.callback(hip.hipFree, array)
        return array

    dst, src = allocated(), allocated()
    _check(hip.hipDeviceSynchronize()[0], "hipDeviceSynchronize")
    kind = hip.hipMemcpyKind.hipMemcpyDeviceToDevice
    return looped(PEERLANE_HIP, hip.hipMemcpy, dst, src, _BYTES, kind, number=_NUMBER)


def _allocated(acl: Any, stack: ExitStack) -> int:
    address, code = acl.rt.malloc(_BYTES, 0)
    _check(code, "acl.rt.malloc")
    stack.callback(acl.rt.free, address)
    return int(address)


def _check(code: int, call: str) -> None:
    if code != 0:
        raise DeviceFault(f"{call} returned {code} while the bench was set up", call=call, code=code)
