"""The device of torch: operations, streams, memory and errors, compared with the processor's under each schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.torch_device import run_on_device
from helpers.torch_ranks import needs_torch
from peerlane.testing.procs import run_python

needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]
SCHEDULES = pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:7"])

# Each is computed on the processor and on a device; `d` is the device.
_ALIKE = """
    def same(name, compute):
        with torch.no_grad():
            torch.manual_seed(3)
            inputs = [torch.randn(7, 9), torch.randn(9, 7), torch.randint(0, 7, (5,)), torch.randn(300, 400)]
            want = compute(*[each.clone() for each in inputs])
            got = compute(*[each.to("peerlane:1") for each in inputs])
            many = isinstance(want, (tuple, list))
            pairs = list(zip(want, got)) if many else [(want, got)]
            found[name] = all(
                b.device.type == "peerlane" and torch.equal(a, b.cpu()) and a.dtype == b.dtype
                and a.stride() == b.stride() for a, b in pairs
            )

    same("add", lambda a, b, i, m: a + b.t())
    same("scalar", lambda a, b, i, m: a * 2.5 - 1)
    same("promotion", lambda a, b, i, m: i + 1.5)
    same("matmul", lambda a, b, i, m: a @ b)
    same("large", lambda a, b, i, m: (m @ m.t()).softmax(-1).sum(0))
    same("views", lambda a, b, i, m: m[::2, 3:9].t().contiguous())
    same("in place of a view", lambda a, b, i, m: m[1:3].mul_(2).add_(1).clone())
    same("numbers", lambda a, b, i, m: a[i])
    same("mask", lambda a, b, i, m: m[m > 1])
    same("nonzero", lambda a, b, i, m: (m > 2).nonzero())
    same("put", lambda a, b, i, m: m.index_put_((i,), torch.zeros(400, device=m.device), accumulate=True))
    same("sort", lambda a, b, i, m: list(m.sort(dim=1)))
    same("topk", lambda a, b, i, m: list(m.topk(3)))
    same("svd", lambda a, b, i, m: list(torch.linalg.svd(a, full_matrices=False)))
    same("cat", lambda a, b, i, m: torch.cat([m, m * 2], 1))
    same("where", lambda a, b, i, m: torch.where(m > 0, m, torch.zeros((), device=m.device)))
    same("complex", lambda a, b, i, m: torch.view_as_real((a.to(torch.complex64) * 1j).conj() + 1))
    same("convolution", lambda a, b, i, m: torch.nn.functional.conv2d(m[None, None, :30, :30], m[None, None, :3, :3]))
    same("norm", lambda a, b, i, m: torch.nn.functional.layer_norm(m, (400,)))
    same("out", lambda a, b, i, m: torch.add(m, 1, out=torch.empty(0, device=m.device)))
    same("foreach", lambda a, b, i, m: list(torch._foreach_add([a, m], 2.0)))
    same("resize", lambda a, b, i, m: a.clone().resize_(3, 3))
    same("lazy clone", lambda a, b, i, m: [a._lazy_clone().add_(1), a])
    same("hessian", lambda a, b, i, m: torch.func.hessian(lambda each: (each**3).sum())(a[0]))
    same("zeros without memory", lambda a, b, i, m: a + torch._efficientzerotensor((7, 9), device=a.device))
    same("half", lambda a, b, i, m: (m.half() * 2).float())
    attention = torch.nn.functional.scaled_dot_product_attention
    heads = lambda m: m[:256, :384].reshape(2, 4, 96, 128)
    same("attention", lambda a, b, i, m: attention(heads(m), heads(m), heads(m) * 2))
    same("causal attention", lambda a, b, i, m: attention(heads(m), heads(m), heads(m), is_causal=True))
    same("masked attention", lambda a, b, i, m: attention(heads(m), heads(m), heads(m), m[:96, :96] > 0))
    same("attention of bfloat16", lambda a, b, i, m: attention(*[heads(m).bfloat16()] * 3))

    def of_gradients(m, mask):
        with torch.enable_grad():
            inputs = [(heads(m) * scale).requires_grad_() for scale in (1, 2, 3)]
            attention(*inputs, mask).pow(2).sum().backward()
            return [each.grad for each in inputs]

    same("gradients of attention", lambda a, b, i, m: of_gradients(m, None))
    same("gradients of masked attention", lambda a, b, i, m: of_gradients(m, m[:96, :96] > 0))
