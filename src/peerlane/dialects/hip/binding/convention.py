"""How HIP's calls are declared: shapes come from the header, bodies from the modules of this dialect.

Every call returns a tuple with ``hipError_t`` first, and its outputs also when it failed (facts/hip 1.3).
"""

from __future__ import annotations

import enum
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, TypeVar

from peerlane.backend import host
from peerlane.dialects._shared.call import Arguments, Declared, Failure, Refusal, Steps, Table, steps_of
from peerlane.dialects.gpu.machine import GpuMachine
from peerlane.dialects.gpu.vendor import Reason
from peerlane.dialects.hip.binding import facts, results
from peerlane.dialects.hip.binding.arguments import Shape, shape_in, shape_of
from peerlane.dialects.hip.binding.enums import enumeration
from peerlane.dialects.hip.binding.structs import TooShort
from peerlane.dialects.hip.codes import CODES
from peerlane.dialects.hip.log import log
from peerlane.dialects.hip.policy import policy
from peerlane.errors import Error, Fault

_Body = TypeVar("_Body", bound=Callable[..., Any])
_LAST_ERROR_KEPT = (7, 0)  # from that version of HIP on (facts/hip 0.10)

hipError_t = enumeration("hipError_t")
SUCCESS = hipError_t["hipSuccess"]
INVALID_VALUE = hipError_t["hipErrorInvalidValue"]
INVALID_DIRECTION = hipError_t["hipErrorInvalidMemcpyDirection"]
NOT_READY = hipError_t["hipErrorNotReady"]
NOT_SUPPORTED = hipError_t["hipErrorNotSupported"]
DEINITIALIZED = hipError_t["hipErrorDeinitialized"]
hiprtcResult = enumeration("hiprtcResult")
codes: Mapping[Reason | Fault, int] = MappingProxyType(
    {reason: hipError_t[name] for reason, name in CODES.items()}
)


#: Calls of destructors and exit handlers.  What they ask for is done once this process has left its node.
_DONE_AT_THE_END = frozenset(facts()["ending"])


class LastError(threading.local):
    """The codes of a thread's latest calls."""

    code = SUCCESS  #: what hipGetLastError gives
    newest = SUCCESS  #: of the newest call: what hipExtGetLastError gives


class Stopped(Refusal):
    """A refusal of a call that has outputs nevertheless."""

    def __init__(self, code: int, cause: str, remedy: str, *outputs: Any) -> None:
        super().__init__(code, cause, remedy)
        self.outputs = outputs


def refusal(name: str, cause: str, remedy: str) -> Refusal:
    """Return the refusal with the code of that name: ``refusal("hipErrorInvalidValue", ...)``."""
    return Refusal(hipError_t[name], cause, remedy)


def invalid(cause: str, remedy: str) -> Refusal:
    """Return the refusal with hipErrorInvalidValue."""
    return Refusal(INVALID_VALUE, cause, remedy)


def refuse_fewer(name: str, structs: Any, count: int) -> None:
    """Refuse a count above that of the structs passed: hipErrorInvalidValue; a bare address has no bound."""
    known = structs._nbytes
    if known is not None and count * structs.c_sizeof() > known:
        raise refusal(
            "hipErrorInvalidValue",
            f"{count:,} are announced, and {name} has {known // structs.c_sizeof():,}",
            f"make {name} with {structs._name()}.allocate(count)",
        )


def member(struct: Any, name: str, code: int = INVALID_VALUE, at: int = 0) -> Any:
    """Return a member of an enumeration in the struct at index ``at``; refuse a number that is not a member."""
    try:
        return getattr(struct, f"get_{name}")(at)
    except ValueError as error:
        raise Refusal(code, f"{name}: {error}", f"set {name} to a member") from None


