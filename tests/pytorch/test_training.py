"""DDP and FSDP2 on the processor: peerlane trains to gloo's weights."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.torch_ranks import Programs, needs_torch

torch: Any = needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(240)]

_TRAIN = """
def net():
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(20, 300), torch.nn.BatchNorm1d(300), torch.nn.ReLU(), torch.nn.Linear(300, 5)
    )

def train(model, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        torch.manual_seed(100 * rank + step)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(torch.randn(16, 20)), torch.randn(16, 5)).backward()
        optimizer.step()
"""

_DDP = (
    _TRAIN
    + """
model = torch.nn.parallel.DistributedDataParallel(net(), bucket_cap_mb=0.01, find_unused_parameters=True)
train(model, 10)
found["weights"] = [each.flatten().tolist() for each in model.state_dict().values()]
"""
)

_UNEVEN = (
    _TRAIN
    + """
model = torch.nn.parallel.DistributedDataParallel(net())
with model.join(divide_by_initial_world_size=False):
    train(model, 4 + 2 * rank)
found["weights"] = [each.flatten().tolist() for each in model.state_dict().values()]
"""
)

_FSDP2 = (
    _TRAIN
    + """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
mesh = init_device_mesh("cpu", (size,))
model = net()
for layer in (model[0], model[3]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
train(model, 10)
found["weights"] = [each.full_tensor().flatten().tolist() for each in model.parameters()]
"""
)


@pytest.mark.parametrize("program", [_DDP, _UNEVEN, _FSDP2], ids=["DDP", "uneven inputs", "FSDP2"])
def test_training_gives_the_weights_of_gloo(programs: Programs, program: str) -> None:
    ours = programs.run(program, size=3)
    theirs = programs.run(program, size=3, backend="gloo")
    mine = torch.cat([torch.tensor(each) for each in ours[0]["weights"]])
    other = torch.cat([torch.tensor(each) for each in theirs[0]["weights"]])
    assert mine.numel() > 7_000
    assert (mine - other).abs().max() < 1e-6
