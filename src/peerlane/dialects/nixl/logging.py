"""``nixl.logging``: the logger of the vendor's Python layer."""

from __future__ import annotations

import logging as _logging
import os as _os

_LEVELS = {
    "TRACE": _logging.DEBUG,
    "DEBUG": _logging.DEBUG,
    "INFO": _logging.INFO,
    "WARN": _logging.WARNING,
    "ERROR": _logging.ERROR,
    "FATAL": _logging.CRITICAL,
}


def get_logger(name: str) -> _logging.Logger:
    """Return the logger ``nixl.<name>``; ``NIXL_LOG_LEVEL`` chooses the level, WARN if it is not set."""
    root = _logging.getLogger("nixl")
    if root.level == _logging.NOTSET:
        root.setLevel(_LEVELS.get(_os.environ.get("NIXL_LOG_LEVEL", "").upper(), _logging.WARNING))
    return _logging.getLogger(f"nixl.{name.lstrip('_')}")
