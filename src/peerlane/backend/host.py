"""What native code does on the host, for every back-end; ``peerlane`` fills it in before anything else is imported.

The quick ways are tried first.  Those that take objects return False for what they do not recognise, and have done
nothing then; those that take addresses know the addresses of the host and of virtual devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: (destination, source) -> whether it was done
copy_memory: Callable[[Any, Any], bool]
#: (stream, destination, source) -> whether it was queued
submit_copy: Callable[[Any, Any, Any], bool]
#: (destination, source, number of the reduction) -> whether it was done
reduce_memory: Callable[[Any, Any, int], bool]
#: (stream, destination, source, number of the reduction) -> whether it was queued
submit_reduce: Callable[[Any, Any, Any, int], bool]
#: (stream or None, destinations, sources); TypeError for what it does not recognise
copy_batch: Callable[[Any, list[Any], list[Any]], None]
#: (destination, its pitch, source, its pitch, width, height); TypeError for what it does not recognise
copy_memory_2d: Callable[[Any, int, Any, int, int, int], None]
submit_copy_2d: Callable[[Any, Any, int, Any, int, int, int], None]
#: (destination, value, width); TypeError for what it does not recognise
fill_memory: Callable[[Any, int, int], None]
submit_fill: Callable[[Any, Any, int, int], None]

#: (destination, source, bytes, direct)
copy: Callable[..., None]
submit_copy_at: Callable[..., None]
copy_2d: Callable[..., None]
submit_copy_2d_at: Callable[..., None]
fill: Callable[..., None]
submit_fill_at: Callable[..., None]
reduce: Callable[..., None]
submit_reduce_at: Callable[..., None]
submit_write_value: Callable[[Any, int, int, int], None]
submit_wait_value: Callable[[Any, int, int, int, int, int, int, bool], None]
#: (stream or None, address, bytes, direct, the number of the only device or 0)
launch_descriptor: Callable[[Any, int, int, bool, int], None]
#: (the device's number in native code, base, bytes, allocation), None for pageable memory
locate: Callable[[int], tuple[int, int, int, int] | None]
#: an object that exports the bytes at an address
memory_at: Callable[[int, int], Any]

#: (address, bytes, read-only) of an object's contiguous buffer, None where it has none
buffer_of: Callable[[object], tuple[int, int, bool] | None]
#: base of classes that export the buffer of what their ``_exported()`` returns
Exporter: Any
#: what a DLPack capsule lends, None if it is none or was taken
take_tensor: Callable[[object], Any]
#: give freed blocks that are kept for reuse back to the system; their bytes
trim: Callable[[], int]
#: a number that no allocation of the process has
next_allocation: Callable[[], int]
#: refuse in a forked child of a process that had used devices
check_usable: Callable[[], None]
#: where host functions wait for the thread that makes them
CallbackQueue: Callable[[], Any]
