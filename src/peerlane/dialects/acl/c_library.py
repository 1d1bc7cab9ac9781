"""``libascendcl.so``: the runtime calls of the dialect `acl` for C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peerlane.backend import host
from peerlane.dialects import acl
from peerlane.dialects._shared.c_library import Library, Words
from peerlane.dialects._shared.c_names import declarations_of, in_names_of_c
from peerlane.dialects._shared.call import Arguments, CText
from peerlane.dialects._shared.machine import Context
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._shareable import SHARE_BYTES
from peerlane.dialects.acl._state import acl as calls
from peerlane.dialects.acl._state import machine
from peerlane.dialects.acl._stream import AclStream
from peerlane.streams import callbacks

_REFUSED = "docs/reference/acl.md lists what works"


def _init(path: str | None) -> Any:
    return acl.init() if path is None else acl.init(path)


def _set_memcpy_desc(*args: int) -> int:
    return int(acl.rt.set_memcpy_desc(*args)[-1])  # C has no first output: it is an argument


def _get_mem_uce_info(*args: int) -> tuple[list[Any], int, int]:
    errors, code = acl.rt.get_mem_uce_info(*args)
    return errors, len(errors), code


def _listed(call: str, at: int, items: str, name: str) -> Callable[..., Any]:
    """Return a call whose argument ``at`` is a struct of items in C, and a list of dicts in the dialect."""

    def called(*args: Any) -> Any:
        pairs = [{name: each[name], "value": each["value"]["rsv"][0]} for each in args[at].get(items, ())]
        return calls.functions("acl.rt")[call](*args[:at], pairs, *args[at + 1 :])

    return called


def _get_recent_err_msg() -> str | None:
    """Return the messages with C's names of calls."""
    text = acl.get_recent_err_msg()
    return text and in_names_of_c(text)


def _share_bytes(values: Mapping[str, Any]) -> int:
    return SHARE_BYTES.get(values["shareType"], 0)


#: Calls whose arguments or outputs differ in C.
_OTHERS: dict[str, Callable[..., Any]] = {
    "acl.init": _init,
    "acl.get_recent_err_msg": _get_recent_err_msg,
    "acl.rt.set_memcpy_desc": _set_memcpy_desc,
    "acl.rt.get_mem_uce_info": _get_mem_uce_info,
    "acl.rt.binary_load_from_file": _listed("binary_load_from_file", 1, "options", "type"),
    "acl.rt.launch_kernel_with_config": _listed("launch_kernel_with_config", 3, "attrs", "id"),
}


def _call(name: str) -> Callable[..., Any]:
    if name in _OTHERS:
        return _OTHERS[name]
    if name in calls.table:
        module, _, short = name.rpartition(".")
        return calls.functions(module)[short]
    cause = f"peerlane has what is about memory, streams and sharing of the vendor's runtime, and not {name}"
    is_pointer = declarations_of("acl").functions[name].returns.is_pointer
    refusal = Code.API_NOT_SUPPORT.refusal(cause, _REFUSED)
    return calls.refusing(name, refusal, lambda code: 0 if is_pointer else code)


def _learn_thread(epoch: int, _: Words = ()) -> bool:
    context = machine.thread.context
    if not isinstance(context, Context) or not machine.is_native(context) or machine.far:
        return False
    host.know_c_thread("acl", epoch, context.number, bool(machine.registrations), False)
    return True


def _learn_stream(epoch: int, words: Words) -> bool:
    handle, context = words[-1], machine.thread.context
    stream = machine.resources.get(handle) if handle else context.default_stream
    if not isinstance(stream, AclStream) or stream.context is not context or stream.subscription is not None:
        return False
    if not _learn_thread(epoch):
        return False
    host.know_c_stream("acl", epoch, handle, stream.neutral)
    return True


def _learn_calls(epoch: int, words: Words) -> None:
    if _learn_stream(epoch, words[:1]):
        host.know_c_callbacks("acl", epoch, callbacks.runner.queue())


def _refuse(call: str, name: str, cause: str, arguments: Arguments) -> int:
    remedy = f"pass the address of what the call needs for {name}" if name else "correct it"
    error = Code.INVALID_PARAM.refusal(cause or f"{name} is NULL", remedy)
    return calls.fail(call, error, lambda: arguments)


def library(header: str) -> Library:
    """Return the library of a header."""
    return Library(
        declarations_of(header),
        call=_call,
        refuse=_refuse,
        known={"share_bytes": _share_bytes},
        text=lambda raw: CText(raw, "utf-8", errors="surrogateescape"),
        learn={
            "aclrtGetDevice": _learn_thread,
            "aclrtMemcpy": _learn_thread,
            "aclrtMemcpyAsync": _learn_stream,
            "aclrtLaunchHostFunc": _learn_calls,
        },
    )
