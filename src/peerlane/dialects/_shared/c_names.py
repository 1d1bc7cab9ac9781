"""The C names of the calls of dialects that have a C library, read from their declarations."""

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
def declarations_of(dialect: str, header: str = "") -> Declarations:
    """Return what a header of a dialect declares, by default the one called as the dialect.

    It is read from the build's table or else from the header.
    """
    table = Path(libraries.tables(), f"{header or dialect}.declarations")
    if table.exists():
        declarations: Declarations = pickle.loads(table.read_bytes())
        return declarations
    return c_declarations.read_header(manifest_of(dialect).folder, header or dialect).library()


def is_of_c(call: str) -> bool:
    """Tell whether this is the C name of a call that has another name in Python."""
    return call in _names(registered()).values()


def in_names_of_c(text: str) -> str:
    """Return a text with Python's names of calls replaced by those of C."""
    names = _names(registered())
    return _of_python(registered()).sub(lambda match: names.get(match[0], match[0]), text)


@functools.cache
def _of_python(dialects: tuple[str, ...]) -> re.Pattern[str]:
    prefixes = (re.escape(manifest_of(each).prefix) for each in dialects if manifest_of(each).prefix)
    return re.compile(rf"\b(?:{'|'.join(prefixes)})[A-Za-z_0-9.]*[A-Za-z_0-9]")


@functools.cache
def _names(dialects: tuple[str, ...]) -> dict[str, str]:
    """Return the C name of each call, by its name in Python; dialects with C's names in Python are left out."""
    names = {}
    for prefix, dialect in ((manifest_of(each).prefix, each) for each in dialects):
        for each in declarations_of(dialect).functions.values() if prefix else ():
            name = each.dialect if each.dialect.startswith(prefix) else prefix + each.dialect
            names[name] = each.name
    return names
