"""The tests of the dialects, with each call going through the C library: right and wrong arguments of each symbol."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from helpers.c_programs import ROOT, declarations

pytestmark = [pytest.mark.any_schedule, pytest.mark.takes_long, pytest.mark.timeout(300)]

#: By words in the names of files: what only Python has (signatures, tables, lines of programs), and long waits.
FILES = {
    "acl": (
        "callback_waits",
        "conventions",
        "fork",
        "interrupts",
        "messages",
        "names",
        "programs",
        "reference",
        "table",
    ),
    "hip": (
        *(
            "c_library",
            "convention",
            "enums",
            "callers_structs",
            "interrupts",
            "measured",
            "programs",
            "reference",
        ),
        *("rows.py", "strict", "structs", "table", "types"),
    ),
}
#: In the names of tests: the length or the class of an object, and the line of a call.
TESTS = {
    "acl": (
        *("bad_list", "malformed_cfg", "missing_prop", "wrong_list"),
        *("last_unmap", "memory_of_that_device", "name_free", "names_callback"),
    ),
    "hip": (
        *(
            "array_of_the_wheel",
            "attribute_calls_bad_arguments",
            "before_10_reserved",
            "beyond_host_buffer",
            "beyond_size_of_either_end",
        ),
        *("every_form_of_function", "IllegalAddress", "host_register_bad", "mem_export_bad", "short_bytes"),
    ),
}
#: Functions of HIP that refuse right arguments too, or that tests of programs in C call.
OTHERS = {
    *("hipLibraryGetKernel", "hipLibraryGetKernelCount", "hipLibraryLoadData", "hipLibraryLoadFromFile"),
    *("hipLinkAddData", "hipLinkAddFile", "hipMemGetHandleForAddressRange"),
    *("hipMemImportFromShareableHandle", "hipMemPoolImportFromShareableHandle"),
}


@pytest.mark.parametrize("dialect", ["acl", "hip"])
def test_tests_of_a_dialect_pass_when_its_calls_go_through_the_c_library(
    dialect: str, tmp_path: Path
) -> None:
    folder = ROOT / "tests" / "dialects" / dialect
    files = [
        each for each in folder.glob("test_*.py") if not any(word in each.name for word in FILES[dialect])
    ]
    words = ["-q", "-p", f"helpers.{dialect}_through_c", "-k", f"not ({' or '.join(TESTS[dialect])})"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "THROUGH_C": str(tmp_path / "told.json")}
    environment["PEERLANE_SCHEDULE"] = "eager"
    with tempfile.TemporaryDirectory() as inner:  # a short path, as sockets lie there
        process = subprocess.run(
            [sys.executable, "-m", "pytest", *words, f"--basetemp={inner}/tests", *map(str, files)],
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
            env=environment,
            cwd=ROOT,
        )
    assert process.returncode == 0, process.stdout[-4000:]
    succeeded = {*json.loads((tmp_path / "told.json").read_text())["succeeded"]}
    working = {
        each.name
        for each in declarations(dialect).functions.values()
        if not each.is_refused and each.returns.type in ("aclError", "hipError_t")
    }
    assert len(succeeded & working) > 0.6 * len(working)
    if dialect == "hip":  # right_calls/acl.txt calls each function of the other
        lines = (ROOT / "tests" / "c_abi" / "right_calls" / "hip.txt").read_text().splitlines()
        left = working - succeeded - {line.split()[0] for line in lines}
        assert left == OTHERS
