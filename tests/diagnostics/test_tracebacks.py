"""What the tracebacks of peerlane's errors show of the program, and of peerlane."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [pytest.mark.any_schedule, pytest.mark.timeout(120)]

CLOSED = """
    import threading
    import peerlane as pl
    def use(buffer):
        with pl.devices()[0].create_stream() as stream:
            pl.copy(buffer, buffer, stream=stream)
    def main():
        buffer = pl.devices()[0].allocate(64)
        buffer.close()
        use(buffer)
"""


def _run(folder: Path, program: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = folder / "program.py"
    path.write_text(textwrap.dedent(program))
    command = [sys.executable, *words, str(path)]
    environment = {"PATH": "/usr/bin:/bin", "PEERLANE_RUNTIME_DIR": str(folder), **variables}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=environment, check=False, cwd=folder
    )


def _frames(text: str) -> list[str]:
    return [line.rpartition(" in ")[2] for line in text.splitlines() if line.startswith("  File ")]


@pytest.mark.parametrize("words", [[], ["-m", "peerlane", "run"]])
def test_traceback_of_an_error_shows_the_frames_of_the_program_alone(
    tmp_path: Path, words: list[str]
) -> None:
    done = _run(tmp_path, CLOSED + "    main()", *words)
    assert done.returncode == 1
    assert _frames(done.stderr) == ["<module>", "main", "use"], done.stderr
    assert done.stderr.splitlines()[-1].startswith("peerlane.errors.Closed: ")


@pytest.mark.parametrize("words", [[], ["-m", "peerlane", "run"]])
@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (
            "pl.devices()[0].create_stream().synchronize()",
            "attribute 'synchronize'; peerlane has Stream.sync()",
        ),
        (
            "pl.Buffer.from_ipc_descriptor",
            "attribute 'from_ipc_descriptor'; peerlane has Buffer.export(), and ",
        ),
        ("pl.device(0).create_buffer(1)", "attribute 'create_buffer'; peerlane has Device.allocate(nbytes)"),
        ("pl.device(0).create_strem()", "attribute 'create_strem'; close names: create_stream"),
        ("pl.device(0).make_buffer", "attribute 'make_buffer'"),
    ],
)
def test_name_of_another_library_is_explained_where_the_program_ends(
    tmp_path: Path, words: list[str], expression: str, text: str
) -> None:
    done = _run(tmp_path, f"import peerlane as pl\n{expression}", *words)
    assert done.returncode == 1
    assert text in done.stderr.splitlines()[-1]
    assert "Did you mean" not in done.stderr


REFUSED_LINES = """
    import peerlane as pl
    from types import SimpleNamespace
    one, other = pl.device(0).allocate(8), pl.device(1).allocate(8)
    stream = pl.device(0).create_stream()
    held = SimpleNamespace(buffer=one)
    def refused():
        {}
    refused()
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before 3.11 Python records no columns")
@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("pl.copy(one, other, stream)", "call pl.copy(dst, src, *, stream=None), with stream by name"),
        (
            "pl.copy(\n        one, 'é', stream)",
            "call pl.copy(dst, src, *, stream=None), with stream by name",
        ),
        ("held.buffer.fill(7, stream)", "call held.buffer.fill(value, *, stream=None), with stream by name"),
        ("pl.Physical(64)", "call pl.Physical(device, nbytes, *, peer=False), with peer by name"),
        ("stream.wait()", "call stream.wait(other, *, timeout=None), with timeout by name"),
        ("pl.enter_node(devices=2)", "call pl.enter_node(spec)"),
        (
            "pl.Buffer.open()",
            "call pl.Buffer.open(handle, *, device=None, timeout=5.0), with device and timeout",
        ),
        ("pl.device(0).allocate(8, 2)", "call pl.device(0).allocate(nbytes, *, stream=None, peer=False)"),
        ("one[0] = 3", "peerlane has Buffer.copy_from(src) and Buffer.fill(value)"),
        ("one[:4] = b'abcd'", "peerlane has Buffer.copy_from(src) and Buffer.fill(value)"),
        ("held.buffer + 1", "peerlane has Buffer.view(dtype, shape)"),
        ("x = one; x *= 2", "peerlane has Buffer.view(dtype, shape)"),
        ("held.buffer.device = other.device", "peerlane has Device.allocate(nbytes) and copy(dst, src)"),
        ("one.size = 4", "peerlane has AddressRange.map(physical) for memory that grows"),
        ("stream.device = pl.device(1)", "peerlane has Device.create_stream()"),
    ],
)
def test_line_that_python_refuses_shows_the_right_call(tmp_path: Path, line: str, hint: str) -> None:
    done = _run(tmp_path, textwrap.dedent(REFUSED_LINES).format(line))
    last = done.stderr.splitlines()[-1]
    assert last.startswith(("TypeError: ", "AttributeError: ")) and f"; {hint}" in last


