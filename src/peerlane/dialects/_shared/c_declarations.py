"""Reads the declarations of a vendor's C library: its functions, structs and types, as facts in C's notation.

The build makes the library's entry points of them, and `c_library` the conversion of arguments.  This module needs
nothing but the standard library: the build runs it before peerlane can be imported.

The notation is C's, with these words before a parameter or field:

``out``
    The function writes it.  ``out T* x`` is one value, ``out T x[n]`` are ``n``, ``out char x[128]`` is a text.
``inout``
    It reads and writes it.
``fresh``
    It writes the struct, or the array of them, and reads nothing: the dialect's call gets new ones.
``lib``
    It sets it to an address of memory that the library keeps: ``lib T** x``.
``ends``
    A thing that it ends, and with it what the library keeps for calls that got it.
``brief``
    The text that the function returns stays for a while only.
``maybe``
    As ``out``, and its address may be NULL.
``always``
    Beside ``out`` or ``maybe``: it writes it also when it fails, if the dialect's call has something for it then.
``given``
    Its address is not NULL, else the call is refused.
``some``
    As ``given``, but an array of no elements is empty whatever its address is.
``unread``
    A field that nothing here looks at, or a parameter that the dialect's call does not have.

``...`` behind the last parameter are variable arguments: native code writes them into that parameter, a format, and
the dialect gets the text.
``refused T f, g;`` are functions that the dialect has only to refuse them; their parameters need not be known.

``T x[n]`` as a parameter is an address of ``n`` values, as in C, and so is ``T x[*n]`` as a field.  ``n`` is a
number, a parameter, a field, or a name that the library knows.  ``-> (b, a)`` behind a function tells the order of
its outputs in the dialect, ``= name`` its name there.  ``struct T, U;`` names structs that the dialect lays out
itself; their addresses pass, and no values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

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
    "unread",
)
_COUNT = re.compile(r"\[(\*?)([^\]]*)\]$")


@dataclass(frozen=True)
class Declarator:
    """A parameter of a function, or a field of a struct.

    Attributes
    ----------
    name : str
        Empty for an anonymous union.
    type : str
        Without ``const`` and stars.
    stars : int
    count : str
        What stands in brackets; empty without them.
    is_behind : bool
        Whether ``count`` values lie behind an address.
    words : frozenset of str
        ``const``, and those of the notation.
    """

    name: str
    type: str
    stars: int = 0
    count: str = ""
    is_behind: bool = False
    words: frozenset[str] = frozenset()

    @property
    def is_pointer(self) -> bool:
        """Whether C passes an address."""
        return bool(self.stars) or bool(self.count)


@dataclass(frozen=True)
class Struct:
    """A struct or a union.

    Attributes
    ----------
    name : str
    fields : tuple of Declarator
    is_union : bool
    """

    name: str
    fields: tuple[Declarator, ...]
    is_union: bool = False


@dataclass(frozen=True)
class Function:
    """A function of the library.

    Attributes
    ----------
    name : str
        The symbol.
    returns : Declarator
    parameters : tuple of Declarator
    outputs : tuple of str
        The names of its outputs in the order of the dialect; empty if it is C's.
    dialect : str
        The name of the dialect's call.
    is_refused : bool
        Whether the dialect has it only to refuse it; its parameters may be unknown then.
    is_variadic : bool
        Whether variable arguments belong to its last parameter.
    """

    name: str
    returns: Declarator
    parameters: tuple[Declarator, ...]
    outputs: tuple[str, ...] = ()
    dialect: str = ""
    is_refused: bool = False
    is_variadic: bool = False


@dataclass
class Declarations:
    """What a library declares.

    Attributes
    ----------
    types : dict of str to Declarator
        By name: what a type stands for.
    structs : dict of str to Struct
    functions : dict of str to Function
        By symbol, in their order.
    callbacks : dict of str to Function
        Types of functions that programs pass.
    """

    types: dict[str, Declarator] = field(default_factory=dict)
    structs: dict[str, Struct] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)
    callbacks: dict[str, Function] = field(default_factory=dict)

    def scalar(self, declarator: Declarator) -> tuple[int, str] | None:
        """Return width and kind of what C passes in a register, None for a struct."""
        if declarator.is_pointer or declarator.type in self.callbacks:
            return 8, "p"
        if declarator.type in SCALARS:
            return SCALARS[declarator.type]
        if declarator.type in self.types:
            return self.scalar(self.types[declarator.type])
        return None

    def struct_of(self, declarator: Declarator) -> Struct | None:
        """Return the struct that a declarator has, or has the address of."""
        return self.structs.get(declarator.type)

    def outputs_of(self, function: Function) -> list[int]:
        """Return the places of the parameters that the outputs of the dialect's call belong to, in their order."""
        names = [each.name for each in function.parameters]
        if function.outputs:
            return [names.index(each) for each in function.outputs]
        return [
            at for at, each in enumerate(function.parameters) if each.words & {"out", "inout", "lib", "maybe"}
        ]


