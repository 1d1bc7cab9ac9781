"""What programs of torch get when ranks disagree, wait in vain, die or are late."""

from __future__ import annotations

import pytest

from helpers.torch_ranks import Programs, needs_torch

needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(150)]

SOON = 10.0  # seconds; the promises are 0.5 and 2, and the machine may be busy


def test_other_collective_or_size_raises_where_the_last_rank_calls(programs: Programs) -> None:
    results = programs.run(
        """
groups = [dist.new_group() for _ in range(3)]
dist.barrier()
tensor = torch.zeros(1000)
if rank == 0:
    found["other"] = caught(dist.all_reduce, tensor, group=groups[0])
    found["size"] = caught(dist.all_reduce, tensor[:10], group=groups[1])
    found["op"] = caught(dist.all_reduce, tensor, dist.ReduceOp.MAX, group=groups[2])
else:
    found["other"] = caught(dist.broadcast, tensor, 0, group=groups[0])
    found["size"] = caught(dist.all_reduce, tensor[:11], group=groups[1])
    found["op"] = caught(dist.all_reduce, tensor, group=groups[2])
dist.all_reduce(tensor)  # other groups are not concerned
"""
    )
    for name, words in {
        "other": ("all_reduce of 4,000 bytes, sum of float32", "broadcast of 4,000 bytes from rank 0"),
        "size": ("all_reduce of 40 bytes", "all_reduce of 44 bytes"),
        "op": ("max of float32", "sum of float32"),
    }.items():
        both = [each[name] for each in results]
        assert all(each[0] == "DistBackendError" for each in both), both
        causes = {each[2] for each in both}
        assert "InvalidValue" in causes and causes <= {"InvalidValue", "PeerLost"}
        text = next(each[1] for each in both if each[2] == "InvalidValue")
        assert all(word in text for word in words), text


@pytest.mark.parametrize("is_launched", [False, True])
def test_ranks_that_wait_for_one_another_get_deadlock(programs: Programs, is_launched: bool) -> None:
    body = """
dist.barrier()
began = time.monotonic()
if rank == 0:
    found["told"] = caught(dist.recv, torch.zeros(1), 1)
else:
    found["told"] = caught(lambda: dist.all_reduce(torch.zeros(1), async_op=True).wait())
found["seconds"] = time.monotonic() - began
"""
    launch = ["-m", "peerlane", "launch", "-n", "2"]  # rank 0 serves the others' store there
    results = programs.launched(launch, body) if is_launched else programs.run(body)
    waits = "recv of program.py:", "all_reduce of program.py:"
    for rank, each in enumerate(results):
        kind, text, cause = each["told"]
        assert (kind, cause) == ("DistBackendError", "Deadlock"), text
        shown = [waits[rank]] if is_launched else waits  # the launcher shows the waits of all ranks
        assert all(wait in text for wait in shown), text
        assert "threading.py" not in text
        assert each["seconds"] < SOON


@pytest.mark.parametrize(
    "call",
    [
        "dist.all_reduce(tensor)",
        "dist.all_gather(parts, tensor, async_op=True).wait()",
        "dist.recv(tensor, 1)",
        "model(torch.zeros(2, 4)).sum().backward()",
    ],
)
def test_dead_rank_ends_the_waits_of_the_others(programs: Programs, call: str) -> None:
    results = programs.run(
        f"""
tensor, parts = torch.zeros(1000), [torch.zeros(1000) for _ in range(size)]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
dist.barrier()
began = time.monotonic()
if rank == 1:
    model(torch.zeros(2, 4))
    os._exit(1)
found["told"] = caught(lambda: {call})
found["seconds"] = time.monotonic() - began
""",
        size=3,
        may_fail=True,
    )
    assert results[1] is None
    for each in (results[0], results[2]):
        kind, text, _ = each["told"]
        assert kind in ("DistBackendError", "RuntimeError")
        assert "rank 1 (process" in text and "has died" in text, text
        assert each["seconds"] < SOON


