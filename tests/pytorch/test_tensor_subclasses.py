"""Collectives on tensors that wrap others: functional ones' results are taken, other wrappers pass them on."""

from __future__ import annotations

import pytest

from helpers.torch_ranks import Programs, needs_torch

needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

# Each rank makes the same tensors in the same order: to make one may be a collective itself.
_CALLS = """
import torch.distributed._functional_collectives as functional
from torch.testing._internal.two_tensor import TwoTensor
gloo = dist.new_group(backend="gloo")

def owed(value, device, group):
    return functional.all_reduce(torch.full((4,), value, device=device), "sum", group)

def two(value, device, group):
    return TwoTensor(*(torch.full((4,), each, device=device) for each in (value, 10 * value)))

def calls(made, device, group):
    def one(value=rank + 1.0):
        return made(value, device, group)

    def several():
        return [one(each + 1.0) for each in range(size)]

    def into(call, tensor, *arguments, **options):
        call(tensor, *arguments, group=group, **options)
        return tensor if isinstance(tensor, list) else [tensor]

    def passed(tensor):
        if rank == 0:
            dist.send(tensor, 1, group=group)
        else:
            dist.recv(tensor, 0, group=group)
        return [tensor]

    return {
        "all_reduce": lambda: into(dist.all_reduce, one()),
        "broadcast": lambda: into(dist.broadcast, one(), 0),
        "reduce": lambda: into(dist.reduce, one(), 0)[:rank == 0],
        "all_gather": lambda: into(dist.all_gather, several(), one()),
        "all_gather_single": lambda: into(dist.all_gather_single, torch.zeros(4 * size, device=device), one()),
        "gather": lambda: into(lambda parts, own, group: dist.gather(own, parts if rank == 0 else None, 0, group),
                               several(), one()),
        "scatter": lambda: into(lambda own, parts, group: dist.scatter(own, parts if rank == 0 else None, 0, group),
                                one(0.0), several()),
        "reduce_scatter": lambda: into(dist.reduce_scatter, one(0.0), several()),
        "all_to_all": lambda: into(dist.all_to_all, several(), several()),
        "all_to_all_single": lambda: into(dist.all_to_all_single, one(0.0), one()),
        "messages": lambda: passed(one()),
        "method": lambda: (one_ := one(), group.allreduce(one_).wait())[:1],
    }
"""


@pytest.mark.parametrize("device", ["cpu", "peerlane"])
def test_result_of_a_functional_collective_is_taken_as_by_gloo(programs: Programs, device: str) -> None:
    results = programs.run(
        _CALLS
        + f"""
here = torch.device("{device}", rank if "{device}" != "cpu" else None)
theirs, ours = (calls(owed, where, group) for where, group in (("cpu", gloo), (here, dist.group.WORLD)))
found["differing"] = [
    name for name in theirs if not all(map(torch.equal, theirs[name](), [each.cpu() for each in ours[name]()]))
]
found["count"] = len(theirs)
"""
    )
    for each in results:
        assert each["differing"] == [] and each["count"] == 12


@pytest.mark.parametrize("device", ["cpu", "peerlane"])
def test_tensor_that_wraps_others_passes_each_call_to_them(programs: Programs, device: str) -> None:
    results = programs.run(
        _CALLS
        + f"""
def plain(value, device, group):
    return torch.full((4,), value, device=device)

here = torch.device("{device}", rank if "{device}" != "cpu" else None)
both, ones, tens = (
    calls(made, here, dist.group.WORLD) for made in (two, plain, lambda value, *where: plain(10 * value, *where))
)
for name in both.keys() - {{"all_gather_single"}}:
    got = both[name]()
    found[name] = [[each.tolist() for each in part] for part in
                   ([each.a for each in got], ones[name](), [each.b for each in got], tens[name]())]
tensor = two(rank + 1.0, here, None)
work = dist.all_reduce(tensor, async_op=True)
found["future"] = len(work.get_future().wait())
work.wait()
found["asynchronous"] = [tensor.a.tolist(), tensor.b.tolist()]
""",
    )
    for each in results:
        assert each.pop("future") == 2
        assert each.pop("asynchronous") == [[3.0] * 4, [30.0] * 4]
        assert len(each) == 11
        for name, (first, ones, second, tens) in each.items():
            assert first == ones and second == tens, name


def test_tensor_that_wraps_others_is_refused_by_its_name_without_the_device(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "")
    results = programs.run(
        _CALLS + "found['error'] = caught(calls(two, 'cpu', dist.group.WORLD)['all_reduce'])"
    )
    for each in results:
        assert each["error"][0] == "DistBackendError"
        assert "a TwoTensor has no bytes of its own" in each["error"][1]


@pytest.mark.parametrize("device", ["cpu", "peerlane"])
def test_shape_without_bytes_passes_each_call_and_reaches_no_rank(programs: Programs, device: str) -> None:
    results = programs.run(
        _CALLS
        + f"""
from torch._subclasses.fake_tensor import FakeTensorMode

def plain(value, device, group):
    return torch.full((4,), value, device=device)

here = torch.device("{device}", rank if "{device}" != "cpu" else None)

def shapes(where):
    found = {{name: call() for name, call in calls(plain, where, dist.group.WORLD).items()}}
    return {{name: [(list(each.shape), each.device.type) for each in tensors] for name, tensors in found.items()}}

with FakeTensorMode():
    fake = shapes(here)
    work = dist.all_reduce(torch.ones(4, device=here), async_op=True)
    work.wait()
meta = shapes(torch.device("meta"))
real = shapes(here)
found["fake"] = fake == real
found["meta"] = meta == {{name: [(shape, "meta") for shape, _ in each] for name, each in real.items()}}
found["sum"] = functional.all_reduce(torch.ones(4, device=here), "sum", dist.group.WORLD).tolist()
"""
    )
    for each in results:
        assert each == {"fake": True, "meta": True, "sum": [2.0] * 4}
