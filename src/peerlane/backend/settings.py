"""The settings of a node: read from ``PEERLANE_NODE`` or a TOML file, and checked.

Each back-end decides which values are valid and what they mean, with :class:`Checks`.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from peerlane.errors import Fault, InvalidValue, Refused
from peerlane.support.sizes import UNITS, format_size, meant_size, parse_size
from peerlane.support.spelling import did_you_mean

_LONGEST_SHOWN = 60
_MAX_FILE_BYTES = 64 << 20
_TOML_POSITION = re.compile(r"^(.*) \(at (?:line ([0-9]+), column [0-9]+|end of document)\)$", re.DOTALL)


def read(
    text: str, source: str, values: Mapping[str, Callable[[str], object]]
) -> tuple[dict[str, object], Checks]:
    """Return the settings of a node, without ``backend``, and the checks for them.

    Parameters
    ----------
    text, source : str
        The arguments of :meth:`peerlane.backend.interface.Factory.configure`.
    values : mapping
        For each known setting, a function that turns its text into a value.

    Raises
    ------
    InvalidValue
        ``BAD_CONFIG``: the text cannot be read, or has a setting that is not in ``values``.
    """
    if is_file(text):
        source, settings = text, read_toml(text)
        settings.pop("backend", None)
    else:
        settings = read_inline(text, source, values)
    keys_known(source, settings, tuple(values), "node." if is_file(text) else "")
    return settings, Checks(source)


def is_file(text: str) -> bool:
    """Tell whether ``text`` names a file (it ends in ``.toml`` or one exists) and not an inline node."""
    if text.endswith(".toml"):
        return True
    try:
        return bool(text) and Path(text).exists()
    except (OSError, ValueError):  # too long for a path, or a path that may not be read
        return False


def read_inline(text: str, source: str, values: Mapping[str, Callable[[str], object]]) -> dict[str, object]:
    """Read ``key=value,key=value``; ``values`` has a function for each key whose value is not a str."""
    settings: dict[str, object] = {}
    if not text.strip():
        return settings
    for number, item in enumerate(text.split(","), start=1):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key or not value:
            raise bad_config(
                source,
                f"item {number}, {shown(item)}, is not key=value; write for example 'devices=8,switch=4', "
                "or the path of a TOML file that exists",
            )
        if key in settings:
            raise bad_config(source, f"item {number}: {shown(key)} is given a second time; give it once")
        settings[key] = values.get(key, str)(value)
    return settings


def read_toml(path: str | os.PathLike[str]) -> dict[str, object]:
    """Read the ``[node]`` table of a TOML file."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]

    source = os.fspath(path)
    text = _read_text(source)
    try:
        document: dict[str, object] = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, and integers too long for Python to read
        syntax = _TOML_POSITION.match(str(error))
        what = syntax[1] if syntax else str(error)
        line = f"line {syntax[2] or text.count(chr(10)) + 1}: " if syntax else ""
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


def integer(text: str) -> object:
    """Read a whole number; other text stays text, for the checks to refuse."""
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,20}", text) else text


def sizes(text: str) -> object:
    """Read sizes that are separated by slashes; other text stays text."""
    return text.split("/") if "/" in text else text


def bad_config(source: str, problem: str) -> InvalidValue:
    """Return the error for a node written at ``source`` (a path, a variable, a flag)."""
    return InvalidValue(
        f"{source}: {problem}",
        fault=Fault.BAD_CONFIG,
        detail=Refused(reason="bad_config", source=source, problem=problem),
    )


def shown(value: object) -> str:
    """Return ``value`` for a message: short, and for any value (a huge integer has no ``repr``)."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return f"an array of {len(value)}"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    return _cut(value if isinstance(value, str) else repr(value), quote=isinstance(value, str))


def keys_known(source: str, table: Iterable[str], known: Sequence[str], where: str) -> None:
    """Refuse a table with a key that is not ``known``; ``where`` is the table's dotted key and a dot."""
    for key in table:
        if key not in known:
            name = _cut(key) if key.isidentifier() else shown(key)
            raise bad_config(
                source, f"{where}{name} is not a setting{did_you_mean(key, known)}; valid: {', '.join(known)}"
            )


class Checks:
    """Checks for the settings written at one source."""

    def __init__(self, source: str) -> None:
        self.source = source

    def refusal(self, key: str, value: object, valid: str) -> InvalidValue:
        """Return the error for a ``value`` that ``node.key`` cannot have."""
        return bad_config(self.source, f"node.{key} is {shown(value)}; valid: {valid}")

    def integer(self, key: str, value: object, low: int, high: int) -> int:
        """Return ``value`` if it is a whole number of ``low..high``."""
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.refusal(key, value, f"a whole number from {low} to {high}")
        return value

    def flag(self, key: str, value: object) -> bool:
        """Return ``value`` if it is true or false."""
        if not isinstance(value, bool):
            raise self.refusal(key, value, "true or false")
        return value

    def choice(self, key: str, value: object, options: Sequence[str]) -> str:
        """Return ``value`` if it is one of ``options``."""
        if not isinstance(value, str) or value not in options:
            raise self.refusal(key, value, ", ".join(options) + did_you_mean(value, options))
        return value

    def size(self, key: str, value: object, low: int, high: int, step: int) -> int:
        """Return a size of ``low..high`` in multiples of ``step``, given as an integer or as ``"16GiB"``."""
        nbytes = parse_size(value) if isinstance(value, str) else value
        if isinstance(nbytes, bool) or not isinstance(nbytes, int):
            meant = meant_size(value) if isinstance(value, str) else None
            hint = f" (did you mean {meant!r}?)" if meant else ""
            raise self.refusal(key, value, f"bytes, or a number with one of {', '.join(UNITS)}{hint}")
        if low <= nbytes <= high and nbytes % step == 0:
            return nbytes
        below = min(max(nbytes // step * step, low), high)
        above = min(max(below + step, low), high) if nbytes > below else below
        nearest = " or ".join(dict.fromkeys((format_size(below), format_size(above))))
        multiple = f"a multiple of {format_size(step)} " if step > 1 else ""
        valid = f"{multiple}from {format_size(low)} to {format_size(high)}; nearest: {nearest}"
        raise self.refusal(key, value, valid)

    def memory(self, value: object, devices: int, granularity: int) -> tuple[int, ...]:
        """Return the bytes of each device, given as one size for all or as an array of one per device."""
        limits = granularity, UNITS["PiB"], granularity
        if not isinstance(value, list | tuple):
            return (self.size("memory", value, *limits),) * devices
        self.sequence("memory", value, devices, "one size for all, or an array of one per device")
        return tuple(self.size(f"memory[{i}]", each, *limits) for i, each in enumerate(value))

    def sequence(self, key: str, value: object, length: int, valid: str) -> Sequence[object]:
        """Return ``value`` if it is an array of ``length`` values."""
        if not isinstance(value, list | tuple) or len(value) != length:
            raise self.refusal(key, value, f"{valid} (node.devices is {length})")
        return value


def _cut(text: str, *, quote: bool = False) -> str:
    cut = text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."
    return repr(cut) if quote else cut