def test_time_outs_of_group_call_and_work(programs: Programs) -> None:
    results = programs.run(
        """
short = dist.new_group(timeout=seconds(1))
other, third = dist.new_group(), dist.new_group()
store = dist.distributed_c10d._get_default_store()
if rank == 0:
    for name, call in {
        "group": lambda: dist.all_reduce(torch.zeros(1), group=short),
        "call": lambda: dist.barrier(other, timeout=seconds(0.2)),
        "after": lambda: dist.barrier(other),
    }.items():
        began = time.monotonic()
        found[name] = [*caught(call), time.monotonic() - began]
    work = dist.all_reduce(number := torch.ones(1), group=third, async_op=True)
    found["work"] = caught(work.wait, seconds(0.2))
    store.set("go", "")
    work.wait()
    found["number"] = number.item()
else:
    store.wait(["go"])
    dist.all_reduce(torch.ones(1), group=third)
dist.barrier()
"""
    )
    assert results[0]["group"][0] == "DistBackendError" and results[0]["group"][2] == "WaitTimeout"
    assert "Timed out" in results[0]["group"][1] and 0.9 < results[0]["group"][3] < SOON
    assert "Timed out waiting 200ms" in results[0]["call"][1] and 0.1 < results[0]["call"][3] < SOON
    assert "Timed out waiting 200ms" in results[0]["after"][1]
    assert "Timed out waiting 0.2 s; the call goes on" in results[0]["work"][1]
    assert results[0]["number"] == 2.0


def test_monitored_barrier_names_the_missing(programs: Programs) -> None:
    results = programs.run(
        """
dist.monitored_barrier()
dist.monitored_barrier(wait_all_ranks=True)
if rank in (0, 2):
    found["first"] = caught(dist.monitored_barrier, timeout=seconds(0.5))
    found["all"] = caught(dist.monitored_barrier, timeout=seconds(0.5), wait_all_ranks=True)
store = dist.distributed_c10d._get_default_store()
store.set(f"over {rank}", "")
store.wait([f"over {each}" for each in range(size)])
dist.barrier()
""",
        size=4,
    )
    assert "Rank 1 failed to pass monitoredBarrier in 500 ms" in results[0]["first"][1]
    assert "Ranks 1, 3 failed to pass monitoredBarrier in 500 ms" in results[0]["all"][1]
    for name, missing in {"first": "Rank 1", "all": "Ranks 1, 3"}.items():
        kind, text, _ = results[2][name]
        assert kind == "DistBackendError"
        assert "Rank 2 successfully reached monitoredBarrier" in text and missing in text


def test_abort_ends_calls_in_progress(programs: Programs) -> None:
    results = programs.run(
        """
group = dist.new_group()
if rank == 0:
    works = [dist.all_reduce(torch.zeros(1), group=group, async_op=True), dist.irecv(torch.zeros(1), 1, group)]
    waiting = [threading.Thread(target=lambda w=w: told.append(caught(w.wait))) for w in works]
    told = []
    for each in waiting:
        each.start()
    group.abort()
    for each in waiting:
        each.join()
    found["told"] = told
    found["later"] = caught(dist.all_reduce, torch.zeros(1), group=group)
    found["future"] = caught(works[0].get_future().wait)
dist.barrier()
"""
    )
    assert [each[:2] for each in results[0]["told"]] == [
        ["DistBackendError", "peerlane: the process group was aborted"]
    ] * 2
    assert results[0]["later"][1] == "peerlane: the process group was aborted"
    assert "peerlane: the process group was aborted" in results[0]["future"][1]


def test_tensors_and_options_that_do_not_fit_raise_before_anything_is_sent(programs: Programs) -> None:
    results = programs.run(
        """
world = dist.group.WORLD
texts = [
    caught(call)[1]
    for call in (
        lambda: dist.all_reduce(torch.zeros(2), dist.ReduceOp.BAND),
        lambda: dist.all_reduce(torch.zeros(2, dtype=torch.bool), dist.ReduceOp.AVG),
        lambda: world.allgather([[torch.zeros(2)]], [torch.zeros(2)]),
        lambda: world.all_gather_single(torch.zeros(3), torch.zeros(2)),
        lambda: dist.all_to_all_single(torch.zeros(3), torch.zeros(3)),
        lambda: dist.all_to_all_single(torch.zeros(3), torch.zeros(3), [1, 1], [1, 2]),
        lambda: world.scatter([torch.zeros(2)], [[torch.zeros(2)] * 2] if rank else []),
        lambda: world.allreduce_coalesced([torch.zeros(2), torch.zeros(2, dtype=torch.int32)]),
        lambda: world._get_backend(torch.device("cuda")),
    )
]
number = torch.ones(1)
dist.all_reduce(number)
found["texts"], found["number"] = texts, number.item()
"""
    )
    for each in results:
        for text, word in zip(
            each["texts"],
            [
                "a non-integral dtype",
                "valid are types of numbers",
                "there must be one for each of 2 ranks",
                "it must have 2 times as many",
                "do not divide into 2 equal parts",
                "numbers with the sum 3, its rows",
                "the root, rank 0, passes one list",
                "all must have one",
                "takes tensors on cpu and peerlane, not on cuda",
            ],
            strict=True,
        ):
            assert word in text
        assert each["number"] == 2.0


