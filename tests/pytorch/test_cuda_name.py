"""Unmodified programs of PyTorch that say ``cuda``, under ``--torch-cuda``: alike the processor's, bit by bit."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path
from typing import Any

import pytest

from helpers.torch_layouts import COPIES, LAYOUTS, PARTS
from helpers.torch_ranks import needs_torch, under_the_name_cuda
from peerlane.support.libraries import binding
from peerlane.testing.procs import Completed, run_python

needs_torch()

pytestmark = [under_the_name_cuda, pytest.mark.any_schedule, pytest.mark.timeout(300)]
PROGRAMS = Path(__file__).with_name("cuda_programs")
SCHEDULES = pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:7"])
ENDS = """
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)
"""


def _run(words: list[str], schedule: str = "eager") -> Completed:
    settings = {"PEERLANE_SCHEDULE": schedule, "OMP_NUM_THREADS": "1"}
    # The first one compiles the device.
    return run_python(words, timeout=280, env={**os.environ, **settings})


def _run_on_cuda(words: list[str], schedule: str = "eager") -> Completed:
    return _run(["-m", "peerlane", "run", "--torch-cuda", "--devices", "2", *words], schedule)


def _find(folder: Path, text: str, schedule: str = "eager") -> Any:
    program, result = folder / "program.py", folder / "found.json"
    head = "import json, sys\nimport torch\nfound = {}\n"
    program.write_text(head + textwrap.dedent(text) + textwrap.dedent(ENDS))
    done = _run_on_cuda([str(program), str(result)], schedule)
    assert done.returncode == 0, done.stderr
    return json.loads(result.read_text())


@SCHEDULES
@pytest.mark.parametrize(
    ("program", "on_host", "on_devices", "devices"),
    [
        ("model_parallel", ["cpu", "cpu"], ["cuda:0", "cuda:1"], ["cuda:0", "cuda:1"]),
        ("prefetching", ["cpu"], ["cuda"], ["cuda:0"]),
        ("offloading", ["cpu"], ["cuda:1"], ["cuda:1"]),
        ("data_parallel", ["cpu"], ["cuda"], ["cuda:1"]),
    ],
)
def test_program_on_cuda_has_the_bits_of_the_processor(
    program: str, on_host: list[str], on_devices: list[str], devices: list[str], schedule: str
) -> None:
    path = str(PROGRAMS / f"{program}.py")
    plain, served = _run([path, *on_host]), _run_on_cuda([path, *on_devices], schedule)
    assert (plain.returncode, served.returncode) == (0, 0), plain.stderr + served.stderr
    want, got = json.loads(plain.stdout), json.loads(served.stdout)
    assert got.pop("devices") == devices
    del want["devices"]
    assert got == want


@SCHEDULES
def test_copies_between_devices_and_the_host_keep_the_layout(tmp_path: Path, schedule: str) -> None:
    results = _find(tmp_path, PARTS + LAYOUTS + COPIES, schedule)
    assert [name for name, is_same in results.items() if not is_same] == [] and len(results) == 15


_NAMES = """
    import io
    import uuid
    saved = io.BytesIO()
    torch.save(torch.ones(2, device="cuda:0"), saved)
    saved.seek(0)
    found["loaded"] = str(torch.load(saved, map_location={"cuda:0": "cuda:1"}).device)
    sequence, state = torch.nn.LSTM(3, 4, 2), torch.randn(5, 2, 3)
    want = sequence(state)[0]
    got = sequence.cuda()(state.cuda())[0]
    got.sum().backward()
    found["lstm"] = [torch.allclose(want, got.cpu(), atol=1e-6), str(sequence.weight_hh_l0.grad.device)]
    x = torch.arange(6.0).reshape(2, 3).to("cuda:1")
    found["device"] = [str(x.device), x.is_cuda, x.get_device(), x.type(), repr(x[0])]
    found["counts"] = [torch.cuda.is_available(), torch.cuda.device_count(), torch.accelerator.device_count()]
    found["accelerator"] = str(torch.accelerator.current_accelerator())
    found["module"] = torch.get_device_module("cuda") is torch.cuda
    with torch.cuda.device(1):
        found["current"] = [torch.cuda.current_device(), str(torch.empty(2, device="cuda").device)]
    with torch.device("cuda:1"):
        found["context"] = str(torch.ones(2).device)
    torch.set_default_device("cuda")
    found["default"] = str(torch.ones(2).device)
    torch.set_default_device("cpu")
    found["module to"] = str(next(torch.nn.Linear(2, 2).cuda(1).parameters()).device)
    found["like"] = str(torch.zeros_like(x).device)
    found["built"] = [torch.backends.cuda.is_built(), torch.backends.cudnn.is_available()]
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.benchmark = True
    with torch.autocast("cuda", dtype=torch.bfloat16):
        found["autocast"] = str((x @ x.t()).dtype)
    scaler = torch.amp.GradScaler("cuda")
    weight = torch.ones(2, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler.scale(weight.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    found["scaled"] = weight.tolist()
    torch.cuda.manual_seed(5)
    a = torch.rand(3, device="cuda")
    torch.cuda.manual_seed(5)
    found["seeded"] = torch.equal(a, torch.rand(3, device="cuda"))
    generator = torch.Generator(device="cuda").manual_seed(5)
    found["generator"] = torch.equal(a, torch.rand(3, device="cuda", generator=generator))
    properties = torch.cuda.get_device_properties(0)
    free, total = torch.cuda.mem_get_info()
    found["properties"] = [properties.total_memory == total, properties.name == torch.cuda.get_device_name(0)]
    uuids = [torch.cuda.get_device_properties(each).uuid for each in range(2)]
    found["uuids"] = [bytes(each.bytes) == uuid.UUID(str(each)).bytes for each in uuids] + [len(set(map(str, uuids)))]
    found["bus"] = [properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id]
    found["capability"] = torch.cuda.get_device_capability() >= (8, 0)
    before = torch.cuda.memory_allocated()
    y = torch.empty(1 << 20, device="cuda")
    found["memory"] = [torch.cuda.memory_allocated() - before, torch.cuda.max_memory_allocated() >= y.nbytes]
    del y
    torch.cuda.empty_cache()
    found["summary"] = "Allocated memory" in torch.cuda.memory_summary()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        first.record()
        z = torch.ones(400, 400, device="cuda") @ torch.ones(400, 400, device="cuda")
        last.record()
    default = torch.cuda.default_stream()
    found["streams"] = [torch.cuda.current_stream() == default, side != default]
    torch.cuda.current_stream().wait_event(last)
    torch.cuda.synchronize()
    found["event"] = [last.query(), first.elapsed_time(last) > 0, z.sum().item()]
    found["peer"] = torch.cuda.can_device_access_peer(0, 1)
    found["pinned"] = [torch.ones(2).pin_memory().is_pinned(), torch.empty(2, pin_memory=True).is_pinned()]
    found["capturing"] = torch.cuda.is_current_stream_capturing()
    torch._dynamo.reset()  # libraries call it whether they compile or not
"""


def test_names_of_cuda_mean_virtual_devices(tmp_path: Path) -> None:
    assert _find(tmp_path, _NAMES) == {
        "loaded": "cuda:1",
        "lstm": [True, "cuda:0"],
        "device": ["cuda:1", True, 1, "torch.cuda.FloatTensor", "tensor([0., 1., 2.], device='cuda:1')"],
        "counts": [True, 2, 2],
        "accelerator": "cuda",
        "module": True,
        "current": [1, "cuda:1"],
        "context": "cuda:1",
        "default": "cuda:0",
        "module to": "cuda:1",
        "like": "cuda:1",
        "built": [True, False],
        "autocast": "torch.bfloat16",
        "scaled": [0.5, 0.5],
        "seeded": True,
        "generator": True,
        "properties": [True, True],
        "uuids": [True, True, 2],
        "bus": [0, 1, 0],
        "capability": True,
        "memory": [4 << 20, True],
        "summary": True,
        "streams": [True, True],
        "event": [True, True, 400.0**3],
        "peer": True,
        "pinned": [True, True],
        "capturing": False,
    }


_PINNED = """
    def counted(names):
        stats = torch.cuda.host_memory_stats()
        return [stats[name] for name in names.split()]

    found["before"] = torch.cuda.host_memory_stats()
    tensor = torch.zeros(1 << 10, device="cuda")
    first, second = (torch.ones(1 << 10).pin_memory() for _ in range(2))
    found["used"] = counted("active_requests.current active_bytes.current allocations.current num_host_alloc")
    del second
    found["cached"] = counted("active_bytes.current active_bytes.peak allocated_bytes.current num_host_free")
    torch.accelerator.empty_host_cache()
    found["emptied"] = counted("active_bytes.current allocated_bytes.current num_host_free")
    found["times"] = counted("host_alloc_time.count host_free_time.count")
    torch.cuda.reset_peak_host_memory_stats()
    torch.cuda.reset_accumulated_host_memory_stats()
    found["reset"] = counted("active_bytes.peak allocations.allocated num_host_alloc host_alloc_time.count")
"""


def test_statistics_of_pinned_memory_count_blocks_and_bytes(tmp_path: Path) -> None:
    assert _find(tmp_path, _PINNED) == {
        "before": {},
        "used": [2, 8192, 2, 2],
        "cached": [4096, 8192, 8192, 0],
        "emptied": [4096, 4096, 1],
        "times": [2, 1],
        "reset": [4096, 0, 0, 0],
    }


_REFUSED = """
    x = torch.ones(2, device="cuda")

    def refused(name, call, *args):
        try:
            call(*args)
        except Exception as error:
            found[name] = str(error)

    refused("graph", torch.cuda.CUDAGraph)
    refused("pool", torch.cuda.graph_pool_handle)
    jitted = torch.cuda.jiterator._create_jit_fn("template <typename T> T f(T x) { return x; }")
    refused("jiterator", jitted, x)
    refused("external", torch.cuda.ExternalStream, 1)
    refused("cudart", lambda: torch.cuda.cudart().cudaStreamCreate(0))
    options = {"dtype": torch.uint8, "device": "cuda"}
    refused("no kernel", lambda: torch.ops.aten._cudnn_init_dropout_state(0.5, True, 1, **options))
    refused("two", lambda: x + torch.ones(2, device="cuda:1"))
    refused("no device", lambda: torch.empty(1, device="cuda:7"))
    import torch.distributed.rpc
    refused("map", torch.distributed.rpc.TensorPipeRpcBackendOptions().set_device_map, "other", {0: 1})
    layer = torch.export.export(torch.nn.Linear(2, 2).cuda(), (torch.ones(2, 2, device="cuda"),))
    refused("ahead of time", torch._inductor.aoti_compile_and_package, layer)
"""


def test_what_virtual_devices_lack_is_refused_by_name(tmp_path: Path) -> None:
    results = _find(tmp_path, _REFUSED)
    named = {
        "graph": "_CUDAGraph is part of torch's library for CUDA, and peerlane does not serve it",
        "pool": "_graph_pool_handle is part of",
        "jiterator": "_cuda_jiterator_compile_and_launch_kernel is part of",
        "external": "_cuda_getStreamFromExternal is part of",
        "cudart": "_cudart.cudaStreamCreate is part of",
        "no kernel": "cuda:0 cannot run aten::_cudnn_init_dropout_state: the device runs kernels of the processor",
        "two": "at least two devices, cuda:0 and cuda:1",
        "no device": "cuda:7 does not exist: there are 2 devices, cuda:0 to cuda:1",
        "map": "torch.distributed.rpc sends no tensors of cuda:0",
        "ahead of time": "AOTInductor has no compiler for the device 'cuda' of peerlane",
    }
    assert {name: text in results.get(name, "") for name, text in named.items()} == dict.fromkeys(
        named, True
    ), results


_WIDENED = """
    def result(name, call, *tensors):
        tensors = [each.clone().requires_grad_(each.is_floating_point()) for each in tensors]
        values = call(*tensors)
        wide = call(*[each.detach().cpu().to(WIDER[each.dtype]) for each in tensors])
        near = torch.allclose(values.detach().cpu().to(wide.dtype), wide, rtol=1e-2, atol=1e-2)
        if values.requires_grad and values.is_floating_point():
            values.sum().backward()
        kinds = [str(each.dtype) for each in (values, *[each.grad for each in tensors if each.grad is not None])]
        found[name] = [near, kinds]

    WIDER = {torch.int32: torch.float64, torch.uint8: torch.float64, torch.float32: torch.float32,
             torch.float16: torch.float32, torch.bfloat16: torch.float32, torch.complex32: torch.complex64}
    half = torch.randn(1, 2, 8, 8, 8, device="cuda").half()
    for kind in (torch.int32, torch.uint8, torch.float32):
        experts = torch.randint(0, 9, (50,), device="cuda").to(kind)
        result(f"histogram {kind}", lambda each: torch.histc(each, bins=9, min=0, max=8), experts.detach())
    result("pool", lambda each: torch.nn.functional.avg_pool3d(each, 2), half.bfloat16())
    resize = {"size": (5, 7), "antialias": True}
    for mode in ("bilinear", "bicubic"):
        result(mode, lambda each: torch.nn.functional.interpolate(each, mode=mode, **resize), half[0])
    result("spectrum", lambda each: torch.fft.rfft(each), half)
    result("signal", lambda each: torch.fft.irfft(each), torch.fft.rfft(half).detach())
    result("both", lambda each: torch.fft.fft(each), torch.fft.rfft(half).detach())
    scores, classes = torch.randn(4, 5, device="cuda"), torch.tensor([1, 4, 0, 2], device="cuda")
    several = torch.tensor([[1, 3, -1, 0, 0]] * 4, device="cuda")
    for kind in (torch.float16, torch.bfloat16, torch.float32):
        one = lambda each: torch.nn.functional.multi_margin_loss(each, classes.to(each.device))
        result(f"margin {kind}", one, scores.to(kind))
        many = lambda each: torch.nn.functional.multilabel_margin_loss(each, several.to(each.device))
        result(f"margins {kind}", many, scores.to(kind))
    leaky = torch.full((64,), -1.0, device="cuda").half().requires_grad_()
    slopes = torch.nn.functional.rrelu(leaky, 0.25, 0.5, training=True)
    slopes.sum().backward()
    found["slopes"] = [torch.equal(-slopes, leaky.grad), slopes.unique().numel() > 1]
"""


def test_types_that_cuda_alone_has_are_computed_in_wider_ones(tmp_path: Path) -> None:
    assert _find(tmp_path, _WIDENED) == {
        "histogram torch.int32": [True, ["torch.int32"]],
        "histogram torch.uint8": [True, ["torch.uint8"]],
        "histogram torch.float32": [True, ["torch.float32"]],
        "pool": [True, ["torch.bfloat16"] * 2],
        "bilinear": [True, ["torch.float16"] * 2],
        "bicubic": [True, ["torch.float16"] * 2],
        "spectrum": [True, ["torch.complex32"]],
        "signal": [True, ["torch.float16"]],
        "both": [True, ["torch.complex32"]],
        **{
            f"{name} {kind}": [True, [kind] * 2]
            for name in ("margin", "margins")
            for kind in ("torch.float16", "torch.bfloat16", "torch.float32")
        },
        "slopes": [True, True],
    }


_CONVOLUTIONS = """
    last, call = torch.channels_last, torch.nn.functional
    images, weight = torch.randn(2, 8, 9, 9).to(memory_format=last), torch.randn(4, 8, 3, 3)
    volume = torch.randn(1, 8, 5, 5, 5).to(memory_format=torch.channels_last_3d)

    def strides(device):
        def made(function, *tensors, **settings):
            return function(*[each.to(device) for each in tensors], **settings).stride()

        contiguous, ones = images.contiguous(), torch.ones(4)
        pairs = [(images, weight), (contiguous, weight), (contiguous, weight.to(memory_format=last))]
        kinds = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
        found = [made(call.conv2d, *pair) for pair in pairs]
        found += [made(call.conv2d, *[each.to(kind) for each in (images, weight, ones)]) for kind in kinds]
        found.append(made(call.conv2d, images, weight[:, :1].repeat(2, 1, 1, 1), groups=8, stride=2, padding=1))
        found.append(made(call.conv_transpose2d, images, weight.transpose(0, 1), output_padding=1, stride=2))
        found.append(made(call.conv3d, volume, torch.randn(2, 8, 2, 2, 2)))
        found.append(made(call.conv1d, images[0, :, 0], weight[:, :, 0]))
        return found

    on_host = strides("cpu")   # before the first use of a device
    found["equal"] = strides("cuda") == on_host
"""


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_convolutions_have_the_strides_of_the_processor_also_behind_it(tmp_path: Path, schedule: str) -> None:
    assert _find(tmp_path, _CONVOLUTIONS, schedule) == {"equal": True}


_REGISTERED = """
    runtime = torch.cuda.cudart()
    page = torch.zeros(4096, dtype=torch.uint8)
    data = torch.full((4096,), 7, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()

    def copied():
        page.zero_()
        page.copy_(data, non_blocking=True)
        queued = page.sum().item()
        torch.cuda.synchronize()
        return [queued, page.sum().item()]

    found["pageable"] = copied()
    pinned = [page.is_pinned()]
    codes = [runtime.cudaHostRegister(page.data_ptr(), 4096, 0) for _ in range(2)]
    pinned.append(page.is_pinned())
    found["registered"] = copied()
    codes += [runtime.cudaHostUnregister(page.data_ptr()) for _ in range(2)]
    found["pinned"] = [*pinned, page.is_pinned()]
    codes += [runtime.cudaHostRegister(0, 1, 0)]
    found["pageable again"] = copied()
    found["codes"] = [int(each) for each in codes]
    found["success"] = codes[0] == runtime.cudaError.success
    found["text"] = runtime.cudaGetErrorString(codes[1])
"""


def test_copies_of_memory_that_the_program_registers_are_queued(tmp_path: Path) -> None:
    every = 4096 * 7
    assert _find(tmp_path, _REGISTERED, "lazy") == {
        "pageable": [every, every],
        "registered": [0, every],
        "pinned": [False, True, False],
        "pageable again": [every, every],
        "codes": [0, 712, 0, 713, 1],
        "success": True,
        "text": "host memory already registered",
    }


_LAYOUTS = """
    def trained(device):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Embedding(20, 4, sparse=True)).to(device)
        optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1)
        for step in range(2):
            optimizer.zero_grad()
            model(torch.tensor([1, 2, 2], device=device)).pow(2).sum().backward()
            optimizer.step()
        return model[0].weight.detach().cpu()

    rows = torch.eye(4, device="cuda:1")
    found["trained"] = torch.equal(trained("cpu"), trained("cuda:1"))
    found["products"] = [(each @ rows).equal(rows) for each in (rows.to_sparse(), rows.to_sparse_csr())]
    found["moved"] = [str(rows.to_sparse().to(to).device) for to in ("cpu", "cuda:0")]
    nested = torch.nested.nested_tensor([rows, rows[:1]])
    found["nested"] = [nested.is_cuda, (nested @ nested.transpose(1, 2)).to_padded_tensor(0.0).sum().item()]
    quantized = torch.quantize_per_tensor(rows, 0.5, 1, torch.qint8)
    found["quantized"] = [quantized.is_cuda, quantized.cpu().dequantize().sum().item()]
"""


def test_sparse_nested_and_quantized_tensors_work_on_cuda(tmp_path: Path) -> None:
    assert _find(tmp_path, _LAYOUTS) == {
        "trained": True,
        "products": [True, True],
        "moved": ["cpu", "cuda:0"],
        "nested": [True, 5.0],
        "quantized": [True, 4.0],
    }


_BUILD = """
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    found["cuda"] = torch.version.cuda.split(".")[0]
    found["has another"] = torch.version.hip is not None
    rendezvous = f"file://{sys.argv[1]}.meeting"
    dist.init_process_group("nccl", init_method=rendezvous, rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2).cuda())
    model.register_comm_hook(None, bf16_compress_hook)
    model(torch.ones(1, 2, device="cuda")).sum().backward()
    found["gradient"] = model.module.bias.grad.tolist()
    dist.destroy_process_group()
