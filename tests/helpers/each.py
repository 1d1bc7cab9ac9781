"""One test for hundreds of names: as items of their own they cost more than what they check."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import pytest

_SHOWN = 5


def for_each(arguments: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Callable[..., None]], Any]:
    """Run a test's body for each value, as ``pytest.mark.parametrize`` does, and name all that failed at its end.

    All values share the test's fixtures.
    """
    names = [each.strip() for each in arguments.split(",")] if isinstance(arguments, str) else arguments

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        fixtures = [each for name, each in signature.parameters.items() if name not in names]

        @functools.wraps(test)
        def run(**parameters: Any) -> None:
            failed = {}
            for value in values:
                row = getattr(value, "values", None)  # of pytest.param
                row = row if isinstance(row, tuple) else value if len(names) > 1 else (value,)
                try:
                    test(**parameters, **dict(zip(names, row, strict=True)))
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - all are told
                    failed[repr(row)] = "".join(traceback.format_exception(error))
            shown = "\n".join(f"{row}:\n{text}" for row, text in [*failed.items()][:_SHOWN])
            assert not failed, f"{len(failed)} failed: {', '.join(failed)}\n{shown}"

        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return decorate
