"""Custom operators of HCOMM in C++: a host part that launches, and a kernel of the AI CPU, right and broken."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from helpers.c_programs import PEERLANE, Run, compiled, edited

pytestmark = [pytest.mark.schedules_in_turn, pytest.mark.timeout(180)]

SEND_RECV, ALL_GATHER = "operator_send_recv", "operator_all_gather"
KERNELS = ("send_recv_kernel", "all_gather_kernel")
ACK = "HcommChannelNotifyWaitOnThread(thread, channel, kAck, kSeconds)"
DATA = "HcommChannelNotifyWaitOnThread(thread, channel, kData, kSeconds)"
READ, WRITE = "HcommReadOnThread(thread", "HcommWriteOnThread(thread"


def described(kernels: Path) -> Path:
    """Write the description of the kernels of a library, and return its path."""
    about = {"opKernelLib": "AICPUKernel", "kernelSo": kernels.name}
    path = Path(f"{kernels}.{os.getpid()}.json")
    path.write_text(json.dumps({name: {"opInfo": {**about, "functionName": name}} for name in KERNELS}))
    return path


Compile: TypeAlias = "Callable[..., Path]"
Words: TypeAlias = "list[Path | str]"


def words_of(compiled_program: Compile, name: str) -> Words:
    """Compile an operator, and return the words that run it."""
    description = described(compiled_program("operator_kernels.cpp", "hcomm", "-shared", "-fPIC"))
    return [compiled_program(f"{name}.cpp", "hcomm"), description, *(["5000"] if name == ALL_GATHER else [])]


@pytest.fixture
def broken(programs: Path) -> Callable[..., Words]:
    """Return a function that compiles an operator with changes, and returns the words that run it."""

    def call(name: str, *changes: tuple[str, str]) -> Words:
        folder = edited(programs, *changes)
        return words_of(
            lambda source, dialect, *flags: compiled(programs, folder / source, dialect, *flags), name
        )

    return call


def line_of(folder: Path, text: str) -> int:
    """Return the number of the only line of the kernels that has a text."""
    lines = (folder / "operator_kernels.cpp").read_text().splitlines()
    [number] = [number for number, line in enumerate(lines, 1) if text in line]
    return number


@pytest.mark.parametrize("name", [SEND_RECV, ALL_GATHER])
@pytest.mark.parametrize("ranks", ["2", "3"])
@pytest.mark.parametrize("how", ["threads", "processes"])
def test_operator_moves_every_byte_in_the_vendors_order(
    name: str, ranks: str, how: str, compiled_program: Compile, run: Run, tmp_path: Path
) -> None:
    words = words_of(compiled_program, name)
    start = ("launch", "-n", ranks) if how == "processes" else ("run",)
    variables = {"PEERLANE_NODE": f"devices={ranks}", "HCCL_BUFFSIZE": "1", "TMPDIR": str(tmp_path)}
    ended = run(*PEERLANE, *start, *words, **variables)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("done") == (int(ranks) if how == "processes" else 1)


def test_operator_runs_over_the_unified_bus_of_ascend_950(compiled_program: Compile, run: Run) -> None:
    words = words_of(compiled_program, ALL_GATHER)
    ended = run(*PEERLANE, "run", *words, PEERLANE_NODE="devices=2,profile=ascend-950", HCCL_BUFFSIZE="1")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("name", [SEND_RECV, ALL_GATHER])
def test_check_finds_nothing_in_the_vendors_order(name: str, compiled_program: Compile, run: Run) -> None:
    words = words_of(compiled_program, name)
    ended = run(*PEERLANE, "check", *words, HCCL_BUFFSIZE="1")
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr


@pytest.mark.parametrize(
    ("name", "change", "lines"),
    [
        pytest.param(
            SEND_RECV,
            (f"        MUST({ACK});\n        MUST({READ}", f"        MUST({READ}"),
            ("HcommLocalCopyOnThread(thread, all.local", READ),
            id="read before the word that the data is there",
        ),
        pytest.param(
            ALL_GATHER,
            (f"            MUST({DATA});\n        }}\n", "        }\n"),
            (WRITE, "at(all.local, bytes * rank), bytes"),
            id="use before the word that the data is there",
        ),
        pytest.param(
            ALL_GATHER,
            ("MUST(HcommThreadNotifyWaitOnThread(all.thread[i], 0, kSeconds))", "MUST(0)"),
            ("HcommLocalCopyOnThread(leading, mine", WRITE),
            id="threads that do not wait for the leading one",
        ),
        pytest.param(
            ALL_GATHER,
            ("MUST(HcommThreadNotifyWaitOnThread(leading, i - 1, kSeconds))", "MUST(0)"),
            (WRITE, "at(all.local, bytes * rank), bytes"),
            id="a leading thread that does not wait for the others",
        ),
    ],
)
def test_check_names_both_lines_of_a_kernel_that_leaves_out_a_wait(
    name: str,
    change: tuple[str, str],
    lines: tuple[str, str],
    broken: Callable[..., Words],
    run: Run,
    programs: Path,
    tmp_path: Path,
) -> None:
    words = broken(name, change)
    ended = run(*PEERLANE, "check", "--json", "report.json", *words, HCCL_BUFFSIZE="1")
    assert ended.returncode in (1, 3, 99), (
        ended.stderr
    )  # other bytes, none, or a communicator that is still busy
    findings = json.loads((tmp_path / "report.json").read_text())["findings"]
    assert "race" in {each["kind"] for each in findings}, ended.stderr
    text = " ".join(ended.stderr.split())
    folder = edited(programs, change)
    for each in lines:
        assert re.search(rf"at \S*operator_kernels\.cpp:{line_of(folder, each)}\b", text), ended.stderr


def test_host_that_does_not_wait_for_its_kernel_does_not_pass_the_check(
    broken: Callable[..., Words], run: Run
) -> None:
    words = broken(SEND_RECV, ("        OK(HcommThreadNotifyWaitOnThread(host_thread, 0, kSeconds));\n", ""))
    ended = run(*PEERLANE, "check", *words, HCCL_BUFFSIZE="1")
    assert ended.returncode in (1, 3, 99), (
        ended.stderr
    )  # other bytes, a race, or a communicator that is still busy


@pytest.mark.parametrize(
    ("change", "awaited"),
    [
        pytest.param(
            ("MUST(HcommChannelNotifyRecordOnThread(thread, channel, kAck));\n        MUST(", "MUST("),
            "notify 0",
            id="a record left out",
        ),
        pytest.param(
            (
                "HcommChannelNotifyRecordOnThread(thread, channel, kAck));\n        MUST(",
                "HcommChannelNotifyRecordOnThread(thread, channel, kData));\n        MUST(",
            ),
            "notify 0",
            id="another notify recorded",
        ),
        pytest.param(
            ("MUST(HcommThreadNotifyRecordOnThread(all.thread[0], all.host_thread, 0));", ""),
            "notify 0",
            id="no word to the host",
        ),
        pytest.param(
            ("OK(HcommThreadNotifyRecordOnThread(host_thread, leading_thread, call.go));", ""),
            "notify 0",
            id="no word of the host",
        ),
    ],
)
def test_wait_without_a_record_ends_in_time_and_names_the_notify(
    change: tuple[str, str], awaited: str, broken: Callable[..., Words], run: Run
) -> None:
    words, begin = broken(SEND_RECV, change, ("kSeconds = 60;", "kSeconds = 3;")), time.monotonic()
    ended = run(*PEERLANE, "run", *words, HCCL_BUFFSIZE="1")
    assert ended.returncode == 99 and time.monotonic() - begin < 60
    text = " ".join(ended.stderr.split())
    assert "aclrtSynchronizeStream returned 507046 (ACL_ERROR_RT_STREAM_SYNC_TIMEOUT)" in text
    assert "EI0002" in text and "waited in vain" in text and awaited in text, ended.stderr


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        pytest.param(
            SEND_RECV,
            (
                "RecordOnThread(thread, channel, kAck));\n        MUST(",
                "RecordOnThread(thread, channel, 2));\n        MUST(",
            ),
            "HcommChannelNotifyRecordOnThread returned 1 (HCCL_E_PARA).*remoteNotifyIdx=2.*valid are 0 to 1",
            id="a notify that the channel lacks",
        ),
        pytest.param(
            SEND_RECV,
            ("all.link[0].remote, call.bytes", "all.link[0].remote, 1 << 30"),
            "HcommReadOnThread returned 6 (HCCL_E_NOT_FOUND)",
            id="beyond the peer's buffer",
        ),
        pytest.param(
            SEND_RECV,
            ("    MUST(HcommBatchModeEnd(call.tag));\n", ""),
            r"did not call HcommBatchModeEnd('send and receive'), so none of the batch's 5 calls runs",
            id="a batch that does not end",
        ),
        pytest.param(
            SEND_RECV,
            ("HcommBatchModeEnd(call.tag)", 'HcommBatchModeEnd("other")'),
            "HcommBatchModeEnd returned 1.*begun batch 'send and receive', not 'other'",
            id="another batch that ends",
        ),
        pytest.param(
            ALL_GATHER,
            ("    MUST(HcommReleaseComm(call.comm));\n", ""),
            "HcommAcquireComm returned 1 (HCCL_E_PARA).*has locked communicator.*HcommReleaseComm first",
            id="a communicator that stays locked",
        ),
    ],
)
def test_failure_in_a_kernel_fails_the_launch_and_names_the_call(
    name: str, change: tuple[str, str], message: str, broken: Callable[..., Words], run: Run
) -> None:
    ended = run(*PEERLANE, "run", *broken(name, change), HCCL_BUFFSIZE="1")
    assert ended.returncode == 99
    text = " ".join(ended.stderr.split())
    assert "aclrtSynchronizeStream returned 507018 (ACL_ERROR_RT_AICPU_EXCEPTION)" in text
    assert f"kernel {name.removeprefix('operator_')}_kernel" in text
    assert re.search(message.replace("(", r"\(").replace(")", r"\)"), text), ended.stderr
