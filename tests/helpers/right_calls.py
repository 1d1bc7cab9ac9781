"""Makes the calls of a text, a line each, on a C library: ``right_calls.py acl < c_abi/right_calls/acl.txt``."""

from __future__ import annotations

import ctypes
import mmap
import re
import sys
import threading
from typing import Any

from helpers.c_programs import declarations
from peerlane.c_abi import directory

_ROOM = 4096


class Caller:
    """What the lines have made so far, by the names that they gave it."""

    def __init__(self, dialect: str) -> None:
        library = directory() / {"acl": "libascendcl.so", "hip": "libamdhip64.so"}[dialect]
        self._library, self._functions = ctypes.CDLL(str(library)), declarations(dialect).functions
        self._room: dict[str, Any] = {"room": ctypes.create_string_buffer(_ROOM)}
        self._room["pages"] = (ctypes.c_char * _ROOM).from_buffer(mmap.mmap(-1, _ROOM))
        self._function = ctypes.CFUNCTYPE(ctypes.c_int)(lambda *_: 0)
        self._kept: list[Any] = []

    def run(self, line: str) -> None:
        """Make a call, name an array, or compare a word."""
        if " == " in line:
            got, expected = map(self._number, line.split(" == "))
            assert got == expected, (line, got, expected)
        elif ": " in line:
            name, array = line.split(": ")
            self._room[name] = self._argument(array)
        else:
            self._call(line)

    def _call(self, line: str) -> None:
        words, _, expected = line.partition(" = ")
        name, *arguments = re.findall(r'"[^"]*"|[({\[][^)}\]]*[)}\]]|\S+', words)
        function, declared = self._library[name], self._functions[name]
        results = arguments[len(declared.parameters) :]  # where the result goes
        is_address = declared.returns.is_pointer or declared.returns.type in ("size_t", "aclrtAllocatorDesc")
        is_nothing = declared.returns.type == "void" and not is_address
        function.restype = None if is_nothing else ctypes.c_uint64 if is_address else ctypes.c_int32
        for word in arguments:
            if word[0] == "&":
                self._room[word[1:]] = ctypes.create_string_buffer(_ROOM)
        result = function(*map(self._argument, arguments[: len(declared.parameters)])) or 0
        if results:
            self._room[results[0][1:]] = ctypes.create_string_buffer(result.to_bytes(8, "little"), _ROOM)
            assert result, line
        elif expected != "*":
            assert result == int(expected or "0", 0), (line, result)

    def _number(self, word: str) -> int:
        name, _, at = word.partition(".")
        if name in self._room:
            return int(ctypes.c_uint64.from_buffer(self._room[name], 8 * int(at or 0)).value)
        if word.startswith("@"):
            return ctypes.addressof(self._room[word[1:]])
        if word == "f":
            return ctypes.cast(self._function, ctypes.c_void_p).value or 0
        return threading.get_ident() if word == "thread" else int(word, 0)

    def _argument(self, word: str) -> Any:
        if word[0] in "&@":
            return self._room[word[1:]]
        if word[0] == "{":
            numbers = [self._number(each) for each in word[1:-1].split()]
            return type(
                "Words", (ctypes.Structure,), {"_fields_": [("words", ctypes.c_uint64 * len(numbers))]}
            )(tuple(numbers))
        if word[0] in "([":
            kind = ctypes.c_uint32 if word[0] == "(" else ctypes.c_uint64
            self._kept.append((kind * 32)(*map(self._number, word[1:-1].split())))
            return self._kept[-1]
        if word[0] == '"':
            return word[1:-1].encode()
        if word == "f":
            return self._function
        if word == "-":
            return None
        is_real = re.fullmatch(r"\d+\.\d+", word)
        return ctypes.c_float(float(word)) if is_real else ctypes.c_uint64(self._number(word))


def main() -> None:
    """Make them."""
    caller = Caller(sys.argv[1])
    for line in sys.stdin.read().splitlines():
        if not line.startswith("#"):
            caller.run(line)


if __name__ == "__main__":
    main()
