"""What the C libraries declare: the calls of the dialects, and the layout that a compiler gives structs."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.c_programs import LIBRARIES, compiled, declarations, header
from peerlane.c_abi import directory
from peerlane.dialects._shared import c_declarations
from peerlane.dialects._shared.c_declarations import Declarator, Function
from peerlane.dialects._shared.c_layout import Layout
from peerlane.dialects.acl._state import acl
from peerlane.dialects.hcomm import _probes
from peerlane.dialects.hcomm._state import hcomm

pytestmark = pytest.mark.any_schedule

SIZES = {  # of facts/hcomm 7
    "HcclChannelDesc": 496,
    "HcommChannelDesc": 360,
    "CommLink": 464,
    "HcclCommConfig": 2248,
    "HcclTeamCreateDesc": 376,
    "HcclTeamCreateChannelsDesc": 48,
    "HcommBatchTransferDesc": 64,
}
#: Calls of the binding of Python that C does not have, or has with a variable number of arguments.
NOT_IN_C = {"acl.rt.set_op_execute_timeout", "acl.app_log"}


def names(function: Function, *words: str) -> list[str]:
    return [each.name for each in function.parameters if each.words & set(words)]


def arguments(function: Function) -> list[str]:
    outputs = names(function, "out", "lib", "maybe", "unread")
    return [each.name for each in function.parameters if each.name not in outputs]


def works(dialect: str) -> list[Function]:
    return [each for each in declarations(dialect).functions.values() if not each.is_refused]


def test_hcomm_library_has_each_call_of_the_dialect_with_its_parameters() -> None:
    declared = {each.name: arguments(each) for each in works("hcomm")}
    known = {
        name.removeprefix("hcomm."): [parameter for parameter, _, _ in each.parameters]
        for name, each in hcomm.table.items()
    }
    assert declared == known
    refused = {each.name for each in declarations("hcomm").functions.values() if each.is_refused}
    assert refused == _probes.refused().keys()


def test_acl_library_has_each_runtime_call_of_the_dialect_with_its_number_of_parameters() -> None:
    declared = {each.dialect: len(arguments(each)) for each in works("acl")}
    known = {
        name: len(each.parameters)
        for name, each in acl.table.items()
        if (name.startswith("acl.rt.") or name.count(".") <= 1) and name not in NOT_IN_C
    }
    assert declared == known


@pytest.mark.parametrize("dialect", LIBRARIES)
def test_library_exports_each_function(dialect: str) -> None:
    library = ctypes.CDLL(str(directory() / f"lib{LIBRARIES[dialect][0]}.so"))
    assert [name for name in declarations(dialect).functions if not hasattr(library, name)] == []


def test_hcomm_library_lists_its_functions() -> None:
    library = ctypes.CDLL(str(directory() / "libhccl.so"))
    listed = {}
    for name in declarations("hcomm").functions:
        probe = getattr(library, f"HcommIsSupport{name}")
        probe.restype = ctypes.c_bool
        listed[name] = probe()
    assert listed == {
        name: not function.is_refused for name, function in declarations("hcomm").functions.items()
    }


def test_library_needs_no_library_of_python() -> None:
    refusal = subprocess.run(
        ["ldd", *(str(path) for path in directory().glob("*.so"))],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "libpeerlane_c.so" in refusal.stdout and "python" not in re.sub(r"/\S*/", "", refusal.stdout)


def offsets(dialect: str) -> Iterator[tuple[str, str, int]]:
    layout = Layout(declarations(dialect))
    for name, struct in declarations(dialect).structs.items():
        if "." in name:
            continue
        kind = layout.struct(name)
        yield name, "", ctypes.sizeof(kind)
        yield from (
            (name, each.name, getattr(kind, each.name).offset)
            for each in struct.fields
            if each.name and not each.bits
        )


@pytest.mark.parametrize("dialect", LIBRARIES)
def test_layout_of_each_struct_is_the_compilers(dialect: str, tmp_path: Path) -> None:
    asked = list(offsets(dialect))
    prints = [
        f'printf("%zu\\n", offsetof({name}, {field}));' if field else f'printf("%zu\\n", sizeof({name}));'
        for name, field, _ in asked
    ]
    source = tmp_path / "layout.c"
    source.write_text(
        f'#include <stdio.h>\n#include "{dialect}.h"\nint main(void) {{ {" ".join(prints)} return 0; }}\n'
    )
    program = compiled(tmp_path, source, dialect)
    refusal = subprocess.run(
        [str(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"LD_LIBRARY_PATH": str(directory())},
    )
    assert [int(line) for line in refusal.stdout.split()] == [number for _, _, number in asked]


def test_sizes_of_structs_are_the_vendors() -> None:
    layout = Layout(declarations("hcomm"))
    assert {name: ctypes.sizeof(layout.struct(name)) for name in SIZES} == SIZES


@pytest.mark.parametrize(
    "text, refusal",
    [
        ("int f(int a)", "no semicolon"),
        ("int f(a[3);", "is not a type with a name"),
        ("what is this;", "is not a declaration"),
    ],
)
def test_text_that_is_not_a_declaration_is_refused_with_its_words(text: str, refusal: str) -> None:
    with pytest.raises(ValueError, match=re.escape(refusal)):
        c_declarations.read(text)


def test_header_of_declarations_has_no_word_of_the_notation() -> None:
    assert not re.search(
        r"\b(out|inout|fresh|lib|ends|brief|maybe|given|some|unread)\b", header("hcomm") + header("acl")
    )


HEADER = """
version 2.0; earlier 1.5;
module one, two;
struct Opaque_st; typedef Opaque_st* Opaque;
enum Kind { KIND_A = 1, new KIND_B, KIND_C = 7 was 6 };
module one;
enum { LIMIT = -2, LEAST = 0x10 }; const char NAME[] = "text";
struct Bits { unsigned int a : 1, b : 1; char text[4] as str; unread char at8[8]; };
by_name struct Size { unsigned long long width = 1, height; };
int f(out Opaque* it, returned unsigned int n[count], int count) = renamed;
new unread refused const char* g(was_in out void** it as Array, void* const* all);
binding int of_python(); library int of_c();
refused "none; never" int h,
    i = renamed_too;
