"""Reads a vendor's annotated header: the functions, structs and types of its C library, in C's notation.

The build generates the library's entry points from them, and `c_library` the conversion of arguments.  This module
imports nothing but the standard library: the build runs it before peerlane can be imported.

The notation is C's, with these words before a parameter or field:

``out``
    The function writes it.  ``out T* x`` is one value, ``out T x[n]`` are ``n``, ``out char x[128]`` is a text.
``inout``
    It reads and writes it.
``fresh``
    The function writes the struct, or the array of them, and reads nothing: the dialect's call gets new ones.
``lib``
    The function sets it to an address of memory that the library keeps: ``lib T** x``.
``ends``
    The function ends this object, and the library frees the memory that it keeps for calls that got the object.
``brief``
    The text that the function returns stays for a while only.
``maybe``
    As ``out``, and its address may be NULL.
``always``
    Beside ``out``, ``lib`` or ``maybe``: a failed call writes it too, if the dialect's call has a value for it then.
``given``
    Its address must not be NULL; else the call is refused.
``some``
    As ``given``, but an array of no elements is empty whatever its address is.
``address``
    The dialect's call gets the address itself, of what it reads or writes there.
``unread``
    A field that no code reads, or a parameter that the dialect's call does not have.

``...`` behind the last parameter are variable arguments.  That parameter is a format: native code makes a text of it
and the arguments, which the dialect's call gets in its place.
``refused T f, g;`` are functions that the dialect only refuses; their parameters need not be known.  The parameters
of ``unread refused T f(...);`` are known, and no code reads them.  ``refused "text"`` gives the reason.  Where a
parameter ``T x else C`` of such a function is 0 or an empty text, it returns the enumerator C of its type.

``ending`` before a function: it ends what the end of the process ends, selects or awaits.  When the process is ending
it succeeds, as the vendor's library outlives the program's destructors.

``since V`` behind a function is the version from which the vendor's lookup of functions by name and version finds it.
``ptds`` or ``ptsz`` is the ending of its variant for the default streams of threads, ``f_ptds`` or ``f_ptsz``, with
the version from which the lookup finds that one: ``ptds V``.

``T x[n]`` as a parameter is an address of ``n`` values, as in C, and so is ``T x[*n]`` as a field.  ``n`` is a
number, a parameter, a field, or a name that the library knows.  ``-> (b, a)`` behind a function is the order of
its outputs in the dialect, ``= name`` its name there.  ``struct T, U;`` names structs whose fields are unknown: only
their addresses can be passed.  ``T x : 1`` is a field of one bit.  ``T x = 1`` is a field that is 1 in a new struct;
the number may be the name of a constant above.

``codes T, U;`` names the types whose values are codes, 0 for success.  ``failed N;`` is the code that a function
returns where the dialect cannot answer, as after an unexpected error, and ``ended N;`` the one when the process is
ending.
``include NAME;`` reads ``NAME.h.txt`` of the same folder first; what follows may declare its names again.

A vendor's binding for Python may differ from C, and from its earlier version.  The ``version`` and the ``earlier``
one stand at the top; ``module a, b;`` names the binding's modules that have what follows.  Its words are:

``returned``
    The binding returns the parameter, which the library reads.
``was_in``, ``was_out``
    The earlier version takes the parameter, or returns it.
``new``
    Before a function or an enumerator: the earlier version lacks it.
``binding``, ``library``
    Only the binding, or only the C library, has the function, the struct or the enumeration.
``by_name``
    The binding takes values of this struct's fields by name only.
``T x as K``
    The binding's class for the parameter or field is K, which its type does not tell.

``enum T { A = 1, new B, C = 4 was 3 };`` has enumerators, one of which had another number; ``enum { A = 1 };`` are
constants, and so is ``const char A[] = "text";``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

#: C's own types: the width in bytes and the kind, ``i`` signed, ``u`` unsigned, ``f`` floating point, ``p`` address.
SCALARS = {
    "bool": (1, "u"),
    "char": (1, "i"),
    "int8_t": (1, "i"),
    "uint8_t": (1, "u"),
    "int16_t": (2, "i"),
    "uint16_t": (2, "u"),
    "int": (4, "i"),
    "int32_t": (4, "i"),
    "uint32_t": (4, "u"),
    "int64_t": (8, "i"),
    "uint64_t": (8, "u"),
    "size_t": (8, "u"),
    "short": (2, "i"),
    "long": (8, "i"),
    "long long": (8, "i"),
    "unsigned char": (1, "u"),
    "unsigned short": (2, "u"),
    "unsigned int": (4, "u"),
    "unsigned long": (8, "u"),
    "unsigned long long": (8, "u"),
    "float": (4, "f"),
    "double": (8, "f"),
}
_WORDS = (
    "const",
    "out",
    "inout",
    "fresh",
    "lib",
    "ends",
    "brief",
    "maybe",
    "always",
    "given",
    "some",
    "address",
    "unread",
    "returned",
    "was_in",
    "was_out",
    "refused",
    "ending",
    "new",
    "binding",
    "library",
    "by_name",
)
_DECLARATOR = re.compile(
    r"(?P<type>(?:struct |unsigned |signed |long )*\w+)\b ?(?P<stars>(?:\* ?(?:const\b ?)?)*)(?P<name>\w+)"
    r"(?P<count>(?:\[.*\])?)(?: : (?P<bits>\d+))?(?: = (?P<initial>\w+))?(?: as (?P<binding>\w+))?"
    r"(?: else (?P<otherwise>\w+))?"
)
_FUNCTION = re.compile(
    r"(?P<named>.*?)\((?P<parameters>.*?)\)(?: -> \((?P<outputs>.*)\))?(?: = (?P<dialect>[\w.]+))?"
    r"(?: since (?P<since>\d+))?(?: (?P<variant>ptds|ptsz)(?: (?P<variant_since>\d+))?)?"
)
_REASON = re.compile(r'(?<=\brefused )"([^"]*)" ')
_INCLUDE = re.compile(r"^include (\w+);$", re.MULTILINE)
_COUNT = re.compile(r"\[(\*?)([^\]]*)\]$")


@dataclass(frozen=True)
class Declarator:
    """A parameter of a function, or a field of a struct."""

    name: str  #: Empty for an anonymous union
    type: str  #: without ``const`` and stars
    stars: int = 0
    count: str = ""  #: the text in brackets; empty without them
    is_behind: bool = False  #: whether ``count`` values lie behind an address
    words: frozenset[str] = frozenset()  #: ``const``, and those of the notation
    bits: int = 0  #: the width of a bit-field, 0 of any other
    initial: int = 0  #: the value of the field in a new struct
    binding: str = ""  #: the name of the binding's class, where the type does not determine it
    otherwise: str = ""  #: the enumerator that a refused function returns where the parameter is 0

    @property
    def is_pointer(self) -> bool:
        """Whether C passes an address."""
        return bool(self.stars) or bool(self.count)


@dataclass(frozen=True)
class Struct:
    """A struct or a union."""

    name: str
    fields: tuple[Declarator, ...]
    is_union: bool = False
    words: frozenset[str] = frozenset()  #: ``library`` and ``by_name``


@dataclass(frozen=True)
class Enumerator:
    """A member of an enumeration."""

    value: int
    earlier: int | None  #: its number in the binding's earlier version, None where it was missing


_VERSION = re.compile(r"_v\d+$")


@dataclass(frozen=True)
class Function:
    """A function of the library.

    ``since``, ``variant_since``: the versions for the vendor's lookup by name, of the function and of its variant; 0
        without one.
    """

    name: str  #: the symbol
    returns: Declarator
    parameters: tuple[Declarator, ...]
    outputs: tuple[str, ...] = ()  #: the names of its outputs in the order of the dialect; empty if it is C's
    dialect: str = ""  #: the name of the dialect's call
    is_refused: bool = False  #: whether the dialect only refuses it; its parameters may be unknown then
    is_variadic: bool = False  #: whether variable arguments belong to its last parameter
    reason: str = ""  #: why it is refused
    words: frozenset[str] = frozenset()  #: ``unread``, ``ending``, ``new``, ``binding`` and ``library``
    since: int = 0
    #: The ending of its variant for the default streams of threads, ``ptds`` or ``ptsz``; empty without one.
    variant: str = ""
    variant_since: int = 0

    @property
    def name_in_source(self) -> str:
        """Its name in a program: of a function with versions, the vendor's header has macros that add one."""
        name = self.name.removesuffix(f"_{self.variant}") if self.variant else self.name
        return _VERSION.sub("", name) if self.since else name


