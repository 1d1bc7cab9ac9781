"""Libraries of code and link states: they take code, and nothing is made of it."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from helpers import hip_c_calls

pytestmark = pytest.mark.any_schedule
ELF = b"\x7fELF" + bytes(60)
TEXT = b"not a code object"


def code(result: tuple[Any, ...]) -> str:
    return str(result[0].name)


@pytest.mark.parametrize(("image", "answer"), [(TEXT, "hipErrorInvalidImage"), (ELF, "hipErrorNotSupported")])
def test_hip_library_code_is_looked_at_when_a_kernel_is_looked_for(
    hip: ModuleType, tmp_path: Path, image: bytes, answer: str
) -> None:
    path = tmp_path / "code"
    path.write_bytes(image)
    for created in (
        hip.hipLibraryLoadData(image, None, 0, None, 0),
        hip.hipLibraryLoadFromFile(str(path), None, 0, None, 0),
    ):
        assert code(created) == "hipSuccess"
        library = created[1]
        assert code(hip.hipLibraryGetKernel(library, b"name")) == answer
        assert code(hip.hipLibraryGetKernelCount(library)) == answer
        assert code(hip.hipLibraryUnload(library)) == "hipSuccess"
        assert code(hip.hipLibraryUnload(library)) == "hipErrorInvalidHandle"


def test_hip_library_calls_wrong_arguments_are_refused(hip: ModuleType, tmp_path: Path) -> None:
    library = hip.hipLibraryLoadData(TEXT, None, 0, None, 0)[1]
    for result in (
        hip.hipLibraryLoadData(None, None, 0, None, 0),
        hip.hipLibraryLoadData(TEXT, None, 1, None, 0),
        hip.hipLibraryLoadFromFile(None, None, 0, None, 0),
        hip.hipLibraryLoadFromFile(str(tmp_path / "none"), None, 0, None, 0),
        hip.hipLibraryGetKernel(None, b"name"),
        hip.hipLibraryGetKernel(library, None),
        hip.hipLibraryGetKernelCount(None),
    ):
        assert code(result) == "hipErrorInvalidValue"
    assert code(hip.hipLibraryUnload(None)) == "hipErrorInvalidHandle"
    assert code(hip.hipLibraryUnload(library)) == "hipSuccess"


def test_hip_link_states_take_code_and_refuse_what_is_not_linked(hip: ModuleType, tmp_path: Path) -> None:
    kind = hip.hipJitInputType
    path, none = tmp_path / "code", str(tmp_path / "none")
    path.write_bytes(ELF)
    assert code(hip.hipLinkCreate(4, None)) == "hipErrorInvalidValue"
    _, _, state = hip.hipLinkCreate(0, None)
    for wanted, result in (
        ("hipSuccess", hip.hipLinkAddFile(state, kind.hipJitInputSpirv, str(path), 0, None)),
        ("hipSuccess", hip.hipLinkAddData(state, kind.hipJitInputSpirv, ELF, len(ELF), b"name", 0, None)),
        ("hipErrorInvalidConfiguration", hip.hipLinkAddFile(state, kind.hipJitInputSpirv, none, 0, None)),
        ("hipErrorInvalidValue", hip.hipLinkAddFile(state, kind.hipJitInputPtx, str(path), 0, None)),
        ("hipErrorInvalidValue", hip.hipLinkAddData(state, kind.hipJitInputSpirv, None, 0, b"", 0, None)),
        ("hipErrorInvalidHandle", hip.hipLinkAddFile(None, kind.hipJitInputPtx, str(path), 0, None)),
        ("hipErrorInvalidHandle", hip.hipLinkDestroy(None)),
        ("hipErrorNotSupported", hip.hipLinkComplete(state)),
        ("hipSuccess", hip.hipLinkDestroy(state)),
        ("hipErrorInvalidHandle", hip.hipLinkDestroy(state)),
    ):
        assert code(result) == wanted


def test_hip_c_library_has_libraries_and_link_states(hip: ModuleType) -> None:
    opened, created, other = hip_c_calls.library(), ctypes.c_void_p(), ctypes.c_void_p(7)
    no, options = ctypes.c_void_p(), (ctypes.c_int * 1)(3)
    assert opened.hipLibraryLoadData(ctypes.byref(created), TEXT, no, no, 0, no, no, 0) == 0
    assert opened.hipLibraryGetKernel(ctypes.byref(other), created, b"name") == 200
    assert other.value == 7
    assert opened.hipLibraryUnload(created) == 0
    assert opened.hipLibraryLoadData(no, no, no, no, 0, no, no, 0) == 1
    assert opened.hipLibraryLoadFromFile(no, no, no, no, 0, no, no, 0) == 1
    assert opened.hipLibraryGetKernel(no, no, no) == opened.hipLibraryGetKernelCount(no, no) == 1
    assert opened.hipLinkCreate(1, options, ctypes.byref(no), ctypes.byref(created)) == 1
    assert opened.hipLinkCreate(0, no, no, no) == 1
    assert opened.hipLinkCreate(0, no, no, ctypes.byref(created)) == 0
    assert opened.hipLinkAddFile(created, 103, b"/no/such/file", 0, no, no) == 9
    assert opened.hipLinkAddFile(created, 1, b"/no/such/file", 0, no, no) == 1
    assert opened.hipLinkAddFile(no, 103, b"/no/such/file", 0, no, no) == 400
    assert opened.hipLinkAddData(created, 103, ELF, ctypes.c_size_t(64), b"name", 0, no, no) == 0
    assert opened.hipLinkDestroy(created) == 0
