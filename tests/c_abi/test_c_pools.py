"""Allocations in the order of streams that native code serves without Python."""

from __future__ import annotations

import pytest

from helpers.c_quick_calls import answers

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

HEAD = """
import ctypes
from helpers.c_quick_calls import Program

VENDORS = {{"cuda": "cu", "cudart": "cuda", "hip": "hip"}}
DIALECT, SIZE = {dialect!r}, 4096
NEVER = 2**64 - 1
program = Program(DIALECT, 0, False)
library = program.library
if DIALECT == "cuda":
    library.cuInit(0)
program.set(0)

def right(code):
    assert code == 0, code

def stream():
    code, handle = program.created("stream", *([ctypes.c_uint32(0)] if DIALECT == "cuda" else []))
    right(code)
    return ctypes.c_void_p(handle)

def allocated(on, size=SIZE):
    code, address = program.created("pooled", ctypes.c_size_t(size), on)
    right(code)
    return address

def free(address, on):
    return program.call("unpooled", ctypes.c_void_p(address), on)

def asked(work):
    before = program.answered
    work()
    return program.answered - before

def pool():
    handle = ctypes.c_void_p()
    right(getattr(library, f"{{VENDORS[DIALECT]}}DeviceGetDefaultMemPool")(ctypes.byref(handle), 0))
    return handle

def attribute(number, value=None):
    cell = ctypes.c_uint64(value or 0)
    name = f"{{VENDORS[DIALECT]}}MemPool{{'Get' if value is None else 'Set'}}Attribute"
    right(getattr(library, name)(pool(), ctypes.c_int32(number), ctypes.byref(cell)))
    return cell.value
"""

AGAIN = """
on = stream()
attribute(4, NEVER)
first = allocated(on)
right(free(first, on))
right(program.call("wait", on))
assert allocated(on) == first
right(free(first, on))
def work():
    for _ in range(20):
        assert allocated(on) == first
        assert attribute(7) == SIZE and attribute(5) == SIZE
        right(free(first, on))
        assert attribute(7) == 0 and attribute(5) == SIZE
        right(program.call("wait", on))
print(asked(work))
print(free(first, on) != 0, allocated(on, SIZE + 1) != first)
right(program.call("wait", on))
print(allocated(on, SIZE - SIZE // 10) == first, attribute(8))
"""

RELEASED = """
on = stream()
first = allocated(on)
right(free(first, on))
right(program.call("wait", on))
assert attribute(5) == 0
def work():
    for _ in range(5):
        address = allocated(on)
        right(free(address, on))
        assert attribute(5) == SIZE
        right(program.call("wait", on))
        assert attribute(5) == 0
print(asked(work) > 0)
"""

EVENTS = """
import threading
attribute(4, NEVER)
attribute(2, 0)
first, second = stream(), stream()
_, event = program.created("event", *([ctypes.c_uint32(0)] if DIALECT == "cuda" else []))
event = ctypes.c_void_p(event)
right(program.call("record", event, first))
right(program.call("await", second, event, ctypes.c_uint32(0)))
def work():
    kept = allocated(first)
    right(free(kept, first))
    other = allocated(second)
    assert other != kept
    right(program.call("record", event, first))
    right(program.call("await", second, event, ctypes.c_uint32(0)))
    assert allocated(second) == kept
    right(free(kept, second))
    right(free(other, second))
    right(program.call("wait", second))
    assert allocated(second) in (kept, other)
    assert allocated(second) in (kept, other)
    assert free(kept, second) == free(other, second) == 0
work()
print(asked(lambda: (allocated(second), allocated(second))))
"""

SEEN = """
from peerlane.diagnostics.memory import allocations
on = stream()
attribute(4, NEVER)
first = allocated(on)
right(free(first, on))
right(program.call("wait", on))
def live():
    return [each for each in allocations.live_records() if each.address == first]
for _ in range(3):
    assert not live()
    assert asked(lambda: allocated(on)) == 0 or _ == 0
    record, = live()
    assert record.size == SIZE
    right(free(first, on))
    dead = allocations.freed_at(first)
    print(record.allocated_at is None, dead.freed_by, not live())
"""


def run(dialect: str, program: str) -> list[str]:
    return answers("-c", HEAD.format(dialect=dialect) + program)


DIALECTS = pytest.mark.parametrize("dialect", ["hip", "cuda", "cudart"])


@DIALECTS
def test_memory_that_was_freed_is_used_again_on_its_stream_without_python(dialect: str) -> None:
    assert run(dialect, AGAIN) == ["0", "True True", f"True {4096 + 4097}"]


@DIALECTS
def test_a_wait_gives_memory_beyond_the_threshold_back(dialect: str) -> None:
    assert run(dialect, RELEASED) == ["True"]


@DIALECTS
def test_memory_is_used_again_behind_an_event_without_python(dialect: str) -> None:
    assert int(run(dialect, EVENTS)[0]) <= 2


@DIALECTS
def test_records_of_allocations_show_calls_without_python(dialect: str) -> None:
    call = {"hip": "hipFreeAsync", "cuda": "cuMemFreeAsync", "cudart": "cuMemFreeAsync"}[dialect]
    *_, second, third = run(dialect, SEEN)
    assert second == third == f"True {call} True"
