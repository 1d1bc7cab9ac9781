"""Refuses sub-interpreters, before they load the native module a second time.

The native types belong to one interpreter; a second load would break the first interpreter's types.
"""

from __future__ import annotations

import importlib

for _name in ("_interpreters", "_xxsubinterpreters"):  # since Python 3.13; before that
    try:
        _module = importlib.import_module(_name)
    except ImportError:
        continue
    _current = _module.get_current()
    if int(_current[0] if isinstance(_current, tuple) else _current) != 0:
        raise ImportError("peerlane cannot be imported in a sub-interpreter; use a process of its own")
    break
