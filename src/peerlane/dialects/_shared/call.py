"""Declarations of a vendor's calls, so that each call parses, checks, returns and fails as the vendor's does.

:class:`Table` holds the calls of any dialect: the functions by module, their rows for the reference page, and how
they fail.  :class:`Convention` is the table of a vendor whose calls return their outputs and behind them a code.
There a call is a plain function.  The annotations of its parameters state how each argument is parsed.  The decorator
states the number of outputs, and the checks that run before the body, in the vendor's order::

    @acl.call("acl.rt.map_mem", checks=[null("ptr", "handle"), zero("size"), reserved("flags")])
    def map_mem(ptr: Address, size: Word, offset: Word, handle: Address, flags: Word) -> None:

The body returns its outputs or raises; the wrapper makes the vendor's return value of them.
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
    """The end of a call with a vendor's code that the dialect chose itself.

    ``code``: the vendor's code.
    ``cause``: what is wrong, with the numbers, and what is valid.
    ``remedy``: what to do.
    ``outputs``: what the call returns before the code all the same, as the room that it needs.
    """

    def __init__(self, code: int, cause: str, remedy: str, outputs: tuple[object, ...] = ()) -> None:
        super().__init__(cause)
        self.code = int(code)  # never an enumeration: programs print it
        self.remedy = remedy
        self.outputs = outputs


@dataclass(frozen=True, slots=True)
class Failure:
    """A call that failed; ``arguments`` are triples of name, value, and whether it is an address (None: unknown)."""

    call: str
    code: int
    cause: str
    remedy: str
    arguments: Arguments


def name_code(function: Callable[..., Any], name: str) -> None:
    """Let tracebacks and findings name a call that several share the code of."""
    code = function.__code__.replace(co_name=name)
    if sys.version_info >= (3, 11):
        code = code.replace(co_qualname=name)
    function.__code__ = code


class Check:
    """A check of arguments that runs before a call's body.

    It is declared in the annotation of a parameter, or beside the call with the names of the arguments.

    ``of``: returns, for an argument's name, the function that checks a value: it returns the value that the body
        gets, or raises.
    ``names``: the arguments in the order of their checks; empty in an annotation.
    """

    __slots__ = ("_checks", "names", "of")

    def __init__(self, of: Callable[[str], Callable[[Any], Any]], names: tuple[str, ...] = ()) -> None:
        self.of, self.names = of, names
        self._checks = tuple(map(of, names))

    def __call__(self, *values: Any) -> None:
        """Check the values of ``names``, and refuse the first that is wrong."""
        for check, value in zip(self._checks, values, strict=True):
            check(value)


@functools.lru_cache(1)
def _signature_of(body: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a body; it is slow to make, and each declaration asks for it several times."""
    return inspect.signature(body, eval_str=True)


Steps: TypeAlias = "tuple[tuple[int, Callable[[Any], Any]], ...]"


def steps_of(body: Callable[..., Any], checks: Iterable[Check] = (), first: Iterable[str] = ()) -> Steps:
    """Return the checks of a call in their order, each with the position of its argument.

    ``body``: the annotations of its parameters may have checks.
    ``checks``: checks that run before those of the annotations.
    ``first``: the parameters whose annotations are checked before the others'.
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
    """How an argument is read."""

    read: Callable[[object], object]  #: returns the value, raises TypeError, or refuses with a code
    is_address: bool = False
    shown: Any = None  #: the type on the reference page, where a check returns a value of another type


def type_name(value: object) -> str:
    """Return the name of a value's type, with its module unless it is built in: numpy has a ``bool`` too."""
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _word(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"must be an int, not {type_name(value)}")
    return value & 0xFFFF_FFFF_FFFF_FFFF


def as_index(value: object) -> int:
    """Return the int of an integer of any type; TypeError for all else, and for numpy's bool of any version."""
    if type(value) is int:
        return value
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
    """A text from C; bytes that are not UTF-8 became lone surrogates, as by ``os.fsdecode``."""

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
    """Return a list of ints or raise ValueError, as bindings do that read a list themselves."""
    if not isinstance(value, list):
        raise ValueError(f"{call}: needs a list, not {type_name(value)}")
    for each in value:
        if not isinstance(each, int):
            raise ValueError(f"{call}: needs a list of ints, not of {type_name(each)}")
    return value


# Each parses as one of CPython's format units, which bindings written by hand use: k, k, i, I, s and O.
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
    """The parameters of a call: names, parsers, how many are required, and the checks in their order."""

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
        """Return the values, or raise the vendor's TypeError, whose cause names the argument."""
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
        """Run the declared checks in their order, and return the values that the body gets."""
        arguments = list(values)
        for at, check in self.steps:
            if at < len(arguments):
                arguments[at] = check(arguments[at])
        return arguments

    def pair(self, values: Sequence[object]) -> tuple[tuple[str, object, bool], ...]:
        return tuple(
            (name, value, parser.is_address)
            for name, value, parser in zip(self.names, values, self.parsers, strict=False)
        )