@pytest.mark.parametrize("most_together", [1, 16])
def test_group_of_some_ranks_goes_on_when_another_rank_dies(programs: Programs, most_together: int) -> None:
    results = programs.run(
        f"""
peerlane.torch.process_group._MOST_TOGETHER = {most_together}
pair = dist.new_group([0, 1])
dist.barrier()
if rank == 2:
    os._exit(1)
found["error"] = caught(dist.barrier)  # until the death is known
tensor = torch.full((1000,), float(rank + 1))
dist.all_reduce(tensor, group=pair)  # its first collective
later = dist.new_group([1, 0], use_local_synchronization=True)
if rank == 0:
    dist.send(tensor, 1, group=later)
else:
    got = torch.zeros(1000)
    dist.recv(got, 0, group=later)
    assert got.unique().tolist() == [3]
dist.barrier(later)
if rank == 1:
    os._exit(0)
found["dead"] = caught(dist.barrier, later)
""",
        size=3,
        may_fail=True,
    )
    assert results[1] is results[2] is None
    for name, lost in {"error": 2, "dead": 1}.items():
        kind, text, _ = results[0][name]
        assert kind == "DistBackendError" and f"rank {lost} (process" in text, text


def test_new_group_without_the_rank_that_serves_the_world_meets_by_itself(programs: Programs) -> None:
    results = programs.run(
        """
dist.barrier()
if rank == 0:
    os._exit(1)
found["error"] = caught(dist.barrier)
pair = dist.new_group([1, 2], use_local_synchronization=True)
parts = [None, None]
dist.all_gather_object(parts, rank, group=pair)
found["parts"] = parts
dist.destroy_process_group(pair)
""",
        size=3,
        may_fail=True,
    )
    assert results[0] is None
    for each in results[1:]:
        kind, text, _ = each["error"]
        assert kind == "DistBackendError" and "rank 0 (process" in text, text
        assert each["parts"] == [1, 2]


def test_new_group_of_which_one_rank_has_failed_before_meets_by_itself(programs: Programs) -> None:
    results = programs.run(
        """
dist.barrier()
if rank == 1:
    dist.group.WORLD._is_sound = False  # as after a time-out that the other rank does not know of
pair = dist.new_group([1, 0])
got = torch.full((1,), float(rank))
dist.all_reduce(got, group=pair)
if rank == 0:
    dist.send(got, 1, group=pair)
else:
    dist.recv(got, 0, group=pair)
found["got"] = got.item()
dist.group.WORLD._is_sound = True
"""
    )
    assert [each["got"] for each in results] == [1, 1]


def test_rank_that_leaves_a_new_group_ends_waits_of_that_group_alone(programs: Programs) -> None:
    results = programs.run(
        """
pair, other = dist.new_group([0, 1]), dist.new_group([1, 0])
if rank == 0:
    dist.destroy_process_group(pair)
else:
    found["recv"] = caught(dist.recv, torch.zeros(1), 0, group=pair)
    found["collective"] = caught(dist.all_reduce, torch.zeros(1), group=pair)
found["sums"] = []
for group in (other, dist.group.WORLD):
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=group)
    found["sums"].append(tensor.item())
""",
    )
    assert [each["sums"] for each in results] == [[2, 2], [2, 2]]
    for call in ("recv", "collective"):
        kind, text, _ = results[1][call]
        assert kind == "DistBackendError" and "rank 0" in text, text


def test_ranks_that_wait_for_one_another_in_two_groups_get_deadlock(programs: Programs) -> None:
    results = programs.run(
        """
pair = dist.new_group([1, 0])
dist.barrier()
began = time.monotonic()
if rank == 0:
    found["error"] = caught(dist.recv, torch.zeros(1), 1, group=pair)
else:
    found["error"] = caught(dist.all_reduce, torch.zeros(1))
found["seconds"] = time.monotonic() - began
store = dist.distributed_c10d._get_default_store()  # a rank that leaves now would end the other's recv
store.set(f"over {rank}", b"")
store.wait(["over 0", "over 1"])
"""
    )
    for each in results:
        kind, text, cause = each["error"]
        assert (kind, cause) == ("DistBackendError", "Deadlock"), text
        assert "recv of program.py:" in text and "all_reduce" in text, text
        assert each["seconds"] < SOON


@pytest.mark.parametrize("compiler", ["no-such-compiler", ""])
def test_barrier_of_each_back_end_runs_where_the_device_was_not_compiled(
    programs: Programs, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    monkeypatch.setenv("CXX", compiler)
    results = programs.run(
        """
dist.barrier()
dist.barrier(dist.new_group(backend="gloo"))
found["available"] = torch.accelerator.is_available()
"""
    )
    assert results == [{"available": False}] * 2
