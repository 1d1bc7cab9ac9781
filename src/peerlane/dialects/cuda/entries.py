"""The entry points of CUDA's libraries: a check before each call, and the variants for default streams of threads."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from peerlane.dialects._shared.call import Refusal
from peerlane.dialects.cuda.state import gpu
from peerlane.dialects.gpu.calls import HeaderCalls
from peerlane.errors import Error

_VARIANTS = ("_ptds", "_ptsz")


class Entries:
    """The calls of a header as C makes them.

    ``check``: runs before each call but those of ``unchecked``; what it raises is the call's failure.
    ``after``: runs after each of these calls that succeeds, as ``check`` before it.
    """

    def __init__(
        self,
        calls: HeaderCalls,
        check: Callable[[], None],
        unchecked: Container[str],
        after: Callable[[], None] | None = None,
    ) -> None:
        self._calls, self._check, self._unchecked, self._after = calls, check, unchecked, after

    def function(self, name: str) -> Callable[..., Any]:
        """Return a call; in a variant the handle 0 is the thread's own stream."""
        base = name[: -len(_VARIANTS[0])] if name.endswith(_VARIANTS) else name
        body = self._calls.function(base)
        served = body if base in self._unchecked else self._checked(base, body)
        if base == name:
            return served

        def of_thread(*arguments: Any) -> Any:
            with gpu.streams.null_is_own():
                return served(*arguments)

        return of_thread

    def _checked(self, name: str, body: Callable[..., Any]) -> Callable[..., Any]:
        calls, check, after = self._calls, self._check, self._after
        outputs = calls.blanks(calls.declarations.functions[name])

        def checked(*arguments: Any) -> Any:
            try:
                check()
                result = body(*arguments)
                if after is not None and not (result[-1] if outputs else result):
                    after()
            except (Refusal, Error) as error:
                code = calls.fail(name, error, tuple)
                return (*outputs, code) if outputs else code
            return result

        return checked
