"""Lets a process that has imported peerlane go on as a new program, as the interpreter would begin it.

The file is imported by the process that ``helpers.prepared`` forks, which knows no folder ``tests``.
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import fcntl
import importlib
import importlib.machinery
import os
import signal
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NoReturn

# What an interpreter, its C library or its allocator reads before the first statement.
_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "OPENBLAS_", "OMP_")
# What peerlane reads when it is imported, besides the folder of the event log.
_READ_AT_IMPORT = ("PEERLANE_LEAKS", "PEERLANE_FAULT")
_THREADS = "OPENBLAS_NUM_THREADS"  # a process that forks has one
_LIBRARIES = "LD_LIBRARY_PATH"
_PACKAGE = "peerlane"
__name__ = f"{_PACKAGE}.{__name__}"  # the checker shows no line of peerlane as a caller of the program
DIALECTS = ("acl", "hip", "hcomm")


def at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what a new interpreter, but no forked process, reads of an environment."""
    read = {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}
    for each in ("PYTHONPATH", _LIBRARIES):  # a forked process reads them too
        read.pop(each, None)
    return read


def are_plain(words: Sequence[str]) -> bool:
    """Return whether words of a command line name a program, without options for the interpreter."""
    return bool(words) and (not words[0].startswith("-") or words[0] in ("-c", "-m"))


class _Hidden:
    """Keeps peerlane from the program until it is imported; then the event log begins, as with a first import."""

    def __init__(self) -> None:
        names = [name for name in sys.modules if name.partition(".")[0] == _PACKAGE]
        self._modules = {name: sys.modules.pop(name) for name in names}

    def show(self) -> None:
        """Let all find the modules without a look at this."""
        sys.modules.update(self._modules)

    def leave_out(self, name: str) -> None:
        """Let no one import a module, as ``-m`` runs it."""
        self._modules.pop(name, None)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != _PACKAGE:
            return None
        return ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        module = self._modules[spec.name]
        self._spec = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._spec
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        self.show()
        _begin_log()


def _begin_log() -> None:
    from peerlane.diagnostics.hooks import threads
    from peerlane.diagnostics.log import event_log

    event_log.end()  # of the process that forked this one
    event_log._inherited_outputs = os.environ.get(event_log._OUTPUTS, "")
    if os.environ.get(event_log.VARIABLE):
        event_log.begin_from_environment()
        if event_log.active:
            threads.install()


class KeptModules:
    """Keeps modules from being taken apart at the end of a process, which would take each 20 ms.

    Most of that are copies of pages that a process shares with the one that forked it.  Make it before any other exit
    handler is registered, as it comes last.
    """

    def __init__(self) -> None:
        self._modules: dict[str, types.ModuleType] = {}
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._modules))
        atexit.register(self._forget)

    def add_imported(self) -> None:
        """Keep all modules that are imported now."""
        self._modules.update(sys.modules)
        for name in ("__main__", "builtins", "sys"):
            del self._modules[name]

    def _forget(self) -> None:
        for name in list(sys.modules):  # not those of peerlane if they are hidden
            if sys.modules[name] is self._modules.get(name, self):
                sys.modules[name] = None  # type: ignore[assignment]  # as the interpreter does


