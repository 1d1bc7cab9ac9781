"""``pl.reduce`` and ``pl.raw.reduce`` give the expected bytes for every type and operation."""

from __future__ import annotations

import numpy as np
import pytest

import peerlane as pl
from helpers.peers import Peer
from helpers.promises import Node
from helpers.reductions import OPERATIONS, TYPES, expected, material, special

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("dtype", TYPES)
def test_reduce_of_each_type_and_operation_gives_expected_bytes(node: Node, dtype: str, op: str) -> None:
    d0, _ = node()
    stream = d0.create_stream()
    width = special(dtype).itemsize
    for count in (0, 1, 2, 3, 15, 17, 63, 1000, 4099, (1 << 18) + 1, (3 << 20) // width + 7):
        a, b = material(dtype, count, count)
        result = expected(dtype, op, a, b).tobytes()
        for shift in (0, width, 3 * width):
            room, source = d0.allocate(a.size + shift + 64), d0.allocate(b.size + shift + 64)
            for where in (None, stream):
                room.fill(0xAB)
                dst, src = (each[shift : shift + a.size] for each in (room, source))
                dst.copy_from(a)
                src.copy_from(b)
                pl.reduce(dst, src, dtype=dtype, op=op, stream=where)
                if where is not None:
                    where.sync()
                assert bytes(dst.view()) == result, (count, shift)
                assert bytes(src.view()) == b.tobytes()
                assert set(bytes(room[:shift].view()) + bytes(room[shift + a.size :].view())) == {0xAB}
            room.close()
            source.close()


@pytest.mark.parametrize("nbytes", [48, 4096, 3 << 20])
def test_reduce_between_each_pair_of_memory_kinds_gives_expected_bytes(node: Node, nbytes: int) -> None:
    d0, d1 = node()
    a, b = material("bfloat16", nbytes // 2, 5)
    result = expected("bfloat16", "sum", a, b).tobytes()
    makers = [d0.allocate, d1.allocate, pl.Host().allocate, lambda size: np.empty(size, np.uint8)]
    stream = d1.create_stream()
    for where in (None, stream):
        for left in makers:
            for right in makers:
                dst, src = left(nbytes), right(nbytes)
                pl.copy(dst, a)
                pl.copy(src, b)
                pl.reduce(dst, src, dtype="bfloat16", stream=where)
                stream.sync()
                assert bytes(dst.view() if isinstance(dst, pl.Buffer) else dst) == result


def test_reduce_into_imported_memory_needs_write_right(shared: tuple[pl.Device, pl.Device, Peer]) -> None:
    d0, _, other = shared
    other.run(
        "block = pl.Physical(pl.devices()[0], G); r = pl.AddressRange(pl.devices()[0], G); r.map(block)\n"
        "r[:G].fill(3)"
    )
    for rights in ("r", "rw"):
        handle = other.run(f"h = block.export(allow='user', rights={rights!r}); result = int(h)")
        block = pl.Physical.open(handle)
        with pl.AddressRange(d0, 2 << 20) as addresses, d0.create_stream() as stream:
            addresses.map(block, access="rw" if rights == "rw" else "r")
            mine = d0.allocate(2 << 20)
            for where in (None, stream):
                mine.fill(4)
                pl.reduce(mine, addresses[: 2 << 20], dtype="uint8", stream=where)
                stream.sync()
                assert (mine.view() == addresses[: 2 << 20].view() + 4).all()
                if rights == "rw":
                    pl.reduce(addresses[: 2 << 20], mine, dtype="uint8", op="max", stream=where)
                else:
                    with pytest.raises(pl.AccessDenied):
                        pl.reduce(addresses[: 2 << 20], mine, dtype="uint8", stream=where)
            stream.sync()
        block.close()
        seen = other.run("result = sorted(set(bytes(r[:G].view())))")
        assert seen == ([3 + 4 + 4] if rights == "rw" else [3])