class Calls(Table):
    """The table of calls; a name has no module before it.

    ``explain``: returns the cause of an error and what to do about it, in HIP's terms.
    ``report``: gets each :class:`Failure` but hipErrorNotReady, before the call returns.
    ``trace``: gets each call, with its code and its arguments, while the log has calls.
    """

    def __init__(
        self,
        *,
        explain: Callable[[Error], tuple[str, str]],
        report: Callable[[Failure], None],
        trace: Callable[[str, int, Arguments], None],
        machine: GpuMachine,
    ) -> None:
        def report_failure(failure: Failure) -> None:
            if failure.code != NOT_READY:
                report(failure)

        super().__init__(
            codes={fault: codes[fault] for fault in codes if isinstance(fault, Fault)},
            explain=explain,
            report=report_failure,
            late=lambda call: DEINITIALIZED,
        )
        self._machine, self._trace = machine, trace
        self._bodies: dict[str, Callable[..., Any]] = {}
        self._overloads: dict[str, list[Shape]] = {}
        self._announced: set[str] = set()
        self._keep_last: set[str] = set()
        self._without_device: set[str] = set()
        self._refusals: dict[str, Callable[[Mapping[str, Any]], None]] = {
            name: functools.partial(_refuse_null, codes) for name, codes in facts()["refusals"].items()
        }
        self._ended: list[bool] = []
        self.last = LastError()

    @property
    def bodies(self) -> Mapping[str, Callable[..., Any]]:
        """The bodies of the declared calls by name."""
        return MappingProxyType(self._bodies)

    def overloads(self, name: str) -> tuple[Shape, ...]:
        """Return the shapes of a call that ``declare_overload`` added."""
        return tuple(self._overloads.get(name, ()))

    def end(self) -> None:
        """Note that the process has left its node for good."""
        self._ended.append(True)

    def forget(self) -> None:
        """Reset to the state of a new process."""
        self.last = LastError()
        self._announced.clear()

    def call(
        self, name: str, *, first: Sequence[str] = (), keeps_last: bool = False, needs_device: bool = True
    ) -> Callable[[_Body], Callable[..., Any]]:
        """Declare a call of the vendor's table.

        The body has the parameters of the table, by their names.  It gets pointers, streams and events as addresses
        (ints), structs as objects or None, enumerations as members, or what the :class:`Check` in a parameter's
        annotation makes of them; it returns the outputs, one or a tuple of them, or raises.

        ``name``: ``"hipMalloc"``.
        ``first``: the parameters that are checked before the others, as the vendor does; the others follow in their
            order.
        ``keeps_last``: the call does not set the last error.
        ``needs_device``: without a visible device it is hipErrorNoDevice, whatever the arguments.
        """
        shape = shape_of(name)

        def declare(body: _Body) -> Callable[..., Any]:
            assert tuple(inspect.signature(body).parameters) == shape.names, name
            steps = steps_of(body, first=first)
            self._bodies[name] = _checked(body, steps)
            if keeps_last:
                self._keep_last.add(name)
            if not needs_device:
                self._without_device.add(name)
            answering = self._answering(name, shape, body, steps, needs_device=needs_device)
            return self.serve(name, answering, self.document(name, body), signature=_signature(name))

        return declare

    def declare(self, name: str, body: Callable[..., Any], doc: str, module: str) -> None:
        """Declare a call by a body without checks in its annotations, which gets the arguments as they were read."""
        body.__doc__, body.__module__ = doc, module
        self._bodies[name] = body
        answering = self._answering(name, shape_of(name), body)
        self.serve(name, answering, self.document(name, body), signature=_signature(name))

    def declare_async(self, of: str, body: Callable[..., Any], *, last: str = "") -> None:
        """Declare the call with Async behind its name, with a stream as its last argument."""
        described = self._table[of].facts
        refuses, basis = described["Refuses"], described["Basis"].partition(";")[0]
        shared = refuses if refuses.startswith("as `") and ";" not in refuses else f"as `{of}`"
        doc = f"Queue what {of} does{last}.\n\nRefuses: {shared}; the stream\nBasis: {basis}"
        self.declare(f"{of}Async", body, doc, self._bodies[of].__module__)

    def declare_alias(
        self,
        name: str,
        of: str,
        *fixed: object,
        basis: str = "D",
        does: str = "",
        within: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> None:
        """Declare a call that runs the body of ``of`` within a context, with ``fixed`` behind its arguments."""
        body, described = self._bodies[of], self._table[of].facts

        def run(*args: Any) -> Any:
            if within is None:
                return body(*args, *fixed)
            with within():
                return body(*args, *fixed)

        gives = f"Gives: {described['Gives']}\n" if "Gives" in described else ""
        refuses = f"Refuses: as `{of}`\n" if "Refuses" in described or within else ""
        doc = f"{does or f'Do what {of} does.'}\n\n{gives}{refuses}Basis: {basis}"
        self.declare(name, run, doc, body.__module__)

    def declare_overload(self, name: str, which: str) -> Callable[[_Body], _Body]:
        """Declare a second body of a call, for another number of arguments.

        ``which`` ({"C", "earlier"}): whose parameters it has: those of the function in C, or of the earlier version
            of the binding.
        """
        shape = shape_in(name, which)
        first = self._modules[""][name]
        overloads = shape_of(name).overloads
        if shape.names not in overloads:
            overloads.append(shape.names)
        self._overloads.setdefault(name, []).append(shape)

        def declare(body: _Body) -> _Body:
            other = self._answering(name, shape, body, steps_of(body))

            def choose(*args: Any, **keywords: Any) -> Any:
                return (other if len(args) + len(keywords) == len(shape.names) else first)(*args, **keywords)

            functools.update_wrapper(choose, first)
            del choose.__wrapped__  # type: ignore[attr-defined]
            self.serve(name, choose, signature=_signature(name))
            return body

        return declare

    def _answering(
        self,
        name: str,
        shape: Shape,
        body: Callable[..., Any],
        steps: Steps = (),
        *,
        needs_device: bool = True,
    ) -> Callable[..., Any]:
        readers, count, outputs = shape.readers, len(shape.names), len(shape.outputs)
        machine, fills, keeps_last = self._machine, shape.is_filled_in_older, name in self._keep_last
        success = answers(name)(0)
        done = (success,)
        ended = self._ended if needs_device else ()
        at_end = (success, *shape.blank()) if name.removesuffix("_spt") in _DONE_AT_THE_END else None

        def wrapper(*args: Any, **keywords: Any) -> Any:
            if ended:  # before anything that the interpreter may have taken apart by now
                return at_end or (DEINITIALIZED, *shape.meant(args, keywords).blank())
            target = None
            if keywords or len(args) != count:
                meant = shape.meant(args, keywords) if fills else shape
                args = meant.bind(args, keywords)
                if meant is not shape:
                    target, args = results.struct(shape.outputs[0][1]).fromObj(args[0]), args[1:]
            try:
                values = [read(each) for read, each in zip(readers, args)]  # noqa: B905 - as many; it costs
                if needs_device and not machine.is_shown:
                    machine.shown()
                if target is not None and not int(target):
                    raise refusal("hipErrorInvalidValue", "what to fill is NULL", "pass a struct")
                for at, check in steps:
                    values[at] = check(values[at])
                result = body(*values)
                if target is not None:
                    results.fill(target, result)
            except (Refusal, Error, TooShort) as error:
                shown = functools.partial(shape.shown, args)  # a lambda would make args slower for all
                code = self.failed(name, error, shown)
                result = error.outputs if isinstance(error, Stopped) else shape.blank()
                answer = (code, *result)
            else:
                if not keeps_last:
                    last = self.last
                    last.newest = SUCCESS
                    if policy.version < _LAST_ERROR_KEPT:
                        last.code = SUCCESS
                answer = done if not outputs else (success, result) if outputs == 1 else (success, *result)
            if log.has_calls:
                self._trace(name, answer[0], shape.shown(args))
            return answer if target is None else answer[:1]

        return wrapper

    def document(self, name: str, body: Callable[..., Any]) -> Callable[..., Any]:
        """Put a call into the table as ``body`` describes it, and return ``body``."""
        self._table[name] = _declared(name, shape_of(name), body)
        return body

    def refuse(self, name: str) -> Callable[..., Any]:
        """Return a call of the vendor's table that is not supported; the first use writes a message.

        hipErrorNotSupported, or of the run-time compiler HIPRTC_ERROR_INTERNAL_ERROR, as it has no such code.
        """
        shape = shape_of(name)

        def wrapper(*args: Any, **keywords: Any) -> Any:
            meant = shape.meant(args, keywords)
            values = meant.bind(args, keywords)
            read = (
                {key: make(each) for key, make, each in zip(meant.names, meant.readers, values, strict=True)}
                if name in self._refusals
                else {}
            )
            return (self.unsupported(name, functools.partial(meant.pair, values), read), *meant.blank())

        wrapper.__doc__ = f"Return {_refused(name).name}: peerlane has memory and streams, and no kernels."
        return self.serve(name, wrapper, signature=_signature(name))

    def refuses(self, name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Declare which arguments an unsupported call refuses as the vendor's does.

        The function gets arguments by their names, those that it has, as the body of a call gets them.  Where NULL
        alone is refused, the header says so.
        """

        def declare(refuse: Callable[..., None]) -> Callable[..., None]:
            names = tuple(inspect.signature(refuse).parameters)
            self._refusals[name] = lambda values: refuse(*(values[each] for each in names))
            return refuse

        return declare

    def has_refusals(self, name: str) -> bool:
        """Tell whether an unsupported call refuses some arguments as the vendor's does."""
        return name in self._refusals

    def unsupported(
        self,
        name: str,
        arguments: Callable[[], Arguments] = tuple,
        values: Mapping[str, Any] = MappingProxyType({}),
    ) -> Any:
        """Report an unsupported call, the first time also on stderr; return the code."""
        refuse, code = self._refusals.get(name), _refused(name)
        try:
            self.need_device(name)
            if refuse is not None and values:
                refuse(values)
        except (Refusal, Error) as error:
            return self.failed(name, error, arguments)
        cause = f"peerlane moves and shares memory on virtual devices; {name} is not part of that"
        if name not in self._announced:
            self._announced.add(name)
            sys.stderr.write(f"peerlane: {cause}: {code.name}\n")
        return self.failed(name, Refusal(code, cause, "docs/reference/hip.md lists what works"), arguments)

    def need_device(self, name: str) -> None:
        """Refuse a call that needs a visible device when there is none: hipErrorNoDevice, before all else."""
        if not (is_compiler(name) or name in self._without_device or self._machine.is_shown):
            self._machine.shown()

    def failed(
        self, name: str, error: Refusal | Error | TooShort, arguments: Callable[[], Arguments] = tuple
    ) -> Any:
        """Report the error of a call, and make its code the last one; return the code."""
        if isinstance(error, TooShort):
            error = invalid(str(error), "pass the struct itself, or all of its bytes")
        code = answers(name)(self.fail(name, error, arguments))
        if name not in self._keep_last and not is_compiler(name):
            self.last.newest = code
            host.forget_c_thread()  # its next call that works must note that
            if code is not NOT_READY or policy.version < _LAST_ERROR_KEPT:
                self.last.code = code
        return code


def _signature(name: str) -> inspect.Signature:
    return shape_of(name).signature


def _checked(body: Callable[..., Any], steps: Steps) -> Callable[..., Any]:
    """Return a body that checks its arguments itself."""
    if not steps:
        return body

    @functools.wraps(body)
    def checked(*args: Any) -> Any:
        values = list(args)
        for at, check in steps:
            values[at] = check(values[at])
        return body(*values)

    return checked


def is_compiler(name: str) -> bool:
    """Tell whether a call is the run-time compiler's, which returns a hiprtcResult and has no last error."""
    return name.startswith("hiprtc")


def _refuse_null(codes: Mapping[str, str], values: Mapping[str, Any]) -> None:
    for name, code in codes.items():
        if not values[name]:
            raise refusal(code, f"{name} is NULL", f"pass what the call needs for {name}")


def _refused(name: str) -> enum.IntEnum:
    return hiprtcResult["HIPRTC_ERROR_INTERNAL_ERROR"] if is_compiler(name) else NOT_SUPPORTED


def answers(name: str) -> type[enum.IntEnum]:
    """Return the enumeration of a call's codes: hipError_t or hiprtcResult."""
    return hiprtcResult if is_compiler(name) else hipError_t


def _declared(name: str, shape: Shape, body: Callable[..., Any]) -> Declared:
    parameters = tuple((each, kind, True) for each, kind in zip(shape.names, shape.types, strict=True))
    returns = ", ".join((answers(name).__name__, *(kind for _, kind in shape.outputs)))
    module = "hiprtc" if is_compiler(name) else "hip"
    return Declared.documented(f"{module}.{name}", body, parameters, f"tuple[{returns}]")
