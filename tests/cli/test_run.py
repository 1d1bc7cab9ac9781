"""``peerlane run``: a program behaves as under ``python``, and it and its children can ``import acl``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import peerlane.dialects
from helpers.prepared import run_python
from peerlane.testing import procs
from peerlane.testing.procs import Completed

pytestmark = pytest.mark.any_schedule

TIMEOUT = 60.0
Run = Callable[..., Completed]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return an environment whose only variable of peerlane is a runtime directory of the test."""
    clean = {name: value for name, value in os.environ.items() if "PEERLANE" not in name}
    return {**clean, "PEERLANE_RUNTIME_DIR": str(tmp_path / "runtime")}


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    """Return the folder in which programs run."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    return folder


@pytest.fixture
def run(env: dict[str, str], cwd: Path) -> Run:
    """Return ``peerlane run``."""

    def call(*args: str, **variables: str) -> Completed:
        command = ["-m", "peerlane", "run", *args]
        return run_python(command, timeout=TIMEOUT, env={**env, **variables}, cwd=cwd)

    return call


@pytest.fixture
def run_cold(env: dict[str, str], cwd: Path) -> Run:
    """Return ``peerlane run`` in an interpreter that begins with it."""

    def call(*args: str, **variables: str) -> Completed:
        command = ["-m", "peerlane", "run", *args]
        return procs.run_python(command, timeout=TIMEOUT, env={**env, **variables}, cwd=cwd)

    return call


@pytest.fixture
def alike(env: dict[str, str], cwd: Path) -> Run:
    """Return a check that ``python ARGS`` and ``peerlane run ARGS`` write the same and end alike."""

    def call(*args: str) -> Completed:
        expected, done = (
            procs.run_python(words, timeout=TIMEOUT, env=env, cwd=cwd)
            for words in (args, ["-m", "peerlane", "run", *args])
        )
        assert (done.returncode, done.stdout, done.stderr) == (
            expected.returncode,
            expected.stdout,
            expected.stderr,
        )
        return done

    return call


def with_path(env: dict[str, str], *folders: Path) -> dict[str, str]:
    path = [str(folder) for folder in folders]
    if "PYTHONPATH" in env:
        path.append(env["PYTHONPATH"])
    return {**env, "PYTHONPATH": os.pathsep.join(path)}


SHOW = """\
import sys
print(__name__, __file__, __package__, __spec__ and __spec__.name, __loader__ and type(__loader__).__name__)
print(sys.argv, sys.path[0], sys.modules["__main__"].__dict__ is globals())
"""


@pytest.mark.parametrize("how", ["show.py", "./show.py", "../cwd/show.py", "a b/show it.py", "link.py"])
def test_run_script_sees_what_python_shows_it(how: str, cwd: Path, alike: Run) -> None:
    (cwd / "a b").mkdir()
    for name in ("show.py", "a b/show it.py"):
        (cwd / name).write_text(SHOW)
    (cwd / "link.py").symlink_to("a b/show it.py")
    assert "__main__" in alike(how, "x").stdout


def test_run_module_folder_or_archive_sees_what_python_shows_it(cwd: Path, alike: Run) -> None:
    (cwd / "pack").mkdir()
    for name in ("show.py", "pack/__init__.py", "pack/__main__.py", "pack/part.py"):
        (cwd / name).write_text(SHOW)
    with zipfile.ZipFile(cwd / "app.zip", "w") as archive:
        archive.writestr("__main__.py", SHOW)
    for args in (["-m", "show"], ["-m", "pack"], ["-m", "pack.part"], ["pack"], ["app.zip"]):
        assert alike(*args, "-x", "--", "--devices", "5").stdout


def test_run_source_text_sees_what_python_shows_it(alike: Run) -> None:
    alike("-c", "import sys; print(sys.argv, sys.path[0], __name__, __spec__, __loader__)", "x", "--", "-c")


def test_run_options_after_program_reach_program(cwd: Path, run: Run) -> None:
    (cwd / "s.py").write_text("import sys; print(sys.argv[1:])")
    words = ["--devices", "3", "--d", "-h", "-m", "x", "--", "-c", "--node=y", "-"]
    for program in (["s.py"], ["-m", "s"], ["-c", "import sys; print(sys.argv[1:])"], ["--", "s.py"]):
        assert run("--shadow-real", *program, *words).stdout == f"{words}\n"


def test_run_leaks_lists_what_a_program_and_its_children_did_not_free(cwd: Path, run: Run) -> None:
    (cwd / "child.py").write_text("import acl\nacl.rt.set_device(0)\nheld, _ = acl.rt.malloc(64, 0)\n")
    (cwd / "s.py").write_text(
        "import atexit, subprocess, sys\nimport acl\n"
        "subprocess.run([sys.executable, 'child.py'], check=True)\n"
        "acl.rt.set_device(0)\nfreed, _ = acl.rt.malloc(64, 0)\nstream, _ = acl.rt.create_stream()\n"
        "atexit.register(acl.rt.free, freed)\n"
    )
    done = run("--leaks", "s.py")
    assert (done.returncode, done.stdout) == (0, "")
    assert re.sub("0x[0-9a-f]+", "#", done.stderr).splitlines() == [
        "peerlane: child.py left behind 1 thing, 64 bytes in all:",
        "  memory: 64 bytes on virtual:0, made at child.py:3",
        "peerlane: s.py left behind 1 thing:",
        "  stream # of device 0, made at s.py:6",
    ]
    assert run("s.py").stderr == ""


def test_run_leaks_confirms_that_a_program_freed_all(cwd: Path, run: Run) -> None:
    (cwd / "s.py").write_text("import acl\nacl.rt.set_device(0)\nacl.rt.free(acl.rt.malloc(64, 0)[0])\n")
    assert run("--leaks", "s.py").stderr == "peerlane: s.py left nothing behind\n"


def test_run_without_program_exits_2(run: Run) -> None:
    done = run("--shadow-real")
    assert done.returncode == 2 and "SCRIPT" in done.stderr


CHAINED = """\
def fail():
    try:
        {}["key"]
    except KeyError:
        raise ValueError("no") from RuntimeError("cause")