"""


def test_program_that_asks_for_a_build_with_cuda_has_one(tmp_path: Path) -> None:
    major = binding("cudart")["version"][0]
    assert _find(tmp_path, _BUILD) == {"cuda": str(major), "has another": False, "gradient": [1.0, 1.0]}


_MORE = """
    with torch.cuda.nvtx.range("step"):
        torch.cuda.nvtx.mark("begins")
        torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("part"))
    side = torch.cuda.Stream()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(side):
        first.record()
        torch.cuda._sleep(200_000_000)
        last.record()
    last.synchronize()
    found["slept"] = first.elapsed_time(last) >= 50
    weight = torch.arange(6.0, device="cuda")
    storage, before = weight.untyped_storage(), torch.cuda.memory_allocated()
    storage.resize_(0)
    found["freed"] = [before > torch.cuda.memory_allocated(), storage.size()]
    storage.resize_(24)
    weight.copy_(torch.arange(6.0))
    found["again"] = weight.tolist()
    layer, inputs = torch.nn.Linear(4, 4).cuda(), torch.ones(2, 4, device="cuda")
    for backend in ("eager", "aot_eager", "inductor"):
        torch._dynamo.reset()
        compiled = torch.compile(layer, backend=backend)
        found[backend] = torch.equal(compiled(inputs), layer(inputs))
