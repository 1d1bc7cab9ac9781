"""How a dialect declares a vendor's call, so that every call fails in the vendor's shape.

:class:`Table` has what every dialect's calls have: the functions by module, what the reference page says of them, and
one way to fail.  :class:`Convention` is the table of a vendor whose calls answer with outputs and a code behind them.
There a call is a plain function whose annotations say how each argument is parsed, declared with the number of its
outputs and with the checks that come before everything else, in the vendor's order::

    @acl.call("acl.rt.map_mem", checks=[null("ptr", "handle"), zero("size"), reserved("flags")])
    def map_mem(ptr: Address, size: Word, offset: Word, handle: Address, flags: Word) -> None:

It returns its outputs or raises; the vendor's return value is made here, once.
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, NoReturn, TypeAlias, TypeVar, get_args

from peerlane.errors import Error, Fault
from peerlane.support.records import dataclass
from peerlane.support.spelling import no_attribute

_Body = TypeVar("_Body", bound=Callable[..., Any])
Arguments: TypeAlias = "tuple[tuple[str, object, bool | None], ...]"
_INT32 = range(-(1 << 31), 1 << 31)


class Refusal(Exception):
    """A call ends with a vendor's code that the dialect chose itself.

    Parameters
    ----------
    code : int
        The vendor's code.
    cause : str
        What is wrong, with the numbers, and what is valid.
    remedy : str
        What to do.
    """

    def __init__(self, code: int, cause: str, remedy: str) -> None:
        super().__init__(cause)
        self.code = int(code)  # never an enumeration: programs print it
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that failed: ``arguments`` holds each name with its value, and whether it is an address (or None)."""

    call: str
    code: int
    cause: str
    remedy: str
    arguments: Arguments


class Check:
    """What a call asks of an argument before its body runs.

    It is declared in the annotation of a parameter, or beside the call, with the names of the arguments.

    Parameters
    ----------
    of : callable
        Makes, of an argument's name, the function that returns what the body gets of a value, or refuses.
    names : tuple of str, optional
        The arguments in the order in which they are looked at; in an annotation none.
    """

    __slots__ = ("_looks", "names", "of")

    def __init__(self, of: Callable[[str], Callable[[Any], Any]], names: tuple[str, ...] = ()) -> None:
        self.of, self.names = of, names
        self._looks = tuple(map(of, names))

    def __call__(self, *values: Any) -> None:
        """Refuse the first of these values that is wrong; they are those of ``names``."""
        for look, value in zip(self._looks, values, strict=True):
            look(value)


@functools.lru_cache(1)
def _signature_of(body: Callable[..., Any]) -> inspect.Signature:
    """Return the signature; each declaration asks for that of its body several times, and to make it is slow."""
    return inspect.signature(body, eval_str=True)


Steps: TypeAlias = "tuple[tuple[int, Callable[[Any], Any]], ...]"


def steps_of(body: Callable[..., Any], checks: Iterable[Check] = (), first: Iterable[str] = ()) -> Steps:
    """Return the checks of a call in their order, each with the place of its argument.

    Parameters
    ----------
    body : callable
        The annotations of its parameters may have checks.
    checks : iterable of Check
        Those that come before.
    first : iterable of str
        The parameters whose annotations come before the others'.
    """
    declared = _signature_of(body).parameters
    names = list(declared)
    beside = ((name, each) for each in checks for name in each.names)
    inside = (
        (name, each)
        for name in dict.fromkeys((*first, *names))
        for each in getattr(declared[name].annotation, "__metadata__", ())
        if isinstance(each, Check)
    )
    return tuple((names.index(name), each.of(name)) for name, each in (*beside, *inside))


@dataclass(frozen=True, slots=True)
class Parse:
    """How an argument is read.

    Attributes
    ----------
    read : callable
        Returns the value, raises TypeError, or refuses with a code.
    is_address : bool
    shown : type or None
        What the reference page says of it, where a check makes something else of the value.
    """

    read: Callable[[object], object]
    is_address: bool = False
    shown: Any = None


