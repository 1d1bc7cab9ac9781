"""Sparse, nested and quantized tensors of the device: as the processor's, under each schedule."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.torch_device import run_on_device
from helpers.torch_layouts import COPIES, LAYOUTS, PARTS
from helpers.torch_ranks import needs_torch

needs_torch()

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(300)]
SCHEDULES = pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:7"])

_ALIKE = (
    PARTS
    + """
    import io
    nn = torch.nn

    def same(name, compute):
        torch.manual_seed(3)
        rows = torch.randn(6, 8) * (torch.rand(6, 8) > 0.5)
        columns, square = torch.randn(8, 4), torch.randn(8, 8)
        results = []
        for device in ("cpu", "peerlane:1"):
            torch.manual_seed(5)
            results.append(parts(compute(*[each.to(device, copy=True) for each in (rows, columns, square)])))
        want, got = results
        tensors = [each for each in got if isinstance(each, torch.Tensor)]
        found[name] = len(want) == len(got) and all(each.device.type == "peerlane" for each in tensors) and all(
            torch.equal(a, b.cpu()) if isinstance(a, torch.Tensor) else a == b for a, b in zip(want, got)
        )
"""
)

_SPARSE = """
    def twice(rows):
        at = torch.tensor([[0, 1, 0], [2, 0, 2]], device=rows.device)
        return torch.sparse_coo_tensor(at, torch.tensor([1.0, 2.0, 3.0], device=rows.device), (6, 8))

    def changed(rows, *calls):
        tensor = rows.to_sparse()
        for call in calls:
            call(tensor)
        return tensor

    same("made", lambda r, c, s: r.to_sparse())
    same("of indices", lambda r, c, s: twice(r))
    same("coalesced", lambda r, c, s: twice(r).coalesce())
    same("empty", lambda r, c, s: torch.sparse_coo_tensor(size=(2, 3), device=r.device))
    same("hybrid", lambda r, c, s: r.to_sparse(1))
    same("dense", lambda r, c, s: twice(r).to_dense())
    same("sum", lambda r, c, s: [r.to_sparse() + twice(r), r + twice(r), torch.sparse.sum(r.to_sparse(), 0)])
    same("product", lambda r, c, s: [torch.sparse.mm(r.to_sparse(), c), r.to_sparse() @ c.to_sparse()])
    same("product with a dense one", lambda r, c, s: r.to_sparse() * r)
    same("addmm", lambda r, c, s: torch.sparse.addmm(torch.ones(6, 4, device=r.device), r.to_sparse(), c))
    same("batches", lambda r, c, s: torch.bmm(r.view(2, 3, 8).to_sparse(), s.view(2, 4, 8).transpose(1, 2)))
    same("in place", lambda r, c, s: changed(r, lambda t: t.mul_(2), lambda t: t.add_(twice(r)), lambda t: t.div_(3)))
    same("zeroed", lambda r, c, s: changed(r, lambda t: t.zero_()))
    same("resized", lambda r, c, s: changed(r, lambda t: t.sparse_resize_and_clear_((9, 9), 2, 0)))
    same("copied", lambda r, c, s: changed(r, lambda t: t.copy_(twice(r))))
    same("values changed", lambda r, c, s: changed(r, lambda t: t._values().fill_(4)))
    same("detached", lambda r, c, s: changed(r.requires_grad_(), lambda t: t.detach()._values().add_(1)))
    same("out", lambda r, c, s: torch.mul(r.to_sparse(), r.to_sparse(), out=twice(r)))
    same("into a dense one", lambda r, c, s: s.add_(s.to_sparse()))
    same("joined", lambda r, c, s: torch.cat([r.to_sparse(), twice(r)]))
    numbers = lambda device: torch.tensor([2, 3], device=device)
    same("chosen", lambda r, c, s: [r.to_sparse()[1], r.to_sparse().index_select(0, numbers(r.device))])
    same("masked", lambda r, c, s: r.sparse_mask(twice(r).coalesce()))
    same("softmax", lambda r, c, s: torch.sparse.softmax(r.to_sparse(), 1))
    same("transposed", lambda r, c, s: r.to_sparse().t().coalesce())
    same("types", lambda r, c, s: r.to_sparse().to(torch.float64))
    same("norm", lambda r, c, s: [r.to_sparse().norm(), r.to_sparse()._nnz(), r.to_sparse().sparse_dim()])
    for layout in ("sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"):
        block = {"blocksize": (2, 2)} if "bs" in layout else {}
        made = lambda each: each.to_sparse(layout=getattr(torch, layout), **block)
        same(layout, lambda r, c, s: [made(r), made(r).to_dense(), made(r).clone(), made(r) * 2])
        same(layout + " in place", lambda r, c, s: made(s).mul_(3))
    csr = lambda each: each.to_sparse_csr()
    same("compressed product", lambda r, c, s: [csr(r) @ c, r.to_sparse_csc() @ c, r.to_sparse_bsr((2, 2)) @ c])
    same("rows", lambda r, c, s: [csr(r)[2], csr(r).values(), csr(r).transpose(0, 1), csr(r).relu()])
    same("sampled", lambda r, c, s: torch.sparse.sampled_addmm(csr(s), s, s.t(), beta=0.5))
    same("compressed", lambda r, c, s: torch.addmm(r.new_ones(6, 4), csr(r), c))
    same("sums of compressed", lambda r, c, s: [csr(s) + csr(s.t()), csr(s).sum()])

    def gradients(compute, *inputs):
        inputs = [each.detach().requires_grad_() for each in inputs]
        compute(*inputs).pow(2).sum().backward()
        return [each.grad for each in inputs]

    same("gradients", lambda r, c, s: gradients(torch.sparse.mm, r.to_sparse(), c))
    same("gradients of values", lambda r, c, s: gradients(
        lambda values: torch.sparse_coo_tensor(r.nonzero().t(), values, r.shape).to_dense(), r[r != 0]))
    same("gradients of compressed", lambda r, c, s: gradients(lambda a, b: a @ b, csr(r), c))

    def trained(kind, device):
        model = nn.Sequential(nn.Embedding(20, 4, sparse=True), nn.Flatten(), nn.Linear(12, 2)).to(device)
        sparse = kind(model[0].parameters(), lr=0.1)
        dense = torch.optim.SGD(model[2].parameters(), lr=0.1)
        for step in range(3):
            sparse.zero_grad(), dense.zero_grad()
            words = torch.tensor([[1, 2, 2], [5, step, 1]], device=device)
            model(words).pow(2).sum().backward()
            sparse.step(), dense.step()
        return [*model.parameters(), model[0].weight.grad]

    for kind in (torch.optim.SGD, torch.optim.Adagrad, torch.optim.SparseAdam):
        same(kind.__name__, lambda r, c, s: [each.detach() for each in trained(kind, r.device)])

    def bag(device):
        model = nn.EmbeddingBag(20, 4, sparse=True, mode="sum").to(device)
        model(torch.tensor([[1, 2]], device=device)).sum().backward()
        return model.weight.grad

    same("bag", lambda r, c, s: bag(r.device))

    def convolved(r, c, s):  # a graph, two layers
        edges = (s > 0.5).float().to_sparse_csr()
        weights = [nn.Parameter(c), nn.Parameter(c.t().contiguous())]
        loss = (edges @ torch.relu(edges @ s @ weights[0]) @ weights[1]).pow(2).mean()
        loss.backward()
        return [loss.detach(), *(each.grad for each in weights)]

    same("graph", convolved)