"""


@pytest.mark.parametrize(
    "text", ["torch.zeros(1, device='cuda')", "torch.cuda.set_device(1)", "torch.cuda.Stream()"]
)
def test_program_that_names_cuda_without_the_option_is_referred_to_it(text: str) -> None:
    done = _run(["-m", "peerlane", "run", "-c", f"import torch\n{text}"])
    assert done.returncode == 1 and "with --torch-cuda, " in done.stderr.splitlines()[-1], done.stderr


def test_rank_and_child_that_name_cuda_without_the_option_are_referred_to_it() -> None:
    text = "import torch\ntorch.cuda.set_device(1)"
    rank = _run(["-m", "peerlane", "launch", "-n", "1", "-c", text])
    assert rank.returncode == 1 and "with --torch-cuda, " in rank.stderr, rank.stderr
    start = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {text!r}]).returncode)"
    child = _run(["-m", "peerlane", "run", "-c", start])
    assert child.returncode == 1 and "with --torch-cuda, " in child.stderr.splitlines()[-1], child.stderr


def test_error_of_a_program_that_does_not_name_cuda_stands_alone() -> None:
    done = _run(["-m", "peerlane", "run", "-c", "import torch\ntorch.zeros(-1)"])
    assert done.returncode == 1 and "--torch-cuda" not in done.stderr, done.stderr


def test_sleep_ranges_storages_and_compiled_layers_work(tmp_path: Path) -> None:
    assert _find(tmp_path, _MORE) == {
        "slept": True,
        "freed": [True, 0],
        "again": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
        "eager": True,
        "aot_eager": True,
        "inductor": True,
    }


_OF_HALF = """
    import torch.nn.functional as F
    for size in (4, 400):
        x = torch.randn(size, 300).half()
        for softmax in (torch.softmax, torch.log_softmax):
            results = []
            for device in ("cpu", "cuda"):
                leaf = x.clone().to(device).requires_grad_()
                result = softmax(leaf, -1, dtype=torch.float32)
                (result * torch.arange(300.0, device=device)).sum().backward()
                results.append([result.detach().cpu(), leaf.grad.cpu()])
            found[f"{softmax.__name__} {size}"] = [
                torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(*results)
            ]
    speech = torch.randn(5, 2, 3)
    losses = []
    for device in ("cpu", "cuda"):
        log = speech.log_softmax(2).to(device).requires_grad_()
        lengths = torch.tensor([5, 5], device=device), torch.tensor([1, 2], device=device)
        loss = F.ctc_loss(log, torch.tensor([[1, 0], [1, 2]], device=device), *lengths)
        loss.backward()
        losses.append([loss.detach().cpu(), log.grad.cpu()])
    found["ctc"] = [torch.equal(a, b) for a, b in zip(*losses)]
