"""Finds, by the program's source, whether a line that reads memory is a poll: in a loop that waits for what it reads.

A poll is a read whose value decides whether a loop ends.  The test of a ``while`` uses the value, or the test of an
``if`` that leaves the loop.  The test may contain the read, or a variable that was set from it.  The read may also be
in a function or a generator that passes the value to the loop, directly or through a few others.  A function that
calls itself until the value lets it return counts as a loop.  A copy to the host counts as a read.

A loop that also submits operations is not a wait, and neither is one that reads other bytes each time.
"""

from __future__ import annotations

import ast
import functools
import linecache
import re
import sys
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType
from typing import TypeAlias

from peerlane.diagnostics import call_site
from peerlane.diagnostics.log import event_log

Path: TypeAlias = Sequence[ast.AST]  # a node behind all that contain it, outermost first

NEITHER, POLLS, KEEPS, HIDDEN = range(1, 5)  # as in native/python/bind.h
_MOST_FRAMES = 4  # of functions that return what they read: as many as a site of the log has
_LOOPS = (ast.While, ast.For, ast.AsyncFor)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_LEAVES = (ast.Break, ast.Continue, ast.Return, ast.Raise)
#: Calls of NumPy and torch that take the bytes of an array without a call that it could see.
_TAKES = frozenset({"asarray", "ascontiguousarray", "asfortranarray", "require", "from_numpy", "as_tensor"})
#: Calls of NumPy and torch that release a buffer at once, and use its bytes as long as their result lives.
_KEEPS = frozenset({"frombuffer"})
_texts: dict[CodeType, str] = {}
_plain_makers: dict[tuple[CodeType, int], bool] = {}
#: Calls that submit operations, in peerlane and in the dialects.
_SUBMITS = re.compile(
    r"copy_(from|to)|fill|write(_blocks|_value)?|notify|(all_)?reduce|record\w*|launch"
    r"|(hip|acl|Hcomm|Hccl)?\w*(Memcpy|Memset|memcpy|memset|WriteValue|Launch)\w*"
)

#: Those that may copy to the host what a loop looks at.
_COPIES = re.compile(r"copy(_from|_to)?|\w*[mM]emcpy\w*")


def know_source(code: CodeType, source: str) -> None:
    """Keep the source of a module that no file has, such as that of ``-c``."""
    _texts[code] = source
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            know_source(constant, source)


def line() -> int:
    """Return POLLS, KEEPS, HIDDEN (no source) or NEITHER, for the line of the program that reads now."""
    frame = _frame_of_program()
    if frame is None:
        return NEITHER
    path = _path(frame)
    calls = [node for node in path if isinstance(node, ast.Call)]
    for depth in range(_MOST_FRAMES):
        if not path:
            return HIDDEN
        if _ends_loop(path, is_call=depth != 0) or _ends_recursion(path, frame.f_code.co_name):
            return POLLS
        if frame.f_back is None or not _is_returned(path):
            break
        frame = frame.f_back
        path = _path(frame)
    return KEEPS if calls and _called(calls[-1]) in _KEEPS else NEITHER


def makes_plain_array() -> bool:
    """Tell whether the present line of the program makes a plain array or a tensor of the view that it asks for."""
    frame = _frame_of_program()
    if frame is None:
        return False
    at = frame.f_code, frame.f_lasti
    if at not in _plain_makers:
        _plain_makers[at] = _is_passed_to(_path(frame), _TAKES)
    return _plain_makers[at]


def _frame_of_program() -> FrameType | None:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and call_site.is_own(frame):
        frame = frame.f_back
    return frame


def _path(frame: FrameType) -> Path:
    """Return the expression that a frame evaluates, behind all that contain it; empty if its source is not there."""
    linecache.lazycache(frame.f_code.co_filename, frame.f_globals)
    tree = _tree(frame.f_code.co_filename, _texts.get(frame.f_code, ""))
    if tree is None:
        return ()
    line, column = frame.f_lineno, -1
    if hasattr(frame.f_code, "co_positions"):  # since Python 3.11
        positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
        line, column = positions[0] or line, -1 if positions[2] is None else positions[2]
    path: list[ast.AST] = [tree]
    while (inner := _child_at(path[-1], line, column)) is not None:
        path.append(inner)
    return path


@functools.lru_cache(maxsize=64)
def _tree(file: str, text: str) -> ast.Module | None:
    with event_log.quiet():  # peerlane reads the file, and not the program
        source = text or "".join(linecache.getlines(file))
    try:
        return ast.parse(source) if source else None
    except (SyntaxError, ValueError):
        return None


