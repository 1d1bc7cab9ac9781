"""Programs that share caches, gradients and the allocator's memory between streams and threads, right or racy.

The forms and the marks are those of ``overlapping.py``.
"""

from __future__ import annotations

import threading

import torch
from programs import FIRST, OTHER, current, pinned, program, run_chosen, side
from torch.utils.data import DataLoader, TensorDataset


@program
def gradients_accumulated_and_packed(racy: bool) -> None:
    packs, compute = side(), current()
    model = torch.nn.Linear(64, 64, device=FIRST)
    flat = torch.zeros(64 * 64, device=FIRST)
    packs.wait_stream(compute)
    for _ in range(2):
        for _ in range(3):
            (model(torch.randn(8, 64, device=FIRST)).pow(2).mean() / 3).backward()  # first
        if not racy:
            packs.wait_stream(compute)
        with packs:
            flat.copy_(model.weight.grad.flatten())  # second
        compute.wait_stream(packs)
        model.zero_grad(set_to_none=False)
        packs.wait_stream(compute)


@program
def pages_of_a_cache_put_and_selected(racy: bool) -> None:
    sends, compute = side(), current()
    cache = torch.zeros(32, 16, 64, device=FIRST)
    pages, rows = torch.tensor([3, 9, 17], device=FIRST), torch.tensor([0, 5, 2], device=FIRST)
    sends.wait_stream(compute)
    for _ in range(3):
        cache.index_put_((pages, rows), torch.randn(3, 64, device=FIRST))  # first
        if not racy:
            sends.wait_stream(compute)
        with sends:
            selected = cache.index_select(0, pages)  # second
        compute.wait_stream(sends)
        selected.record_stream(compute)
        selected.sum()


@program
def pages_sent_while_others_are_written(racy: bool) -> None:
    sends, compute = side(), current()
    cache = torch.zeros(32, 16, 64, device=FIRST)
    sent = torch.tensor([3, 9, 17], device=FIRST)
    written, row = (torch.tensor([each], device=FIRST) for each in (9 if racy else 8, 5))
    sends.wait_stream(compute)
    with sends:
        selected = cache.index_select(0, sent)  # first
    cache.index_put_((written, row), torch.randn(1, 64, device=FIRST))  # second
    compute.wait_stream(sends)
    selected.record_stream(compute)
    selected.sum()


@program
def tokens_stored_beside_those_that_are_read(racy: bool) -> None:
    stores, compute = side(), current()
    cache = torch.zeros(2, 64, 8, 16, device=FIRST)
    slots = torch.arange(20, 40, 2, device=FIRST)
    stores.wait_stream(compute)
    with stores:
        cache.index_copy_(1, slots, torch.randn(2, 10, 8, 16, device=FIRST))  # first
    cache[:, 21:40:2].sum()
    read = torch.tensor([5, -26 if racy else -25], device=FIRST)
    cache[:, read].sum()  # second
    compute.wait_stream(stores)
    cache.sum()


@program
def table_of_pages_changed_while_it_is_read(racy: bool) -> None:
    updates, compute = side(), current()
    cache, table = torch.randn(32, 64, device=FIRST), torch.zeros(8, dtype=torch.long, device=FIRST)
    updates.wait_stream(compute)
    for step in range(3):
        new = torch.arange(step, step + 8).pin_memory()
        with updates:
            table.copy_(new, non_blocking=True)  # first
        if not racy:
            compute.wait_stream(updates)
        cache[table].sum()  # second
        updates.wait_stream(compute)
        updates.synchronize()


@program
def memory_freed_by_two_streams(racy: bool) -> None:
    left, right, compute = side(), side(), current()
    drawn = torch.randn(64, 512, device=FIRST)
    results = []
    for stream in (left, right):
        stream.wait_stream(compute)
    with left:
        results.append(drawn + 1)
    drawn.record_stream(left)
    with right:
        results.append(drawn.mul(2))  # first
    if not racy:
        drawn.record_stream(right)
    del drawn
    left.synchronize()
    torch.zeros(64, 512, device=FIRST)  # second
    compute.wait_stream(right)


@program
def temporary_of_a_side_stream(racy: bool) -> None:
    helps, compute = side(), current()
    x = torch.randn(128, 256, device=FIRST)
    helps.wait_stream(compute)
    with helps:
        scratch = x * 2
    compute.wait_stream(helps)
    result = scratch.sum(0)  # first
    if not racy:
        helps.wait_stream(compute)
    del scratch
    with helps:
        torch.full((128, 256), 3.0, device=FIRST)  # second
    compute.wait_stream(helps)
    result.add_(1)


