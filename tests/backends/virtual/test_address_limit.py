"""A process whose addresses `ulimit -v` limits."""

from __future__ import annotations

import os
import re

import pytest

from peerlane.testing.procs import run_python

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]


def _ended(gib: float, program: str) -> tuple[int, str, str]:
    begin = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({int(gib * 2**30)},) * 2); "
    done = run_python(["-c", begin + program], timeout=60, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    return done.returncode, done.stdout, done.stderr


def test_node_leaves_half_of_a_limited_address_space_to_the_program() -> None:
    program = """
import mmap, peerlane as pl
device = pl.device(0)
mmap.mmap(-1, 15 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
buffer = device.allocate(1 << 30)
buffer[:64].fill(3)
print(bytes(buffer[:2]))
"""
    assert _ended(40, program)[:2] == (0, "b'\\x03\\x03'\n")


USED_UP = """
kept = []
try:
    for size in (64 << 20, 1 << 20, 1 << 12):
        while True:
            kept.append(mmap.mmap(-1, size))
except OSError:
    pass
while True:
    kept.append(device.allocate(64 << 20))
"""


@pytest.mark.parametrize(("gib", "program"), [(1, ""), (4, USED_UP)])
def test_refusal_under_a_limit_of_addresses_names_it_and_what_is_reserved(gib: int, program: str) -> None:
    code, _, errors = _ended(gib, "import mmap, peerlane as pl\ndevice = pl.device(0)\n" + program)
    text = errors.splitlines()[-1]
    assert code == 1 and text.startswith("peerlane.errors.OutOfMemory: ")
    match = re.search(
        r"`ulimit -v` lets this process have ([\d,]+) bytes of addresses \(RLIMIT_AS\), it has ([\d,]+), and "
        r"peerlane reserves ([\d,]+)",
        text,
    )
    assert match, text
    most, present, reserved = (int(each.replace(",", "")) for each in match.groups())
    assert most == gib << 30 >= present
    assert reserved == 2 << 30