def _child_at(node: ast.AST, line: int, column: int) -> ast.AST | None:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.stmt, ast.expr)):  # an argument list, the item of a `with`
            inner = _child_at(child, line, column)
            if inner is not None:
                return child
            continue
        begin, end = (child.lineno, child.col_offset), (child.end_lineno or 0, child.end_col_offset or 0)
        if column < 0 and begin[0] <= line <= end[0]:
            return child
        if column >= 0 and begin <= (line, column) < end:
            return child
    return None


def _ends_loop(path: Path, *, is_call: bool = False) -> bool:
    """Tell whether the value of a path's last node, which may be a call, decides whether a loop around it ends."""
    names = _names_of(path)
    if is_call and path and isinstance(path[-1], ast.For):  # of a generator, or of `iter`
        loop = path[-1]
        return (_is_iter_of_call(loop.iter) or _is_left_by(loop, _names_in(loop.target))) and not _submits(
            loop, names
        )
    tests = False  # whether it is in the test of an `if` that leaves a loop
    changed: frozenset[str] = frozenset()  # what an `if` by it changes
    for depth in range(len(path) - 1, 0, -1):
        node, inner = path[depth - 1], path[depth]
        if isinstance(node, _FUNCTIONS):
            return False
        if isinstance(node, ast.If) and inner is node.test:
            tests, changed = _leaves(node), _changed_by(node)
        if isinstance(node, ast.Try) and inner in node.body and isinstance(inner, ast.Assert):
            tests = True
        if isinstance(inner, ast.stmt) and names and _is_before_loop(node, inner, names):
            return True
        if isinstance(node, ast.While) and inner is node.test:
            return not _submits(node, names) and not _uses_within(path[depth:], _changed_by(node))
        if isinstance(node, ast.While) and _uses(node.test, changed):
            return not _submits(node, names)
        if isinstance(node, (ast.For, ast.AsyncFor)) and _uses_within(path[depth:], _names_in(node.target)):
            tests, names = False, frozenset()  # each time it reads, or waits for, something else
        if isinstance(node, ast.For) and inner is node.iter and _is_iter_of_call(node.iter):
            return not _submits(node, names)
        if isinstance(node, _LOOPS) and inner in node.body and (tests or _is_left_by(node, names)):
            return not _submits(node, names)
    return False


def _is_returned(path: Path) -> bool:
    """Tell whether the function around a path's last node returns what that is."""
    names = _names_of(path)
    for depth in range(len(path) - 1, 0, -1):
        node, inner = path[depth - 1], path[depth]
        if isinstance(node, (ast.Return, ast.Yield)) or (
            isinstance(node, ast.If) and inner is node.test and _returns(node)
        ):
            return True
        if isinstance(node, ast.Lambda):
            return inner is node.body
        if isinstance(node, _FUNCTIONS):
            return any(
                _uses(each, names)
                for each in _own_nodes(node)
                if isinstance(each, (ast.Return, ast.Yield)) or (isinstance(each, ast.If) and _returns(each))
            )
    return False


def _ends_recursion(path: Path, function: str) -> bool:
    """Tell whether a path's last node decides whether its function returns or calls itself."""
    for depth in range(len(path) - 1, 0, -1):
        node, inner = path[depth - 1], path[depth]
        if isinstance(node, ast.If) and inner is node.test:
            own = next((each for each in reversed(path[:depth]) if isinstance(each, _FUNCTIONS)), None)
            return (
                own is not None
                and any(isinstance(each, ast.Call) and _called(each) == function for each in _own_nodes(own))
                and not _submits(own)
            )
    return False


def _uses_within(path: Path, names: frozenset[str]) -> bool:
    """Tell whether the expression of a path's last node, as far as that goes, uses one of the names."""
    outermost = next((each for each in path if isinstance(each, ast.expr)), None)
    return outermost is not None and _uses(outermost, names)


def _changed_by(branch: ast.If | ast.While) -> frozenset[str]:
    """Return the names of what a branch sets, sets elements of, or calls methods of."""
    names: frozenset[str] = frozenset()
    for statement in branch.body:
        for each in (statement, *_own_nodes(statement)):
            names |= _names_of([each])
            if (
                isinstance(each, ast.Call)
                and isinstance(each.func, ast.Attribute)
                and isinstance(branch, ast.If)
            ):
                names |= _names_in(each.func.value)
    return names


def _is_before_loop(block: ast.AST, statement: ast.stmt, names: frozenset[str]) -> bool:
    """Tell whether a statement sets what the test of a `while` behind it uses, which sets it too."""
    body = getattr(block, "body", None)
    if not isinstance(body, list) or statement not in body:
        return False
    behind = body[body.index(statement) + 1 :]  # nodes compare by identity
    return any(
        isinstance(each, ast.While)
        and _uses(each.test, names)
        and any(names & _names_of([inner]) for inner in _own_nodes(each))
        and not _submits(each)
        for each in behind
    )


