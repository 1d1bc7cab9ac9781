"""Lets tests of a dialect call its C library, and compares both: ``pytest -p helpers.hip_through_c``.

Each call's arguments become those of C, the library hands them to the dialect, and what it writes must be what the
dialect returned.  What native code writes without the dialect is what the tests get.  What C cannot be given (an
object of Python in the place of an address) goes the ordinary way.
With ``THROUGH_C`` in the environment the names of the functions that succeeded and failed are written to that file.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from peerlane.dialects._shared.c_declarations import Declarations, Declarator, Function
from peerlane.dialects._shared.c_layout import Layout
from peerlane.dialects._shared.call import Refusal

Call: TypeAlias = Callable[..., Any]
_ROOM = 4096  # for the longest struct
_answered = threading.local()
_kept: list[Any] = []  # a program in C keeps what a queued call reads
_succeeded: set[str] = set()
_failed: set[str] = set()


class NotForC(Exception):
    """An argument that C has no word for."""


class Through:
    """A dialect whose calls go through its library.

    Parameters
    ----------
    declared : Declarations
    library : ctypes.CDLL
    given : callable
        Returns the values of a call's arguments, as the dialect reads them.
    success : int or tuple of int
        What a call without outputs returns.  A tuple has the code first, else it is the last of a call's outputs.
    struct_of : callable
        Returns the bytes of a struct, or NotForC, for its parameter and what the dialect has for it.
    """

    def __init__(
        self,
        declared: Declarations,
        library: ctypes.CDLL,
        *,
        convert: Callable[[Function, Sequence[Any]], Sequence[Any]],
        success: Any,
        struct_of: Callable[[Declarator, Any], bytes],
    ) -> None:
        self._declared, self._library, self._layout = declared, library, Layout(declared)
        self._convert, self._success, self._struct_of = convert, success, struct_of

    def wrap(self, function: Function, inner: Call) -> tuple[Call, Call]:
        """Return what the library calls instead of the dialect's call, and what the tests do."""
        called, outputs = self._library[function.name], self._declared.outputs_of(function)
        inputs = [
            at
            for at, each in enumerate(function.parameters)
            if at not in outputs and not each.words & {"out", "unread"}
        ]

        def call(*args: Any, **convert: Any) -> Any:
            if convert or len(args) != len(inputs):
                return inner(*args, **convert)
            try:
                values = dict(zip(inputs, self._convert(function, args), strict=True))
                words = self._words(function, values)
            except (
                NotForC,
                Refusal,
                TypeError,
                ValueError,
                OverflowError,
                BufferError,
            ):  # the dialect says what is wrong
                return inner(*args)
            _kept.append(args)
            rooms = {
                at: ctypes.create_string_buffer(_ROOM)
                for at in range(len(function.parameters))
                if at not in words
            }
            _answered.result = _answered.raised = None
            code = called(*({**words, **rooms}[at] for at in range(len(function.parameters))))
            if _answered.raised is not None:
                assert code
                _failed.add(function.name)
                raise _answered.raised
            result = _answered.result
            if result is None and code == 0:  # native code made the call: another could allocate
                _succeeded.add(function.name)
                return self._result([self._number(function.parameters[at], rooms[at]) for at in outputs])
            if result is None:  # the library refused it
                result = inner(*args)
            values = list(result) if isinstance(result, tuple) else [result]
            assert code == values.pop(0 if isinstance(self._success, tuple) else -1), (
                function.name,
                code,
                result,
            )
            (_failed if code else _succeeded).add(function.name)
            for at, value in zip(outputs, values, strict=True) if not code else ():
                parameter = function.parameters[at]
                counts, returned = self._written(parameter, rooms[at], value)
                assert counts == returned, (function.name, parameter.name, counts, returned)
            return result

        def record(*args: Any) -> Any:
            _answered.result = _answered.raised = None
            try:
                outcome = inner(*args)
            except Exception as error:
                _answered.raised = error
                raise
            _answered.result = outcome
            return outcome

        return record, call

    def _words(self, function: Function, values: Mapping[int, Any]) -> dict[int, Any]:
        words = {at: self._word(function.parameters[at], each) for at, each in values.items()}
        names = [each.name for each in function.parameters]
        for at, value in values.items():
            count = function.parameters[at].count
            if count in names and "unread" in function.parameters[names.index(count)].words:
                words[names.index(count)] = ctypes.c_size_t(len(value))
        return words

    def _word(self, parameter: Declarator, value: Any) -> Any:
        if parameter.type in self._declared.structs and not parameter.is_pointer:
            return self._layout.type_of(parameter).from_buffer_copy(self._struct_of(parameter, value))
        if isinstance(value, dict):
            return ctypes.create_string_buffer(self._struct_of(parameter, value))
        if isinstance(value, (bytes, str)):
            return ctypes.c_char_p(os.fsencode(value))
        if isinstance(value, (list, tuple)):
            return (self._layout.element_of(parameter) * len(value))(*(int(each or 0) for each in value))
        try:
            kind = ctypes.c_uint64 if parameter.count else self._layout.type_of(parameter)
            return kind(float(value) if kind in (ctypes.c_float, ctypes.c_double) else int(value or 0))
        except TypeError:
            raise NotForC from None

    def _written(self, parameter: Declarator, room: Any, value: Any) -> tuple[Any, Any]:
        """Return what the library wrote, and what the dialect returned in the same form."""
        if parameter.type == "char" and (parameter.count or "lib" not in parameter.words):
            text = room.value if parameter.count else ctypes.string_at(int.from_bytes(room[:8], "little"))
            return text, os.fsencode(str(value))
        if parameter.type in self._declared.structs:
            data = self._struct_of(parameter, value)
            return room.raw[: len(data)], data
        if parameter.count or "lib" in parameter.words:
            return None, None
        kind = self._layout.element_of(parameter, 1)
        returned = kind(value if isinstance(value, float) else int(value or 0)).value
        return self._number(parameter, room), returned

    def _number(self, parameter: Declarator, room: Any) -> Any:
        return self._layout.element_of(parameter, 1).from_buffer(room).value

    def _result(self, outputs: Sequence[Any]) -> Any:
        """Return what the dialect's call returns when it has succeeded with these outputs."""
        if isinstance(self._success, tuple):
            return *self._success, *outputs
        return (*outputs, self._success) if outputs else self._success


def write_down() -> None:
    """Tell the process that started pytest what was called."""
    if "THROUGH_C" in os.environ:
        counts = {"succeeded": sorted(_succeeded), "failed": sorted(_failed)}
        Path(os.environ["THROUGH_C"]).write_text(json.dumps(counts))
