"""Symmetric memory of ``torch.distributed`` on devices: memory of all ranks, signals in stream order, ends."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.torch_ranks import Programs, needs_torch, under_the_name_cuda
from peerlane.testing.procs import run_python

needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(580)]
SCHEDULES = pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:7"])
SOON = 10.0  # seconds; the promise is 0.5, and the machine may be busy

_SYMMETRIC = """
import torch.distributed._symmetric_memory as symmetric
here = torch.device("peerlane", rank)
world = dist.group.WORLD
others = [each for each in range(size) if each != rank]

def finished(call, *args, **options):
    call(*args, **options)
    torch.accelerator.synchronize(here)

def memory(*shape, dtype=torch.float32, group=None):
    own = symmetric.empty(*shape, dtype=dtype, device=here)
    return own, symmetric.rendezvous(own, group or world)
"""


@pytest.fixture(autouse=True)
def _node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEERLANE_NODE", "devices=4")


def test_rendezvous_maps_memory_and_signal_pads_of_all_ranks(programs: Programs) -> None:
    results = programs.run(
        _SYMMETRIC
        + """
own, shared = memory(10, 7)
found["facts"] = [shared.rank, shared.world_size, shared.buffer_size, str(shared.device), shared.multicast_ptr]
found["own"] = shared.buffer_ptrs[rank] == own.data_ptr() and shared.buffer_ptrs_dev and shared.signal_pad_ptrs_dev
found["is_symmetric"] = [symmetric.is_symm_mem_tensor(each) for each in (own, torch.ones(3, device=here))]
found["back-end"] = symmetric.get_backend(here)
torch.accelerator.set_device_index((rank + 1) % size)
found["current"] = symmetric.empty(3, device="peerlane").device.index
torch.accelerator.set_device_index(0)
found["again"] = symmetric.rendezvous(own, world).buffer_ptrs == shared.buffer_ptrs
found["other"] = symmetric.rendezvous(torch.ones(3, device=here), world)
own.copy_(torch.arange(70).view(10, 7) + 100 * rank)
shared.barrier()
found["buffers"] = [shared.get_buffer(each, (10, 7), torch.float32)[9, 6].item() for each in range(size)]
found["part"] = [shared.get_buffer(each, (2,), torch.float32, 5).tolist() for each in range(size)]
shared.barrier()
for each in others:
    shared.get_signal_pad(each, (size,))[rank] = rank + 1
    shared.get_buffer(each, (70,), torch.float32)[rank] = -1
shared.barrier()
found["pad"] = shared.get_signal_pad(rank, (size,)).tolist()
found["written"] = own.view(-1)[:size].tolist()
found["pad's size"] = shared.get_signal_pad(rank).numel() * 4 == shared.signal_pad_size
kept = [symmetric._SymmetricMemory.empty_strided_p2p((2, 3), (3, 1), torch.int64, here, alloc_id=5).data_ptr()
        for _ in range(2)]
found["kept"] = kept[0] == kept[1]
half = dist.new_group([0, 2])
if rank != 1:
    _, small = memory(4, group=half)
    found["half"] = [small.rank, small.world_size]
""",
        size=3,
    )
    for rank, each in enumerate(results):
        assert each["facts"] == [rank, 3, 280, f"peerlane:{rank}", 0]
        assert each["own"] and each["again"] and each["pad's size"] and each["kept"] and each["other"] is None
        assert each["current"] == (rank + 1) % 3
        assert each["is_symmetric"] == [True, False] and each["back-end"] == "peerlane"
        assert each["buffers"] == [69 + 100 * other for other in range(3)]
        assert each["part"] == [[5 + 100 * other, 6 + 100 * other] for other in range(3)]
        assert each["pad"] == [0 if other == rank else other + 1 for other in range(3)]
        assert each["written"] == [100 * rank + other if other == rank else -1 for other in range(3)]
    assert [each.get("half") for each in results] == [[0, 2], None, [1, 2]]


@SCHEDULES
def test_signals_and_barriers_are_in_stream_order_and_do_not_block_the_program(
    programs: Programs, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    results = programs.run(
        _SYMMETRIC
        + """
own, shared = memory(50_000)
store = dist.distributed_c10d._get_default_store()
found["sums"] = []
for step in range(5):
    own.fill_(step + rank)
    shared.barrier()
    found["sums"].append(sum(shared.get_buffer(each, (50_000,), torch.float32).sum() for each in range(size)))
    shared.barrier(channel=1)
