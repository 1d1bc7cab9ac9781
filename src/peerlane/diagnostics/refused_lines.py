"""Hints for what Python itself refused of a line: arguments that a call of peerlane does not take, operators, and
attributes that cannot be set.

The hint is made when the error is shown: checks in the functions would make each call slower.  It needs the source of
the line and its columns, which Python records from 3.11 on.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import itertools
import linecache
import sys
import textwrap
from collections.abc import Callable
from types import FrameType, ModuleType, TracebackType
from typing import Any

from peerlane.diagnostics.call_site import instruction_at
from peerlane.support.other_libraries import meant_by

_PACKAGE = __name__.partition(".")[0]
_ABSENT = object()


def hint_for(trace: TracebackType | None) -> str:
    """Return what the text of an error adds; empty if its last line is none of which peerlane knows more."""
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    refused = _expression_at(trace) if trace is not None else None
    if trace is None or refused is None:
        return ""
    if isinstance(refused, ast.Call):
        return _hint_for_call(refused, trace.tb_frame)
    operator = "__add__"
    if isinstance(refused, ast.Subscript):
        if instruction_at(trace) != "STORE_SUBSCR":
            return ""
        operator = "__setitem__"
    if isinstance(refused, ast.Attribute):
        if instruction_at(trace) != "STORE_ATTR":
            return ""
        operator = f"{refused.attr}="
    for operand in ast.iter_child_nodes(refused):
        of = _class_of(operand, trace.tb_frame)
        if meant := next(filter(None, (meant_by(each.__name__, operator) for each in _own_classes(of))), ""):
            return f"; {meant}"
    return ""


def _hint_for_call(call: ast.Call, frame: FrameType) -> str:
    function, is_bound = _callee_of(call.func, frame)
    if function is None:
        return ""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a native one may not tell
        return ""
    parameters = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    signature = inspect.Signature(parameters[is_bound:])
    if _fits(call, signature):
        return ""
    by_name = [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
    return f"; call {ast.unparse(call.func)}{signature}" + (
        f", with {_listed(by_name)} by name" if by_name else ""
    )


def _fits(call: ast.Call, signature: inspect.Signature) -> bool:
    """Tell whether the signature takes the call's arguments, as far as their number and names can be read."""
    names = [each.arg for each in call.keywords]
    if None in names or any(isinstance(each, ast.Starred) for each in call.args):
        return True
    try:
        signature.bind(*call.args, **{str(name): None for name in names})
    except TypeError:
        return False
    return True


def _listed(names: list[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _callee_of(function: ast.expr, frame: FrameType) -> tuple[Callable[..., Any] | None, bool]:
    """Return what of peerlane the line calls, as it is documented, and whether its first argument is bound."""
    if isinstance(function, ast.Attribute):
        owner = _value_of(function.value, frame)
        of = owner if isinstance(owner, type) else _class_of(function.value, frame)
        # The last class is the public one; the first is that of a back-end.
        for each in reversed(_own_classes(of)):
            method = vars(each).get(function.attr)
            if isinstance(method, (classmethod, staticmethod)):
                return method.__func__, isinstance(method, classmethod)
            if inspect.isroutine(method):
                return method, owner is not of
    value = _value_of(function, frame)
    is_own = str(getattr(value, "__module__", "")).partition(".")[0] == _PACKAGE
    return (value if callable(value) and is_own else None), False


def _own_classes(of: type) -> list[type]:
    return [each for each in of.__mro__ if each.__module__.partition(".")[0] == _PACKAGE]


def _class_of(expression: ast.AST, frame: FrameType) -> type:
    """Return the class of a value; for the result of a call of peerlane's the one that its annotation names."""
    if not isinstance(expression, ast.Call):
        return type(_value_of(expression, frame))
    function, _ = _callee_of(expression.func, frame)
    if isinstance(function, type):
        return function
    named = vars(sys.modules[_PACKAGE]).get(str(getattr(function, "__annotations__", {}).get("return")))
    return named if isinstance(named, type) else object


def _value_of(expression: ast.AST, frame: FrameType) -> object:
    """Return the value of a name, or of an attribute that runs no code of the program; else a value of no use."""
    if isinstance(expression, ast.Name):
        for names in (frame.f_locals, frame.f_globals, vars(builtins)):
            if expression.id in names:
                return names[expression.id]
    if isinstance(expression, ast.Attribute):
        owner = _value_of(expression.value, frame)
        if isinstance(owner, ModuleType) or not _own_classes(type(owner)):
            return getattr(owner, "__dict__", {}).get(expression.attr, _ABSENT)
        return getattr(owner, expression.attr, _ABSENT)
    return _ABSENT


def _expression_at(trace: TracebackType) -> ast.AST | None:
    """Return the expression, or the augmented assignment, that the frame was at; None if its source is not known."""
    code = trace.tb_frame.f_code
    if not hasattr(code, "co_positions"):
        return None
    first, last, begin, end = next(
        itertools.islice(code.co_positions(), trace.tb_lasti // 2, None), (None,) * 4
    )
    if first is None or last is None or begin is None or end is None:
        return None
    lines = [
        line.encode()
        for line in linecache.getlines(code.co_filename, trace.tb_frame.f_globals)[first - 1 : last]
    ]
    if len(lines) != last - first + 1:
        return None
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][begin:]
    source = b"".join(lines).decode(errors="replace")
    for text in (f"({source})", textwrap.dedent(source)):
        try:
            statement = ast.parse(text).body[0]
        except (SyntaxError, ValueError):
            continue
        return statement.value if isinstance(statement, ast.Expr) else statement
    return None