@program
def buffer_filled_by_a_thread(racy: bool) -> None:
    compute, free, filled = current(), threading.Semaphore(1), threading.Semaphore(0)
    stage, copied = pinned(128, 64), torch.Event(device=FIRST)
    targets = [torch.empty(128, 64, device=FIRST) for _ in range(4)]

    def fill() -> None:
        for number in range(len(targets)):
            free.acquire()
            if number and not racy:
                copied.synchronize()
            stage.fill_(number)
            filled.release()

    loader = threading.Thread(target=fill)
    loader.start()
    for target in targets:
        filled.acquire()
        target.copy_(stage, non_blocking=True)  # first # second
        copied.record(compute)
        free.release()
    loader.join()
    compute.synchronize()


@program
def event_of_another_thread(racy: bool) -> None:
    compute, ready = current(), threading.Event()
    table, done = torch.zeros(256, 64, device=FIRST), torch.Event(device=FIRST)
    compute.synchronize()

    def work() -> None:
        stream = side()
        with stream:
            if racy:
                done.record(stream)
            table.add_(1)  # first
            if not racy:
                done.record(stream)
        ready.set()

    worker = threading.Thread(target=work)
    worker.start()
    ready.wait()
    compute.wait_event(done)
    table.sum()  # second
    worker.join()


@program
def sum_of_gradients_in_a_hook(racy: bool) -> None:
    sums, compute = side(), current()
    x, total = torch.randn(32, 64, device=FIRST), torch.zeros(32, 64, device=FIRST)

    def add(gradient: torch.Tensor) -> None:
        sums.wait_stream(torch.accelerator.current_stream())
        with sums:
            total.add_(gradient)  # first
        gradient.record_stream(sums)

    hidden = x.requires_grad_() * 2
    hidden.register_hook(add)
    hidden.pow(2).sum().backward()
    if not racy:
        compute.wait_stream(sums)
    total.mul_(0.5)  # second


@program
def slices_in_place(racy: bool) -> None:
    upper, compute = side(), current()
    matrix = torch.zeros(128, 64, device=FIRST)
    upper.wait_stream(compute)
    with upper:
        matrix[:64].add_(1).clamp_(max=3)[10:20].zero_()
        matrix.narrow(0, 60, 4).mul_(2)  # first
    matrix[64 - int(racy) :].sub_(1)  # second


@program
def views_of_a_transposed_matrix(racy: bool) -> None:
    rows, compute = side(), current()
    matrix = torch.zeros(64, 64, device=FIRST)
    rows.wait_stream(compute)
    with rows:
        matrix.t()[3].fill_(1)  # first
    matrix.view(8, 8, 64)[..., 4 - int(racy)].add_(1)  # second


@program
def polled_copy_to_the_host(racy: bool) -> None:
    copies, compute = side(), current()
    result, host = torch.randn(64, 64, device=FIRST), torch.empty(64, 64, pin_memory=True)
    copied = torch.Event(device=FIRST)
    copies.wait_stream(compute)
    copied.record(copies)
    with copies:
        host.copy_(result, non_blocking=True)  # first
    if not racy:
        copied.record(copies)
    while not copied.query():
        pass
    host.sum()  # second
    copies.synchronize()


@program
def results_read_by_a_thread(racy: bool) -> None:
    compute, copied = current(), torch.Event(device=FIRST)
    result, host = torch.randn(64, 64, device=FIRST), torch.empty(64, 64, pin_memory=True)
    host.copy_(result, non_blocking=True)  # first
    copied.record(compute)

    def write() -> None:
        if not racy:
            copied.synchronize()
        host.sum()  # second

    writer = threading.Thread(target=write)
    writer.start()
    writer.join()
    compute.synchronize()