fail()
"""

ENDINGS = {
    "falls off its end": "print('done')",
    "exits with nothing": "raise SystemExit",
    "exits with a code": "import sys; sys.exit(7)",
    "exits with a text": "import sys; sys.exit('because')",
    "fails": "1/0",
    "fails in a chain": CHAINED,
    "is no Python": "def (:\n",
    "ends too early": "print(",
    "fails to compile late": "return 1",
    "raises a base of its own": "class E(BaseException): pass\nraise E('x')",
    "raises our error": "from peerlane.errors import Busy\nraise Busy('mine')",
    "has its own excepthook": "import sys\n"
    "sys.excepthook = lambda kind, error, trace: print(kind, error, trace.tb_lineno)\n1/0",
    "is interrupted": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nsignal.pause()",
    "is terminated": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nsignal.pause()",
    "leaves a thread": "import threading\n"
    "threading.Thread(target=lambda: (threading.main_thread().join(), print('thread'))).start()\n"
    "import atexit\natexit.register(print, 'exit')\nprint('main')",
    "is interrupted with things to do at its end": "import atexit, os, signal, threading\n"
    "threading.Thread(target=lambda: (threading.main_thread().join(), print('thread'))).start()\n"
    "atexit.register(print, 'exit')\nos.kill(os.getpid(), signal.SIGINT)\nsignal.pause()",
    "fails in a thread": "import threading\nt = threading.Thread(target=lambda: 1/0)\nt.start()\nt.join()",
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_run_program_ends_as_under_python(ending: str, cwd: Path, alike: Run) -> None:
    (cwd / "s.py").write_text(ENDINGS[ending])
    alike("s.py")
    alike("-c", ENDINGS[ending])


def test_run_interrupted_program_ends_by_sigint(run: Run) -> None:
    assert run("-c", ENDINGS["is interrupted"]).returncode == -2


def test_run_failing_module_shows_its_own_frames_only(cwd: Path, run: Run) -> None:
    (cwd / "bad.py").write_text("def f():\n    1/0\nf()\n")
    done = run("-m", "bad")
    assert done.returncode == 1
    assert done.stderr.splitlines()[1] == f'  File "{cwd}/bad.py", line 3, in <module>'
    assert "runpy" not in done.stderr and "peerlane" not in done.stderr


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("nothing.py", 2),
        ("loop.py", 2),
        ("empty", 1),
        ("-m nothing", 1),
        ("-m nothing.more", 1),
        ("-m empty", 1),
    ],
)
def test_run_program_that_cannot_start_fails_as_under_python(
    program: str, code: int, cwd: Path, alike: Run
) -> None:
    (cwd / "empty").mkdir()
    (cwd / "loop.py").symlink_to("loop.py")
    assert alike(*program.split()).returncode == code


IMPORTS = """\
import acl, acl.rt
from acl import rt as acl_rt
from acl.rt import memcpy
assert acl.rt is acl_rt and acl_rt.__name__ == "peerlane.dialects.acl.rt"
print(*acl.rt.get_device_count(), memcpy(0, 0, 0, 0, 3))
"""


def test_run_without_a_module_of_a_vendor_names_its_wheels(run: Run) -> None:
    def last_line(name: str) -> str:
        done = run("-c", f"raise ModuleNotFoundError('No module named {name}', name={name!r})")
        assert done.returncode == 1
        return done.stderr.splitlines()[-1]

    assert last_line("cuda").endswith("; pip install cuda-core cuda-bindings")
    assert last_line("cuda.core").startswith("peerlane: 'cuda.core' is the vendor's own module")
    assert last_line("pynvml").endswith("; pip install nvidia-ml-py")
    for name in ("hip.other", "acl.other", "cud", "other"):
        assert last_line(name) == f"ModuleNotFoundError: No module named {name}"


def test_run_with_other_dialects_names_the_one_that_serves_a_module(run: Run) -> None:
    done = run("--dialect", "acl", "--dialect", "cuda", "-c", "from hip import hip")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-2:] == [
        "ModuleNotFoundError: No module named 'hip'",
        "peerlane: 'hip' is a module of the dialect hip; add --dialect hip",
    ]


def test_run_program_that_imports_acl_gets_dialect(run: Run) -> None:
    assert run("-c", IMPORTS).stdout == COUNTED


COUNTED = "2 0 0\n"

WORKERS = """\
import multiprocessing, sys
class Point:
    def __init__(self, x): self.x = x
