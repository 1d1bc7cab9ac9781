"""The names of C for the calls of dialects that have a C library: of their declarations."""

from __future__ import annotations

import functools
import pickle
import re
from pathlib import Path

from peerlane.dialects._shared import c_declarations
from peerlane.dialects._shared.c_declarations import Declarations
from peerlane.dialects._shared.manifests import manifest_of, registered
from peerlane.support import libraries


@functools.cache
def declarations_of(dialect: str) -> Declarations:
    """Return what the library of a dialect declares, from the build's table of the header or from the header."""
    table = Path(libraries.tables(), f"{dialect}.declarations")
    if table.exists():
        found: Declarations = pickle.loads(table.read_bytes())
        return found
    return c_declarations.read(Path(manifest_of(dialect).folder, f"{dialect}.h.txt").read_text()).library()


def is_of_c(call: str) -> bool:
    """Tell whether this is the name of a call of C, which Python calls by another one."""
    return call in _names(registered()).values()


def in_names_of_c(text: str) -> str:
    """Return a text with the names of C for those of Python."""
    names = _names(registered())
    return _of_python(registered()).sub(lambda found: names.get(found[0], found[0]), text)


@functools.cache
def _of_python(dialects: tuple[str, ...]) -> re.Pattern[str]:
    prefixes = (re.escape(manifest_of(each).prefix) for each in dialects if manifest_of(each).prefix)
    return re.compile(rf"\b(?:{'|'.join(prefixes)})[A-Za-z_0-9.]*[A-Za-z_0-9]")


@functools.cache
def _names(dialects: tuple[str, ...]) -> dict[str, str]:
    """Return the name of C for each call of Python that has another one."""
    found = {}
    for prefix, dialect in ((manifest_of(each).prefix, each) for each in dialects):
        for each in declarations_of(dialect).functions.values() if prefix else ():
            name = each.dialect if each.dialect.startswith(prefix) else prefix + each.dialect
            found[name] = each.name
    return found
