"""Attributes and methods that a class documents and its subclasses implement."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

__all__ = ["declared", "kept", "owed"]

_Method = TypeVar("_Method", bound=Callable[..., Any])


def owed(method: _Method) -> _Method:
    """Decorate a method that each subclass implements.

    Called unbound, as ``Stream.sync(s)``, it calls the method of the object's own class.
    """
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
    from builtins import property as kept
else:

    class declared:
        """Decorates the getter of an attribute that each subclass provides in native code."""

        def __init__(self, getter):
            self.__doc__, self.__name__ = getter.__doc__, getter.__name__

        def __get__(self, owner, kind=None):
            if owner is None:
                return self
            raise NotImplementedError(self.__name__)

        def __set__(self, owner, value):
            raise AttributeError(f"{type(owner).__name__}.{self.__name__} cannot be set")

    class kept(property):
        """Decorates the getter of an attribute whose value a subclass keeps, in ``_device`` for ``device``."""

        def __init__(self, getter):
            super().__init__(operator.attrgetter(f"_{getter.__name__}"), doc=getter.__doc__)
            self._lacking = declared(getter)

        def __set_name__(self, owner, name):
            setattr(owner, f"_{name}", self._lacking)
