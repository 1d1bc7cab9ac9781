"""Programs on sparse, nested and quantized tensors, which run under each name of the device."""

from __future__ import annotations

# The numbers and the dense tensors that a tensor is made of.
PARTS = """
    import warnings
    warnings.simplefilter("ignore")
    nested = torch.nested

    def parts(value):
        if isinstance(value, (tuple, list)):
            return [part for each in value for part in parts(each)]
        if not isinstance(value, torch.Tensor):
            return [value]
        if value.layout == torch.sparse_coo:
            return [value.shape, value.is_coalesced(), *parts([value._indices(), value._values()])]
        if value.layout in (torch.sparse_csr, torch.sparse_bsr):
            return [value.shape, *parts([value.crow_indices(), value.col_indices(), value.values()])]
        if value.layout in (torch.sparse_csc, torch.sparse_bsc):
            return [value.shape, *parts([value.ccol_indices(), value.row_indices(), value.values()])]
        if value.is_nested:
            return [value.size(0), *parts(value.unbind())]
        if value.is_quantized:
            return [str(value.dtype), str(value.qscheme()), *parts(value.int_repr()), *parts(value.dequantize())]
        return [str(value.dtype), value]

    alike = lambda a, b: torch.equal(a, b.cpu()) if isinstance(a, torch.Tensor) else a == b
    equal = lambda a, b: len(parts(a)) == len(parts(b)) and all(map(alike, parts(a), parts(b)))
"""

# Tensors of each layout, which another number makes different.
LAYOUTS = """
    scales = lambda number: torch.tensor([0.5, 0.25]) * number
    made = {
        "coordinates": lambda number: torch.eye(4).mul(number).to_sparse(),
        "compressed": lambda number: torch.eye(4).mul(number).to_sparse_csc(),
        "blocks": lambda number: torch.eye(4).mul(number).to_sparse_bsr((2, 2)),
        "nested": lambda number: nested.nested_tensor([torch.full((2, 3), float(number)), torch.ones(1, 3)]),
        "quantized": lambda number: torch.quantize_per_tensor(torch.arange(4.0), 0.5 * number, 1, torch.qint8),
        "channels": lambda number: torch.quantize_per_channel(
            torch.ones(2, 2), scales(number), torch.tensor([0, 1]), 0, torch.qint8),
    }
"""

# Each copy that has a device on one of its sides; those that the processor refuses, too.
COPIES = """
    kind = torch.accelerator.current_accelerator().type
    places = ["cpu", f"{kind}:0", f"{kind}:1"]
    pairs = [(a, b, waits) for a in places for b in places for waits in (True, False) if a != "cpu" or b != "cpu"]

    def copied(to, source, waits=True):
        to.copy_(source, non_blocking=not waits)
        for device in range(2):
            torch.accelerator.synchronize(device)
        return to

    def lies_on(to, place):
        return all(each.device == torch.device(place) for each in [to, *parts(to)] if isinstance(each, torch.Tensor))

    for name, make in made.items():
        targets = [(copied(make(2).to(b), make(1).to(a), waits), b) for a, b, waits in pairs]
        found[name] = all(equal(make(1), to) and lies_on(to, place) for to, place in targets)

    for name in ("coordinates", "compressed", "blocks", "quantized", "channels"):
        model = torch.nn.Module()
        model.register_buffer("state", made[name](2).to(places[2]))
        for source in places:
            model.load_state_dict({"state": made[name](1).to(source)})
            found["loaded " + name] = equal(made[name](1), model.state) and lies_on(model.state, places[2])
            model.state.copy_(made[name](2))

    numbers = {"quantized": torch.tensor([3.0, 1.0, -7.0, 0.5]), "channels": torch.tensor([[1.5, 2.0], [0.75, -1.0]])}
    for name, source in numbers.items():
        want = made[name](2).copy_(source)
        targets = [(copied(made[name](2).to(b), source.to(a), waits), b) for a, b, waits in pairs]
        found["numbers to " + name] = all(equal(want, to) and lies_on(to, place) for to, place in targets)

    def refusal(to, source):
        try:
            to.copy_(source)
        except RuntimeError as error:
            return str(error).splitlines()[0]

    for name, source in {"doubles": torch.ones(4, dtype=torch.float64), "sizes": torch.ones(3)}.items():
        errors = [refusal(made["quantized"](1).to(b), source.to(a)) for a in places for b in places]
        found[name] = errors[0] is not None and errors == errors[:1] * 9
"""
