"""Memory and events that processes share by handles of 64 bytes (facts/cuda 4.9)."""

from __future__ import annotations

from typing import Any

from peerlane.dialects.cuda.state import call, gpu, invalid
from peerlane.dialects.gpu.events import GpuEvent

ipc = gpu.ipc
_LAZY_PEER_ACCESS = 1


@call
def cuIpcGetMemHandle(dptr: int) -> dict[str, list[int]]:
    return {"reserved": list(ipc.export(dptr)[0])}


def _key(handle: Any) -> bytes:
    return ipc.key("handle", bytes(handle["reserved"]))


def _open(handle: Any, Flags: int) -> int:
    if Flags != _LAZY_PEER_ACCESS:
        raise invalid(f"flags are {Flags:#x}", "pass CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1")
    return ipc.open(_key(handle))


@call
def cuIpcOpenMemHandle(handle: Any, Flags: int) -> int:
    return _open(handle, Flags)


@call
def cuIpcOpenMemHandle_v2(handle: Any, Flags: int) -> int:
    return _open(handle, Flags)


@call
def cuIpcCloseMemHandle(dptr: int) -> None:
    ipc.close(dptr, "cuIpcCloseMemHandle")


@call
def cuIpcGetEventHandle(event: GpuEvent) -> dict[str, list[int]]:
    return {"reserved": list(ipc.export_event(event))}


@call
def cuIpcOpenEventHandle(handle: Any) -> int:
    return ipc.open_event(_key(handle))
