"""The samples of torch's own tests of operations (OpInfo), on the processor and on the device.

``python -m torch_suite.operations PAGE`` runs each operation with each type that the processor has for it, compares
the results, and writes the counts, every difference, and the operations that wait for their stream to a page.  A
child process runs them, and another one goes on behind an operation that ends it.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_DEVICE = "peerlane:0"
_SPARSE = ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


def main() -> None:
    """Run all, or what is named, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--types", default="", help="names of types, with commas; default: all")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--most", type=int, default=100_000, help="how many operations")
    parser.add_argument("--samples", type=int, default=1, help="of each operation and type")
    parser.add_argument("--child", action="store_true")
    options = parser.parse_args()
    if options.child:
        _serve(options)
        return
    lines = list(_collected(options))
    waiting = next((line["waits"] for line in lines if "waits" in line), [])
    page = _page([line for line in lines if "waits" not in line], waiting, options.samples)
    options.page.write_text(page)
    print(page.split("\n\n")[1])


def _collected(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    first, end = options.first, options.first + options.most
    while first < end:
        words = ["--child", "--first", str(first), "--most", str(end - first), "--types", options.types]
        words += ["--samples", str(options.samples), "-"]
        child = subprocess.Popen(
            [sys.executable, "-m", "torch_suite.operations", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert child.stdout is not None
        current: dict[str, Any] = {}
        for text in child.stdout:
            if not text.startswith("{"):
                continue
            line = json.loads(text)
            if "begins" in line:
                current = line
            elif "waits" in line:
                first = end
                yield line
            else:
                yield line
                current = {}
        if child.wait() != 0 or first < end:
            if "begins" in current:
                outcome = f"the process ended with {child.returncode}"
                yield {"name": current["begins"], "type": current["type"], "outcome": outcome}
            first = current.get("number", first) + 1


def _serve(options: argparse.Namespace) -> None:
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    import peerlane.torch  # noqa: F401

    torch.set_num_threads(1)
    chosen = op_db[options.first : options.first + options.most]
    wanted = {getattr(torch, name) for name in options.types.split(",") if name}
    for number, operation in enumerate(chosen, options.first):
        layouts = [each for each in _SPARSE if operation.supports_sparse_layout(getattr(torch, each))]
        types = sorted(operation.supported_dtypes("cpu"), key=str)
        for dtype, layout in itertools.product(types, ["", *layouts]):
            if wanted and dtype not in wanted:
                continue
            name = f"{operation.formatted_name} {layout}".rstrip()
            print(json.dumps({"begins": name, "type": str(dtype), "number": number}), flush=True)
            outcome = _compared(torch, operation, dtype, layout, options.samples)
            print(json.dumps({"name": name, "type": str(dtype), "outcome": outcome}), flush=True)
    modes = torch.peerlane.operation_modes().items()
    waiting = sorted(name for name, mode in modes if mode == "waits" and name.startswith("aten"))
    print(json.dumps({"waits": waiting}), flush=True)
    os._exit(0)


def _compared(torch: Any, operation: Any, dtype: Any, layout: str, most: int) -> str:
    """Return what differs; "" for nothing, "random" for random numbers, "refused" if the processor refuses all."""
    from torch.testing._internal.common_utils import DeterministicGuard, freeze_rng_state
    from torch.utils import _pytree as pytree

    def called(sample: Any, device: str, seed: int = 1) -> Any:
        moved = sample.transform(lambda each: _moved(torch, each, device))
        args, kwargs = pytree.tree_map(
            lambda each: device if isinstance(each, str | torch.device) and str(each) == _DEVICE else each,
            (moved.args, moved.kwargs),
        )
        with freeze_rng_state(), torch.no_grad():
            torch.manual_seed(seed)
            result = operation(moved.input, *args, **kwargs)
        if device != "cpu":
            torch.accelerator.synchronize()
        return result

    outcome = "refused"
    try:
        for sample in itertools.islice(_samples(torch, operation, dtype, layout), most):
            try:
                want = called(sample, "cpu")
            except Exception:  # noqa: BLE001 - torch's own functions raise what they like
                continue
            if outcome == "refused":
                outcome = ""
            if not (text := _differs(torch, want, called(sample, _DEVICE))):
                continue
            with DeterministicGuard(True, warn_only=True):  # it fills memory that nobody has written
                if not _differs(torch, called(sample, "cpu"), called(sample, _DEVICE)):
                    continue
            if not _differs(torch, want, called(sample, "cpu", seed=2)):
                return text
            outcome = "random"
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
    return outcome


def _samples(torch: Any, operation: Any, dtype: Any, layout: str) -> Iterator[Any]:
    """Yield torch's samples; of a layout those of dense tensors with a sparse first one where torch has no others."""
    dense = operation.sample_inputs(_DEVICE, dtype, requires_grad=False)
    if not layout:
        yield from dense
    elif getattr(operation, f"sample_inputs_{layout}_func").__name__ != "_sample_inputs_unspecified":
        yield from getattr(operation, f"sample_inputs_{layout}")(_DEVICE, dtype, requires_grad=False)
    else:
        block = {"blocksize": (1, 1)} if layout in ("sparse_bsr", "sparse_bsc") else {}
        for sample in dense:
            if isinstance(sample.input, torch.Tensor) and sample.input.dim() >= 2:
                sample.input = sample.input.to_sparse(layout=getattr(torch, layout), **block)
                yield sample


def _moved(torch: Any, value: Any, device: str) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().to(device if value.device.type == "peerlane" else "cpu", copy=True)
    return value


def _differs(torch: Any, want: Any, got: Any) -> str:
    """Return the first difference of values, types and shapes; "" if there is none."""
    from torch.utils import _pytree as pytree

    wanted, results = pytree.tree_leaves(want), pytree.tree_leaves(got)
    if len(wanted) != len(results):
        return f"{len(results)} results, and {len(wanted)} on the processor"
    for a, b in zip(wanted, results, strict=True):
        if not isinstance(a, torch.Tensor):
            if a != b and not (a != a and b != b):
                return f"{b!r}, and {a!r} on the processor"
            continue
        if a.dtype != b.dtype or a.shape != b.shape or a.layout != b.layout:
            return (
                f"{b.dtype} {b.layout} {tuple(b.shape)}, "
                f"and {a.dtype} {a.layout} {tuple(a.shape)} on the processor"
            )
        if a.layout != torch.strided:
            if a.is_sparse and a.is_coalesced() != b.is_coalesced():
                return f"a coalesced tensor: {b.is_coalesced()}, and {a.is_coalesced()} on the processor"
            if text := _differs(torch, _parts(torch, a), _parts(torch, b)):
                return text
            continue
        x, y = a.detach().resolve_conj().resolve_neg(), b.detach().cpu().resolve_conj().resolve_neg()
        if a.dtype is torch.complex32:  # the processor cannot compare them
            x, y = x.to(torch.complex64), y.to(torch.complex64)
        if not torch.equal(x, y) and not torch.allclose(x, y, rtol=1e-4, atol=1e-5, equal_nan=True):
            return "other values"
    return ""


def _parts(torch: Any, tensor: Any) -> list[Any]:
    """Return the tensors with the indices and values of a sparse tensor."""
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]


def _type(line: dict[str, Any]) -> str:
    return str(line["type"].removeprefix("torch."))


def _page(lines: list[dict[str, Any]], waiting: list[str], samples: int) -> str:
    outcomes = collections.Counter(line["outcome"] for line in lines)
    failed = [line for line in lines if line["outcome"] not in ("", "random", "refused")]
    compared = len(lines) - outcomes["refused"]
    share = 100 * (compared - len(failed)) / max(compared, 1)
    types = ", ".join(sorted({_type(line) for line in lines}))
    text = (
        "# Torch's tests of operations on the device\n\n"
        f"{compared:,} pairs of operation and type, on dense tensors or on those of a sparse layout ({types}): "
        f"{outcomes['']:,} have the results of the processor, "
        f"{outcomes['random']:,} are random, {len(failed):,} differ ({share:.1f} % are right). "
        f"{outcomes['refused']:,} more have no sample that the processor takes.\n\n"
        f"At most {samples} of torch's samples of each pair ran. Numbers may differ by 1e-4 of themselves. The seed "
        "is that of the processor. Random are operations that draw several times: only the first draw after a seed "
        "is the processor's. Memory that nobody has written (`empty`) is compared as "
        "`torch.use_deterministic_algorithms` fills it. A sparse tensor is compared by its indices and values. "
        "Torch's `linear_cross_entropy` in chunks chooses its precision by the name of the device.\n"
    )
    causes = collections.defaultdict(list)
    for line in failed:
        causes[line["outcome"]].append(f"{line['name']} {_type(line)}")
    if causes:
        text += "\n| what differs | pairs | which |\n|---|---|---|\n"
    for cause, names in sorted(causes.items(), key=lambda each: -len(each[1])):
        shown = ", ".join(names[:40]) + (", ..." if len(names) > 40 else "")
        text += f"| {cause.replace('|', '/')} | {len(names)} | {shown} |\n"
    text += (
        "\n## Operations that wait for their stream\n\nTheir results depend on bytes, are numbers, or have shapes "
        "that torch cannot compute before. So do those on sparse, nested and quantized tensors, but views, copies "
        "and numbers that no bytes decide. All others are queued, or are views.\n\n"
        f"{', '.join(f'`{each}`' for each in waiting)}\n"
    )
    return text


if __name__ == "__main__":
    main()