"""


@SCHEDULES
def test_operations_equal_the_processors_bit_by_bit(tmp_path: Path, schedule: str) -> None:
    results = run_on_device(tmp_path, _ALIKE, schedule=schedule)
    assert [name for name, is_same in results.items() if not is_same] == []
    assert len(results) == 32


_TRAIN = """
    def train(device):
        torch.manual_seed(0)
        layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), layer, torch.nn.Flatten(), torch.nn.Linear(16 * 6, 3))
        inputs, targets = torch.randn(32, 6, 8), torch.randint(0, 3, (32,))
        model.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    found["processor"], found["device"] = train("cpu"), train("peerlane:1")
"""


@SCHEDULES
def test_training_has_the_losses_of_the_processor(tmp_path: Path, schedule: str) -> None:
    results = run_on_device(tmp_path, _TRAIN, schedule=schedule)
    assert results["device"] == pytest.approx(results["processor"], rel=1e-5)
    assert results["device"][-1] < results["device"][0]


_STREAMS = """
    main = torch.accelerator.current_stream()
    side = torch.Stream(device="peerlane:0")
    first, last = (torch.Event("peerlane:0", enable_timing=True) for _ in range(2))
    x = torch.ones(300, 300, device="peerlane:0")
    side.wait_stream(main)
    with side:
        found["current"] = torch.accelerator.current_stream() == side
        first.record()
        y = x @ x
        last.record()
    main.wait_event(last)
    y.record_stream(main)
    found["sum"] = (y + 1).sum().item()
    last.synchronize()
    found["positive"] = first.elapsed_time(last) > 0
    found["over"] = [side.query(), last.query()]
    found["other"] = torch.accelerator.current_stream() == main
    z = torch.empty(1000, 1000, device="peerlane:1")
    z.copy_(torch.full((1000, 1000), 2.0, device="peerlane:0"))
    found["copied"] = z.sum().item()
    pinned = torch.full((100_000,), 3.0).pin_memory()
    w = pinned.to("peerlane:0", non_blocking=True)
    back = torch.empty(100_000).pin_memory()
    back.copy_(w, non_blocking=True)
    torch.accelerator.synchronize()
    found["back"] = [pinned.is_pinned(), back.sum().item()]
"""


@SCHEDULES
def test_streams_and_events_order_operations(tmp_path: Path, schedule: str) -> None:
    results = run_on_device(tmp_path, _STREAMS, schedule=schedule)
    assert results == {
        "current": True,
        "sum": 300 * 300 * 301.0,
        "positive": True,
        "over": [True, True],
        "other": True,
        "copied": 2e6,
        "back": [True, 3e5],
    }


_LAZY = """
    side = torch.Stream(device="peerlane:0")

    def race():
        x = torch.zeros(1000, 1000, device="peerlane:0")
        torch.accelerator.synchronize()
        with side:
            x.add_(1)
        seen = x[0, 0].item()
        side.synchronize()
        return seen, x[0, 0].item()

    # A process that the system stops for a second runs all that is queued.
    found["seen"] = [race() for _ in range(10)]
"""


def test_missing_wait_is_seen_under_lazy(tmp_path: Path) -> None:
    results = run_on_device(tmp_path, _LAZY, schedule="lazy")
    assert [0.0, 1.0] in results["seen"]
    assert {last for _, last in results["seen"]} == {1.0}


_ERRORS = """
    a, b = torch.ones(2, device="peerlane:0"), torch.ones(2, device="peerlane:1")
    found["devices"] = caught(lambda: a + b)
    found["processor"] = caught(lambda: a + torch.ones(2))
    found["scalar"] = (a + torch.tensor(1.0)).tolist()
    wide = torch.ones(200, 300, device="peerlane:0")
    found["shape"] = caught(lambda: wide @ wide)
    found["index"] = [caught(lambda: torch.ones(2, device=f"peerlane:{each}")) for each in (7, 99)]
    numbers = torch.full((100_000,), 1 << 30, device="peerlane:0")
    picked = torch.arange(100_000.0, device="peerlane:0")[numbers]  # the line of the failure
    found["queued"] = caught(torch.accelerator.synchronize)
    found["after"] = torch.ones(2, device="peerlane:0").sum().item()
    found["memory"] = caught(torch.empty, 1 << 40, device="peerlane:0")
    emptied, other = torch.ones(10, device="peerlane:0"), torch.ones(10, device="peerlane:0")
    storage = emptied.untyped_storage()
    storage.resize_(0)
    found["emptied"] = [
        caught(each)
        for each in (
            emptied.cpu,
            lambda: emptied + 1,
            lambda: other.copy_(emptied),
            lambda: emptied.copy_(torch.ones(10)),
            lambda: emptied.to("peerlane:1"),
            lambda: repr(emptied),
            lambda: torch.add(other, 1, out=emptied),
        )
    ]
    storage.resize_(40)
    found["filled"] = emptied.fill_(2).sum().item()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    found["collective"] = caught(torch.distributed.all_reduce, a)