def read(text: str) -> Declarations:
    """Read declarations; ValueError names what is not understood."""
    found = Declarations()
    for statement in _statements(re.sub(r"//.*", "", text)):
        if (match := re.fullmatch(r"typedef (.*)", statement)) is not None:
            made = _declarator(match[1])
            found.types[made.name] = made
        elif (match := re.fullmatch(r"enum (.*)", statement)) is not None:
            found.types |= {name: Declarator(name, "int32_t") for name in _names(match[1])}
        elif (match := re.fullmatch(r"(struct|union) (\w+) \{(.*)\}", statement)) is not None:
            _add_struct(found, match[2], match[3], is_union=match[1] == "union")
        elif (match := re.fullmatch(r"struct (\w+(?:, \w+)*)", statement)) is not None:
            found.structs |= {name: Struct(name, ()) for name in _names(match[1])}
        elif (match := re.fullmatch(r"refused (.*)", statement)) is not None:
            if "(" in match[1]:
                function = _function(match[1])
                found.functions[function.name] = replace(function, is_refused=True)
                continue
            made = _declarator(match[1].partition(" ")[0] + " it")
            for each in _names(match[1].partition(" ")[2]):
                name, _, dialect = each.partition(" = ")
                returns = replace(made, name=name)
                found.functions[name] = Function(name, returns, (), dialect=dialect or name, is_refused=True)
        elif (match := re.fullmatch(r"callback (.*)", statement)) is not None:
            callback = _function(match[1])
            found.callbacks[callback.name] = callback
        else:
            function = _function(statement)
            found.functions[function.name] = function
    return found


def _statements(text: str) -> list[str]:
    """Return the text between semicolons that are not within braces, with single spaces."""
    found, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if letter == ";" and not depth:
            found.append(" ".join(text[begin:at].split()))
            begin = at + 1
    if text[begin:].strip():
        raise ValueError(f"there is no semicolon behind {' '.join(text[begin:].split())!r}")
    return found


def _names(text: str) -> list[str]:
    return [each.strip() for each in text.split(",")]


def _declarator(text: str) -> Declarator:
    """Read ``const T* name[count]``."""
    words = []
    while (first := text.partition(" "))[0] in _WORDS:
        words.append(first[0])
        text = first[2]
    match = re.fullmatch(
        r"((?:struct |unsigned |signed |long )*\w+) ?(\**) ?(?:const )?(\w+)((?:\[.*\])?)", text
    )
    if match is None:
        raise ValueError(f"{text!r} is not a type with a name")
    count = _COUNT.search(match[4])
    return Declarator(
        match[3],
        match[1].removeprefix("struct "),
        len(match[2]),
        count[2] if count else "",
        bool(count and count[1]),
        frozenset(words),
    )


def _add_struct(found: Declarations, name: str, body: str, *, is_union: bool) -> None:
    fields = []
    for number, statement in enumerate(_statements(body)):
        inner = re.fullmatch(r"(unread )?(struct|union) \{(.*)\} ?(\w*)", statement)
        if inner is None:
            fields.append(_declarator(statement))
            continue
        made = f"{name}.{inner[4] or number}"
        _add_struct(found, made, inner[3], is_union=inner[2] == "union")
        fields.append(Declarator(inner[4], made, words=frozenset(["unread"] if inner[1] else [])))
    found.structs[name] = Struct(name, tuple(fields), is_union)


def _function(text: str) -> Function:
    match = re.fullmatch(r"(.*?)\((.*?)\)(?: -> \((.*)\))?(?: = ([\w.]+))?", text)
    if match is None:
        raise ValueError(f"{text!r} is not a declaration")
    named = _declarator(match[1])
    given = match[2].strip()
    fixed = given.removesuffix(", ...")
    parameters = () if given in ("", "void") else tuple(map(_declarator, _names(fixed)))
    outputs = tuple(_names(match[3])) if match[3] else ()
    return Function(
        named.name, named, parameters, outputs, match[4] or named.name, is_variadic=fixed != given
    )
