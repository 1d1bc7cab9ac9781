"""Parallel training on devices: the same bits as the same program with tensors of the processor."""

from __future__ import annotations

import pytest

from helpers.torch_ranks import Programs, needs_torch

needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

_TRAIN = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.distributed import pipelining
import torch.distributed.checkpoint as checkpoint
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

DDP = torch.nn.parallel.DistributedDataParallel
torch.peerlane.set_device(rank)

def net(device):
    torch.manual_seed(3)
    return torch.nn.Sequential(
        torch.nn.Linear(20, 64), torch.nn.LayerNorm(64), torch.nn.ReLU(), torch.nn.Linear(64, 8)
    ).to(device)

def train(model, device, steps=4, number=rank):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(steps):
        torch.manual_seed(100 * number + step)
        x, y = torch.randn(16, 20).to(device), torch.randn(16, 8).to(device)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x).float(), y).backward()
        optimizer.step()
    return weights(model)

def weights(model):
    values = [each.full_tensor() if hasattr(each, "full_tensor") else each for each in model.state_dict().values()]
    return torch.cat([each.detach().cpu().flatten() for each in values])

def ddp(device):
    ids = None if device.type == "cpu" else [device.index]
    return train(DDP(net(device), device_ids=ids, bucket_cap_mb=0.01), device)

def ddp_with_hook(device):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
    model = DDP(net(device), gradient_as_bucket_view=True)
    model.register_comm_hook(None, fp16_compress_hook)
    return train(model, device)

def ddp_of_uneven_inputs(device):
    model = DDP(net(device))
    with model.join():
        train(model, device, steps=2 + rank)
    return weights(model)

def optimizer_of_shards(device):
    from torch.distributed.optim import ZeroRedundancyOptimizer
    model = DDP(net(device))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    torch.manual_seed(rank)
    model(torch.randn(4, 20).to(device)).pow(2).mean().backward()
    optimizer.step()
    return weights(model)

def fsdp2(device, shape=(size,), **options):
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=("replicas", "shards")[-len(shape):])
    model = net(device)
    for layer in (model[0], model[3]):
        fully_shard(layer, mesh=mesh, **options)
    fully_shard(model, mesh=mesh)
    return train(model, device)

def fsdp2_mixed(device):
    return fsdp2(device, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))

