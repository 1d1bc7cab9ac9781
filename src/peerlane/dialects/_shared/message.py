"""The text of a failed call, as things were when it failed, made when somebody reads it."""

from __future__ import annotations

from collections.abc import Callable

from peerlane.dialects._shared.call import Failure


class Message:
    """What a dialect tells of a failed call.

    Nothing of the program's is kept alive, nor shown as it is changed later.

    Parameters
    ----------
    failure : Failure
    see : callable
        Returns what to show of an argument (name, value, whether it is an address): its words, or what they can be
        made of whatever happens to it.
    layout : callable
        Makes the text.

    Attributes
    ----------
    call, cause, remedy : str
    code : int
    given : str
        The arguments, in words.
    """

    __slots__ = ("_arguments", "_layout", "call", "cause", "code", "remedy")

    def __init__(
        self,
        failure: Failure,
        see: Callable[[str, object, bool | None], object],
        layout: Callable[[Message], str],
    ) -> None:
        self.call, self.code = failure.call, failure.code
        self.cause, self.remedy = failure.cause, failure.remedy
        self._arguments = [
            (name, see(name, value, is_address)) for name, value, is_address in failure.arguments
        ]
        self._layout = layout

    @property
    def given(self) -> str:
        """The arguments, in words."""
        return ", ".join(f"{name}={value}" for name, value in self._arguments) or "no arguments"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and all(
            getattr(self, each) == getattr(other, each) for each in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return self._layout(self)
