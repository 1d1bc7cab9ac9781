"""Helpers for tests of peerlane and of programs that use it."""

from importlib import import_module

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from peerlane.testing.collective_check import CollectiveCheck as CollectiveCheck
    from peerlane.testing.collective_check import Defect as Defect
    from peerlane.testing.fresh_node import FreshNode as FreshNode
    from peerlane.testing.fresh_node import Left as Left
    from peerlane.testing.procs import Completed as Completed
    from peerlane.testing.procs import run_python as run_python
    from peerlane.testing.started import LeftProcess as LeftProcess

_MODULES = {
    "CollectiveCheck": "collective_check",
    "Completed": "procs",
    "Defect": "collective_check",
    "FreshNode": "fresh_node",
    "Left": "fresh_node",
    "LeftProcess": "started",
    "run_python": "procs",
}


def __getattr__(name: str) -> object:
    """Import a name at the first look: the pytest plugin uses few of these modules."""
    if name in _MODULES:
        return globals().setdefault(name, getattr(import_module(f"{__name__}.{_MODULES[name]}"), name))
    if name.startswith("_"):  # Python and its tools ask any module for such names
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    from peerlane.support.spelling import no_attribute

    raise no_attribute(__name__, name, _MODULES)


def __dir__() -> list[str]:
    return list(_MODULES)
