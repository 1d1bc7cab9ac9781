"""Conventions of every call of ``acl``: arguments, shapes, names and messages."""

from __future__ import annotations

import inspect
import pydoc
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.acl_tables import CALLS, GOOD, NO_PARAMETERS, SIGNATURES, WRONG
from helpers.each import for_each
from peerlane.dialects.acl._codes import FAULTS, REMEDIES, Code
from peerlane.dialects.acl._state import acl as convention
from peerlane.errors import Fault

pytestmark = pytest.mark.any_schedule

ANY = object()
MODULES = ("acl", "acl.media", "acl.rt", "acl.util")
CHILDREN = {"blas", "fv", "himpi", "mdl", "media", "op", "prof", "rt", "util"}


def function(name: str) -> Callable[..., Any]:
    module, _, short = name.rpartition(".")
    return convention.functions(module)[short]


def named(cases: list[tuple[Any, ...]]) -> list[Any]:
    return [pytest.param(*case, id=f"{case[0]}{case[1]}") for case in cases]


@pytest.mark.parametrize(("name", "args", "expected"), named(CALLS))
def test_acl_calls_that_fail_return_vendor_shape_and_leave_message(
    name: str, args: tuple[Any, ...], expected: Any, acl: ModuleType, message: Callable[[], str]
) -> None:
    result = function(name)(*args)
    assert result == expected
    code = result[-1] if isinstance(result, tuple) else result
    assert type(code) is int
    first, called, cause, solution = message().splitlines()
    assert first.endswith(f": {name} returned {code} (ACL_ERROR_{Code(code).name}).")
    assert called.startswith("        Called with: ")
    assert cause.startswith("        Possible Cause: ")
    assert solution.startswith("        Solution: ")
    assert acl.rt.get_device() == (0, 0)


@pytest.mark.parametrize(("name", "args", "expected"), named(GOOD))
def test_acl_calls_that_succeed_return_vendor_shape_and_no_message(
    name: str, args: tuple[Any, ...], expected: Any, acl: ModuleType
) -> None:
    result = function(name)(*args)
    assert result == expected
    assert type(result) is type(expected)
    assert acl.get_recent_err_msg() is None


@pytest.mark.parametrize(("name", "args", "expected"), [case for case in named(GOOD) if "acl.rt" in case.id])
def test_acl_rt_calls_after_finalize_work_as_before_init(
    name: str, args: tuple[Any, ...], expected: Any, acl: ModuleType
) -> None:
    assert [acl.init(), acl.finalize()] == [0, 0]
    assert function(name)(*args) == expected


@for_each("name", SIGNATURES)
def test_acl_calls_wrong_argument_list_raise_vendor_type_error(name: str, acl: ModuleType) -> None:
    codes = SIGNATURES[name]
    wanted = f"{name} args parse failed"
    right = [1] * len(codes)
    for args in ([], right[1:], [*right, 1]):
        with pytest.raises(TypeError) as caught:
            function(name)(*args)
        assert str(caught.value) == wanted
    for position, code in enumerate(codes):
        for value in WRONG[code]:
            args = [*right[:position], value, *right[position + 1 :]]
            with pytest.raises(TypeError) as caught:
                function(name)(*args)
            assert str(caught.value) == wanted
            assert "argument " in str(caught.value.__cause__)
    assert acl.get_recent_err_msg() is None


@pytest.mark.parametrize("value", [None, 1, b"", "a\0b", "\udc80"])
def test_acl_init_argument_not_text_raises_type_error(value: object, acl: ModuleType) -> None:
    with pytest.raises(TypeError, match=r"^acl\.init args parse failed$"):
        acl.init(value)
    with pytest.raises(TypeError, match=r"^acl\.init args parse failed$"):
        acl.init("", "")


def test_acl_calls_keyword_arguments_raise_type_error(acl: ModuleType) -> None:
    for module in MODULES:
        for call in convention.functions(module).values():
            with pytest.raises(TypeError, match="keyword"):
                call(device_id=0)


