"""``nixl.logging``: the loggers of the vendor's Python layer, which programs use for lines of their own."""

from __future__ import annotations

import logging as _logging
import os as _os
import sys as _sys
from typing import TextIO as _TextIO

_LEVELS = {
    "TRACE": _logging.DEBUG,
    "DEBUG": _logging.DEBUG,
    "INFO": _logging.INFO,
    "WARN": _logging.WARNING,
    "ERROR": _logging.ERROR,
    "FATAL": _logging.CRITICAL,
}


class _Output(_logging.StreamHandler[_TextIO]):
    """Writes to what is the standard output when a line is logged: tests and notebooks replace it."""

    def __init__(self) -> None:
        _logging.Handler.__init__(self, _logging.INFO)
        self.setFormatter(
            _logging.Formatter(
                "%(asctime)s NIXL %(levelname)-7s %(filename)s:%(lineno)d %(message)s", "%Y-%m-%d %H:%M:%S"
            )
        )

    @property
    def stream(self) -> _TextIO:  # type: ignore[override]
        return _sys.stdout


def get_logger(name: str) -> _logging.Logger:
    """Return the logger ``nixl.<name>``, which writes to standard output.

    It writes lines of level INFO and above.  ``NIXL_LOG_LEVEL`` chooses a higher level.
    """
    root = _logging.getLogger("nixl")
    if not any(isinstance(each, _Output) for each in root.handlers):
        root.addHandler(_Output())
        root.propagate = False
        root.setLevel(_LEVELS.get(_os.environ.get("NIXL_LOG_LEVEL", "").upper(), _logging.INFO))
    return _logging.getLogger(f"nixl.{name.lstrip('_')}")
