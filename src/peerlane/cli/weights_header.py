"""The JSON of a safetensors header, decoded by its schema.

A general JSON reader would build all that a hostile header describes (deep nesting, hundreds of millions of
empty lists) before anything is checked; this one accepts only the format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

METADATA = "__metadata__"

_BLANK = " \t\n\r"
_SPACE = re.compile(f"[{_BLANK}]*")
_TOKEN = re.compile(r'"|[\[\]{}:,]|[^\s"\[\]{}:,]+')
_LIST = re.compile(r'\[([^\[\]{}:"]*)\]')
_INTEGER = re.compile(r"0|[1-9][0-9]{0,18}")
_MOST = (1 << 63) - 1
_MOST_DIMENSIONS = 64
_FIELDS = ("dtype", "shape", "data_offsets")
_SHOWN = 60


class HeaderError(Exception):
    """The header is not valid; the text says where, and what is valid."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A header's entry for one tensor; types are checked, ranges are not."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def clipped(value: object) -> str:
    """Return ``value`` as printable ASCII, cut to the length of a line."""
    text = ascii(value[: _SHOWN + 1] if isinstance(value, (str, list)) else value)
    return text if len(text) <= _SHOWN + 2 else f"{text[:_SHOWN]}..."


def decode(header: bytes | bytearray) -> tuple[dict[str, Entry], dict[str, str]]:
    """Return the tensors and the metadata of a header.

    Raises
    ------
    HeaderError
        It is not UTF-8, not JSON, or not as the format demands.
    """
    try:
        text = header.decode("utf-8")
    except UnicodeDecodeError as error:
        raise HeaderError(f"it is not UTF-8 at byte {error.start:,}") from None
    if not text.startswith("{"):
        raise HeaderError(f"it starts with {clipped(text[:1])}; valid is an object, '{{'")
    return _Decoder(text).header()


class _Decoder:
    """A cursor over the text; each method leaves the cursor behind the part that it read."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._json = json.JSONDecoder()

    def header(self) -> tuple[dict[str, Entry], dict[str, str]]:
        entries: dict[str, Entry] = {}
        metadata: dict[str, str] | None = None
        for name in self._keys("the header"):
            if name == METADATA:
                if metadata is not None:
                    self._fail(f"{METADATA} appears twice")
                metadata = self._strings_by_key(METADATA)
            elif name in entries:
                self._fail(f"tensor {clipped(name)} appears twice")
            else:
                entries[name] = self._entry(f"tensor {clipped(name)}")
        if self._next() is not None:
            self._fail("something follows the object")
        return entries, metadata or {}

    def _entry(self, where: str) -> Entry:
        dtype = ""
        lists: dict[str, tuple[int, ...]] = {}
        seen: set[str] = set()
        for field in self._keys(where):
            if field not in _FIELDS:
                self._fail(f"{where}: unknown field {clipped(field)}; valid are {', '.join(_FIELDS)}")
            if field in seen:
                self._fail(f"{where}: {field} appears twice")
            seen.add(field)
            if field == "dtype":
                dtype = self._string(f"{where}: dtype")
            else:
                lists[field] = self._integers(f"{where}: {field}")
        missing = [field for field in _FIELDS if field not in seen]
        if missing:
            self._fail(f"{where}: {', '.join(missing)} is missing")
        offsets = lists["data_offsets"]
        if len(offsets) != 2:
            self._fail(f"{where}: data_offsets has {len(offsets)} numbers; valid are two, begin and end")
        return Entry(dtype, lists["shape"], (offsets[0], offsets[1]))

    def _strings_by_key(self, where: str) -> dict[str, str]:
        made: dict[str, str] = {}
        for key in self._keys(where):
            if key in made:
                self._fail(f"{where}: {clipped(key)} appears twice")
            made[key] = self._string(f"{where}: {clipped(key)}")
        return made

    def _keys(self, where: str) -> Iterator[str]:
        """Yield the keys of an object; the caller reads each value before it asks for the next key."""
        self._expect("{", f"{where} must be an object")
        if self._skip("}"):
            return
        while True:
            key = self._string(f"{where}: a key")
            self._expect(":", f"{where}: a ':' must follow {clipped(key)}")
            yield key
            if self._skip("}"):
                return
            self._expect(",", f"{where}: ',' or '}}' must follow the value of {clipped(key)}")

    def _integers(self, where: str) -> tuple[int, ...]:
        self._next()
        found = _LIST.match(self._text, self._at)
        if found is None:
            self._fail(f"{where} must be a list of integers, not {self._found()}")
        if found[1].count(",") >= _MOST_DIMENSIONS:
            self._fail(f"{where} has more than {_MOST_DIMENSIONS} numbers")
        tokens = [token.strip(_BLANK) for token in found[1].split(",")]
        for token in tokens if tokens != [""] else ():
            if not _INTEGER.fullmatch(token) or int(token) > _MOST:
                self._fail(f"{where} must hold integers of 0 to 2**63 - 1, not {clipped(token)}")
        self._at = found.end()
        return tuple(map(int, tokens)) if tokens != [""] else ()

    def _string(self, where: str) -> str:
        if self._next() != '"':
            self._fail(f"{where} must be a string, not {self._found()}")
        try:
            value, self._at = self._json.raw_decode(self._text, self._at)
            text = str(value)
            text.encode()
        except json.JSONDecodeError as error:
            self._fail(f"{where} is a bad string: {error.msg}")
        except UnicodeEncodeError:
            self._fail(f"{where} holds half of a surrogate pair")
        return text

    def _expect(self, sign: str, complaint: str) -> None:
        if not self._skip(sign):
            self._fail(f"{complaint}, not {self._found()}")

    def _skip(self, sign: str) -> bool:
        if self._next() != sign:
            return False
        self._at += 1
        return True

    def _next(self) -> str | None:
        """Return the token at the cursor without passing it; None at the end."""
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
        found = _TOKEN.match(self._text, self._at)
        if found is None and self._at < len(self._text):
            self._fail(f"{self._found()} is not JSON")
        return found[0] if found else None

    def _found(self) -> str:
        """Return the character or token at the cursor, for a message."""
        if self._at >= len(self._text):
            return "the end"
        token = _TOKEN.match(self._text, self._at)
        return clipped(token[0] if token else self._text[self._at])

    def _fail(self, text: str) -> NoReturn:
        raise HeaderError(f"{text} (character {self._at:,})")