def work(point):
    import acl.rt
    return Point(point.x + 1), acl.rt.get_device_count(), __name__
if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
        point, count, name = pool.apply(work, (Point(1),))
        pool.close()
        pool.join()
    print(type(point) is Point, point.x, count, name)
"""


@pytest.mark.parametrize(
    ("method", "name"), [("fork", "__main__"), ("spawn", "__mp_main__"), ("forkserver", "__mp_main__")]
)
def test_run_multiprocessing_workers_have_dialect_and_classes(
    method: str, name: str, cwd: Path, run: Run
) -> None:
    (cwd / "workers.py").write_text(WORKERS)
    for program in (["workers.py"], ["-m", "workers"]):
        done = run(*program, method)
        assert done.stdout == f"True 2 (2, 0) {name}\n", done.stderr


@pytest.mark.parametrize("form", ["script.py", "-m script", "-c IMPORTS", "-m peerlane run script.py"])
def test_run_python_children_have_dialect(form: str, cwd: Path, run: Run) -> None:
    (cwd / "script.py").write_text(IMPORTS)
    args = [IMPORTS if word == "IMPORTS" else word for word in form.split()]
    program = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, *{args!r}]).returncode)"
    done = run("-c", program)
    assert (done.returncode, done.stdout) == (0, COUNTED), done.stderr


def child_of(run: Run, program: str) -> Completed:
    return run("-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}])")


def test_run_child_without_dialect_import_loads_hook_only(cwd: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if "PEERLANE" not in name}
    program = "import sys; print(*[m for m in sys.modules if m.startswith(('peerlane', 'numpy'))])"

    def plain(*args: str) -> Completed:
        return run_python(["-m", "peerlane", "run", *args], timeout=TIMEOUT, env=clean, cwd=cwd)

    assert child_of(plain, program).stdout == "peerlane.dialects._shared.hook\n"


def test_run_child_uninstalls_dialect_its_import_fails(run: Run) -> None:
    program = "import sys, peerlane.dialects as d; print(d.installed()); d.uninstall('acl'); import acl"
    done = child_of(run, program)
    assert done.stdout == "('acl', 'cuda', 'hcomm', 'hip', 'mooncake', 'nixl')\n"
    assert "No module named 'acl'" in done.stderr


def test_run_sitecustomize_of_user_runs_once_and_is_the_module(
    env: dict[str, str], tmp_path: Path, run_cold: Run
) -> None:
    first = tmp_path / "first"
    first.mkdir()
    (first / "sitecustomize.py").write_text("print('first'); LAST = 'first'\n")
    path = with_path(env, first)["PYTHONPATH"]
    done = child_of(
        lambda *args: run_cold(*args, PYTHONPATH=path), "import sitecustomize as s; print(s.LAST)"
    )
    assert done.stdout == "first\nfirst\nfirst\n"


def test_run_failing_sitecustomize_is_reported_and_hook_stays(
    env: dict[str, str], tmp_path: Path, run: Run
) -> None:
    first = tmp_path / "first"
    first.mkdir()
    (first / "sitecustomize.py").write_text("raise ValueError('broken')\n")
    path = with_path(env, first)["PYTHONPATH"]
    done = child_of(
        lambda *args: run(*args, PYTHONPATH=path), "import sys; print(type(sys.meta_path[0]).__name__)"
    )
    assert done.stdout == "DialectFinder\n"
    assert "ValueError: broken" in done.stderr


def vendor(env: dict[str, str], folder: Path, devices: int) -> str:
    """Write a module that behaves as the vendor's; return the PYTHONPATH that finds it."""
    folder.mkdir()
    (folder / "acl.py").write_text(
        "class rt:\n"
        "    memcpy = staticmethod(lambda: 'by the vendor')\n"
        f"    get_device_count = staticmethod(lambda: ({devices}, 0))\n"
        "def init(): return 0\n"
    )
    return with_path(env, folder)["PYTHONPATH"]


