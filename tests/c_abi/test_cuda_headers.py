"""The headers with which a dialect of CUDA begins: they can be read, and each type in them is known."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

import peerlane.dialects
from peerlane.dialects._shared import c_declarations
from peerlane.dialects._shared.c_declarations import SCALARS, Declarations
from peerlane.dialects._shared.c_layout import Layout

pytestmark = pytest.mark.any_schedule

FOLDER = Path(peerlane.dialects.__file__).with_name("cuda")
FUNCTIONS = {"cuda": 616, "cudart": 367, "cudart12": 36, "nvml": 436, "nccl": 97}


def header(name: str) -> Declarations:
    """Return a header; that of version 12 of the runtime continues the one of version 13."""
    text = (FOLDER / f"{name}.h.txt").read_text()
    return c_declarations.read((FOLDER / "cudart.h.txt").read_text() + text if name == "cudart12" else text)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_header_has_all_functions_of_its_library(name: str) -> None:
    assert len(c_declarations.read((FOLDER / f"{name}.h.txt").read_text()).functions) == FUNCTIONS[name]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_type_is_declared(name: str) -> None:
    declared = header(name)
    layout = Layout(declared)
    known = {*SCALARS, *declared.types, *declared.structs, *declared.callbacks, "void"}
    for function in declared.functions.values():
        assert {each.type for each in (function.returns, *function.parameters)} <= known, function.name
    for struct in declared.structs.values():
        assert ctypes.sizeof(layout.struct(struct.name)) > 0 or not struct.fields


def test_each_function_of_the_driver_has_the_version_of_its_lookup() -> None:
    functions = header("cuda").functions
    assert all(each.since >= 2000 for each in functions.values())
    assert all(each.variant_since >= each.since for each in functions.values() if each.variant)
    copy, blocking = functions["cuMemcpyAsync"], functions["cuMemcpyHtoD_v2"]
    assert (copy.since, copy.variant, copy.variant_since) == (4000, "ptsz", 7000)
    assert (blocking.since, blocking.variant, blocking.variant_since) == (3020, "ptds", 7000)


@pytest.mark.parametrize(
    ("name", "struct", "size"),
    [
        ("cuda", "CUipcMemHandle_v1", 64),
        ("cuda", "CUmemLocation_v1", 8),
        ("cuda", "CUmemPoolProps_v1", 88),
        ("cuda", "CUgraphNodeParams", 256),
        ("cuda", "CUDA_MEMCPY2D_v1", 96),
        ("cudart", "cudaGraphNodeParams", 256),
        ("cudart", "cudaPointerAttributes", 88),
        ("cudart12", "cudaDeviceProp", 1032),
        ("nvml", "nvmlPciInfo_t", 68),
        ("nccl", "ncclUniqueId", 128),
    ],
)
def test_struct_has_the_size_that_a_compiler_gives_it(name: str, struct: str, size: int) -> None:
    assert ctypes.sizeof(Layout(header(name)).struct(struct)) == size