def type_name(value: object) -> str:
    """Name the type of a value, with its module unless it is built in: numpy has a ``bool`` too."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _word(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"must be an int, not {type_name(value)}")
    return value & 0xFFFF_FFFF_FFFF_FFFF


def as_index(value: object) -> int:
    """Return an integer of any type; TypeError for the rest, numpy's bool of every version among it."""
    try:
        if type_name(value).startswith("numpy.bool"):  # older ones warn instead of refusing
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]  # TypeError is the answer
    except TypeError:
        raise TypeError(f"must be an int, not {type_name(value)}") from None


def _int32(value: object) -> int:
    number = as_index(value)
    if number not in _INT32:
        raise TypeError(f"is {number}, beyond 32 bits")
    return number


def _uint32(value: object) -> int:
    return as_index(value) & 0xFFFF_FFFF


def _strict_uint32(value: object) -> int:
    number = as_index(value)
    if number >> 32:
        raise TypeError(f"is {number}; valid are 0 to 2**32 - 1")
    return number


class CText(str):
    """A text of C: its bytes that are not UTF-8 are lone surrogates, as of ``os.fsdecode``."""

    __slots__ = ()


def _text(value: object) -> str:
    if isinstance(value, CText):
        return value
    if not isinstance(value, str):
        raise TypeError(f"must be a str, not {type_name(value)}")
    if "\0" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise TypeError("has a NUL or a lone surrogate, and a C string cannot")
    return value


def _dict(value: object) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"must be a dict, not {type_name(value)}")
    return value


def _callable(value: object) -> Callable[..., Any]:
    if not callable(value):
        raise TypeError(f"must be callable, not {type_name(value)}")
    return value


def int_list(call: str, value: object) -> list[int]:
    """Return a list of ints, or raise ValueError: what bindings do that read a list themselves."""
    if not isinstance(value, list):
        raise ValueError(f"{call}: needs a list, not {type_name(value)}")
    for each in value:
        if not isinstance(each, int):
            raise ValueError(f"{call}: needs a list of ints, not of {type_name(each)}")
    return value


# The C parse codes of CPython, which bindings written by hand share: k, k, i, I, s and O.
Address = Annotated[int, Parse(_word, is_address=True)]
Word = Annotated[int, Parse(_word)]
Int32 = Annotated[int, Parse(_int32)]
UInt32 = Annotated[int, Parse(_uint32)]
StrictUInt32 = Annotated[int, Parse(_strict_uint32)]  # where a binding checks the range itself
Text = Annotated[str, Parse(_text)]
Dict = Annotated[dict[Any, Any], Parse(_dict)]
Object = Annotated[Any, Parse(lambda value: value)]
Callback = Annotated[Callable[..., Any], Parse(_callable)]


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a call takes: names, how each argument is read, how many must be given, and the checks in their order."""

    call: str
    names: tuple[str, ...]
    parsers: tuple[Parse, ...]
    required: int
    reads: tuple[Callable[[object], Any], ...]
    steps: Steps

    @classmethod
    def of(
        cls, call: str, body: Callable[..., Any], checks: Iterable[Check] = (), first: Iterable[str] = ()
    ) -> Parameters:
        declared = _signature_of(body).parameters.values()
        names = tuple(each.name for each in declared)
        parsers = tuple(get_args(each.annotation)[1] for each in declared)
        required = sum(each.default is each.empty for each in declared)
        reads = tuple(each.read for each in parsers)
        return cls(call, names, parsers, required, reads, steps_of(body, checks, first))

    def parse(self, args: Sequence[object]) -> list[Any]:
        """Return the values, or raise the vendor's TypeError, whose cause says which argument it is."""
        reads = self.reads
        if not self.required <= len(args) <= len(reads):
            count = TypeError(f"takes ({', '.join(self.names)}), {len(args)} were given")
            raise TypeError(f"{self.call} args parse failed") from count
        try:
            return [read(value) for read, value in zip(reads, args, strict=False)]
        except TypeError as error:
            raise TypeError(f"{self.call} args parse failed") from self._named(args, error)

    def _named(self, args: Sequence[object], error: TypeError) -> TypeError:
        """Return the reason with the name of the argument whose type is wrong."""
        for name, read, value in zip(self.names, self.reads, args, strict=False):
            try:
                read(value)
            except TypeError as own:
                return TypeError(f"argument {name}: {own}")
        return error

    def checked(self, values: Sequence[Any]) -> list[Any]:
        """Return what the body gets, after the declared checks in their order."""
        found = list(values)
        for at, look in self.steps:
            if at < len(found):
                found[at] = look(found[at])
        return found

    def pair(self, values: Sequence[object]) -> tuple[tuple[str, object, bool], ...]:
        return tuple(
            (name, value, parser.is_address)
            for name, value, parser in zip(self.names, values, self.parsers, strict=False)
        )