"""


def test_operations_that_torch_asks_of_cuda_alone_have_the_bits_of_the_processor(tmp_path: Path) -> None:
    results = _find(tmp_path, _OF_HALF)
    assert len(results) == 5
    assert [name for name, are_equal in results.items() if are_equal != [True, True]] == []


_PROFILED = """
    from torch.profiler import ProfilerActivity, profile, record_function
    x = torch.randn(500, 500, device="cuda:1")
    with torch.cuda.device(1), profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for _ in range(3):
            y = (x @ x).softmax(1)
        torch.cuda.synchronize()
    events = [each for each in profiler.events() if each.name == "aten::_softmax"]
    found["times"] = [each.device_time_total for each in events]
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], with_stack=True) as profiler:
        with record_function("region"):
            x + 1
    found["names"] = [each.name for each in profiler.events()]
"""


def test_profiler_measures_operations_on_the_device(tmp_path: Path) -> None:
    results = _find(tmp_path, _PROFILED)
    # microseconds; shapes are computed without the device
    assert sum(10 < each < 20e6 for each in results["times"]) == 3
    assert "region" in results["names"]
    assert not any("_cupti_monitor.py" in each for each in results["names"])


_FORKED = """
    import multiprocessing
    from torch.utils.data import DataLoader

    def draw(answers):
        torch.manual_seed(7)
        answers.put(torch.rand(3, device="cuda:1").tolist())

    if __name__ == "__main__":
        fork = multiprocessing.get_context("fork")
        answers = fork.Queue()
        child = fork.Process(target=draw, args=(answers,))
        child.start()
        found["child"] = answers.get(timeout=100)
        child.join(100)
        torch.manual_seed(7)
        found["parent"] = torch.rand(3, device="cuda:1").tolist()
        loader = DataLoader(torch.arange(12.0), batch_size=4, num_workers=2, pin_memory=True)
        found["sums"] = [each.to("cuda", non_blocking=True).sum().item() for each in loader]
