"""Copies of the runtime: of bytes, rows and boxes, in many at once, and between two devices (facts/cuda 4.2, 4.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peerlane import Device
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.cuda.devices import FIGURES
from peerlane.dialects.cuda.runtime.table import call, same_as_driver, same_as_driver_in_12
from peerlane.dialects.cuda.state import gpu, machine
from peerlane.dialects.gpu.copies import Copy, Side
from peerlane.dialects.gpu.streams import AnyStream
from peerlane.dialects.gpu.vendor import Reason
from peerlane.support.libraries import binding

copies = gpu.copies
_KINDS = {
    number: name.removeprefix("cudaMemcpy")
    for name, number in binding("cudart")["enums"]["cudaMemcpyKind"].items()
}
_INVALID_DIRECTION = binding("cudart")["enums"]["cudaError_t"]["cudaErrorInvalidMemcpyDirection"]
_INVALID_PITCH = binding("cudart")["enums"]["cudaError_t"]["cudaErrorInvalidPitchValue"]
Fields = Mapping[str, Any]

same_as_driver(
    cudaMemcpyBatchAsync="cuMemcpyBatchAsync_v2",
    cudaMemcpy3DBatchAsync="cuMemcpy3DBatchAsync_v2",
    cudaMemcpyWithAttributesAsync="cuMemcpyWithAttributesAsync",
    cudaMemcpy3DWithAttributesAsync="cuMemcpy3DWithAttributesAsync",
)
same_as_driver_in_12(cudaMemcpyBatchAsync="cuMemcpyBatchAsync", cudaMemcpy3DBatchAsync="cuMemcpy3DBatchAsync")


def kind_of(number: int) -> str:
    """Return the name of a direction that has a device at an end, "" for the others.

    With unified addresses the direction follows from the addresses, and a wrong one is undefined (facts/cuda 4.2).
    """
    name = _KINDS.get(number)
    if name is None:
        valid = ", ".join(f"{each} {label}" for each, label in _KINDS.items())
        raise Refusal(_INVALID_DIRECTION, f"kind is {number}", f"pass one of {valid}")
    return f"cudaMemcpy{name}" if name in ("HostToDevice", "DeviceToHost", "DeviceToDevice") else ""


@call
def cudaMemcpy(dst: int, src: int, count: int, kind: int) -> None:
    copies.copy(dst, src, count, kind_of(kind))


@call
def cudaMemcpyAsync(dst: int, src: int, count: int, kind: int, stream: AnyStream) -> None:
    copies.copy_async(stream, dst, src, count, kind_of(kind))


@call
def cudaMemcpyPeer(dst: int, dstDevice: Device, src: int, srcDevice: Device, count: int) -> None:
    copies.copy_peer(dstDevice, srcDevice, dst, src, count)


@call
def cudaMemcpyPeerAsync(
    dst: int, dstDevice: Device, src: int, srcDevice: Device, count: int, stream: int
) -> None:
    copies.copy_peer_async(stream, dst, src, count)


def _rows(dst: Side, src: Side, width: int, height: int, kind: int) -> Copy | None:
    name = kind_of(kind)
    if not (width and height):
        return None
    _refuse_pitches(dst, src, width)
    return copies.box(dst, src, (width, height, 1), name)


def _refuse_pitches(dst: Side, src: Side, width: int) -> None:
    """Refuse a pitch that is less than the width, or more than any device takes (facts/cuda 4.2)."""
    most = FIGURES["MAX_PITCH"]
    for name, side in (("dst", dst), ("src", src)):
        if not width <= side.pitch <= most:
            raise Refusal(
                _INVALID_PITCH,
                f"the pitch of {name} is {side.pitch:,}, and the width is {width:,}",
                f"pass a pitch of at least the width and at most {most:,}",
            )


@call
def cudaMemcpy2D(dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int) -> None:
    _move_now(_rows(Side(dst, dpitch), Side(src, spitch), width, height, kind))


@call
def cudaMemcpy2DAsync(
    dst: int, dpitch: int, src: int, spitch: int, width: int, height: int, kind: int, stream: AnyStream
) -> None:
    _move_async(stream, _rows(Side(dst, dpitch), Side(src, spitch), width, height, kind))


def _move_now(box: Copy | None) -> None:
    if box is not None:
        copies.move_now(box, box.ends)


def _move_async(stream: AnyStream, box: Copy | None) -> None:
    if box is not None:
        copies.move_async(stream, box)


def _side(described: Fields, end: str) -> Side:
    if described[f"{end}Array"]:
        raise gpu.vendor.refusal(
            Reason.UNSUPPORTED,
            f"{end} is an array of textures, which peerlane does not have",
            "copy pitched memory",
        )
    pitched, at = described[f"{end}Ptr"], described[f"{end}Pos"]
    return Side(pitched["ptr"], pitched["pitch"], pitched["ysize"], at["x"], at["y"], at["z"])


def box_of(described: Fields, kind: str = "") -> Copy | None:
    """Return the copy of a cudaMemcpy3DParms or a cudaMemcpy3DPeerParms; None if it has no bytes."""
    if not described:
        raise gpu.vendor.invalid("p is NULL", "pass a description")
    extent = described["extent"]
    sizes = extent["width"], extent["height"], extent["depth"]
    return copies.box(_side(described, "dst"), _side(described, "src"), sizes, kind) if all(sizes) else None


def _described_kind(described: Fields) -> str:
    return kind_of(described["kind"]) if described else ""


@call
def cudaMemcpy3D(p: Fields) -> None:
    _move_now(box_of(p, _described_kind(p)))


@call
def cudaMemcpy3DAsync(p: Fields, stream: AnyStream) -> None:
    _move_async(stream, box_of(p, _described_kind(p)))


@call
def cudaMemcpy3DPeer(p: Fields) -> None:
    box = box_of(p)
    if box is not None:
        to, source = (machine.device_of(p[f"{end}Device"]) for end in ("dst", "src"))
        copies.move_peer(to, source, box)


@call
def cudaMemcpy3DPeerAsync(p: Fields, stream: AnyStream) -> None:
    box = box_of(p)
    for end in ("dst", "src"):
        machine.device_of(p[f"{end}Device"])
    if box is not None:
        copies.move_peer_async(stream, box)
