"""The module ``torch.peerlane``, in the shape of ``torch.cuda``: devices, streams, memory, random numbers."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from peerlane.backend import host
from peerlane.errors import Closed
from peerlane.node.device import before_leaving
from peerlane.streams.stream import Stream as PeerlaneStream
from peerlane.support import torch_name
from peerlane.torch import device_objects, extension_build

_loaded: Any = None
_refused: Exception | None = None


def init() -> None:
    """Compile the device if that was not done before, and load it; ``import peerlane.torch`` has done so.

    Raises
    ------
    RuntimeError
        It cannot be compiled here.
    """
    global _loaded, _refused
    if _loaded is not None:
        return
    if _refused is not None:
        raise _refused
    try:
        loaded = extension_build.load(as_cuda=torch_name.name == "cuda")
        loaded.start(host.device_calls(), device_objects)
    except extension_build.Unbuilt as error:
        _refused = error
        raise
    _loaded = loaded
    os.register_at_fork(after_in_child=_refuse_forked)
    atexit.register(_finish_gradients)
    before_leaving.append(loaded.end_queues)


def _refuse_forked() -> None:
    if is_in_bad_fork():
        extension().refuse_forked()


def _finish_gradients() -> None:
    """Let torch's threads for gradients free what needs Python, before Python ends."""
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has just ended
            if thread.joinpath("comm").read_text().startswith("pt_autograd_"):
                _loaded.finish_gradients()
                return


_lazy_init = init


def is_initialized() -> bool:
    """Return whether the device was loaded."""
    return _loaded is not None


def is_available() -> bool:
    """Return whether there is a device, and it is loaded."""
    return _loaded is not None and device_count() > 0


def is_in_bad_fork() -> bool:
    """Return whether the parent had used devices before the fork: torch neither seeds nor uses them then."""
    try:
        host.check_usable()
    except Closed:
        return True
    return False


_is_in_bad_fork = is_in_bad_fork  # as torch's libraries call it


def device_count() -> int:
    """Return the number of devices of the node."""
    return device_objects.count()


def current_device() -> int:
    """Return the number of the device that this thread uses."""
    return int(torch.accelerator.current_device_index())


def set_device(device: Any) -> None:
    """Let this thread use a device from now on."""
    torch.accelerator.set_device_index(_index(device))


class device(torch.accelerator.device_index):
    """Use a device within a ``with``."""

    def __init__(self, device: Any) -> None:
        super().__init__(_index(device))


def synchronize(device: Any = None) -> None:
    """Wait for all streams of a device."""
    torch.accelerator.synchronize(_index(device))


def current_stream(device: Any = None) -> torch.Stream:
    """Return the stream on which operations of this thread run."""
    return torch.accelerator.current_stream(_index(device))


def default_stream(device: Any = None) -> torch.Stream:
    """Return the stream on which operations run in threads that have chosen none."""
    index = _index(device)
    return torch.Stream(stream_id=0, device_index=index, device_type=int(current_stream(index).device_type))


def set_stream(stream: torch.Stream) -> None:
    """Run operations of this thread on a stream from now on."""
    torch.accelerator.set_stream(stream)


def stream(stream: torch.Stream) -> torch.Stream:
    """Return a ``with`` in which operations run on a stream."""
    return stream


class Stream(torch.Stream):
    """A stream of a device, the current one if none is named."""

    def __new__(cls, device: Any = None, priority: int = 0) -> Stream:
        stream: Stream = super().__new__(cls, torch.device(kind(), _index(device)), priority=priority)
        return stream


class Event(torch.Event):
    """An event of a device."""

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> Event:
        event: Event = super().__new__(cls, kind(), enable_timing=enable_timing)
        return event

    def __init__(self, enable_timing: bool = False, **_options: Any) -> None:
        self._is_timed = enable_timing

    def elapsed_time(self, end_event: Event) -> float:
        """Return the milliseconds from this event to another one; torch's own takes no subclass of its events."""
        return milliseconds_between(self, end_event)


def get_device_name(device: Any = None) -> str:
    """Return the name of peerlane's device."""
    return str(_peerlane_device(device).name)


def get_device_properties(device: Any = None) -> Any:
    """Return the facts of peerlane's device."""
    return _peerlane_device(device).info


def can_device_access_peer(device: Any, peer: Any) -> bool:
    """Return whether a device can have access to another one's memory."""
    return bool(_peerlane_device(device).can_access(_peerlane_device(peer)))


def _peerlane_device(device: Any) -> Any:
    return device_objects.present()[_index(device)]


def memory_stats(device: Any = None) -> dict[str, int]:
    """Return the statistics of the caching allocator, under the names of ``torch.cuda.memory_stats``."""
    return dict(torch.accelerator.memory_stats(_index(device)))


def memory_allocated(device: Any = None) -> int:
    """Return the bytes of tensors."""
    return int(torch.accelerator.memory_allocated(_index(device)))


def max_memory_allocated(device: Any = None) -> int:
    """Return the most bytes that tensors had at one time."""
    return int(torch.accelerator.max_memory_allocated(_index(device)))


def memory_reserved(device: Any = None) -> int:
    """Return the bytes that the caching allocator has of the device."""
    return int(torch.accelerator.memory_reserved(_index(device)))


def max_memory_reserved(device: Any = None) -> int:
    """Return the most bytes that the caching allocator had at one time."""
    return int(torch.accelerator.max_memory_reserved(_index(device)))


def reset_peak_memory_stats(device: Any = None) -> None:
    """Begin new peaks."""
    torch.accelerator.reset_peak_memory_stats(_index(device))


def memory_snapshot() -> list[dict[str, Any]]:
    """Return the caching allocator's segments and their blocks, in the form of ``torch.cuda.memory_snapshot``."""
    return [
        _segment(device, *each) for device in range(device_count()) for each in extension().snapshot(device)
    ]


