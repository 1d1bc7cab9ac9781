"""Programs that overlap work on several streams.  Each runs in a right form, or in one that leaves an order out.

In the racy form the two lines with ``# first`` and ``# second`` use the same bytes in no order.  What the host writes
is seen by its bytes alone: there the line of the operation is both.  The name of torch's device is that of the
accelerator, so the programs run as they are on a GPU.

Run with ``right`` or ``racy``, and the names of programs; without names all of them run.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Iterator

import torch

if torch.accelerator.current_accelerator() is None:
    import peerlane.torch  # noqa: F401 - it registers the device

KIND = torch.accelerator.current_accelerator().type
FIRST, OTHER = f"{KIND}:0", f"{KIND}:1"
PROGRAMS: dict[str, Callable[[bool], None]] = {}


def program(function: Callable[[bool], None]) -> Callable[[bool], None]:
    PROGRAMS[function.__name__] = function
    return function


def current(device: str = FIRST) -> torch.Stream:
    return torch.accelerator.current_stream(torch.device(device))


def side(device: str = FIRST) -> torch.Stream:
    return torch.Stream(device=device)


def pinned(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).pin_memory()


@program
def prefetching_loader(racy: bool) -> None:
    copies, compute = side(), current()
    model = torch.nn.Linear(64, 8, device=FIRST)

    def load() -> torch.Tensor:
        with copies:
            return pinned(32, 64).to(FIRST, non_blocking=True)  # first

    batch = load()
    for _ in range(4):
        if not racy:
            compute.wait_stream(copies)
        batch.record_stream(compute)
        model(batch).sum()  # second
        batch = load()


@program
def batches_of_a_thread(racy: bool) -> None:
    compute, loaded = current(), queue.Queue(maxsize=2)

    def load() -> None:
        copies = side()
        for _ in range(4):
            with copies:
                batch = pinned(32, 64).to(FIRST, non_blocking=True)  # first
            loaded.put((batch, copies.record_event()))
        loaded.put(None)

    loader = threading.Thread(target=load)
    loader.start()
    while (item := loaded.get()) is not None:
        batch, ready = item
        batch.record_stream(compute)
        if not racy:
            compute.wait_event(ready)
        batch.mul_(2)  # second
    loader.join()


@program
def staging_buffer(racy: bool) -> None:
    stage, batches = pinned(64, 64), torch.empty(4, 64, 64, device=FIRST)
    compute = current()
    copied = torch.Event(device=FIRST)
    for number in range(4):
        stage.fill_(number)
        batches[number].copy_(stage, non_blocking=True)  # first # second
        copied.record(compute)
        if not racy:
            copied.synchronize()
    compute.synchronize()


@program
def ring_of_pinned_buffers(racy: bool) -> None:
    ring = [pinned(128, 64) for _ in range(2)]
    copied = [torch.Event(device=FIRST) for _ in ring]
    on_device = [torch.empty(128, 64, device=FIRST) for _ in range(6)]
    compute = current()
    for number, target in enumerate(on_device):
        slot = number % len(ring)
        if number >= len(ring) and not racy:
            copied[slot].synchronize()
        ring[slot].fill_(number)
        target.copy_(ring[slot], non_blocking=True)  # first # second
        copied[slot].record(compute)
    compute.synchronize()


@program
def offloaded_activations(racy: bool) -> None:
    offload, compute = side(), current()
    layers = [torch.nn.Linear(64, 64, device=FIRST) for _ in range(3)]
    hidden, kept = torch.randn(32, 64, device=FIRST), []
    for layer in layers:
        hidden = layer(hidden).relu()  # first
        host = torch.empty(32, 64, pin_memory=True)
        if not racy:
            offload.wait_stream(compute)
        with offload:
            host.copy_(hidden.detach(), non_blocking=True)  # second
        hidden.record_stream(offload)
        kept.append(host)
    offload.synchronize()
    compute.synchronize()
    sum(host.sum() for host in kept)


@program
def offloaded_and_freed(racy: bool) -> None:
    offload, compute = side(), current()
    host = torch.empty(64, 512, pin_memory=True)
    hidden = torch.randn(64, 512, device=FIRST)
    offload.wait_stream(compute)
    with offload:
        host.copy_(hidden, non_blocking=True)  # first
    if not racy:
        hidden.record_stream(offload)
    del hidden
    gradient = torch.ones(64, 512, device=FIRST)  # second
    gradient.mul_(2)
    offload.synchronize()


@program
def optimizer_state_on_the_host(racy: bool) -> None:
    fetches, compute = side(), current()
    weight, momentum = torch.randn(128, 64, device=FIRST), pinned(128, 64)
    for _ in range(3):
        gradient = torch.randn_like(weight)
        with fetches:
            fetched = momentum.to(FIRST, non_blocking=True)  # first
        if not racy:
            compute.wait_stream(fetches)
        fetched.record_stream(compute)
        fetched.mul_(0.9).add_(gradient)  # second
        weight.sub_(fetched, alpha=0.1)
        fetches.wait_stream(compute)
        with fetches:
            momentum.copy_(fetched, non_blocking=True)
        fetches.synchronize()


@program
def double_buffering(racy: bool) -> None:
    loads, compute = side(), current()
    buffers = [torch.empty(64, 64, device=FIRST) for _ in range(2)]
    used = [torch.Event(device=FIRST) for _ in buffers]
    total = torch.zeros(64, 64, device=FIRST)
    loads.wait_stream(compute)
    for number in range(6):
        slot = number % 2
        if number >= 2 and not racy:
            loads.wait_event(used[slot])
        with loads:
            buffers[slot].copy_(pinned(64, 64), non_blocking=True)  # first
        compute.wait_stream(loads)
        total.add_(buffers[slot])  # second
        used[slot].record(compute)


@program
def gradients_copied_while_backward_runs(racy: bool) -> None:
    copies, compute = side(), current()
    model = torch.nn.Sequential(*[torch.nn.Linear(64, 64, device=FIRST) for _ in range(3)])
    hosts = {each: torch.empty(each.shape, pin_memory=True) for each in model.parameters()}

    def copy(parameter: torch.Tensor) -> None:
        copies.wait_stream(torch.accelerator.current_stream())
        with copies:
            hosts[parameter].copy_(parameter.grad, non_blocking=True)  # first

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(copy)
    for _ in range(2):
        model(torch.randn(16, 64, device=FIRST)).pow(2).mean().backward()
        if not racy:
            compute.wait_stream(copies)
        for parameter in model.parameters():
            parameter.grad.zero_()  # second
        copies.synchronize()


@program
def pipeline_over_two_devices(racy: bool) -> None:
    computes, transfers = side(FIRST), current(FIRST)
    first, last = torch.nn.Linear(64, 64, device=FIRST), torch.nn.Linear(64, 8, device=OTHER)
    for _ in range(3):
        computes.wait_stream(transfers)
        with computes:
            hidden = first(torch.randn(16, 64, device=FIRST))  # first
        if not racy:
            transfers.wait_stream(computes)
        hidden.record_stream(transfers)
        last(hidden.to(OTHER)).sum()  # second


@program
def sum_of_two_devices(racy: bool) -> None:
    elsewhere, there = side(OTHER), current(OTHER)
    with elsewhere:
        part = torch.ones(128, 64, device=OTHER) * 3  # first
    if not racy:
        there.wait_stream(elsewhere)
    part.record_stream(there)
    total = torch.zeros(128, 64, device=FIRST)
    total.add_(part.to(FIRST))  # second


@program
def blocks_saved_while_they_are_written(racy: bool) -> None:
    saves, compute = side(), current()
    cache = torch.zeros(16, 8, 64, device=FIRST)
    for step in range(3):
        blocks = torch.tensor([step, step + 3], device=FIRST)
        cache.index_copy_(0, blocks, torch.randn(2, 8, 64, device=FIRST))  # first
        host = torch.empty(2, 8, 64, pin_memory=True)
        if not racy:
            saves.wait_stream(compute)
        with saves:
            host.copy_(cache[step : step + 4 : 3], non_blocking=True)  # second
        saves.synchronize()
        compute.synchronize()
        host.sum()


@program
def blocks_of_a_cache_used_again(racy: bool) -> None:
    saves, compute = side(), current()
    cache = torch.randn(16, 8, 64, device=FIRST)
    saves.wait_stream(compute)
    with saves:
        gathered = cache.index_select(0, torch.tensor([2, 5, 7], device=FIRST))  # first
        host = gathered.to("cpu", non_blocking=True)
    if not racy:
        compute.wait_stream(saves)
    cache[5].fill_(1.0)  # second
    saves.synchronize()
    host.sum()


@program
def blocks_loaded_for_a_request(racy: bool) -> None:
    loads, compute = side(), current()
    cache = torch.zeros(16, 8, 64, device=FIRST)
    loads.wait_stream(compute)
    for layer in range(3):
        with loads:
            cache[layer].copy_(pinned(8, 64), non_blocking=True)  # first
        loaded = loads.record_event()
        if not racy:
            compute.wait_event(loaded)
        torch.softmax(cache[layer], -1)  # second


@program
def decoding(racy: bool) -> None:
    copies, compute = side(), current()
    table, head = torch.randn(50, 32, device=FIRST), torch.randn(32, 50, device=FIRST)
    token, text = torch.zeros(1, dtype=torch.long, device=FIRST), []
    for _ in range(4):
        token = (table[token] @ head).argmax(-1)
        host = torch.empty(1, dtype=torch.long, pin_memory=True)
        copies.wait_stream(compute)
        with copies:
            host.copy_(token, non_blocking=True)  # first
        token.record_stream(copies)
        copied = copies.record_event()
        if not racy:
            copied.synchronize()
        text.append(host.item())  # second
        copies.synchronize()


@program
def numpy_of_an_asynchronous_copy(racy: bool) -> None:
    result = torch.randn(64, 64, device=FIRST) * 2
    host = result.to("cpu", non_blocking=True)  # first
    if not racy:
        torch.accelerator.synchronize()
    host.numpy().sum()  # second
    torch.accelerator.synchronize()


@program
def forward_beside_the_optimizer(racy: bool) -> None:
    forward, compute = side(), current()
    model = torch.nn.Linear(64, 8, device=FIRST)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(16, 64, device=FIRST)
    forward.wait_stream(compute)
    for step in range(3):
        if step and not racy:
            forward.wait_stream(compute)
        with forward:
            loss = model(inputs).pow(2).mean()  # second
        compute.wait_stream(forward)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # first


@program
def gradients_of_a_side_stream(racy: bool) -> None:
    backward, compute = side(), current()
    weight = torch.randn(64, 64, device=FIRST, requires_grad=True)
    inputs = torch.randn(16, 64, device=FIRST)
    backward.wait_stream(compute)
    with backward:
        loss = (inputs @ weight).pow(2).mean()
        loss.backward()  # first
    if not racy:
        compute.wait_stream(backward)
    weight.grad.record_stream(compute)
    weight.grad.mul_(0.5)  # second


@program
def snapshot_of_parameters(racy: bool) -> None:
    saves, compute = side(), current()
    model = torch.nn.Linear(64, 64, device=FIRST)
    optimizer = torch.optim.AdamW(model.parameters())
    snapshot = {name: torch.empty(each.shape, pin_memory=True) for name, each in model.named_parameters()}
    model(torch.randn(16, 64, device=FIRST)).mean().backward()
    saves.wait_stream(compute)
    with saves:
        for name, each in model.named_parameters():
            snapshot[name].copy_(each.detach(), non_blocking=True)  # first
    if not racy:
        compute.wait_stream(saves)
    optimizer.step()  # second
    saves.synchronize()


@program
def rows_of_an_embedding(racy: bool) -> None:
    lookups, compute = side(), current()
    table = torch.randn(200, 32, device=FIRST)
    ids = torch.tensor([3, 1, 4, 1, 5], device=FIRST)
    lookups.wait_stream(compute)
    with lookups:
        rows = torch.nn.functional.embedding(ids, table)  # first
    if not racy:
        compute.wait_stream(lookups)
    table.index_add_(0, ids, torch.ones(5, 32, device=FIRST))  # second
    rows.record_stream(compute)


@program
def memory_of_another_stream(racy: bool) -> None:
    makes, compute = side(), current()
    with makes:
        drawn = torch.randn(64, 256, device=FIRST)
    compute.wait_stream(makes)
    drawn.mul_(2)  # first
    if not racy:
        drawn.record_stream(compute)
    del drawn
    with makes:
        torch.zeros(64, 256, device=FIRST)  # second


@program
def event_recorded_too_early(racy: bool) -> None:
    works, compute = side(), current()
    x, done = torch.zeros(128, 128, device=FIRST), torch.Event(device=FIRST)
    works.wait_stream(compute)
    with works:
        x.add_(1)
        done.record(works)
        x.add_(2)  # first
        if not racy:
            done.record(works)
    compute.wait_event(done)
    x.sum()  # second


@program
def columns_of_a_matrix(racy: bool) -> None:
    odd, compute = side(), current()
    matrix = torch.zeros(256, 256, device=FIRST)
    odd.wait_stream(compute)
    with odd:
        matrix[:, 1::2].add_(1)  # first
    matrix[:, int(racy) :: 2].add_(1)  # second


@program
def running_metrics(racy: bool) -> None:
    logs, compute = side(), current()
    total = torch.zeros(1, device=FIRST)
    logs.wait_stream(compute)
    for _ in range(3):
        loss = torch.randn(64, device=FIRST).pow(2).mean()  # first
        if not racy:
            logs.wait_stream(compute)
        with logs:
            total.add_(loss)  # second
        loss.record_stream(logs)


def chosen(words: list[str]) -> Iterator[Callable[[bool], None]]:
    for name in words or PROGRAMS:
        yield PROGRAMS[name]


if __name__ == "__main__":
    torch.manual_seed(1)
    for each in chosen(sys.argv[2:]):
        each(sys.argv[1] == "racy")
        for device in (FIRST, OTHER):
            torch.accelerator.synchronize(torch.device(device))
