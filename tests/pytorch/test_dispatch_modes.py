"""Collectives under modes of torch's dispatcher, which see them as operations."""

from __future__ import annotations

import pytest

from helpers.torch_ranks import Programs, needs_torch

needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

_CALLS = """
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils._python_dispatch import TorchDispatchMode

def calls(device):
    def one(value=rank + 1.0, count=4):
        return torch.full((count,), value, device=device)

    def several(count=4):
        return [one(10.0 * rank + each, count) for each in range(size)]

    def into(call, changed, *arguments, **options):
        call(changed, *arguments, **options)
        return changed

    def at_root(call, own, parts):
        call(own, parts if rank == 0 else None)
        return own if call is dist.scatter else parts

    return {
        "broadcast_": lambda: into(dist.broadcast, one(), 1),
        "allreduce_": lambda: into(dist.all_reduce, one()),
        "allreduce_coalesced_": lambda: into(dist.all_reduce_coalesced, [one(), one(2.0)]),
        "reduce_": lambda: into(dist.reduce, one(), 0)[: 4 if rank == 0 else 0],
        "allgather_": lambda: into(dist.all_gather, several(), one()),
        "_allgather_base_": lambda: into(dist.all_gather_single, one(count=4 * size), one()),
        "gather_": lambda: at_root(dist.gather, one(), several()),
        "scatter_": lambda: at_root(dist.scatter, one(), several()),
        "reduce_scatter_": lambda: into(dist.reduce_scatter, one(), several()),
        "_reduce_scatter_base_": lambda: into(dist.reduce_scatter_single, one(), one(count=4 * size)),
        "alltoall_": lambda: into(dist.all_to_all, several(), several()),
        "alltoall_base_": lambda: into(dist.all_to_all_single, one(), one(), [2, 2], [2, 2]),
    }

def values(result):
    return torch.utils._pytree.tree_map(lambda each: each.tolist(), result)

def counted(call):
    with CommDebugMode() as mode:
        result = call()
    return values(result), {str(each): count for each, count in mode.get_comm_counts().items()}
"""


@pytest.mark.parametrize("kind", ["cpu", "peerlane"])
def test_each_collective_under_a_mode_is_counted_and_has_its_result(programs: Programs, kind: str) -> None:
    results = programs.run(
        f"device = torch.device({kind!r}, rank) if {kind!r} != 'cpu' else 'cpu'\n"
        + _CALLS
        + """
for name, call in calls(device).items():
    found[name] = values(call()), *counted(call)
with CommDebugMode() as mode:
    tensor = torch.full((4,), 1.0, device=device)
    work = dist.all_reduce(tensor, async_op=True)
    kind = type(work).__name__
    work.wait()
found["asynchronous"] = kind, tensor.tolist()
with CommDebugMode() as mode:
    found["refused"] = caught(dist.all_gather_single, torch.zeros(3, device=device), torch.zeros(2, device=device))
functional = dist._functional_collectives
with CommDebugMode() as mode:
    functional.all_reduce(torch.ones(4, device=device), "sum", dist.group.WORLD).sum().item()
found["functional"] = sum(mode.get_comm_counts().values())

class Blind(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))

def nested():
    with Blind(), Blind():
        return calls(device)["allreduce_"]()

found["nested"] = counted(nested)
"""
    )
    for each in results:
        ended, refused = each.pop("asynchronous"), each.pop("refused")
        assert ended == ["QueuedWork" if kind == "peerlane" else "Work", [2.0] * 4]
        assert refused[0] == "DistBackendError" and "it must have 2 times as many" in refused[1]
        assert each.pop("functional") == 1
        assert each.pop("nested") == [[3.0] * 4, {"c10d.allreduce_": 1}]
        assert len(each) == 12
        for name, (plain, result, counts) in each.items():
            assert result == plain and counts == {f"c10d.{name}": 1}, name


def test_fully_sharded_training_under_a_mode_has_its_communications_counted(programs: Programs) -> None:
    results = programs.run(
        _CALLS
        + """
from torch.distributed.fsdp import fully_shard
torch.manual_seed(3)
here = torch.device("peerlane", rank)
torch.accelerator.set_device_index(rank)
model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3))).to(here)
for layer in model:
    fully_shard(layer)
fully_shard(model)
with CommDebugMode() as forward:
    loss = model(torch.ones(2, 8, device=here)).sum()
with CommDebugMode() as backward:
    loss.backward()
found["forward"], found["backward"] = ({str(name): count for name, count in mode.get_comm_counts().items()}
                                       for mode in (forward, backward))
"""
    )
    for each in results:
        assert each["forward"] == {"c10d._allgather_base_": 3}
        assert each["backward"] == {"c10d._allgather_base_": 3, "c10d._reduce_scatter_base_": 3}


def test_collective_under_a_mode_has_its_result_without_the_device(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "")
    results = programs.run(_CALLS + "found['result'] = counted(calls('cpu')['allreduce_'])")
    for each in results:
        assert each["result"] == [[3.0] * 4, {}]