@dataclass
class Declarations:
    """The declarations of a library."""

    types: dict[str, Declarator] = field(default_factory=dict)  #: the meaning of each type name
    structs: dict[str, Struct] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)  #: by symbol, in their order
    callbacks: dict[str, Function] = field(default_factory=dict)  #: types of functions that programs pass
    #: The enumerations whose enumerators are known.
    enums: dict[str, dict[str, Enumerator]] = field(default_factory=dict)
    constants: dict[str, int] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)  #: constants that are strings
    codes: tuple[str, ...] = ()  #: the types whose values are codes, 0 for success
    #: ``failed``, ``ended``: what a function returns where the dialect cannot answer, and when the process is ending.
    failed: int = -1
    ended: int = -1
    version: str = ""  #: ``version``, ``earlier``: of the binding for Python
    earlier: str = ""
    #: The binding's modules that have a function, type or constant, by its name in the dialect.
    modules: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def library(self) -> Declarations:
        """Return the functions of the C library, variants too, without unread parameters, and their types.

        A struct has one name in it.
        """
        functions = {}
        for name, each in self.functions.items():
            if "binding" in each.words:
                continue
            own = replace(
                _unread(each) if "unread" in each.words else each,
                parameters=() if "unread" in each.words else self._with_structs(each.parameters),
            )
            functions[name] = own
            if each.variant:
                variant = f"{name}_{each.variant}"
                functions[variant] = replace(own, name=variant, dialect=variant)
        structs = {
            name: replace(each, fields=self._with_structs(each.fields)) for name, each in self.structs.items()
        }
        return Declarations(
            self.types,
            structs,
            functions,
            self.callbacks,
            codes=self.codes,
            failed=self.failed,
            ended=self.ended,
        )

    def _with_structs(self, declarators: tuple[Declarator, ...]) -> tuple[Declarator, ...]:
        """Return declarators whose types are structs by their own names, not by others."""
        return tuple(
            each if (name := self._struct_of(each.type)) is None else replace(each, type=name)
            for each in declarators
        )

    def _struct_of(self, name: str) -> str | None:
        """Return the struct that a type name without stars means; None for any other type."""
        while name in self.types and not self.types[name].is_pointer:
            name = self.types[name].type
        return name if name in self.structs else None

    def scalar(self, declarator: Declarator) -> tuple[int, str] | None:
        """Return the width and kind of a value that C passes in a register; None for a struct."""
        if declarator.is_pointer or declarator.type in self.callbacks:
            return 8, "p"
        if declarator.type in SCALARS:
            return SCALARS[declarator.type]
        if declarator.type in self.types:
            return self.scalar(self.types[declarator.type])
        return None

    def outputs_of(self, function: Function) -> list[int]:
        """Return the positions of the parameters that get the outputs of the dialect's call, in that order."""
        names = [each.name for each in function.parameters]
        if function.outputs:
            return [names.index(each) for each in function.outputs]
        return [
            at for at, each in enumerate(function.parameters) if each.words & {"out", "inout", "lib", "maybe"}
        ]


