"""Inductor has no compiler for the device: ``torch.compile`` runs graphs by operations, AOTInductor is refused."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch

from peerlane.support import torch_name
from peerlane.support.module_code import call_after


def serve() -> None:
    """Let ``torch.compile`` take graphs with tensors of the device, and AOTInductor refuse them."""
    wrapper: Any = torch._TorchCompileInductorWrapper
    of_inductor = wrapper.__call__

    @functools.wraps(of_inductor)
    def compile_graph(self: Any, model_: Any, inputs_: Any, **options: Any) -> Any:
        if not _uses_device(model_):
            return of_inductor(self, model_, inputs_, **options)
        _warn(torch_name.name)
        return torch._dynamo.lookup_backend("aot_eager")(model_, inputs_)

    wrapper.__call__ = compile_graph
    call_after("torch._inductor.compile_fx", _refuse_ahead_of_time)


def keep_from_tracing() -> None:
    """Let graphs break at calls of peerlane: what they do depends on more than their tensors."""
    call_after("torch._dynamo.trace_rules", lambda rules: rules.add("peerlane"))


def _refuse_ahead_of_time(compiler: Any) -> None:
    of_torch = compiler.compile_fx_aot

    @functools.wraps(of_torch)
    def compile_fx_aot(model_: torch.fx.GraphModule, inputs_: Any, *arguments: Any, **options: Any) -> Any:
        tensors = [*torch.utils._pytree.tree_leaves(inputs_), *model_.state_dict().values()]
        if any(map(_is_on_device, tensors)):
            raise RuntimeError(
                f"AOTInductor has no compiler for the device {torch_name.name!r} of peerlane, and nothing was "
                "written: save the exported program with torch.export.save, or move it to the processor "
                "(torch.export.passes.move_to_device_pass)"
            )
        return of_torch(model_, inputs_, *arguments, **options)

    compiler.compile_fx_aot = compile_fx_aot


def _is_on_device(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.device.type == torch_name.name


def _uses_device(graph: torch.fx.GraphModule) -> bool:
    values = (node.meta.get("example_value") for node in graph.graph.nodes)
    flat = torch.utils._pytree.tree_leaves(list(values))
    return any(map(_is_on_device, flat))


@functools.cache
def _warn(device: str) -> None:
    warnings.warn(
        f"torch.compile: Inductor has no compiler for the device {device!r} of peerlane, so graphs with its tensors "
        "run by their operations, as with backend='aot_eager'. The results are those of the program that is not "
        "compiled; modes and options change nothing",
        RuntimeWarning,
        stacklevel=2,
    )
