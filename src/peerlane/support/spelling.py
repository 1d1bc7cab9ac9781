"""Names that somebody may have meant."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 100


def close_names(name: str, names: Iterable[str]) -> list[str]:
    """Return names that are alike: in other cases, of the same words in another order, or nearly the same letters."""
    from difflib import get_close_matches

    if name.startswith("_") or len(name) > _LONGEST:
        return []
    known = list(names)
    same = [each for each in known if each.casefold() == name.casefold()]
    words = sorted(name.split("_"))
    return (
        same or [each for each in known if sorted(each.split("_")) == words] or get_close_matches(name, known)
    )


def no_attribute(module: str, name: str, names: Iterable[str]) -> AttributeError:
    """Return the exception for a name that a module has not."""
    close = close_names(name, names)
    hint = f"; close names: {', '.join(close)}" if close else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}", name=name)
