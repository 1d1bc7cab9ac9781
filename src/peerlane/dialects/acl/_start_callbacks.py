"""``acl``: functions of the program that ``init`` and ``finalize`` call (facts/acl 6)."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from peerlane.dialects._shared.call import Address, Check, Int32, Object, Refusal
from peerlane.dialects.acl._checks import identity_of, refuse_no_function
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._state import acl

_OTHER = 0xFFFF  # the one type that may have several callbacks
_MODEL, _EXECUTOR, _COMPILER, _MEDIA = 0, 1, 3, 6


_FUNCTION = Check(lambda _: partial(refuse_no_function, Code.INVALID_PARAM, "cbFunc"), ("cb_func",))


class Callbacks:
    """The callbacks of one call.

    ``caller``: the C name of the call, for messages.
    ``order``: the types that are called, in this order; callbacks of one type in the order of their registration.
    """

    def __init__(self, caller: str, order: tuple[int, ...]) -> None:
        self._caller, self._order = caller, order
        self.registered: list[tuple[int, Callable[..., int], int]] = []  #: type, function and data of each

    def add(self, kind: int, function: Callable[..., int], user_data: int) -> None:
        """Register a callback; 500000 if its type has one already."""
        if kind != _OTHER and any(each == kind for each, _, _ in self.registered):
            raise Code.INTERNAL_ERROR.refusal(
                f"type {kind} has a callback for {self._caller} already",
                f"unregister it first, or take type {_OTHER:#x}, which may have several",
            )
        self.registered.append((kind, function, user_data))

    def remove(self, kind: int, function: Callable[..., int]) -> None:
        """Take a callback out; 500000 if it is not registered."""
        for at, (each, known, _) in enumerate(self.registered):
            if each == kind and identity_of(known) == identity_of(function):
                del self.registered[at]
                return
        raise Code.INTERNAL_ERROR.refusal(
            f"this function is not registered for {self._caller} under type {kind}",
            "pass what was registered, once",
        )

    def call(self, *first: object, without: tuple[int, ...] = ()) -> None:
        """Call all, until one returns another code than 0: the caller returns that code."""
        for kind in self._order:
            for function, data in [
                (each, data) for known, each, data in self.registered if known == kind and kind not in without
            ]:
                code = int(function(*first, data))
                if code:
                    raise Refusal(
                        code,
                        f"a callback for {self._caller}, of type {kind}, returned {code}",
                        "look at what it did; nothing is called behind it",
                    )


#: Held while callbacks are called and registered; reentrant, as a callback may register others, and call init.
lock = threading.RLock()
on_init = Callbacks("aclInit", (_MODEL, _EXECUTOR, _MEDIA, _OTHER))
on_finalize = Callbacks("aclFinalize", (_COMPILER, _MODEL, _MEDIA, _OTHER))
_config: list[Any] = []  # while acl is initialised, the content of the configuration file as a C string


def initialise(config: bytes) -> None:
    """Call the callbacks of ``init`` with the content of the configuration file; without one, not the executor's."""
    text = ctypes.create_string_buffer(config)
    on_init.call(*_as_arguments(text), without=() if config else (_EXECUTOR,))
    _config[:] = [text]


def _as_arguments(text: Any) -> tuple[int, int]:
    return ctypes.addressof(text), len(text) - 1


def finalise() -> None:
    """Call the callbacks of ``finalize``."""
    on_finalize.call()
    _config.clear()


def forget() -> None:
    """Reset to the state of a new process."""
    _config.clear()
    on_init.registered.clear()
    on_finalize.registered.clear()


@acl.call("aclInitCallbackRegister", checks=[_FUNCTION])
def register_init(type: Int32, cb_func: Object, user_data: Address) -> None:
    """Have ``init`` call ``cb_func(config, length, user_data)``; call it at once if acl is initialised.

    ``config`` is the address of the content of the configuration file.

    ``init`` calls types in the order 0, 1 (only with a configuration file), 6, 0xFFFF, and no others.  The first that
    returns another code than 0 ends ``init`` with that code; a call at once has no such effect.

    Refuses: 100000 NULL; 500000 the type has one, but for 0xFFFF
    Basis: S
    """
    with lock:
        on_init.add(type, cb_func, user_data)
        if _config:
            cb_func(*_as_arguments(_config[0]), user_data)


@acl.call("aclInitCallbackUnRegister", checks=[_FUNCTION])
def unregister_init(type: Int32, cb_func: Object) -> None:
    """Take a callback of ``aclInitCallbackRegister`` out.

    Refuses: 100000 NULL; 500000 not registered
    Basis: S
    """
    with lock:
        on_init.remove(type, cb_func)


@acl.call("aclFinalizeCallbackRegister", checks=[_FUNCTION])
def register_finalize(type: Int32, cb_func: Object, user_data: Address) -> None:
    """Have ``finalize`` call ``cb_func(user_data)``: types 3, 0, 6, 0xFFFF, in this order.

    The first that returns another code than 0 ends ``finalize`` with that code: acl stays initialised.

    Refuses: 100000 NULL; 500000 the type has one, but for 0xFFFF
    Basis: S
    """
    with lock:
        on_finalize.add(type, cb_func, user_data)


@acl.call("aclFinalizeCallbackUnRegister", checks=[_FUNCTION])
def unregister_finalize(type: Int32, cb_func: Object) -> None:
    """Take a callback of ``aclFinalizeCallbackRegister`` out.

    Refuses: 100000 NULL; 500000 not registered
    Basis: S
    """
    with lock:
        on_finalize.remove(type, cb_func)
