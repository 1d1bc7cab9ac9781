"""Ranks that exchange blocks over symmetric memory; the form names the order that is left out, or ``right``."""

import sys

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric

kind, form = sys.argv[1:]
if kind == "peerlane":
    import peerlane.torch  # noqa: F401 - it makes the device

COUNT = 50_000
dist.init_process_group("peerlane" if kind == "peerlane" else "nccl")
rank, size = dist.get_rank(), dist.get_world_size()
device = torch.device(kind, rank)
torch.accelerator.set_device_index(rank)
block = symmetric.empty(COUNT, device=device)
shared = symmetric.rendezvous(block, dist.group.WORLD)
beside = torch.Stream(device=device)


def ring() -> torch.Tensor:
    block.fill_(rank + 1)  # ring's write
    if form != "no barrier behind the write":
        shared.barrier()
    total = shared.get_buffer((rank + 1) % size, (COUNT,), torch.float32).sum()  # ring's read
    if form != "no barrier behind the read":
        shared.barrier(channel=1)
    return total


def push() -> None:
    if rank == 0:
        shared.get_buffer(1, (COUNT,), torch.float32).fill_(7)  # push's write
        shared.put_signal(1, channel=2)
        shared.wait_signal(1, channel=3)
    elif rank == 1:
        if form != "no wait for the signal":
            shared.wait_signal(0, channel=2)
        block.mul_(2)  # push's change
        shared.put_signal(0, channel=3)


def overlap() -> None:
    beside.wait_stream(torch.accelerator.current_stream())
    block.fill_(3)  # overlap's write
    if form == "barrier on another stream":
        with beside:
            shared.barrier(channel=4)
        torch.accelerator.current_stream().wait_stream(beside)
    else:
        shared.barrier(channel=4)
    total = shared.get_buffer((rank + 1) % size, (COUNT,), torch.float32).sum()  # overlap's read
    shared.barrier(channel=4)
    print(total.item())


def operations() -> None:
    name = dist.group.WORLD.group_name
    torch.ops.symm_mem.one_shot_all_reduce(block, "sum", name)
    torch.ops.symm_mem.two_shot_all_reduce_(block, "sum", name)


for _ in range(3):
    ring()
shared.barrier()
push()
shared.barrier()
overlap()
operations()
torch.accelerator.synchronize()
dist.destroy_process_group()