found["sums"] = [each.item() for each in found["sums"]]
if rank == 0:
    for step in range(4):  # the second signal waits for the consumption of the first
        own.fill_(step)
        shared.put_signal(1, channel=2)
        shared.wait_signal(1, channel=3)
    store.set("queued", "")
else:
    store.wait(["queued"])  # rank 0 has come here without this rank's signals
    copies = []
    for step in range(4):
        shared.wait_signal(0, channel=2)
        copies.append(shared.get_buffer(0, (50_000,), torch.float32).clone())
        shared.put_signal(0, channel=3)
    found["copies"] = [each.unique().tolist() for each in copies]
shared.put_signal(rank, channel=4)
shared.wait_signal(rank, channel=4)
side = torch.Stream(device=here)
with side:
    shared.barrier(channel=5)
    seen = shared.get_buffer(1 - rank, (50_000,), torch.float32).sum()
side.synchronize()
torch.accelerator.synchronize(here)
found["pad"] = shared.get_signal_pad(rank).to(torch.int64).sum().item()
"""
    )
    for each in results:
        assert each["sums"] == [50_000.0 * (2 * step + 1) for step in range(5)]
        assert each["pad"] == 0
    assert results[1]["copies"] == [[float(step)] for step in range(4)]


def test_signal_that_is_not_consumed_and_one_that_does_not_come_end_by_their_time_outs(
    programs: Programs,
) -> None:
    results = programs.run(
        _SYMMETRIC
        + """
own, shared = memory(10)
if rank == 0:
    shared.put_signal(1, timeout_ms=200)
    torch.accelerator.synchronize(here)
    found["put"] = caught(finished, shared.put_signal, 1, timeout_ms=200)
else:
    found["wait"] = caught(finished, shared.wait_signal, 0, channel=9, timeout_ms=200)
found["rank"] = caught(shared.put_signal, 2)
found["channel"] = caught(shared.barrier, channel=1 << 30)
dist.barrier()
"""
    )
    kind, text, _ = results[0]["put"]
    assert kind == "AcceleratorError" and "0.2 s" in text
    assert "consumption of the signal of channel 0 from rank 1 to rank 0" in text
    kind, text, _ = results[1]["wait"]
    assert kind == "AcceleratorError" and "0.2 s [signal of channel 9 from rank 0 to rank 1" in text
    for each in results:
        assert "rank 2 does not exist; valid are 0 to 1" in each["rank"][1]
        assert "barrier: channel 1073741824 does not exist" in each["channel"][1]


def test_rank_that_ends_behind_a_queued_barrier_takes_part_in_it(programs: Programs) -> None:
    results = programs.run(
        _SYMMETRIC
        + """
own, shared = memory(10)
finished(shared.barrier)
if rank == 1:
    torch.peerlane.sleep(500_000_000, here)
for _ in range(3):
    shared.barrier()
dist.destroy_process_group = lambda: None
if rank == 0:
    torch.accelerator.synchronize(here)
    found["is over"] = True
"""
    )
    assert results[0]["is over"]


@pytest.mark.parametrize("other", ["finished(shared.wait_signal, 0, channel=4)", "dist.barrier()"])
def test_signal_that_no_rank_can_send_any_more_is_a_deadlock(programs: Programs, other: str) -> None:
    results = programs.run(
        f"""
{_SYMMETRIC}
own, shared = memory(10)
finished(shared.barrier)
began = time.monotonic()
if rank == 0:
    found["error"] = caught(finished, shared.wait_signal, 1, channel=3)
else:
    found["error"] = caught(lambda: {other})
found["seconds"] = time.monotonic() - began
""",
    )
    for each in results:
        assert each["seconds"] < SOON
        kind, text, cause = each["error"]
        assert kind in ("AcceleratorError", "DistBackendError") and cause == "Deadlock"
        assert "signal of channel 3 from rank 1 to rank 0" in text
    if "wait_signal" in other:
        assert "signal of channel 4 from rank 0 to rank 1" in results[0]["error"][1]


@pytest.mark.parametrize(
    "call", ["shared.barrier()", "shared.wait_signal(1)", "[shared.put_signal(1), shared.put_signal(1)]"]
)
def test_rank_that_dies_ends_the_waits_for_it_by_its_name(programs: Programs, call: str) -> None:
    results = programs.run(
        f"""
{_SYMMETRIC}
own, shared = memory(1000)
finished(shared.barrier)
if rank == 1:
    os._exit(1)
