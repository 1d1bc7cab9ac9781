"""The machine of CUDA's dialect, and its table of calls."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from peerlane import Device
from peerlane.dialects._shared.c_names import declarations_of
from peerlane.dialects._shared.call import Failure, Refusal
from peerlane.dialects._shared.environment import positions
from peerlane.dialects.cuda.codes import CODES, NAMES, STICKY
from peerlane.dialects.gpu.calls import HeaderCalls
from peerlane.dialects.gpu.gpu import Gpu
from peerlane.dialects.gpu.vendor import CallNames, Policy, Reason, Vendor
from peerlane.streams import callbacks
from peerlane.support.libraries import binding

LOG_FILE = "CUDA_LOG_FILE"
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_PREFIX = "GPU-"

#: The enumerators of each enumeration of the header.
enums: dict[str, dict[str, int]] = binding("cuda")["enums"]
codes = {reason: enums["CUresult"][f"CUDA_ERROR_{name}"] for reason, name in CODES.items()}
names_of_codes = {value: name for name, value in enums["CUresult"].items()}
#: By the beginning of a library's calls: the names of its codes.
code_names = {"cu": names_of_codes}


def uuid_text(device: Device) -> str:
    """Return a device's UUID as CUDA_VISIBLE_DEVICES and the vendor's tools write it."""
    digits = device.uuid.hex()
    return _PREFIX + "-".join(
        digits[first:last] for first, last in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
    )


def _code_name(call: str, code: int) -> str:
    starts = [start for start in code_names if call.startswith(start)]
    names = code_names[max(starts, key=len)] if starts else names_of_codes
    return names.get(code, str(code))


def visible(devices: Sequence[Device]) -> tuple[Device, ...]:
    """Return the devices that CUDA_VISIBLE_DEVICES lists, by number or by the beginning of a UUID, in its order.

    The list ends before its first entry that is not a device; a device that is listed twice makes it empty
    (facts/cuda 2.1).
    """
    text = os.environ.get(_VISIBLE)
    if text is None:
        return tuple(devices)

    def position_of(entry: str) -> int | None:
        entry = entry.strip()
        if entry.isdecimal():
            return int(entry)
        alike = [at for at, each in enumerate(devices) if uuid_text(each).startswith(entry)]
        return alike[0] if entry.startswith(_PREFIX) and len(alike) == 1 else None

    shown = list(positions(text, len(devices), position_of))
    return tuple(devices[at] for at in shown) if len(set(shown)) == len(shown) else ()


class _ThreadNames(threading.local):
    """The names of the library that this thread is in, where they differ from the driver's."""

    names: Mapping[str, str] = MappingProxyType({})


class _NamesOfLibrary(CallNames):
    def __getitem__(self, does: str) -> str:
        return thread_names.names.get(does) or super().__getitem__(does)


thread_names = _ThreadNames()
gpu = Gpu(
    Vendor(
        "CUDA",
        codes,
        _NamesOfLibrary(NAMES),
        Policy(
            needs_context=True,
            own_contexts=True,
            memcpy_peer="both",
            peer_current=True,
            cross_device="both",
            peer_streams="all",
            host_copies="waits",
            pool_access="own",
            pool_import="none",
            pool_pointers="shareable",
            register_again="refused",
            free_kind="own",
            free_of_pools="returns",
            stream_destroy="returns",
        ),
        visible=visible,
        hidden_by=_VISIBLE,
        sticky=STICKY,
        code_name=_code_name,
        address_types=frozenset(("CUdeviceptr",)),
    )
)
machine, explain = gpu.machine, gpu.failures.take


def report(failure: Failure) -> None:
    """Keep the message of a failed call, and write it where CUDA_LOG_FILE says: stdout, stderr or a file."""
    function = calls.declarations.functions.get(failure.call)
    if function is not None:
        failure = replace(failure, call=function.name_in_source)
    message = gpu.failures.record(failure)
    target = os.environ.get(LOG_FILE)
    if not target:
        return
    streams = {"stdout": sys.stdout, "stderr": sys.stderr}
    if target in streams:
        print(f"peerlane: {message}", file=streams[target], flush=True)
        return
    with contextlib.suppress(OSError), open(target, "a") as file:  # noqa: PTH123 - its import takes long
        print(f"peerlane: {message}", file=file)


#: What makes an object of a handle, by the handle's type.
kinds: dict[str, Callable[[int], Any]] = {
    "CUdevice": machine.device_of,
    "CUcontext": gpu.contexts.of,
    "CUstream": gpu.streams.of,
    "CUevent": gpu.events.of,
    "CUmemoryPool": gpu.pools.of,
    "CUgraph": gpu.graphs.of,
    "CUgraphNode": gpu.graphs.node,
    "CUgraphExec": gpu.graphs.executable,
    "CUuserObject": gpu.graphs.user_object,
}
calls = HeaderCalls(gpu.vendor, declarations_of("cuda"), kinds, report, gpu.unusable.reported)
#: The body of each call of the driver, which the runtime's calls use, too.
bodies: dict[str, Callable[..., Any]] = {}


class _Driver:
    """Whether the program has called cuInit in this process."""

    _process = 0

    @property
    def is_initialized(self) -> bool:
        """Whether it is; it stays so when the process forks."""
        return bool(self._process)

    @property
    def is_lost(self) -> bool:
        """Whether the parent of this process began before it forked: then there is no driver."""
        return self._process not in (0, os.getpid())

    def begin(self) -> None:
        """Begin, as cuInit does: a process whose parent did that before it forked has no driver.

        Host functions make no calls (facts/cuda 3.4).
        """
        if callbacks.runner.is_current:
            raise gpu.vendor.refusal(
                Reason.IN_HOST_FUNCTION,
                "a host function of a stream makes the call",
                "call from another thread, or behind the stream's work",
            )
        if not self._process:
            self._process = os.getpid()
        elif self.is_lost:
            raise gpu.vendor.refusal(
                Reason.NOT_INITIALIZED,
                f"process {self._process} began to use CUDA before it forked this one, where there is no driver",
                "start workers with multiprocessing's 'spawn', or fork before anything calls CUDA",
            )

    def end(self) -> None:
        """Forget that it began."""
        self._process = 0


driver = _Driver()


def define(name: str, body: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the body of a call of the driver."""
    bodies[name] = body
    return calls.define(name, body)


def call(body: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the body of the call of its name."""
    return define(body.__name__, body)


def invalid(cause: str, remedy: str) -> Refusal:
    """Return the refusal of an argument."""
    return gpu.vendor.invalid(cause, remedy)


def refuse_flags(flags: int, valid: int = 0) -> None:
    """Refuse bits that no flag of the call has."""
    if flags & ~valid:
        raise invalid(f"flags are {flags:#x}", f"pass bits of {valid:#x}" if valid else "pass 0")


#: What other libraries than the driver do then.
resets: list[Callable[[], None]] = []


#: Called before the dialect is reset: each ends what would outlive the node.
before_anew: list[Callable[[], object]] = []


def begin_anew() -> None:
    """Reset the dialect to the state of a new process."""
    for each in before_anew:
        each()
    driver.end()
    gpu.begin_anew()
    for reset in resets:
        reset()
