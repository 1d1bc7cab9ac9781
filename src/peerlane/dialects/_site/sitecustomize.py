"""In a Python child: put the dialects of PEERLANE_DIALECTS in place, then run the next sitecustomize.

Every Python whose PYTHONPATH holds this folder runs this, also one that is not ours: hence no imports that
cost time, nothing newer than Python 3.6, and one line on stderr where peerlane cannot be.  ``site`` reports
what is raised here and goes on.
"""

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder

_SITE = __file__.rpartition("/")[0]
_HOOK = "peerlane.dialects._shared.hook"


def _package() -> "tuple[list[str], str | None] | None":
    """Return the folders of the package, and its root if sys.path lacks it; None if it cannot be imported."""
    if sys.version_info < (3, 10):  # noqa: UP036
        return None
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec = find and find("peerlane", None)
        if spec:
            return list(spec.submodule_search_locations or ()), None
    own = _SITE.rpartition("/dialects/")[0]
    if PathFinder.find_spec("peerlane._core", [own]) is None:  # built for another Python
        return None
    return [own], own.rpartition("/")[0]


def _load(spec: ModuleSpec) -> "object":
    """Load a module; importing ``importlib.util`` for it would take longer than all of this."""
    module = type(sys)(spec.name)
    module.__spec__ = spec
    module.__loader__ = spec.loader
    module.__file__ = spec.origin
    module.__package__ = spec.parent
    if spec.submodule_search_locations is not None:
        module.__path__ = spec.submodule_search_locations
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


def _inherit() -> None:
    dialects = os.environ.get("PEERLANE_DIALECTS", "")
    if not dialects or _HOOK in sys.modules:
        return
    package = _package()
    spec = package and PathFinder.find_spec(_HOOK, [folder + "/dialects/_shared" for folder in package[0]])
    if not package or not spec:
        sys.stderr.write(
            f"peerlane: {sys.executable} cannot import peerlane, PEERLANE_DIALECTS={dialects} has no effect "
            f"in it; install peerlane there\n"
        )
        return
    _load(spec).inherit(dialects.split(","), package[1])  # type: ignore[attr-defined]


def _next() -> None:
    behind = sys.path[sys.path.index(_SITE) + 1 :] if _SITE in sys.path else []
    spec = PathFinder.find_spec("sitecustomize", behind)
    if spec is not None and spec.origin is not None:
        _load(spec)


try:
    _inherit()
finally:
    _next()