@dataclass(frozen=True, slots=True)
class Declared:
    """A call as it was declared.

    Attributes
    ----------
    name : str
        With its module.
    parameters : tuple of (str, str, bool)
        Name, type, and whether it must be given.
    returns : str
        The type of the return value, the code included.
    area : str
        The subject of the module that declares it.
    text : str
        Its docstring.
    """

    name: str
    area: str
    parameters: tuple[tuple[str, str, bool], ...]
    returns: str
    text: str

    @property
    def facts(self) -> Mapping[str, str]:
        """``Gives``, ``Refuses`` and ``Basis`` of the docstring."""
        return {found[1]: " ".join(found[2].split()) for found in _FACT.finditer(inspect.cleandoc(self.text))}

    @classmethod
    def of(cls, name: str, body: Callable[..., Any], outputs: int | None) -> Declared:
        """Read a body; ``outputs`` is None for a call that answers without a code."""
        declared = _signature_of(body)
        parameters = tuple(
            (each.name, _shown_type(each.annotation), each.default is each.empty)
            for each in declared.parameters.values()
        )
        own = declared.return_annotation
        if outputs is None:
            returns = _type_text(own)
        elif not outputs:
            returns = "int"
        else:
            values = get_args(own) if outputs > 1 else (own,)
            returns = f"tuple[{', '.join(map(_type_text, values))}, int]"
        return cls.documented(name, body, parameters, returns)

    @classmethod
    def documented(
        cls, name: str, body: Callable[..., Any], parameters: tuple[tuple[str, str, bool], ...], returns: str
    ) -> Declared:
        """Take the text from the docstring of a body, and the area from its module's."""
        area = (sys.modules[body.__module__].__doc__ or "").partition("\n")[0].partition(": ")[2]
        return cls(name, area.partition(" (facts/")[0].rstrip("."), parameters, returns, body.__doc__ or "")


def _positional(body: Callable[..., Any]) -> inspect.Signature:
    """Return the names of a body's arguments, as help() shows them: no call takes keywords."""
    return inspect.Signature(
        [
            inspect.Parameter(each.name, inspect.Parameter.POSITIONAL_ONLY, default=each.default)
            for each in _signature_of(body).parameters.values()
        ]
    )


_FACT = re.compile(r"^(Gives|Refuses|Basis): (.*(?:\n    .*)*)", re.MULTILINE)


def _shown_type(annotation: Any) -> str:
    kind, parse, *_ = get_args(annotation)
    return _type_text(parse.shown or kind)


def _type_text(kind: Any) -> str:
    text = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return re.sub(r"\b(?:typing|collections\.abc)\.", "", text)


