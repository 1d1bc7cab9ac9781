"""Calls by way of torch's dispatcher: modes see them, and tensors that wrap others call them on these.

``CommDebugMode`` counts collectives there.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from peerlane.torch import device_module
from peerlane.torch.device_calls import JoinedWork
from peerlane.torch.tensor_bytes import tensors_in, wraps_others

_called = threading.local()  # the works of the call in this thread; C++ would hand out a part of them


def has_wrappers(arguments: Sequence[Any]) -> bool:
    """Return whether a tensor wraps others, and torch can call it; it cannot without the extension."""
    return any(map(wraps_others, tensors_in(arguments))) and device_module.is_initialized()


def is_of_dispatcher(arguments: Sequence[Any]) -> bool:
    """Return whether a collective passes the dispatcher: in a mode, or with tensors that wrap others."""
    modes: int = torch._C._len_torch_dispatch_stack()
    return (modes > 0 and device_module.is_initialized()) or has_wrappers(arguments)


class Dispatched:
    """A process group of C++, whose calls are operations of torch, and which calls one of Python in the end.

    Parameters
    ----------
    group : ProcessGroup
        The one of Python.
    devices : sequence of device
        The kinds of devices whose tensors it takes.
    """

    def __init__(self, group: dist.ProcessGroup, devices: Sequence[torch.device]) -> None:
        rank, size = group.rank(), group.size()
        self._group = dist.ProcessGroup(rank, size)
        relay = device_module.extension().relay(rank, size, partial(_call, weakref.ref(group)))
        for device in devices:
            self._group._register_backend(device, dist.ProcessGroup.BackendType.CUSTOM, relay)

    def call(self, name: str, *arguments: Any) -> dist.Work:
        """Call a method; a mode or a tensor that makes no call of its own returns a work of torch."""
        outer, _called.works = getattr(_called, "works", None), []
        try:
            work = getattr(self._group, name)(*arguments)
            works = _called.works
        finally:
            _called.works = outer
        if len(works) < 2:
            return works[0] if works else work
        return JoinedWork(works)  # a tensor returns the work of one of those in it


def _call(group: weakref.ref[dist.ProcessGroup], name: str, *arguments: Any) -> dist.Work:
    work: dist.Work = getattr(group(), name)(*arguments)
    _called.works.append(work)
    return work