def test_run_vendor_module_without_devices_is_shadowed(env: dict[str, str], tmp_path: Path, run: Run) -> None:
    path = vendor(env, tmp_path / "vendor", devices=0)
    done = run("-c", IMPORTS, PYTHONPATH=path)
    assert (done.stdout, done.stderr) == (COUNTED, "")


def test_run_vendor_module_with_devices_needs_shadow_real(
    env: dict[str, str], tmp_path: Path, run: Run
) -> None:
    path = vendor(env, tmp_path / "vendor", devices=8)
    refused = run("-c", IMPORTS, PYTHONPATH=path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert (
        "peerlane run: cannot install dialect 'acl'" in refused.stderr and "--shadow-real" in refused.stderr
    )
    assert run("--shadow-real", "-c", IMPORTS, PYTHONPATH=path).stdout == COUNTED


OWN = {
    "a script of that name": ("acl.py", "acl.py"),
    "a folder of that name": ("main.py", "acl/__init__.py"),
    "a folder with one beside": ("pack", "pack/acl.py"),
}


@pytest.mark.parametrize("case", OWN)
@pytest.mark.parametrize("on_path", ["", ".", "cwd"])
def test_run_program_file_named_acl_is_not_taken_for_vendor_module(
    case: str, on_path: str, env: dict[str, str], cwd: Path, run: Run
) -> None:
    program, own = OWN[case]
    path = with_path(env, cwd if on_path == "cwd" else Path(on_path))["PYTHONPATH"] if on_path else ""
    for folder in ("pack", "acl"):
        (cwd / folder).mkdir()
    (cwd / own).write_text("print('own', __name__)\n")
    script = cwd / program / "__main__.py" if program == "pack" else cwd / program
    script.write_text("print('top', __name__)\n" + IMPORTS)
    for args in ([program], ["-c", script.read_text()]):
        done = run(*args, **({"PYTHONPATH": path} if path else {}))
        assert (done.stdout, done.stderr) == ("top __main__\n" + COUNTED, "")


def test_run_vendor_module_behind_own_acl_file_is_detected_and_refused(
    env: dict[str, str], tmp_path: Path, cwd: Path, run: Run
) -> None:
    path = vendor(env, tmp_path / "vendor", devices=8)
    (cwd / "acl.py").write_text(IMPORTS)
    refused = run("acl.py", PYTHONPATH=path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"{tmp_path / 'vendor' / 'acl.py'}) is there and finds a device" in refused.stderr


def test_run_dialect_option_selects_dialect_and_refuses_unknown(run: Run) -> None:
    assert run("--dialect", "acl", "-c", IMPORTS).stdout == COUNTED
    wrong = run("--dialect", "sycl", "-c", IMPORTS)
    assert wrong.returncode == 2 and "valid: acl, cuda, hcomm" in wrong.stderr


def test_run_node_options_reach_program_and_its_children(run: Run) -> None:
    program = "import os; print(os.environ.get('PEERLANE_NODE'))"
    assert "devices=8" in child_of(lambda *args: run("--devices", "8", *args), program).stdout
    assert run("-c", program).stdout == "None\n"
    assert run("-c", program, PEERLANE_NODE="devices=3").stdout == "devices=3\n"
    assert "devices=3" in run("--switch", "1", "-c", program, PEERLANE_NODE="devices=3").stdout


def test_run_node_of_other_backend_gives_program_its_devices(run: Run, cwd: Path) -> None:
    program = "import peerlane as pl; print(*(each.name for each in pl.devices()))"
    (cwd / "node.toml").write_text('[node]\nbackend = "reference"\ndevices = 1\n')
    for node, names in (
        ("backend=reference,devices=2", "reference:0 reference:1"),
        ("node.toml", "reference:0"),
    ):
        assert run("--node", node, "-c", program).stdout == f"{names}\n"
    assert run("-c", program, PEERLANE_NODE="backend=reference,devices=1").stdout == "reference:0\n"
    assert run("--node", "backend=virtual,devices=1", "-c", program).stdout == "virtual:0\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("--node", "backend=refrence"),
            "--node: backend is 'refrence' (did you mean 'reference'?); valid are virtual",
        ),
        (("--node", "backend=reference,switch=1"), "switch is not a setting; valid: devices, memory"),
        (
            ("--node", "backend=reference", "--devices", "4"),
            "--devices cannot change a node of back-end 'reference'",
        ),
    ],
)
def test_run_wrong_node_of_other_backend_exits_2_with_reason(
    arguments: tuple[str, ...], text: str, run: Run
) -> None:
    done = run(*arguments, "-c", "print('started')")
    assert (done.returncode, done.stdout) == (2, "") and text in done.stderr


