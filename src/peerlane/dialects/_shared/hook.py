"""The import hook: the folders of dialects, and the finder that serves their modules.

``_site/sitecustomize.py`` loads this file at the start of every Python child, without the ``peerlane`` package.  So
this file must not import peerlane, nor any module that is slow to import.  It stays in ``sys.modules`` under its
ordinary name: ``peerlane.dialects``, once imported, gets the hook that is already in place.
"""

# ruff: noqa: PTH110, PTH208

from __future__ import annotations

import atexit
import importlib
import os
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder, SourceFileLoader

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType
    from typing import Any

VARIABLE = "PEERLANE_DIALECTS"

FOLDERS = "PEERLANE_DIALECT_FOLDERS"
MANIFEST = "manifest.py"
EXTENSIONS = "extensions.py"
#: An option ``-X`` of a Python that a C library has started: its process is no program of Python.
SERVES_C = "peerlane_serves_c"
#: Has the name of torch's device where that is a vendor's.
TORCH_DEVICE = "PEERLANE_TORCH_DEVICE"

_BUILT_IN = __file__.rpartition("/_shared/")[0]


def outside() -> dict[str, str]:
    """Return the folders of dialects that ``FOLDERS`` has, by the dialects' names; the first of a name counts."""
    folders = [each.rstrip("/") for each in os.environ.get(FOLDERS, "").split(os.pathsep) if each]
    return {each.rpartition("/")[2]: each for each in reversed(folders)}


def folders() -> dict[str, str]:
    """Return the folder of each dialect by its name, those of peerlane last."""
    own = {name: f"{_BUILT_IN}/{name}" for name in sorted(os.listdir(_BUILT_IN))}
    return {**outside(), **{name: path for name, path in own.items() if os.path.exists(f"{path}/{MANIFEST}")}}


def read_manifest(folder: str) -> dict[str, Any]:
    """Return the names that a dialect's manifest assigns."""
    loader = SourceFileLoader(MANIFEST, f"{folder}/{MANIFEST}")
    names: dict[str, Any] = {}
    exec(loader.get_code(MANIFEST), names)  # type: ignore[arg-type]
    return names


class Alias:
    """Loads a public name by importing the module that serves it, and only then."""

    def __init__(self, serving: str) -> None:
        self.serving = serving

    def create_module(self, spec: ModuleSpec) -> None:
        """Let the import system make an empty module, which ``exec_module`` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        # Returned by create_module, the serving module would get this spec and name: reload would break.
        sys.modules[module.__name__] = importlib.import_module(self.serving)


class DialectFinder:
    """Serves the modules of the installed dialects; their manifests are read at the first import of one."""

    def __init__(self) -> None:
        #: Dialect name to the first parts of its modules' names, in the order of installation.
        self.installed: dict[str, Sequence[str]] = {}
        self._modules: dict[str, Mapping[str, str]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of an installed dialect's module; None for all others, which later finders serve."""
        root = fullname.partition(".")[0]
        for dialect, roots in self.installed.items():
            if root not in roots:
                continue
            modules = self._modules.get(dialect) or self._read(dialect)
            if fullname in modules:
                serving = modules[fullname]
                package = any(name.startswith(fullname + ".") for name in modules)
                return ModuleSpec(fullname, Alias(serving), origin=serving, is_package=package)  # type: ignore[arg-type]
            if root in modules and PathFinder.find_spec(fullname, path) is not None:
                # A file of the dialect's own package would be loaded a second time, with a state of its own.
                raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None

    def _read(self, dialect: str) -> Mapping[str, str]:
        modules: Mapping[str, str] = read_manifest(folders()[dialect])["MODULES"]
        return self._modules.setdefault(dialect, modules)

    def install(self, name: str, roots: Sequence[str]) -> None:
        """Serve a dialect's modules, before every other finder."""
        self.installed[name] = roots
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        extensions = f"{folders()[name]}/{EXTENSIONS}"
        if SERVES_C not in sys._xoptions and os.path.exists(extensions):
            WATCH.follow(name, extensions)

    def uninstall(self, name: str) -> None:
        """Stop serving, and forget the modules imported under the public names."""
        del self.installed[name]
        WATCH.adapters.pop(name, None)
        for public, serving in self._modules.pop(name, {}).items():
            if public in sys.modules and sys.modules[public] is sys.modules.get(serving):
                del sys.modules[public]
        if not self.installed and self in sys.meta_path:
            sys.meta_path.remove(self)


#: By module of machine code: its function that opens a library.
_OPENS = {"_ctypes": "dlopen", "_cffi_backend": "load_library"}


