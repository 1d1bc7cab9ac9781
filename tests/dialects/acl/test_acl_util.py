"""``acl.util``: pointers to host objects, and the diagnosis of device pointers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import peerlane


@pytest.fixture
def util(acl: ModuleType) -> Any:
    return acl.util


@pytest.fixture
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("data", [b"", b"a", b"a\0b", bytes(range(256))])
def test_acl_bytes_to_ptr_and_ptr_to_bytes_round_trip(data: bytes, util: Any) -> None:
    assert util.ptr_to_bytes(util.bytes_to_ptr(data), len(data)) == data


def test_acl_bytes_to_ptr_memcpy_target_changes_the_bytes_object(acl: ModuleType, util: Any) -> None:
    """A copy to the host into a bytes object, as the vendor's samples do it, changes that object."""
    pointer, _ = acl.rt.malloc(8, 2)
    acl.rt.memset(pointer, 8, 0x41, 8)
    target = bytes(bytearray(8))
    assert acl.rt.memcpy(util.bytes_to_ptr(target), 8, pointer, 8, 2) == 0
    assert target == b"AAAAAAAA"


def test_acl_pointer_helpers_wrong_type_raise_value_error(util: Any, quiet: None) -> None:
    for call, values in (
        (util.bytes_to_ptr, [bytearray(2), "x", None, 1, np.zeros(2)]),
        (util.numpy_to_ptr, [b"x", [1], None]),
        (util.numpy_contiguous_to_ptr, [b"x", [1], None]),
    ):
        for value in values:
            with pytest.raises(ValueError, match="needs"):
                call(value)


def test_acl_numpy_to_ptr_warns_at_line_of_caller(util: Any) -> None:
    array = np.arange(6).reshape(2, 3)
    with pytest.warns(Warning, match="deprecated") as caught:
        util.numpy_to_ptr(array)
    assert [(each.category, each.filename) for each in caught] == [(Warning, __file__)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        util.numpy_to_ptr(array.T)
    assert "not contiguous" in str(caught[1].message)
    assert [(each.category, each.filename) for each in caught] == [(Warning, __file__)] * 2


def test_acl_numpy_contiguous_to_ptr_and_ptr_to_numpy_do_not_warn(util: Any) -> None:
    array = np.arange(6).reshape(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        util.numpy_contiguous_to_ptr(array.T)
        assert util.ptr_to_numpy(array.ctypes.data, (2, 3), array.dtype.num).shape == (2, 3)


def test_acl_ptr_to_numpy_shape_of_any_integers_returns_that_shape(util: Any) -> None:
    array = np.arange(6, dtype=np.uint8)
    for shape in ((np.int64(2), np.uint8(3)), (True, 6), (np.int16(6),)):
        got = util.ptr_to_numpy(array.ctypes.data, shape, array.dtype.num)
        assert got.shape == tuple(int(length) for length in shape)


def test_acl_ptr_to_numpy_impossible_shape_raises_value_error(util: Any) -> None:
    array = np.arange(6, dtype=np.uint8)
    for shape in ((1,) * 100, (0, 1 << 62, 1 << 62), (0, 1 << 70), (np.bool_(True),), (np.float64(1),)):
        with pytest.raises(ValueError, match=r"^acl\.util\.ptr_to_numpy: .*shape"):
            util.ptr_to_numpy(array.ctypes.data, shape, array.dtype.num)


def test_acl_numpy_pointer_calls_return_address_of_array_or_contiguous_copy(util: Any, quiet: None) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert util.numpy_to_ptr(array) == array.ctypes.data
    pointer, same = util.numpy_contiguous_to_ptr(array)
    assert (pointer, same is array) == (array.ctypes.data, True)
    pointer, copied = util.numpy_contiguous_to_ptr(array.T)
    assert pointer == copied.ctypes.data != array.ctypes.data
    assert copied.flags.c_contiguous and np.array_equal(copied, array.T)


def test_acl_ptr_to_numpy_array_aliases_memory(acl: ModuleType, util: Any, quiet: None) -> None:
    host, _ = acl.rt.malloc_host(48)
    array = util.ptr_to_numpy(host + 8, (2, 5), np.dtype(np.int32).num)
    assert (array.shape, array.dtype, array.flags.writeable) == ((2, 5), np.int32, True)
    array[:] = 7
    assert util.ptr_to_bytes(host + 8, 4) == b"\x07\0\0\0"
    acl.rt.memset(host, 48, 1, 48)
    assert (array == 0x01010101).all()
    assert acl.rt.free_host(host) == 0
    assert (array == 0x01010101).all()

    mine = np.arange(4, dtype=np.float16)
    alias = util.ptr_to_numpy(mine.ctypes.data, (4,), mine.dtype.num)
    mine[0] = 9
    assert np.array_equal(alias, mine)
    assert util.ptr_to_numpy(mine.ctypes.data, (), mine.dtype.num) == 9
    assert util.ptr_to_numpy(0, (0, 3), mine.dtype.num).shape == (0, 3)


def test_acl_ptr_to_numpy_bad_shape_or_type_raises_value_error(
    acl: ModuleType, util: Any, quiet: None
) -> None:
    host, _ = acl.rt.malloc_host(8)
    for shape in ([8], 8, None, (-1,), (1.0,), ("8",)):
        with pytest.raises(ValueError, match="shape"):
            util.ptr_to_numpy(host, shape, 2)
    for number in (-1, np.dtype(object).num, np.dtype("S").num, np.dtype("V").num, 999):
        with pytest.raises(ValueError, match="type number"):
            util.ptr_to_numpy(host, (1,), number)
    with pytest.raises(TypeError, match=r"^acl\.util\.ptr_to_numpy args parse failed$"):
        util.ptr_to_numpy(host, (1,), np.uint8)


def readers(util: Any) -> list[Callable[[int, int], Any]]:
    return [
        util.ptr_to_bytes,
        lambda pointer, size: util.ptr_to_numpy(pointer, (size,), np.dtype(np.uint8).num),
    ]


def test_acl_pointer_readers_device_address_raise_and_name_allocation(
    acl: ModuleType, util: Any, quiet: None
) -> None:
    pointer, _ = acl.rt.malloc(100, 2)
    for read in readers(util):
        with pytest.raises(
            ValueError, match=r"byte 4 of allocation .* on virtual:0.* device memory.*acl\.rt\.memcpy"
        ):
            read(pointer + 4, 8)
    acl.rt.free(pointer)
    for read in readers(util):
        with pytest.raises(ValueError, match=r"freed by acl\.rt\.free at"):
            read(pointer, 8)


def test_acl_pointer_readers_wild_pointer_raise_value_error(acl: ModuleType, util: Any, quiet: None) -> None:
    host, _ = acl.rt.malloc_host(100)
    pinned = peerlane.Host().allocate(100)
    for pointer, size in (
        (0, 8),
        (8, 8),
        (0xDEAD0000, 1),
        (util.bytes_to_ptr(b"x"), 1 << 60),
        ((1 << 64) - 8, 9),
        ((1 << 64) - 8, 4),
        (host, 101),
        (host + 99, 1 << 20),
        (pinned.address, 101),
    ):
        for read in readers(util):
            with pytest.raises(ValueError, match=r"acl\.util\.ptr_to_"):
                read(pointer, size)
