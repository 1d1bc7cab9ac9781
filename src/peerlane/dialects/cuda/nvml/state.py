"""The table of NVML's calls, its codes, and the handles of devices."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

from peerlane import Device, devices
from peerlane.dialects._shared.c_layout import Layout
from peerlane.dialects._shared.c_names import declarations_of
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.cuda.state import code_names, report, resets
from peerlane.dialects.gpu.calls import HeaderCalls
from peerlane.dialects.gpu.vendor import Policy, Reason, Vendor
from peerlane.errors import Fault
from peerlane.support.libraries import binding

_CODES: Mapping[Reason | Fault, str] = {
    Fault.INVALID_VALUE: "INVALID_ARGUMENT",
    Fault.UNSUPPORTED: "NOT_SUPPORTED",
    Fault.BAD_CONFIG: "DRIVER_NOT_LOADED",
    Fault.NODE_MISMATCH: "DRIVER_NOT_LOADED",
    Fault.OUT_OF_RESOURCES: "INSUFFICIENT_RESOURCES",
    Fault.OUT_OF_MEMORY: "MEMORY",
    Fault.FORKED: "UNINITIALIZED",
    Fault.CLOSED: "UNINITIALIZED",
    Fault.PROCESS_ENDING: "UNINITIALIZED",
}
_NAMES = {"device_count": "nvmlDeviceGetCount_v2", "reference": "docs/reference/cuda.md"}
_FIRST_HANDLE = 0x6E76_6D6C_0000  # no index, and no address

_table: dict[str, Any] = binding("nvml")
enums: Mapping[str, dict[str, int]] = _table["enums"]
constants: Mapping[str, int] = _table["constants"]
_codes = enums["nvmlReturn_t"]
declarations = declarations_of("cuda", "nvml")
_layout = Layout(declarations)
names_of_codes = code_names["nvml"] = {value: name for name, value in _codes.items()}


class _Initialized:
    """How many calls have initialized NVML and were not yet undone."""

    count = 0


initialized = _Initialized()
resets.append(lambda: vars(initialized).clear())


def code(name: str) -> int:
    """Return a code by its name behind ``NVML_ERROR_``."""
    return _codes[f"NVML_ERROR_{name}"]


def refusal(name: str, cause: str, remedy: str, *outputs: object) -> Refusal:
    """Return a refusal with a code by its name; ``outputs`` are written all the same."""
    return Refusal(code(name), cause, remedy, outputs)


def invalid(cause: str, remedy: str) -> Refusal:
    """Return the refusal of an argument."""
    return refusal("INVALID_ARGUMENT", cause, remedy)


def unsupported(cause: str) -> Refusal:
    """Return the refusal of what a device does not have."""
    return refusal("NOT_SUPPORTED", cause, "do without it")


def handle_of(device: Device) -> int:
    """Return the handle of a device."""
    return _FIRST_HANDLE + device.ordinal


def device_of(handle: int) -> Device:
    """Return the device of a handle."""
    present, number = devices(), handle - _FIRST_HANDLE
    if not 0 <= number < len(present):
        raise invalid(f"{handle:#x} is not a device", "pass what nvmlDeviceGetHandleByIndex_v2 gave")
    return present[number]


#: The event sets that the program has created.
event_sets: set[int] = set()
resets.append(event_sets.clear)


def event_set_of(handle: int) -> int:
    """Return an event set's own handle, if there is one."""
    if handle not in event_sets:
        raise invalid(f"{handle:#x} is not an event set", "pass what nvmlEventSetCreate gave")
    return handle


calls = HeaderCalls(
    Vendor(
        "NVML", {reason: _codes[f"NVML_ERROR_{name}"] for reason, name in _CODES.items()}, _NAMES, Policy()
    ),
    declarations,
    {"nvmlDevice_t": device_of, "nvmlEventSet_t": event_set_of},
    report,
)


def call(body: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the body of the call of its name."""
    return calls.define(body.__name__, body)


def fixed(name: str, *values: int) -> None:
    """Declare a call that returns the same for each device."""
    calls.define(name, lambda device: values if len(values) > 1 else values[0])


def fitting(text: str, length: int) -> str:
    """Return a text, if the program has room for it."""
    if len(text) >= length:
        raise refusal("INSUFFICIENT_SIZE", f"there is room for {length} characters", f"pass {len(text) + 1}")
    return text


def versioned(struct: str, values: Mapping[str, Any], version: int, **fields: Any) -> dict[str, Any]:
    """Return a struct with its version, which the program must have written into it."""
    wanted = version << 24 | ctypes.sizeof(_layout.struct(struct))
    if values["version"] != wanted:
        raise refusal(
            "ARGUMENT_VERSION_MISMATCH",
            f"the version is {values['version']:#x}",
            f"write {wanted:#x} into {struct}",
        )
    return {"version": wanted, **fields}