"""


def test_errors_name_devices_lines_and_memory(tmp_path: Path) -> None:
    results = run_on_device(tmp_path, _ERRORS, schedule="lazy")
    assert "found at least two devices, peerlane:0 and peerlane:1!" in results["devices"][1]
    assert "found at least two devices, peerlane:0 and cpu!" in results["processor"][1]
    assert results["scalar"] == [2.0, 2.0]
    assert "mat1 and mat2 shapes cannot be multiplied (200x300 and 200x300)" in results["shape"][1]
    for number, (_, text) in zip((7, 99), results["index"], strict=True):
        assert f"peerlane:{number} does not exist: there are 2 devices" in text
    kind, text = results["queued"]
    assert kind == "AcceleratorError"
    program = (tmp_path / "program.py").read_text().splitlines()
    line = next(i for i, each in enumerate(program, 1) if "the line of the failure" in each)
    assert "aten::index.Tensor" in text
    assert "IndexError: index 1073741824 is out of bounds" in text
    assert f"program.py:{line}" in text
    assert results["after"] == 2.0
    kind, text = results["memory"]
    assert kind == "OutOfMemoryError"
    assert "PEERLANE out of memory. 4398046511104 bytes were asked for on peerlane:0" in text
    for kind, text in results["emptied"]:
        of_torch = "storage of size 0" in text  # by torch's own checks
        assert kind == "RuntimeError" and (of_torch or "its storage has 0 bytes" in text)
    assert results["filled"] == 20.0
    assert results["collective"] == ["RuntimeError", "No backend type associated with device type peerlane"]


_MEMORY = """
    torch.accelerator.empty_cache()
    x = torch.empty(1 << 20, device="peerlane:0")
    found["allocated"] = torch.peerlane.memory_allocated(0)
    address = x.data_ptr()
    del x
    found["freed"] = [torch.peerlane.memory_allocated(0), torch.peerlane.memory_reserved(0) > 0]
    found["used again"] = torch.empty(1 << 20, device="peerlane:0").data_ptr() == address
    side = torch.Stream(device="peerlane:0")
    y = torch.empty(1 << 20, device="peerlane:0")
    with side:
        y.fill_(1)
    y.record_stream(side)
    address = y.data_ptr()
    del y
    found["kept"] = torch.empty(1 << 20, device="peerlane:0").data_ptr() != address
    found["peak"] = torch.peerlane.max_memory_allocated(0)
    torch.peerlane.empty_cache()
    found["emptied"] = torch.peerlane.memory_reserved(0)
    free, total = torch.peerlane.mem_get_info(0)
    found["free"] = free == total
"""


def test_memory_is_cached_in_stream_order(tmp_path: Path) -> None:
    results = run_on_device(tmp_path, _MEMORY, schedule="lazy")
    assert results == {
        "allocated": 4 << 20,
        "freed": [0, True],
        "used again": True,
        "kept": True,
        "peak": 4 << 20,
        "emptied": 0,
        "free": True,
    }


_TRAVELS = """
    import io, copy
    file = io.BytesIO()
    x = torch.arange(6.0, device="peerlane:1").view(2, 3)
    torch.save({"x": x, "t": x.t()}, file)
    def loaded(**options):
        file.seek(0)
        return torch.load(file, **options)
    found["same device"] = [str(loaded()["x"].device), loaded()["x"].tolist()]
    found["mapped"] = [str(loaded(map_location=where)["x"].device) for where in ("cpu", "peerlane:0")]
    both = loaded()
    found["shared"] = both["x"].data_ptr() == both["t"].data_ptr()
    found["printed"] = repr(x)
    found["copied"] = copy.deepcopy(x).tolist()
    again = torch.from_dlpack(x)
    found["lent"] = [again.data_ptr() == x.data_ptr(), str(again.device)]
    found["numpy"] = caught(x.numpy)[0]
    torch.manual_seed(5)
    first = torch.rand(3, device="peerlane:0")
    state = torch.peerlane.get_rng_state(0)
    second = torch.rand(3, device="peerlane:0")
    torch.peerlane.set_rng_state(state, 0)
    found["random"] = [torch.equal(second, torch.rand(3, device="peerlane:0")), torch.equal(first, second)]
    torch.manual_seed(5)
    found["seeded"] = torch.equal(first, torch.rand(3, device="peerlane:0"))
    torch.manual_seed(5)
    found["as on the processor"] = torch.equal(torch.rand(3), first.cpu())
    torch.peerlane.seed_all()
    drawn = [torch.rand(3, device=f"peerlane:{each}").cpu() for each in (0, 1)]
    found["all seeded"] = [torch.equal(*drawn), torch.equal(drawn[0], first.cpu())]
    generator = torch.Generator("peerlane:1").manual_seed(5)
    found["generator"] = torch.randperm(5, generator=generator, device="peerlane:1").sort()[0].tolist()
    with torch.autocast("peerlane", dtype=torch.bfloat16):
        found["autocast"] = [str((x @ x.t()).dtype), str(x.softmax(0).dtype)]
    types = torch.accelerator.get_device_capability("peerlane:0")["supported_dtypes"]
    found["types"] = [torch.complex32 in types, torch.qint8 in types]
    found["storage"] = [x.storage().is_peerlane, x.cpu().untyped_storage().peerlane().device.type]
    found["accelerator"] = [str(torch.accelerator.current_accelerator()), torch.accelerator.device_count()]
    with torch.peerlane.device(1):
        found["current"] = [torch.accelerator.current_device_index(), str(torch.ones(1, device="peerlane").device)]
