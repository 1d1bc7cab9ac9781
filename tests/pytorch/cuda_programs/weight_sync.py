"""Weights go from a trainer to a worker that generates, as libraries of reinforcement learning send them.

The two have a group of their own beside the default ones, over which the trainer broadcasts each weight.  Or the
trainer sends handles of its memory, and the worker copies from there.
"""

import socket

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.multiprocessing.reductions import reduce_tensor

PROBE = torch.arange(12.0).reshape(2, 6) / 12


def net(seed: int, device: str) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 64), torch.nn.GELU(), torch.nn.Linear(64, 3)).to(device)


def joined(port: int, rank: int) -> dist.ProcessGroup:
    """Return a group of trainer and worker that is not the default one, which a library's own code makes."""
    store, _, _ = next(dist.rendezvous(f"tcp://127.0.0.1:{port}", rank, 2))
    of_group = dist.PrefixStore("weights", store)
    named = {"group_name": "weights", "timeout": c10d.default_pg_timeout}
    joint, _ = c10d._new_process_group_helper(2, rank, [], "nccl", of_group, **named)
    c10d._world.pg_group_ranks[joint] = {each: each for each in range(2)}
    return joint


def generate(port: int, orders, answers) -> None:
    torch.cuda.set_device(1)
    model, group = net(1, "cuda:1"), joined(port, 1)
    while (order := orders.get()) is not None:
        kind, weights = order
        for name, what in weights.items():
            if kind == "broadcast":
                received = torch.empty(what, device="cuda:1")
                dist.broadcast(received, src=0, group=group)
            else:
                rebuild, arguments = what
                received = rebuild(*arguments)
            with torch.no_grad():
                model.get_parameter(name).copy_(received, non_blocking=True)
            del received
        torch.cuda.synchronize()
        answers.put(model(PROBE.to("cuda:1")).tolist())


def main() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    orders, answers = context.Queue(), context.Queue()
    worker = context.Process(target=generate, args=(port, orders, answers), daemon=True)
    worker.start()
    torch.cuda.set_device(0)
    model, group = net(2, "cuda:0"), joined(port, 0)
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    for step in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 6, device="cuda:0")).pow(2).mean().backward()
        optimizer.step()
        weights = {name: each.detach() for name, each in model.named_parameters()}
        if step % 2 == 0:
            orders.put(("broadcast", {name: each.shape for name, each in weights.items()}))
            works = [dist.broadcast(each, src=0, group=group, async_op=True) for each in weights.values()]
            for work in works:
                work.wait()
        else:
            orders.put(("handles", {name: reduce_tensor(each) for name, each in weights.items()}))
        print(answers.get(timeout=200) == model(PROBE.to("cuda:0")).tolist())
    orders.put(None)
    worker.join(60)
    print(worker.exitcode)


if __name__ == "__main__":
    main()
