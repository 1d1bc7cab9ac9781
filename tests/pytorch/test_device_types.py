"""Queued operations whose kernel makes other types or sizes than torch's meta function says."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.torch_device import run_on_device
from helpers.torch_ranks import needs_torch

needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

_PROGRAM = """
    from torch.nn import functional as F

    def results(device):
        torch.manual_seed(0)
        short = torch.randn(200, 200).bfloat16().to(device)
        wide = torch.randn(200, 200).to(device)
        leaf = short.clone().requires_grad_()
        ids = torch.randint(0, 200, (600,)).to(device)

        def gradient(loss):
            leaf.grad = None
            loss.float().sum().backward()
            return leaf.grad

        yield "mse", gradient(F.mse_loss(leaf, wide))
        yield "soft margin", gradient(F.soft_margin_loss(leaf, wide.sign()))
        for name, layer in ("layer", torch.nn.LayerNorm(200)), ("batch", torch.nn.BatchNorm1d(200)):
            normed = layer.bfloat16().to(device)(short)
            normed.float().pow(2).sum().backward()
            yield f"{name} norm", normed
            yield f"{name} norm's gradient", layer.weight.grad
        for mode in ("sum", "mean", "max"):
            table = torch.randn(200, 300).to(device).requires_grad_()
            bags = F.embedding_bag(ids, table, torch.arange(0, 600, 4).to(device), mode=mode)
            bags.pow(2).sum().backward()
            yield f"{mode} of bags", bags
            yield f"{mode} of bags' gradient", table.grad
        edges = wide[0].sort().values
        for narrow in (False, True):
            yield f"places, narrow: {narrow}", torch.searchsorted(edges, wide[1], out_int32=narrow)
        eighths, scale = torch.full((16, 16), 0.5).to(device).to(torch.float8_e4m3fn), torch.ones(()).to(device)
        for type in (None, torch.bfloat16, torch.float32):
            yield f"scaled, {type}", torch._scaled_mm(eighths, eighths.t(), scale, scale, out_dtype=type)
        for frozen in (False, True):
            layer = torch.nn.LayerNorm(200).bfloat16().requires_grad_(not frozen).to(device)
            yield f"frozen layer norm: {frozen}", gradient(layer(leaf))
        yield "normal", torch.normal(short, wide.abs()) * 0
        yield "mixed", caught(torch.mm, short, wide)

    expected, actual = list(results("cpu")), list(results("peerlane:1"))
    for (name, on_host), (_, on_device) in zip(expected, actual, strict=True):
        if isinstance(on_host, torch.Tensor):
            on_device = on_device.cpu()
            found[name] = torch.equal(on_host, on_device) and on_host.dtype == on_device.dtype
        else:
            found[name] = on_host == on_device
"""


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:7"])
def test_results_have_the_types_and_sizes_of_the_kernel(tmp_path: Path, schedule: str) -> None:
    results = run_on_device(tmp_path, _PROGRAM, schedule=schedule)
    assert [name for name, is_alike in results.items() if not is_alike] == []
    assert len(results) == 21