@program
def function_with_a_gradient_of_its_own(racy: bool) -> None:
    prepares, compute = side(), current()

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(context: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
            context.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(context: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> torch.Tensor:
            (x,) = context.saved_tensors
            return 2 * x * gradient  # second

    x = torch.zeros(64, 64, device=FIRST, requires_grad=True)
    y = Square.apply(x).sum()
    prepares.wait_stream(compute)
    with prepares, torch.no_grad():
        x.data.add_(1)  # first
    if not racy:
        compute.wait_stream(prepares)
    y.backward()
    compute.synchronize()


@program
def states_of_a_foreach_optimizer(racy: bool) -> None:
    saves, compute = side(), current()
    model = torch.nn.Sequential(*[torch.nn.Linear(32, 32, device=FIRST) for _ in range(2)])
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)

    def step() -> None:
        model(torch.randn(8, 32, device=FIRST)).pow(2).mean().backward()
        optimizer.step()  # second

    step()
    states = [state["exp_avg"] for state in optimizer.state.values()]
    saves.wait_stream(compute)
    with saves:
        torch._foreach_mul(states, 2.0)  # first
    if not racy:
        compute.wait_stream(saves)
    step()
    compute.wait_stream(saves)


@program
def norm_of_gradients_too_early(racy: bool) -> None:
    norms, compute = side(), current()
    model = torch.nn.Linear(64, 64, device=FIRST)
    model(torch.randn(8, 64, device=FIRST)).pow(2).mean().backward()
    norms.wait_stream(compute)
    model(torch.randn(8, 64, device=FIRST)).pow(2).mean().backward()  # first
    if not racy:
        norms.wait_stream(compute)
    with norms:
        torch.nn.utils.get_total_norm([each.grad for each in model.parameters()])  # second
    compute.wait_stream(norms)


@program
def weights_gathered_and_freed(racy: bool) -> None:
    gathers, compute = side(), current()
    shard = torch.randn(64, 64, device=FIRST)
    gathers.wait_stream(compute)
    with gathers:
        weight = torch.empty(64, 64, device=FIRST)
        weight.copy_(shard)
    compute.wait_stream(gathers)
    result = torch.randn(8, 64, device=FIRST).mm(weight)  # first
    if not racy:
        gathers.wait_stream(compute)
    with gathers:
        weight.untyped_storage().resize_(0)
        torch.zeros(64, 64, device=FIRST)  # second
    compute.wait_stream(gathers)
    result.sum()


@program
def experts_on_streams_of_their_own(racy: bool) -> None:
    experts, compute = [side(), side()], current()
    tokens, combined = torch.randn(64, 32, device=FIRST), torch.zeros(64, 32, device=FIRST)
    mine = [torch.arange(0, 40, device=FIRST), torch.arange(30, 64, device=FIRST)]
    weights = [torch.randn(32, 32, device=FIRST) for _ in experts]
    for stream in experts:
        stream.wait_stream(compute)
    first, last = experts
    with first:
        combined.index_add_(0, mine[0], tokens[mine[0]] @ weights[0])  # first
    if not racy:
        last.wait_stream(first)
    with last:
        combined.index_add_(0, mine[1], tokens[mine[1]] @ weights[1])  # second
    for stream in experts:
        compute.wait_stream(stream)


@program
def average_of_weights(racy: bool) -> None:
    averages, compute = side(), current()
    model = torch.nn.Linear(64, 64, device=FIRST)
    weights = list(model.parameters())
    average = [each.detach().clone() for each in weights]
    optimizer = torch.optim.SGD(weights, lr=0.1, foreach=True)
    averages.wait_stream(compute)
    for _ in range(2):
        model(torch.randn(8, 64, device=FIRST)).pow(2).mean().backward()
        optimizer.step()  # first
        if not racy:
            averages.wait_stream(compute)
        with averages, torch.no_grad():
            torch._foreach_lerp_(average, weights, 0.1)  # second
        compute.wait_stream(averages)
        averages.wait_stream(compute)


@program
def statistics_of_a_batch_norm(racy: bool) -> None:
    logs, compute = side(), current()
    norm = torch.nn.BatchNorm1d(64, device=FIRST)
    logs.wait_stream(compute)
    norm(torch.randn(32, 64, device=FIRST))  # first
    if not racy:
        logs.wait_stream(compute)
    with logs:
        norm.running_mean.abs()  # second
    compute.wait_stream(logs)


@program
def mask_of_another_stream(racy: bool) -> None:
    masks, compute = side(), current()
    scores = torch.randn(128, 64, device=FIRST)
    mask = torch.zeros(128, 64, dtype=torch.bool, device=FIRST)
    masks.wait_stream(compute)
    with masks:
        torch.gt(scores, 0, out=mask)  # first
    if not racy:
        compute.wait_stream(masks)
    scores[mask]  # second
    compute.wait_stream(masks)


@program
def ragged_batch(racy: bool) -> None:
    packs, compute = side(), current()
    packs.wait_stream(compute)
    lengths = (3, 5, 2)
    rows = torch.zeros(3, 8, 16, device=FIRST)
    for number, length in enumerate(lengths):
        rows[number, :length].normal_()  # first
    if not racy:
        packs.wait_stream(compute)
    with packs:
        packed = torch.cat([rows[number, :length] for number, length in enumerate(lengths)])  # second
    compute.wait_stream(packs)
    packed.record_stream(compute)


@program
def gradient_of_another_device(racy: bool) -> None:
    fetches, compute = side(FIRST), current(FIRST)
    weight = torch.randn(64, 64, device=OTHER, requires_grad=True)
    total = torch.zeros(64, 64, device=FIRST)
    fetches.wait_stream(compute)
    (torch.randn(8, 64, device=OTHER) @ weight).pow(2).mean().backward()
    current(OTHER).synchronize()
    with fetches:
        total.copy_(weight.grad)  # first
    if not racy:
        compute.wait_stream(fetches)
    total.mul_(2)  # second
    compute.wait_stream(fetches)


@program
def batches_of_a_loader_that_pins(racy: bool) -> None:
    copies, compute = side(), current()
    loader = DataLoader(TensorDataset(torch.randn(64, 64)), batch_size=16, pin_memory=True)
    for (batch,) in loader:
        with copies:
            moved = batch.to(FIRST, non_blocking=True)  # first
        if not racy:
            compute.wait_stream(copies)
        moved.record_stream(compute)
        moved.relu().sum()  # second
        compute.synchronize()


if __name__ == "__main__":
    run_chosen()