def hsdp(device):
    return fsdp2(device, (2, size // 2))

def tensor_parallel(device):
    mesh = init_device_mesh(device.type, (2, size // 2), mesh_dim_names=("data", "tensor"))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).to(device)
    model = parallelize_module(model, mesh["tensor"], plan)
    return train(fully_shard(model, mesh=mesh["data"]), device, number=rank // (size // 2))

def dtensor(device):
    mesh = init_device_mesh(device.type, (size,))
    torch.manual_seed(1)
    sharded = distribute_tensor(torch.randn(8, 8).to(device), mesh, [Shard(0)])
    whole = distribute_tensor(torch.randn(8, 8).to(device), mesh, [Replicate()])
    return (sharded @ whole).redistribute(mesh, [Shard(1)]).sum(0).full_tensor().cpu()

def attention_of_sharded_heads(device):
    torch.manual_seed(2)
    inputs = [torch.randn(2, 4, 8, 16) for _ in range(3)]
    if device.type != "cpu":  # there DTensor cannot shard it
        mesh = init_device_mesh(device.type, (size,))
        inputs = [distribute_tensor(each.to(device), mesh, [Shard(1)]) for each in inputs]
    inputs = [each.detach().requires_grad_() for each in inputs]
    output = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=True)
    output.pow(2).sum().backward()
    results = [output.detach(), *(each.grad for each in inputs)]
    return torch.stack([each.full_tensor().cpu() if device.type != "cpu" else each for each in results])

def pipeline(device, schedule, each=1):
    torch.manual_seed(3)
    count = size * each
    layers = [torch.nn.Sequential(torch.nn.Linear(20, 20), torch.nn.Tanh()).to(device) for _ in range(count)]
    mine = range(rank, count, size)
    stages = [pipelining.PipelineStage(layers[number], number, count, device) for number in mine]
    loss = torch.nn.functional.mse_loss
    run = getattr(pipelining, schedule)(stages if each > 1 else stages[0], n_microbatches=2 * size, loss_fn=loss)
    parameters = [one for number in mine for one in layers[number].parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for step in range(3):
        torch.manual_seed(step)
        x, y = torch.randn(4 * size, 20).to(device), torch.randn(4 * size, 20).to(device)
        optimizer.zero_grad()
        run.step(*([x] if rank == 0 else []), **({"target": y, "losses": []} if count - 1 in mine else {}))
        optimizer.step()
    return torch.cat([each.detach().cpu().flatten() for each in parameters])

def saved_and_loaded(device):
    model = fully_shard(net(device), mesh=init_device_mesh(device.type, (size,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    def step():
        optimizer.zero_grad()
        torch.manual_seed(5)
        model(torch.randn(4, 20).to(device)).pow(2).mean().backward()
        optimizer.step()
    step()
    before, states = weights(model), get_state_dict(model, optimizer)
    folder = f"{sys.argv[1]}/checkpoint {device.type}"
    checkpoint.save({"model": states[0], "optimizer": states[1]}, checkpoint_id=folder)
    step()
    assert not torch.equal(weights(model), before)
    states = get_state_dict(model, optimizer)
    checkpoint.load({"model": states[0], "optimizer": states[1]}, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=states[0], optim_state_dict=states[1])
    assert torch.equal(weights(model), before)
    step()
    return weights(model)

found["equal"] = {}
for name, call in {
    **{each.__name__: each for each in (ddp, ddp_with_hook, ddp_of_uneven_inputs, optimizer_of_shards, fsdp2,
                                        fsdp2_mixed, hsdp, tensor_parallel, dtensor, saved_and_loaded,
                                        attention_of_sharded_heads)},
    "1F1B": lambda device: pipeline(device, "Schedule1F1B"),
    "GPipe": lambda device: pipeline(device, "ScheduleGPipe"),
    "interleaved": lambda device: pipeline(device, "ScheduleInterleaved1F1B", 2),
    "zero bubble": lambda device: pipeline(device, "ScheduleInterleavedZeroBubble", 2),
}.items():
    on_processor, on_device = call(torch.device("cpu")), call(torch.device("peerlane", rank))
    assert on_processor.isfinite().all() and on_processor.numel() > 7, name
    found["equal"][name] = torch.equal(on_processor, on_device)
one_flat = train(FullyShardedDataParallel(net(torch.device("peerlane", rank))), torch.device("peerlane", rank))
found["flat"] = one_flat.isfinite().all().item()
random = torch.distributed.tensor.rand(8, 8, device_mesh=init_device_mesh("peerlane", (size,)), placements=[Shard(0)])
found["random"] = random.full_tensor().unique().numel()
"""


@pytest.mark.parametrize(("ranks", "schedule"), [(2, "eager"), (2, "lazy"), (4, "seeded:7")])
def test_parallel_training_has_the_bits_of_the_processor(
    programs: Programs, ranks: int, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_NODE", "devices=4")
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    results = programs.run(_TRAIN, size=ranks, timeout=280)
    for each in results:
        assert len(each["equal"]) == 15
        assert [name for name, is_equal in each["equal"].items() if not is_equal] == []
        assert each["flat"] and each["random"] == 64


_COMPILED = """
import functools
device = torch.device("peerlane", rank)
torch.peerlane.set_device(device)
DDP = torch.nn.parallel.DistributedDataParallel
compiled = functools.partial(torch.compile, backend="aot_eager")

def trained(wrap):
    torch.manual_seed(3)
    model = wrap(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).to(device))
    for step in range(2):
        model(torch.full((4, 8), rank + 1.0, device=device)).sum().backward()
    return [each.grad.cpu() for each in model.parameters()]

def exchange(x):
    y = x * 2
    dist.all_reduce(y)
    dist.all_reduce(y, async_op=True).wait()
    dist.barrier()
    return y + 1

plain, inside, outside = (
    trained(wrap)
    for wrap in (DDP, lambda model: DDP(compiled(model)), lambda model: compiled(DDP(model)))
)
found["inside"] = all(map(torch.equal, plain, inside))
found["outside"] = all(map(torch.equal, plain, outside))
found["sums"] = [compiled(exchange)(torch.ones(3, device=each)).tolist() for each in ("cpu", device)]
"""


def test_compiled_programs_call_collectives_of_the_group(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_NODE", "devices=2")
    for each in programs.run(_COMPILED, timeout=200):
        assert each == {"inside": True, "outside": True, "sums": [[9.0] * 3] * 2}


_NORMS = """
device = torch.device("peerlane", rank)
torch.peerlane.set_device(device)

def differences(shape, counts, dtype, affine=True, form=torch.contiguous_format):
    torch.manual_seed(5)
    kind = torch.nn.BatchNorm1d if len(shape) < 3 else torch.nn.BatchNorm2d
    whole = kind(shape[0], affine=affine, eps=0.1)
    if affine:
        for each in whole.parameters():
            torch.nn.init.normal_(each)
    parted = torch.nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(whole)).to(device)
    whole.double()
    batch, slopes = torch.randn(sum(counts), *shape).to(dtype), torch.randn(sum(counts), *shape).to(dtype)
    part = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
    all_inputs = batch.double().requires_grad_()
    own = batch[part].to(device)
    own = (own.contiguous(memory_format=form) if len(shape) == 3 else own).requires_grad_()
    expected, result = whole(all_inputs), parted(own)
    expected.backward(slopes.double())
    result.backward(slopes[part].to(device))
    assert result.dtype == dtype and result.device == device
    pairs = [(result, expected[part])]
    if len(own):
        assert result.stride() == own.stride() and own.grad.dtype == dtype
        pairs.append((own.grad, all_inputs.grad[part]))
    pairs += [(getattr(parted, name), getattr(whole, name)) for name in ("running_mean", "running_var")]
    if affine:
        for ours, theirs in zip(parted.parameters(), whole.parameters()):
            total = torch.zeros_like(ours) if ours.grad is None else ours.grad.clone()
            dist.all_reduce(total)
            pairs.append((total, theirs.grad))
    parted.eval(), whole.eval()
    pairs.append((parted(batch.to(device)), whole(batch.double())))
    return max((ours.cpu().double() - theirs).abs().max().item() for ours, theirs in pairs if ours.numel())

found["single"] = max(differences((6, 4, 3), (5, 3), torch.float32), differences((6,), (5, 3), torch.float32),
                      differences((6, 7), (2, 2), torch.float32, affine=False),
                      differences((6, 4, 3), (3, 4), torch.float32, form=torch.channels_last))
found["without"] = differences((6, 4, 3), (8, 0), torch.float32)
found["half"] = max(differences((6, 4, 3), (5, 3), each) / torch.finfo(each).eps
                    for each in (torch.float16, torch.bfloat16))

mean, inverse = torch.batch_norm_stats(torch.randn(9, 6, 2, dtype=torch.float64, device=device), 0.1)
rows = [mean.expand(3, 6), inverse.expand(3, 6), None, None, 0.1, 0.1]
pair = torch.batch_norm_gather_stats(mean, *rows, 18)
found["equal rows"] = max((pair[0] - mean).abs().max().item(), (pair[1] - inverse).abs().max().item())
"""


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_synchronized_batch_norm_is_that_of_the_whole_batch(
    programs: Programs, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_NODE", "devices=2")
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    for each in programs.run("import copy\n" + _NORMS, timeout=200):
        assert each["single"] < 1e-4 and each["without"] < 1e-4
        assert each["half"] < 40
        assert each["equal rows"] < 1e-12
