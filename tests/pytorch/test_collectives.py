"""Each collective of ``torch.distributed`` on peerlane, against gloo in the same processes."""

from __future__ import annotations

import pytest

from helpers.torch_ranks import Programs, needs_torch

needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(240)]

# Small whole numbers: every type has them exactly, whatever the order of a sum.
_BOTH = """
gloo = dist.new_group(backend="gloo")
mine = dist.new_group(backend="peerlane")
TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32,
         torch.int64, torch.bool, torch.complex64, torch.complex128]
OPS = {name: getattr(dist.ReduceOp, name) for name in "SUM AVG PRODUCT MIN MAX BAND BOR BXOR".split()}

def made(dtype, *shape, at=0):
    numbers = torch.arange(torch.Size(shape).numel()).reshape(shape) * (rank + 1) + at
    return (numbers % 3).to(dtype)

def run(call, *tensors, group):
    own = [each.clone() if isinstance(each, torch.Tensor) else [one.clone() for one in each] for each in tensors]
    try:
        call(*own, group)
    except (RuntimeError, ValueError) as error:
        return "refused"
    flat = []
    for each in own:
        flat += [each] if isinstance(each, torch.Tensor) else each
    return [bool_bytes(each) for each in flat]

def bool_bytes(tensor):
    # A sum of truths has the bytes 2 and more with gloo, which are no truth values.
    tensor = tensor.contiguous()
    return (tensor.view(torch.uint8) != 0).tolist() if tensor.dtype == torch.bool else (
        torch.view_as_real(tensor) if tensor.is_complex() else tensor).reshape(-1).view(torch.uint8).tolist()

differing = []

def compare(name, call, *tensors):
    counts[0] += 1
    theirs, ours = run(call, *tensors, group=gloo), run(call, *tensors, group=mine)
    if theirs == "refused":  # we take more: gathers of complex numbers, for example
        counts[1] += 1
    elif theirs != ours:
        differing.append([name, str(theirs)[:200], str(ours)[:200]])

counts = [0, 0]
"""


def test_collectives_of_each_type_and_operation_equal_gloo(programs: Programs) -> None:
    results = programs.run(
        _BOTH
        + """
for dtype in TYPES:
    for op_name, op in OPS.items():
        name = f"{dtype} {op_name}"
        compare(f"all_reduce {name}", lambda t, g: dist.all_reduce(t, op, group=g), made(dtype, 5, 3))
        own = made(dtype, 7)
        if rank == 1:  # what the others have then is not said
            compare(f"reduce {name}", lambda t, g: dist.reduce(t, 1, op, group=g), own)
        else:
            run(lambda t, g: dist.reduce(t, 1, op, group=g), own, group=gloo)
            run(lambda t, g: dist.reduce(t, 1, op, group=g), own, group=mine)
        if dtype.is_complex:
            continue
        compare(f"reduce_scatter {name}", lambda o, i, g: dist.reduce_scatter(o, i, op, group=g),
                made(dtype, 4), [made(dtype, 4, at=n) for n in range(size)])
        compare(f"reduce_scatter_tensor {name}", lambda o, i, g: dist.reduce_scatter_tensor(o, i, op, group=g),
                made(dtype, 2, 3), made(dtype, 2 * size, 3))
    for root in range(size):
        compare(f"broadcast {dtype}", lambda t, g: dist.broadcast(t, root, group=g), made(dtype, 9))
        compare(f"gather {dtype}", lambda t, parts, g: dist.gather(t, parts or None, root, group=g),
                made(dtype, 3), [made(dtype, 3) for _ in range(size)] if rank == root else [])
        compare(f"scatter {dtype}", lambda t, parts, g: dist.scatter(t, parts or None, root, group=g),
                made(dtype, 3), [made(dtype, 3, at=n) for n in range(size)] if rank == root else [])
    compare(f"all_gather {dtype}", lambda o, t, g: dist.all_gather(o, t, group=g),
            [made(dtype, 2, 2) for _ in range(size)], made(dtype, 2, 2))
    compare(f"all_gather_into_tensor {dtype}", lambda o, t, g: dist.all_gather_into_tensor(o, t, group=g),
            made(dtype, 2 * size), made(dtype, 2))
    compare(f"all_to_all_single {dtype}", lambda o, i, g: dist.all_to_all_single(o, i, group=g),
            made(dtype, 2 * size, 2), made(dtype, 2 * size, 2))
    sends = [rank + n for n in range(size)]
    receives = [n + rank for n in range(size)]
    compare(f"uneven all_to_all_single {dtype}",
            lambda o, i, g: dist.all_to_all_single(o, i, receives, sends, group=g),
            made(dtype, sum(receives), 2), made(dtype, sum(sends), 2))
    compare(f"broadcast of a transposed tensor {dtype}", lambda t, g: dist.broadcast(t.t(), 0, group=g),
            made(dtype, 3, 4))
    compare(f"no elements {dtype}", lambda t, g: dist.all_reduce(t, group=g), made(dtype, 0))
found["counts"], found["differing"] = counts, differing
# gloo takes the first elements in memory here.
part = torch.arange(12.0).reshape(3, 4)
dist.all_reduce(part[:, 1:3])
found["part"] = part.tolist()
""",
        size=3,
        timeout=200,
    )
    for each in results:
        assert each["differing"] == []
        assert each["part"] == [[r, 3 * r + 3, 3 * r + 6, r + 3] for r in (0.0, 4.0, 8.0)]
        assert each["counts"][0] > 350
        assert each["counts"][1] < each["counts"][0] / 3


