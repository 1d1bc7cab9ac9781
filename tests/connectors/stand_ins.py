"""Packages of which a few modules come from their source, and all others are stand-ins."""

from __future__ import annotations

import importlib.abc
import sys
import types
from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any


class _Anything(type):
    """A class with every attribute, which may stand in an annotation, a base or a call."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _anything(name)

    def __or__(cls, other: object) -> object:
        return cls

    __ror__ = __or__


def _anything(name: str) -> type:
    def attribute(self: object, asked: str) -> Any:
        if asked.startswith("__"):
            raise AttributeError(asked)
        return _anything(asked)

    body = {
        "__init__": lambda self, *arguments, **options: None,
        "__class_getitem__": classmethod(lambda cls, item: cls),
        "__getattr__": attribute,
    }
    return _Anything(name, (), body)


class Record:
    """An object with the given attributes; the others are None, or what ``default`` returns for their names."""

    def __init__(self, default: Any = None, **attributes: Any):
        self.__dict__.update(attributes, default_of_record=default)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        default = self.default_of_record
        return default(name) if default else None


class _StandIn(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        child = f"{self.__name__}.{name}"
        stand_in = import_module(child) if self.__spec__.loader.knows(child) else _anything(name)
        setattr(self, name, stand_in)
        return stand_in


class Package(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An installed package, or one on ``PYTHONPATH``, whose modules are stand-ins but for ``real`` ones.

    Parameters
    ----------
    name : str
    real : collection of str
        Modules that are loaded from the package's files, by their names after the package's.
    names : mapping of str to mapping
        Names that stand-ins have, by the module's name after the package's; the package's own is "".
    """

    def __init__(self, name: str, real: Collection[str], names: Mapping[str, Mapping[str, Any]]):
        spec = PathFinder.find_spec(name)
        if spec is None or not spec.submodule_search_locations:
            raise ModuleNotFoundError(f"There is no package {name} to take modules from", name=name)
        self._name, self._real, self._names = name, set(real), names
        self._folders = list(spec.submodule_search_locations)
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a real module or of a stand-in."""
        package, _, module = fullname.partition(".")
        if package != self._name:
            return None
        if module in self._real:
            parts = module.split(".")[:-1]
            spec = PathFinder.find_spec(fullname, ["/".join([each, *parts]) for each in self._folders])
            if spec is None:
                raise ModuleNotFoundError(f"{self._name} has no module {module}", name=fullname)
            return spec
        return ModuleSpec(fullname, self, is_package=True)

    def knows(self, fullname: str) -> bool:
        """Tell whether a module is real or has names, or holds one that is or has."""
        module = fullname.partition(".")[2]
        return any(each == module or each.startswith(f"{module}.") for each in (*self._real, *self._names))

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        """Make a stand-in."""
        module = _StandIn(spec.name)
        module.__path__ = []
        module.__dict__.update(self._names.get(spec.name.partition(".")[2], {}))
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: a stand-in has no code."""
