"""Attributes that a class documents and its subclasses have."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["declared"]

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
