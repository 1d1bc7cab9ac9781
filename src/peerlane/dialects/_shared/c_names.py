"""The names of C for the calls of dialects that have a C library: of their declarations."""

from __future__ import annotations

import functools
import pickle
import re
from pathlib import Path

from peerlane.dialects._shared.c_declarations import Declarations
from peerlane.support import libraries

_OF_PYTHON = re.compile(r"\b(?:acl|hcomm)\.[A-Za-z_0-9.]*[A-Za-z_0-9]")


@functools.cache
def declarations_of(dialect: str) -> Declarations:
    """Return what the library of a dialect declares: a table that the build makes of the vendor's header."""
    found: Declarations = pickle.loads(Path(libraries.tables(), f"{dialect}.declarations").read_bytes())
    return found


def is_of_c(call: str) -> bool:
    """Tell whether this is the name of a call of C, which Python calls by another one."""
    return call in _names().values()


def in_names_of_c(text: str) -> str:
    """Return a text with the names of C for those of Python."""
    return _OF_PYTHON.sub(lambda found: _names().get(found[0], found[0]), text)


@functools.cache
def _names() -> dict[str, str]:
    """Return the name of C for each call of Python that has another one."""
    acl = {
        each.dialect: each.name for each in declarations_of("acl").functions.values() if "." in each.dialect
    }
    return acl | {f"hcomm.{name}": name for name in declarations_of("hcomm").functions}
