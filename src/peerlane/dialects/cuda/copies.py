"""Copies: of bytes and of boxes, at once, on a stream, and between two contexts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peerlane.dialects._shared.machine import Context
from peerlane.dialects.cuda.state import call, define, enums, gpu, invalid
from peerlane.dialects.gpu.copies import Copy, Side
from peerlane.dialects.gpu.streams import AnyStream
from peerlane.dialects.gpu.vendor import Reason

copies = gpu.copies
_TYPES = {number: name.removeprefix("CU_MEMORYTYPE_") for name, number in enums["CUmemorytype"].items()}
Description = Mapping[str, Any]


def _declare(names: tuple[str, ...], body: Callable[..., Any]) -> None:
    for each in names:
        define(each, body)


_declare(("cuMemcpy", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemcpyDtoD_v2"), copies.copy)
_declare(
    ("cuMemcpyAsync", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyDtoDAsync_v2"),
    lambda dst, src, nbytes, stream: copies.copy_async(stream, dst, src, nbytes),
)


@call
def cuMemcpyPeer(
    dstDevice: int, dstContext: Context, srcDevice: int, srcContext: Context, ByteCount: int
) -> None:
    copies.copy_peer(dstContext.device, srcContext.device, dstDevice, srcDevice, ByteCount)


@call
def cuMemcpyPeerAsync(
    dstDevice: int, dstContext: Context, srcDevice: int, srcContext: Context, ByteCount: int, hStream: int
) -> None:
    copies.copy_peer_async(hStream, dstDevice, srcDevice, ByteCount)


def _side(described: Description, end: str) -> Side:
    """Return one end of a CUDA_MEMCPY2D or CUDA_MEMCPY3D; arrays are refused."""
    kind = _TYPES.get(described[f"{end}MemoryType"], "")
    if kind == "ARRAY":
        raise gpu.vendor.refusal(
            Reason.UNSUPPORTED,
            f"{end} is an array of textures, which peerlane does not have",
            "copy pitched memory",
        )
    if not kind:
        raise invalid(f"{end}MemoryType is {described[f'{end}MemoryType']}", "pass a member of CUmemorytype")
    address = described[f"{end}Host"] if kind == "HOST" else described[f"{end}Device"]
    return Side(
        address,
        described[f"{end}Pitch"],
        described.get(f"{end}Height", 0),
        described[f"{end}XInBytes"],
        described[f"{end}Y"],
        described.get(f"{end}Z", 0),
        must_be_known=kind == "DEVICE",
    )


def box_of(described: Description) -> Copy | None:
    """Return the copy of a box; None if it has no bytes."""
    if not described:
        raise invalid("pCopy is NULL", "pass a description")
    extent = described["WidthInBytes"], described["Height"], described.get("Depth", 1)
    return copies.box(_side(described, "dst"), _side(described, "src"), extent) if all(extent) else None


def _now(described: Description) -> None:
    box = box_of(described)
    if box is not None:
        copies.move_now(box, box.ends)


def _queued(described: Description, stream: AnyStream) -> None:
    box = box_of(described)
    if box is not None:
        copies.move_async(stream, box)


_declare(("cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2", "cuMemcpy3D_v2"), _now)
_declare(("cuMemcpy2DAsync_v2", "cuMemcpy3DAsync_v2"), _queued)


@call
def cuMemcpy3DPeer(pCopy: Description) -> None:
    box = box_of(pCopy)
    if box is not None:
        to, source = (gpu.contexts.of(pCopy[f"{end}Context"]).device for end in ("dst", "src"))
        copies.move_peer(to, source, box)


@call
def cuMemcpy3DPeerAsync(pCopy: Description, hStream: AnyStream) -> None:
    box = box_of(pCopy)
    if box is not None:
        copies.move_peer_async(hStream, box)
