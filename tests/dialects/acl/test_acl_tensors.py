"""``acl``: descriptions of tensors, types of data, and the log."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.acl_calls import ok

ONE, TWO, FOUR, EIGHT = (2, 4, 12), (1, 6, 7, 27), (0, 3, 8), (9, 10, 11, 16)
SIZES = [
    *((each, size) for size, types in ((1, ONE), (2, TWO), (4, FOUR), (8, EIGHT)) for each in types),
    *((17, 16), (13, 0), (-1, 0), (999, 0)),
]
FLOATS = [0.0, -0.0, 1.0, -1.5, 65504.0, 6e-8, 1e-9, 0.1, math.inf, -math.inf, 3]


@pytest.mark.parametrize(("data_type", "size"), SIZES)
def test_acl_data_type_size_returns_bytes_of_one_element(data_type: int, size: int, acl: ModuleType) -> None:
    assert acl.data_type_size(data_type) == size


@pytest.mark.parametrize("value", FLOATS)
def test_acl_float16_conversions_equal_numpy(value: float, acl: ModuleType) -> None:
    half = acl.float_to_float16(value)
    assert type(half) is int and half == int(np.float32(value).astype(np.float16).view(np.uint16))
    back = acl.float16_to_float(half)
    assert type(back) is float and back == float(np.float16(value))


def test_acl_float16_conversions_round_trip(acl: ModuleType) -> None:
    for half in range(0, 1 << 16, 7):
        number = acl.float16_to_float(half)
        assert math.isnan(number) or acl.float_to_float16(number) == half
    assert math.isnan(acl.float16_to_float(0x7E00))
    assert acl.float16_to_float(0x1_3C00) == 1.0  # only the low 16 bits count
    assert acl.float16_to_float(acl.float_to_float16(1e30)) == math.inf


@pytest.mark.parametrize("wrong", [None, "1", b"1", [1]])
def test_acl_float16_conversions_not_a_number_raise_type_error(wrong: Any, acl: ModuleType) -> None:
    for name in ("float16_to_float", "float_to_float16", "data_type_size"):
        with pytest.raises(TypeError, match=rf"^acl\.{name} args parse failed$"):
            getattr(acl, name)(wrong)


def test_acl_tensor_desc_keeps_type_format_dimensions_and_name(acl: ModuleType) -> None:
    desc = acl.create_tensor_desc(1, [2, 3, 4], 2)
    assert acl.get_tensor_desc_type(desc) == 1 and acl.get_tensor_desc_format(desc) == 2
    assert acl.get_tensor_desc_num_dims(desc) == 3
    assert [acl.get_tensor_desc_dim(desc, at) for at in range(3)] == [2, 3, 4]
    assert [ok(acl.get_tensor_desc_dim_v2(desc, at)) for at in range(3)] == [2, 3, 4]
    assert acl.get_tensor_desc_element_count(desc) == 24 and acl.get_tensor_desc_size(desc) == 48
    assert acl.get_tensor_desc_name(desc) == ""
    assert acl.set_tensor_desc_name(desc, "x") is None and acl.get_tensor_desc_name(desc) == "x"
    scalar, unknown, empty = (acl.create_tensor_desc(0, dims, 2) for dims in ([], [-1, 4], [0, 4]))
    counts = [acl.get_tensor_desc_element_count(each) for each in (scalar, unknown, empty)]
    assert counts == [1, 0, 0]
    for each in (desc, scalar, unknown, empty, 0):
        assert acl.destroy_tensor_desc(each) is None
    assert acl.get_recent_err_msg() is None


def test_acl_tensor_desc_calls_invalid_desc_return_documented_values(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    desc = acl.create_tensor_desc(0, [2], 2)
    assert acl.get_tensor_desc_dim_v2(desc, 1) == (0, 100000)
    assert "there is no dimension 1: the tensor description has 1" in message()
    acl.destroy_tensor_desc(desc)
    stream = ok(acl.rt.create_stream())
    for wrong in (0, desc, stream, 4096):
        for name, arguments, wanted in (
            ("get_tensor_desc_type", (), -1),
            ("get_tensor_desc_format", (), -1),
            ("get_tensor_desc_size", (), 0),
            ("get_tensor_desc_element_count", (), 0),
            ("get_tensor_desc_num_dims", (), 0),
            ("get_tensor_desc_dim", (0,), -1),
            ("get_tensor_desc_dim_v2", (0,), (0, 100000)),
            ("get_tensor_desc_name", (), ""),
            ("set_tensor_desc_name", ("x",), None),
        ):
            assert getattr(acl, name)(wrong, *arguments) == wanted
            assert "the tensor description is" in message()
    with pytest.raises(ValueError, match=r"acl\.create_tensor_desc: needs a list"):
        acl.create_tensor_desc(0, (1, 2), 2)


@pytest.mark.parametrize("least", [None, "0", "1", "2", "3", "4", "x"])
def test_acl_app_log_prints_levels_at_or_above_global_level(
    least: str | None, acl: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASCEND_SLOG_PRINT_TO_STDOUT", raising=False)
    monkeypatch.delenv("ASCEND_GLOBAL_LOG_LEVEL", raising=False)
    if least is not None:
        monkeypatch.setenv("ASCEND_GLOBAL_LOG_LEVEL", least)
    for level in range(-1, 5):
        assert acl.app_log(level, f"level {level} says 100%s") is None
    out, err = capsys.readouterr()
    lowest = int(least) if least in ("0", "1", "2", "3", "4") else 3
    assert not out
    assert [line.rpartition(" level ")[2] for line in err.splitlines()] == [
        f"{level} says 100%s" for level in range(lowest, 4)
    ]
    assert [line.partition("]")[0][1:] for line in err.splitlines()] == ["DEBUG", "INFO", "WARNING", "ERROR"][
        lowest:
    ]
    assert err.count(f"APP({os.getpid()},") == len(err.splitlines())


def test_acl_app_log_print_to_stdout_set_writes_to_stdout(
    acl: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASCEND_SLOG_PRINT_TO_STDOUT", "1")
    acl.app_log(3, "x" * 2000)
    out, err = capsys.readouterr()
    assert out.endswith(f" {'x' * 1024}\n") and not err


@pytest.mark.parametrize("args", [(), (3,), (3, 4), ("3", "x"), (3, "x", "y"), (3, b"x"), (3, None)])
def test_acl_app_log_bad_arguments_raise_type_error(args: tuple[Any, ...], acl: ModuleType) -> None:
    with pytest.raises(TypeError, match=r"^acl\.app_log args parse failed$"):
        acl.app_log(*args)
