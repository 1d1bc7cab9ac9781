"""Help, examples, misspelt words and completion of the command line."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.prepared import run_python
from peerlane import cli
from peerlane.c_abi import directory
from peerlane.support import variables
from peerlane.testing import procs
from peerlane.testing.procs import Completed

pytestmark = pytest.mark.any_schedule

SOURCES = Path(cli.__file__).parents[1]
RANKS = """
import peerlane as pl
with pl.Group(window=4096) as group:
    group.barrier()
"""
PROGRAM = 'extern "C" int aclInit(const char*); int main() { return aclInit(nullptr); }'
EXAMPLES = [(name, command) for name in cli.COMMANDS for command, _ in cli.module_of(name).EXAMPLES]


def output(*words: str, **environ: str) -> Completed:
    environ = {"PATH": "/usr/bin:/bin", "COLUMNS": "80", **environ}
    return run_python(["-m", "peerlane", *words], env=environ, timeout=60)


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_of_a_command_has_description_and_examples_in_80_columns(command: str) -> None:
    done = output(command, "--help")
    module = cli.module_of(command)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert module.DESCRIPTION in done.stdout and "examples:" in done.stdout
    assert all(example in done.stdout and does in done.stdout for example, does in module.EXAMPLES)
    assert output("help", command).stdout == done.stdout


def test_help_names_each_command_in_one_line() -> None:
    done = output("help")
    assert (done.returncode, output("--help").stdout) == (0, done.stdout)
    assert max(map(len, done.stdout.splitlines())) <= 80
    for name in cli.COMMANDS:
        assert re.search(rf"^ +{name}(\n +| +)\S", done.stdout, re.MULTILINE)
        assert cli.module_of(name).HELP in done.stdout


def test_command_line_without_words_shows_help_and_exits_2() -> None:
    done = output()
    assert (done.returncode, done.stdout, done.stderr) == (2, "", output("help").stdout)


@pytest.mark.parametrize(("name", "command"), EXAMPLES, ids=[command for _, command in EXAMPLES])
@pytest.mark.timeout(240)
def test_example_of_help_runs(
    name: str, command: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    nodes = tmp_path_factory.mktemp("runtime")  # `ps` shows no nodes that other tests have damaged
    nodes.chmod(0o700)
    (tmp_path / "prog.py").write_text("import acl\nprint(acl.rt.get_device_count())\n")
    (tmp_path / "ranks.py").write_text(RANKS)
    (tmp_path / "prog.cpp").write_text(PROGRAM)
    if "./prog" in command:
        linked = ["c++", "prog.cpp", f"-L{directory()}", "-lascendcl", "-o", "prog"]
        subprocess.run(linked, check=True, timeout=60, cwd=tmp_path)
    words = shlex.split(command)[1:]
    if name == "bench":
        words += ["--rounds", "1"]
    environ = {**os.environ, "PEERLANE_RUNTIME_DIR": str(nodes)}
    if command.startswith("peerlane "):
        done = run_python(["-m", "peerlane", *words], timeout=200, cwd=tmp_path, env=environ)
    else:  # of a shell
        done = subprocess.run(command, timeout=60, cwd=tmp_path, env=environ, shell=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["lauch", "-n", "2", "a.py"], "'lauch' is not valid (did you mean 'launch'?); valid: run, launch"),
        (["topo", "--devises=3"], "unrecognized arguments: --devises=3 (did you mean '--devices'?)"),
        (["run", "--device", "2", "a.py"], "unrecognized arguments: --device (did you mean '--devices'?)"),
        (["check", "--scheduls", "2", "a.py"], "did you mean '--schedules'?"),
        (["launch", "-n", "2", "--grase", "2", "a.py"], "did you mean '--grace'?"),
        (
            ["run", "--dialect", "acll", "a.py"],
            "'acll' is not valid (did you mean 'acl'?); valid: acl, cuda, hcomm",
        ),
        (["bench", "chanel"], "'chanel' is not valid (did you mean 'channel'?); valid: copy, call"),
        (["topo", "--profile", "mi300"], "did you mean 'mi300x'?"),
        (["topo", "--node", "devises=2"], "did you mean 'devices'?"),
        (["run", "--node", "backend=virtul", "a.py"], "did you mean 'virtual'?"),
        (["run", "--dialect", "hpi", "a.py"], "'hpi' is not valid (did you mean 'hip'?)"),
        (["run", "--dialect", "cuda,hip", "a.py"], "(write --dialect cuda --dialect hip)"),
        ([__file__], f"(write peerlane run {__file__})"),
        (["version"], "'version' is not valid (write peerlane --version)"),
        (["html"], "'html' is not valid (--html is an option of check)"),
        (
            ["run", "--html", "a.html", "a.py"],
            "unrecognized arguments: --html (--html is an option of check)",
        ),
        (["run", "--memory", "1GiB", "a.py"], "(a setting of the node: write --node memory=...)"),
        (["topo", "--host-access=none"], "(a setting of the node: write --node host_access=...)"),
        (["run", __file__.removesuffix(".py")], f"(did you mean '{__file__}'?)"),
        (["launch", "a.py"], "write peerlane launch -n 2 a.py"),
        (["launch", "4", "-m", "a"], "write peerlane launch -n 4 -m a"),
        (["launch", "-np", "4", "a.py"], "'p' is not a number of processes; write -n N"),
        (["launch", "--nproc", "4", "a.py"], "unrecognized arguments: --nproc"),
        (["topo", "--devices", "two"], "argument --devices: 'two' is not a whole number"),
        (["bench"], "required: copy|call|channel"),
        (
            ["check", "--html", "a.py"],
            "argument --html: 'a.py' is a program, and the option names the file to write",
        ),
        (["launch", "-n", "2", "--json", "a.py"], "write both: FILE, then a.py"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_word_of_a_command_is_reported_with_what_to_type(words: list[str], meant: str) -> None:
    done = output(*words)
    assert done.returncode == 2
    assert meant in done.stderr
    assert "Traceback" not in done.stderr


def test_misspelt_schedule_is_reported_with_the_closest_one() -> None:
    program = "import peerlane; peerlane.devices()[0].create_stream()"
    done = output("run", "-c", program, PEERLANE_SCHEDULE="seded:3")
    assert "PEERLANE_SCHEDULE: schedule is 'seded:3' (did you mean 'seeded'?); valid are eager" in done.stderr


def test_misspelt_variable_is_a_warning_of_a_program_that_python_runs(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import peerlane as pl\nprint(len(pl.devices()))\npl.Host()\n")
    done = procs.run_python(
        [str(tmp_path / "a.py")], env={**os.environ, "PEERLANE_SHEDULE": "lazy"}, timeout=60
    )
    assert done.returncode == 0 and done.stderr.count("PEERLANE_SHEDULE") == 1
    assert "did you mean PEERLANE_SCHEDULE?" in done.stderr


def test_misspelt_variable_is_reported_once_and_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('ran')")
    line = "the variable PEERLANE_SHEDULE means nothing to peerlane; did you mean PEERLANE_SCHEDULE?\n"
    for words in (["run"], ["check"]):
        done = output(*words, str(tmp_path / "a.py"), PEERLANE_SHEDULE="lazy", PEERLANE_OF_MY_OWN_9="1")
        assert (done.returncode, done.stdout.strip()) == (0, "ran")
        assert done.stderr.startswith(f"peerlane {words[0]}: {line}")
        assert done.stderr.count("PEERLANE_") == 2


def test_known_variables_are_those_that_sources_read() -> None:
    texts = "".join(path.read_text() for path in SOURCES.rglob("*.py") if path.name != "variables.py")
    native = SOURCES.parents[1] / "native"
    texts += "".join(path.read_text() for path in native.rglob("*.cpp"))
    read = set(re.findall(r"""["'](PEERLANE_[A-Z_]*[A-Z])["']""", texts))
    known = {*variables.OF_USERS, *variables.OF_PEERLANE}
    assert read - known == set()
    assert set(variables.OF_USERS) - read == set()


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("completion")
    report = {}
    for shell in ("bash", "zsh", "fish"):
        done = output("completion", shell)
        assert done.returncode == 0, done.stderr
        report[shell] = folder / f"peerlane.{shell}"
        report[shell].write_text(done.stdout)
    return report


def completed(shell: str, script: Path, line: str) -> list[str]:
    """Return what a shell offers for the last word of a line."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    words = line.split(" ")
    program = {
        "bash": f"source {script}; COMP_LINE={shlex.quote(line)}; COMP_POINT={len(line)}; "
        f"COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; "
        f"$(complete -p peerlane | sed 's/.*-F \\([^ ]*\\).*/\\1/') peerlane; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        "fish": f"source {script}; complete -C {shlex.quote(line)}",
    }[shell]
    done = subprocess.run([shell, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return [each.split("\t")[0] for each in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "fish"])
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("peerlane la", ["launch"]),
        ("peerlane launch --gr", ["--grace"]),
        ("peerlane run --dialect hc", ["hcomm"]),
        ("peerlane topo --profile mi", ["mi300x"]),
        ("peerlane completion z", ["zsh"]),
    ],
)
def test_completion_offers_commands_options_and_values(
    shell: str, line: str, offered: list[str], scripts: dict[str, Path]
) -> None:
    assert completed(shell, scripts[shell], line) == offered


def test_completion_of_zsh_loads_and_is_taken_for_peerlane(scripts: dict[str, Path], tmp_path: Path) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    shutil.copy(scripts["zsh"], tmp_path / "_peerlane")
    program = f"fpath=({tmp_path} $fpath); autoload -Uz compinit && compinit -D -u && autoload +X _peerlane"
    program += " && print $_comps[peerlane]"
    done = subprocess.run(["zsh", "-f", "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "_peerlane\n"), done.stderr


def test_completion_without_shtab_names_what_to_install() -> None:
    program = "import sys; sys.modules['shtab'] = None; from peerlane.cli import main; sys.exit(main())"
    done = run_python(["-c", program, "completion", "bash"], timeout=60)
    assert done.returncode == 2
    assert "pip install 'peerlane[completion]'" in done.stderr


def test_launch_json_has_how_each_rank_ended_and_which_failed_first(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import os, sys, time\n"
        "from peerlane.rendezvous import Rendezvous\n"
        "with Rendezvous.from_environment() as line:\n"
        "    line.barrier('begun')\n"
        "    if line.rank == 1:\n"
        "        sys.exit('it is broken')\n"
        "    line.barrier('never')\n"
    )
    words = ["launch", "-n", "3", "--json", "ends.json", "a.py"]
    done = run_python(["-m", "peerlane", *words], timeout=60, cwd=tmp_path)
    report = json.loads((tmp_path / "ends.json").read_text())
    assert (done.returncode, report["exit"], report["version"]) == (1, 1, 1)
    assert report["failed"] == {"rank": 1, "fate": "exited with 1", "last_words": ["it is broken"]}
    assert [each["rank"] for each in report["ranks"]] == [0, 1, 2]
    assert report["ranks"][1]["exit"] == 1 and report["ranks"][1]["signal"] is None
    assert all(each["pid"] > 0 and 0 <= each["seconds"] < 60 and not each["lost"] for each in report["ranks"])


def test_launch_json_of_a_killed_rank_names_the_signal(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    words = ["launch", "-n", "1", "--json", "ends.json", "a.py"]
    done = run_python(["-m", "peerlane", *words], timeout=60, cwd=tmp_path)
    report = json.loads((tmp_path / "ends.json").read_text())
    assert (done.returncode, report["exit"], report["failed"]["rank"]) == (137, 137, 0)
    assert (report["ranks"][0]["exit"], report["ranks"][0]["signal"]) == (None, "SIGKILL")


def test_launch_json_without_a_failure_has_none(tmp_path: Path) -> None:
    words = ["launch", "-n", "2", "--json", str(tmp_path / "ends.json"), "-c", "pass"]
    assert run_python(["-m", "peerlane", *words], timeout=60).returncode == 0
    report = json.loads((tmp_path / "ends.json").read_text())
    assert (report["exit"], report["failed"], report["interrupted_by"]) == (0, None, [])
    assert [each["exit"] for each in report["ranks"]] == [0, 0]