class Table:
    """The calls of one vendor: the functions that serve them, what was declared, and how one fails.

    Parameters
    ----------
    codes : mapping of Fault to int
        The vendor's code of every fault.
    explain : callable
        Returns the cause of an error and what to do about it, in the vendor's words.
    report : callable
        Told each :class:`Failure`, before the call returns.
    late : callable
        Returns the code of a call, by its name, that failed while the process was ending: nothing is reported then.

    Attributes
    ----------
    refused : dict
        By module: the names of the calls of :meth:`refusing`, which are not in the table.
    """

    def __init__(
        self,
        *,
        codes: Mapping[Fault, int],
        explain: Callable[[Error], tuple[str, str]],
        report: Callable[[Failure], None],
        late: Callable[[str], int],
    ) -> None:
        self._codes = codes
        self._explain = explain
        self._report = report
        self._late = late
        self._modules: dict[str, dict[str, Callable[..., Any]]] = {}
        self._table: dict[str, Declared] = {}
        self.refused: dict[str, Iterable[str]] = {}

    def functions(self, module: str) -> Mapping[str, Callable[..., Any]]:
        """Return the declared calls of one of the vendor's modules, by their names there."""
        return MappingProxyType(self._modules.get(module, {}))

    def names(self, module: str, *others: str) -> Callable[[], list[str]]:
        """Return the ``__dir__`` of one of the vendor's modules: its calls, and ``others``."""
        return lambda: sorted({*self.functions(module), *others})

    def missing(self, module: str) -> Callable[[str], NoReturn]:
        """Return the ``__getattr__`` of one of the vendor's modules: AttributeError with names that are close."""

        def __getattr__(name: str) -> NoReturn:
            raise no_attribute(module, name, self.functions(module))

        return __getattr__

    @property
    def table(self) -> Mapping[str, Declared]:
        """The declared calls by name, in their order."""
        return MappingProxyType(self._table)

    def refusing(
        self, name: str, refusal: Refusal, answer: Callable[[int], object] = lambda code: code
    ) -> Callable[..., Any]:
        """Return a call that takes anything and refuses; it is not in the table.

        ``answer`` makes its return value of the code.
        """

        def wrapper(*args: object) -> object:
            given = tuple((f"argument {number}", value, None) for number, value in enumerate(args, 1))
            self._report(Failure(name, refusal.code, str(refusal), refusal.remedy, given))
            return answer(refusal.code)

        wrapper.__doc__ = str(refusal)
        wrapper.__name__ = wrapper.__qualname__ = name.rpartition(".")[2]
        return wrapper

    def serve(
        self,
        name: str,
        function: Callable[..., Any],
        body: Callable[..., Any] | None = None,
        *,
        signature: inspect.Signature | None = None,
    ) -> Callable[..., Any]:
        """Put ``function`` in the table as ``name``, instead of what is there, documented as ``body``.

        ``signature`` is what help() shows; by default the names of the body's arguments.
        """
        module, _, short = name.rpartition(".")
        if body is not None:
            functools.update_wrapper(function, body)
            del function.__wrapped__  # type: ignore[attr-defined]  # inspect would show the body's keywords
            function.__annotations__ = {}
            signature = signature or _positional(body)
        if signature is not None:
            function.__signature__ = signature  # type: ignore[attr-defined]
        function.__name__ = function.__qualname__ = short
        code = function.__code__.replace(co_name=name)  # tracebacks and findings name the call
        if sys.version_info >= (3, 11):
            code = code.replace(co_qualname=name)
        function.__code__ = code
        self._modules.setdefault(module, {})[short] = function
        return function

    def fail(self, call: str, error: Refusal | Error, arguments: Callable[[], Arguments]) -> int:
        """Report the error of a call, with its arguments as a failure has them; return the vendor's code."""
        if isinstance(error, Refusal):
            code, cause, remedy = error.code, str(error), error.remedy
        elif error.fault is Fault.PROCESS_ENDING:
            return self._late(call)
        else:
            code, (cause, remedy) = int(self._codes[error.fault]), self._explain(error)
        self._report(Failure(call, code, cause, remedy, arguments()))
        return code