"""

_OTHERS = """
    ragged = lambda r: nested.nested_tensor([r[:2], r[:1], r[:5]])
    same("nested", lambda r, c, s: [ragged(r), ragged(r) * 2, ragged(r).softmax(-1)])
    same("padded", lambda r, c, s: ragged(r).to_padded_tensor(0.0))
    same("nested product", lambda r, c, s: ragged(r) @ ragged(r).transpose(1, 2))
    same("nested in place", lambda r, c, s: ragged(r).mul_(2).add_(ragged(r)))
    same("nested copy", lambda r, c, s: ragged(r).copy_(ragged(r) * 3))
    same("nested sizes", lambda r, c, s: [ragged(r)._nested_tensor_size().tolist(), ragged(r).numel()])
    same("nested of a mask", lambda r, c, s: torch._nested_tensor_from_mask(
        r.view(2, 3, 8), torch.tensor([[True, True, False], [True, False, False]], device=r.device)))

    def layer(r):
        model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Dropout(0.0)).to(r.device)
        model(ragged(r)).to_padded_tensor(0.0).pow(2).sum().backward()
        return [each.grad for each in model.parameters()]

    same("nested gradients", lambda r, c, s: layer(r))

    def encoded(r, train):
        made = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        model = nn.TransformerEncoder(made, 2).to(r.device).train(train)
        padding = torch.tensor([[False] * 3, [False, True, True]], device=r.device)
        with torch.set_grad_enabled(train):
            return model(r.view(2, 3, 8), src_key_padding_mask=padding).detach()

    same("encoder", lambda r, c, s: [encoded(r, False), encoded(r, True)])

    def jagged(r):
        tensor = nested.nested_tensor([r[:2], r[:1], r[:5]], layout=torch.jagged, requires_grad=True)
        model = nn.Linear(8, 8).to(r.device)
        heads = lambda each: each.unflatten(-1, [2, 4]).transpose(1, 2)
        out = nn.functional.scaled_dot_product_attention(*[heads(model(tensor))] * 3).transpose(1, 2).flatten(-2)
        out.values().pow(2).sum().backward()
        return [out.detach().values(), out.offsets(), tensor.grad.values(), model.weight.grad]

    same("jagged", lambda r, c, s: jagged(r))

    def quantized(r, *scales):
        if not scales:
            return torch.quantize_per_tensor(r, 0.1, 3, torch.quint8)
        scales = torch.tensor(scales, device=r.device)
        return torch.quantize_per_channel(r, scales, torch.zeros_like(scales, dtype=torch.int64), 0, torch.qint8)

    channels = [0.1, 0.2, 0.3, 0.1, 0.2, 0.3]
    same("quantized", lambda r, c, s: [quantized(r), quantized(r).relu(), quantized(r)[1:3]])
    same("quantized by channels", lambda r, c, s: quantized(r, *channels))
    same("quantized by scales of the host", lambda r, c, s: torch.quantize_per_channel(
        r, torch.tensor(channels), torch.zeros(6, dtype=torch.int64), 0, torch.qint8))
    rooms = lambda r: r.repeat(50, 40)  # more than what is run at once
    same("quantized rooms", lambda r, c, s: [quantized(rooms(r)), quantized(rooms(r)).clone()])
    same("quantized clones", lambda r, c, s: [quantized(r).clone(), quantized(r, *channels).clone()])
    same("quantized copy", lambda r, c, s: quantized(r).copy_(quantized(r * 2)))
    same("quantized sum", lambda r, c, s: torch.ops.quantized.add(quantized(r), quantized(r), 0.2, 1))
    same("half a byte", lambda r, c, s: torch.quantize_per_channel(
        r, torch.ones(6, device=r.device), torch.zeros(6, device=r.device), 0, torch.quint4x2).dequantize())