@pytest.mark.parametrize("name", NO_PARAMETERS)
def test_acl_calls_without_parameters_ignore_arguments(name: str, acl: ModuleType) -> None:
    assert function(name)(None, 1.5, "x") is not ANY


def test_acl_malloc_and_free_numbers_beyond_64_bits_wrap(acl: ModuleType) -> None:
    pointer, ret = acl.rt.malloc((1 << 64) + 8, True)
    assert ret == 0
    assert acl.rt.free(pointer - (1 << 64)) == 0


def test_acl_fault_codes_every_fault_has_code_and_remedy() -> None:
    assert set(FAULTS) == set(Fault)
    assert set(FAULTS.values()) <= set(Code)
    assert set(REMEDIES) == set(Fault)


def test_acl_set_device_neutral_fault_returns_its_code_and_remedy(
    acl: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    from peerlane import errors
    from peerlane.dialects.acl import _state

    for fault in set(Fault) - {Fault.PROCESS_ENDING}:  # test_acl_programs.py tests it

        def fail(*_: object, fault: Fault = fault) -> int:
            raise errors.Error(f"as {fault.value}", fault=fault)

        monkeypatch.setattr(_state.machine, "device", fail)
        assert acl.rt.set_device(0) == FAULTS[fault]
        assert acl.rt.device_can_access_peer(0, 1) == (0, FAULTS[fault])
        text = acl.get_recent_err_msg()
        assert f"as {fault.value}" in text
        assert f"        Solution: {REMEDIES[fault]}." in text


def test_acl_modules_dir_lists_exactly_the_declared_calls(acl: ModuleType) -> None:
    for module in (acl, acl.media, acl.rt, acl.util):
        names = {name for name in dir(module) if not name.startswith("_")}
        public = module.__name__.removeprefix("peerlane.dialects.")
        assert names - CHILDREN == set(convention.functions(public))
        assert all(callable(getattr(module, name)) for name in names - CHILDREN)
        assert all(getattr(module, name).__doc__ for name in names)


@pytest.mark.parametrize(
    "name",
    ["MEMCPY_HOST_TO_DEVICE", "ACL_MEMCPY_DEVICE_TO_DEVICE", "memcpy_2d", "query_stream", "annotations"],
)
def test_acl_modules_name_absent_from_binding_is_not_an_attribute(name: str, acl: ModuleType) -> None:
    assert not hasattr(acl.rt, name)
    assert not hasattr(acl.util, "vector_to_ptr")
    assert not hasattr(acl, "mem_set_access")


def test_acl_get_recent_err_msg_several_failures_newest_first_until_read(acl: ModuleType) -> None:
    assert acl.rt.free(0) == 100000
    assert acl.rt.set_device(7) == 107001
    assert acl.rt.set_device(0) == 0
    text = acl.get_recent_err_msg()
    assert text.index("acl.rt.set_device") < text.index("acl.rt.free")
    assert acl.get_recent_err_msg() is None


def test_acl_get_recent_err_msg_1000_failures_keeps_at_most_64(acl: ModuleType) -> None:
    for _ in range(1000):
        acl.rt.free(0)
    assert acl.get_recent_err_msg().count("EE1001") <= 64


def test_acl_memcpy_bad_count_message_names_allocations(acl: ModuleType, message: Callable[[], str]) -> None:
    pointer, _ = acl.rt.malloc(100, 2)
    host, _ = acl.rt.malloc_host(100)
    assert acl.rt.memcpy(pointer + 4, 8, host, 9, 1) == 107000
    text = message()
    assert f"dst={pointer + 4:#x} (byte 4 of allocation " in text
    assert "on virtual:0, allocated at test_acl_conventions.py:" in text
    assert f"src={host:#x} (start of allocation " in text
    assert "count 9 is more than dest_max, which is 8" in text
    assert acl.rt.memset(id(text), 1, 0, 1) == 107000
    assert "(pageable host memory)" in message()


@pytest.mark.parametrize("address", [0x40, 0xDEAD0000])
def test_acl_free_and_memset_wild_pointer_message_explains_that_nothing_is_mapped(
    address: int, acl: ModuleType, message: Callable[[], str]
) -> None:
    for call in (
        lambda: acl.rt.free(address),
        lambda: acl.rt.free_host(address),
        lambda: acl.rt.memset(address, 1, 1, 1),
    ):
        assert call() == 107000
        text = message()
        assert f"{address:#x} (nothing is mapped there)" in text
        assert f"Possible Cause: {address:#x} is not an address: nothing is mapped there." in text


def test_acl_set_device_unknown_device_message_names_devices_option(
    acl: ModuleType, message: Callable[[], str]
) -> None:
    assert acl.rt.set_device(9) == 107001
    assert "`peerlane run --devices N`" in message()


@pytest.mark.parametrize(
    ("dpitch", "spitch", "height", "words"),
    [
        (1 << 63, 8, 5, "dpitch = 9,223,372"),
        (8, -1, 3, "spitch = 18,446"),
        (8, 8, -1, "dpitch = 8 bytes apart"),
    ],
)
def test_acl_memcpy2d_rectangle_beyond_64_bits_message_names_pitch(
    dpitch: int, spitch: int, height: int, words: str, acl: ModuleType, message: Callable[[], str]
) -> None:
    pointer, _ = acl.rt.malloc(64, 2)
    assert acl.rt.memcpy2d(pointer, dpitch, pointer, spitch, 8, height, 3) == 107000
    assert words in message()


def test_acl_calls_wrong_type_error_names_type_with_module(acl: ModuleType) -> None:
    name = f"numpy.{np.bool_.__name__}"
    for call, args in ((acl.rt.free, (np.bool_(True),)), (acl.rt.set_device, (np.bool_(True),))):
        with pytest.raises(TypeError) as caught:
            call(*args)
        assert str(caught.value.__cause__).endswith(f"must be an int, not {name}")


@for_each("name", convention.table)
def test_acl_calls_signature_shows_declared_parameters(name: str) -> None:
    declared = convention.table[name].parameters
    shown = inspect.signature(function(name)).parameters
    assert list(shown) == [short for short, _, _ in declared]
    assert [each.default is each.empty for each in shown.values()] == [
        is_required for _, _, is_required in declared
    ]
    assert all(each.kind is each.POSITIONAL_ONLY for each in shown.values())
    with pytest.raises(TypeError, match="keyword"):
        function(name)(**dict.fromkeys(shown, 0), none=0)


def test_acl_memcpy_help_shows_parameter_names() -> None:
    assert "memcpy(dst, dest_max, src, count, kind, /)\n" in pydoc.plain(
        pydoc.render_doc(function("acl.rt.memcpy"))
    )


@pytest.mark.parametrize(
    ("module", "name", "reason"),
    [
        ("acl.rt", "query_stream", "; close names: stream_query"),
        ("acl.rt", "memcpyAsync", "; close names: memcpy_async, memcpy2d_async, memcpy"),
        ("acl", "inti", "; close names: init"),
        ("acl.util", "ptr_to_byte", "; close names: ptr_to_bytes, ptr_to_numpy"),
        ("acl.util", "zzz", ""),
        ("acl.rt", "_stream_query", ""),
        ("acl.mdl", "Load", ""),
    ],
)
def test_acl_modules_missing_name_error_lists_close_names(
    module: str, name: str, reason: str, acl: ModuleType
) -> None:
    served: Any = acl if module == "acl" else getattr(acl, module.partition(".")[2])
    assert not hasattr(served, name)
    with pytest.raises(AttributeError) as raised:
        getattr(served, name)
    assert str(raised.value) == f"module '{module}' has no attribute '{name}'{reason}"
