"""The reference page and the type stubs, which are made of HIP's table of calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.type_checker import checked, write_stubs
from peerlane.dialects import manifest_of
from peerlane.dialects.hip import hip
from peerlane.dialects.hip.policy import Policy
from peerlane.dialects.hip.state import calls
from reference_pages import hip as pages
from reference_pages import tables
from type_stubs.hip import stubs

pytestmark = pytest.mark.any_schedule

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "reference" / "hip.md").read_text()
PROGRAM = """
from hip import hip
from rocm.bindings import hip as other

error, array = hip.hipMalloc(1024)
{line}
"""


def test_hip_reference_page_equals_call_table() -> None:
    assert pages.refused(tables.page(PAGE, calls)) == PAGE, "run `make reference`"


def test_hip_reference_page_lists_each_function_once() -> None:
    works = re.findall(r"^\| `(?:hip|hiprtc)\.(hip\w*)\(", PAGE, re.MULTILINE)
    refuses = re.findall(r"`(hip\w+)`", tables.part_of(PAGE, "refused"))
    assert sorted(works) == sorted(calls.table)
    assert sorted(refuses) == pages.names_refused()
    assert not set(works) & set(refuses)
    assert {
        name for name in dir(hip) if callable(getattr(hip, name)) and name[:3] == "hip" and name[3].isupper()
    } <= {
        *works,
        *refuses,
        *(name for name in dir(hip) if isinstance(getattr(hip, name), type)),
    }


def test_hip_call_table_every_call_states_its_basis() -> None:
    assert not [name for name, call in calls.table.items() if "Basis" not in call.facts]
    assert not [name for name, call in calls.table.items() if call.facts["Basis"][0] not in "SDC"]


def test_hip_reference_page_lists_every_policy() -> None:
    for name in Policy.SETTABLE:
        values = Policy.CHOICES[name]
        assert f"| `{name}` | {', '.join(f'`{value}`' for value in values)} |" in PAGE


def test_hip_stubs_cover_every_module() -> None:
    names = set(stubs())
    for module in manifest_of("hip").modules:
        root, _, rest = module.partition(".")
        path = f"{root}-stubs/{rest.replace('.', '/')}".rstrip("/")
        assert names & {f"{path}.pyi", f"{path}/__init__.pyi"}, module


def test_hip_stubs_type_checker_refuses_wrong_calls_only(tmp_path: Path) -> None:
    write_stubs(stubs(), tmp_path)
    cases = {
        "hip.hipMemcpy(array, array, 8, hip.hipMemcpyKind.hipMemcpyDefault)": "",
        "hip.hipMemcpy(dst=array, src=array, sizeBytes=8, kind=other.hipMemcpyKind.hipMemcpyDefault)": "",
        "hip.hipMemcpy(array, array, 8, 4)": "arg-type",
        "hip.hipMemcpy(array, array, 8)": "call-arg",
        "free, total = other.hipMemGetInfo()[1:]": "",
        "kind: hip.hipMemoryType = hip.hipPointerAttribute_t().type": "",
        "name: bytes = hip.hipDeviceProp_t().name": "assignment",
        "hip.hipDeviceEnablePeerAccess('1', 0)": "arg-type",
        "error.hipSuccess, hip.hipSuccess": "attr-defined",
        "properties = hip.hipDeviceProp_t(); hip.hipGetDeviceProperties(properties, 0)": "",
        "properties = hip.hipDeviceProp_t(); hip.hipGetDeviceProperties(prop=properties, deviceId=0)": "",
        "name: str = hip.hipGetDeviceProperties(0)[1].name": "",
        "hip.hipGetDeviceProperties()": "call-overload",
        "hip.hipMemcpyBatchAsync([array], [array], [8], 1, None, [0], 0, None, None)": "",
        "from hip._util.types import DeviceArray; again: DeviceArray | None = array": "",
        "from rocm.bindings.util import types; types.Pointer(array)": "",
        "import hip as package; text: str = package.HIP_VERSION_NAME": "",
    }
    for number, line in enumerate(cases):
        (tmp_path / f"program{number}.py").write_text(PROGRAM.format(line=line))
    reported = checked(sorted(tmp_path.glob("program*.py")), tmp_path / "cache")
    assert "-stubs" not in reported
    assert "pyi:" not in reported, reported
    for number, (line, wanted) in enumerate(cases.items()):
        about = [each for each in reported.splitlines() if f"program{number}.py" in each]
        assert (wanted in "".join(about)) if wanted else not about, (line, reported)