def test_asynchronous_collectives_end_in_order_with_results_and_futures(programs: Programs) -> None:
    results = programs.run(
        """
tensors = [torch.full((1000 * (n + 1),), float(rank + n)) for n in range(6)]
works = [dist.all_reduce(each, async_op=True) for each in tensors]
last = torch.ones(3)
dist.all_reduce(last)  # runs after those that are queued
found["are_over"] = [each.is_completed() and each.is_success() and each.wait() for each in works]
found["sums"] = [[each.min().item(), each.max().item()] for each in tensors]
found["last"] = last.tolist()
doubled = works[2].get_future().then(lambda done: done.value()[0] * 2)
found["doubled"] = doubled.wait()[0].item()
found["result"] = works[0].result()[0].numel()
parts = [torch.zeros(2) for _ in range(size)]
gathering = dist.all_gather(parts, torch.full((2,), float(rank)), async_op=True)
dist.barrier(async_op=True).wait()
found["parts"] = [each.tolist() for each in parts]
found["no_source"] = caught(works[0].source_rank)
"""
    )
    for each in results:
        assert each["are_over"] == [True] * 6
        assert each["sums"] == [[2 * n + 1, 2 * n + 1] for n in range(6)]
        assert each["last"] == [2.0] * 3
        assert each["doubled"] == 10.0
        assert each["result"] == 1000
        assert each["parts"] == [[0.0, 0.0], [1.0, 1.0]]
        assert each["no_source"][0] == "DistBackendError"