class Convention(Table):
    """The table of a vendor whose calls take their arguments by position and answer with a code behind the outputs.

    ``success`` is the code of a call that worked; the other parameters are those of :class:`Table`.
    """

    def __init__(self, *, success: int, **others: Any) -> None:
        super().__init__(**others)
        self._success = success
        self._parameters: dict[str, Parameters] = {}

    def call(
        self,
        name: str,
        *,
        out: int = 0,
        blank: tuple[object, ...] | Callable[..., tuple[object, ...]] | None = None,
        checks: Iterable[Check] = (),
        first: Iterable[str] = (),
    ) -> Callable[[_Body], Callable[..., Any]]:
        """Declare a call of the vendor.

        Parameters
        ----------
        name : str
            With its module: ``"acl.rt.malloc"``.
        out : int
            Outputs, which come before the code.  The body returns none, one, or a tuple of them.
        blank : tuple or callable, optional
            The outputs of a call that failed; zeros by default.  Outputs that a program may change are made
            anew for each failure, by a function of the arguments.
        checks : iterable of Check, optional
            They come before those of the annotations.
        first : iterable of str, optional
            The parameters whose annotations are checked before the others', which follow in their order.
        """
        made = blank if callable(blank) else None
        blanks = (0,) * out if blank is None or callable(blank) else blank

        def declare(body: _Body) -> Callable[..., Any]:
            parameters = Parameters.of(name, body, checks, first)
            declared = Declared.of(name, body, len(blanks))
            return self.declare(parameters, declared, body, blanks, made)

        return declare

    def declare(
        self,
        parameters: Parameters,
        declared: Declared,
        body: Callable[..., Any],
        blanks: tuple[object, ...],
        made: Callable[..., tuple[object, ...]] | None = None,
        signature: inspect.Signature | None = None,
    ) -> Callable[..., Any]:
        """Put a call into the table and serve it.

        Parameters
        ----------
        parameters : Parameters
        declared : Declared
        body : callable
            Gets the arguments; returns no output, one, or a tuple of as many as there are ``blanks``.
        blanks : tuple
            The outputs of a call that failed.
        made : callable, optional
            Makes these of the arguments, anew for each failure.
        signature : inspect.Signature, optional
            What help() shows, where the body has other names.
        """
        name = parameters.call
        self._parameters[name], self._table[name] = parameters, declared
        parse, takes = parameters.parse, bool(parameters.parsers)
        steps = parameters.steps

        def wrapper(*args: object) -> Any:
            values: Sequence[Any] = args
            try:
                values = parse(args) if takes else ()
                if steps:  # as parameters.checked(): a call of it costs a frame
                    found = list(values)
                    for at, look in steps:
                        if at < len(found):
                            found[at] = look(found[at])
                    result = body(*found)
                else:
                    result = body(*values)
            except (Refusal, Error) as error:
                code = self._fail(parameters, error, values)
                if made is not None:
                    return (*made(*values), code)
                return (*blanks, code) if blanks else code
            if not blanks:
                return self._success
            return (*result, self._success) if len(blanks) > 1 else (result, self._success)

        return self.serve(name, wrapper, body, signature=signature)

    def value(
        self, name: str, *, failed: Callable[[int], object] | None = None, checks: Iterable[Check] = ()
    ) -> Callable[[_Body], Callable[..., Any]]:
        """Declare a call that answers with a bare value, without a code.

        ``failed`` makes the answer of one that failed, of its code; by default failures are exceptions.
        """

        def declare(body: _Body) -> Callable[..., Any]:
            parameters = Parameters.of(name, body, checks)
            self._table[name] = Declared.of(name, body, None)

            def wrapper(*args: object) -> Any:
                values = parameters.parse(args) if parameters.parsers else []
                try:
                    return body(*parameters.checked(values))
                except (Refusal, Error) as error:
                    if failed is not None:
                        return failed(self._fail(parameters, error, values))
                    raise ValueError(f"{name}: {error}") from None

            return self.serve(name, wrapper, body)

        return declare

    def failed(self, name: str, error: Error, values: Sequence[object]) -> int:
        """Report the error of a call of this name that was not made by its body; return the code."""
        return self._fail(self._parameters[name], error, values)

    def _fail(self, parameters: Parameters, error: Refusal | Error, values: Sequence[object]) -> int:
        return self.fail(parameters.call, error, lambda: parameters.pair(values))