def test_type_error_that_peerlane_raises_shows_the_frames_of_the_program_alone(tmp_path: Path) -> None:
    done = _run(tmp_path, textwrap.dedent(REFUSED_LINES).format("pl.copy_batch(one, other)"))
    assert _frames(done.stderr) == ["<module>", "refused"], done.stderr
    assert done.stderr.splitlines()[-1].endswith("copy_batch([dst], [src]); one copy is copy(dst, src)")


CELLS = """
    import json, sys
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell.instance()
    shell.run_cell("import peerlane as pl; one, other = pl.device(0).allocate(8), pl.device(1).allocate(8)")
    for cell in json.loads(sys.argv[1]):
        shell.run_cell(cell)
        shell.showtraceback()
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before 3.11 Python records no columns")
def test_cell_of_ipython_that_fails_shows_what_a_program_would(tmp_path: Path) -> None:
    pytest.importorskip("IPython", reason="it needs IPython")
    cells = [
        "pl.copy(one, other, 3)",
        "one.synchronise",
        "one.device = 3",
        "one.close(); pl.copy(one, other)",
    ]
    path = tmp_path / "cells.py"
    path.write_text(textwrap.dedent(CELLS))
    environment = {
        "PATH": "/usr/bin:/bin",
        "PEERLANE_RUNTIME_DIR": str(tmp_path),
        "IPYTHONDIR": str(tmp_path),
    }
    command = [sys.executable, str(path), json.dumps(cells)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    lines = re.sub(r"\x1b\[[\d;]*m", "", done.stdout).splitlines()
    shown = [line for line in lines if "Error: " in line or line.startswith("Closed: ")]
    call, name, setting, closed = (shown[at : at + 2] for at in range(0, 8, 2))
    assert call == [call[0]] * 2 and call[0].endswith(
        "; call pl.copy(dst, src, *, stream=None), with stream by name"
    )
    assert name == [name[0]] * 2 and "; " not in name[0]
    assert setting == [setting[0]] * 2 and "; peerlane has Device.allocate(nbytes) and copy" in setting[0]
    assert closed == [closed[0]] * 2 and "was freed by Buffer.close()" in closed[0]
    assert "src/peerlane/" not in done.stdout


@pytest.mark.parametrize(
    "line", ["len(3)", "int([])", "one[0]", "pl.copy(*[one, other, stream])", "pl.copy(one, 3)", "1 + ''"]
)
def test_other_type_error_keeps_its_text(tmp_path: Path, line: str) -> None:
    """The line is right as far as it can be read, or the error is another library's, or says it all."""
    done = _run(tmp_path, textwrap.dedent(REFUSED_LINES).format(line))
    last = done.stderr.splitlines()[-1]
    assert last.startswith("TypeError: ") and "; call " not in last and "; peerlane has" not in last


def test_missing_attribute_of_another_object_keeps_its_text(tmp_path: Path) -> None:
    done = _run(tmp_path, "import peerlane as pl\npl.devices()\n''.synchronize()")
    assert done.stderr.splitlines()[-1] == "AttributeError: 'str' object has no attribute 'synchronize'"


def test_traceback_shows_all_frames_if_the_variable_asks_for_them(tmp_path: Path) -> None:
    done = _run(tmp_path, FAILED, PEERLANE_TRACEBACK="full")
    assert len(_frames(done.stderr)) > 2, done.stderr


def test_traceback_of_a_thread_shows_the_frames_of_the_program_alone(tmp_path: Path) -> None:
    program = (
        CLOSED
        + """
    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
"""
    )
    done = _run(tmp_path, program)
    frames = _frames(done.stderr)
    assert frames[-2:] == ["main", "use"], done.stderr
    assert "src/peerlane/" not in done.stderr


FAILED = """
    import peerlane as pl
    def main():
        with pl.devices()[0].create_stream() as stream:
            memory = pl.devices()[0].allocate(64)
            pl.raw.copy(memory.address, 16, 8, stream=stream)
            stream.sync()
    main()
"""


def test_traceback_of_an_error_that_a_stream_reports_ends_at_the_programs_wait(tmp_path: Path) -> None:
    done = _run(tmp_path, FAILED)
    assert _frames(done.stderr)[-1] == "main", done.stderr
    assert "stream.sync()" in done.stderr


def test_traceback_of_another_exception_is_whole(tmp_path: Path) -> None:
    program = "import peerlane as pl\npl.Group(0, 2, rendezvous=lambda own: 1 / 0)"
    done = _run(tmp_path, program)
    frames = _frames(done.stderr)
    assert frames[0] == "<module>" and frames[-1] == "<lambda>" and len(frames) > 2, done.stderr


def test_hook_of_the_program_gets_the_error(tmp_path: Path) -> None:
    program = "import sys\nsys.excepthook = lambda kind, error, trace: print('mine', kind.__name__)\n"
    done = _run(tmp_path, program + textwrap.dedent(CLOSED) + "main()")
    assert done.stdout == "mine Closed\n"
    assert done.stderr == ""


