"""Calls whose arguments a header describes in full: each has a body, or is refused.

The header gives names, ranges and outputs.  A type of it may stand for an object: then the body gets what a function
makes of the number, or the call is refused::

    calls = HeaderCalls(gpu.vendor, declarations_of("toy"), {"toyStream": gpu.streams.of}, gpu.failures.record)
    calls.define("toyStreamSynchronize", gpu.streams.synchronize)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from peerlane.dialects._shared.c_declarations import Declarations, Declarator, Function
from peerlane.dialects._shared.call import (
    Arguments,
    Convention,
    Declared,
    Failure,
    Parameters,
    Parse,
    Refusal,
    as_index,
)
from peerlane.dialects.gpu.vendor import Reason, Vendor
from peerlane.errors import Error, Fault

_WRITTEN = {"out", "lib", "maybe"}


class HeaderCalls(Convention):
    """The table of a vendor's calls, for Python and for C.

    A call takes the header's arguments by position, but for those that it writes.  It returns these, and the code
    behind them; 0 is success.

    ``declarations``: of the header.
    ``kinds``: by type of the header, or by type and name (``"int device"``): what makes an object of an argument, in
        the order of the arguments.
    ``report``: gets each failure.
    ``failed``: returns the refusal for an error of the core, or the error.
    """

    def __init__(
        self,
        vendor: Vendor,
        declarations: Declarations,
        kinds: Mapping[str, Callable[[int], Any]],
        report: Callable[[Failure], object],
        failed: Callable[[Error], Refusal | Error] = lambda error: error,
    ) -> None:
        ending = {name for name, each in declarations.functions.items() if "ending" in each.words}
        super().__init__(
            success=0,
            codes=vendor.fault_codes,
            explain=vendor.explain,
            report=report,
            late=lambda call: 0 if call in ending else vendor.code(Fault.PROCESS_ENDING),
        )
        self._vendor, self.declarations, self._kinds = vendor, declarations, kinds
        self._failed = failed
        self._objects = {"char", *declarations.structs, *declarations.callbacks}  # which C passes as objects

    def define(self, name: str, body: Callable[..., Any], *, first: Sequence[str] = ()) -> Callable[..., Any]:
        """Declare a call of the header.

        ``body``: gets the arguments in their order; returns the outputs, or raises.  A parameter annotated as ``int``
            gets the number, others get the object of that number.
        ``first``: the parameters whose objects are looked up before the others'.
        """
        function = self.declarations.functions[name]
        outputs = self.declarations.outputs_of(function)
        inputs = [each for each in function.parameters if not each.words & _WRITTEN]
        names = tuple(each.name for each in inputs)
        parsers = tuple(map(self._parse, inputs))
        annotations = [each.annotation for each in inspect.signature(body).parameters.values()]
        numbers = {at for at, each in enumerate(annotations) if each in (int, "int")}
        each_maker = ((at, self._maker(each)) for at, each in enumerate(inputs) if at not in numbers)
        makers = [(at, maker) for at, maker in each_maker if maker is not None]
        makers.sort(key=lambda step: names[step[0]] not in first)
        reads = tuple(each.read for each in parsers)
        types = tuple((each.name, each.type, True) for each in inputs)
        returned = (*(function.parameters[at].type for at in outputs), function.returns.type)
        returns = f"tuple[{', '.join(returned)}]" if outputs else returned[0]
        positional = [inspect.Parameter(each, inspect.Parameter.POSITIONAL_ONLY) for each in names]
        return self.declare(
            Parameters(name, names, parsers, len(names), reads, tuple(makers)),
            Declared(name, "", types, returns, inspect.getdoc(body) or ""),
            body,
            self.blanks(function),
            signature=inspect.Signature(positional),
        )

    def _maker(self, declarator: Declarator) -> Callable[[int], Any] | None:
        """Return what makes an object of an argument; None if the body gets the argument itself."""
        if declarator.is_pointer:
            return None
        by_name = self._kinds.get(f"{declarator.type} {declarator.name}")
        return by_name or self._kinds.get(declarator.type)

    def fail(self, call: str, error: Refusal | Error, arguments: Callable[[], Arguments]) -> int:
        """Report the error of a call as `Table.fail` does."""
        return super().fail(call, self._failed(error) if isinstance(error, Error) else error, arguments)

    def function(self, name: str) -> Callable[..., Any]:
        """Return a call of the header; one without a body refuses: ``UNSUPPORTED``."""
        defined = self.functions("").get(name)
        if defined is not None:
            return defined
        refusal = self._vendor.refusal(
            Reason.UNSUPPORTED,
            f"peerlane moves and shares memory on virtual devices; {name} is not part of that",
            "do without it; {reference} lists what works",
        )
        outputs = self.blanks(self.declarations.functions[name])
        return self.refusing(name, refusal, lambda code: (*outputs, code) if outputs else code)

    def blanks(self, function: Function) -> tuple[int | None, ...]:
        """Return the outputs of a call that failed: None for those that it writes then, too, if they have a value."""
        parameters = [function.parameters[at] for at in self.declarations.outputs_of(function)]
        return tuple(None if "always" in each.words else 0 for each in parameters)

    def refuse_argument(self, call: str, name: str, cause: str, arguments: Arguments) -> int:
        """Report a call of C whose argument is NULL, or wrong as ``cause`` says; return the code."""
        refusal = Refusal(
            self._vendor.code(Reason.INVALID_VALUE),
            cause or f"{name} is NULL",
            f"pass what the call needs for {name}" if name else "correct it",
        )
        return self.fail(call, refusal, lambda: arguments)

    def _parse(self, declarator: Declarator) -> Parse:
        scalar = None if declarator.count else self.declarations.scalar(declarator)
        if scalar is None or declarator.type in self._objects:
            return Parse(lambda value: value)
        width, kind = scalar
        if kind == "f":
            return Parse(_real)
        least, beyond = (-(1 << 8 * width - 1), 1 << 8 * width - 1) if kind == "i" else (0, 1 << 8 * width)

        def read(value: object) -> int:
            number = value if type(value) is int else as_index(value)
            if not least <= number < beyond:
                raise TypeError(f"is {number:,}; valid are {least:,} to {beyond - 1:,}")
            return number

        is_address = declarator.is_pointer or declarator.type in self._vendor.address_types
        return Parse(read, is_address=is_address)


def _real(value: Any) -> float:
    return float(value)
