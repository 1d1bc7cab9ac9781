"""Objects that mean something in their own process alone, and so are neither pickled nor copied."""

from __future__ import annotations

from typing import ClassVar, NoReturn


class OwnProcess:
    """The base of classes whose objects are not pickled; ``_elsewhere`` says what to do in another process."""

    __slots__ = ()

    _elsewhere: ClassVar[str]

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"cannot pickle or copy {name!r} objects: {self._elsewhere}")


def by_handle(name: str, what: str) -> str:
    """Return what to do with an object of class ``name`` that another process can open."""
    return (
        f"{what} lives in the process that made it. Export a handle here, and open it in the other process:\n"
        f"    handle = bytes({name.lower()}.export(allow=[pid]))  # or allow='user': all processes of this user\n"
        f"    {name.lower()} = peerlane.{name}.open(handle)"
    )
