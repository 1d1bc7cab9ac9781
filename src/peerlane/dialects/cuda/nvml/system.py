"""NVML itself, the driver, and handles of devices."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peerlane import Device, devices
from peerlane.dialects._shared.call import Int32
from peerlane.dialects.cuda.code_texts import texts_of
from peerlane.dialects.cuda.devices import VERSION
from peerlane.dialects.cuda.hardware import bus_of
from peerlane.dialects.cuda.nvml.devices import serial_of
from peerlane.dialects.cuda.nvml.state import (
    call,
    calls,
    constants,
    enums,
    fitting,
    handle_of,
    initialized,
    invalid,
    refusal,
    versioned,
)
from peerlane.dialects.cuda.state import uuid_text

_text_of = texts_of(enums)["nvmlErrorString"]
_DRIVER = "615.71"
_BUS_ID = re.compile(r"(?:([0-9A-Fa-f]{1,8}):)?([0-9A-Fa-f]{1,2}):([0-9A-Fa-f]{1,2})(?:\.([0-7]))?")
_FLAGS = (
    constants["NVML_INIT_FLAG_NO_GPUS"]
    | constants["NVML_INIT_FLAG_NO_ATTACH"]
    | constants["NVML_INIT_FLAG_FORCE_INIT"]
)


def _begin() -> None:
    devices()
    initialized.count += 1


@call
def nvmlInit() -> None:
    _begin()


@call
def nvmlInit_v2() -> None:
    """Begin; every other call but ``nvmlErrorString`` is refused before.  The calls are counted (facts/cuda 7.1)."""
    _begin()


@call
def nvmlInitWithFlags(flags: int) -> None:
    if flags & ~_FLAGS:
        raise invalid(f"flags are {flags:#x}", f"pass bits of {_FLAGS:#x}")
    _begin()


@call
def nvmlShutdown() -> None:
    initialized.count -= 1


@calls.value("nvmlErrorString")
def nvmlErrorString(result: Int32) -> str:
    """Return words of our own: the name of the code, in small letters."""
    return _text_of(result)


@call
def nvmlSystemGetDriverVersion(length: int) -> str:
    return fitting(_DRIVER, length)


@call
def nvmlSystemGetNVMLVersion(length: int) -> str:
    return fitting(f"{VERSION // 1000}.{_DRIVER}", length)


@call
def nvmlSystemGetCudaDriverVersion() -> int:
    return VERSION


@call
def nvmlSystemGetCudaDriverVersion_v2() -> int:
    return VERSION


@call
def nvmlSystemGetDriverBranch(branchInfo: Any, length: int) -> dict[str, Any]:
    branch = fitting(f"r{_DRIVER.partition('.')[0]}_00", length)
    return versioned("nvmlSystemDriverBranchInfo_t", branchInfo, 1, branch=branch)


@call
def nvmlSystemGetProcessName(pid: int, length: int) -> str:
    """Return the program of a process, cut to the room for it."""
    if not length:
        raise invalid("there is room for 0 characters", "pass 1 or more")
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        raise refusal("NOT_FOUND", f"there is no process {pid}", "pass the pid of a process") from None
    return words[0].decode(errors="surrogateescape")


@call
def nvmlUnitGetCount() -> int:
    return 0


@call
def nvmlGetExcludedDeviceCount() -> int:
    return 0


@call
def nvmlDeviceGetCount() -> int:
    return len(devices())


@call
def nvmlDeviceGetCount_v2() -> int:
    """Return the number of the node's devices; CUDA_VISIBLE_DEVICES does not count (facts/cuda 7.1)."""
    return len(devices())


def _by_index(index: int) -> int:
    present = devices()
    if index >= len(present):
        raise invalid(f"index is {index}, and there are {len(present)} devices", "pass a smaller one")
    return handle_of(present[index])


@call
def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return _by_index(index)


@call
def nvmlDeviceGetHandleByIndex_v2(index: int) -> int:
    return _by_index(index)


def _text(value: Any) -> str:
    return bytes(value).decode(errors="replace")


def _first(text: str, what: str, matching: Callable[[Device], bool]) -> int:
    for each in devices():
        if matching(each):
            return handle_of(each)
    raise refusal("NOT_FOUND", f"no device has the {what} {text!r}", "pass what a device's own call gave")


@call
def nvmlDeviceGetHandleByUUID(uuid: Any) -> int:
    text = _text(uuid)
    wanted = text.lower().removeprefix("gpu-")
    return _first(text, "UUID", lambda each: uuid_text(each).lower().removeprefix("gpu-") == wanted)


@call
def nvmlDeviceGetHandleBySerial(serial: Any) -> int:
    text = _text(serial)
    return _first(text, "serial number", lambda each: serial_of(each) == text)


def _at_bus(value: Any) -> int:
    text = _text(value)
    match = _BUS_ID.fullmatch(text)
    if match is None:
        raise invalid(f"{text!r} is not a bus id", "pass a text like '00000000:01:00.0'")
    domain, bus, *rest = (int(part or "0", 16) for part in match.groups())
    return _first(text, "bus id", lambda each: bus_of(each) == (domain, bus) and not any(rest))


@call
def nvmlDeviceGetHandleByPciBusId(pciBusId: Any) -> int:
    return _at_bus(pciBusId)


@call
def nvmlDeviceGetHandleByPciBusId_v2(pciBusId: Any) -> int:
    return _at_bus(pciBusId)
