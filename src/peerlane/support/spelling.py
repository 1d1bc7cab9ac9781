"""Suggestions for misspelled names."""

from __future__ import annotations

from peerlane.support.other_libraries import meant_by

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST = 100


def close_names(name: str, names: Iterable[str], *, cutoff: float = 0.6) -> list[str]:
    """Return similar names: in another case, with the letters or words in another order, or nearly the same."""
    try:
        from difflib import get_close_matches
    except OSError:  # no descriptor is left to read it
        return []

    if name.startswith("_") or len(name) > _LONGEST:
        return []
    known = list(names)
    same = [each for each in known if each.casefold() == name.casefold()]
    words = sorted(name.split("_"))
    return (
        same
        or [each for each in known if sorted(each) == sorted(name)]
        or [each for each in known if sorted(each.split("_")) == words]
        or get_close_matches(name, known, cutoff=cutoff)
    )


def hint_for(kinds: Iterable[str], name: str, names: Iterable[str]) -> str:
    """Return what an error's text adds behind a name that a class (and its bases) or a module lacks, if anything."""
    if meant := next(filter(None, (meant_by(kind, name) for kind in kinds)), ""):
        return f"; {meant}"
    close = close_names(name, names)
    return f"; close names: {', '.join(close)}" if close else ""


def no_attribute(module: str, name: str, names: Iterable[str]) -> AttributeError:
    """Return the exception for a name that a module lacks."""
    hint = hint_for([module], name, names)
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}", name=name)


def did_you_mean(word: object, names: Iterable[str]) -> str:
    """Return what an error's text adds behind a word that is not in ``names``; empty if none is close."""
    # A single name claims to be the one meant, so it must be closer than the several of a module.
    close = close_names(word, names, cutoff=0.7) if isinstance(word, str) else []
    return f" (did you mean {close[0]!r}?)" if close else ""