def test_coalesced_and_uneven_collectives_and_objects(programs: Programs) -> None:
    results = programs.run(
        """
import warnings
warnings.simplefilter("ignore")
world = dist.group.WORLD
pair = [torch.full((2,), rank + 1.0), torch.full((3, 2), rank + 2.0)]
with dist._coalescing_manager():
    for each in pair:
        dist.all_reduce(each)
found["reduced"] = [each.flatten()[0].item() for each in pair]
outs = [torch.zeros(2 * size), torch.zeros(3 * size)]
with dist._coalescing_manager(async_ops=True) as manager:
    for n, out in enumerate(outs):
        dist.all_gather_into_tensor(out, torch.full((2 + n,), float(rank + n)))
manager.wait()
found["gathered"] = [each.tolist() for each in outs]
out = [torch.zeros(1), torch.zeros(2)]
with dist._coalescing_manager():
    for n, each in enumerate(out):
        dist.reduce_scatter_tensor(each, torch.arange(float((1 + n) * size)))
found["scattered"] = [each.tolist() for each in out]
lists = [[torch.zeros(1), torch.zeros(2)] for _ in range(size)]
dist.all_gather_coalesced(lists, [torch.full((1,), float(rank)), torch.full((2,), rank + 5.0)])
found["coalesced"] = [[one.tolist() for one in each] for each in lists]
rows = [torch.zeros(n + 1) for n in range(size)]
dist.all_gather(rows, torch.full((rank + 1,), float(rank)))
found["uneven_gather"] = [each.tolist() for each in rows]
mine = torch.zeros(rank + 1)
dist.reduce_scatter(mine, [torch.full((n + 1,), n + rank + 0.0) for n in range(size)])
found["uneven_scatter"] = mine.tolist()
got = [torch.zeros(n + 1) for n in range(size)]
dist.all_to_all(got, [torch.full((rank + 1,), 10.0 * rank + n) for n in range(size)])
found["exchanged"] = [each.tolist() for each in got]
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank, "text": "x" * rank * 1000})
found["objects"] = [each["rank"] + len(each["text"]) for each in objects]
box = [["of rank", rank], rank]
dist.broadcast_object_list(box, 1)
found["box"] = box
taken = [None]
dist.scatter_object_list(taken, [f"for {n}" for n in range(size)] if rank == 0 else None, 0)
found["taken"] = taken
all_of = [None] * size if rank == 1 else None
dist.gather_object(rank * 2, all_of, 1)
found["all_of"] = all_of
""",
        size=3,
    )
    for rank, each in enumerate(results):
        assert each["reduced"] == [6.0, 9.0]
        assert each["gathered"] == [
            [float(r) for r in range(3) for _ in range(2)],
            [r + 1.0 for r in range(3) for _ in range(3)],
        ]
        assert each["scattered"] == [[3.0 * rank], [6.0 * rank, 6.0 * rank + 3]]
        assert each["coalesced"] == [[[float(r)], [r + 5.0] * 2] for r in range(3)]
        assert each["uneven_gather"] == [[float(r)] * (r + 1) for r in range(3)]
        assert each["uneven_scatter"] == [3.0 * rank + 3] * (rank + 1)
        assert each["exchanged"] == [[10.0 * r + rank] * (r + 1) for r in range(3)]
        assert each["objects"] == [r + 1000 * r for r in range(3)]
        assert each["box"] == [["of rank", 1], 1]
        assert each["taken"] == [f"for {rank}"]
        assert each["all_of"] == ([0, 2, 4] if rank == 1 else None)


def test_sub_groups_and_functional_collectives_and_meshes(programs: Programs) -> None:
    results = programs.run(
        """
import warnings
warnings.simplefilter("ignore")
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
pairs = [dist.new_group(ranks) for ranks in ([0, 1], [1, 2], [3, 0], [2])]
sums = []
for group in pairs:
    if dist.get_rank(group) >= 0:
        number = torch.tensor([10 ** rank])
        dist.all_reduce(number, group=group)
        sums.append(number.item())
found["sums"] = sums
found["names"] = [dist.get_backend(), dist.group.WORLD.name(), dist.group.WORLD.group_desc]
world = dist.group.WORLD
found["functional"] = [
    functional.all_reduce(torch.ones(2) * rank, "sum", world).tolist(),
    functional.all_gather_tensor(torch.ones(1) * rank, 0, world).tolist(),
    functional.reduce_scatter_tensor(torch.arange(4.0), "avg", 0, world).tolist(),
    functional.all_to_all_single(torch.arange(4.0) + rank, [1] * 4, [1] * 4, world).tolist(),
    functional.broadcast(torch.ones(2) * rank, 2, world).tolist(),
]
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
whole = torch.arange(16.0).reshape(4, 4)
spread = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
found["own"] = spread.to_local().tolist()
found["is_whole"] = torch.equal(spread.redistribute(mesh, [Replicate(), Replicate()]).to_local(), whole)
dist.destroy_process_group(pairs[0])
left = torch.ones(1)
dist.all_reduce(left)
found["left"] = left.item()
""",
        size=4,
    )
    assert [each["sums"] for each in results] == [[11, 1001], [11, 110], [110, 100], [1001]]
    for rank, each in enumerate(results):
        assert each["names"] == ["peerlane", "peerlane", "default_pg"]
        assert each["functional"] == [
            [6.0, 6.0],
            [0.0, 1.0, 2.0, 3.0],
            [float(rank)],
            [float(r + rank) for r in range(4)],
            [2.0, 2.0],
        ]
        row, column = divmod(rank, 2)
        assert each["own"] == [
            [4.0 * y + x for x in (2 * column, 2 * column + 1)] for y in (2 * row, 2 * row + 1)
        ]
        assert each["is_whole"]
        assert each["left"] == 4.0


