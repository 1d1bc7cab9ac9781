"""Collectives by way of torch's dispatcher, where its modes see them: ``CommDebugMode`` counts collectives there."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from peerlane.torch import device_module

_called = threading.local()  # the work of the call in this thread; C++ would hand out a part of it


def has_modes() -> bool:
    """Return whether this thread is in a mode that sees operations; without the extension none sees collectives."""
    modes: int = torch._C._len_torch_dispatch_stack()
    return modes > 0 and device_module.is_initialized()


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
        """Call a method; a mode that makes no call of its own returns a work of torch."""
        _called.work = None
        work = getattr(self._group, name)(*arguments)
        own, _called.work = _called.work, None
        return work if own is None else own


def _call(group: weakref.ref[dist.ProcessGroup], name: str, *arguments: Any) -> dist.Work:
    _called.work = getattr(group(), name)(*arguments)
    return _called.work