refused int j(void* it else KIND_A, int other);
struct Outer { struct { int size = LEAST; } inner as Inner; };
"""


def test_notation_of_a_header_has_enumerators_constants_and_versions() -> None:
    declared = c_declarations.read(HEADER)
    assert (declared.version, declared.earlier) == ("2.0", "1.5")
    assert {name: (each.value, each.earlier) for name, each in declared.enums["Kind"].items()} == {
        "KIND_A": (1, 1),
        "KIND_B": (2, None),
        "KIND_C": (7, 6),
    }
    assert (declared.constants, declared.texts) == ({"LIMIT": -2, "LEAST": 16}, {"NAME": "text"})
    assert declared.scalar(Declarator("x", "Kind")) == (4, "i")


def test_notation_of_a_header_has_fields_of_bits_and_initial_values() -> None:
    declared = c_declarations.read(HEADER)
    a, b, text, _ = declared.structs["Bits"].fields
    assert (a.type, b.type, a.bits, b.bits) == ("unsigned int", "unsigned int", 1, 1)
    assert (text.count, text.binding) == ("4", "str")
    assert ctypes.sizeof(Layout(declared).struct("Bits")) == 16
    width, height = declared.structs["Size"].fields
    assert (width.initial, height.initial, height.type) == (1, 0, "unsigned long long")
    assert declared.structs["Size"].words == {"by_name"}


def test_notation_of_a_header_lists_what_binding_and_library_have() -> None:
    declared = c_declarations.read(HEADER)
    assert declared.modules["Kind"] == ("one", "two")
    assert declared.modules["renamed"] == declared.modules["NAME"] == ("one",)
    assert "of_c" not in declared.modules and "of_python" not in declared.library().functions
    refused = declared.functions["g"]
    assert refused.is_refused and refused.words == {"new", "unread"}
    assert refused.parameters[0].binding == "Array" and refused.parameters[1].stars == 2
    assert declared.library().functions["g"].parameters == ()
    assert names(declared.functions["f"], "returned") == ["n"]


def test_notation_of_a_header_has_the_reasons_of_refused_functions() -> None:
    declared = c_declarations.read(HEADER).functions
    assert {each.dialect: each.reason for each in declared.values() if each.reason} == {
        "h": "none; never",
        "renamed_too": "none; never",
    }
    assert [each.otherwise for each in declared["j"].parameters] == ["KIND_A", ""]


def test_notation_of_a_header_has_versions_and_variants() -> None:
    text = "int f(int x) = g since 3020 ptds 7000; void h(void* y) ptsz; int i() since 2000;"
    declared = c_declarations.read(text).functions.values()
    assert [(each.dialect, each.since, each.variant, each.variant_since) for each in declared] == [
        ("g", 3020, "ptds", 7000),
        ("h", 0, "ptsz", 0),
        ("i", 2000, "", 0),
    ]


def test_field_may_have_another_name_of_a_struct() -> None:
    declared = c_declarations.read(
        "struct A { int x, y; }; typedef A B; typedef B C; struct D { C c; char z; };"
    )
    assert ctypes.sizeof(Layout(declared).struct("D")) == 12


def test_initial_value_of_a_field_may_be_a_constant() -> None:
    declared = c_declarations.read(HEADER).structs
    (inner,) = declared["Outer"].fields
    assert inner.binding == "Inner" and declared[inner.type].fields[0].initial == 16
    with pytest.raises(ValueError, match="NONE"):
        c_declarations.read("struct S { int x = NONE; };")


def test_text_that_is_no_enumerator_is_refused_with_its_words() -> None:
    with pytest.raises(ValueError, match="'A!' is not an enumerator"):
        c_declarations.read("enum E { A = 2, A! };")
