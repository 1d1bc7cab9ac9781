"""Where a node's settings are written: inline text and TOML files, read into plain values.

Reading decides nothing about content: what the values mean and which are valid is in :mod:`.checks`.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from .checks import bad_config, keys_known, shown

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

_MAX_FILE_BYTES = 64 << 20
_TOML_PLACE = re.compile(r"^(.*) \(at (?:line ([0-9]+), column [0-9]+|end of document)\)$", re.DOTALL)


def is_file(text: str) -> bool:
    """Tell whether ``text`` names a file (it ends in ``.toml`` or one exists) and not an inline node."""
    if text.endswith(".toml"):
        return True
    try:
        return bool(text) and Path(text).exists()
    except (OSError, ValueError):  # too long for a path, or not to be looked at: then not a file's name
        return False


def read_inline(text: str, source: str) -> dict[str, object]:
    """Read ``key=value,key=value``; text without any item gives no settings."""
    settings: dict[str, object] = {}
    if not text.strip():
        return settings
    for place, item in enumerate(text.split(","), start=1):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key or not value:
            raise bad_config(
                source,
                f"item {place}, {shown(item)}, is not key=value; write for example 'devices=8,switch=4', "
                "or the path of a TOML file that exists",
            )
        if key in settings:
            raise bad_config(source, f"item {place}: {shown(key)} is given a second time; give it once")
        settings[key] = _INLINE_VALUES.get(key, str)(value)
    return settings


def read_toml(path: str | os.PathLike[str]) -> dict[str, object]:
    """Read the ``[node]`` table of a TOML file."""
    source = os.fspath(path)
    text = _read_text(source)
    try:
        document: dict[str, object] = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, and integers too long for Python to read
        found = _TOML_PLACE.match(str(error))
        what = found[1] if found else str(error)
        line = f"line {found[2] or text.count(chr(10)) + 1}: " if found else ""
        raise bad_config(source, f"{line}this is not TOML: {what}") from None
    except RecursionError:
        raise bad_config(source, "arrays or tables are nested too deeply to be a node") from None
    keys_known(source, document, ("node",), "")
    if "node" not in document:
        raise bad_config(source, "there is no [node] table; begin the file with a line [node]")
    table = document["node"]
    if not isinstance(table, dict):
        raise bad_config(source, f"node is {shown(table)}; valid: one table, written [node]")
    return table


def _read_text(source: str) -> str:
    try:
        problem = _unfit(Path(source).stat())
        content = b"" if problem else Path(source).read_bytes()
    except OSError as error:
        reason = error.strerror or "it cannot be read"
        raise bad_config(source, f"{reason}; give the path of a TOML file that you may read") from None
    except ValueError:
        raise bad_config(shown(source), "no file can have this name; give the path of a TOML file") from None
    if problem:
        raise bad_config(source, problem)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise bad_config(source, f"byte {error.start} is not UTF-8 text; a node is a TOML file") from None


def _unfit(status: os.stat_result) -> str:
    # Opening a pipe waits for a writer that may never come, and a device may never end.
    if not stat.S_ISREG(status.st_mode):
        return "this is not a regular file; give the path of a TOML file"
    if status.st_size > _MAX_FILE_BYTES:
        return f"{status.st_size} bytes is too large for a node; valid: up to {_MAX_FILE_BYTES}"
    return ""


def _integer(text: str) -> object:
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,20}", text) else text


def _flag(text: str) -> object:
    return {"true": True, "false": False}.get(text, text)


def _sizes(text: str) -> object:
    return text.split("/") if "/" in text else text


def _matrix(text: str) -> object:
    return [[_integer(digit) for digit in row] for row in text.split("/")]


def _links(text: str) -> object:
    links: list[object] = []
    for link in text.split("/"):
        found = re.fullmatch(r"([0-9]{1,20})-([0-9]{1,20}):(.*)", link)
        links.append({"a": int(found[1]), "b": int(found[2]), "kind": found[3]} if found else link)
    return links


_INLINE_VALUES: dict[str, Callable[[str], object]] = {
    "devices": _integer,
    "switch": _integer,
    "memory": _sizes,
    "poison": _flag,
    "p2p": _matrix,
    "link": _links,
}
