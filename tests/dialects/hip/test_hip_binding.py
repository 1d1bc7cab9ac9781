"""The table of hip-python's names is what the vendor's header says, and its rules are those of the wheels."""

from __future__ import annotations

from pathlib import Path

import pytest

from peerlane.dialects._shared import c_declarations
from peerlane.dialects._shared.c_names import declarations_of
from peerlane.dialects.hip import _binding
from peerlane.dialects.hip._binding import binding_of
from peerlane.dialects.hip.binding import facts
from peerlane.dialects.hip.binding.arrays import NDBuffer

pytestmark = pytest.mark.any_schedule

HEADER = c_declarations.read(Path(_binding.__file__).with_name("hip.h.txt").read_text())
PROGRAM = """
version 2.0; earlier 1.0; module hip;
struct Thing_st; typedef Thing_st* Thing; typedef void* Raw;
enum hipError_t { hipSuccess = 0, new hipErrorNew = 3, hipErrorTbd = 4 was 3 };
enum Kind { KIND = 1 };
struct Inner { char letter; };
struct Outer { char text[8] as str; Kind kind; Inner inner; unsigned int a : 1, b : 1;
    Thing thing; int many[2]; Raw raw; };
union Either { int number; size_t size; };
hipError_t make(out Thing* thing, size_t size, const char* name, void** all, was_in out Outer* outer);
hipError_t fill(out void** it as DeviceArray, unread Kind* kinds, const Outer* outer, Thing* many);
const char* name(Kind kind);
library enum hip_api_id_t { make = 1, fill };
"""


def test_hip_tables_of_the_build_are_those_of_the_header() -> None:
    assert facts() == binding_of(HEADER), "run `make`"
    assert declarations_of("hip") == HEADER.library(), "run `make`"


def test_hip_binding_takes_and_returns_what_types_declare() -> None:
    functions = binding_of(c_declarations.read(PROGRAM))["functions"]
    assert functions["make"] == {
        "parameters": [["size", "size_t"], ["name", "CStr"], ["all", "ListOfPointer"]],
        "outputs": [["thing", "Thing_st", "maybe"], ["outer", "Outer"]],
    }
    assert functions["fill"] == {
        "parameters": [["outer", "Outer"], ["many", "Pointer"]],
        "outputs": [["it", "DeviceArray", "maybe"], ["kinds", "Kind"]],
    }
    assert functions["name"]["outputs"] == [["text", "CStr", "maybe"]]


def test_hip_binding_lays_fields_out_as_c_does() -> None:
    structs = binding_of(c_declarations.read(PROGRAM))["structs"]
    assert structs["Outer"] == {
        "size": 48,
        "fields": [
            ["text", "str 8", False, 0, 8],
            ["kind", "enum Kind", True, 8, 4],
            ["inner", "struct Inner", False, 12, 1],
            ["a", "bit 0", True, 16, 1],
            ["b", "bit 1", True, 16, 1],
            ["thing", "pointer Thing_st", True, 24, 8],
            ["many", "int[2]", False, 32, 8],
            ["raw", "pointer Raw", True, 40, 8],
        ],
        "union": False,
    }
    assert (structs["Either"]["size"], structs["Either"]["union"]) == (8, True)
    assert structs["Thing_st"] == structs["Raw"] == {"size": 0, "fields": [], "union": False}


def test_hip_binding_lists_what_the_earlier_version_has() -> None:
    older = binding_of(c_declarations.read(PROGRAM))["older"]
    assert older["errors"] == {"hipErrorTbd": 3}
    assert older["missing errors"] == ["hipErrorNew"]
    assert older["parameters"] == {
        "make": [["size", "unsigned long"], ["name", "CStr"], ["all", "Pointer"], ["outer", "Outer"]]
    }
    assert older["outputs"] == {"make": [["thing", "object", "maybe"]]}


def test_hip_binding_lists_what_a_function_takes_in_c() -> None:
    program = (
        PROGRAM + "hipError_t ask(returned size_t sizes[n], returned size_t* at, out int* got, size_t n);"
    )
    in_c = binding_of(c_declarations.read(program))["in C"]
    assert in_c["parameters"]["ask"] == [["sizes", "ListOfUnsignedLong"], ["at", "Pointer"], ["n", "size_t"]]
    assert in_c["outputs"]["ask"] == [["at", "size_t"], ["got", "int"]]


def test_hip_arrays_take_the_codes_of_numpy() -> None:
    codes = NDBuffer.NUMPY_CHAR_CODES
    assert len(codes) == 441
    assert codes[:5] == ("?", "=?", "<?", ">?", "bool")
    assert {"float64", ">f8", "M8[ns]", "<timedelta64[as]", "V"} <= {*codes}