@dataclass(frozen=True, slots=True)
class Declared:
    """The declaration of a call, as the reference page shows it."""

    name: str  #: with its module
    area: str  #: the subject of the module that declares it
    parameters: tuple[tuple[str, str, bool], ...]  #: name, type, and whether it is required
    returns: str  #: the type of the return value, the code included
    text: str  #: its docstring

    @property
    def facts(self) -> Mapping[str, str]:
        """``Gives``, ``Refuses`` and ``Basis`` of the docstring."""
        return {match[1]: " ".join(match[2].split()) for match in _FACT.finditer(inspect.cleandoc(self.text))}

    @classmethod
    def of(cls, name: str, body: Callable[..., Any], outputs: int | None) -> Declared:
        """Return the declaration of a body; ``outputs`` is None for a call that returns no code."""
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
        """Return a declaration with the docstring of a body as its text, and its area from the module's docstring."""
        area = (sys.modules[body.__module__].__doc__ or "").partition("\n")[0].partition(": ")[2]
        return cls(name, area.partition(" (facts/")[0].rstrip("."), parameters, returns, body.__doc__ or "")


def _positional(body: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a body with all parameters positional: no call takes keywords."""
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
    """The calls of one vendor: the functions that serve them, their declarations, and how they fail.

    ``codes``: the vendor's code of every fault.
    ``explain``: returns the cause of an error and what to do about it, in the vendor's words.
    ``report``: gets each :class:`Failure`, before the call returns.
    ``late``: returns the code of a call, by its name, that fails while the process is ending: such failures are not
        reported.
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
        #: By module: the names of the calls of :meth:`refusing`, which are not in the table.
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
        """Return a call that takes any arguments and refuses; it is not in the table.

        ``answer`` returns the call's return value, from the code.
        """

        def wrapper(*args: object) -> object:
            arguments = tuple((f"argument {number}", value, None) for number, value in enumerate(args, 1))
            self._report(Failure(name, refusal.code, str(refusal), refusal.remedy, arguments))
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
        """Serve ``function`` as ``name``, documented as ``body``; it replaces a function of that name.

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
        name_code(function, name)
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
    """The table of a vendor whose calls take arguments by position, and return the outputs with a code behind them.

    ``success`` is the code of a call that succeeded; the other parameters are those of :class:`Table`.
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

        ``name``: with its module: ``"acl.rt.malloc"``.
        ``out``: the number of outputs, which come before the code.  The body returns None, one output, or a tuple of
            them.
        ``blank``: the outputs of a call that failed; zeros by default.  For outputs that a program may change, a
            function that makes new ones of the arguments.
        ``checks``: checks that run before those of the annotations.
        ``first``: the parameters whose annotations are checked before the others', which follow in their order.
        """
        make_blanks = blank if callable(blank) else None
        blanks = (0,) * out if blank is None or callable(blank) else blank

        def declare(body: _Body) -> Callable[..., Any]:
            parameters = Parameters.of(name, body, checks, first)
            declared = Declared.of(name, body, len(blanks))
            return self.declare(parameters, declared, body, blanks, make_blanks)

        return declare

    def declare(
        self,
        parameters: Parameters,
        declared: Declared,
        body: Callable[..., Any],
        blanks: tuple[object, ...],
        make_blanks: Callable[..., tuple[object, ...]] | None = None,
        signature: inspect.Signature | None = None,
    ) -> Callable[..., Any]:
        """Enter a call in the table, and serve it.

        ``body``: gets the arguments; returns None, one output, or a tuple of as many as there are ``blanks``.
        ``blanks``: the outputs of a call that failed.
        ``make_blanks``: makes these outputs of the arguments of a call that failed.
        ``signature``: what help() shows, where the names of the body's parameters are not the vendor's.
        """
        name = parameters.call
        self._parameters[name], self._table[name] = parameters, declared
        parse, takes = parameters.parse, bool(parameters.parsers)
        steps = parameters.steps

        def wrapper(*args: object) -> Any:
            values: Sequence[Any] = args
            try:
                values = parse(args) if takes else ()
                if steps:  # as parameters.checked(): calling it would cost a frame
                    arguments = list(values)
                    for at, check in steps:
                        if at < len(arguments):
                            arguments[at] = check(arguments[at])
                    result = body(*arguments)
                else:
                    result = body(*values)
            except (Refusal, Error) as error:
                code = self._fail(parameters, error, values)
                if make_blanks is not None:
                    return (*make_blanks(*values), code)
                if isinstance(error, Refusal) and error.outputs:
                    return (*error.outputs, code)
                return (*blanks, code) if blanks else code
            if not blanks:
                return self._success
            return (*result, self._success) if len(blanks) > 1 else (result, self._success)

        return self.serve(name, wrapper, body, signature=signature)

    def value(
        self, name: str, *, failed: Callable[[int], object] | None = None, checks: Iterable[Check] = ()
    ) -> Callable[[_Body], Callable[..., Any]]:
        """Declare a call that returns a bare value, without a code.

        ``failed`` returns the value of a call that failed, from its code; by default failures are exceptions.
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
        """Report the error of a call of this name that its body did not raise; return the code."""
        return self._fail(self._parameters[name], error, values)

    def _fail(self, parameters: Parameters, error: Refusal | Error, values: Sequence[object]) -> int:
        return self.fail(parameters.call, error, lambda: parameters.pair(values))
