"""The reference page and the type stubs, which are made of the table of calls."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from helpers.type_checker import checked, write_stubs
from peerlane.dialects.acl import media, rt, util
from peerlane.dialects.acl._state import acl as convention
from reference_pages import tables
from type_stubs.acl import stubs

pytestmark = pytest.mark.any_schedule

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "reference" / "acl.md").read_text()
MODULES = ("acl", "acl.media", "acl.rt", "acl.util")
PROGRAM = """
import acl
import acl.rt
from acl.util import ptr_to_bytes

pointer, ret = acl.rt.malloc(1024, 0)
{line}
"""


def served() -> list[str]:
    assert media and rt and util
    python = [f"{module}.{name}" for module in MODULES for name in convention.functions(module)]
    return [*python, *convention.functions("")]


def test_acl_reference_page_equals_call_table() -> None:
    assert tables.page(PAGE, convention) == PAGE, "run `make reference`"


def test_acl_reference_page_lists_each_call_once() -> None:
    works = re.findall(r"^\| `(acl[\w.]*)\(", PAGE, re.MULTILINE)
    assert sorted(works) == sorted(served())


def test_acl_call_table_every_call_states_its_basis() -> None:
    assert not [name for name, call in convention.table.items() if "Basis" not in call.facts]


def test_acl_stubs_type_checker_refuses_wrong_calls_only(tmp_path: Path) -> None:
    write_stubs(stubs(), tmp_path)
    cases = {
        "acl.rt.memcpy(pointer, 8, pointer, 8, 3)": "",
        'acl.rt.memcpy(pointer, 8, "x", 8, 3)': "arg-type",
        "acl.rt.memcpy(dst=pointer, dest_max=8, src=pointer, count=8, kind=3)": "call-arg",
        "taken: bytes = ptr_to_bytes(pointer, 8)": "",
        "free, total, ret = acl.rt.get_mem_info(1)": "",
        "taken = acl.mdl.load_from_file('model.om') + 1": "",
        "wrong = acl.rt.MEMCPY_HOST_TO_DEVICE": "attr-defined",
    }
    for number, line in enumerate(cases):
        (tmp_path / f"program{number}.py").write_text(PROGRAM.format(line=line))
    reported = checked(sorted(tmp_path.glob("program*.py")), tmp_path / "cache")
    for number, (line, wanted) in enumerate(cases.items()):
        about = [each for each in reported.splitlines() if f"program{number}.py" in each]
        assert (wanted in "".join(about)) if wanted else not about, (line, reported)


def test_acl_call_table_parameters_have_names_and_calls_have_docs() -> None:
    for call in convention.table.values():
        assert all(re.fullmatch(r"[a-z]\w*", name) for name, _, _ in call.parameters), call
        assert inspect.getdoc(getattr(rt, call.name.rpartition(".")[2], None) or convention)
