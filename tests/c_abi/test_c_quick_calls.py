"""The calls that native code answers without Python: they answer as the dialect does, whatever came before."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import c_programs, c_quick_calls
from helpers.c_programs import Run
from helpers.c_quick_calls import answers
from helpers.logs import line_of
from peerlane.dialects._shared.c_library import Library
from peerlane.dialects._shared.c_names import declarations_of

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(180)]


LARGE = """
import ctypes
from helpers.c_quick_calls import Program

SIZE = 1 << 20
program = Program("cuda", 0, False)
program.library.cuInit(0)
program.set(0)
(_, source), (_, target) = (program.created("make", ctypes.c_size_t(SIZE)) for _ in range(2))
_, stream = program.created("stream", ctypes.c_uint32(0))
_, event = program.created("event", ctypes.c_uint32(0))
host = ctypes.create_string_buffer(bytes(range(256)) * (SIZE // 256), SIZE)
words = [ctypes.c_void_p(each) for each in (target, source)]
assert program.library.cuMemcpyHtoD_v2(words[1], host, ctypes.c_size_t(SIZE)) == 0
for _ in range(3):
    assert program.call("queue", *words, ctypes.c_size_t(SIZE), ctypes.c_void_p(stream)) == 0
    assert program.call("record", ctypes.c_void_p(event), ctypes.c_void_p(stream)) == 0
    while program.call("query", ctypes.c_void_p(event)) == 600:
        pass
    print(program.answered)
back = ctypes.create_string_buffer(SIZE)
assert program.library.cuMemcpyDtoH_v2(back, words[0], ctypes.c_size_t(SIZE)) == 0
assert back.raw == host.raw
"""


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 10))])
@pytest.mark.parametrize("dialect", ["acl", "hip", "cuda", "cudart", "cuda threads", "cudart threads"])
def test_quick_calls_answer_and_copy_as_the_dialect_does(dialect: str, seed: int) -> None:
    name, *threads = dialect.split()
    words = [c_quick_calls.__file__, name, str(seed), *threads]
    *quick, counts = answers(*words)
    *asked, _ = answers(*words, "asked")
    assert quick == asked
    hot, answered = map(int, counts.split())
    assert answered < 0.95 * hot


PENDING = """
import ctypes, sys, threading
from helpers.c_quick_calls import Program

dialect = sys.argv[1]
program = Program(dialect, 0, False)
flags = [ctypes.c_uint32(0)] if dialect == "cuda" else []
if dialect == "cuda":
    program.library.cuInit(0)
program.set(0)
(_, one), (_, other) = (program.created("stream", *flags) for _ in range(2))
_, event = program.created("event", *flags)
one, other, event = (ctypes.c_void_p(each) for each in (one, other, event))
may_end = threading.Event()
blocks = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: print(end="" if may_end.wait(60) else "late"))
for _ in range(3):
    may_end.clear()
    assert program.call("launch", one, blocks, None) == 0
    assert program.call("record", event, one) == 0
    before = program.answered
    codes = [program.call("query", event), program.call("ask", one)]
    if dialect == "cudart":
        codes += [program.call(each) for each in ("peek", "take", "take")]
    codes.append(program.call("await", other, event, 0))
    may_end.set()
    print(program.answered - before, *codes)
    assert program.call("wait", one) == program.call("wait", other) == 0
"""


@pytest.mark.parametrize("dialect", ["cuda", "cudart"])
def test_python_is_not_asked_again_about_work_that_is_not_over(dialect: str) -> None:
    last_errors = ["600", "600", "0"] if dialect == "cudart" else []
    _, *later = (line.split() for line in answers("-c", PENDING, dialect))
    assert later == [["0", "600", "600", *last_errors, "0"]] * 2


def test_python_is_not_asked_again_for_a_large_copy_its_record_and_its_end() -> None:
    first, *others = map(int, answers("-c", LARGE))
    assert others == [first, first]


OF_THREAD = """
import ctypes, sys
from helpers.c_quick_calls import Program

dialect = sys.argv[1]
program = Program(dialect, 0, False, of_threads=True)
if dialect == "cuda":
    program.library.cuInit(0)
program.set(0)
(_, source), (_, target) = (program.created("make", ctypes.c_size_t(64)) for _ in range(2))
_, event = program.created("event", *([ctypes.c_uint32(0)] if dialect == "cuda" else []))
host, own, event = ctypes.create_string_buffer(64), ctypes.c_void_p(0), ctypes.c_void_p(event)
size, kind = ctypes.c_size_t(64), [] if dialect == "cuda" else [ctypes.c_int32(4)]
for number in range(3):
    host.raw = bytes([number + 1]) * 64
    assert program.call("copy", ctypes.c_void_p(source), host, size, *kind) == 0
    assert program.call("queue", ctypes.c_void_p(target), ctypes.c_void_p(source), size, *kind, own) == 0
    assert program.call("record", event, own) == program.call("await", own, event, 0) == 0
    assert program.call("wait", own) == program.call("ask", own) == 0
    assert program.call("copy", host, ctypes.c_void_p(target), size, *kind) == 0
    assert host.raw == bytes([number + 1]) * 64
    print(program.answered)
"""


@pytest.mark.parametrize("dialect", ["cuda", "cudart"])
def test_python_is_not_asked_again_about_the_stream_of_a_thread(dialect: str) -> None:
    first, *others = map(int, answers("-c", OF_THREAD, dialect))
    assert first > 0
    assert others == [first, first]


def test_deadlock_names_the_line_of_a_wait_that_native_code_queued(programs: Path, run: Run) -> None:
    source = c_programs.PROGRAMS / "endless_wait.c"
    program = c_programs.built(programs, source, ("-g1",), ("cuda",))
    ended = run(*c_programs.PEERLANE, "run", "--dialect", "cuda", program, CUDA_LOG_FILE="stderr")
    assert ended.stdout == "0 702\n"
    line = line_of(source.read_text(), "// the wait")
    assert f"submitted at endless_wait.c:{line})" in ended.stderr


OF_PYTHON = """
import ctypes, sys
from dialects.cuda.driver import WORD, Driver, begin

driver = begin(Driver())
one, other, event = driver.cuStreamCreate(WORD, 1), driver.cuStreamCreate(WORD, 1), driver.cuEventCreate(WORD, 2)
word = driver.cuMemAlloc_v2(WORD, 64)
driver.cuMemsetD8_v2(word, 0, 64)
driver.cuCtxSynchronize()
for _ in range(3):
    driver.cuEventRecord(event, one)
    driver.cuStreamWaitEvent(other, event, 0)
    driver.cuStreamSynchronize(other)
driver.cuStreamWaitValue32_v2(one, word, 1, 1)
driver.cuEventRecord(event, one)
wait = driver.library.cuStreamWaitEvent
print(wait(ctypes.c_uint64(other), ctypes.c_uint64(event), 0))  # the wait
print(driver.library.cuStreamSynchronize(ctypes.c_uint64(other)))
"""


def test_deadlock_names_the_line_in_python_of_a_wait(tmp_path: Path, run: Run) -> None:
    program = tmp_path / "waiting.py"
    program.write_text(OF_PYTHON)
    folder = str(Path(__file__).parents[1])
    ended = run(
        *c_programs.PEERLANE, "run", "--dialect", "cuda", program, CUDA_LOG_FILE="stderr", PYTHONPATH=folder
    )
    assert ended.stdout.split() == ["0", "702"], ended.stderr
    assert f"submitted at waiting.py:{line_of(OF_PYTHON, '# the wait')})" in ended.stderr


def test_a_call_that_worked_returns_success_though_another_thread_destroys_its_objects_meanwhile() -> None:
    def learn(_: int, words: object) -> None:
        raise KeyError(words)

    library = Library(
        declarations_of("acl"),
        call=lambda _: lambda handle: 0,
        refuse=lambda *_: 1,
        learn={"aclrtDestroyEvent": learn},
    )
    assert library.entry("aclrtDestroyEvent")(7) == 0