class Program:
    """Begins a program in a process that was forked from this one.

    Where that is ``peerlane check`` or ``launch``, the processes that it starts go on without a new interpreter, too.
    """

    def __init__(self) -> None:
        from peerlane.cli import native
        from peerlane.dialects import begin_anew
        from peerlane.dialects._shared import hook

        self._native, self._begin_anew, self._hook = native, begin_anew, hook
        self._hidden = _Hidden()  # by the process that forks, as each look at a name copies a page of it
        self._is_first, self._environment = True, dict(os.environ)
        inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        self._path = [each for each in sys.path[1:] if each not in inherited]
        self._read = at_start({**os.environ, _THREADS: "1"})
        self._libraries = os.environ.get(_LIBRARIES)
        self._handlers: list[Callable[..., object]] = []  # for the end of a process that starts others
        self._execve, self._register = os.execve, atexit.register

    def _begun(
        self, words: Sequence[str], environment: Mapping[str, str]
    ) -> tuple[types.CodeType, dict[str, Any]]:
        """Return the code of the program and its names; the process has this environment from now on."""
        if not self._is_first:
            self._put_back()
        self._is_first = False
        for name in self._environment.keys() - environment:
            del os.environ[name]
        for name, value in environment.items():
            if self._environment.get(name) != value:
                os.environ[name] = value
        sys.path[1:] = [
            each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each
        ] + self._path
        sys.orig_argv[1:] = words
        importlib.invalidate_caches()
        names = environment.get(self._hook.VARIABLE)
        has_libraries = environment.get(_LIBRARIES) == self._libraries
        if names or not has_libraries:
            self._hidden.show()
            if names:  # what sitecustomize does in a new interpreter
                self._hook.inherit(names.split(","), None)
            if not has_libraries:  # the loader of a new process finds them by itself
                self._native.load_libraries()
            self._hidden = _Hidden()
        if words[0] == "-m" and words[1] != _PACKAGE:
            self._hidden.leave_out(words[1])
        sys.meta_path.insert(0, self._hidden)  # type: ignore[arg-type]
        starts_others = _starts_others(words)
        os.execve = self._become if starts_others else self._execve  # type: ignore[assignment]
        atexit.register = self._register_handler if starts_others else self._register  # type: ignore[assignment]
        main = types.ModuleType("__main__")
        vars(main).update(
            __builtins__=builtins, __annotations__={}, __loader__=importlib.machinery.BuiltinImporter
        )
        sys.modules["__main__"] = main
        return _compiled(words), vars(main)

    def _put_back(self) -> None:
        """Put back what the program used that runs in this process so far."""
        self._environment = dict(os.environ)
        for name in DIALECTS:
            self._begin_anew(name)
        for name in list(self._hook.FINDER.installed):
            self._hook.FINDER.uninstall(name)
        self._hidden = _Hidden()

    def _register_handler(self, handler: Callable[..., object], *args: object, **named: object) -> object:
        self._handlers.append(handler)
        return self._register(handler, *args, **named)

    def _become(self, path: str, command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
        """Do what ``execve`` does, without a new interpreter if nothing needs one."""
        options = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        words = list(command)[1:]
        if words[: len(options)] == options:
            words = words[len(options) :]
        if path == sys.executable and are_plain(words) and self._is_alike(environment):
            end(self._code(words, environment))
        self._execve(path, command, environment)

    def _is_alike(self, environment: Mapping[str, str]) -> bool:
        return (
            at_start({**environment, _THREADS: "1"}) == self._read
            and not any(name.startswith(_READ_AT_IMPORT) for name in environment)
            and threading.active_count() == 1
            and not any(map(os.isatty, range(3)))
        )

    def _code(self, words: Sequence[str], environment: Mapping[str, str]) -> int:
        _close_descriptors()
        _reset_signals()
        for each in self._handlers:
            atexit.unregister(each)
        weakref.finalize._registry.clear()  # type: ignore[attr-defined]  # folders of the process that forked this one
        return self.run(words, environment)

    def run(self, words: Sequence[str], environment: Mapping[str, str]) -> int:
        """Run a program with this environment; return its exit code, or minus the signal that shall end it."""
        try:
            exec(*self._begun(words, environment))
        except SystemExit as error:
            if error.code is None or isinstance(error.code, int):
                return error.code or 0
            print(error.code, file=sys.stderr)
            return 1
        except BaseException as error:  # noqa: BLE001  # whatever ends the program, as the interpreter does
            trace = error.__traceback__ and error.__traceback__.tb_next
            sys.excepthook(type(error), error.with_traceback(trace), trace)
            if isinstance(error, KeyboardInterrupt):
                return -signal.SIGINT
            return 1
        return 0


def _starts_others(words: Sequence[str]) -> bool:
    return list(words[:2]) == ["-m", _PACKAGE] and words[2:3] in (["check"], ["launch"])


def _close_descriptors() -> None:
    for each in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            if fcntl.fcntl(int(each), fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
                os.close(int(each))
        except OSError:
            pass  # the listing's own


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)


class _End:
    """Ends the process once no object of the program is left.

    What the interpreter would free after that are pages that the process shares with the one that forked it; to free
    them copies each, which takes as long as all before.
    """

    def __init__(self, code: int) -> None:
        self._code, self._library = code, ctypes.PyDLL(None)

    def __del__(self) -> None:
        if self._code < 0:
            self._library.signal(-self._code, None)
            self._library.kill(self._library.getpid(), -self._code)
        self._library.exit(self._code & 0xFF)


def end(code: int) -> NoReturn:
    """End as the interpreter does, however deep this is called."""
    sys.end_of_the_process = _End(code)  # type: ignore[attr-defined]  # the interpreter empties sys last
    ctypes.pythonapi.Py_Exit(code & 0xFF)
    raise AssertionError("unreachable")


def _compiled(words: Sequence[str]) -> types.CodeType:
    if words[0] == "-c":
        sys.argv[:] = ["-c", *words[2:]]
        sys.path[0] = ""
        return compile(words[1], "<string>", "exec")
    if words[0] == "-m":
        sys.argv[:] = words[1:]
        sys.path[0] = str(Path.cwd())
        return compile(f"__import__('runpy')._run_module_as_main({words[1]!r})", "<string>", "exec")
    sys.argv[:] = words
    sys.path[0] = str(Path(words[0]).resolve().parent)
    sys.modules["__main__"].__file__ = str(Path(words[0]).absolute())
    return compile(Path(words[0]).read_bytes(), words[0], "exec")