began = time.monotonic()
found["error"] = caught(finished, lambda: {call})
found["seconds"] = time.monotonic() - began
found["bytes"] = shared.get_buffer(1, (2,), torch.float32).tolist()
""",
        size=2,
        may_fail=True,
    )
    assert results[1] is None
    kind, text, _ = results[0]["error"]
    assert kind == "AcceleratorError" and "rank 1 to rank 0" in text and "process" in text, text
    assert results[0]["seconds"] < SOON
    assert len(results[0]["bytes"]) == 2


def test_memory_is_freed_with_its_tensor_and_rendezvous(programs: Programs) -> None:
    results = programs.run(
        _SYMMETRIC
        + """
def resources():
    return torch.peerlane.mem_get_info(here)[0], len(os.listdir("/proc/self/fd"))

def is_freed():
    (free, descriptors), (free_before, descriptors_before) = resources(), before
    return free >= free_before and descriptors < descriptors_before + 10

def once():
    own, shared = memory(1 << 20)
    shared.barrier()
    seen = shared.get_buffer(1 - rank, (1 << 20,), torch.float32)
    del own  # the memory is the rendezvous', too
    seen.add_(1)
    shared.barrier()
    torch.accelerator.synchronize(here)

for _ in range(3):
    once()
before, end = resources(), time.monotonic() + 30
for _ in range(20):
    once()
# The other rank closes its mapping of this one's memory behind what is queued there.
while not is_freed() and time.monotonic() < end:
    time.sleep(0.01)
found["freed"] = [is_freed(), before, resources()]
dist.barrier()
"""
    )
    for each in results:
        assert each["freed"][0], each


@SCHEDULES
def test_tensor_of_memory_that_has_ended_is_refused(
    programs: Programs, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    results = programs.run(
        _SYMMETRIC
        + """
own, shared = memory(1 << 16)
own.fill_(3)
shared.barrier()
parts = [shared.get_buffer(each, (1 << 16,), torch.float32) for each in range(size)]
pad = shared.get_signal_pad(1 - rank)
totals = [each.sum() for each in parts]  # queued, with the memory
shared.barrier()
del own, shared
calls = {
    "add": lambda each: each.add(1), "fill_": lambda each: each.fill_(1), "print": repr,
    "host": lambda each: each.cpu(), "device": lambda each: each.to(torch.device("peerlane", 2)),
    "nonzero": lambda each: each.nonzero(),
}
found["early"] = {name: [caught(call, each) for each in (*parts, pad)] for name, call in calls.items()}
found["totals"] = [each.item() for each in totals]
torch.accelerator.synchronize(here)
dist.barrier()
calls["all_reduce"] = dist.all_reduce
found["late"] = {name: [caught(call, each) for each in (*parts, pad)] for name, call in calls.items()}
"""
    )
    for each in results:
        assert each["totals"] == [3.0 * (1 << 16)] * 2
        for kind, text, _ in each["early"]["add"]:
            assert kind == "BadAddress" and "keep what does: for get_buffer" in text
        for answers in (
            *each["early"].values(),
            *each["late"].values(),
        ):  # None: other memory lies there by now
            assert {answer and answer[0] for answer in answers} <= {None, "BadAddress", "DistBackendError"}, (
                each
            )


def test_rendezvous_that_cannot_be_is_refused_by_all_ranks(programs: Programs) -> None:
    results = programs.run(
        _SYMMETRIC
        + """
found["sizes"] = caught(memory, 10 + rank)
found["devices"] = caught(lambda: symmetric.rendezvous(symmetric.empty(10, device="peerlane:0"), world))
found["group"] = caught(symmetric._SymmetricMemory.rendezvous, symmetric.empty(10, device=here))
found["room"] = caught(symmetric.empty, 1 << 45, device=here)
found["processor"] = caught(symmetric.empty, 10)
store = dist.PrefixStore(f"peerlane/symmetric/{world.group_name}", dist.distributed_c10d._get_default_store())
if rank == 1:
    own = symmetric.empty(10, device=here)
    from peerlane.torch import symmetric_memory
    symmetric_memory.json.dumps = lambda offer: '["' + '[' * 5000
    found["damaged"] = caught(symmetric.rendezvous, own, world)
else:
    found["damaged"] = caught(memory, 10)