def _names_in(target: ast.AST) -> frozenset[str]:
    return frozenset(each.id for each in ast.walk(target) if isinstance(each, ast.Name))


def _names_of(path: Path) -> frozenset[str]:
    """Return the names that a path's last node is assigned to."""
    names: set[str] = set()
    for node in path:
        targets: list[ast.AST] = []
        if isinstance(node, ast.Assign):
            targets = list(node.targets)
        elif isinstance(node, (ast.AnnAssign, ast.AugAssign, ast.NamedExpr)):
            targets = [node.target]
        elif isinstance(node, (ast.With, ast.AsyncWith)) and (
            node is path[-1] or any(item in path for item in node.items)
        ):
            targets = [item.optional_vars for item in node.items if item.optional_vars is not None]
        for target in targets:
            names |= _names_in(target)
    return frozenset(names) | _filled_by(path)


def _filled_by(path: Path) -> frozenset[str]:
    """Return the names of what the innermost call of a path copies to, and of what that was made of."""
    call = next((node for node in reversed(path) if isinstance(node, ast.Call)), None)
    if call is None or not _COPIES.fullmatch(_called(call)):
        return frozenset()
    if _called(call) == "copy_from" and isinstance(call.func, ast.Attribute):
        names = _names_in(call.func.value)
    else:
        names = _names_in(call.args[0]) if call.args else frozenset()
    scope = [path[0], *(node for node in path if isinstance(node, _FUNCTIONS))][-1]
    for each in ast.walk(scope):
        if isinstance(each, ast.Assign) and any(_names_in(target) & names for target in each.targets):
            names |= _names_in(each.value) - {
                name
                for call in ast.walk(each.value)
                if isinstance(call, ast.Call)
                for name in _names_in(call.func)
            }
    return names


def _is_passed_to(path: Path, calls: frozenset[str]) -> bool:
    """Tell whether one of these calls takes the value of a path's last node, at once or by a name it has."""
    if any(isinstance(node, ast.Call) and _called(node) in calls for node in path[:-1]):
        return True
    targets = [target for node in path if isinstance(node, ast.Assign) for target in node.targets]
    fields = {target.attr for target in targets if isinstance(target, ast.Attribute)}
    names = _names_of(path)
    if not names and not fields:
        return False
    scope = path[0] if fields else [path[0], *(node for node in path if isinstance(node, _FUNCTIONS))][-1]
    taken = [
        part
        for each in ast.walk(scope)
        if isinstance(each, ast.Call) and _called(each) in calls
        for argument in each.args
        for part in ast.walk(argument)
    ]
    return any(
        (isinstance(each, ast.Name) and each.id in names)
        or (isinstance(each, ast.Attribute) and each.attr in fields)
        for each in taken
    )


def _is_left_by(loop: ast.AST, names: frozenset[str]) -> bool:
    """Tell whether a loop ends by what a name holds."""
    if not names:
        return False
    if isinstance(loop, ast.While) and _uses(loop.test, names):
        return True
    return any(
        isinstance(each, ast.If) and _leaves(each) and _uses(each.test, names) for each in _own_nodes(loop)
    )


def _uses(node: ast.AST, names: frozenset[str]) -> bool:
    what = node.test if isinstance(node, ast.If) else node
    return any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(what))


def _leaves(branch: ast.If) -> bool:
    return any(
        isinstance(each, _LEAVES) for part in (*branch.body, *branch.orelse) for each in ast.walk(part)
    )


def _returns(branch: ast.If) -> bool:
    return any(
        isinstance(each, ast.Return) for part in (*branch.body, *branch.orelse) for each in ast.walk(part)
    )


def _is_iter_of_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "iter"
        and len(node.args) == 2
    )


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a loop or a function contains, without the functions in it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _FUNCTIONS):
            yield child
            yield from _own_nodes(child)


def _submits(loop: ast.AST, looks: frozenset[str] = frozenset()) -> bool:
    """Tell whether a loop submits operations, other than copies to what these names, or its own end, look at."""
    for each in _own_nodes(loop):
        if isinstance(each, ast.Call):
            func, name = each.func, _called(each)
            is_printed = isinstance(func, ast.Attribute) and ast.unparse(func.value).endswith(
                ("stdout", "stderr")
            )
            filled = _filled_by([loop, each])
            is_look = bool(filled & looks) or _is_left_by(loop, filled)
            if _SUBMITS.fullmatch(name) and not is_printed and not is_look:
                return True
    return False


def _called(call: ast.Call) -> str:
    """Return the last name of what is called; empty if it has none."""
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