def read_header(folder: str | Path, name: str) -> Declarations:
    """Read the header ``NAME.h.txt`` of a folder, and those that it includes; errors as of :func:`read`."""
    return read(_with_included(Path(folder), name))


def _with_included(folder: Path, name: str) -> str:
    text = (folder / f"{name}.h.txt").read_text()
    return _INCLUDE.sub(lambda match: _with_included(folder, match[1]), text)


def read(text: str) -> Declarations:
    """Read declarations; ValueError names the text that is not understood."""
    declared = Declarations()
    modules: tuple[str, ...] = ()
    for statement in _statements(re.sub(r"//.*", "", text)):
        reason = _REASON.search(statement)
        words, plain = _words(_REASON.sub("", statement))
        keyword, _, rest = plain.partition(" ")
        names: list[str] = []
        if keyword == "version":
            declared.version = rest
        elif keyword == "earlier":
            declared.earlier = rest
        elif keyword == "include":
            continue  # `read_header` has the text
        elif keyword == "codes":
            declared.codes = tuple(_names(rest))
        elif keyword == "failed":
            declared.failed = declared.ended = int(rest)
        elif keyword == "ended":
            declared.ended = int(rest)
        elif keyword == "module":
            modules = tuple(_names(rest))
        elif keyword == "typedef":
            names = [_add_type(declared, rest)]
        elif keyword == "enum":
            names = _add_enum(declared, rest)
        elif (match := re.fullmatch(r"(struct|union) (\w+) \{(.*)\}", plain)) is not None:
            _add_struct(declared, match[2], match[3], is_union=match[1] == "union", words=words)
            names = [match[2]]
        elif (match := re.fullmatch(r"struct (\w+(?:, \w+)*)", plain)) is not None:
            names = _names(match[1])
            declared.structs |= {name: Struct(name, (), words=words) for name in names}
        elif (match := re.fullmatch(r'char (\w+)\[\] = "(.*)"', plain)) is not None:
            declared.texts[match[1]] = match[2]
            names = [match[1]]
        elif keyword == "callback":
            callback = _function(rest)
            declared.callbacks[callback.name] = callback
        else:
            names = _add_functions(declared, plain, words, reason[1] if reason else "")
        if "library" not in words:
            declared.modules |= dict.fromkeys(names, modules)
    return declared


