"""``libascendcl.so``: the runtime calls of the dialect `acl` for C."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peerlane.dialects import acl
from peerlane.dialects._shared import c_declarations
from peerlane.dialects._shared.c_library import Library
from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl as calls

_INTERNAL_ERROR = 500000
_NAME = re.compile(r"\bacl\.[a-z_0-9.]*[a-z_0-9]")
_REFUSED = "docs/reference/acl.md lists what works"


def _init(path: str | None) -> Any:
    return acl.init() if path is None else acl.init(path)


def _set_memcpy_desc(*args: int) -> int:
    return int(acl.rt.set_memcpy_desc(*args)[-1])  # its first output is what C passes


def _get_mem_uce_info(*args: int) -> tuple[list[Any], int, int]:
    found, code = acl.rt.get_mem_uce_info(*args)
    return found, len(found), code


def _get_recent_err_msg() -> str | None:
    """Return the messages with the names of C."""
    text = acl.get_recent_err_msg()
    return text and _NAME.sub(lambda found: _symbols().get(found[0], found[0]), text)


@functools.cache
def _symbols() -> dict[str, str]:
    return {each.dialect: each.name for each in _declarations().functions.values()}


@functools.cache
def _declarations() -> c_declarations.Declarations:
    return c_declarations.read(Path(__file__).with_name("declarations.txt").read_text())


#: Calls whose arguments or outputs are others in C.
_OTHERS: dict[str, Callable[..., Any]] = {
    "acl.init": _init,
    "acl.get_recent_err_msg": _get_recent_err_msg,
    "acl.rt.set_memcpy_desc": _set_memcpy_desc,
    "acl.rt.get_mem_uce_info": _get_mem_uce_info,
}


def _call(name: str) -> Callable[..., Any]:
    if name in _OTHERS:
        return _OTHERS[name]
    module, _, short = name.rpartition(".")
    if module:
        return calls.functions(module)[short]
    cause = f"peerlane has what is about memory, streams and sharing of the vendor's runtime, and not {name}"
    return calls.refusing(name, Refusal(Code.API_NOT_SUPPORT, cause, _REFUSED))


def _refuse(call: str, name: str, cause: str) -> int:
    error = Refusal(
        Code.INVALID_PARAM, cause or f"{name} is NULL", f"pass the address of what the call needs for {name}"
    )
    return calls.fail(call, error, lambda: ((name, 0, True),) if not cause else ())


def library() -> Library:
    """Return the library."""
    return Library(
        _declarations(),
        call=_call,
        refuse=_refuse,
        failed=_INTERNAL_ERROR,
        text=bytes.decode,
    )