"""


def test_tensors_travel_and_random_numbers_repeat(tmp_path: Path) -> None:
    results: dict[str, Any] = run_on_device(tmp_path, _TRAVELS)
    values = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert results == {
        "same device": ["peerlane:1", values],
        "mapped": ["cpu", "peerlane:0"],
        "shared": True,
        "printed": "tensor([[0., 1., 2.],\n        [3., 4., 5.]], device='peerlane:1')",
        "copied": values,
        "lent": [True, "peerlane:1"],
        "numpy": "TypeError",
        "random": [True, False],
        "seeded": True,
        "as on the processor": True,
        "all seeded": [True, False],
        "generator": [0, 1, 2, 3, 4],
        "autocast": ["torch.bfloat16", "torch.float32"],
        "types": [True, True],
        "storage": [True, "peerlane"],
        "accelerator": ["peerlane", 2],
        "current": [1, "peerlane:1"],
    }


_EMPTIED = """
    pinned = torch.arange(4096.0).pin_memory()
    moved = pinned.to("peerlane:1", non_blocking=True)
    del pinned
    torch.accelerator.empty_host_cache()  # the copy may use it still
    torch.accelerator.synchronize()
    found["kept"] = moved.tolist() == list(range(4096))
    torch.accelerator.empty_host_cache()
    again = torch.zeros(4096).pin_memory()
    moved.copy_(again, non_blocking=True)
    found["new"] = [again.is_pinned(), moved.sum().item()]
    torch.accelerator.empty_host_cache()
    found["used"] = again.is_pinned()
"""


@SCHEDULES
def test_empty_host_cache_returns_what_no_copy_uses(tmp_path: Path, schedule: str) -> None:
    results = run_on_device(tmp_path, _EMPTIED, schedule=schedule)
    assert results == {"kept": True, "new": [True, 0.0], "used": True}


_LOADER = """
    from torch.utils.data import DataLoader, TensorDataset

    used = torch.ones(2, device="peerlane:0")
    loader = DataLoader(TensorDataset(torch.arange(8.0)), batch_size=4, num_workers=1, pin_memory=True)
    found["batches"] = []
    for (batch,) in loader:
        moved = batch.to("peerlane:1", non_blocking=True)
        found["batches"].append([batch.is_pinned(), moved.tolist()])
"""


def test_loader_with_workers_pins_its_batches(tmp_path: Path) -> None:
    results = run_on_device(tmp_path, _LOADER)
    assert results["batches"] == [[True, [0.0, 1.0, 2.0, 3.0]], [True, [4.0, 5.0, 6.0, 7.0]]]


_UNWRITTEN = """
    from torch.utils import deterministic
    used = torch.arange(64.0, device="peerlane:0")
    del used
    torch.use_deterministic_algorithms(True)
    whole = torch.iinfo(torch.int64).max
    made = {
        "empty": torch.empty(9, device="peerlane:0"),
        "strided": torch.empty_strided((3, 2), (4, 1), device="peerlane:1", dtype=torch.float16),
        "like": torch.empty_like(torch.ones(5, device="peerlane:0")),
        "resized": torch.ones(2, device="peerlane:0").resize_(40)[2:],
    }
    found["filled"] = {name: each.cpu().isnan().all().item() for name, each in made.items()}
    found["kept"] = torch.ones(2, device="peerlane:0").resize_(40)[:2].tolist()
    found["integers"] = (torch.empty(9, device="peerlane:0", dtype=torch.int64) == whole).all().item()
    found["sum"] = (torch.ones(300, 300, device="peerlane:0") @ torch.ones(300, 1, device="peerlane:0")).sum().item()
    deterministic.fill_uninitialized_memory = False
    found["off"] = torch.zeros(9, device="peerlane:0").new_empty(9).isnan().any().item()
