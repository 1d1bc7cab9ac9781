"""Converts the arguments of a C function to those of a dialect's call, and the call's outputs to memory of C.

Memory behind an address is read when the function is called, and written before it returns; a failed call writes only
outputs of ``always``.  An output whose address is NULL fails with the vendor's code.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import operator
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from peerlane.backend import host
from peerlane.diagnostics.memory.addresses import is_code, is_mapped
from peerlane.dialects._shared.c_declarations import Declarations, Declarator, Function, Struct
from peerlane.dialects._shared.c_layout import Layout
from peerlane.dialects._shared.call import Arguments, Refusal, name_code
from peerlane.errors import Error
from peerlane.streams.callbacks import CFunction
from peerlane.support.records import dataclass

Words: TypeAlias = "tuple[Any, ...]"
_Reader: TypeAlias = Callable[[Words], Any]
_Writer: TypeAlias = Callable[[Words, Any], None]
_Key: TypeAlias = "tuple[object, ...]"
_Owner: TypeAlias = "tuple[str, int]"


@dataclass(frozen=True, slots=True)
class _Kept:
    """The memory that the library keeps for a call: objects by their content, and the handles that the call got."""

    owners: list[_Owner]
    objects: dict[tuple[bytes, ...], tuple[Any, ...]]


_NEEDED = {"out", "lib", "inout", "given"}
_PAGE = 4096
_CHANGED = (
    Refusal,
    Error,
    KeyError,
    TypeError,
)  # from ``learn``, when another thread ends an object meanwhile
_TEXTS_KEPT = 4096
_WORD = 8


class Wrong(Exception):
    """A parameter, or a field of its struct, is NULL, or wrong for the reason in the text."""

    def __init__(self, name: str, cause: str = "") -> None:
        super().__init__(cause)
        self.name = name


class _Short(Wrong):
    """The memory behind a parameter is shorter than its count."""

    def __init__(self, name: str, count: int, at: int) -> None:
        super().__init__(name)
        self._count, self._at = count, at

    def __str__(self) -> str:
        return f"{self._count:,} are announced, and {self.name} has less: nothing is at {self._at:#x}"


class Library:
    """The functions of a vendor's C library, which call those of its dialect.

    ``declarations``: of the library's header.
    ``call``: returns the dialect's function by its name.
    ``refuse``: gets the name of a call, the name of a parameter, the reason (empty for NULL), and the arguments of
        the call as in a :class:`Failure`.  Reports the failure, and returns the code.
    ``forms``: the dialect's class for each struct, by the struct's name; all other structs are dicts.
    ``text``: returns the dialect's text for the bytes of a C string.
    ``known``: names in counts that are not parameters; each returns its number for the arguments of the call by name.
    ``learn``: by the name of a C function: after a call that succeeded, teaches native code to answer the next one.
        It gets the epoch (``host.c_epoch``) in which the call began, and the call's words.  If another thread changed
        the state meanwhile it may raise, and the error is ignored.
    """

    def __init__(
        self,
        declarations: Declarations,
        *,
        call: Callable[[str], Callable[..., Any]],
        refuse: Callable[[str, str, str, Arguments], int],
        forms: Mapping[str, type] = MappingProxyType({}),
        known: Mapping[str, Callable[[Mapping[str, Any]], int]] = MappingProxyType({}),
        text: Callable[[bytes], object] = bytes,
        learn: Mapping[str, Callable[[int, Words], object]] = MappingProxyType({}),
    ) -> None:
        self.declarations = declarations
        self.layout = Layout(self.declarations)
        self._refuse = refuse
        self._call, self._forms, self._known, self._text = call, forms, known, text
        self._learn = learn
        self._texts: dict[str, Any] = {}
        self._brief: dict[str, Any] = {}
        self._kept: dict[_Key, _Kept] = {}
        self._owned: dict[_Owner, set[_Key]] = {}

    def entry(self, symbol: str) -> Callable[..., Any]:
        """Return the Python function behind a C function: it takes argument words and returns a word."""
        declared = self.declarations
        function = declared.functions[symbol]
        call = self._call(function.dialect)
        readers = [self._reader(function, at) for at in _inputs(function)]
        outputs = [] if function.is_refused else declared.outputs_of(function)
        always = {at for at in outputs if "always" in function.parameters[at].words}
        writers = [self._writer(function, at) for at in outputs]
        needed = [at for at, each in enumerate(function.parameters) if each.words & _NEEDED]
        returned, answers_code = self._returned(function), function.returns.type in declared.codes
        filled = [
            (number, self._filler(function, at))
            for number, at in enumerate(_inputs(function))
            if "fresh" in function.parameters[at].words
        ]
        ended = [at for at, each in enumerate(function.parameters) if "ends" in each.words]

        def answer(*words: Any) -> Any:
            for at in needed:
                if not words[at]:
                    raise Wrong(function.parameters[at].name)
            arguments = [read(words) for read in readers]
            try:
                result = call(*arguments)
            except (TypeError, ValueError, KeyError) as error:  # as the vendor's binding for Python refuses
                text = str(error.args[0] if error.args else error)
                raise Wrong("", f"{text}: {error.__cause__}" if error.__cause__ else text) from None
            if writers:
                *values, result = result
                for at, write, value in zip(outputs, writers, values, strict=True):
                    if words[at] and (not result or (at in always and value is not None)):
                        write(words, value)
            if not result:
                for at, fill in filled:
                    fill(words, arguments[at])
                for at in ended:
                    self._forget((function.parameters[at].type, words[at]))
            return returned(words, result) if returned is not None else result

        def entry(*words: Any) -> Any:
            try:
                return answer(*words)
            except Wrong as error:
                names = (each.name for each in function.parameters)
                arguments = tuple((name, word, None) for name, word in zip(names, words, strict=True))
                code = self._refuse(function.dialect, error.name, str(error), arguments)
                return code if answers_code else 0
            except KeyboardInterrupt:
                raise  # it reaches the Python code that called C
            except BaseException:  # noqa: BLE001 - no exception passes through C
                traceback.print_exc()
            return declared.failed if answers_code else 0

        learn = self._learn.get(symbol)
        if learn is not None:
            unlearned = entry

            def entry(*words: Any) -> Any:
                epoch = host.c_epoch()
                result = unlearned(*words)
                if not result:
                    with contextlib.suppress(*_CHANGED):
                        learn(epoch, words)
                return result

        name_code(entry, function.name_in_source)
        return entry

    def read_struct(self, name: str, address: int) -> Any:
        """Return the dialect's object for the struct at an address."""
        kind = self.layout.struct(name)
        size = self.size_at(name, address)
        if name not in self._forms:
            return self._as_dict(self.declarations.structs[name], kind.from_address(address))
        copied = kind.from_buffer_copy(
            ctypes.string_at(address, min(size, ctypes.sizeof(kind))).ljust(ctypes.sizeof(kind), b"\0")
        )
        return self._filled(self.declarations.structs[name], copied, self._forms[name](), size)

    def write_struct(self, name: str, address: int, source: Any) -> None:
        """Write the dialect's object for a struct to an address."""
        memory, struct = self.layout.struct(name).from_address(address), self.declarations.structs[name]
        if isinstance(source, dict):
            ctypes.memset(address, 0, ctypes.sizeof(memory))
            self._store_dict(struct, memory, source)
        else:
            self._store(struct, memory, source, type(source)())

    def size_at(self, name: str, address: int) -> int:
        """Return the size of the program's struct; a vendor's older struct may be shorter."""
        return ctypes.sizeof(self.layout.struct(name))

    def text(self, value: str | None) -> int:
        """Return the address of a text, which is kept for ever: there must be few of them."""
        if value is None:
            return 0
        buffer = self._texts.get(value) or self._texts.setdefault(value, _buffer_of(value))
        return ctypes.addressof(buffer)

    def _brief_text(self, value: str | None) -> int:
        """Return the address of a text, which is kept until the program has asked for some thousand others."""
        if value is None:
            return 0
        buffer = self._brief.pop(value, None) or _buffer_of(value)
        self._brief[value] = buffer  # the newest is the last
        if len(self._brief) > _TEXTS_KEPT:
            del self._brief[next(iter(self._brief))]
        return ctypes.addressof(buffer)

    def _returned(self, function: Function) -> Callable[[Words, Any], Any] | None:
        """Return the function that makes the word of a result that is not a code; None for a code."""
        if function.returns.type == "void" and not function.returns.is_pointer:
            return lambda _, __: 0
        if function.returns.type != "char" or not function.returns.stars:
            return None
        if "brief" in function.returns.words:
            return lambda _, value: self._brief_text(value)
        if not self._owners(function):
            return lambda _, value: self.text(value)
        return lambda words, value: (
            0 if value is None else self._keep(function, "", words, (_buffer_of(value),))
        )

    def _owners(self, function: Function) -> list[int]:
        """Return the positions of the handles that a function gets; memory that it returns lives as long as they."""
        return [
            at
            for at in _inputs(function)
            if (self.declarations.scalar(function.parameters[at]) or (0,))[0] == _WORD
        ]

    def _keep(self, function: Function, name: str, words: Words, buffers: tuple[Any, ...]) -> int:
        """Keep some buffers, or those kept before with the same content; return the address of the first."""
        key = (function.name, name, *(words[at] for at in _inputs(function)))
        content = tuple(
            map(bytes, buffers[1:] or buffers)
        )  # the first of several has addresses of the others
        kept = self._kept.get(key)
        if kept is None:
            owners = [(function.parameters[at].type, words[at]) for at in self._owners(function)]
            kept = self._kept.setdefault(key, _Kept(owners, {}))
            for each in owners:
                self._owned.setdefault(each, set()).add(key)
        return ctypes.addressof(kept.objects.setdefault(content, buffers)[0])

    def _forget(self, owner: _Owner) -> None:
        """Free the memory that is kept for a handle that ended."""
        for key in self._owned.pop(owner, ()):
            kept = self._kept.pop(key, None)  # another thread may end another owner
            for each in kept.owners if kept is not None else ():
                self._owned.get(each, set()).discard(key)

    def _counter(self, function: Function, count: str) -> Callable[[Words], int]:
        """Return the function that computes the count of an array."""
        if count.isdigit():
            number = int(count)
            return lambda _: number
        names = [each.name for each in function.parameters]
        factors = count.split("*")
        if all(each in names for each in factors):
            positions = [names.index(each) for each in factors]
            pointers = [
                function.parameters[at] if function.parameters[at].stars else None for at in positions
            ]

            def counted(words: Words) -> int:
                number = 1
                for at, pointer in zip(positions, pointers, strict=True):
                    number *= (
                        self.layout.element_of(pointer, 1).from_address(words[at]).value
                        if pointer
                        else words[at]
                    )
                return number

            return counted

        def known(words: Words) -> int:
            number = 1
            for each in factors:
                number *= self._known[each](dict(zip(names, words, strict=True)))
            return number

        return known

    def _reader(self, function: Function, at: int) -> _Reader:
        parameter = function.parameters[at]
        if parameter.type in self.declarations.callbacks:
            return lambda words: self._callback(parameter, words[at])
        if "address" in parameter.words:
            return operator.itemgetter(at)
        if "fresh" in parameter.words:
            return self._fresh(function, at)
        if parameter.count:
            return self._array_reader(function, at)
        if parameter.stars == 1 and parameter.type == "char":
            return lambda words: self._text(ctypes.string_at(words[at])) if words[at] else None
        if not parameter.stars and parameter.type in self.declarations.structs:
            return lambda words: self.read_struct(
                parameter.type, words[at]
            )  # by value, the word is its address
        if parameter.stars == 1 and parameter.type in self.declarations.structs:
            absent: Any = None if parameter.type in self._forms else {}
            name = parameter.name
            return lambda words: (
                _inside(name, self.read_struct, parameter.type, words[at]) if words[at] else absent
            )
        if parameter.stars and parameter.type != "void":
            kind = self.layout.element_of(parameter, 1)
            return lambda words: kind.from_address(words[at]).value if words[at] else 0
        return operator.itemgetter(at)

    def _fresh(self, function: Function, at: int) -> _Reader:
        """Return the reader that makes new structs for the call to fill."""
        parameter = function.parameters[at]
        form, size = self._forms[parameter.type], ctypes.sizeof(self.layout.struct(parameter.type))
        if not parameter.count:
            return lambda words: form() if words[at] else None
        counter = self._counter(function, parameter.count)

        def structs(words: Words) -> list[Any] | None:
            if not words[at]:
                return None
            count = counter(words)
            _refuse_short(parameter.name, words[at], size, count)
            return [form() for _ in range(count)]

        return structs

    def _array_reader(self, function: Function, at: int) -> _Reader:
        parameter = function.parameters[at]
        counter, elements = self._counter(function, parameter.count), self._elements(parameter)
        may_be_empty = "some" in parameter.words

        def array(words: Words) -> Any:
            if not words[at] and not may_be_empty:
                return None
            count = counter(words)
            if count < 0:
                raise Wrong(parameter.name, f"{parameter.count} is {count}; the least is 0")
            if count and not words[at]:
                raise Wrong(parameter.name)
            return elements(words[at], count) if count else []

        return array

    def _elements(self, parameter: Declarator) -> Callable[[int, int], Any]:
        """Return the function that reads an array of an address and a count."""
        if parameter.type in self.declarations.structs and not parameter.stars:
            name = parameter.type

            def structs(address: int, count: int) -> list[Any]:
                elements = []
                _refuse_short(parameter.name, address, count and self.size_at(name, address), count)
                for _ in range(count):
                    elements.append(_inside(parameter.name, self.read_struct, name, address))
                    address += self.size_at(name, address)
                return elements

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
                data = _bytes_of(value)[: counter(words) - 1] + b"\0"
                ctypes.memmove(words[at], data, len(data))

            return text
        if parameter.type == "uint8_t":

            def data(words: Words, value: bytes | int) -> None:
                count = counter(words)
                raw = value.to_bytes(count, "little") if isinstance(value, int) else value[:count]
                ctypes.memmove(words[at], raw, len(raw))

            return data
        if parameter.type in self.declarations.structs and not parameter.stars:

            def structs(words: Words, value: Sequence[Any]) -> None:
                for number, each in enumerate(value):
                    address = words[at] + number * ctypes.sizeof(self.layout.struct(parameter.type))
                    self.write_struct(parameter.type, address, each)

            return structs
        kind = self.layout.element_of(parameter)

        def numbers(words: Words, value: Sequence[int]) -> None:
            (kind * len(value)).from_address(words[at])[:] = value

        return numbers

    def _library_owned(self, function: Function, at: int) -> _Writer:
        """Return the writer of an output whose memory the library keeps, as long as the handles that the call got.

        The value 0 is NULL.
        """
        parameter = function.parameters[at]

        def write(words: Words, value: Any) -> None:
            address = (
                0
                if value == 0
                else self._keep(function, parameter.name, words, self._buffers_of(parameter, value))
            )
            ctypes.c_uint64.from_address(words[at]).value = address

        return write

    def _buffers_of(self, parameter: Declarator, value: Any) -> tuple[Any, ...]:
        """Return buffers: the first holds the value, and the others the memory that it points to."""
        if isinstance(value, bytes):
            return (ctypes.create_string_buffer(value, max(len(value), 1)),)
        if parameter.type == "char":
            texts = [_buffer_of(each) for each in value]
            return ((ctypes.c_uint64 * max(len(texts), 1))(*map(ctypes.addressof, texts)), *texts)
        kind = self.layout.element_of(Declarator(parameter.name, parameter.type))
        if parameter.type not in self.declarations.structs:
            return ((kind * max(len(value), 1))(*value),)
        array = (kind * max(len(value), 1))()
        for number, each in enumerate(value):
            self.write_struct(parameter.type, ctypes.addressof(array[number]), each)
        return (array,)

    def _filler(self, function: Function, at: int) -> _Writer:
        """Return the writer of structs that a call filled; bits that belong to no field are set."""
        parameter = function.parameters[at]
        size = ctypes.sizeof(self.layout.struct(parameter.type))

        def write(words: Words, value: Any) -> None:
            for number, each in enumerate(value if isinstance(value, list) else [value] if value else []):
                address = words[at] + number * size
                ctypes.memset(address, 0xFF, size)
                self.write_struct(parameter.type, address, each)

        return write

    def _callback(self, parameter: Declarator, address: int) -> Callable[..., Any] | None:
        if not address:
            return None
        if not is_code(address):
            raise Wrong(parameter.name, f"{parameter.name} is {address:#x}, where no function is")
        declared = self.declarations.callbacks[parameter.type]
        if declared.returns.type == "void" and all(each.is_pointer for each in declared.parameters):
            return CFunction(address)
        returns = None if declared.returns.type == "void" else self.layout.type_of(declared.returns)
        return ctypes.CFUNCTYPE(returns, *map(self.layout.type_of, declared.parameters))(address)

    def _filled(self, struct: Struct, copied: Any, target: Any, size: int) -> Any:
        """Set the fields of a dialect's object from a struct in memory, except those beyond ``size``."""
        for each in struct.fields:
            if "unread" in each.words:
                continue
            inner = self.declarations.structs.get(each.type) if not each.is_pointer else None
            if inner is not None and not each.name:
                self._filled(inner, copied, target, size)
                continue
            member = getattr(type(copied), each.name)
            if member.offset + member.size > size:
                continue
            value = getattr(copied, each.name)
            if inner is not None:
                self._filled(inner, value, getattr(target, each.name), ctypes.sizeof(value))
            elif each.is_behind:
                count = getattr(copied, each.count)
                elements = self._elements(Declarator(each.name, each.type))
                setattr(target, each.name, elements(value, count) if value else None)
            elif each.count:
                raw = bytes(value)
                setattr(target, each.name, _text_of(raw) if each.type == "char" else raw)
            elif each.type == "char" and each.stars:
                setattr(target, each.name, _text_of(ctypes.string_at(value)) if value else None)
            else:
                setattr(target, each.name, bool(value) if each.type == "bool" else value)
        return target

    def _as_dict(self, struct: Struct, memory: Any) -> dict[str, Any]:
        """Return the fields of a struct in memory by their names."""
        values = {}
        for each in struct.fields:
            if "unread" in each.words:
                continue
            if not each.name:  # its fields are those of the struct around it
                values.update(self._as_dict(self.declarations.structs[each.type], memory))
                continue
            value = getattr(memory, each.name)
            if each.is_behind:
                elements = self._elements(Declarator(each.name, each.type))
                value = elements(value, getattr(memory, each.count)) if value else []
            elif each.count:
                value = _text_of(bytes(value)) if each.type == "char" else list(value)
            elif each.type in self.declarations.structs and not each.is_pointer:
                value = self._as_dict(self.declarations.structs[each.type], value)
            values[each.name] = value
        return values

    def _store_dict(self, struct: Struct, memory: Any, source: Mapping[str, Any]) -> None:
        """Write the fields that are in a dict."""
        for each in struct.fields:
            if not each.name:
                self._store_dict(self.declarations.structs[each.type], memory, source)
            if each.name not in source:
                continue
            value = source[each.name]
            if isinstance(value, str):
                data = _bytes_of(value)[: int(each.count) - 1] + b"\0"
                ctypes.memmove(getattr(memory, each.name), data, len(data))
            elif isinstance(value, dict):
                self._store_dict(self.declarations.structs[each.type], getattr(memory, each.name), value)
            elif isinstance(value, list):
                getattr(memory, each.name)[: len(value)] = value
            else:
                setattr(memory, each.name, value)

    def _store(self, struct: Struct, memory: Any, source: Any, fresh: Any) -> None:
        """Write the fields of a dialect's object; of a union only those that were set."""
        for each in struct.fields:
            if each.name and not hasattr(source, each.name):
                continue
            if "unread" in each.words:
                if each.name:
                    setattr(memory, each.name, 0)  # an address that no program may follow
                continue
            inner = self.declarations.structs.get(each.type) if not each.is_pointer else None
            if inner is not None and not each.name:
                self._store(inner, memory, source, fresh)
                continue
            value = getattr(source, each.name)
            if struct.is_union and value == getattr(fresh, each.name):
                continue
            if inner is not None:
                self._store(inner, getattr(memory, each.name), value, type(value)())
            elif each.is_behind or (each.type == "char" and each.stars):
                setattr(memory, each.name, 0)
            elif each.count:
                raw = _bytes_of(value) + b"\0" if isinstance(value, str) else value
                array = getattr(memory, each.name)
                ctypes.memmove(array, raw, min(len(raw), ctypes.sizeof(array)))
            else:
                setattr(memory, each.name, value)


def _refuse_short(name: str, address: int, size: int, count: int) -> None:
    """Refuse to read memory that is not mapped, as after a wrong count."""
    last = address + size * count - 1
    for at in itertools.chain([last], range(address, last, _PAGE)) if size * count else ():
        if at >= 1 << 64 or not is_mapped(at):
            raise _Short(name, count, at)


def _inside(name: str, read: Callable[..., Any], *arguments: object) -> Any:
    """Call a reader of a struct; an error about a field gets the name of the parameter too."""
    try:
        return read(*arguments)
    except Wrong as error:
        error.name = f"{error.name} of {name}"
        raise


def _text_of(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode(errors="surrogateescape")


def _bytes_of(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _buffer_of(text: str) -> Any:
    return ctypes.create_string_buffer(_bytes_of(text))


def _inputs(function: Function) -> list[int]:
    return [
        at
        for at, each in enumerate(function.parameters)
        if not each.words & {"out", "lib", "maybe", "unread"}
    ]
