"""Draws programs of operations and runs each on the processor and on devices: the same bits.

``python drawn_programs.py DEVICES FIRST COUNT`` prints the numbers of the programs whose results differ.  A program
works with tensors on all devices and streams.  A stream waits for each other one that has used an operand, so a
program is right under each schedule.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

import peerlane.torch  # noqa: F401 - it registers the device

_STREAMS = 3  # of each device
_STEPS = 40
_WIDTHS = (4, 6, 150)  # below and above what the calling thread computes itself

Compute = Callable[..., torch.Tensor]

# All take and return tensors of two dimensions.
_OF_ONE: dict[str, Compute] = {
    "relu": torch.relu,
    "sin": torch.sin,
    "softmax": lambda a: a.softmax(1),
    "sum": lambda a: a.sum(0, keepdim=True).tanh().expand_as(a).contiguous(),
    "amax": lambda a: a - a.amax(1, keepdim=True),
    "cumsum": lambda a: a.cumsum(1).tanh(),
    "sort": lambda a: a.sort(1).values,
    "argsort": lambda a: a.gather(1, a.argsort(1)),
    "norm": lambda a: torch.nn.functional.layer_norm(a, a.shape[1:]),
    "turned": lambda a: a.t().clone(memory_format=torch.contiguous_format),
    "seen turned": lambda a: a.t(),
    "flip": lambda a: a.flip(0),
    "rounded": lambda a: a.bfloat16().float(),
    "numbers": lambda a: (a * 8).long().float() / 8,
    "mask": lambda a: torch.zeros_like(a).masked_scatter(a > 0, a[a > 0]),
    "nonzero": lambda a: a + a.nonzero().shape[0] / a.numel(),
    "item": lambda a: a + a[0, 0].item(),
}
_OF_TWO: dict[str, Compute] = {
    "add": torch.add,
    "mul": lambda a, b: (a * b).tanh(),
    "maximum": torch.maximum,
    "where": lambda a, b: torch.where(a > b, a, -b),
    "matmul": lambda a, b: (a @ b).tanh(),
    "cat": lambda a, b: torch.cat([a[:, ::2], b[:, 1::2]], 1),
    "lerp": lambda a, b: torch.lerp(a, b, 0.25),
    "gradient": lambda a, b: _gradient(a, b),
}
_IN_PLACE: dict[str, Compute] = {
    "add_": lambda a, b: a.add_(b, alpha=0.5).tanh_(),
    "copy_": lambda a, b: a.copy_(b),
    "zero_": lambda a, _: a.zero_(),
    "rows": lambda a, b: a[1::2].copy_(b[::2]),
    "column": lambda a, b: a[:, 1].mul_(b[0]),
    "index_add_": lambda a, b: a.index_add_(0, torch.arange(len(a), device=a.device).flip(0), b).tanh_(),
    "masked_fill_": lambda a, b: a.masked_fill_(b > 0.5, 0.25),
}


def _gradient(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        first, second = a.detach().clone().requires_grad_(), b.detach().clone().requires_grad_()
        (first.tanh() @ second).relu().sum().backward()
    assert first.grad is not None and second.grad is not None
    return (first.grad + second.grad).tanh()


class Step(NamedTuple):
    """An operation of a program.

    Attributes
    ----------
    kind : str
        "one", "two", "in place", "move" or "through the host".
    name : str
        Of the operation.
    first, second, result : int
        Numbers of tensors.
    device, stream : int
        Where a "move" goes to; which stream of the device runs the operation.
    """

    kind: str
    name: str
    first: int
    second: int
    result: int
    device: int
    stream: int


def draw(number: int, devices: int) -> tuple[int, list[int], list[Step]]:
    """Return a width, the devices of the first tensors, and the steps."""
    drawn = random.Random(number)
    width = drawn.choice(_WIDTHS)
    at = [each % devices for each in range(devices + 3)]
    begin, steps = list(at), list[Step]()
    for _ in range(_STEPS):
        kind = drawn.choices(("one", "two", "in place", "move", "through the host"), (5, 5, 4, 3, 1))[0]
        first = drawn.randrange(len(at))
        near = [each for each in range(len(at)) if at[each] == at[first]]
        names = {"one": _OF_ONE, "two": _OF_TWO, "in place": _IN_PLACE}.get(kind, {"": None})
        name = drawn.choice(list(names))
        second = drawn.randrange(len(at)) if name == "copy_" else drawn.choice(near)
        result = drawn.randrange(len(at))
        device = drawn.randrange(devices) if kind == "move" else at[first]
        if kind != "in place":
            at[result] = device
        steps.append(Step(kind, name, first, second, result, device, drawn.randrange(_STREAMS)))
    return width, begin, steps


class Streams:
    """The streams of devices, and which of them have used which memory."""

    def __init__(self, devices: int) -> None:
        self._streams = [
            [torch.Stream(device=f"peerlane:{device}") for _ in range(_STREAMS)] for device in range(devices)
        ]
        self._used: dict[int, set[torch.Stream]] = {}  # by a number that views share

    @contextlib.contextmanager
    def running(self, step: Step, uses: list[tuple[int, torch.Tensor]]) -> Iterator[None]:
        """Make a stream the current one; the current streams of all operands wait for what has used these."""
        with self._streams[step.device][step.stream] as stream:
            devices = {tensor.device for _, tensor in uses}
            running = {stream, *map(torch.accelerator.current_stream, devices - {stream.device})}
            for memory, tensor in uses:
                users = self._used.setdefault(memory, set())
                for each in running:
                    for other in users - {each}:
                        each.wait_stream(other)
                    tensor.record_stream(each)
                users |= running
            yield

    def note_new(self, step: Step, memory: int) -> None:
        """Note the stream of new memory."""
        self._used[memory] = {self._streams[step.device][step.stream]}


def run(number: int, devices: int, *, on_devices: bool) -> list[torch.Tensor]:
    """Run a program; return its tensors, on the processor."""
    width, begin, steps = draw(number, devices)
    where = [torch.device("peerlane", each) if on_devices else torch.device("cpu") for each in range(devices)]
    torch.manual_seed(number)
    tensors = [torch.randn(width, width).to(where[each]) for each in begin]
    memory = list(range(len(tensors)))
    streams = Streams(devices) if on_devices else None
    for count, step in enumerate(steps, len(tensors)):
        operands = {step.first, step.second} if step.kind in ("two", "in place") else {step.first}
        uses = [(memory[each], tensors[each]) for each in sorted(operands)]
        with streams.running(step, uses) if streams else contextlib.nullcontext():
            shares = memory[step.first] == memory[step.second]
            result = _computed(step, tensors, where, shares=shares)
        if result is None:
            continue
        tensors[step.result] = result
        is_view = step.name == "seen turned"
        memory[step.result] = memory[step.first] if is_view else count
        if streams and not is_view:
            streams.note_new(step, count)
    if on_devices:
        for each in range(devices):
            torch.accelerator.synchronize(each)
    return [each.cpu().contiguous() for each in tensors]


def _computed(
    step: Step, tensors: list[torch.Tensor], where: list[torch.device], *, shares: bool
) -> torch.Tensor | None:
    first, second = tensors[step.first], tensors[step.second]
    if step.kind == "one":
        return _OF_ONE[step.name](first)
    if step.kind == "two":
        return _OF_TWO[step.name](first, second)
    if step.kind == "move":
        moved: torch.Tensor = first.to(where[step.device], non_blocking=True, copy=True)
        return moved
    if step.kind == "through the host":
        return (first.cpu() * 2).to(where[step.device])
    if shares:  # an operation in place does not read what it writes
        second = second.clone()
    _IN_PLACE[step.name](first, second)
    return None


def main(devices: int, first: int, count: int) -> None:
    """Run programs, and print the numbers of those that differ."""
    torch.set_num_threads(1)
    for number in range(first, first + count):
        want, got = (run(number, devices, on_devices=each) for each in (False, True))
        same = all(
            a.shape == b.shape and torch.equal(a.view(torch.uint8), b.view(torch.uint8))
            for a, b in zip(want, got, strict=True)
        )
        if not same:
            print(number)
    print("ran", count)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