class _ExtensionWatch:
    """Shows modules of machine code to the dialects that have a file ``extensions.py``, when they are loaded."""

    def __init__(self) -> None:
        #: By dialect: the names that the file assigns.  ``creating`` gets the path of each module before it is
        #: loaded, ``executed`` the module when its code has run, ``opening`` the name and the flags of each library
        #: that ctypes or cffi opens, and returns the one that it opens then, and ``loads_first`` returns the library
        #: in ``lib/preload`` that a program of machine code needs before all others; ``is_chosen`` tells whether the
        #: user named the dialect.
        self.adapters: dict[str, dict[str, Any]] = {}
        self._is_watching = False
        self._after_load: Callable[[], object] = bool

    def follow(self, name: str, path: str) -> None:
        """Show modules to a dialect from now on."""
        loader = SourceFileLoader(EXTENSIONS, path)
        names: dict[str, Any] = {"__name__": EXTENSIONS}
        exec(loader.get_code(EXTENSIONS), names)  # type: ignore[arg-type]
        self.adapters[name] = names
        self._watch()

    def call_after_loads(self, function: Callable[[], object]) -> None:
        """Call a function now, and whenever Python, ctypes or cffi has loaded a module or library."""
        self._after_load = function
        self._watch()
        function()

    def _watch(self) -> None:
        if self._is_watching:
            return
        self._is_watching = True
        create, execute, adapters = (
            ExtensionFileLoader.create_module,
            ExtensionFileLoader.exec_module,
            self.adapters,
        )

        def create_module(loader: ExtensionFileLoader, spec: ModuleSpec) -> ModuleType:
            for each in adapters.values():
                each["creating"](str(spec.origin))
            module = create(loader, spec)
            self._after_load()  # before its code runs, if that is not part of its creation
            return module

        def exec_module(loader: ExtensionFileLoader, module: ModuleType) -> None:
            execute(loader, module)
            self._watch_opens(module)
            for each in adapters.values():
                each["executed"](module)
            self._after_load()

        ExtensionFileLoader.create_module = create_module  # type: ignore[assignment,method-assign]
        ExtensionFileLoader.exec_module = exec_module  # type: ignore[assignment,method-assign]
        for name in _OPENS:
            if name in sys.modules:
                self._watch_opens(sys.modules[name])

    def _watch_opens(self, module: Any) -> None:
        """Follow the function of a module that opens libraries, if it has one."""
        name = _OPENS.get(module.__name__)
        if name is None:
            return
        opening, adapters = getattr(module, name), self.adapters

        def follow(library: Any, flags: int = 0) -> Any:
            for each in adapters.values():
                library = each["opening"](library, flags)
            opened = opening(library, flags)
            self._after_load()
            return opened

        follow.__wrapped__ = opening  # type: ignore[attr-defined]
        setattr(module, name, follow)
        public: Any = sys.modules.get("ctypes")
        if getattr(public, "_dlopen", None) is opening:  # it was imported before
            public._dlopen = follow


WATCH = _ExtensionWatch()


class _RootFinder:
    """Finds ``peerlane`` itself, and nothing else, in a folder that is not on ``sys.path``."""

    def __init__(self, root: str) -> None:
        self.root = root

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(fullname, [self.root]) if fullname == "peerlane" else None


FINDER = DialectFinder()


def exported() -> str:
    """Return ``VARIABLE`` for children: each dialect with the other first parts of its modules' names."""
    return ",".join("/".join(dict.fromkeys((name, *roots))) for name, roots in FINDER.installed.items())


def inherit(dialects: Sequence[str], root: str | None) -> None:
    """Install the dialects of the parent in a child.

    ``dialects``: the parts of ``VARIABLE``, as ``exported`` writes them.
    ``root``: the folder of ``peerlane``, if ``sys.path`` lacks it.
    """
    if root is not None:
        sys.meta_path.append(_RootFinder(root))
    for each in dialects:
        roots = each.split("/")
        folder = outside().get(roots[0]) or f"{_BUILT_IN}/{roots[0]}"
        if os.path.exists(f"{folder}/{MANIFEST}"):
            FINDER.install(roots[0], roots)
        else:
            sys.stderr.write(
                f"peerlane: {VARIABLE} names {roots[0]!r}, and neither peerlane nor {FOLDERS} has a folder of "
                f"that name; it has no effect in this process\n"
            )
    if os.environ.get("PEERLANE_LOG") and _is_of_multiprocessing():
        # Its parent's locks and pipes may order it before the program imports peerlane, or calls a driver.
        importlib.import_module("peerlane")
    atexit.register(_show_missing_part)
    if name := os.environ.get(TORCH_DEVICE):
        importlib.import_module("peerlane.torch_names.hook").begin(name)


def _is_of_multiprocessing() -> bool:
    """Tell whether ``multiprocessing`` started this Python, to run functions of the program."""
    starts = ("from multiprocessing.spawn", "from multiprocessing.forkserver")
    return any(word.startswith(starts) for word in sys.orig_argv)


def _show_missing_part() -> None:
    """Say below the traceback of the error that ended the program what it lacked."""
    error = getattr(sys, "last_value", None)
    if not isinstance(error, Exception) or sys.stderr is None:
        return
    if isinstance(error, ModuleNotFoundError) or "torch" in sys.modules:  # else peerlane need not be imported
        text = importlib.import_module("peerlane.dialects.missing_parts").text_for(error, error.__traceback__)
        sys.stderr.write(f"{text}\n" if text else "")
