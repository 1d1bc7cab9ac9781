"""Attributes and methods that a class documents and its subclasses have."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

__all__ = ["declared", "owed"]

_Method = TypeVar("_Method", bound=Callable[..., Any])


def owed(method: _Method) -> _Method:
    """Decorate a method that each subclass has: called unbound, as ``Stream.sync(s)``, it is the object's own."""
    name = method.__name__

    @functools.wraps(method)
    def of_subclass(self: Any, *args: Any, **named: Any) -> Any:
        own = getattr(type(self), name)
        if own is of_subclass:
            raise NotImplementedError(f"{type(self).__name__} lacks {name}()")
        return own(self, *args, **named)

    return cast("_Method", of_subclass)


if TYPE_CHECKING:
    from builtins import property as declared
else:

    class declared:
        """Decorates the getter of an attribute that each subclass has by other means: a slot, native code."""

        def __init__(self, getter):
            self.__doc__, self.__name__ = getter.__doc__, getter.__name__

        def __get__(self, thing, kind=None):
            if thing is None:
                return self
            raise NotImplementedError(self.__name__)

        def __set__(self, thing, value):
            raise AttributeError(f"{type(thing).__name__}.{self.__name__} cannot be set")
