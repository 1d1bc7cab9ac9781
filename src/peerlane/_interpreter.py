"""Refuses sub-interpreters, before the native module is loaded a second time.

The native types belong to one interpreter: a second load would take them from the first and break it.
"""

from __future__ import annotations

import importlib

for _name in ("_interpreters", "_xxsubinterpreters"):  # since 3.13; before
    try:
        _module = importlib.import_module(_name)
    except ImportError:
        continue
    _current = _module.get_current()
    if int(_current[0] if isinstance(_current, tuple) else _current) != 0:
        raise ImportError("peerlane cannot be imported in a sub-interpreter; use a process of its own")
    break
