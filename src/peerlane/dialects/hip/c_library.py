"""``libamdhip64.so`` and ``libhiprtc.so``: the dialect `hip` for C.

The dialect's calls take addresses, and lay structs out in memory as C does.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from peerlane.diagnostics.memory.addresses import is_mapped
from peerlane.dialects._shared.c_declarations import Declarations, Declarator, Function
from peerlane.dialects._shared.c_layout import Layout
from peerlane.dialects._shared.c_library import Library, Words, Wrong
from peerlane.dialects._shared.c_names import declarations_of
from peerlane.dialects._shared.call import Arguments, Refusal
from peerlane.dialects.gpu.quick import QuickCalls
from peerlane.dialects.hip import hip, hiprtc  # noqa: F401 - they declare the calls
from peerlane.dialects.hip.binding import facts, real_name
from peerlane.dialects.hip.binding.convention import (
    INVALID_DIRECTION,
    INVALID_VALUE,
    answers,
    hipError_t,
    hiprtcResult,
    is_compiler,
)
from peerlane.dialects.hip.binding.enums import enumeration, is_enumeration
from peerlane.dialects.hip.log import log
from peerlane.dialects.hip.policy import policy
from peerlane.dialects.hip.state import calls, gpu
from peerlane.errors import Error

_ARCHITECTURE = 942  # gcnArch, a field of the earlier struct alone: the digits of gfx942
_LIMITS = enumeration("hipLimit_t")["hipLimitRange"]  # the vendor knows a limit below that, and has no value
_UNSUPPORTED_LIMIT = hipError_t["hipErrorUnsupportedLimit"]
_NAMED_FOR_OTHERS = {"hipError_t": "hipErrorUnknown", "hiprtcResult": "HIPRTC_ERROR_INTERNAL_ERROR"}


class Hip(Library):
    """Its arguments are those of the dialect, but for the members of enumerations."""

    def write_struct(self, name: str, address: int, source: Any) -> None:
        """Copy a struct to an address."""
        if isinstance(source, ctypes.Structure):
            ctypes.memmove(address, ctypes.addressof(source), ctypes.sizeof(source))
        else:
            ctypes.memmove(address, int(source), facts()["structs"][real_name(name)]["size"])

    def _reader(self, function: Function, at: int) -> Callable[[Words], Any]:
        parameter = function.parameters[at]
        if parameter.count:
            return super()._reader(function, at)
        if not parameter.is_pointer and is_enumeration(parameter.type):
            is_text = function.returns.is_pointer
            return _member(parameter, at, _NAMED_FOR_OTHERS[parameter.type] if is_text else "")
        if parameter.type == "dim3":
            return lambda words: tuple((ctypes.c_uint32 * 3).from_address(words[at]))
        return lambda words: words[at]

    def _writer(self, function: Function, at: int) -> Callable[[Words, Any], None]:
        parameter = function.parameters[at]
        store = super()._writer(function, at)
        if parameter.type in self.declarations.structs or parameter.type == "float":
            return store
        if parameter.type == "char":
            convert: Callable[[str], Any] = str if parameter.count else self.text
            return lambda words, value: store(words, convert(str(value)))
        return lambda words, value: store(words, int(value or 0))


def _member(parameter: Declarator, at: int, otherwise: str) -> Callable[[Words], Any]:
    """Return what makes a member of an enumeration; ``otherwise`` is the name of the one for all other numbers."""
    kind = enumeration(parameter.type)

    def read(words: Words) -> Any:
        try:
            return kind(words[at])
        except ValueError:
            if otherwise:
                return kind[otherwise]
            raise Wrong(parameter.name, f"{parameter.name} is {words[at]}, no {parameter.type}") from None

    return read


@functools.cache
def _property_structs() -> tuple[Any, Any, frozenset[str]]:
    """Return the struct of properties, that of programs from before HIP 6, and the fields that both have."""
    declared = declarations_of("hip")
    names = "hipDeviceProp_t", "hipDeviceProp_tR0000"
    later, earlier = map(Layout(declared).struct, names)
    fields = [{each.name for each in declared.structs[name].fields} for name in names]
    return later, earlier, frozenset.intersection(*map(frozenset, fields))


def _properties(device: int) -> tuple[Any, ...]:
    code, properties = calls.functions("")["hipGetDeviceProperties"](device)
    if code:
        return code, None
    later, earlier, fields = _property_structs()
    source, target = later.from_address(int(properties)), earlier(gcnArch=_ARCHITECTURE)
    for each in fields:
        setattr(target, each, getattr(source, each))
    return code, target


def _choose(prop: int) -> Any:
    choose = calls.functions("")["hipChooseDevice"]
    if not prop:
        return choose(None)
    later, earlier, fields = _property_structs()
    source, target = earlier.from_address(prop), later()
    for each in fields:
        setattr(target, each, getattr(source, each))
    return choose(ctypes.addressof(target))


def _without_options(call: str, at: int) -> Callable[..., Any]:
    """Return a call with the output at ``at`` only, or none: the binding has others for lists of options."""

    def run(*arguments: Any) -> tuple[Any, ...]:
        code, *outputs = calls.functions("")[call](*arguments)
        return (code, outputs[at]) if at >= 0 else (code,)

    return run


def _instantiate(graph: int, size: int) -> tuple[Any, ...]:
    return tuple(calls.functions("")["hipGraphInstantiate"](graph, size)[:-1])  # the log stays as it is


def _end_capture(call: str) -> Callable[..., Any]:
    """Return a call that gives NULL when it fails."""

    def run(stream: int) -> tuple[Any, ...]:
        code, graph = calls.functions("")[call](stream)
        return code, graph or 0

    return run


def _import_memory(handle: int, kind: Any) -> Any:
    return calls.functions("")["hipMemImportFromShareableHandle"](_descriptor(handle), kind)


def _import_pool(handle: int, kind: Any, flags: int) -> Any:
    return calls.functions("")["hipMemPoolImportFromShareableHandle"](_descriptor(handle), kind, flags)


def _descriptor(word: int) -> int:
    """Return the address of a descriptor, or the descriptor: an int in a pointer, half of which may be anything."""
    return word if is_mapped(word) else word & 0xFFFF_FFFF


#: Calls whose arguments are others in C, and those that only C has.
_OTHERS: dict[str, Callable[..., Any]] = {
    "hipGetDevicePropertiesR0000": _properties,
    "hipChooseDeviceR0000": _choose,
    "hipGraphInstantiate": _instantiate,
    "hipStreamEndCapture": _end_capture("hipStreamEndCapture"),
    "hipStreamEndCapture_spt": _end_capture("hipStreamEndCapture_spt"),
    "hipLibraryLoadData": _without_options("hipLibraryLoadData", 0),
    "hipLibraryLoadFromFile": _without_options("hipLibraryLoadFromFile", 0),
    "hipLinkCreate": _without_options("hipLinkCreate", 1),
    "hipLinkAddData": _without_options("hipLinkAddData", -1),
    "hipLinkAddFile": _without_options("hipLinkAddFile", -1),
    "hipMemImportFromShareableHandle": _import_memory,
    "hipMemPoolImportFromShareableHandle": _import_pool,
}


def _call(declarations: Declarations) -> Callable[[str], Callable[..., Any]]:
    functions: dict[str, Function] = {}
    for each in declarations.functions.values():  # of several for one call, one that has its parameters
        if each.parameters or each.dialect not in functions:
            functions[each.dialect] = each

    def served(name: str) -> Callable[..., Any]:
        function = functions[name]
        is_code = function.returns.type == answers(name).__name__
        if function.is_refused:
            return functools.partial(_refused, function, is_code)
        call = _OTHERS.get(name) or calls.functions("")[name]
        if not is_code:
            return lambda *args: _plain(call(*args)[1])
        if not declarations.outputs_of(function):
            return lambda *args: call(*args)[0]

        def turned(*args: Any) -> Any:
            code, *outputs = call(*args)
            return (*outputs, code)

        return turned

    return served


def _refused(function: Function, is_code: bool, *arguments: Any) -> int:
    name = function.dialect
    if calls.has_refusals(name):
        code = (calls.functions("").get(name) or calls.refuse(name))(*arguments)[0]
    else:
        code = calls.unsupported(name, lambda: _shown(function, arguments))
    return int(code) if is_code else 0


def _shown(function: Function, arguments: tuple[Any, ...]) -> Arguments:
    """Return the arguments of a refused call for its text; without a declaration one that they were not read."""
    if not function.parameters:
        return (("arguments", "not read", None),)
    read = [each for each in function.parameters if "unread" not in each.words]
    return tuple((each.name, value, each.is_pointer) for each, value in zip(read, arguments, strict=True))


def _plain(value: Any) -> Any:
    return value if isinstance(value, int) else str(value)


def _refuse(call: str, name: str, cause: str, arguments: Arguments) -> int:
    code = hiprtcResult["HIPRTC_ERROR_INVALID_INPUT"] if is_compiler(call) else INVALID_VALUE
    if name == "limit" and _signed({each[0]: each[1] for each in arguments}["limit"]) < _LIMITS:
        code = _UNSUPPORTED_LIMIT
    if name == "kind":  # of a copy, in every call that has one
        code = INVALID_DIRECTION
    error: Refusal | Error = Refusal(
        code, cause or f"{name} is NULL", f"pass what the call needs for {name}" if name else "correct it"
    )
    try:
        calls.need_device(call)
    except (Refusal, Error) as none:
        error = none
    return int(calls.failed(call, error, lambda: arguments))


def _signed(word: Any) -> int:
    return ctypes.c_int32(word).value


_quick = QuickCalls("hip", gpu, may=lambda: policy.is_plain and not log.has_calls)


def library(header: str) -> Library:
    """Return the library of a header."""
    return Hip(
        declarations_of(header),
        call=_call(declarations_of("hip")),
        refuse=_refuse,
        learn={
            "hipGetDevice": _quick.thread,
            "hipMemcpy": _quick.thread,
            "hipMemcpyAsync": _quick.stream,
            "hipStreamAddCallback": _quick.call,
            **_quick.of_streams("hip"),
            **_quick.of_pools("hipMallocAsync", "hipMallocFromPoolAsync", "hipFreeAsync"),
        },
    )
