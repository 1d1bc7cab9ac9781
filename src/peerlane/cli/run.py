"""``peerlane run``: run a program unmodified, with virtual devices behind the vendor's module names.

The program finds this process as it would under ``python``: its own ``__main__``, arguments and ``sys.path``,
tracebacks with its own frames only, and the interpreter's ways to end.
"""

# What every program does not need is imported where it is used; pathlib is not needed at all.
# ruff: noqa: PTH109, PTH120

from __future__ import annotations

import argparse
import builtins
import io
import os
import sys
from importlib.machinery import BuiltinImporter, ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType

from peerlane.dialects import missing_parts

from .native import execute, is_native, load_libraries
from .program import add_program_arguments, set_up_program

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Callable

HELP = "run a program on virtual devices"
DESCRIPTION = """\
Runs a program with virtual devices behind the module names of the vendors
that --dialect lists. The program is not changed. Arguments, tracebacks and
exit codes are those of python, and so is what its Python children see. A
program that is not Python's finds the vendors' C libraries, which
`peerlane c-abi` lists."""
EXAMPLES = (
    ("peerlane run prog.py --batch 4", "all words behind the program are the program's"),
    (
        "peerlane run --devices 8 --profile mi300x -m prog",
        "a module, on the eight devices of an MI300X server",
    ),
    ("peerlane run --node name=ci,devices=2,memory=1GiB prog.py", "on a node of your own"),
    ("peerlane run --devices 8 ./prog", "a program in C or C++ that was linked to the vendor's library"),
)

_LOCATORS = ("runpy", "importlib.util", "importlib._bootstrap", "importlib._bootstrap_external")


class _CannotStart(Exception):
    """There is no such program; the text is that of the interpreter."""

    exit_code = 1


class _CannotOpen(_CannotStart):
    exit_code = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that stand before the program."""
    add_program_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Set the node and the dialects, then run the program in this process."""
    if not args.fault:
        return _run(args)
    from peerlane.cli.faults import counted
    from peerlane.diagnostics.log import event_log

    with counted(args, int(os.environ.get("WORLD_SIZE") or 1), "peerlane run", _print_line):
        event_log.begin_from_environment()  # this process was there before the log was asked for
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    set_up_program(args)
    if args.form is None and is_native(sys.argv[0]):
        return execute(sys.argv) if not args.fault else _execute_as_child(sys.argv)
    load_libraries()
    sys.modules.pop("peerlane.__main__", None)  # under Python it would not be imported yet
    main = ModuleType("__main__")
    vars(main)["__builtins__"] = builtins
    sys.modules["__main__"] = main
    if "__mp_main__" in sys.modules:  # multiprocessing was imported, and its children name the program so
        sys.modules["__mp_main__"] = main
    return _execute(main, {"-m": _module, "-c": _text, None: _script}[args.form])


def _execute_as_child(words: list[str]) -> int:
    """Run a program that is not Python's while this process stays, to tell of its faults."""
    import signal
    import subprocess

    code = subprocess.run([sys.executable, "-m", "peerlane.cli.native", *words], check=False).returncode
    if code < 0:
        _print_line(f"peerlane run: {words[0]} was ended by {signal.Signals(-code).name}")
        return 128 - code
    return code


def _print_line(line: str) -> None:
    if sys.stderr is not None:
        print(line, file=sys.stderr)


def _execute(main: ModuleType, load: Callable[[ModuleType], CodeType]) -> int:
    try:
        exec(load(main), vars(main))
    except SystemExit:
        raise
    except _CannotStart as error:
        print(f"{sys.executable}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as error:
        _report(error)
    except BaseException as error:  # noqa: BLE001  # whatever ends the program, as the interpreter does
        _report(error)
        return 1
    else:
        return 0
    return _die_of_interrupt()


def _report(error: BaseException) -> None:
    """Show an exception without the frames of peerlane and of the modules that located the program."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__") in (__name__, *_LOCATORS):
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)
    if lacked := missing_parts.text_for(error, trace):
        _print_line(lacked)


def _die_of_interrupt() -> int:
    """Do what the interpreter does at its end, then end by SIGINT, which a shell tells from an exit code."""
    import atexit
    import contextlib
    import signal
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # it is missing, broken or closed
            stream.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    return 128 + signal.SIGINT


def _script(main: ModuleType) -> CodeType:
    import pkgutil

    script = sys.argv[0]
    path = script if script.startswith("/") else f"{os.getcwd()}/{script}"
    if pkgutil.get_importer(path) is not None:  # a folder or an archive with a __main__.py
        _set_first_path(path, always=True)
        import runpy

        return _become(main, *runpy._get_main_module_details(_CannotStart))  # type: ignore[attr-defined]
    try:
        with io.open_code(path) as file:
            source = file.read()
    except OSError as error:
        hint = f" (did you mean {path + '.py'!r}?)" if os.access(f"{path}.py", os.R_OK) else ""
        raise _CannotOpen(f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}{hint}") from None
    _set_first_path(os.path.dirname(os.path.realpath(path)))
    vars(main).update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))
    return compile(source, path, "exec", dont_inherit=True)


def _module(main: ModuleType) -> CodeType:
    import runpy

    _set_first_path(os.getcwd())
    name, sys.argv[0] = sys.argv[0], "-m"
    code = _become(main, *runpy._get_module_details(name, _CannotStart))  # type: ignore[attr-defined]
    sys.argv[0] = main.__file__ or ""
    return code


def _text(main: ModuleType) -> CodeType:
    _set_first_path("")
    source, sys.argv[0] = sys.argv[0] + "\n", "-c"
    vars(main)["__loader__"] = BuiltinImporter
    if sys.version_info >= (3, 13):  # since Python 3.13 tracebacks show the lines of -c
        import linecache

        linecache.cache["<string>"] = (len(source), None, source.splitlines(keepends=True), "<string>")
    code = compile(source, "<string>", "exec", dont_inherit=True)
    if os.environ.get("PEERLANE_LOG"):  # event_log.VARIABLE: its import is dear
        from peerlane.diagnostics.hooks import polls

        polls.know_source(code, source)
    return code


def _become(main: ModuleType, _name: str, spec: ModuleSpec, code: CodeType) -> CodeType:
    vars(main).update(
        __file__=spec.origin,
        __cached__=spec.cached,
        __loader__=spec.loader,
        __package__=spec.parent,
        __spec__=spec,
    )
    return code


def _set_first_path(entry: str, *, always: bool = False) -> None:
    """Replace the entry of ``sys.path`` that Python made for peerlane's own start, if it made one."""
    replaces = not (sys.flags.isolated or getattr(sys.flags, "safe_path", False))
    if replaces:
        del sys.path[0]
    if replaces or always:
        sys.path.insert(0, entry)