"""


def test_workers_are_forked_before_and_after_the_device_is_used(tmp_path: Path) -> None:
    results = _find(tmp_path, _FORKED)
    assert results["child"] == results["parent"]
    assert results["sums"] == [6.0, 22.0, 38.0]


_FORKED_LATE = """
    import multiprocessing
    import torch.multiprocessing
    from torch.utils.data import DataLoader, Dataset

    x = torch.ones(2, device="cuda:1")
    pinned, freed = torch.arange(4.0).pin_memory(), torch.ones(3).pin_memory()
    del freed

    def caught(call):
        try:
            return str(call())
        except Exception as error:
            return [isinstance(error, RuntimeError), str(error)]

    def attempt(answers):
        calls = {
            "make": lambda: torch.ones(2, device="cuda"),
            "compute": lambda: x + 1,
            "fetch": lambda: x.cpu(),
            "print": lambda: repr(x),
            "pin": lambda: torch.ones(3).pin_memory(),
            "stream": lambda: torch.cuda.Stream(),
            "count": lambda: [torch.cuda.is_available(), torch.cuda.device_count()],
            "pinned": lambda: pinned.sum().item(),
            "processor": lambda: (torch.ones(2) + 1).sum().item(),
        }
        answers.put({name: caught(call) for name, call in calls.items()})

    class OnDevice(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return torch.ones(2, device="cuda") * index

    if __name__ == "__main__":
        fork = multiprocessing.get_context("fork")
        answers = fork.Queue()
        child = fork.Process(target=attempt, args=(answers,))
        child.start()
        found["child"] = answers.get(timeout=100)
        child.join(100)
        found["code"] = child.exitcode
        found["worker"] = caught(lambda: next(iter(DataLoader(OnDevice(), num_workers=1))))
        found["parent"] = [(x + 1).tolist(), pinned.tolist(), torch.ones(3).pin_memory().tolist()]
"""


def test_child_that_is_forked_after_the_device_was_used_is_referred_to_spawn(tmp_path: Path) -> None:
    results = _find(tmp_path, _FORKED_LATE)
    child = results["child"]
    for name in ("make", "compute", "fetch", "print", "pin", "stream"):
        is_of_torch, text = child[name]
        assert is_of_torch and "forked" in text and "spawn" in text, name
    assert [child["count"], child["pinned"], child["processor"]] == ["[True, 2]", "6.0", "4.0"]
    assert results["code"] == 0
    assert results["worker"][0] and "multiprocessing_context='spawn'" in results["worker"][1]
    assert results["parent"] == [[2, 2], [0, 1, 2, 3], [1, 1, 1]]


_RESERVED = """
    import pickle
    import warnings
    from torch.distributed import distributed_c10d as c10d
    from torch.nn.attention import SDPBackend, sdpa_kernel

    memory = torch.cuda.mem_get_info(0)[1]

    def refused(nbytes):
        try:
            torch.empty(nbytes, dtype=torch.uint8, device="cuda:0")
        except torch.OutOfMemoryError as error:
            return str(error)

    torch.cuda.set_per_process_memory_fraction(0.25, 0)
    found["fractions"] = [torch.cuda.get_per_process_memory_fraction(each) for each in (0, 1)]
    found["limited"] = [refused(memory // 2), refused(memory // 8)]
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(1.0, 0)
    found["unlimited"] = refused(memory // 2)
    torch.cuda.empty_cache()

    kept, freed = torch.ones(1000, device="cuda:1"), torch.ones(1000, device="cuda:1")
    del freed
    torch.cuda.memory._dump_snapshot(sys.argv[1] + ".snapshot")
    with open(sys.argv[1] + ".snapshot", "rb") as file:
        segments = [each for each in pickle.load(file)["segments"] if each["device"] == 1]
    blocks = [block for each in segments for block in each["blocks"]]
    found["blocks"] = [[block["requested_size"], block["state"]] for block in blocks]
    found["sizes"] = [
        sum(each["total_size"] for each in segments) == torch.cuda.memory_reserved(1),
        sum(each["active_size"] for each in segments) == torch.cuda.memory_allocated(1),
        blocks[0]["address"] == kept.data_ptr(),
    ]
    torch._C._host_emptyCache()

    q = torch.randn(1, 2, 8, 16)
    attention = torch.nn.functional.scaled_dot_product_attention
    fused = (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION)
    found["attention"] = []
    for each in fused:
        with sdpa_kernel(each):
            found["attention"].append(attention(*[q.cuda()] * 3).tolist())
    found["want"] = attention(q, q, q).tolist()
    found["flag"] = torch.backends.cuda.flash_sdp_enabled()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found["seconds"] = c10d._get_default_timeout("nccl").total_seconds()
"""


def test_memory_attention_and_time_out_follow_the_settings_of_cuda(tmp_path: Path) -> None:
    results = _find(tmp_path, _RESERVED)
    assert results["fractions"] == [0.25, 1.0]
    text, granted = results["limited"]
    assert text.startswith("CUDA out of memory.") and "set_per_process_memory_fraction" in text
    assert granted is None and results["unlimited"] is None
    assert results["blocks"] == [[4000, "active_allocated"], [0, "inactive"]]
    assert results["sizes"] == [True, True, True]
    assert results["attention"] == [results["want"]] * 3 and results["flag"]
    assert results["seconds"] == 600.0


_FAILED = """
    side = torch.cuda.Stream()  # made
    numbers = torch.full((100_000,), 1 << 30, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        picked = torch.arange(100_000.0, device="cuda")[numbers]  # fails
    torch.cuda.current_stream().wait_stream(side)  # waits
    try:
        torch.cuda.current_stream().synchronize()
    except torch.AcceleratorError as error:
        found["text"] = str(error)
"""


def test_error_of_a_stream_that_waits_for_a_failed_one_names_lines_of_the_program(tmp_path: Path) -> None:
    text = _find(tmp_path, _FAILED)["text"]
    lines = (tmp_path / "program.py").read_text().splitlines()
    for word in ("made", "fails", "waits"):
        line = next(i for i, each in enumerate(lines, 1) if each.endswith(f"# {word}"))
        assert f"program.py:{line}" in text, word
    assert "streams.py" not in text


_UNORDERED = """
import torch
side = torch.cuda.Stream()
x = torch.ones(300, 300, device="cuda")
with torch.cuda.stream(side):
    y = x @ x
print((y + 1).sum().item())
"""


def test_check_names_a_missing_wait_of_a_stream_of_cuda(tmp_path: Path) -> None:
    program, report = tmp_path / "program.py", tmp_path / "report.json"
    program.write_text(_UNORDERED)
    words = ["-m", "peerlane", "check", "--torch-cuda", "--devices", "2", "--json", str(report), str(program)]
    done = _run(words)
    assert done.returncode == 3, done.stdout + done.stderr
    findings = json.loads(report.read_text())["findings"]
    assert any(each["certain"] for each in findings)
    assert f"{program}:6" in done.stdout + done.stderr


def test_children_of_the_program_have_cuda_too(tmp_path: Path) -> None:
    results = _find(
        tmp_path,
        """
        import subprocess
        code = "import torch; print(torch.ones(2, device='cuda:1').sum().item(), torch.cuda.device_count())"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
        found["child"] = [done.returncode, done.stdout.split()]
        """,
    )
    assert results == {"child": [0, ["2.0", "2"]]}


@pytest.mark.parametrize(
    "launcher",
    [
        "launch --torch-cuda -n 2 --devices 2",
        "run --torch-cuda --devices 2 -m torch.distributed.run --nproc-per-node 2",
    ],
    ids=["launch", "torchrun"],
)
def test_ranks_name_nccl_as_their_back_end(launcher: str) -> None:
    done = _run(["-m", "peerlane", *launcher.split(), str(PROGRAMS / "ranks.py")])
    assert done.returncode == 0, done.stdout + done.stderr
    results = [
        json.loads(line.partition("found ")[2]) for line in done.stdout.splitlines() if "found {" in line
    ]
    results.sort(key=lambda each: each["device"])
    assert [each["device"] for each in results] == [0, 1]
    for each in results:
        assert (each["backend"], each["nccl"], each["equal"]) == ("nccl", True, True)
        assert each["gradient"] == f"cuda:{each['device']}"
        assert (each["sum"], each["objects"], each["gloo"], each["both"]) == ([3.0], [0, 1], 2.0, [4.0, 6.0])
        assert "takes strided tensors on cuda" in each["on the processor"]


def test_process_receives_a_tensor_by_torchs_own_functions() -> None:
    done = _run_on_cuda([str(PROGRAMS / "sharing.py")])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["cuda:0 cuda:1 True 2000.0 2000.0", "0 0"]


@SCHEDULES
def test_worker_has_the_weights_of_the_trainer(schedule: str) -> None:
    done = _run_on_cuda([str(PROGRAMS / "weight_sync.py")], schedule)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True"] * 4 + ["0"]


def test_variable_chooses_the_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    results = _find(
        tmp_path,
        """
        found["count"], found["name"] = torch.cuda.device_count(), torch.cuda.get_device_name(0)
        tensor = torch.ones(3, device="cuda:0")
        found["sum"] = tensor.sum().item()
        try:
            torch.ones(1, device="cuda:1")
        except RuntimeError as error:
            found["refused"] = str(error)
        """,
    )
    assert (results["count"], results["name"], results["sum"]) == (1, "virtual:1", 3.0)
    assert "cuda:1 does not exist" in results["refused"]


def test_first_use_beside_cudas_compiler_compiles_the_device(tmp_path: Path) -> None:
    compiler = tmp_path / "cxx"
    compiler.write_text("#!/bin/sh\necho error: the compiler was called >&2\nexit 1\n")
    compiler.chmod(0o755)
    settings = {"CUDA_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "CXX": str(compiler)}
    words = ["-m", "peerlane", "run", "--torch-cuda", "-c", "import torch; torch.ones(1, device='cuda')"]
    done = run_python(words, timeout=120, env={**os.environ, **settings})
    assert done.returncode != 0
    assert "the compiler was called" in done.stderr, done.stderr