def _segment(
    device: int,
    address: int,
    nbytes: int,
    stream: int,
    is_small: bool,
    blocks: list[tuple[int, int, int, str]],
) -> dict[str, Any]:
    names = ("address", "size", "requested_size", "state")
    shown = [{**dict(zip(names, each, strict=True)), "frames": []} for each in blocks]
    active = [each for each in shown if each["state"] != "inactive"]
    return {
        "device": device,
        "address": address,
        "total_size": nbytes,
        "allocated_size": sum(each["size"] for each in active if each["state"] == "active_allocated"),
        "active_size": sum(each["size"] for each in active),
        "requested_size": sum(each["requested_size"] for each in active),
        "stream": stream,
        "segment_type": "small" if is_small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": shown,
    }


def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Let this process reserve that part of a device's memory at most.

    Raises
    ------
    TypeError, ValueError
        ``fraction`` is no float from 0 to 1.
    """
    if not isinstance(fraction, float):
        raise TypeError(f"set_per_process_memory_fraction: fraction is {fraction!r}; it must be a float")
    if not 0 <= fraction <= 1:
        raise ValueError(f"set_per_process_memory_fraction: fraction is {fraction}; it must be from 0 to 1")
    index = _index(device)
    limit = int(mem_get_info(index)[1] * fraction) if fraction < 1 else sys.maxsize
    extension().set_memory_limit(index, limit)
    _fractions[index] = fraction


def get_per_process_memory_fraction(device: Any = None) -> float:
    """Return the part of a device's memory that this process may reserve."""
    return _fractions.get(_index(device), 1.0)


_fractions: dict[int, float] = {}


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Return the free bytes of the device, and all that it has."""
    return device_objects.memory_info(_index(device))


def collect_shared() -> None:
    """Free what was sent to other processes and none has any more."""
    device_objects.free_unused()


def empty_cache() -> None:
    """Return the memory that no tensor uses, here and in processes that have received it; waits for the streams."""
    collect_shared()
    torch.accelerator.empty_cache()


def manual_seed(seed: int) -> None:
    """Seed the generator of the current device."""
    default_generator(None).manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices."""
    for each in range(device_count()):
        default_generator(each).manual_seed(seed)


def seed() -> None:
    """Seed the generator of the current device with a number that nobody knows before."""
    default_generator(None).seed()


def seed_all() -> None:
    """Seed the generators of all devices with one number that nobody knows before."""
    seed()
    manual_seed_all(initial_seed())


def initial_seed() -> int:
    """Return the seed of the current device."""
    return int(default_generator(None).initial_seed())


def get_rng_state(device: Any = None) -> torch.Tensor:
    """Return the state of a device's generator."""
    return default_generator(device).get_state()


def set_rng_state(new_state: torch.Tensor, device: Any = None) -> None:
    """Restore the state of a device's generator."""
    default_generator(device).set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the states of all devices' generators."""
    return [get_rng_state(each) for each in range(device_count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Restore the states of all devices' generators."""
    for each, state in enumerate(new_states):
        set_rng_state(state, each)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the types that autocast may use."""
    return [torch.float16, torch.bfloat16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether tensors may be of ``torch.bfloat16``: the processor computes with them."""
    return True


def operation_modes() -> dict[str, str]:
    """Return how each operation runs: ``"queued"``, ``"waits"`` for its stream, or ``"view"``."""
    init()
    return dict(_loaded.modes())


def milliseconds_between(first: Any, last: Any) -> float:
    """Return the time between two events, which are over, of a subclass of ``torch.Event`` that has ``_is_timed``.

    Raises
    ------
    ValueError
        One has no timing, or was not recorded.
    RuntimeError
        One is not over.
    """
    both = (first, last)
    if not all(each._is_timed for each in both):
        raise ValueError("Both events must be created with argument 'enable_timing=True'.")
    if not all(each.event_id for each in both):
        raise ValueError("Both events must be recorded before calculating elapsed time.")
    if not all(each.query() for each in both):
        raise RuntimeError("Both events must be completed before calculating elapsed time.")
    return float(extension().elapsed_time(*(each.event_id for each in both)))


def sleep(nanoseconds: int, device: Any = None) -> None:
    """Keep the current stream of a device busy for a time: the operation that tests queue to make a stream late."""
    extension().sleep(_index(device), nanoseconds)


def own_stream(device: int) -> torch.Stream:
    """Return a new stream that torch hands out to nobody else; it never ends."""
    init()
    number = _loaded.own_stream(device)
    kind = int(torch.accelerator.current_stream(device).device_type)
    return torch.Stream(stream_id=number, device_index=device, device_type=kind)


def stream_of(stream: torch.Stream) -> PeerlaneStream:
    """Return peerlane's stream behind one of torch."""
    init()
    behind: PeerlaneStream = _loaded.stream_of(stream.device_index, stream.stream_id)[0]
    return behind


def is_settled(stream: torch.Stream) -> bool:
    """Return whether nothing is queued on a stream, and no failure waits for a report."""
    init()
    return bool(_loaded.stream_of(stream.device_index, stream.stream_id)[1])


def kind() -> str:
    """Return torch's name of the device: ``"peerlane"``, or a vendor's."""
    return torch_name.name


def extension() -> Any:
    """Return the extension, loaded."""
    init()
    return _loaded


def default_generator(device: Any = None) -> torch.Generator:
    """Return the generator of a device, which its operations use if they are passed none."""
    init()
    generator: torch.Generator = _loaded.default_generator(_index(device))
    return generator


def _index(device: Any) -> int:
    if isinstance(device, int):
        return device
    index = torch.device(device).index if device is not None else None
    return current_device() if index is None else index
