"""C libraries with the vendors' functions, for programs in C and C++, for ctypes, and for bindings that open them.

The libraries lie in :func:`directory`.  Each function hands its arguments to the dialect of the vendor, which answers
as it answers Python: there is one implementation, and one node in a process that also imports peerlane.
"""

from importlib.util import find_spec
from pathlib import Path


def directory() -> Path:
    """Return the folder of the libraries, which lie beside the native modules."""
    spec = find_spec("peerlane._core")  # to load it takes long
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent / "lib"
