"""Every call of HIP's table, with live, ended and wild arguments: the page names every code that comes back."""

from __future__ import annotations

import ctypes
import random
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.each import for_each
from peerlane.dialects.hip import explain
from peerlane.dialects.hip.binding import facts
from peerlane.dialects.hip.binding.convention import is_compiler
from peerlane.dialects.hip.state import calls

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(240)]

Enter = Callable[..., ModuleType]
ROUNDS = 40
ALWAYS = {"hipSuccess", "hipErrorNotReady", "hipErrorOutOfMemory"}
# These calls wait for a word that no call writes here, or run an address as code.
NOT_DRAWN = {
    *("hipStreamWaitValue32", "hipStreamWaitValue64", "hipStreamBatchMemOp"),
    *("hipLaunchHostFunc", "hipLaunchHostFunc_spt", "hipStreamAddCallback", "hipStreamAddCallback_spt"),
}
# These calls end the objects that other calls use.
LAST = ("hipDeviceReset", "hipDevicePrimaryCtxReset")
FUNCTIONS = facts()["functions"]
INTS = {"int", "unsigned int", "uint32_t", "size_t", "uint64_t", "unsigned long long", "unsigned long"}


def documented(name: str, seen: frozenset[str] = frozenset()) -> set[str]:
    """Return the codes that a call's page names, with those of the calls that it refers to."""
    text = calls.table[name].facts.get("Refuses", "")
    codes = set(re.findall(r"hipError\w+", text))
    for other in re.findall(r"as `(\w+)`", text):
        if other not in seen:
            codes |= documented(other, seen | {name})
    if "the stream" in text:  # the page explains this phrase
        codes |= {"hipErrorContextIsDestroyed", "hipErrorInvalidHandle"}
    if any(kind == "Pointer" for _, kind in FUNCTIONS[name]["parameters"]):
        codes.add("hipErrorIllegalAddress")
    if "what its work failed with" in text or "what their work failed with" in text or "that work" in text:
        codes |= set(facts()["enums"]["hipError_t"]["members"])
    return codes


class Pool:
    """Arguments for every call: live and ended objects of every kind, and wild numbers."""

    def __init__(self, hip: ModuleType, draw: random.Random) -> None:
        self.hip, self.draw = hip, draw
        device = [hip.hipMalloc(4096)[1] for _ in range(2)]
        hip.hipSetDevice(1)
        device.append(hip.hipMalloc(4096)[1])
        far = hip.hipStreamCreate()[1]
        hip.hipSetDevice(0)
        freed = hip.hipMalloc(64)[1]
        hip.hipFree(freed)
        self.host = np.zeros(4096, np.uint8)
        self.addresses = [*device, int(device[0]) + 64, hip.hipHostMalloc(4096, 0)[1], self.host, freed, None]
        self.addresses += [
            0x10,
            1 << 40,
            1 << 62,
            (1 << 64) - 8,
            bytearray(16),
            ctypes.c_void_p(int(device[1])),
        ]
        ended = hip.hipStreamCreate()[1]
        getattr(hip, "hipStreamDestroy", lambda _: None)(ended)
        self.streams = [None, 0, 1, 2, hip.hipStreamCreate()[1], far, ended, 12345]
        self.numbers = [0, 1, 2, 3, 4, 8, 16, 64, 255, 4096, 4097, 2 << 20, (1 << 31) - 1]

    def number(self, kind: str) -> int:
        wild = (
            [-1, -2, 7] if kind == "int" else [1 << 31] if kind in ("unsigned int", "uint32_t") else [1 << 63]
        )
        return self.draw.choice([*self.numbers, *wild])

    def of(self, name: str, kind: str) -> Any:
        draw = self.draw
        if name in ("deviceId", "peerDeviceId", "device", "dev", "ordinal") or (
            "evice" in name and kind == "int"
        ):
            return draw.choice([0, 1, 0, 1, 2, -1])
        if kind in INTS:
            return self.number(kind)
        if kind == "float":
            return draw.choice([0.0, 1.5])
        if kind in facts()["enums"]:
            return draw.choice([*getattr(self.hip, kind)])
        if kind == "ihipStream_t":
            return draw.choice(self.streams)
        if kind == "CStr":
            return draw.choice([None, "", b"0000:01:00.0", "text"])
        if kind.startswith("ListOf"):
            return draw.choice([None, [], [1, 2]])
        described = facts()["structs"].get(kind)
        if described is not None and described["size"]:
            return draw.choice([None, getattr(self.hip, kind)()])
        return draw.choice([*self.addresses, *self.streams])


@for_each("name", [name for name in calls.table if name not in NOT_DRAWN and not is_compiler(name)])
def test_hip_table_calls_random_arguments_return_only_documented_codes(hip_on: Enter, name: str) -> None:
    hip = hip_on("devices=2,memory=64MiB")
    shape, seed = FUNCTIONS[name], random.SystemRandom().randrange(1 << 32)
    print(f"{name}: seed {seed}")
    pool = Pool(hip, random.Random(seed))
    allowed = ALWAYS | documented(name)
    for _ in range(ROUNDS if shape["parameters"] else 2):
        args = [pool.of(*parameter) for parameter in shape["parameters"]]
        try:
            result = getattr(hip, name)(*args)
        except (TypeError, OverflowError, ValueError, BufferError):  # not a valid argument
            continue
        assert type(result) is tuple, (name, args)
        assert isinstance(result[0], hip.hipError_t)
        older = facts()["older"]["parameters"].get(name)
        assert len(result) == 1 + len(shape["outputs"]) or older, (name, args, result)
        assert result[0].name in allowed, (name, args, result, explain())
    hip.hipDeviceReset()