def _unread(function: Function) -> Function:
    """Return a function without its parameters and without a returned address."""
    kind = "void" if function.returns.is_pointer else function.returns.type
    return replace(function, parameters=(), returns=replace(function.returns, type=kind))


def _words(text: str) -> tuple[frozenset[str], str]:
    """Take the words of the notation from the front of a text."""
    words = []
    while (first := text.partition(" "))[0] in _WORDS:
        words.append(first[0])
        text = first[2]
    return frozenset(words), text


def _add_type(declared: Declarations, text: str) -> str:
    declarator = _declarator(text)
    declared.types[declarator.name] = declarator
    return declarator.name


def _add_enum(declared: Declarations, text: str) -> list[str]:
    """Add names of enumerations, or one with its enumerators, or constants; return the names."""
    match = re.fullmatch(r"(\w*) ?\{(.*)\}", text)
    if match is None:
        names = _names(text)
        declared.types |= {name: Declarator(name, "int32_t") for name in names}
        return names
    name, enumerators, value = match[1], {}, -1
    for each in filter(None, _names(match[2])):
        words, plain = _words(each)
        parts = re.fullmatch(r"(\w+)(?: = (-?\w+))?(?: was (-?\w+))?", plain)
        if parts is None:
            raise ValueError(f"{each!r} is not an enumerator")
        value = int(parts[2], 0) if parts[2] else value + 1
        before = int(parts[3], 0) if parts[3] else value
        enumerators[parts[1]] = Enumerator(value, None if "new" in words else before)
    if not name:
        declared.constants |= {each: number.value for each, number in enumerators.items()}
        return [*enumerators]
    declared.enums[name] = enumerators
    declared.types[name] = Declarator(name, "int32_t")
    return [name]


