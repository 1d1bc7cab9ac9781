"""Each function of the C libraries, called with NULL and with wrong arguments: a code of the vendor, and no crash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import right_calls
from helpers.c_programs import declarations
from peerlane.c_abi import directory
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.hcomm._header import HcclResult

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]

CALLS = r"""
import ctypes, sys
sys.path.insert(0, sys.argv[4])
from helpers.c_programs import declarations
dialect, folder, mode = sys.argv[1], sys.argv[2], int(sys.argv[3])
acl = ctypes.CDLL(f"{folder}/libascendcl.so")
library = ctypes.CDLL(f"{folder}/lib{'ascendcl' if dialect == 'acl' else 'hcomm'}.so")
assert acl.aclInit(None) == 0 and acl.aclrtSetDevice(0) == 0
memory = ctypes.create_string_buffer(1 << 16)
NUMBERS = {"i": {1: ctypes.c_int8, 2: ctypes.c_int16, 4: ctypes.c_int32, 8: ctypes.c_int64}}
NUMBERS["u"] = NUMBERS["i"]
found = declarations(dialect)
def argument(each):
    width, kind = found.scalar(each)
    if kind == "p":
        return ctypes.c_void_p(ctypes.addressof(memory) if mode else None)
    if kind == "f":
        return (ctypes.c_float if width == 4 else ctypes.c_double)([0.0, 1.5, -3.0][mode])
    return NUMBERS[kind][width]([0, 3, -1][mode])
LEFT_OUT = {"aclFinalize", "aclrtResetDevice", "aclrtResetDeviceForce"}  # the others need a device
LEFT_OUT |= {"aclInitCallbackRegister", "aclAppLog"}  # it calls any address, and writes to stderr
for name, each in found.functions.items():
    if name in LEFT_OUT:
        continue
    function = getattr(library, name)
    function.restype = ctypes.c_int64 if each.returns.is_pointer else ctypes.c_int32
    ctypes.memset(memory, 0, len(memory))
    print(name, function(*map(argument, each.parameters)), flush=True)
"""
RIGHT = Path(__file__).with_name("right_calls")
KERNELS = ("aclrtBinary", "aclrtKernelArgs", "aclrtLaunchKernel")  # test_c_operators.py calls them
CODES = {"acl": {int(code) for code in Code} | {0}, "hcomm": {int(code) for code in HcclResult}}


def codes(dialect: str, mode: int) -> dict[str, int]:
    process = subprocess.run(
        [sys.executable, "-c", CALLS, dialect, str(directory()), str(mode), str(Path(__file__).parents[1])],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, ""), process.stderr + process.stdout[-200:]
    return {name: int(code) for name, code in map(str.split, process.stdout.splitlines())}


def answering_codes(dialect: str) -> list[str]:
    return [
        name
        for name, each in declarations(dialect).functions.items()
        if each.returns.type in ("aclError", "HcclResult", "HcommResult", "int32_t")
    ]


@pytest.mark.parametrize("mode", [0, 1, 2], ids=["zeros", "threes", "all bits set"])
@pytest.mark.parametrize("dialect", CODES)
def test_each_function_with_wrong_arguments_answers_with_a_code_of_the_vendor(
    dialect: str, mode: int
) -> None:
    returned = codes(dialect, mode)
    wrong = {
        name: code
        for name, code in returned.items()
        if name in answering_codes(dialect) and code not in CODES[dialect]
    }
    assert wrong == {}


@pytest.mark.parametrize("dialect", CODES)
def test_each_function_refuses_a_null_output(dialect: str) -> None:
    returned, null = codes(dialect, 0), {"acl": 100000, "hcomm": 2}[dialect]
    needs = {
        name
        for name, each in declarations(dialect).functions.items()
        if any(parameter.words & {"out", "lib", "given"} for parameter in each.parameters)
        and name in answering_codes(dialect)
    }
    assert {name: returned[name] for name in needs if returned[name] != null} == {}


def test_each_function_of_acl_has_a_call_with_right_arguments() -> None:
    lines = (RIGHT / "acl.txt").read_text().splitlines()
    served = {
        name
        for name, each in declarations("acl").functions.items()
        if not each.is_refused and not name.startswith(KERNELS)
    }
    assert {line.split()[0] for line in lines if not line.startswith("#")} == served


@pytest.mark.parametrize("dialect", ["acl", "hip"])
def test_each_call_with_right_arguments_succeeds(dialect: str) -> None:
    process = subprocess.run(
        [sys.executable, right_calls.__file__, dialect],
        input=(RIGHT / f"{dialect}.txt").read_text(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PEERLANE_NODE": "devices=2", "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "", ""), process.stderr
