"""Memory of devices and of the host: allocated, pitched, managed, registered and filled."""

from __future__ import annotations

from peerlane.dialects.cuda.state import call, define, gpu, invalid, machine, refuse_flags
from peerlane.dialects.gpu.regions import Region
from peerlane.dialects.gpu.streams import AnyStream

memory = gpu.memory
_HOST_FLAGS, _REGISTER_FLAGS = 0x7, 0xF
_ATTACH = (1, 2)  # CU_MEM_ATTACH_GLOBAL, HOST
_ELEMENTS = (4, 8, 16)


def refuse_empty(nbytes: int) -> None:
    """Refuse 0 bytes."""
    if not nbytes:
        raise invalid("0 bytes are asked for", "ask for 1 or more")


@call
def cuMemGetInfo_v2() -> tuple[int, int]:
    device = machine.context().device
    return device.free_bytes, device.total_bytes


@call
def cuMemAlloc_v2(bytesize: int) -> int:
    refuse_empty(bytesize)
    return memory.allocate(bytesize)


@call
def cuMemAllocPitch_v2(WidthInBytes: int, Height: int, ElementSizeBytes: int) -> tuple[int, int]:
    refuse_empty(WidthInBytes * Height)
    if ElementSizeBytes not in _ELEMENTS:
        raise invalid(f"elements have {ElementSizeBytes} bytes", "pass 4, 8 or 16")
    return memory.allocate_rows(WidthInBytes, Height, 1)


@call
def cuMemFree_v2(dptr: int) -> None:
    memory.free(dptr, "cuMemFree")


@call
def cuMemGetAddressRange_v2(dptr: int) -> tuple[int, int]:
    region = gpu.attributes.allocation(dptr)
    return region.base, region.size


@call
def cuMemAllocHost_v2(bytesize: int) -> int:
    refuse_empty(bytesize)
    return memory.allocate_host(bytesize, 0)


@call
def cuMemHostAlloc(bytesize: int, Flags: int) -> int:
    refuse_empty(bytesize)
    refuse_flags(Flags, _HOST_FLAGS)
    return memory.allocate_host(bytesize, Flags)


@call
def cuMemFreeHost(p: int) -> None:
    if not p:
        raise invalid("the address is NULL", "pass what cuMemAllocHost returned")
    memory.free(p, "cuMemFreeHost", is_for_host=True)


def _host_region(p: int) -> Region:
    """Return the pinned, registered or managed memory at an address; refuse that of devices."""
    region = gpu.regions.required_at("p", p)
    if region.is_device:
        raise invalid(f"p is memory of a device: {machine.describe(p)}", "pass memory of the host")
    return region


@call
def cuMemHostGetDevicePointer_v2(p: int, Flags: int) -> int:
    refuse_flags(Flags)
    _host_region(p)
    return p


@call
def cuMemHostGetFlags(p: int) -> int:
    region = _host_region(p)
    if region.is_managed or region.is_registered:
        raise invalid("the memory was registered or is managed", "pass memory of cuMemHostAlloc")
    return region.flags


@call
def cuMemAllocManaged(bytesize: int, flags: int) -> int:
    refuse_empty(bytesize)
    if flags not in _ATTACH:
        raise invalid(f"flags are {flags:#x}", "pass CU_MEM_ATTACH_GLOBAL, 1, or CU_MEM_ATTACH_HOST, 2")
    return memory.allocate_host(bytesize, flags, is_managed=True)


def _register(p: int, bytesize: int, Flags: int) -> None:
    machine.context()
    refuse_flags(Flags, _REGISTER_FLAGS)
    if not p or not bytesize:
        raise invalid(f"{bytesize} bytes at {p:#x} are not memory", "pass memory of the host")
    memory.register(p, bytesize, Flags)


@call
def cuMemHostRegister_v2(p: int, bytesize: int, Flags: int) -> None:
    _register(p, bytesize, Flags)


@call
def cuMemHostUnregister(p: int) -> None:
    memory.unregister(p)


def _refuse_unaligned(name: str, value: int, width: int) -> None:
    if value % width:
        raise invalid(f"{name} is {value:#x}, no multiple of {width}", f"pass a multiple of {width}")


def _fills(width: int) -> None:
    """Declare the fills with elements of a width, with and without a stream."""
    bits = 8 * width

    def fill(dstDevice: int, value: int, N: int) -> None:
        _refuse_unaligned("dstDevice", dstDevice, width)
        memory.fill(None, dstDevice, value, N, width)

    def fill_async(dstDevice: int, value: int, N: int, hStream: AnyStream) -> None:
        _refuse_unaligned("dstDevice", dstDevice, width)
        memory.fill(hStream, dstDevice, value, N, width)

    def rows(dstDevice: int, dstPitch: int, value: int, Width: int, Height: int) -> None:
        _fill_rows(None, dstDevice, value, (Width, Height), (width, dstPitch))

    def rows_async(
        dstDevice: int, dstPitch: int, value: int, Width: int, Height: int, hStream: AnyStream
    ) -> None:
        _fill_rows(hStream, dstDevice, value, (Width, Height), (width, dstPitch))

    for name, body in (
        (f"cuMemsetD{bits}_v2", fill),
        (f"cuMemsetD{bits}Async", fill_async),
        (f"cuMemsetD2D{bits}_v2", rows),
        (f"cuMemsetD2D{bits}Async", rows_async),
    ):
        define(name, body)


def _fill_rows(
    stream: AnyStream | None, dst: int, value: int, extent: tuple[int, int], layout: tuple[int, int]
) -> None:
    (count, height), (width, pitch) = extent, layout
    _refuse_unaligned("dstDevice", dst, width)
    if height > 1:
        _refuse_unaligned("dstPitch", pitch, width)
    memory.fill_box(stream, dst, value, (count * width, height, 1), (width, pitch, height))


for _width in (1, 2, 4):
    _fills(_width)
