"""``torch.distributed`` on tensors of devices: values, the order of streams, and what ranks get that wait in vain."""

from __future__ import annotations

import pytest

from helpers.torch_ranks import Programs, needs_torch

needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]
SCHEDULES = pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:7"])
SOON = 10.0  # seconds; the promises are 0.5 and 2, and the machine may be busy


@pytest.fixture(autouse=True)
def _node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PEERLANE_NODE", "devices=4")


# Small whole numbers: every type has them exactly, whatever the order of a sum.
_BOTH = """
gloo = dist.new_group(backend="gloo")
here = torch.device("peerlane", rank)
TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32,
         torch.int64, torch.bool, torch.complex64]
OPS = {name: getattr(dist.ReduceOp, name) for name in "SUM AVG PRODUCT MIN MAX BAND BOR BXOR".split()}
differing, counts = [], [0, 0]

def made(dtype, *shape):
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) * (rank + 1) % 3).to(dtype)

def flat(items):
    return [each for item in items for each in (item if isinstance(item, list) else [item])]

def copies(items, device):
    return [[one.to(device) for one in item] if isinstance(item, list) else item.to(device) for item in items]

def run(call, tensors, group, device):
    own = copies([each.clone() if not isinstance(each, list) else [one.clone() for one in each] for each in tensors],
                 device)
    try:
        call(*own, group)
    except (RuntimeError, ValueError):
        return None
    return [each.cpu() for each in flat(own)]

def strided(tensor, op, group):
    part = tensor.t()[1:4]
    one = part.contiguous() if tensor.is_cpu else part  # gloo takes no others
    dist.all_reduce(one, op, group=group)
    part.copy_(one)

def compare(name, call, *tensors):
    counts[0] += 1
    theirs, ours = run(call, tensors, gloo, "cpu"), run(call, tensors, None, here)
    if theirs is None:  # we take more
        counts[1] += 1
    elif ours is None or not all(
        torch.equal(a != 0, b != 0) if a.dtype == torch.bool else torch.equal(a, b) for a, b in zip(theirs, ours)
    ):
        differing.append([name, str(theirs)[:300], str(ours)[:300]])
"""


