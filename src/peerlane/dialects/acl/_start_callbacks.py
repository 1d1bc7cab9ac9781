"""``acl``: functions of the program that initialising and finalising call (facts/acl 6)."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from peerlane.dialects._shared.call import Address, Check, Int32, Object, Refusal, type_name
from peerlane.dialects.acl._codes import Code
from peerlane.dialects.acl._functions import address_of
from peerlane.dialects.acl._state import acl

_OTHER = 0xFFFF  # the type that several callbacks may have
_MODEL, _EXECUTOR, _COMPILER, _MEDIA = 0, 1, 3, 6


def _refuse_other(value: Any) -> Any:
    if not callable(value):
        given = "NULL" if value is None else f"of type {type_name(value)}"
        raise Refusal(Code.INVALID_PARAM, f"cbFunc is {given}", "pass a function")
    return value


_FUNCTION = Check(lambda _: _refuse_other, ("cb_func",))


class Callbacks:
    """The callbacks of one moment.

    Parameters
    ----------
    moment : str
        For texts.
    order : tuple of int
        The types that are called, in their order; those with the same one as they were registered.

    Attributes
    ----------
    registered : list
        Type, function and data of each.
    """

    def __init__(self, moment: str, order: tuple[int, ...]) -> None:
        self._moment, self._order = moment, order
        self.registered: list[tuple[int, Callable[..., int], int]] = []

    def add(self, kind: int, function: Callable[..., int], user_data: int) -> None:
        """Register one; 500000 if the type has one already."""
        if kind != _OTHER and any(each == kind for each, _, _ in self.registered):
            raise Refusal(
                Code.INTERNAL_ERROR,
                f"type {kind} has a callback for {self._moment} already",
                f"unregister it first, or take type {_OTHER:#x}, which may have several",
            )
        self.registered.append((kind, function, user_data))

    def remove(self, kind: int, function: Callable[..., int]) -> None:
        """Take one out; 500000 if it is not there."""
        for at, (each, known, _) in enumerate(self.registered):
            if each == kind and address_of(known) == address_of(function):
                del self.registered[at]
                return
        raise Refusal(
            Code.INTERNAL_ERROR,
            f"this function is not registered for {self._moment} under type {kind}",
            "pass what was registered, once",
        )

    def call(self, *first: object, without: tuple[int, ...] = ()) -> None:
        """Call all; the first code that is not 0 ends that, and is the code of the call that they belong to."""
        for kind in self._order:
            for function, data in [
                (each, data) for known, each, data in self.registered if known == kind and kind not in without
            ]:
                code = int(function(*first, data))
                if code:
                    raise Refusal(
                        code,
                        f"a callback for {self._moment}, of type {kind}, returned {code}",
                        "look at what it did; nothing is called behind it",
                    )


#: Held while callbacks are called and change: they may register others, and initialise.
lock = threading.RLock()
on_init = Callbacks("aclInit", (_MODEL, _EXECUTOR, _MEDIA, _OTHER))
on_finalize = Callbacks("aclFinalize", (_COMPILER, _MODEL, _MEDIA, _OTHER))
_config: list[Any] = []  # once it is initialised: the content of the configuration file, as a text of C


def initialise(config: bytes) -> None:
    """Call what is registered with the content of the configuration file; without one operators are left out."""
    text = ctypes.create_string_buffer(config)
    on_init.call(*_as_arguments(text), without=() if config else (_EXECUTOR,))
    _config[:] = [text]


def _as_arguments(text: Any) -> tuple[int, int]:
    return ctypes.addressof(text), len(text) - 1


def finalise() -> None:
    """Call what is registered."""
    on_finalize.call()
    _config.clear()


def forget() -> None:
    """Be as in a new process."""
    _config.clear()
    on_init.registered.clear()
    on_finalize.registered.clear()


@acl.call("aclInitCallbackRegister", checks=[_FUNCTION])
def register_init(type: Int32, cb_func: Object, user_data: Address) -> None:
    """Have ``cb_func(config, length, user_data)`` called by initialising, at once if that has been.

    ``config`` is the address of the content of the configuration file.

    Types are called in the order 0, 1 (with a configuration file alone), 6, 0xFFFF; others are not called.  One that
    returns another code than 0 ends initialising with it, but for a call at once.

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
    """Have ``cb_func(user_data)`` called by finalising: types 3, 0, 6, 0xFFFF.

    One that returns another code than 0 ends finalising with it: acl stays initialised.

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