"""


def _differing(results: dict[str, bool]) -> list[str]:
    return [name for name, is_same in results.items() if not is_same]


@SCHEDULES
def test_sparse_tensors_compute_as_on_the_processor(tmp_path: Path, schedule: str) -> None:
    results = run_on_device(tmp_path, _ALIKE + _SPARSE, schedule=schedule)
    assert _differing(results) == [] and len(results) == 47


@SCHEDULES
def test_nested_and_quantized_tensors_compute_as_on_the_processor(tmp_path: Path, schedule: str) -> None:
    results = run_on_device(tmp_path, _ALIKE + _OTHERS, schedule=schedule)
    assert _differing(results) == [] and len(results) == 18


_TRAVELS = """
    def saved(value, **options):
        file = io.BytesIO()
        torch.save(value, file)
        file.seek(0)
        return torch.load(file, **options)

    side = torch.Stream(device="peerlane:0")
    for name, make in made.items():
        host = make(1)
        first = host.to("peerlane:0")
        second = first.to("peerlane:1", non_blocking=True)
        back = saved(second)
        mapped = [saved(first, map_location=to) for to in ("cpu", "peerlane:1")]
        moved = [first, second, second.cpu(), back, *mapped]
        first.record_stream(side)
        found[name] = [str(each.device) for each in moved], all(equal(host, each) for each in moved), repr(first)
"""


@SCHEDULES
def test_tensors_of_each_layout_travel(tmp_path: Path, schedule: str) -> None:
    results = run_on_device(tmp_path, _ALIKE + LAYOUTS + _TRAVELS, schedule=schedule)
    devices = ["peerlane:0", "peerlane:1", "cpu", "peerlane:1", "cpu", "peerlane:1"]
    assert len(results) == 6
    for name, value in results.items():
        assert value[:2] == [devices, True] and "device='peerlane:0'" in value[2], name


@SCHEDULES
def test_copies_between_devices_and_the_host_keep_the_layout(tmp_path: Path, schedule: str) -> None:
    results = run_on_device(tmp_path, PARTS + LAYOUTS + COPIES, schedule=schedule)
    assert _differing(results) == [] and len(results) == 15


_ERRORS = """
    here = torch.eye(3, device="peerlane:0").to_sparse()
    found["devices"] = caught(lambda: here + here.to("peerlane:1"))
    found["processor"] = caught(lambda: here @ torch.eye(3))
    found["library"] = caught(here.to_dense().to_mkldnn)
    found["kernel"] = caught(here.to_sparse_csr().cumsum, 0)
    indices = torch.zeros(2, 1, dtype=torch.int64)
    found["indices"] = caught(torch.sparse_coo_tensor, indices, torch.ones(1, device="peerlane:0"), (3, 3))
    values = here._values().untyped_storage()
    values.resize_(0)
    found["emptied"] = caught(here.to_dense)
"""


def test_errors_name_both_devices_and_the_layout(tmp_path: Path) -> None:
    results = run_on_device(tmp_path, _ERRORS)
    assert "found at least two devices, peerlane:0 and peerlane:1!" in results["devices"][1]
    assert "found at least two devices, peerlane:0 and cpu!" in results["processor"][1]
    assert "found at least two devices, peerlane:0 and cpu!" in results["indices"][1]
    assert results["library"][0] == "NotImplementedError" and "layout Mkldnn" in results["library"][1]
    assert results["kernel"][0] == "NotImplementedError"
    assert "has no memory, as its storage has 0 bytes" in results["emptied"][1]