@SCHEDULES
def test_collectives_of_each_type_and_operation_equal_gloo(
    programs: Programs, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    results = programs.run(
        _BOTH
        + """
for dtype in TYPES:
    t = made(dtype, 300, 5)
    for name, op in OPS.items():
        compare(f"all_reduce {dtype} {name}", lambda a, g: dist.all_reduce(a, op, group=g), t)
        compare(f"async all_reduce {dtype} {name}",
                lambda a, g: dist.all_reduce(a, op, group=g, async_op=True).wait(), t)
        compare(f"strided all_reduce {dtype} {name}", lambda a, g: strided(a, op, g), t)
        compare(f"reduce {dtype} {name}",
                lambda a, g: (dist.reduce(a, 1, op, group=g), rank == 1 or a.zero_()), t)
    parts = [made(dtype, 7) for _ in range(size)]
    whole = made(dtype, 7 * size)
    for is_async in (False, True):
        def wait(work):
            if work is not None:
                work.wait()
        more = {"async_op": is_async}
        compare(f"broadcast {dtype}", lambda a, g: wait(dist.broadcast(a, 1, group=g, **more)), t)
        compare(f"all_gather {dtype}", lambda p, a, g: wait(dist.all_gather(p, a, group=g, **more)), parts, parts[0])
        compare(f"all_gather_into_tensor {dtype}",
                lambda w, a, g: wait(dist.all_gather_into_tensor(w, a, group=g, **more)), whole, parts[0])
        compare(f"reduce_scatter {dtype}",
                lambda a, p, g: wait(dist.reduce_scatter(a, p, group=g, **more)), parts[0], parts)
        compare(f"reduce_scatter_tensor {dtype}",
                lambda a, w, g: wait(dist.reduce_scatter_tensor(a, w, group=g, **more)), parts[0], whole)
        compare(f"gather {dtype}",
                lambda p, a, g: wait(dist.gather(a, p if rank == 0 else None, 0, group=g, **more)), parts, parts[0])
        compare(f"scatter {dtype}",
                lambda a, p, g: wait(dist.scatter(a, p if rank == 0 else None, 0, group=g, **more)), parts[0], parts)
        compare(f"all_to_all {dtype}",
                lambda p, q, g: wait(dist.all_to_all(p, q, group=g, **more)), parts, [each + each for each in parts])
        compare(f"all_to_all_single {dtype}",
                lambda a, b, g: wait(dist.all_to_all_single(a, b, group=g, **more)), whole, whole + whole)
splits = [1, 2, 3][:size] if rank == 0 else [2, 0, 1][:size] if rank == 1 else [0, 4, 1][:size]
takes = [[1, 2, 0], [2, 0, 4], [3, 1, 1]][rank]
compare("splits", lambda a, b, g: dist.all_to_all_single(a, b, takes, splits, group=g),
        torch.zeros(sum(takes), 3), made(torch.float32, sum(splits), 3))
ragged = [torch.zeros(each + 1) for each in range(size)]
compare("ragged", lambda p, a, g: dist.all_gather(p, a, group=g), ragged, torch.arange(rank + 1.0))
apart = torch.zeros(size, 1 << 20, device=here)
dist.all_gather([torch.empty(1 << 20, device=here) if each else apart[0] for each in range(size)],
                torch.full((1 << 20,), rank + 1.0, device=here))
found["apart"] = apart[0].sum().item()
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank})
found["objects"] = objects
found["differing"], found["counts"] = differing, counts
""",
        size=3,
        timeout=280,
    )
    for each in results:
        assert each["differing"] == []
        assert each["counts"][0] > 450 and each["counts"][1] < 0.6 * each["counts"][0], each["counts"]
        assert each["apart"] == 1 << 20
        assert each["objects"] == [{"rank": rank} for rank in range(3)]


@SCHEDULES
def test_average_of_integers_on_devices_is_rounded_toward_zero(
    programs: Programs, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    results = programs.run(
        """
here = torch.device("peerlane", rank)
for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
    own = torch.tensor([-3, 3, 5, -8], dtype=dtype, device=here) * (rank == 0)
    queued, reduced, part = own.clone(), own.clone(), own.new_empty(2)
    dist.reduce_scatter_tensor(part, own, dist.ReduceOp.AVG)
    dist.all_reduce(own, dist.ReduceOp.AVG)
    dist.all_reduce(queued, dist.ReduceOp.AVG, async_op=True).wait()
    dist.reduce(reduced, 1, dist.ReduceOp.AVG)
    found[str(dtype)] = [own.tolist(), queued.tolist(), part.tolist(), reduced.tolist() if rank == 1 else None]
""",
    )
    mean = [-1, 1, 2, -4]
    for rank, each in enumerate(results):
        expected = [mean, mean, mean[2 * rank :][:2], mean if rank == 1 else None]
        assert each == {f"torch.{name}": expected for name in ("int8", "int16", "int32", "int64")}


@SCHEDULES
def test_collective_is_in_stream_order_and_its_wait_does_not_block(
    programs: Programs, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    results = programs.run(
        """
here = torch.device("peerlane", rank)
store = dist.distributed_c10d._get_default_store()
base = torch.ones(400, 400, device=here)
dist.all_reduce(torch.ones(1, device=here))  # the first one makes the channels, which waits
torch.peerlane.synchronize(here)
if rank == 1:
    store.wait(["go"])
tensor = base
for _ in range(4):
    tensor = (tensor @ base) / 400
work = dist.all_reduce(tensor, async_op=True)
before = work.is_completed()
work.wait()
after = tensor * 2
with torch.Stream(device=here) as side:
    work.wait()
    beside = tensor * 3
if rank == 0:
    found["before"] = before
    store.set("go", "")
torch.accelerator.current_stream(here).wait_stream(side)
future = work.get_future().then(lambda done: done.value()[0] + 1)
found["values"] = [after.unique().tolist(), beside.unique().tolist(), future.wait().unique().tolist()]
dist.barrier(device_ids=[rank])
found["is over"] = work.is_completed() and work.is_success() and work.exception() is None
found["result"] = work.result()[0].unique().tolist()
torch.peerlane.synchronize(here)
"""
    )
    assert results[0]["before"] is False
    for each in results:
        assert each["values"] == [[4.0], [6.0], [3.0]] and each["is over"] and each["result"] == [2.0]


@SCHEDULES
def test_messages_of_a_rank_to_itself_come_in_their_order(
    programs: Programs, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    results = programs.run(
        """
here = torch.device("peerlane", rank)
own, got = torch.zeros(1 << 18, 2, device=here), torch.full((2, 1 << 18), -1.0, device=here).t()
send, receive = dist.P2POp(dist.isend, own, rank), dist.P2POp(dist.irecv, got, rank)
values = []
for number, ops in enumerate(([send, receive], [receive, send])):
    own.fill_(number + rank)
    for each in dist.batch_isend_irecv(ops):
        each.wait()
    values.append(got.unique().tolist())
sent = [dist.isend(own + number, rank) for number in range(3)]
own.zero_()
parts = [torch.full_like(got, -1) for _ in range(3)]
received = [dist.irecv(each, rank) for each in parts]
for each in sent + received:
    each.wait()
values.append([each.unique().item() for each in parts])
bits = torch.empty(1 << 19, dtype=torch.int32, device=here)
dist.isend(own + 1, rank)
dist.irecv(bits, rank).wait()
values.append(bits.unique().tolist())
early = dist.irecv(got, rank)
found["early"] = early.is_completed(), caught(early.wait)
found["size"] = caught(dist.isend, own[:3], rank)
dist.isend(own - 1, rank)
early.wait()
values.append(got.unique().tolist())
found["done"], found["source"] = bool(got.sum().item()) and early.is_completed(), early.source_rank()
dist.barrier()
found["values"] = values
""",
        wait=60,
    )
    one = 0x3F800000
    for rank, each in enumerate(results):
        assert each["values"] == [[rank], [rank + 1], [rank + 1, rank + 2, rank + 3], [one], [-1]]
        assert (each["done"], each["source"]) == (True, rank)
        completed, (kind, text, _) = each["early"]
        assert (completed, kind) == (False, "DistBackendError") and "send it before the wait" in text
        kind, text, _ = each["size"]
        assert kind == "DistBackendError" and "sends itself 24 bytes" in text and "2,097,152" in text, text


@SCHEDULES
def test_messages_are_in_stream_order_for_each_direction(
    programs: Programs, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERLANE_SCHEDULE", schedule)
    results = programs.run(
        """
here = torch.device("peerlane", rank)
after, before = (rank + 1) % size, (rank - 1) % size
values = []
for count in (3, 1 << 21):
    own = torch.full((count,), 0.0, device=here) + rank
    got = torch.full((count,), -1.0, device=here)
    for each in dist.batch_isend_irecv([dist.P2POp(dist.isend, own, after), dist.P2POp(dist.irecv, got, before)]):
        each.wait()
    values.append(got.unique().tolist())
    # Each rank sends first.
    works = [dist.isend(own + number, after) for number in range(3)]
    parts = torch.full((count, 3), -1.0, device=here)
    works += [dist.irecv(parts[:, number], before) for number in range(3)]
    for each in works:
        each.wait()
    values.append(parts.amax(0).tolist())
    with dist._coalescing_manager(device=here, async_ops=True) as both:
        dist.isend(own, after)
        dist.irecv(got, before)
    both.wait()
    values.append(got.unique().tolist())
if rank == 0:
    dist.send(own, 1)
elif rank == 1:
    found["source"] = dist.recv(got, 0)
pair = dist.new_group([0, 2])
if rank != 1:
    dist.all_reduce(own, group=pair)
    found["pair"] = own.unique().tolist()
found["values"] = values
found["any"] = caught(dist.recv, torch.zeros(1, device=here))
found["mixed"] = caught(dist.all_gather, [torch.zeros(1) for _ in range(size)], torch.zeros(1, device=here))
dist.barrier()
""",
        size=3,
    )
    for rank, each in enumerate(results):
        before = float((rank - 1) % 3)
        assert each["values"] == [[before], [before, before + 1, before + 2], [before]] * 2
        assert "pass src" in each["any"][1]
        assert "all must be on one device" in each["mixed"][1]
    assert results[0]["pair"] == results[2]["pair"] == [2.0] and results[1]["source"] == 0


@pytest.mark.parametrize("end", ["", "dist.destroy_process_group = lambda: None"])
def test_rank_that_ends_behind_a_queued_collective_takes_part_in_it(programs: Programs, end: str) -> None:
    results = programs.run(
        f"""
{end}
here = torch.device("peerlane", rank)
torch.peerlane.set_device(here)
side = torch.Stream(here)
tensor = torch.full((1 << 16,), rank + 1.0, device=here)
dist.all_reduce(torch.ones(1, device=here))
side.wait_stream(torch.peerlane.current_stream())
with side:
    if rank == 0:  # it is late on its stream, and its program ends at once
        torch.peerlane.sleep(500_000_000)
    dist.all_reduce(tensor)
if rank == 1:
    side.synchronize()
    found["sum"] = tensor.unique().tolist()
"""
    )
    assert results[1]["sum"] == [3.0]


def test_end_of_a_group_leaves_the_error_of_a_stream_to_the_program(programs: Programs) -> None:
    results = programs.run(
        """
here = torch.device("peerlane", rank)
tensor = torch.ones(300, 300, device=here)
dist.all_reduce(tensor)
rows = tensor.index_select(0, torch.full((300,), 1000, device=here))  # there are 300
dist.destroy_process_group()
found["error"] = caught(torch.peerlane.synchronize, here)
dist.destroy_process_group = lambda: None
"""
    )
    for each in results:
        assert each["error"][0] == "AcceleratorError" and "aten::index_select" in each["error"][1]


@pytest.mark.parametrize("is_async", [False, True])
def test_collective_behind_a_failed_operation_names_it(programs: Programs, *, is_async: bool) -> None:
    results = programs.run(
        f"""
here = torch.device("peerlane", rank)
tensor = torch.ones(300, 300, device=here)
dist.all_reduce(tensor)
torch.peerlane.synchronize(here)
if rank == 0:
    rows = tensor.index_select(0, torch.full((300,), 1000, device=here))  # there are 300
error, end = None, time.monotonic() + 20
while error is None and time.monotonic() < end:
    error = caught(dist.all_reduce, tensor, async_op={is_async})
found["error"] = error
""",
    )
    kind, text, _ = results[0]["error"]
    assert kind == "DistBackendError"
    assert "aten::index_select" in text and "program.py:" in text
    assert results[1]["error"][0] == "DistBackendError"


@pytest.mark.parametrize("call", ["all_reduce", "messages"])
def test_call_that_is_late_names_the_failed_operation_of_another_stream(
    programs: Programs, call: str
) -> None:
    results = programs.run(
        f"""
def queue(direction):
    if {call!r} == "all_reduce":
        dist.all_reduce(tensor)
    elif direction == 0:
        dist.send(tensor, 1 - rank)
    else:
        dist.recv(other, 1 - rank)

other = torch.zeros(300, 300, device=torch.device("peerlane", rank))
"""
        """
here = torch.device("peerlane", rank)
tensor = torch.ones(300, 300, device=here)
wrong = torch.full((300,), 1000, device=here)  # there are 300
queue(0)
queue(1)
torch.peerlane.synchronize(here)
streams = [torch.Stream(here) for _ in range(2)]
gates = []
for stream in streams:
    behind = torch.peerlane.stream_of(stream)
    gates.append(behind.device.create_notify())
    gates[-1].promise()
    behind.wait(gates[-1])
    with stream:
        if rank == 0 and stream is streams[0]:
            rows = tensor.index_select(0, wrong)
        queue(len(gates) - 1)
gates[0].record()
later = threading.Timer(0.5, gates[1].record)
later.start()
error, end = None, time.monotonic() + 20
while error is None and time.monotonic() < end:
    error = caught(queue, 1)
later.join()
found["error"] = error
""",
    )
    kind, text, _ = results[0]["error"]
    assert kind == "DistBackendError"
    assert "aten::index_select" in text and "program.py:" in text
    kind, text, _ = results[1]["error"]
    assert kind == "DistBackendError" and "rank 0" in text


@pytest.mark.parametrize(
    "call",
    [
        "dist.all_reduce(tensor)",
        "dist.all_gather(parts, tensor, async_op=True).wait()",
        "dist.recv(tensor, 1)",
        "model(torch.zeros(2, 4, device=here)).sum().backward()",
    ],
)
def test_dead_rank_ends_the_waits_of_the_others(programs: Programs, call: str) -> None:
    results = programs.run(
        f"""
here = torch.device("peerlane", rank)
tensor, parts = torch.zeros(1000, device=here), [torch.zeros(1000, device=here) for _ in range(size)]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).to(here))
for other in (0, 2):  # the first message of two ranks makes their channel
    if rank == 1:
        dist.send(tensor, other)
    elif rank == other:
        dist.recv(tensor, 1)
dist.barrier()
began = time.monotonic()
if rank == 1:
    model(torch.zeros(2, 4, device=here))
    os._exit(1)

def wait():
    {call}
    torch.peerlane.synchronize(here)

found["error"] = caught(wait)
found["seconds"] = time.monotonic() - began
found["later"] = caught(lambda: [dist.all_reduce(tensor), torch.peerlane.synchronize(here)])
""",
        size=3,
        may_fail=True,
    )
    assert results[1] is None
    for each in (results[0], results[2]):
        kind, text, _ = each["error"]
        assert kind in ("AcceleratorError", "DistBackendError")
        assert "rank 1 (process" in text and "has died" in text, text
        assert each["seconds"] < SOON
        assert each["later"] is not None


def test_other_collective_deadlock_and_time_out_are_named(programs: Programs) -> None:
    results = programs.run(
        """
here = torch.device("peerlane", rank)
groups = [dist.new_group() for _ in range(2)] + [dist.new_group(timeout=seconds(0.5)), dist.new_group()]
tensor = torch.zeros(1000, device=here)
for group in (None, *groups):
    dist.all_reduce(tensor, group=group)
dist.barrier()
store = dist.distributed_c10d._get_default_store()

def finished(call, *args, **options):
    call(*args, **options)
    torch.peerlane.synchronize(here)

if rank == 0:
    found["other"] = caught(finished, dist.all_reduce, tensor, group=groups[0])
    found["deadlock"] = caught(finished, dist.all_reduce, tensor, group=groups[1])
    found["late"] = caught(dist.barrier, group=groups[2], device_ids=[0])
    work = dist.all_reduce(tensor, group=groups[3], async_op=True)
    found["work"] = caught(work.wait, seconds(0.2))
    found["after"] = caught(dist.all_reduce, tensor, group=groups[3])
    store.set("go", "")
else:
    found["other"] = caught(finished, dist.broadcast, tensor, 0, group=groups[0])
    found["deadlock"] = caught(finished, dist.recv, tensor, 0, group=groups[1])
    store.wait(["go"])
    found["ended"] = caught(finished, dist.all_reduce, tensor, group=groups[3])
dist.barrier()
"""
    )
    texts = [each["other"][1] for each in results]
    assert any("all_reduce of 4,000 bytes" in text and "broadcast of 4,000" in text for text in texts), texts
    assert all("a deadlock: ranks 0 and 1" in each["deadlock"][1] for each in results)
    kind, text, cause = results[0]["late"]
    assert kind == "DistBackendError" and "did not come within 0.5 s" in text and cause == "WaitTimeout", text
    for each in ("work", "after"):
        assert "Timed out waiting 200ms" in results[0][each][1], results
    assert results[1]["ended"] is not None  # that rank 0 has closed its end, or a deadlock


_ANY = """
device = torch.device("peerlane", int(os.environ.get("LOCAL_RANK", rank)))
torch.peerlane.set_device(device)
number = torch.tensor([rank + 1.0], device=device)
dist.all_reduce(number)
other = torch.tensor([rank + 1.0])
dist.all_reduce(other)
found["sums"] = [number.item(), other.item()]
found["backend"] = dist.get_backend()
"""


@pytest.mark.parametrize("backend", ["peerlane", "cpu:gloo,peerlane:peerlane", None])
def test_back_end_is_chosen_by_name_by_map_and_by_device(programs: Programs, backend: str | None) -> None:
    again = f"""
store = dist.FileStore(f"{{sys.argv[1]}}/again", size)
dist.destroy_process_group()
device = torch.device("peerlane", rank) if {backend is None} else None
dist.init_process_group({backend!r}, store=store, rank=rank, world_size=size, device_id=device)
"""
    assert [each["sums"] for each in programs.run(again + _ANY)] == [[3.0, 3.0]] * 2


@pytest.mark.parametrize(
    "launcher",
    [
        ["-m", "torch.distributed.run", "--nproc-per-node", "3"],
        ["-m", "peerlane", "launch", "-n", "3", "--devices", "3"],
    ],
)
def test_ranks_of_launchers_meet(programs: Programs, launcher: list[str]) -> None:
    assert [each["sums"] for each in programs.launched(launcher, _ANY, size=3)] == [[6.0, 6.0]] * 3


def test_first_calls_behind_the_end_of_a_rank_are_errors_of_torch(programs: Programs) -> None:
    results = programs.run(
        """
tensor = torch.ones(4, device=torch.device("peerlane", rank))
dist.barrier()
if rank == 0:  # it serves the rendezvous
    os._exit(1)
while caught(dist.barrier) is None:
    pass
found["errors"] = [caught(dist.all_reduce, tensor), caught(dist.send, tensor, 0), caught(dist.recv, tensor, 0)]
""",
        may_fail=True,
    )
    assert [(kind, cause) for kind, _, cause in results[1]["errors"]] == [
        ("DistBackendError", "PeerLost")
    ] * 3
