"""Tensors of devices in several processes: ``torch.multiprocessing`` sends handles, and no bytes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from helpers.torch_ranks import needs_torch
from peerlane.testing.procs import run_python

needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]

_HEAD = """
import json, os, pickle, signal, sys, time
import torch
import torch.multiprocessing as multiprocessing
import peerlane.torch
from peerlane.torch import shared_tensors

torch.set_num_threads(1)
found = {}

def caught(call, *args):
    try:
        call(*args)
    except Exception as error:
        return [type(error).__name__, str(error)]

def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)

def allocated():
    shared_tensors.collect()
    return torch.peerlane.memory_allocated(0)
"""
_MAIN = """
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    queue, back = context.Queue(), context.Queue()
    child = context.Process(target=work, args=(theirs, queue, back))
    child.start()
    theirs.close()
    main()
    child.join()
    print(json.dumps(found))
"""


def _run(folder: Path, text: str, schedule: str = "eager") -> Any:
    import json

    program = folder / "program.py"
    program.write_text(_HEAD + text + _MAIN)
    settings = {"PEERLANE_NODE": "devices=2", "PEERLANE_SCHEDULE": schedule, "OMP_NUM_THREADS": "1"}
    done = run_python([str(program)], timeout=120, env={**os.environ, **settings})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:7"])
def test_both_processes_see_the_bytes_and_the_sender_keeps_them(tmp_path: Path, schedule: str) -> None:
    results = _run(
        tmp_path,
        """
def work(pipe, queue, back):
    first, second = queue.get(), queue.get()
    facts = [str(first.device), first.sum().item(), list(second.stride()), second.sum().item(),
             first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()]
    first.mul_(2)
    back.put(torch.full((3,), 7.0, device="peerlane:1"))  # also waits for what is queued
    torch.peerlane.synchronize()
    facts.append(caught(multiprocessing.reductions.reduce_tensor, first))
    pipe.send(facts)
    parameter, empty = queue.get(), queue.get()
    pipe.send([type(parameter).__name__, parameter.requires_grad, empty.numel(), str(empty.device)])
    del parameter, empty
    assert pipe.recv() == "look"
    pipe.send(second.sum().item())
    second = second.mul(2).sum()  # queued, when its memory ends
    del first
    pipe.send(second.item())
    pipe.recv()

def main():
    tensor = torch.arange(1000.0, device="peerlane:0") + 1
    queue.put(tensor)
    queue.put(tensor[10:110].view(10, 10).t())
    got = back.get()
    found["got"] = [got.tolist(), str(got.device)]
    found["facts"] = ours.recv()
    found["doubled"] = tensor[:3].tolist()
    queue.put(torch.nn.Parameter(torch.ones(2, device="peerlane:0")))
    queue.put(torch.empty(0, 3, device="peerlane:0"))
    found["others"] = ours.recv()
    graph = torch.ones(2, device="peerlane:0", requires_grad=True) * 2
    found["graph"] = caught(multiprocessing.reductions.reduce_tensor, graph)
    words = multiprocessing.reductions.reduction.ForkingPickler.dumps(torch.ones(1 << 20, device="peerlane:0"))
    found["bytes"] = len(words)
    with_copy = torch.peerlane.memory_allocated(0)
    del tensor, graph
    other = torch.zeros(1000, device="peerlane:0")  # does not get the memory that the child has
    ours.send("look")
    found["kept"] = [ours.recv(), ours.recv()]
    until(lambda: allocated() <= 4096 + (4 << 20))  # what was pickled is never received
    ours.send("end")
""",
        schedule,
    )
    assert results["got"] == [[7.0] * 3, "peerlane:1"]
    *facts, resent = results["facts"]
    assert facts == ["peerlane:0", 500500.0, [1, 10], sum(range(11, 111)), True]
    assert resent[0] == "RuntimeError" and "send a clone" in resent[1]
    assert results["doubled"] == [2.0, 4.0, 6.0]
    assert results["others"] == ["Parameter", True, 0, "peerlane:0"]
    assert results["graph"][0] == "RuntimeError" and "detach()" in results["graph"][1]
    assert results["bytes"] < 2000
    assert results["kept"] == [2.0 * sum(range(11, 111)), 4.0 * sum(range(11, 111))]


def test_killed_receiver_and_ended_sender(tmp_path: Path) -> None:
    results = _run(
        tmp_path,
        """
def work(pipe, queue, back):
    first = queue.get()
    pipe.send(first.sum().item())
    mine = torch.ones(100, device="peerlane:0")
    back.put(mine)
    pipe.send(torch.ones(5, device="peerlane:0"))
    pipe.recv()
    os.kill(os.getpid(), signal.SIGKILL)

def main():
    tensor = torch.ones(1 << 20, device="peerlane:0")
    queue.put(tensor)
    found["sum"] = ours.recv()
    del tensor
    found["while it lives"] = allocated()
    theirs_too = back.get()
    ours.send("die")
    child.join()
    until(lambda: allocated() == 0)
    found["bytes of the dead"] = theirs_too.sum().item()
    found["unreceived"] = caught(ours.recv)
    mine = torch.ones(4, device="peerlane:0")
    for turn in range(3):  # it comes back to the process that sent it
        queue.put(mine)
        until(lambda: not queue.empty())
        if turn == 2:
            del mine
        got = queue.get()
        found[f"own {turn}"] = [got.sum().item(), turn < 2 and got.data_ptr() == mine.data_ptr()]
    del got
    until(lambda: allocated() == 0)
""",
    )
    assert results["sum"] == 1 << 20
    assert results["while it lives"] == 4 << 20
    assert results["bytes of the dead"] == 100.0
    kind, text = results["unreceived"]
    assert kind == "PeerLost" and "has ended" in text, text
    assert [results[f"own {turn}"] for turn in range(3)] == [[4.0, True], [4.0, True], [4.0, False]]


def test_sparse_and_nested_tensors_are_sent_as_handles_of_their_parts(tmp_path: Path) -> None:
    results = _run(
        tmp_path,
        """
def work(pipe, queue, back):
    facts = []
    for _ in range(3):
        tensor = queue.get()
        dense = tensor.to_padded_tensor(0.0) if tensor.is_nested else tensor.to_dense()
        facts.append([str(tensor.device), str(tensor.layout), tensor.is_nested, dense.tolist()])
        values = tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()
        values.mul_(2)
    torch.peerlane.synchronize()
    pipe.send(facts)
    pipe.recv()

def main():
    rows = torch.tensor([[0.0, 1.0], [2.0, 0.0]], device="peerlane:1")
    nested = torch.nested.nested_tensor([rows, rows[:1]])
    tensors = [rows.to_sparse(), rows.to_sparse_csr(), nested]
    for each in tensors:
        queue.put(each)
    found["facts"] = ours.recv()
    found["doubled"] = [tensors[0].to_dense().tolist(), tensors[1].to_dense().tolist()]
    ours.send("over")
""",
    )
    dense = [[0.0, 1.0], [2.0, 0.0]]
    assert results["facts"] == [
        ["peerlane:1", "torch.sparse_coo", False, dense],
        ["peerlane:1", "torch.sparse_csr", False, dense],
        ["peerlane:1", "torch.strided", True, [dense, [[0.0, 1.0], [0.0, 0.0]]]],
    ]
    assert results["doubled"] == [[[0.0, 2.0], [4.0, 0.0]]] * 2
