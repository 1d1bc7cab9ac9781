"""Makes the arguments of a dialect's call from those of a C function, and writes its outputs to where they belong.

What lies at an address is read when the function is called, and written before it returns; a failed call writes
nothing.  An output whose address is NULL fails with the vendor's code.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from peerlane.diagnostics.addresses import is_mapped
from peerlane.dialects._shared.c_declarations import Declarations, Declarator, Function, Struct
from peerlane.dialects._shared.c_layout import Layout

Words: TypeAlias = "tuple[Any, ...]"
_Reader: TypeAlias = Callable[[Words], Any]
_Writer: TypeAlias = Callable[[Words, Any], None]


_NEEDED = {"out", "lib", "inout", "given"}
_CODES = ("aclError", "HcclResult", "HcommResult", "int32_t")
_PAGE = 4096
_TEXTS_KEPT = 4096


class _Wrong(Exception):
    """A parameter is NULL, or wrong in the way that the text says."""

    def __init__(self, name: str, cause: str = "") -> None:
        super().__init__(cause)
        self.name = name


class Library:
    """A vendor's library, as C sees it and as its dialect has it.

    Parameters
    ----------
    declarations : Declarations
    call : callable
        Returns the dialect's function by its name.
    refuse : callable
        Told the name of a call, that of a parameter, and what is wrong: empty if it is NULL.  Returns the code.
    failed : int
        What a function returns whose call raised an exception that no vendor has.
    forms : mapping of str to type
        By the name of a struct: the class that the dialect has for it.  Of other structs it has dicts.
    text : callable
        Makes what the dialect takes for a text of its bytes.
    known : mapping of str to callable
        Names in counts that are not parameters; each returns its number for the arguments of the call by name.
    """

    def __init__(
        self,
        declarations: Declarations,
        *,
        call: Callable[[str], Callable[..., Any]],
        refuse: Callable[[str, str, str], int],
        failed: int,
        forms: Mapping[str, type] = MappingProxyType({}),
        known: Mapping[str, Callable[[Mapping[str, Any]], int]] = MappingProxyType({}),
        text: Callable[[bytes], object] = bytes,
    ) -> None:
        self.declarations, self.failed = declarations, failed
        self.layout = Layout(declarations)
        self._refuse = refuse
        self._call, self._forms, self._known, self._text = call, forms, known, text
        self._texts: dict[str, Any] = {}
        self._kept: dict[tuple[object, ...], Any] = {}

    def entry(self, symbol: str) -> Callable[..., Any]:
        """Return what answers a C function: it takes its words, and returns its word."""
        function = self.declarations.functions[symbol]
        call = self._call(function.dialect)
        readers = [self._reader(function, at) for at in _inputs(function)]
        outputs = self._outputs(function)
        writers = [self._writer(function, at) for at in outputs]
        needed = [at for at, each in enumerate(function.parameters) if each.words & _NEEDED]
        returned, answers_code = self._returned(function), function.returns.type in _CODES
        filled = [
            (number, self._filler(function, at))
            for number, at in enumerate(_inputs(function))
            if "inout" in function.parameters[at].words and not self._is_number(function.parameters[at])
        ]

        def answer(*words: Any) -> Any:
            for at in needed:
                if not words[at]:
                    raise _Wrong(function.parameters[at].name)
            given = [read(words) for read in readers]
            try:
                result = call(*given)
            except (TypeError, ValueError, KeyError) as error:  # as the vendor's binding for Python refuses
                raise _Wrong("", str(error)) from None
            if writers:
                *values, result = result
                if not result:
                    for at, write, value in zip(outputs, writers, values, strict=True):
                        if words[at]:
                            write(words, value)
            for at, fill in filled:
                if not result:
                    fill(words, given[at])
            return returned(result) if returned is not None else result

        def entry(*words: Any) -> Any:
            try:
                return answer(*words)
            except _Wrong as error:
                code = self._refuse(function.dialect, error.name, str(error))
                return code if answers_code else 0
            except KeyboardInterrupt:
                raise  # the Python that called C gets it
            except BaseException:  # noqa: BLE001 - no exception passes through C
                traceback.print_exc()
            return self.failed if answers_code else 0

        code = entry.__code__.replace(co_name=symbol)  # findings name the call
        if sys.version_info >= (3, 11):
            code = code.replace(co_qualname=symbol)
        entry.__code__ = code
        return entry

    def read_struct(self, name: str, address: int) -> Any:
        """Return what the dialect has for the struct at an address."""
        kind = self.layout.struct(name)
        size = self.size_at(name, address)
        if name not in self._forms:
            return self._as_dict(self.declarations.structs[name], kind.from_address(address))
        copied = kind.from_buffer_copy(
            ctypes.string_at(address, min(size, ctypes.sizeof(kind))).ljust(ctypes.sizeof(kind), b"\0")
        )
        return self._filled(self.declarations.structs[name], copied, self._forms[name](), size)

    def write_struct(self, name: str, address: int, made: Any) -> None:
        """Write what the dialect has for a struct to an address."""
        place, struct = self.layout.struct(name).from_address(address), self.declarations.structs[name]
        if isinstance(made, dict):
            ctypes.memset(address, 0, ctypes.sizeof(place))
            self._store_dict(struct, place, made)
        else:
            self._store(struct, place, made, type(made)())

    def size_at(self, name: str, address: int) -> int:
        """Return how many bytes the program's struct has: an older one says so in its header."""
        return ctypes.sizeof(self.layout.struct(name))

    def text(self, value: str | None) -> int:
        """Return the address of a text, which stays while the program asks for less than some thousand others."""
        if value is None:
            return 0
        made = self._texts.pop(value, None) or ctypes.create_string_buffer(
            value.encode(errors="surrogateescape")
        )
        self._texts[value] = made  # the newest is the last
        if len(self._texts) > _TEXTS_KEPT:
            del self._texts[next(iter(self._texts))]
        return ctypes.addressof(made)

    def _is_number(self, parameter: Declarator) -> bool:
        return parameter.type not in self.declarations.structs

    def _outputs(self, function: Function) -> list[int]:
        """Return the places of the parameters that the outputs of the dialect's call belong to, in their order."""
        names = [each.name for each in function.parameters]
        if function.outputs:
            return [names.index(each) for each in function.outputs]
        return [
            at
            for at, each in enumerate(function.parameters)
            if each.words & {"out", "lib", "maybe"} or ("inout" in each.words and self._is_number(each))
        ]

    def _returned(self, function: Function) -> Callable[[Any], Any] | None:
        """Return what makes the word of a result that is not a code; None for a code."""
        if function.returns.type == "void" and not function.returns.is_pointer:
            return lambda _: 0
        if function.returns.type == "char" and function.returns.stars:
            return self.text
        return None

    def _counter(self, function: Function, count: str) -> Callable[[Words], int]:
        """Return what computes the count of an array."""
        if count.isdigit():
            number = int(count)
            return lambda _: number
        names = [each.name for each in function.parameters]
        factors = count.split("*")
        if all(each in names for each in factors):
            places = [names.index(each) for each in factors]
            deref = [function.parameters[at] if function.parameters[at].stars else None for at in places]

            def counted(words: Words) -> int:
                found = 1
                for at, pointer in zip(places, deref, strict=True):
                    found *= (
                        self.layout.element_of(pointer, 1).from_address(words[at]).value
                        if pointer
                        else words[at]
                    )
                return found

            return counted

        def known(words: Words) -> int:
            found = 1
            for each in factors:
                found *= self._known[each](dict(zip(names, words, strict=True)))
            return found

        return known

    def _reader(self, function: Function, at: int) -> _Reader:
        parameter = function.parameters[at]
        if parameter.type in self.declarations.callbacks:
            return lambda words: self._callback(parameter.type, words[at])
        if parameter.count:
            counter = self._counter(function, parameter.count)
            elements = self._elements(parameter)
            return lambda words: elements(words[at], max(counter(words), 0)) if words[at] else None
        if parameter.stars == 1 and parameter.type == "char":
            return lambda words: self._text(ctypes.string_at(words[at])) if words[at] else None
        if parameter.stars == 1 and parameter.type in self.declarations.structs:
            absent: Any = None if parameter.type in self._forms else {}
            return lambda words: self.read_struct(parameter.type, words[at]) if words[at] else absent
        if parameter.stars and parameter.type != "void":
            kind = self.layout.element_of(parameter, 1)
            return lambda words: kind.from_address(words[at]).value if words[at] else 0
        return lambda words: words[at]

    def _elements(self, parameter: Declarator) -> Callable[[int, int], Any]:
        """Return what reads an array."""
        if parameter.type in self.declarations.structs and not parameter.stars:
            name = parameter.type

            def structs(address: int, count: int) -> list[Any]:
                found = []
                _refuse_short(parameter.name, address, count and self.size_at(name, address), count)
                for _ in range(count):
                    found.append(self.read_struct(name, address))
                    address += self.size_at(name, address)
                return found

            return structs
        kind = self.layout.element_of(parameter)

        def numbers(address: int, count: int) -> Any:
            _refuse_short(parameter.name, address, ctypes.sizeof(kind), count)
            return (
                ctypes.string_at(address, count) if is_bytes else list((kind * count).from_address(address))
            )

        is_bytes = parameter.type == "uint8_t"
        return numbers

    def _writer(self, function: Function, at: int) -> _Writer:
        parameter = function.parameters[at]
        if "lib" in parameter.words:
            return self._library_owned(function, at)
        if parameter.count:
            return self._array_writer(function, at)
        if parameter.type in self.declarations.structs and parameter.stars == 1:
            return lambda words, value: self.write_struct(parameter.type, words[at], value)
        kind = self.layout.element_of(parameter, 1)

        def write(words: Words, value: Any) -> None:
            kind.from_address(words[at]).value = value

        return write

    def _array_writer(self, function: Function, at: int) -> _Writer:
        parameter = function.parameters[at]
        counter = self._counter(function, parameter.count)
        if parameter.type == "char":

            def text(words: Words, value: str) -> None:
                data = value.encode()[: counter(words) - 1] + b"\0"
                ctypes.memmove(words[at], data, len(data))

            return text
        if parameter.type == "uint8_t":

            def data(words: Words, value: bytes | int) -> None:
                count = counter(words)
                made = value.to_bytes(count, "little") if isinstance(value, int) else value[:count]
                ctypes.memmove(words[at], made, len(made))

            return data
        if parameter.type in self.declarations.structs and not parameter.stars:

            def structs(words: Words, value: Sequence[Any]) -> None:
                for number, each in enumerate(value):
                    place = words[at] + number * ctypes.sizeof(self.layout.struct(parameter.type))
                    self.write_struct(parameter.type, place, each)

            return structs
        kind = self.layout.element_of(parameter)

        def numbers(words: Words, value: Sequence[int]) -> None:
            (kind * len(value)).from_address(words[at])[:] = value

        return numbers

    def _library_owned(self, function: Function, at: int) -> _Writer:
        """Return what gives out memory of the library; it stays until the same arguments get other memory."""
        parameter = function.parameters[at]

        def write(words: Words, value: Any) -> None:
            key = (function.name, parameter.name, *(words[each] for each in _inputs(function)))
            made = self._kept[key] = self._made(parameter, value)
            ctypes.c_uint64.from_address(words[at]).value = ctypes.addressof(made[0])

        return write

    def _made(self, parameter: Declarator, value: Any) -> tuple[Any, ...]:
        """Return objects in memory, the first with a value and the others with what it has the addresses of."""
        if isinstance(value, bytes):
            return (ctypes.create_string_buffer(value, max(len(value), 1)),)
        if parameter.type == "char":
            texts = [ctypes.create_string_buffer(each.encode()) for each in value]
            return ((ctypes.c_uint64 * max(len(texts), 1))(*map(ctypes.addressof, texts)), *texts)
        kind = self.layout.element_of(Declarator(parameter.name, parameter.type))
        if parameter.type not in self.declarations.structs:
            return ((kind * max(len(value), 1))(*value),)
        array = (kind * max(len(value), 1))()
        for number, each in enumerate(value):
            self.write_struct(parameter.type, ctypes.addressof(array[number]), each)
        return (array,)

    def _filler(self, function: Function, at: int) -> _Writer:
        """Return what writes structs back that a call filled, every bit that no field names set."""
        parameter = function.parameters[at]
        size = ctypes.sizeof(self.layout.struct(parameter.type))

        def write(words: Words, value: Any) -> None:
            for number, each in enumerate(value if isinstance(value, list) else [value]):
                place = words[at] + number * size
                ctypes.memset(place, 0xFF, size)
                self.write_struct(parameter.type, place, each)

        return write

    def _callback(self, name: str, address: int) -> Callable[..., Any] | None:
        if not address:
            return None
        declared = self.declarations.callbacks[name]
        returns = None if declared.returns.type == "void" else self.layout.type_of(declared.returns)
        return ctypes.CFUNCTYPE(returns, *map(self.layout.type_of, declared.parameters))(address)

    def _filled(self, struct: Struct, copied: Any, made: Any, size: int) -> Any:
        """Set the fields of what a dialect has from a struct in memory; those beyond ``size`` stay."""
        for each in struct.fields:
            if "unread" in each.words:
                continue
            inner = self.declarations.structs.get(each.type) if not each.is_pointer else None
            if inner is not None and not each.name:
                self._filled(inner, copied, made, size)
                continue
            place = getattr(type(copied), each.name)
            if place.offset + place.size > size:
                continue
            value = getattr(copied, each.name)
            if inner is not None:
                self._filled(inner, value, getattr(made, each.name), ctypes.sizeof(value))
            elif each.is_behind:
                count = getattr(copied, each.count)
                setattr(
                    made,
                    each.name,
                    self._elements(Declarator("", each.type))(value, count) if value else None,
                )
            elif each.count:
                raw = bytes(value)
                setattr(made, each.name, _text_of(raw) if each.type == "char" else raw)
            elif each.type == "char" and each.stars:
                setattr(made, each.name, _text_of(ctypes.string_at(value)) if value else None)
            else:
                setattr(made, each.name, bool(value) if each.type == "bool" else value)
        return made

    def _as_dict(self, struct: Struct, place: Any) -> dict[str, Any]:
        """Return the fields of a struct in memory by their names."""
        found = {}
        for each in struct.fields:
            if "unread" in each.words:
                continue
            value = getattr(place, each.name)
            if each.is_behind:
                elements = self._elements(Declarator("", each.type))
                value = elements(value, getattr(place, each.count)) if value else []
            elif each.count:
                value = _text_of(bytes(value)) if each.type == "char" else list(value)
            elif each.type in self.declarations.structs and not each.is_pointer:
                value = self._as_dict(self.declarations.structs[each.type], value)
            found[each.name] = value
        return found

    def _store_dict(self, struct: Struct, place: Any, made: Mapping[str, Any]) -> None:
        """Write the fields that a dict has."""
        for each in struct.fields:
            if each.name not in made:
                continue
            value = made[each.name]
            if isinstance(value, str):
                data = value.encode()[: int(each.count) - 1] + b"\0"
                ctypes.memmove(getattr(place, each.name), data, len(data))
            elif isinstance(value, dict):
                self._store_dict(self.declarations.structs[each.type], getattr(place, each.name), value)
            elif isinstance(value, list):
                getattr(place, each.name)[: len(value)] = value
            else:
                setattr(place, each.name, value)

    def _store(self, struct: Struct, place: Any, made: Any, fresh: Any) -> None:
        """Write the fields of what a dialect has; of a union those that were set."""
        for each in struct.fields:
            if "unread" in each.words or (each.name and not hasattr(made, each.name)):
                continue
            inner = self.declarations.structs.get(each.type) if not each.is_pointer else None
            if inner is not None and not each.name:
                self._store(inner, place, made, fresh)
                continue
            value = getattr(made, each.name)
            if struct.is_union and value == getattr(fresh, each.name):
                continue
            if inner is not None:
                self._store(inner, getattr(place, each.name), value, type(value)())
            elif each.is_behind or (each.type == "char" and each.stars):
                setattr(place, each.name, 0)
            elif each.count:
                raw = value.encode() + b"\0" if isinstance(value, str) else value
                target = getattr(place, each.name)
                ctypes.memmove(target, raw, min(len(raw), ctypes.sizeof(target)))
            else:
                setattr(place, each.name, value)


def _refuse_short(name: str, address: int, size: int, count: int) -> None:
    """Refuse to read more than the host can, as of a count that is wrong."""
    last = address + size * count - 1
    for at in itertools.chain([last], range(address, last, _PAGE)) if size * count else ():
        if at >= 1 << 64 or not is_mapped(at):
            raise _Wrong(name, f"{count:,} are announced, and {name} has less: nothing is at {at:#x}")


def _text_of(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode(errors="backslashreplace")


def _inputs(function: Function) -> list[int]:
    return [
        at
        for at, each in enumerate(function.parameters)
        if not each.words & {"out", "lib", "maybe", "unread"} and not function.is_refused
    ]
