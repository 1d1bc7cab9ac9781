"""Parallel training by NCCL, one rank a GPU; prints what each has found.  Run by torchrun or another launcher."""

import json
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl", device_id=torch.device("cuda", local))
rank, size = dist.get_rank(), dist.get_world_size()
results = {
    "backend": dist.get_backend(),
    "nccl": dist.is_nccl_available(),
    "device": torch.cuda.current_device(),
}

torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).cuda(), device_ids=[local])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    torch.manual_seed(10 * step + rank)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(torch.randn(4, 8).cuda()).float().pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
weights = [torch.empty_like(model.module.weight) for _ in range(size)]
dist.all_gather(weights, model.module.weight.detach())
results["equal"] = all(torch.equal(weights[0], each) for each in weights)

sharded = fully_shard(torch.nn.Linear(8, 8).cuda(), mesh=init_device_mesh("cuda", (size,)))
sharded(torch.randn(4, 8, device="cuda")).sum().backward()
results["gradient"] = str(sharded.weight.grad.device)

number = torch.full((1000,), rank + 1.0, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    work = dist.all_reduce(number, async_op=True)
work.wait()
results["sum"] = number.unique().tolist()
objects = [None] * size
dist.all_gather_object(objects, rank)
results["objects"] = objects
try:
    dist.all_reduce(torch.zeros(1))
except RuntimeError as error:
    results["on the processor"] = str(error)
gloo = dist.new_group(backend="gloo")
one = torch.ones(1)
dist.all_reduce(one, group=gloo)
results["gloo"] = one.item()
dist.barrier()
dist.destroy_process_group()
dist.init_process_group("cpu:gloo,cuda:nccl")
dist.all_reduce(one)
dist.all_reduce(number)
torch.cuda.synchronize()
results["both"] = [one.item(), number[0].item()]
dist.destroy_process_group()
print(f"found {json.dumps(results)}\n", end="", flush=True)  # in one write: ranks share the output