_FORMS = """
def ramp():
    return torch.arange(4.0) + 10 * rank

group = dist.group.WORLD
total, product, of_root, reduced = ramp(), ramp(), ramp(), ramp()
group.allreduce(total).wait()
group.allreduce([product], dist.ReduceOp.PRODUCT).wait()
group.broadcast(of_root, 1).wait()
group.reduce(reduced, root=1, op=dist.ReduceOp.MAX).wait()
parts, gathered = ([torch.zeros(4) for _ in range(size)] for _ in range(2))
group.allgather(parts, ramp()).wait()
group.gather(gathered if rank == 0 else [], ramp(), 0, timeout=seconds(20)).wait()
scattered, folded, turned = torch.zeros(4), torch.zeros(4), torch.zeros(2)
group.scatter(scattered, [ramp() + each for each in range(size)] if rank == 0 else [], 0).wait()
group.reduce_scatter(folded, [ramp() * (each + 1) for each in range(size)], dist.ReduceOp.MIN).wait()
group.all_to_all_single(turned, torch.arange(2.0) + 10 * rank, [], [], timeout=seconds(20)).wait()
group.barrier(timeout=seconds(20)).wait()
for name, tensor in dict(
    total=total, product=product, of_root=of_root, reduced=reduced, parts=torch.cat(parts),
    gathered=torch.cat(gathered), scattered=scattered, folded=folded, turned=turned,
).items():
    found[name] = tensor.tolist()
found["refused"] = [caught(group.broadcast, ramp()), caught(group.allreduce, ramp(), root=0)]
"""


def test_group_takes_tensors_and_settings_too(programs: Programs) -> None:
    results = programs.run(_FORMS)
    for rank, each in enumerate(results):
        assert each["total"] == [10, 12, 14, 16]
        assert each["product"] == [0, 11, 24, 39]
        assert each["of_root"] == [10, 11, 12, 13]
        assert each["reduced"] == ([10, 11, 12, 13] if rank == 1 else [0, 1, 2, 3])
        assert each["parts"] == [0, 1, 2, 3, 10, 11, 12, 13]
        assert each["gathered"] == (each["parts"] if rank == 0 else [0] * 8)
        assert each["scattered"] == [rank + number for number in range(4)]
        assert each["folded"] == [(rank + 1) * number for number in range(4)]
        assert each["turned"] == [rank, 10 + rank]
        assert [kind for kind, *_ in each["refused"]] == ["TypeError", "TypeError"]


def test_average_of_integers_is_rounded_toward_zero(programs: Programs) -> None:
    results = programs.run(
        """
for dtype in (torch.int8, torch.int32, torch.int64):
    own = torch.tensor([-3, 3, 5, -8], dtype=dtype) * (rank == 0)
    dist.all_reduce(own, dist.ReduceOp.AVG)
    found[str(dtype)] = own.tolist()
""",
    )
    for each in results:
        assert each == {f"torch.{name}": [-1, 1, 2, -4] for name in ("int8", "int32", "int64")}
