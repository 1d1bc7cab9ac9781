"""Names of NumPy, PyTorch, CuPy and cuda.core, and what peerlane has for them."""

from __future__ import annotations

_ARRAY = "Device.allocate(nbytes), then Buffer.view(dtype, shape) or Buffer.tensor(dtype, shape)"
_NO_CURRENT = "device(i); peerlane has no current device, so calls are methods of a Device"
_NO_KERNELS = "Stream.launch_callback(function), on the host; virtual devices run no kernels"
_EXPORT = "Buffer.export(), and Buffer.open(handle) in the other process"

#: By class, or ``"peerlane"`` for the module: the other libraries' names, and what to write here.  ``name=`` is an
#: attribute that a program sets.
_NAMES: dict[str, tuple[tuple[str, str], ...]] = {
    "peerlane": (
        (
            "memcpy memcpy_async copyto copy_ memcpy_peer memcpyAsync memcpy_htod memcpy_dtoh memcpy_dtod",
            "copy(dst, src, stream=...)",
        ),
        ("memset memset_async full", "fill(buffer, value)"),
        (
            "allocate alloc malloc empty zeros ones tensor Tensor array ndarray arange DeviceMemoryResource",
            _ARRAY,
        ),
        ("asarray from_numpy frombuffer from_dlpack as_tensor", "as_buffer(array)"),
        ("cuda npu xpu hip", "device(i)"),
        ("device_count get_device_count num_devices is_available getDeviceCount System system", "devices()"),
        ("set_device current_device get_device use_device", _NO_CURRENT),
        ("synchronize device_synchronize sync", "Device.sync(), or Stream.sync()"),
        ("stream create_stream", "Device.create_stream()"),
        ("event create_event", "Device.create_event(), or Stream.record()"),
        ("current_stream default_stream", "StreamGroup(device).default, or Device.create_stream()"),
        ("mem_get_info memory_allocated", "Device.free_bytes and Device.total_bytes"),
        ("get_device_properties get_device_name", "Device.info"),
        ("can_device_access_peer", "Device.can_access(peer)"),
        ("empty_cache", "trim()"),
        ("distributed init_process_group Communicator", "Group(rank, size)"),
        ("Program Kernel launch LaunchConfig ElementwiseKernel RawKernel", _NO_KERNELS),
    ),
    "Device": (
        ("synchronize", "Device.sync()"),
        ("alloc malloc empty zeros memory_resource create_buffer create_tensor", "Device.allocate(nbytes)"),
        ("index device_id id", "Device.ordinal"),
        ("properties attributes get_device_properties", "Device.info"),
        ("mem_info mem_get_info", "Device.free_bytes and Device.total_bytes"),
        ("can_access_peer can_device_access_peer", "Device.can_access(peer)"),
        ("enable_peer_access peer_accessible_by", "Device.peers.add(peer)"),
        ("disable_peer_access", "Device.peers.discard(peer)"),
        ("Stream stream", "Device.create_stream()"),
        ("Event event", "Device.create_event()"),
        ("default_stream", "StreamGroup(device).default"),
        ("use set_current", "Device.allocate(nbytes) and the like; peerlane has no current device"),
    ),
    "Stream": (
        ("device=", "Device.create_stream(); a stream stays on its device"),
        ("synchronize", "Stream.sync()"),
        ("wait_event wait_stream", "Stream.wait(event_or_stream)"),
        ("record_event", "Stream.record()"),
        ("query done", "Stream.is_done"),
        ("add_callback launch_host_func launch call submit enqueue", "Stream.launch_callback(function)"),
        ("handle ptr cuda_stream", "Stream.id; a stream has no address"),
        ("memcpy memcpy_async copy", "copy(dst, src, stream=stream)"),
    ),
    "Event": (
        ("synchronize", "Event.sync()"),
        ("query done", "Event.is_done"),
        ("record", "Stream.record(event)"),
        ("wait", "Stream.wait(event), or Event.sync() to wait in the program"),
        ("elapsed_time", "Event.time_ns of both events, and subtract"),
        ("ipc_handle get_ipc_descriptor", "Event.export()"),
    ),
    "Buffer": (
        ("__setitem__", "Buffer.copy_from(src) and Buffer.fill(value), of a part too: buffer[0:4].fill(3)"),
        (
            "device=",
            "Device.allocate(nbytes) and copy(dst, src); memory stays on the device that it was allocated on",
        ),
        (
            "size= nbytes=",
            "AddressRange.map(physical) for memory that grows, and buffer[start:stop] for a part",
        ),
        ("__add__", "Buffer.view(dtype, shape), an array of NumPy, for arithmetic"),
        ("data_ptr ptr handle device_ptr", "Buffer.address"),
        ("numpy cpu get data tolist asnumpy", "Buffer.view(dtype, shape), or bytes(buffer)"),
        ("torch as_tensor to_dlpack", "Buffer.tensor(dtype, shape)"),
        ("shape dtype reshape astype strides", "Buffer.view(dtype, shape), which has them"),
        ("numel element_size itemsize ndim", "Buffer.nbytes; a buffer is bytes without a type"),
        ("copy_ set copy_from_host copy_to_device", "Buffer.copy_from(src)"),
        ("tobytes", "Buffer.view(dtype, shape), or bytes(buffer)"),
        ("to cuda copy_to_host copy clone memcpy", "Buffer.copy_to(dst)"),
        ("zero_ fill_ memset", "Buffer.fill(value)"),
        ("free release", "Buffer.close()"),
        ("get_device device_id", "Buffer.device"),
        ("get_ipc_descriptor ipc_descriptor ipc_handle share_memory_ from_ipc_descriptor", _EXPORT),
    ),
    "PeerSet": (("enable enable_access append", "Device.peers.add(peer)"),),
    "Group": (
        ("get_rank", "Group.rank"),
        ("get_world_size world_size", "Group.size"),
        ("allreduce Allreduce", "Group.all_reduce(dst, src, dtype=dtype)"),
        ("allgather Allgather all_gather_into_tensor", "Group.all_gather(dst, src)"),
        ("reduce_scatter_tensor Reduce_scatter", "Group.reduce_scatter(dst, src, dtype=dtype)"),
        ("alltoall Alltoall all_to_all_single", "Group.all_to_all(dst, src)"),
        ("isend Send", "Group.send(src, peer)"),
        ("irecv Recv", "Group.recv(dst, peer)"),
        ("Bcast bcast", "Group.broadcast(buffer, root)"),
    ),
}
MEANT = {
    (kind, name): meant for kind, rows in _NAMES.items() for names, meant in rows for name in names.split()
}


def meant_by(kind: str, name: str) -> str:
    """Return what an error says behind another library's name of a class or module; empty if it is not known."""
    meant = MEANT.get((kind, name))
    return f"peerlane has {meant}" if meant else ""
