"""The two forms in which a process group is called: with lists and options, or with tensors and settings.

``group.allreduce([tensor], options)`` and ``group.allreduce(tensor, op, timeout)`` are one call.  torch.distributed
and C++ use the first form, DDP and programs the second one, too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Any

import torch
import torch.distributed as dist

from peerlane.torch.dispatched import is_of_dispatcher
from peerlane.torch.tensor_bytes import completed

_ROOT = Parameter("root", Parameter.POSITIONAL_OR_KEYWORD)
_OP, _TIMEOUT = (Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=None) for name in ("op", "timeout"))
_FIELDS = {"root": "rootRank", "op": "reduceOp", "timeout": "timeout"}

_Method = Callable[..., dist.Work]


def with_settings(options: type, *, lists: bool = True) -> Callable[[_Method], _Method]:
    """Let a method that takes options be called with settings instead: a root, a reduction, a time-out.

    Parameters
    ----------
    options : type
        Of the options, whose attributes decide which settings there are.
    lists : bool
        Whether the method takes a list in place of each tensor of the other form.
    """
    settings = Signature([each for each in (_ROOT, _OP, _TIMEOUT) if hasattr(options, _FIELDS[each.name])])

    def decorate(method: _Method) -> _Method:
        count = len(signature(method).parameters) - 2  # without the group and the options

        @functools.wraps(method)
        def call(group: dist.ProcessGroup, *arguments: Any, **named: Any) -> dist.Work:
            what, rest = tuple(map(completed, arguments[:count])), arguments[count:]
            opts = rest[0] if rest else named.get("opts")
            if isinstance(opts, options):
                return called(group, *what, opts)
            opts = options()
            is_of_tensors = any(isinstance(each, torch.Tensor) for each in what)
            if is_of_tensors or rest or named:
                for name, value in settings.bind(*rest, **named).arguments.items():
                    if value is not None:
                        setattr(opts, _FIELDS[name], value)
            if (
                is_of_tensors and lists
            ):  # without a list, as of a rank that is no root, there is none in the other form
                what = tuple([each] if isinstance(each, torch.Tensor) or each else [] for each in what)
            return called(group, *what, opts)

        def called(group: dist.ProcessGroup, *arguments: Any) -> dist.Work:
            if count and is_of_dispatcher(arguments):
                return group.dispatched.call(method.__name__, *arguments)
            return method(group, *arguments)

        return call

    return decorate