"""
    )
    for each in results:
        assert "rank 0 has 40 and" in each["sizes"][1] and "rank 1 has 44 and" in each["sizes"][1]
        assert "the ranks' memory is on the devices [0, 0]" in each["devices"][1]
        assert "no group is named" in each["group"][1]
        assert each["room"][0] == "OutOfMemoryError" and "out of memory" in each["room"][1]
        assert "does not support device type cpu" in each["processor"][1]
        assert "the offer of rank 1 in the store is damaged" in each["damaged"][1]


_OPERATIONS = """
name = world.group_name
ops = torch.ops.symm_mem

def equal(result, wanted):
    return torch.equal(result.cpu(), wanted)

def of_rank(each, count=1003):
    return torch.arange(float(count)) + each

def fresh(count=1003):
    own, shared = memory(count)
    own.copy_(of_rank(rank, count))
    return own

wanted = sum(map(of_rank, range(size)))
own, out, local = fresh(), torch.empty(1003, device=here), of_rank(rank, 7).to(here)
found["equal"] = [
    equal(ops.one_shot_all_reduce(own, "sum", name), wanted),
    equal(ops.one_shot_all_reduce_out(own, "sum", name, out), wanted),
    equal(out, wanted),
    equal(ops.two_shot_all_reduce_out(fresh(), "sum", name, torch.empty(1003, device=here)), wanted),
    equal(ops.two_shot_all_reduce_(fresh(), "sum", name), wanted),
    equal(ops.one_shot_all_reduce_copy(own, local, "sum", name), wanted[:7]),
]
table = of_rank(rank, 16 * size).view(4, 4 * size)
whole, _ = memory(4, 4 * size)
whole.copy_(table)
total = sum(of_rank(each, 16 * size) for each in range(size))
found["parts"] = [
    equal(ops.reduce_scatter_out(whole, name, True, torch.empty(4, 4, device=here)),
          total.view(4, -1).chunk(size, -1)[rank]),
    equal(ops.reduce_scatter_out(whole.view(-1), name, False, torch.empty(16, device=here)), total.chunk(size)[rank]),
]
own = fresh()
torch.accelerator.synchronize(here)
dist.barrier()
found["remote"] = [each[3].item() for each in ops.get_remote_tensors(own, name)]
dist.barrier()
words = torch.zeros(8, dtype=torch.uint32, device=here)
symmetric._SymmetricMemory.memset32(words, 1, 7, 3)
symmetric._SymmetricMemory.stream_write_value32(words, 6, (1 << 32) - 1)
found["words"] = words.tolist()
found["refused"] = [
    caught(ops.one_shot_all_reduce, own, "avg", name),
    caught(ops.one_shot_all_reduce, torch.ones(3, device=here), "sum", name),
    caught(ops.multimem_all_reduce_, own, "sum", name),
    caught(ops.nvshmem_put, own, 1),
    caught(symmetric._SymmetricMemory.memset32, words, 7, 1, 3),
    caught(symmetric._SymmetricMemory.stream_write_value32, words, 0, -1),
    caught(symmetric._SymmetricMemory.memset32, words.view(torch.float32), 0, 1, 1),
    caught(symmetric._SymmetricMemory.memset32, words.view(2, 4), 0, 1, 1),
    caught(ops.reduce_scatter_out, own[:4 * size + 4], name, False, torch.empty((4 * size + 4) // size, device=here)),
    caught(ops.reduce_scatter_out, whole, name, False, torch.empty(16, device=here)),
    caught(ops.one_shot_all_reduce, whole.view(torch.uint8).view(-1)[2:8], "sum", name),
]
"""


def _check_operations(results: list[Any], size: int, device: str) -> None:
    for rank, each in enumerate(results):
        assert all(each["equal"]) and all(each["parts"]), each
        assert each["remote"] == [3.0 + other for other in range(size)]
        assert each["words"] == [0, 7, 7, 7, 0, 0, (1 << 32) - 1, 0]
        kinds, texts, _ = zip(*each["refused"], strict=True)
        assert set(kinds) <= {"RuntimeError", "NotImplementedError"}
        assert "the reduction is 'avg'" in texts[0] and "is not in symmetric memory" in texts[1]
        assert f"{device}:{rank} cannot run symm_mem::multimem_all_reduce_" in texts[2]
        assert f"{device}:{rank} cannot run symm_mem::nvshmem_put" in texts[3]
        assert "(7 + 3) exceeded the numel of the input (8)" in texts[4] and "the value is -1" in texts[5]
        assert all("must be a flat, contiguous uint32 tensor" in text for text in texts[6:8])
        assert "must be divisible by" in texts[8] and "both have one dimension" in texts[9]
        assert "begins at byte 2 of its memory and has 6 bytes; both must be divisible by 4" in texts[10]


@SCHEDULES
def test_operations_on_symmetric_memory_compute_and_others_are_refused_by_name(
    programs: Programs, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    _check_operations(programs.run(_SYMMETRIC + _OPERATIONS, size=3), 3, "peerlane")


PROGRAM = Path(__file__).with_name("check_programs") / "symmetric.py"
_LEFT_OUT = {
    "no barrier behind the write": "ring",
    "no barrier behind the read": "ring",
    "no wait for the signal": "push",
    "barrier on another stream": "overlap",
}


def _findings(name: str, form: str, schedule: str, folder: Path) -> list[dict[str, Any]]:
    report = folder / "report.json"
    options = ["--torch-cuda"] if name == "cuda" else []
    words = ["-m", "peerlane", "check", *options, "-n", "2", "--devices", "2", "--json", str(report)]
    settings = {"PEERLANE_SCHEDULE": schedule, "OMP_NUM_THREADS": "1"}
    done = run_python([*words, str(PROGRAM), name, form], timeout=560, env={**os.environ, **settings})
    assert done.returncode == (0 if form == "right" else 3), done.stdout + done.stderr
    return list(_with_consequences(json.loads(report.read_text())["findings"]))


def _with_consequences(findings: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for each in findings:
        yield each
        yield from _with_consequences(each["consequences"])


@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        ("peerlane", "eager"),
        ("peerlane", "lazy"),
        ("peerlane", "seeded:7"),
        pytest.param("cuda", "eager", marks=under_the_name_cuda),
    ],
)
def test_right_program_on_symmetric_memory_has_no_finding(name: str, schedule: str, tmp_path: Path) -> None:
    assert _findings(name, "right", schedule, tmp_path) == []


@pytest.mark.parametrize(
    ("name", "form"),
    [
        *(("peerlane", form) for form in _LEFT_OUT),
        pytest.param("cuda", "no wait for the signal", marks=under_the_name_cuda),
    ],
)
def test_order_that_is_left_out_is_a_race_with_both_lines(name: str, form: str, tmp_path: Path) -> None:
    lines = PROGRAM.read_text().splitlines()
    wanted = {number for number, line in enumerate(lines, 1) if f"# {_LEFT_OUT[form]}'s" in line}
    findings = [each for each in _findings(name, form, "eager", tmp_path) if each["certain"]]
    named = [each for each in findings if {site["line"] for site in each["sites"]} == wanted]
    assert named, findings
    assert all("wait_signal of symmetric memory" in each["missing"] for each in named), named


@under_the_name_cuda
def test_fused_operations_of_torch_run_as_cuda(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    results = programs.launched(
        ["-m", "peerlane", "launch", "--torch-cuda", "-n", "2", "--devices", "2"],
        _SYMMETRIC.replace('"peerlane"', '"cuda"')
        + "torch.cuda.set_device(here)"
        + _OPERATIONS
        + """
def drawn(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))

def done(result):
    return torch.ops._c10d_functional.wait_tensor(result).cpu()

pair, columns = of_rank(rank, 6).view(2, 3).to(here), drawn(9, 8, 6)
found["low"] = [
    torch.equal(done(ops._low_contention_all_gather(pair, name)),
                torch.cat([of_rank(each, 6).view(2, 3) for each in range(size)])),
    torch.equal(done(ops._low_contention_reduce_scatter(pair, "sum", name)),
                sum(of_rank(each, 6).view(2, 3) for each in range(size)).chunk(size)[rank]),
]
_, (product,) = ops.fused_all_gather_matmul(drawn(rank, 4, 8).to(here), [columns.to(here)], 0, name)
scattered = ops.fused_matmul_reduce_scatter(drawn(rank, 4, 8).to(here), columns.to(here), "sum", 0, name)
found["fused"] = [
    torch.allclose(product.cpu(), torch.cat([drawn(each, 4, 8) for each in range(size)]) @ columns),
    torch.allclose(scattered.cpu(), sum(drawn(each, 4, 8) @ columns for each in range(size)).chunk(size)[rank],
                   atol=1e-5),
]
symmetric.set_backend("CUDA")
found["others"] = caught(symmetric.set_backend, "NVSHMEM")
""",
        timeout=560,
    )
    _check_operations(results, 2, "cuda")
    for each in results:
        assert all(each["low"]) and all(each["fused"])
        assert "does not find allocation backend NVSHMEM" in each["others"][1]