"""


@SCHEDULES
def test_memory_that_nobody_has_written_is_filled_where_torch_is_deterministic(
    tmp_path: Path, schedule: str
) -> None:
    assert run_on_device(tmp_path, _UNWRITTEN, schedule=schedule) == {
        "filled": {"empty": True, "strided": True, "like": True, "resized": True},
        "kept": [1.0, 1.0],
        "integers": True,
        "sum": 90_000.0,
        "off": False,
    }


_COMPILED = """
    import warnings
    def compute(x, y):
        return (x.sin() * y).relu().sum(0) + torch.ones(3, device=x.device)
    compiled = torch.compile(compute)
    inputs = [torch.randn(4, 3, requires_grad=True) for _ in range(2)]
    on_device = [each.detach().to("peerlane:1").requires_grad_() for each in inputs]
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        result = compiled(*on_device)
        torch._dynamo.reset()
        compiled(*on_device)
    compute(*inputs).sum().backward()
    result.sum().backward()
    found["equal"] = torch.equal(result.cpu(), compute(*inputs))
    found["gradients"] = [torch.equal(a.grad, b.grad.cpu()) for a, b in zip(inputs, on_device)]
    found["warned"] = [str(each.message) for each in caught_warnings if "Inductor" in str(each.message)]
"""


def test_compiled_graph_on_the_device_runs_by_its_operations_with_a_warning(tmp_path: Path) -> None:
    results = run_on_device(tmp_path, _COMPILED)
    [warning] = results.pop("warned")
    assert "backend='aot_eager'" in warning and "'peerlane'" in warning
    assert results == {"equal": True, "gradients": [True, True]}


@pytest.mark.parametrize("compiler", ["no-such-compiler", ""])
def test_no_compiler_is_reported_at_the_first_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str
) -> None:
    monkeypatch.setenv("CXX", compiler)
    results = run_on_device(tmp_path, 'found["error"] = caught(torch.empty, 2, device="peerlane")')
    kind, text = results["error"]
    assert kind == "Unbuilt"
    assert f"there is no C++ compiler {compiler!r}: install g++ 11 or newer" in text


_NAMED_BEFORE = """
import warnings
import torch
torch.utils.rename_privateuse1_backend("other")
with warnings.catch_warnings(record=True) as shown:
    warnings.simplefilter("always")
    import peerlane.torch
print(*(each.message for each in shown if "peerlane" in str(each.message)))
print("peerlane" in torch.distributed.Backend.backend_list, torch.device("other:0"))
"""


def test_back_end_works_where_another_library_has_named_the_device(tmp_path: Path) -> None:
    done = run_python(["-c", _NAMED_BEFORE], timeout=100, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    warned, rest = done.stdout.splitlines()
    assert "torch has no device 'peerlane' in this process" in warned
    assert "another library has named it 'other'" in warned
    assert rest == "True other:0"


_TOGETHER = """
    import threading
    from peerlane.torch import device_objects

    whole = torch.peerlane.mem_get_info(0)[1]
    size = 32 << 20
    torch.peerlane.set_per_process_memory_fraction(1.5 * size / whole, 0)
    met, allocate = threading.Barrier(2), device_objects.allocate

    def late(*arguments):
        try:
            met.wait(2)  # until both threads are allowed to reserve
        except threading.BrokenBarrierError:
            pass
        return allocate(*arguments)

    device_objects.allocate = late
    tensors, errors = [], []

    def take():
        try:
            tensors.append(torch.empty(size, dtype=torch.uint8, device="peerlane:0"))
        except torch.OutOfMemoryError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=take) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    found["outcomes"] = [len(tensors), len(errors)]
    found["reserved"] = torch.peerlane.memory_reserved(0) <= 1.5 * size
    tensors.clear()
    torch.peerlane.empty_cache()
    take()
    found["again"] = len(tensors)
"""


def test_threads_stay_within_a_memory_fraction_together(tmp_path: Path) -> None:
    results = run_on_device(tmp_path, _TOGETHER)
    assert results == {"outcomes": [1, 1], "reserved": True, "again": 1}