def _add_functions(declared: Declarations, text: str, words: frozenset[str], reason: str) -> list[str]:
    """Add a function, or functions that are only refused, and return their names in the dialect."""
    is_refused = "refused" in words
    kept = words & {"unread", "ending", "new", "binding", "library"}
    if not is_refused or "(" in text:
        stay = " ".join(sorted(words - kept - {"refused"}))
        function = _function(f"{stay} {text}".strip())
        function = replace(function, is_refused=is_refused, reason=reason, words=kept)
        declared.functions[function.name] = function
        return [function.dialect]
    declarator = _declarator(text.partition(" ")[0] + " it")
    dialect = []
    for each in _names(text.partition(" ")[2]):
        name, _, renamed = each.partition(" = ")
        returns = replace(declarator, name=name)
        declared.functions[name] = Function(
            name, returns, (), dialect=renamed or name, is_refused=True, reason=reason
        )
        dialect.append(renamed or name)
    return dialect


def _statements(text: str) -> list[str]:
    """Return the text between semicolons that are not within braces or quotes, with single spaces."""
    statements, depth, begin, is_quoted = [], 0, 0, False
    for at, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        is_quoted ^= letter == '"'
        if letter == ";" and not depth and not is_quoted:
            statements.append(" ".join(text[begin:at].split()))
            begin = at + 1
    if text[begin:].strip():
        raise ValueError(f"there is no semicolon behind {' '.join(text[begin:].split())!r}")
    return statements


def _names(text: str) -> list[str]:
    return [each.strip() for each in text.split(",")]


def _declarator(text: str, constants: Mapping[str, int] = MappingProxyType({})) -> Declarator:
    """Read ``const T* name[count]``."""
    words, plain = _words(text)
    match = _DECLARATOR.fullmatch(plain)
    if match is None:
        raise ValueError(f"{plain!r} is not a type with a name")
    count = _COUNT.search(match["count"])
    initial = match["initial"] or "0"
    return Declarator(
        match["name"],
        match["type"].removeprefix("struct "),
        match["stars"].count("*"),
        count[2] if count else "",
        bool(count and count[1]),
        words,
        int(match["bits"] or 0),
        constants[initial] if initial in constants else int(initial, 0),
        match["binding"] or "",
        match["otherwise"] or "",
    )


def _add_struct(
    declared: Declarations, name: str, body: str, *, is_union: bool, words: frozenset[str] = frozenset()
) -> None:
    fields = []
    for number, statement in enumerate(_statements(body)):
        inner = re.fullmatch(r"(unread )?(struct|union) \{(.*)\} ?(\w*)(?: as (\w+))?", statement)
        if inner is None:
            first, *others = _names(statement)
            fields.append(_declarator(first, declared.constants))
            kind = first[: first.rindex(fields[-1].name)]  # ``int x, y`` are two of one type
            fields += [_declarator(kind + each) for each in others]
            continue
        inner_name = f"{name}.{inner[4] or number}"
        _add_struct(declared, inner_name, inner[3], is_union=inner[2] == "union")
        unread = frozenset(["unread"] if inner[1] else [])
        fields.append(Declarator(inner[4], inner_name, words=unread, binding=inner[5] or ""))
    declared.structs[name] = Struct(name, tuple(fields), is_union, words)


def _function(text: str) -> Function:
    match = _FUNCTION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a declaration")
    named = _declarator(match["named"])
    listed = match["parameters"].strip()
    fixed = listed.removesuffix(", ...")
    parameters = () if listed in ("", "void") else tuple(map(_declarator, _names(fixed)))
    outputs = tuple(_names(match["outputs"])) if match["outputs"] else ()
    return Function(
        named.name,
        named,
        parameters,
        outputs,
        match["dialect"] or named.name,
        is_variadic=fixed != listed,
        since=int(match["since"] or 0),
        variant=match["variant"] or "",
        variant_since=int(match["variant_since"] or 0),
    )
