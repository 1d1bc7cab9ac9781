"""The programs of examples/c: what they print, and what they say with one line left out."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from helpers.c_programs import PEERLANE, ROOT, Run, built, declarations, written

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(180)]
EXAMPLES = ROOT / "examples" / "c"
Build: TypeAlias = Callable[..., str]


@pytest.fixture
def build(programs: Path) -> Build:
    """Return a function that compiles an example, without the line that has ``lacks``, and returns the program."""

    def call(name: str, *libraries: str, lacks: str | None = None) -> str:
        source, flags = EXAMPLES / name, ["-Wall", "-Wextra", "-Werror"]
        if lacks is not None:
            lines = source.read_text().splitlines(keepends=True)
            kept = [line for line in lines if lacks not in line]
            assert len(kept) == len(lines) - 1
            source = written(programs, {name: "".join(kept)}) / name
            flags = ["-w", f"-I{EXAMPLES}"]
        named = libraries if {"amdhip64", "cudart"} & {*libraries} else [*libraries, "ascendcl"]
        return str(built(programs, source, [*flags, "-g1"], named))

    return call


@pytest.mark.any_schedule
@pytest.mark.parametrize(("dialect", "header"), [("acl", "acl"), ("hip", "hip"), ("cuda", "cudart")])
def test_header_of_the_examples_declares_what_the_library_does(dialect: str, header: str) -> None:
    text = (EXAMPLES / f"{dialect}_declarations.h").read_text()
    text = text.replace("hipDeviceptr_t", "void*")
    functions = declarations(dialect, header).functions
    for name, between in re.findall(r"^\w[\w *]* \*?(\w+)\((.*)\);$", text, re.MULTILINE):
        passed = [re.sub(r"\bconst\b|\w+$", "", word).replace(" ", "") for word in between.split(",")]
        wanted = [
            each.type.replace(" ", "") + "*" * (each.stars + bool(each.count))
            for each in functions[name].parameters
        ]
        assert [each for each in passed if each] == wanted, name


def test_hcomm_write_on_thread_writes_to_both_other_ranks_one_process_each(
    build: Build, run: Run, tmp_path: Path
) -> None:
    program = build("hcomm_write_on_thread.cpp", "hcomm")
    ended = run(*PEERLANE, "launch", "-n", "3", program, HCCL_BUFFSIZE="1", TMPDIR=str(tmp_path))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert sorted(ended.stdout.splitlines()) == [
        f"[{rank}] rank {rank} of 3: 2097152 bytes {'received' if rank else 'written'}, every byte verified"
        for rank in range(3)
    ]


@pytest.mark.parametrize(
    ("name", "words", "printed"),
    [
        ("acl_peer_copy.c", ("2", "1", "3"), "Virtual: 3 MiB from device 2 to 1 and back"),
        (
            "acl_copy_with_desc.c",
            ("1", "50", "1000"),
            "50 blocks of 1000 bytes gathered through one descriptor",
        ),
        ("acl_shareable_handle.c", ("1", "3"), "4 MiB of device 1 shared by two processes"),
    ],
)
def test_acl_example_verifies_every_byte(
    name: str, words: tuple[str, ...], printed: str, build: Build, run: Run
) -> None:
    program = build(name)
    for passed in (words, ()):
        ended = run(*PEERLANE, "run", program, *passed)
        assert (ended.returncode, ended.stderr) == (0, "")
        line = ended.stdout.removesuffix(" in both\n").rstrip("\n")
        assert line.endswith(", every byte verified") and line.count("\n") == 0
        if passed:
            assert line == f"{printed}, every byte verified"


@pytest.mark.any_schedule  # of each example another test has the run under each schedule
@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("acl_peer_copy.c", "ascendcl"),
        ("acl_copy_with_desc.c", "ascendcl"),
        ("acl_shareable_handle.c", "ascendcl"),
        ("hip_peer_access.c", "amdhip64"),
        ("hip_kernel.cpp", "amdhip64"),
        ("cuda_ring.c", "cudart"),
        ("hcomm_write_on_thread.cpp", "hcomm"),
    ],
)
def test_check_finds_nothing_in_an_example_and_changes_nothing(
    name: str, library: str, build: Build, run: Run, tmp_path: Path
) -> None:
    program = build(name, library)
    variables = {"HCCL_BUFFSIZE": "1", "TMPDIR": str(tmp_path)} if library == "hcomm" else {}
    node = ["--node", "devices=3,host_access=map"] if name == "hip_kernel.cpp" else []
    ranks = ["-n", "3"] if library == "hcomm" else []
    plain = run(*PEERLANE, "launch" if ranks else "run", *ranks, *node, program, **variables)
    checked = run(*PEERLANE, "check", *ranks, *node, program, **variables)
    assert (plain.returncode, plain.stderr) == (0, "")
    # Its processes tell each other by a socket, which the checker does not see.
    summary = "1 uncertain finding" if name == "acl_shareable_handle.c" else "no findings"
    assert checked.returncode == 0
    assert checked.stderr.splitlines()[-1].startswith(f"peerlane check: {summary}")
    assert sorted(checked.stdout.splitlines()) == sorted(plain.stdout.splitlines())


def test_hip_peer_access_verifies_every_byte(build: Build, run: Run) -> None:
    ended = run(*PEERLANE, "run", build("hip_peer_access.c", "amdhip64"), "2", "1", "3")
    printed = "3 MiB from device 2 to 1 and back, every byte verified\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, printed, "")


def test_cuda_ring_verifies_every_byte_and_without_its_waits_races(build: Build, run: Run) -> None:
    ended = run(*PEERLANE, "run", "--devices", "4", build("cuda_ring.c", "cudart"), "1")
    printed = "1048576 bytes went around 4 devices, every byte verified\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, printed, "")
    racing = build("cuda_ring.c", "cudart", lacks="cudaStreamWaitEvent(streams[device]")
    checked = run(*PEERLANE, "check", "--devices", "2", racing)
    assert (
        "race (certain): cudaMemcpyAsync writes, cudaMemcpyPeerAsync reads the same bytes" in checked.stderr
    )
    assert "cuda_ring.c:" in checked.stderr
    assert "a wait (cudaStreamWaitEvent)" in " ".join(checked.stderr.split())


def test_cuda_kernel_compiled_for_the_processor_runs_and_one_of_nvcc_is_refused_once(
    run: Run, programs: Path
) -> None:
    source = (EXAMPLES / "hip_kernel.cpp").read_text().replace("hipLaunchKernelGGL", "launchKernel")
    source = source.replace('#include "processor', '#define PROCESSOR_KERNELS_OF_CUDA\n#include "processor')
    source = source.replace("hip", "cuda").replace(
        "    CHECK(cudaStreamDestroy(stream));",
        "    for (int i = 0; i < 2; ++i)\n"
        '        std::printf("%d\\n", (int)cudaLaunchKernel((void*)add, grid, block, nullptr, 0, stream));\n'
        "    CHECK(cudaStreamDestroy(stream));",
    )
    declared = (
        'extern "C" cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t);'
    )
    source = source.replace("static void check", f"{declared}\nstatic void check")
    kernel = written(programs, {"kernel.cpp": source}) / "kernel.cpp"
    program = built(programs, kernel, ["-w", f"-I{EXAMPLES}"], ["cudart"])
    ended = run(*PEERLANE, "run", "--node", "devices=1,host_access=map", str(program))
    printed = "a kernel added 7 to 100000 numbers, every one verified\n801\n801\n"
    assert (ended.returncode, ended.stdout) == (0, printed)
    assert ended.stderr.count("cudaLaunchKernel returns 801") == ended.stderr.count("\n") == 1


def test_hip_kernel_compiled_for_the_processor_runs_between_the_copies_of_its_stream(
    build: Build, run: Run
) -> None:
    program = build("hip_kernel.cpp", "amdhip64")
    ended = run(*PEERLANE, "run", "--node", "devices=1,host_access=map", program)
    printed = "a kernel added 7 to 100000 numbers, every one verified\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, printed, "")


def test_hip_kernel_fault_on_device_memory_of_a_guarded_node_names_the_other_kind(
    build: Build, run: Run
) -> None:
    ended = run(*PEERLANE, "run", "--node", "devices=1", build("hip_kernel.cpp", "amdhip64"))
    assert ended.returncode == -signal.SIGSEGV
    assert ended.stderr.startswith("peerlane: host code touched device address 0x")
    assert "host_access=map" in ended.stderr


def test_hip_peer_access_disabled_before_enabled_explains_the_code(build: Build, run: Run) -> None:
    program = build("hip_peer_access.c", "amdhip64", lacks="    enable(second, first);")
    ended = run(*PEERLANE, "run", program, AMD_LOG_LEVEL="1")
    assert ended.returncode == 1
    message, *_, last = ended.stderr.splitlines()
    assert message == "peerlane: hipDeviceDisablePeerAccess returned hipErrorPeerAccessNotEnabled (705)."
    assert last.startswith("hipDeviceDisablePeerAccess(peer) returned 705: ")


@pytest.mark.parametrize(("current", "peer", "lacking"), [(0, 1, "second"), (1, 0, "first")])
def test_acl_peer_copy_without_one_direction_names_the_missing_call(
    current: int, peer: int, lacking: str, build: Build, run: Run
) -> None:
    program = build("acl_peer_copy.c", lacks=f"aclrtDeviceEnablePeerAccess({lacking}, 0)")
    ended = run(*PEERLANE, "run", program)
    assert (ended.returncode, ended.stdout) == (1, "")
    failed, first, passed, cause, solution = ended.stderr.splitlines()
    assert (
        failed == "aclrtMemcpy(on_second, size, on_first, size, ACL_MEMCPY_DEVICE_TO_DEVICE) returned 507899"
    )
    assert first == "E19999: aclrtMemcpy returned 507899 (ACL_ERROR_RT_DRV_INTERNAL_ERROR)."
    assert "on virtual:1, allocated at acl_peer_copy.c:" in passed
    assert f"missing: aclrtDeviceEnablePeerAccess({peer}, 0) while device {current} is set." in cause
    assert solution.strip().startswith("Solution: make the missing call")


def test_acl_copy_with_desc_that_was_not_set_fails_when_the_stream_is_synchronized(
    build: Build, run: Run
) -> None:
    ended = run(*PEERLANE, "run", build("acl_copy_with_desc.c", lacks="aclrtSetMemcpyDesc("))
    assert (ended.returncode, ended.stdout) == (1, "")
    failed, first, _, cause, solution = ended.stderr.splitlines()
    assert failed == "aclrtSynchronizeStream(stream) returned 107000"
    assert first == "EE1001: aclrtSynchronizeStream returned 107000 (ACL_ERROR_RT_PARAM_INVALID)."
    assert "operation 2 (descriptor launch)" in cause and "submitted at acl_copy_with_desc.c:" in cause
    assert solution.strip() == "Solution: write it with aclrtSetMemcpyDesc, or copy a whole one over it."


def test_acl_shareable_handle_of_a_process_that_is_not_listed_is_refused_and_both_end(
    build: Build, run: Run
) -> None:
    ended = run(*PEERLANE, "run", build("acl_shareable_handle.c", lacks="aclrtMemSetPidToShareableHandle("))
    assert (ended.returncode, ended.stdout) == (1, "")
    failed, first, _, cause, solution, other = ended.stderr.splitlines()
    assert failed == "aclrtMemImportFromShareableHandle(offer.shareable, device, &handle) returned 507899"
    assert (
        first
        == "E19999: aclrtMemImportFromShareableHandle returned 507899 (ACL_ERROR_RT_DRV_INTERNAL_ERROR)."
    )
    assert "does not let process" in cause and "handle.allow" not in cause
    assert "list the number that aclrtDeviceGetBareTgid gives here" in solution
    assert other == "the other process ended early"
