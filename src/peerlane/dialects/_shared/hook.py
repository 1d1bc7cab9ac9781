"""The import hook: which public module names a dialect answers, and the finder that serves them.

``_site/sitecustomize.py`` loads this file at the start of every Python child, without the ``peerlane``
package: it may import only what costs nothing, and nothing of ours.  The module stays in ``sys.modules``
under its ordinary name, so that ``peerlane.dialects``, once imported, finds the hook already in place.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec, PathFinder

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import ModuleType

VARIABLE = "PEERLANE_DIALECTS"

MODULES: dict[str, Mapping[str, str]] = {
    "acl": {
        "acl": "peerlane.dialects.acl",
        "acl.rt": "peerlane.dialects.acl.rt",
        "acl.util": "peerlane.dialects.acl.util",
        "acl.blas": "peerlane.dialects.acl.blas",
        "acl.fv": "peerlane.dialects.acl.fv",
        "acl.himpi": "peerlane.dialects.acl.himpi",
        "acl.mdl": "peerlane.dialects.acl.mdl",
        "acl.media": "peerlane.dialects.acl.media",
        "acl.op": "peerlane.dialects.acl.op",
        "acl.prof": "peerlane.dialects.acl.prof",
    },
    "hip": {
        "hip": "peerlane.dialects.hip",
        "hip.hip": "peerlane.dialects.hip.hip",
        "hip.hiprtc": "peerlane.dialects.hip.hiprtc",
        "hip.hiprtc_pyext": "peerlane.dialects.hip.hiprtc_pyext",
        "hip._util": "peerlane.dialects.hip.rocm.bindings.util",
        "hip._util.types": "peerlane.dialects.hip._types",
        "rocm": "peerlane.dialects.hip.rocm",
        "rocm.version": "peerlane.dialects.hip.rocm.version",
        "rocm.bindings": "peerlane.dialects.hip.rocm.bindings",
        "rocm.bindings.hip": "peerlane.dialects.hip.hip",
        "rocm.bindings.hiprtc": "peerlane.dialects.hip.hiprtc",
        "rocm.bindings.hiprtc_pyext": "peerlane.dialects.hip.hiprtc_pyext",
        "rocm.bindings.util": "peerlane.dialects.hip.rocm.bindings.util",
        "rocm.bindings.util.types": "peerlane.dialects.hip._types",
    },
    "hcomm": {"hcomm": "peerlane.dialects.hcomm"},
    "nixl": {
        f"{root}{part}": f"peerlane.dialects.nixl{part}"
        for root in ("nixl", "nixl_cu12", "nixl_cu13", "rixl")
        for part in ("", "._api", "._bindings", "._utils", ".logging")
    },
}


class _Alias:
    """Loads a public name by importing the module that serves it, and only then."""

    def __init__(self, serving: str) -> None:
        self.serving = serving

    def create_module(self, spec: ModuleSpec) -> None:
        """Let the import system make an empty module, which ``exec_module`` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        # Returned by create_module, the serving module would get this spec and name: reload would break.
        sys.modules[module.__name__] = importlib.import_module(self.serving)


class DialectFinder:
    """Serves the modules of the installed dialects.

    Attributes
    ----------
    installed : dict
        Dialect name to its modules (public name to serving module), in the order of installation.
    """

    def __init__(self) -> None:
        self.installed: dict[str, Mapping[str, str]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Answer for the names of installed dialects; leave all others to the finders behind."""
        for modules in self.installed.values():
            if fullname in modules:
                serving = modules[fullname]
                package = any(name.startswith(fullname + ".") for name in modules)
                return ModuleSpec(fullname, _Alias(serving), origin=serving, is_package=package)  # type: ignore[arg-type]
            root = fullname.partition(".")[0]
            if root in modules and PathFinder.find_spec(fullname, path) is not None:
                # A file of the dialect's own package would be loaded a second time, with a state of its own.
                raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None

    def install(self, name: str, modules: Mapping[str, str]) -> None:
        """Serve ``modules``, before every other finder."""
        self.installed[name] = modules
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def uninstall(self, name: str) -> None:
        """Stop serving, and forget the modules imported under the public names."""
        for public, serving in self.installed.pop(name, {}).items():
            if public in sys.modules and sys.modules[public] is sys.modules.get(serving):
                del sys.modules[public]
        if not self.installed and self in sys.meta_path:
            sys.meta_path.remove(self)


class _RootFinder:
    """Finds ``peerlane`` itself, and nothing else, in a folder that is not on ``sys.path``."""

    def __init__(self, root: str) -> None:
        self.root = root

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(fullname, [self.root]) if fullname == "peerlane" else None


FINDER = DialectFinder()


def inherit(names: Sequence[str], root: str | None) -> None:
    """Put the hook in place in a child, as its parent had it.

    Parameters
    ----------
    names : sequence of str
        The dialects named by the environment.
    root : str or None
        Where ``peerlane`` is, if this Python does not find it by itself.
    """
    if root is not None:
        sys.meta_path.append(_RootFinder(root))
    for name in names:
        if name in MODULES:
            FINDER.install(name, MODULES[name])
        else:
            sys.stderr.write(
                f"peerlane: {VARIABLE} names {name!r}, valid here are {', '.join(MODULES)}; "
                f"call peerlane.dialects.register and install in this process\n"
            )
