"""Programs in C on virtual devices: threads, forks, ends, callbacks, messages, and what starts them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.c_programs import PEERLANE, Ended, Run
from peerlane.c_abi import directory

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(180)]


def test_eight_threads_that_python_never_saw_keep_their_devices(
    compiled_program: Callable[..., Path], run: Run
) -> None:
    ended = run(*PEERLANE, "run", compiled_program("threads.c"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


@pytest.mark.any_schedule
def test_python_collects_garbage_after_the_first_call(
    compiled_program: Callable[..., Path], run: Run
) -> None:
    ended = run(*PEERLANE, "run", compiled_program("garbage.c"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


@pytest.mark.any_schedule
def test_exit_handlers_and_destructors_call_quietly_after_main(
    compiled_program: Callable[..., Path], run: Run
) -> None:
    ended = run(*PEERLANE, "run", compiled_program("ends.c"), "--devices", "last")
    assert ended.stdout.splitlines() == [
        "main: 3 words, the last is last",
        "exit handler: 0, device 1",
        "destructor: 0",
    ]
    assert (ended.returncode, ended.stderr) == (7, "")


@pytest.mark.any_schedule
def test_threads_that_still_call_when_main_returns_do_not_fail(
    compiled_program: Callable[..., Path], run: Run
) -> None:
    for _ in range(3):
        ended = run(*PEERLANE, "run", compiled_program("leaves.c"))
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


@pytest.mark.any_schedule
def test_destructors_of_a_thread_make_calls_that_need_no_python(
    compiled_program: Callable[..., Path], run: Run
) -> None:
    ended = run(*PEERLANE, "run", compiled_program("thread_locals.cpp"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "thread 0\nmain 0\nexit 0\n", "")


@pytest.mark.any_schedule
def test_child_of_a_thread_that_never_called_answers(compiled_program: Callable[..., Path], run: Run) -> None:
    ended = run(*PEERLANE, "run", compiled_program("fork_elsewhere.c"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "child 507033\n", "")


def test_children_of_forks_use_devices_unless_the_parent_has(
    compiled_program: Callable[..., Path], run: Run
) -> None:
    ended = run(*PEERLANE, "run", compiled_program("forks.c"))
    assert ended.stdout.splitlines() == ["before any call: 11", "after a count: 11", "after use: 12"]
    assert (ended.returncode, ended.stderr) == (0, "")


def test_callbacks_run_c_functions_on_the_thread_that_processes_reports(
    compiled_program: Callable[..., Path], run: Run
) -> None:
    ended = run(*PEERLANE, "run", compiled_program("callbacks.c"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


@pytest.mark.any_schedule
@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:3"])
@pytest.mark.parametrize("dialect", ["acl", "hip"])
def test_host_functions_run_in_stream_order_and_hold_up_their_stream_alone(
    compiled_program: Callable[..., Path], run: Run, dialect: str, schedule: str
) -> None:
    program = compiled_program("host_functions.c", dialect, f"-D{dialect.upper()}")
    for command in ("run", "check"):
        ended = run(*PEERLANE, command, program, PEERLANE_SCHEDULE=schedule)
        assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr


@pytest.mark.any_schedule
def test_an_exit_handler_makes_the_first_call_of_a_device(
    compiled_program: Callable[..., Path], run: Run
) -> None:
    ended = run(*PEERLANE, "run", compiled_program("first_at_end.c"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_physical_memory_reaches_a_listed_process(compiled_program: Callable[..., Path], run: Run) -> None:
    ended = run(*PEERLANE, "run", compiled_program("shares.c"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("program", ["fabric.c", "batch.c"])
def test_calls_of_transfer_programs_answer_as_the_vendors(
    program: str, compiled_program: Callable[..., Path], run: Run
) -> None:
    ended = run(*PEERLANE, "run", compiled_program(program))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def test_what_a_program_registers_is_called_and_its_log_has_lines(
    compiled_program: Callable[..., Path], run: Run
) -> None:
    ended = run(*PEERLANE, "run", compiled_program("starts.c"), ASCEND_GLOBAL_LOG_LEVEL="2")
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
    warning, cut = ended.stderr.splitlines()
    assert re.fullmatch(r'\[WARNING\] APP\(\d+,\S+\):\S+ \d+ main:starts.c:7: "a warning and 5"', warning)
    assert re.search(r"^\[ERROR\] .*starts.c:9: \"x{900,}", cut) and len(cut) < 1200


def test_structs_and_arrays_of_hcomm_cross_between_ranks_in_threads(
    compiled_program: Callable[..., Path], run: Run
) -> None:
    ended = run(*PEERLANE, "run", compiled_program("ranks.cpp", "hcomm"), HCCL_BUFFSIZE="1")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


@pytest.mark.any_schedule
def test_texts_stay_and_may_be_any_bytes(compiled_program: Callable[..., Path], run: Run) -> None:
    ended = run(*PEERLANE, "run", compiled_program("texts.c"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


@pytest.mark.any_schedule
def test_memory_of_hcomm_stays_and_inits_read_nothing(
    compiled_program: Callable[..., Path], run: Run
) -> None:
    ended = run(*PEERLANE, "run", compiled_program("kept.cpp", "hcomm"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


@pytest.mark.any_schedule
def test_leaks_of_a_program_in_c_are_reported_with_their_lines(
    compiled_program: Callable[..., Path], run: Run
) -> None:
    ended = run(*PEERLANE, "run", "--leaks", compiled_program("leaks.c"))
    assert (ended.returncode, ended.stdout) == (7, "")
    first, *lines = ended.stderr.splitlines()
    assert first.endswith(" left behind 4 things, 12,288 bytes in all:") and first.startswith(
        "peerlane: leaks."
    )
    assert [re.sub("0x[0-9a-f]+", "#", re.sub(r"at \S*/", "at ", each)) for each in lines] == [
        "  3 times memory, 12,288 bytes on virtual:0, made at leaks.c:10",
        "  stream # of device 0, made at leaks.c:11",
    ]
    ended = run(*PEERLANE, "run", "--leaks", compiled_program("leaks.c"), "frees")
    assert ended.returncode == 7
    assert re.fullmatch(r"peerlane: leaks\.\S* left nothing behind\n", ended.stderr)


@pytest.mark.any_schedule
def test_message_names_functions_of_c_and_lines_of_the_program(
    compiled_program: Callable[..., Path], run: Run
) -> None:
    ended = run(*PEERLANE, "run", compiled_program("errors.c"))
    assert (ended.returncode, ended.stderr) == (0, "")
    code, first, *rest = ended.stdout.splitlines()
    assert code == "107000"
    assert "aclrtMemcpy returned 107000" in first
    text = " ".join(rest)
    assert "allocated at errors.c:14)" in text and "pass an address that aclrtMalloc returned" in text
    assert "acl.rt" not in ended.stdout


@pytest.mark.any_schedule
def test_message_of_stripped_program_names_its_file_and_offset(
    compiled_program: Callable[..., Path], run: Run, tmp_path: Path
) -> None:
    if shutil.which("strip") is None:
        pytest.skip("strip is not installed")
    program = tmp_path / "bare"
    shutil.copy(compiled_program("errors.c"), program)
    subprocess.run(["strip", str(program)], check=True, timeout=60)
    ended = run(*PEERLANE, "run", program)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "allocated at bare+0x" in ended.stdout


def test_check_names_both_lines_of_a_race_in_c(compiled_program: Callable[..., Path], run: Run) -> None:
    program = compiled_program("race.c")
    ended = run(*PEERLANE, "check", program)
    assert ended.returncode == 3
    text = " ".join(ended.stderr.split())
    assert re.search(r"aclrtMemsetAsync \(write\) at \S*race\.c:16\b", text), ended.stderr
    assert re.search(r"aclrtMemcpyAsync \(read\) at \S*race\.c:19\b", text), ended.stderr
    assert "a wait (aclrtStreamWaitEvent)" in text and "acl.rt" not in text
    ended = run(*PEERLANE, "check", program, "waits")
    assert (ended.returncode, ended.stdout) == (0, "")


def test_check_names_offsets_of_a_program_without_debug_information(
    compiled_program: Callable[..., Path], run: Run, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    shutil.copy(compiled_program("race.c"), bare)
    for words, function in ((["--strip-debug"], "main of "), ([], "")):
        subprocess.run(["strip", *words, str(bare)], check=True, timeout=60)
        ended = run(*PEERLANE, "check", "./bare")
        text = " ".join(ended.stderr.split())
        offsets = re.findall(rf"\((?:write|read)\) at {function}bare\+(0x[0-9a-f]+), in", text)
        assert (ended.returncode, len(set(offsets))) == (3, 2), ended.stderr
        assert " | " not in ended.stderr and ":1" not in text  # no line of a source


def findings(ended: Ended, folder: Path) -> set[tuple[str, bool]]:
    """Return kind and certainty of what the checker found."""
    report = json.loads((folder / "report.json").read_text())
    assert ended.returncode == report["exit"], ended.stderr
    return {(each["kind"], each["certain"]) for each in report["findings"]}


@pytest.mark.parametrize(
    ("name", "dialect", "kind"),
    [("joins.cpp", "acl", "race"), ("ranks_end.cpp", "hcomm", "use-after-free")],
)
def test_check_sees_joins_and_is_never_certain_of_threads_it_does_not_see_ordered(
    name: str, dialect: str, kind: str, compiled_program: Callable[..., Path], run: Run, tmp_path: Path
) -> None:
    words = (*PEERLANE, "check", "--json", "report.json", compiled_program(name, dialect))
    assert findings(run(*words, "join", HCCL_BUFFSIZE="1"), tmp_path) == set()
    assert findings(run(*words, "condition", HCCL_BUFFSIZE="1"), tmp_path) == {(kind, False)}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("spawn",), set()),
        (("spawn", "late"), {("race", False)}),
        (("fork",), set()),
        (("fork", "late"), {("race", False)}),
    ],
)
def test_check_is_never_certain_of_processes_that_a_program_in_c_starts(
    words: tuple[str, ...],
    expected: set[tuple[str, bool]],
    compiled_program: Callable[..., Path],
    run: Run,
    tmp_path: Path,
) -> None:
    ended = run(*PEERLANE, "check", "--json", "report.json", compiled_program("apart.c"), *words)
    assert findings(ended, tmp_path) == expected


def test_check_finds_a_race_of_threads_that_nothing_orders(
    compiled_program: Callable[..., Path], run: Run, tmp_path: Path
) -> None:
    ended = run(*PEERLANE, "check", "--json", "report.json", compiled_program("joins.cpp"), "at once")
    assert {kind for kind, _ in findings(ended, tmp_path)} == {"race"}
    assert "peerlane.order" not in ended.stderr


def test_check_sees_how_threads_of_c_begin_and_end(compiled_program: Callable[..., Path], run: Run) -> None:
    ended = run(*PEERLANE, "check", compiled_program("thread_ends.c"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "peerlane check: no findings\n")


def test_check_sees_joins_of_a_program_with_address_sanitizer(
    compiled_program: Callable[..., Path], run: Run, tmp_path: Path
) -> None:
    try:
        program = compiled_program("joins.cpp", "acl", "-fsanitize=address")
    except subprocess.CalledProcessError:
        pytest.skip("the compiler has no AddressSanitizer")
    words = (*PEERLANE, "check", "--json", "report.json", program)
    assert findings(run(*words, "join", ASAN_OPTIONS="detect_leaks=0"), tmp_path) == set()


@pytest.mark.any_schedule
@pytest.mark.parametrize("command", ["run", "check"])
def test_only_programs_with_a_log_are_followed(command: str, run: Run, tmp_path: Path) -> None:
    program = tmp_path / "prog"
    program.write_text('#!/bin/sh\necho "$LD_PRELOAD"\n')
    program.chmod(0o755)
    ended = run(*PEERLANE, command, "./prog", LD_PRELOAD="", PEERLANE_LOG="")
    library = directory() / "preload" / "libpeerlane_threads.so"
    assert ended.stdout == (f"{library}\n" if command == "check" else "\n")


@pytest.mark.any_schedule
def test_program_runs_with_the_printed_folder_alone(compiled_program: Callable[..., Path], run: Run) -> None:
    folder = run(*PEERLANE, "c-abi", "--print-dir").stdout.strip()
    assert Path(folder) == directory()
    ended = run(compiled_program("threads.c"), LD_LIBRARY_PATH=folder)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


@pytest.mark.any_schedule
def test_c_abi_lists_the_libraries(run: Run) -> None:
    listed = [Path(line).name for line in run(*PEERLANE, "c-abi").stdout.splitlines()]
    assert {"libascendcl.so", "libhccl.so", "libhcomm.so"} <= set(listed)
    assert "libpeerlane_c.so" not in listed


@pytest.mark.any_schedule
def test_pkg_config_gives_what_a_program_links(
    compiled_program: Callable[..., Path], run: Run, tmp_path: Path
) -> None:
    if shutil.which("pkg-config") is None:
        pytest.skip("pkg-config is not installed")
    ended = run("pkg-config", "--libs", "peerlane-acl", PKG_CONFIG_PATH=str(directory() / "pkgconfig"))
    assert ended.returncode == 0
    (tmp_path / "p.c").write_text("int aclFinalize(void); int main(void) { return aclFinalize(); }\n")
    compiler = shutil.which("c++") or "g++"
    words = [compiler, "-x", "c", "p.c", "-x", "none", *ended.stdout.split(), "-o", "p"]
    assert run(*words).returncode == 0
    assert run(*PEERLANE, "run", "p").returncode == 0


@pytest.mark.any_schedule
@pytest.mark.parametrize("wrong", ["missing", "no library"])
def test_program_without_a_python_names_what_to_install(
    wrong: str, compiled_program: Callable[..., Path], run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "libpython3.so"
    if wrong == "no library":
        path.write_text("text")
    ended = run(compiled_program("errors.c"), LD_LIBRARY_PATH=str(directory()), PEERLANE_LIBPYTHON=str(path))
    assert ended.returncode == 99 and "aclrtSetDevice(0): 500000" in ended.stderr
    first = ended.stderr.splitlines()[0]
    assert str(path) in first and "apt install libpython3" in first and "PEERLANE_LIBPYTHON" in first
    assert ended.stderr.count("peerlane:") == 1


@pytest.mark.any_schedule
@pytest.mark.parametrize("command", ["run", "launch"])
def test_exit_code_and_arguments_are_the_programs(command: str, run: Run, tmp_path: Path) -> None:
    program = tmp_path / "prog"
    program.write_text('#!/bin/sh\necho "$1 $2 $LD_LIBRARY_PATH"; exit 5\n')
    program.chmod(0o755)
    ranks = ["-n", "1"] if command == "launch" else []
    ended = run(*PEERLANE, command, *ranks, "./prog", "--help", "two words", LD_LIBRARY_PATH="/elsewhere")
    assert ended.returncode == 5
    assert f"--help two words {directory()}:/elsewhere" in ended.stdout


@pytest.mark.any_schedule
@pytest.mark.parametrize("command", ["run", "launch"])
def test_program_without_a_slash_is_a_file_of_the_working_directory_or_of_path(
    command: str, run: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "programs"
    folder.mkdir()
    ranks = ["-n", "1"] if command == "launch" else []
    for program_path, text in (
        (folder, f"#!/usr/bin/env python3\nprint({str(folder)!r}); raise SystemExit(5)\n"),
        (folder, f"#!/bin/sh\necho {folder}; exit 5\n"),
        (tmp_path, f"#!/bin/sh\necho {tmp_path}; exit 5\n"),
    ):
        program = program_path / "prog"
        program.write_text(text)
        program.chmod(0o755)
        ended = run(*PEERLANE, command, *ranks, "prog", PATH=f"{folder}:{os.environ['PATH']}")
        assert (ended.returncode, ended.stderr.count("Traceback")) == (5, 0)
        assert ended.stdout.removeprefix("[0] ") == f"{program_path}\n"


@pytest.mark.any_schedule
def test_program_that_is_ended_by_a_signal_ends_run_by_it(run: Run, tmp_path: Path) -> None:
    program = tmp_path / "prog"
    program.write_text("#!/bin/sh\nkill -TERM $$\n")
    program.chmod(0o755)
    assert run(*PEERLANE, "run", "./prog").returncode == -signal.SIGTERM


def test_program_that_a_fault_kills_is_reported_as_killed(
    compiled_program: Callable[..., Path], run: Run
) -> None:
    ended = run(*PEERLANE, "run", "--fault", "kill:rank=0,op=1", compiled_program("race.c"))
    assert ended.returncode == 128 + signal.SIGKILL
    assert "was ended by SIGKILL" in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.any_schedule
def test_program_that_cannot_be_executed_reports_the_cause(run: Run, tmp_path: Path) -> None:
    program = tmp_path / "prog"
    program.write_bytes(b"\x7fELF and nothing else")
    program.chmod(0o755)
    ended = run(*PEERLANE, "run", "./prog")
    assert ended.returncode == 126
    assert ended.stderr == "peerlane: ./prog does not start: Exec format error\n"
    program.chmod(0o644)
    ended = run(*PEERLANE, "run", "./prog")
    assert ended.returncode == 126
    assert ended.stderr == "peerlane: ./prog does not start: Permission denied\n"


IN_ONE_PROCESS = """
import ctypes, acl, sys
library = ctypes.CDLL("libascendcl.so")
assert acl.init() == 0 and acl.rt.set_device(1) == 0
device = ctypes.c_int32(-1)
assert library.aclrtGetDevice(ctypes.byref(device)) == 0 and device.value == 1
assert library.aclrtSetDevice(2) == 0 and acl.rt.get_device() == (2, 0)
memory = ctypes.c_void_p()
assert library.aclrtMalloc(ctypes.byref(memory), ctypes.c_size_t(64), 0) == 0
data = (ctypes.c_uint8 * 64)(*range(64))
assert acl.rt.memcpy(memory.value, 64, ctypes.addressof(data), 64, 1) == 0
got = (ctypes.c_uint8 * 64)()
assert library.aclrtMemcpy(got, ctypes.c_size_t(64), memory, ctypes.c_size_t(64), 2) == 0
assert bytes(got) == bytes(data)
beyond = ctypes.c_void_p(memory.value + 4096)
assert library.aclrtMemcpy(got, ctypes.c_size_t(64), beyond, ctypes.c_size_t(64), 2) == 107000
library.aclGetRecentErrMsg.restype = ctypes.c_char_p
assert "allocated at prog.py:9" in library.aclGetRecentErrMsg().decode()
assert acl.rt.free(memory.value) == 0
"""


def test_ctypes_and_the_dialect_share_one_node_and_one_state(run: Run, tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(IN_ONE_PROCESS)
    ended = run(*PEERLANE, "run", "prog.py")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


INTERRUPTED = """
import ctypes, os, signal, threading
library = ctypes.CDLL("libascendcl.so")
assert library.aclInit(None) == 0 and library.aclrtSetDevice(0) == 0
stream, notify = ctypes.c_void_p(), ctypes.c_void_p()
assert library.aclrtCreateStream(ctypes.byref(stream)) == 0
assert library.aclrtCreateNotify(ctypes.byref(notify), ctypes.c_uint64(0)) == 0
assert library.aclrtWaitAndResetNotify(notify, stream, 0) == 0
timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
try:
    timer.start()
    library.aclrtSynchronizeStreamWithTimeout(stream, 60_000)
    for _ in range(1000):
        pass
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.any_schedule
def test_interrupt_in_a_call_of_c_is_raised_in_the_python_that_called(run: Run, tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(INTERRUPTED)
    ended = run(*PEERLANE, "run", "prog.py")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interrupted\n", "")


@pytest.mark.any_schedule
@pytest.mark.parametrize("check", ["locale", "reopen", "cancel", "ending"])
def test_process_of_a_program_stays_as_it_is(
    compiled_program: Callable[..., Path], run: Run, check: str
) -> None:
    ended = run(*PEERLANE, "run", compiled_program("process.cpp"), check)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


@pytest.mark.any_schedule
def test_ctrl_c_ends_a_program_of_c(compiled_program: Callable[..., Path], run: Run) -> None:
    ended = run(*PEERLANE, "run", compiled_program("process.cpp"), "interrupt")
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.any_schedule
def test_pipe_whose_reader_has_gone_ends_a_program_of_c(run: Run) -> None:
    ended = run(
        "bash", "-c", f"{shlex.join(PEERLANE)} run $(command -v yes) | head -n 1; exit ${{PIPESTATUS[0]}}"
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + signal.SIGPIPE, "y\n", "")


@pytest.mark.any_schedule
def test_libraries_come_before_those_of_the_vendor(run: Run) -> None:
    ended = run(*PEERLANE, "run", "/usr/bin/env", LD_LIBRARY_PATH=f"/vendor:{directory()}")
    assert f"LD_LIBRARY_PATH={directory()}:/vendor\n" in ended.stdout


@pytest.mark.any_schedule
@pytest.mark.parametrize("schedule", ["eager", "lazy", "seeded:7"])
def test_check_names_who_touches_memory_of_a_copy_too_early_in_c(
    schedule: str, compiled_program: Callable[..., Path], run: Run, tmp_path: Path
) -> None:
    program = compiled_program("early_touches.c")
    ended = run(*PEERLANE, "check", "--json", "report.json", program, PEERLANE_SCHEDULE=schedule)
    findings = json.loads((tmp_path / "report.json").read_text())["findings"]
    assert ended.returncode == 3
    assert all(each["kind"] == "race" and each["certain"] for each in findings)
    assert [[site["function"] for site in each["sites"]] for each in findings] == [
        ["read_of_pinned_memory", "sum_of"],
        ["write_of_registered_memory"] * 2,
        ["write_of_a_source"] * 2,
    ]
    ended = run(*PEERLANE, "check", program, "waits", PEERLANE_SCHEDULE=schedule)
    assert (ended.returncode, ended.stdout) == (0, "")
