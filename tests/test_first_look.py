"""`import peerlane` imports little; the first look at a public name imports the rest."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import peerlane
from peerlane.testing.procs import run_python

pytestmark = pytest.mark.any_schedule

PACKAGE = Path(peerlane.__file__).parent
CONSOLE_SCRIPT = ["-c", "import sys; from peerlane.__main__ import main; sys.exit(main())"]
#: What takes long to import, and is not needed before a program uses it.
HEAVY = {
    *(
        "numpy",
        "rich",
        "dataclasses",
        "inspect",
        "pathlib",
        "subprocess",
        "socket",
        "random",
        "tempfile",
        "logging",
    ),
    *("importlib.metadata", "json", "ctypes", "threading", "peerlane._core", "peerlane._public"),
}


def printed(program: str, *, words: list[str] | None = None, **environ: str) -> str:
    """Return what a program prints in a fresh process that starts as a user's does."""
    done = run_python(
        [*(words or []), "-c", program], env={**os.environ, "PEERLANE_LOG": "", **environ}, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "words",
    [[], ["-m", "peerlane", "run"], [*CONSOLE_SCRIPT, "run"]],
    ids=["import", "python -m peerlane run", "peerlane run"],
)
def test_start_of_a_program_imports_nothing_heavy(words: list[str]) -> None:
    program = "import sys, peerlane; print(*sys.modules)"
    assert not HEAVY & set(printed(program, words=words).split())


def test_first_look_imports_the_rest_but_no_numpy() -> None:
    program = "import sys, peerlane; peerlane.devices(); print(*sys.modules)"
    printed_names = set(printed(program).split())
    assert "numpy" not in printed_names and {"peerlane._public", "peerlane._core"} <= printed_names


def test_public_name_is_the_name_of_no_module() -> None:
    # The import of a module sets its name in the package, in the place of the public one.
    modules = {path.stem for path in PACKAGE.iterdir()}
    assert not modules & set(peerlane.__all__)


@pytest.mark.parametrize(
    "module",
    [
        *("memory.copy", "memory.buffer", "memory.raw", "node.base", "streams.event", "sharing.open"),
        *("ranks.channel", "collectives.group", "backends.reference", "backends.virtual.messages.streams"),
        *("rendezvous", "testing.procs", "dialects.acl", "dialects.hip.hip", "diagnostics.log.trace"),
    ],
)
def test_module_imported_first_is_whole(module: str) -> None:
    program = f"""
import peerlane.{module}
from peerlane.errors import Closed, InvalidValue
from peerlane.memory.copy import copy
from peerlane.node.device import devices
held = bytearray(4)
copy(held, bytes(range(4)))
try:
    copy(held, bytes(5))
except InvalidValue as error:
    print(bytes(held) == bytes(range(4)), error.fault.name)
with devices()[0].create_stream() as stream, devices()[0].allocate(4) as buffer:
    buffer.copy_from(held, stream=stream)
    stream.sync()
try:
    stream.record()
except Closed:
    print("closed")
"""
    assert printed(program).split() == ["True", "INVALID_VALUE", "closed"]


@pytest.mark.parametrize("look", ["", "peerlane.devices()"])
def test_exit_handler_of_a_program_finds_its_node(look: str) -> None:
    program = f"""
import atexit, peerlane
{look}
atexit.register(lambda: print(peerlane.devices()[0].allocate(8).copy_from(bytes(8))))
peerlane.devices()
"""
    assert printed(program) == "None\n"


def test_handlers_of_exits_are_called_last_first_and_all() -> None:
    program = """
from peerlane.support import exits
exits.handlers += [lambda: print("first"), lambda: 1 / 0, lambda: print("last")]
"""
    done = run_python(["-c", program], timeout=60)
    assert (done.stdout, "ZeroDivisionError" in done.stderr) == ("last\nfirst\n", True)


def test_star_import_and_dir_have_all_public_names() -> None:
    program = """
from peerlane import *
mine = set(dir())
import peerlane
print(set(peerlane.__all__) <= mine, {*peerlane.__all__, "__version__"} == set(dir(peerlane)), copy is peerlane.copy)
"""
    assert printed(program) == "True True True\n"


def test_patched_public_name_is_restored() -> None:
    program = """
from unittest import mock
import peerlane
with mock.patch("peerlane.copy") as patched:
    assert peerlane.copy is patched
    with mock.patch("peerlane.fill") as other:
        assert peerlane.copy is patched and peerlane.fill is other
from peerlane.memory.copy import copy, fill
print(peerlane.copy is copy, peerlane.fill is fill)
"""
    assert printed(program) == "True True\n"


def test_first_look_of_many_threads_gives_each_the_name() -> None:
    program = """
import peerlane
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
begun = Barrier(8)
def look(name):
    begun.wait(50)
    if name == "memory":
        from peerlane.memory.buffer import Buffer
        return Buffer
    return getattr(peerlane, name)
with ThreadPoolExecutor(8) as pool:
    found = list(pool.map(look, "devices memory copy Stream memory Group raw devices".split(), timeout=50))
print(found[0] is peerlane.devices is found[7], found[1] is peerlane.Buffer is found[4])
"""
    assert printed(program) == "True True\n"


def test_interrupted_first_look_succeeds_when_repeated() -> None:
    program = """
import sys, peerlane
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "peerlane.streams.event":
            sys.meta_path.remove(self)
            raise KeyboardInterrupt
sys.meta_path.insert(0, Finder())
try:
    peerlane.devices
except KeyboardInterrupt:
    print(len(peerlane.devices()))
"""
    assert printed(program, PEERLANE_NODE="devices=3") == "3\n"


def test_log_that_is_asked_for_begins_with_the_import(tmp_path: Path) -> None:
    program = """
import os, sys, peerlane
print("peerlane._public" in sys.modules, *os.listdir(os.environ["PEERLANE_LOG"]))
"""
    loaded, *files = printed(program, PEERLANE_LOG=str(tmp_path)).split()
    assert loaded == "True" and {Path(each).suffix for each in files} >= {".log"}


def test_missing_name_raises_with_close_ones() -> None:
    with pytest.raises(AttributeError, match="'peerlane' has no attribute 'coppy'; close names: copy"):
        _ = peerlane.coppy  # type: ignore[attr-defined]
    assert not hasattr(peerlane, "__wrapped__")
    assert sys.modules["peerlane"] is peerlane


def test_fork_during_the_first_look_of_another_thread_waits_for_it() -> None:
    program = """
import os, sys, threading
import peerlane
class Slow:
    def find_spec(self, name, *_):
        if name == "peerlane._public":
            looking.set()
            forked.wait(0.2)  # in the look
looking, forked = threading.Event(), threading.Event()
sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=lambda: peerlane.Buffer)
thread.start()
looking.wait(30)
child = os.fork()
if child == 0:
    os._exit(7 if peerlane.Buffer.__name__ == "Buffer" else 1)
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = run_python(["-W", "ignore", "-c", program], timeout=60)
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
