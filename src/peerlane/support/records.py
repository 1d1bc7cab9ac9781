"""Frozen dataclasses with slots that are made fast.

``dataclasses.dataclass`` compiles six methods for each class, which took a quarter of ``import peerlane``.  Here one
is compiled, and all classes share the others.  Type checkers see the decorator of the standard library; ``fields``,
``asdict``, ``replace`` and ``is_dataclass`` work, as do pickling, copying, matching and dataclasses that inherit.
"""

from __future__ import annotations

from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen, slots):
        """Do as ``dataclasses.dataclass(frozen=True, slots=True)`` does; fields have plain defaults."""
        assert frozen and slots
        return _record


class _Described:
    """What ``dataclasses`` asks a class for; made by the standard library when it is first asked."""

    def __init__(self, cls: type, kinds: dict[str, str], defaults: dict[str, Any]) -> None:
        self._cls, self._space = cls, {"__annotations__": kinds, "__module__": cls.__module__, **defaults}

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        from dataclasses import dataclass as described

        twin: Any = described(frozen=True)(type(self._cls.__name__, (), dict(self._space)))
        for name in ("__dataclass_fields__", "__dataclass_params__"):
            setattr(self._cls, name, getattr(twin, name))
        return getattr(self._cls, self._name)


def _record(cls: type) -> type:
    kinds = {name: kind for name, kind in cls.__annotations__.items() if not kind.startswith("ClassVar")}
    space = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    defaults = {name: space.pop(name) for name in kinds if name in space}
    names = tuple(kinds)
    for name, method in _SHARED.items():
        space.setdefault(name, method)
    space.setdefault("__match_args__", names)
    space["__slots__"] = names
    space["__init__"] = _initializer(cls, kinds, defaults)
    record = type(cls)(cls.__name__, cls.__bases__, space)
    record.__qualname__ = cls.__qualname__
    for name in ("__dataclass_fields__", "__dataclass_params__"):
        described = _Described(record, kinds, defaults)
        described.__set_name__(record, name)
        setattr(record, name, described)
    return record


def _initializer(cls: type, kinds: dict[str, str], defaults: dict[str, Any]) -> Any:
    words = ", ".join(f"{name}=_defaults[{name!r}]" if name in defaults else name for name in kinds)
    steps = [f"_set(self, {name!r}, {name})" for name in kinds]
    if "__post_init__" in vars(cls):
        steps.append("self.__post_init__()")
    space = {"_set": object.__setattr__, "_defaults": defaults, "__name__": cls.__module__}
    exec(f"def __init__(self, {words}):\n " + "\n ".join(steps), space)
    initializer: Any = space["__init__"]
    initializer.__annotations__ = {**kinds, "return": None}
    initializer.__qualname__ = f"{cls.__qualname__}.__init__"
    return initializer


def _values(record: Any) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in type(record).__match_args__)


@recursive_repr()
def _repr(self: Any) -> str:
    fields = (
        f"{name}={value!r}" for name, value in zip(type(self).__match_args__, _values(self), strict=True)
    )
    return f"{type(self).__qualname__}({', '.join(fields)})"


def _eq(self: Any, other: Any) -> bool:
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _set(self: Any, name: str, value: object) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: Any, name: str) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return list(_values(self))


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(type(self).__match_args__, state, strict=True):
        object.__setattr__(self, name, value)


def _replaced(self: Any, /, **changes: Any) -> Any:
    from dataclasses import replace

    return replace(self, **changes)


_SHARED = {
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _set,
    "__delattr__": _delete,
    "__getstate__": _state,
    "__setstate__": _set_state,
    "__replace__": _replaced,
}