@pytest.mark.parametrize("command", [("topo",), ("launch", "-n", "2", "-c", "print()"), ("ps", "--node")])
def test_commands_for_virtual_nodes_other_backend_exit_2_with_reason(
    command: tuple[str, ...], env: dict[str, str]
) -> None:
    node = "backend=reference,devices=2"
    words = (*command, node) if command[-1] == "--node" else command
    done = run_python(["-m", "peerlane", *words], timeout=TIMEOUT, env={**env, "PEERLANE_NODE": node})
    assert (done.returncode, done.stdout) == (2, "")
    assert "backend is 'reference', and only a node of virtual devices will do here" in done.stderr
    assert "valid: backend=virtual, or no backend" in done.stderr


def test_run_wrong_node_exits_2_before_program_starts(run: Run) -> None:
    done = run("--devices", "0", "-c", "print('started')")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("peerlane run: ")


@pytest.fixture
def stranger(tmp_path: Path) -> str:
    """Return a Python that has no peerlane."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "stranger")], check=True)
    return str(tmp_path / "stranger" / "bin" / "python")


def in_stranger(stranger: str, root: Path, program: str, *more: Path) -> Completed:
    site = root / "peerlane" / "dialects" / "_site"
    if not site.exists():
        shutil.copytree(Path(peerlane.dialects.__file__).parent, site.parent)
    path = os.pathsep.join([str(site), *map(str, more)])
    environment = {
        "PYTHONPATH": path,
        "PEERLANE_DIALECTS": "acl",
        "PEERLANE_RUNTIME_DIR": str(root / "runtime"),
    }
    command = f"import subprocess; subprocess.run({[stranger, '-c', program]!r}, env={environment!r})"
    return run_python(["-c", command], timeout=TIMEOUT)


def test_hook_in_python_without_peerlane_reports_it_and_goes_on(stranger: str, tmp_path: Path) -> None:
    done = in_stranger(stranger, tmp_path / "root", "print('alive')")
    assert done.stdout == "alive\n"
    assert done.stderr.count("\n") == 1 and "PEERLANE_DIALECTS=acl has no effect" in done.stderr


def test_hook_in_other_python_with_numpy_and_core_serves_acl(stranger: str, tmp_path: Path) -> None:
    import numpy

    from peerlane import _core

    root, site = tmp_path / "root", tmp_path / "site"
    shutil.copytree(Path(peerlane.dialects.__file__).parents[1], root / "peerlane")
    shutil.copy(_core.__file__, root / "peerlane")
    without = in_stranger(stranger, root, "import acl; acl.float16_to_float(0)")
    assert re.search("No module named '(numpy|tomli)'", without.stderr)  # Python 3.10 needs tomli
    site.mkdir()
    for name in ("numpy*", "tomli*"):
        for folder in Path(numpy.__file__).parents[1].glob(name):
            (site / folder.name).symlink_to(folder)
    done = in_stranger(stranger, root, "import acl; print(acl.rt.get_device_count())", site)
    assert (done.stdout, done.stderr) == ("(2, 0)\n", "")


def test_hook_in_other_python_finds_peerlane_where_parent_had_it(stranger: str, tmp_path: Path) -> None:
    package = tmp_path / "root" / "peerlane"
    package.mkdir(parents=True)
    for name in ("__init__.py", "_core.py"):  # a native part that this Python can load
        (package / name).write_text("")
    program = "import sys, peerlane; print(peerlane.__file__); print(sys.path)"
    done = in_stranger(stranger, tmp_path / "root", program)
    file, path = done.stdout.splitlines()
    assert (file, done.stderr) == (str(package / "__init__.py"), "")
    assert f"'{tmp_path / 'root'}'" not in path