IN_VAIN = """
    import peerlane as pl
    def step(group, channels):
        if group.rank == 0:
            group.barrier()
        else:
            channels[0].wait(1)
    with pl.Group(window=4096) as group:
        channels = [None if each == group.rank else group.channel(each, notifies=2) for each in range(group.size)]
        for _ in range(WARM):
            group.barrier()
        step(group, channels)
        group.barrier()
"""


@pytest.mark.parametrize("warm", [0, 2])
def test_deadlock_of_launched_ranks_is_one_report_that_names_the_collective(
    tmp_path: Path, warm: int
) -> None:
    done = _run(tmp_path, IN_VAIN.replace("WARM", str(warm)), "-m", "peerlane", "launch", "-n", "4")
    lines = done.stderr.splitlines()
    report = [line for line in lines if line.startswith("  rank ")]
    assert len(report) == 4, done.stderr
    assert "program.py:5 waits in Group.barrier for rank " in report[0]
    assert "called at program.py:12" in report[0]
    for line in report[1:]:
        assert "program.py:7 waits for notify 1 from rank 0" in line
    assert "Traceback" not in done.stderr
    assert "tracebacks.py" not in done.stderr
    assert len(lines) <= 5 + 4 + 4


def test_deadlock_of_launched_ranks_has_tracebacks_if_the_variable_asks_for_them(tmp_path: Path) -> None:
    program = IN_VAIN.replace("WARM", "0")
    done = _run(tmp_path, program, "-m", "peerlane", "launch", "-n", "2", PEERLANE_TRACEBACK="full")
    assert done.stderr.count("Traceback (most recent call last)") >= 1
    assert "peerlane/ranks/" in done.stderr


ON_STREAM = """
    import peerlane as pl
    def step(group, block, stream):
        group.all_reduce(block, dtype="float32", stream=stream)
        stream.sync()
    with pl.Group() as group, group.device.create_stream() as stream:
        block = group.device.allocate(4096)
        block.fill(0)
        channel = group.channel(group.rank ^ 1, notifies=1)
        step(group, block, stream)
        if group.rank != 3:
            step(group, block, stream)
        channel.wait(0)
"""

BY_HCOMM = """
    import acl, hcomm
    from peerlane.rendezvous import Rendezvous
    def ok(result):
        *outputs, code = result if isinstance(result, tuple) else (result,)
        if code:
            raise SystemExit(code)
        return outputs[0] if len(outputs) == 1 else outputs
    def step():
        ok(hcomm.HcclAllReduce(source, target, 64, hcomm.HCCL_DATA_TYPE_FP32, hcomm.HCCL_REDUCE_SUM, comm, stream))
        ok(acl.rt.synchronize_stream(stream))
    line = Rendezvous.from_environment()
    ok(acl.rt.set_device(line.rank))
    info = line.gather("info", ok(hcomm.HcclGetRootInfo()) if line.rank == 0 else b"")[0]
    comm = ok(hcomm.HcclCommInitRootInfo(line.size, info, line.rank))
    stream = ok(acl.rt.create_stream())
    source, target = (ok(acl.rt.malloc(256, 0)) for _ in range(2))
    step()
    if line.rank != 3:
        step()
    line.barrier("end")
"""


@pytest.mark.parametrize(
    ("program", "wait"),
    [
        (ON_STREAM, "program.py:5 waits in Group.all_reduce for rank 3, submitted at program.py:4"),
        (BY_HCOMM, "program.py:11 waits in HcclAllReduce for rank 3, submitted at program.py:10"),
    ],
)
def test_report_of_a_deadlock_names_the_collective_that_a_stream_runs(
    tmp_path: Path, program: str, wait: str
) -> None:
    done = _run(tmp_path, program, "-m", "peerlane", "launch", "-n", "4", "--devices", "4")
    report = [line for line in done.stderr.splitlines() if line.startswith("  rank ")]
    assert len(report) == 4, done.stderr
    for rank in (0, 1, 2):
        assert wait in report[rank] and "called at program.py:" in report[rank], done.stderr


NIXL_REFUSES = """
    from nixl._api import nixl_agent
    def main():
        agent = nixl_agent("alone")
        agent.initialize_xfer("READ", agent.get_xfer_descs([(4096, 64, 0)], "VRAM"),
                              agent.get_xfer_descs([(4096, 64, 0)], "VRAM"), "nobody")
    main()
"""


def test_traceback_of_an_error_of_a_dialect_shows_the_frames_of_the_program_alone(tmp_path: Path) -> None:
    done = _run(tmp_path, NIXL_REFUSES, "-m", "peerlane", "run")
    assert done.returncode == 1
    assert _frames(done.stderr) == ["<module>", "main"], done.stderr
    assert "nixlNotFoundError" in done.stderr.splitlines()[-1]
